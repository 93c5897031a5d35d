"""Small tokenizers of each family, over a handful of words, to be decided about and evaluated with."""

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from uncone.evaluation.word_vocabulary import PROBES

WORDS = ("the", *PROBES, "Paris", "river")
SPACE = "▁"


def byte_level(words: Sequence[str] = WORDS, *, add_prefix_space: bool = False) -> Any:
    """As GPT-2: whole words only after a space, single letters else; the vocabulary holds the bare words too."""
    tokenizer = _merged(["Ġ" + word for word in words], ["Ġ", *(chr(code) for code in range(33, 127))], unk=None)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    return tokenizer


def wordpiece(words: Sequence[str] = WORDS, *, lowercase: bool = False) -> Any:
    """As BERT: a word starts with its bare form, its further pieces with ##."""
    tokens = ["[UNK]", *words, *ascii_lowercase, *("##" + letter for letter in ascii_lowercase)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if lowercase:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    return tokenizer


def metaspace(words: Sequence[str] = WORDS, *, prepend: str = "always") -> Any:
    """As T5 and newer Llama files: SentencePiece's space mark, put before the text or not."""
    tokenizer = _merged([SPACE + word for word in words], [SPACE, *(chr(code) for code in range(33, 127))], unk="<unk>")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend)
    return tokenizer


def normalised_spaces(words: Sequence[str] = WORDS) -> Any:
    """As Llama 2: the mark is put there by the normaliser, and nothing cuts the text before the merges."""
    tokenizer = _merged([SPACE + word for word in words], [SPACE, *(chr(code) for code in range(33, 127))], unk="<unk>")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return tokenizer


def _merged(targets: Sequence[str], letters: Sequence[str], unk: str | None) -> Any:
    """BPE whose merges build each target from left to right."""
    tokens = dict.fromkeys(([unk] if unk else []) + list(letters))
    merges = []
    for target in targets:
        for end in range(2, len(target) + 1):
            if target[:end] not in tokens:
                tokens[target[:end]] = None
                merges.append((target[: end - 1], target[end - 1]))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return Tokenizer(models.BPE(vocabulary, merges, unk_token=unk))
