"""The text as ids: a byte-level BPE made from its first part, and what was counted there."""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.atomic import write_text
from uncone.errors import InputError

END = "<|endoftext|>"  # between articles


def articles(folder: Path, name: str) -> Iterator[str]:
    """InputError where the file is missing or has no text."""
    path = folder / f"{name}.txt.xz"
    if not path.is_file():
        raise InputError(f"expected {path.name} in {folder}, got none: give the folder of wiki-en-2018 by --data")
    found, lines = 0, list[str]()
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        if line.startswith("= ") and line.endswith(" =") and not line.startswith("= = ") and lines:
            found += 1
            yield "\n".join(lines).strip() + "\n"
            lines = []
        lines.append(line)
    if rest := "\n".join(lines).strip():
        found += 1
        yield rest + "\n"
    if not found:
        raise InputError(f"expected text in {path}, got an empty file: give the folder of wiki-en-2018 by --data")


def byte_level(kept: Path, texts: Iterable[str], vocabulary: int, special: list[str]) -> Any:
    """A byte-level BPE of some texts, made where `kept` has none yet; the special tokens have the first ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if not kept.exists():
        made: Any = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        options: Any = {"vocab_size": vocabulary, "special_tokens": special, "show_progress": False}
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(texts, trainers.BpeTrainer(**options, initial_alphabet=alphabet))
        write_text(kept, made.to_str())
    return Tokenizer.from_file(str(kept))


class Text:
    """Ids of the parts of a text, kept in `work`."""

    def __init__(self, folder: Path, work: Path, vocabulary: int, shards: int) -> None:
        self.folder, self.work = folder, work / f"bpe-{vocabulary}-{shards}"
        self.work.mkdir(parents=True, exist_ok=True)
        self.first = [f"train-{i:02}" for i in range(shards)]
        texts = (one for part in self.first for one in articles(folder, part))
        self.tokenizer = byte_level(self.work / "tokenizer.json", texts, vocabulary, [END])
        self.vocabulary = self.tokenizer.get_vocab_size()

    def save(self, folder: Path) -> None:
        """The tokenizer beside a model, as transformers reads it."""
        from transformers import PreTrainedTokenizerFast

        PreTrainedTokenizerFast(tokenizer_object=self.tokenizer, eos_token=END, bos_token=END).save_pretrained(folder)

    def ids(self, part: str) -> torch.Tensor:
        """(n,) of a part, each article followed by END."""
        kept = self.work / f"{part}.npy"
        if not kept.exists():
            end, found = self.tokenizer.token_to_id(END), list[int]()
            for one in self.tokenizer.encode_batch(list(articles(self.folder, part))):
                found += [*one.ids, end]
            partial = kept.with_suffix(".tmp.npy")
            np.save(partial, np.array(found, np.int32))
            partial.rename(kept)
        return torch.from_numpy(np.load(kept)).long()

    def windows(self, parts: int, length: int) -> torch.Tensor:
        """(n, length + 1) of the first parts of the training text; the last id of each is the first of the next."""
        ids = torch.cat([self.ids(f"train-{i:02}") for i in range(parts)])
        return ids.unfold(0, length + 1, length)

    def counts(self) -> torch.Tensor:
        """(V,) in the parts that the tokenizer is of."""
        return torch.bincount(torch.cat([self.ids(part) for part in self.first]), minlength=self.vocabulary)
