"""Pairs of sentences as ids: one byte-level BPE of both languages, and what was counted among the targets."""

import gzip
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "rare_tokens"))
from text import byte_level

from uncone.errors import InputError

PAD, END = "<pad>", "</s>"
SOURCE, TARGET = "en", "de"


def words(text: str) -> list[str]:
    """Its runs of letters, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


class Bitext:
    """A folder of NAME.en.gz and NAME.de.gz, a sentence per line."""

    def __init__(self, folder: Path, work: Path, vocabulary: int) -> None:
        self.folder, kept = folder, work / f"bpe-{vocabulary}"
        kept.mkdir(parents=True, exist_ok=True)
        both = [line for language in (SOURCE, TARGET) for line in self.lines("train", language)]
        self.tokenizer = byte_level(kept / "tokenizer.json", both, vocabulary, [PAD, END])
        self.vocabulary = self.tokenizer.get_vocab_size()
        self.pad, self.end = (self.tokenizer.token_to_id(one) for one in (PAD, END))

    def lines(self, name: str, language: str) -> list[str]:
        """InputError where the file is missing or empty, or a sentence is."""
        path = self.folder / f"{name}.{language}.gz"
        if not path.is_file():
            raise InputError(f"expected {path.name} in {self.folder}, got none: give the folder of Multi30k by --data")
        found = gzip.decompress(path.read_bytes()).decode().splitlines()
        if not any(found):
            raise InputError(f"expected sentences in {path}, got an empty file: give the folder of Multi30k by --data")
        if "" in map(str.strip, found):
            at = next(i for i, line in enumerate(found, 1) if not line.strip())
            raise InputError(f"expected a sentence in every line of {path}, got none in line {at}: drop the pair")
        return found

    def ids(self, name: str, length: int) -> tuple[list[list[int]], list[list[int]]]:
        """Of the sources and of the targets, each with END; InputError where they are no pairs, or are too long."""
        sides = [
            [[*of.ids, self.end] for of in self.tokenizer.encode_batch(self.lines(name, one))]
            for one in (SOURCE, TARGET)
        ]
        sources, targets = sides
        if len(sources) != len(targets):
            got = f"got {len(sources)} and {len(targets)}"
            raise InputError(
                f"expected as many {SOURCE} as {TARGET} sentences of {name} in {self.folder}, {got}: pair them"
            )
        if (longest := max(map(len, sources + targets))) > length:
            raise InputError(
                f"expected {name} to have at most {length} ids a sentence, got {longest}: raise length in [model]"
            )
        return sources, targets

    def counts(self, length: int) -> torch.Tensor:
        """(V,) among the targets of the training text; ids of the other language alone have none."""
        ids = [i for target in self.ids("train", length)[1] for i in target]
        return torch.bincount(torch.tensor(ids), minlength=self.vocabulary)

    def word_counts(self) -> Counter[str]:
        return Counter(word for line in self.lines("train", TARGET) for word in words(line))

    def save(self, folder: Path) -> None:
        """The tokenizer beside a model, as transformers reads it."""
        from transformers import PreTrainedTokenizerFast

        PreTrainedTokenizerFast(tokenizer_object=self.tokenizer, eos_token=END, pad_token=PAD).save_pretrained(folder)


def padded(some: list[list[int]], pad: int) -> torch.Tensor:
    """(N, longest)."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in some], batch_first=True, padding_value=pad)


def batch_of(sources: list[list[int]], targets: list[list[int]], pad: int) -> dict[str, Any]:
    """What Marian takes."""
    ids = padded(sources, pad)
    return {"input_ids": ids, "attention_mask": (ids != pad).long(), "labels": padded(targets, -100)}
