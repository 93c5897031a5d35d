"""Splits of a token without the token: against tokenizers that never had it, and against slow loops."""

import itertools
import json

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from uncone.edits.new_rows import sub_tokens
from uncone.errors import InputError


def merged_slowly(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Byte-pair encoding as its paper says it: the first merge of the list that applies, everywhere, until none does."""
    parts = list(word)
    for a, b in itertools.cycle(merges or [("", "")]):
        pairs = list(itertools.pairwise(parts))
        if (best := next((m for m in merges if m in pairs), None)) is None:
            return parts
        if (a, b) != best:
            continue
        out = list[str]()
        while parts:
            out.append("".join(parts[:2]) if tuple(parts[:2]) == best else parts[0])
            parts = parts[2:] if tuple(parts[:2]) == best else parts[1:]
        parts = out
    return parts


MERGES = [("a", "b"), ("b", "c"), ("ab", "c"), ("abc", "d"), ("c", "d"), ("bc", "d")]


def bpe(**options) -> Tokenizer:
    pieces = dict.fromkeys(["a", "b", "c", "d", *("".join(m) for m in MERGES)])
    return Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=MERGES, **options))


@pytest.mark.parametrize("options", [{}, {"ignore_merges": True}, {"dropout": 0.5}])
def test_byte_pairs_against_a_slow_loop(options):
    tokenizer = bpe(**options)
    number = tokenizer.token_to_id
    for removed in (["abc"], ["abcd"], ["abc", "abcd"], ["ab", "abcd", "bc"], ["cd"]):
        left = [m for m in MERGES if not {*m, "".join(m)} & set(removed)]
        split = {piece: merged_slowly(piece, left) for piece in removed}
        expected = {number(piece): tuple(map(number, parts)) for piece, parts in split.items()}
        assert sub_tokens(tokenizer, expected) == expected


def test_a_single_character_and_a_byte_have_no_parts():
    tokenizer = bpe()
    assert sub_tokens(tokenizer, [tokenizer.token_to_id("a"), 99]) == {tokenizer.token_to_id("a"): (), 99: ()}
    assert sub_tokens(tokenizer, []) == {}
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<0x61>", "<", "0", "x", "6", "1", ">", "a"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    assert sub_tokens(tokenizer, [1, 8]) == {1: (), 8: ()}  # the byte that a falls back to is set anew too
    assert sub_tokens(tokenizer, [8]) == {8: (1,)}


def test_the_end_of_a_word_is_kept():
    pieces = ["l", "o", "w", "o</w>", "w</w>", "lo", "lo</w>", "low</w>", "low"]
    merges = [("l", "o"), ("l", "o</w>"), ("lo", "w</w>"), ("lo", "w")]
    vocabulary = {p: i for i, p in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, end_of_word_suffix="</w>"))
    for removed, word, parts in ((["low</w>"], "low</w>", ["lo", "w</w>"]), (["low", "low</w>"], "low", ["lo", "w"])):
        found = sub_tokens(tokenizer, [vocabulary[piece] for piece in removed])
        assert [pieces[i] for i in found[vocabulary[word]]] == parts


WORD_PIECES = "[UNK] [ ] un ##used ##us ##ed unused ##7 7 [unused7] ##u ##s ab a"


def test_word_pieces():
    pieces = WORD_PIECES.split()
    tokenizer = Tokenizer(models.WordPiece(vocab={p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def split(*removed: str) -> list[list[str]]:
        found = sub_tokens(tokenizer, [pieces.index(piece) for piece in removed])
        return [[pieces[i] for i in found[pieces.index(piece)]] for piece in removed]

    assert split("[unused7]") == [["[", "unused", "##7", "]"]]
    assert split("unused", "[unused7]") == [["un", "##used"], ["[", "un", "##used", "##7", "]"]]
    assert split("##used") == [["##us", "##ed"]]
    assert split("##used", "##us") == [["##u", "##s", "##ed"], ["##u", "##s"]]
    assert split("ab") == [[]]  # there is no ##b: unknown is not a part
    assert split("##7") == [[]]


def test_unigrams_against_every_split():
    scores = {"a": -3.0, "b": -3.2, "ab": -4.0, "ba": -4.1, "aba": -5.0, "abab": -6.0, "<unk>": 0.0}
    pieces = list(scores)
    tokenizer = Tokenizer(models.Unigram(list(scores.items()), unk_id=pieces.index("<unk>"), byte_fallback=False))
    for removed in (["abab"], ["abab", "aba"], ["ab"], ["aba", "ab", "ba"]):
        found = sub_tokens(tokenizer, [pieces.index(p) for p in removed])
        for word in removed:
            cuts = [c for n in range(len(word)) for c in itertools.combinations(range(1, len(word)), n)]
            splits = [[word[i:j] for i, j in itertools.pairwise([0, *cut, len(word)])] for cut in cuts]
            known = [s for s in splits if all(p in scores and p not in removed for p in s)]
            best = max(known, key=lambda s: sum(scores[p] for p in s))
            assert [pieces[i] for i in found[pieces.index(word)]] == best


def test_added_tokens_are_split_as_text():
    tokenizer = bpe()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens(["AB", "bcd!"])
    first, second, ab, bcd = map(tokenizer.token_to_id, ("AB", "bcd!", "ab", "bcd"))
    assert sub_tokens(tokenizer, [first, second]) == {first: (ab,), second: (bcd,)}


def test_a_tokenizer_that_needs_the_token_is_said():
    tokenizer = Tokenizer(models.WordLevel(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assert sub_tokens(tokenizer, [1]) == {1: ()}
    content = json.loads(tokenizer.to_str())
    content["model"].pop("vocab")

    class Broken:
        def to_str(self) -> str:
            return json.dumps(content)

        def id_to_token(self, i: int) -> str:
            return "a"

    with pytest.raises(InputError, match="expected a tokenizer with a vocabulary"):
        sub_tokens(Broken(), [1])
