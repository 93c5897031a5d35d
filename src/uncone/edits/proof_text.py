"""What a proof runs on: real text as the model's own tokenizer cuts it, and random ids, which reach rows that no text does."""

import io
import lzma
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from uncone.errors import InputError, UnconeError, first_line
from uncone.model import ModelFiles
from uncone.model.hugging_face import open_tokenizer
from uncone.regular import open_unpacked

Tensor = torch.Tensor
MOST_TEXT = 2**20
"""Characters that are read of a text."""
_LONGEST, _BATCH = 128, 4

SAMPLE = """A language model learns a table with one row for each token. Rows of tokens that no text holds are only ever pushed away,
and they all end in the same place. "Is that so?" asked the old woman. She had lived near the harbour for 71 years, and in the spring of
1987 she had counted the ships: 1,204 of them, from Bergen, Porto and Odessa. The children laughed and ran down to the water.

def mean(values: list[float]) -> float:
    return sum(values) / len(values)  # no values: ZeroDivisionError

Das Wasser war kalt, aber niemand wollte nach Hause gehen. Il pleuvait depuis trois jours, et la route était coupée. Мы долго
ждали поезда. 天気がいいから、散歩しましょう。 The committee's report (see section 4.2) says that costs rose by 3.5 % in 2019, while exports
fell; https://example.org/report.html has the tables. Once upon a time there was a little girl named Lily. She loved to play outside in
the park. One day, she saw a big, red ball. "Can I play with it?" she asked her mum. Her mum smiled and said, "Yes, but be careful."
In mathematics, a vector space is a set whose elements may be added together and multiplied by numbers. Water boils at 100 degrees
Celsius at sea level; on a mountain it boils sooner, because the air is thinner there. He sold the house, bought a boat and was never seen again.
"""


@dataclass(frozen=True)
class ProofText:
    """Ids to run on: windows of text (B, T), which may be None, and random ids (B, T). `name` says what the text was."""

    name: str
    text: Tensor | None
    random: Tensor


def proof_text(files: ModelFiles, model: Any, n: int, text: str | os.PathLike[str] | None) -> ProofText:
    """Ids below `n` for a proof on `model`: at most 1,024 of text and 256 random ones, fewer where their logits would be more than 2**25 numbers each.

    Of text there are two windows at least, where it is long enough, and of random ids one.

    Args:
        files: the directory, for its tokenizer.
        model: for the longest input that it takes.
        n: the number of rows that ids may name.
        text: a file in UTF-8, plain or packed as .gz or .xz; None for a sample in several languages that is part of uncone.

    Raises:
        InputError: the text cannot be read, or is given and the directory has no tokenizer; or gives fewer than two tokens.
    """
    length = longest_input(model)
    count = max(2 * length, min(1024, 2**25 // n) // length * length)
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, n, (min(count, 256) // length or 1, length), generator=generator)
    ids, why = token_ids(files, SAMPLE if text is None else read_text(text), n)
    if ids is None:
        if text is not None:
            raise InputError(
                f"expected a tokenizer in {files.path} for the text, got none that works ({why}): leave the text out"
            )
        return ProofText(f"random ids, as {why}", None, random)
    windows = cut(ids[:count], length)
    if windows is None:
        raise InputError(
            f"expected a text of at least two tokens, got {len(ids)} in {text}: give a longer one"
        )
    return ProofText("a sample of text" if text is None else Path(text).name, windows, random)


def cut(ids: Tensor, length: int) -> Tensor | None:
    """Windows (B, length) of ids (N,), what is left over at the end aside; one shorter window where there are fewer; None below two."""
    if len(ids) < 2:
        return None
    full = len(ids) // length
    return ids[: full * length].view(full, length) if full else ids[None]


def longest_input(model: Any) -> int:
    """How many ids a window holds: 128, or what the model has positions for."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    known = [
        value
        for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len")
        if type(value := getattr(config, name, None)) is int and value > 0
    ]
    most = min(known, default=_LONGEST)
    return max(
        2, min(_LONGEST, most - 4 if most > 16 else most // 2)
    )  # some count positions from 2, behind that of the padding


def read_text(path: str | os.PathLike[str]) -> str:
    """The first `MOST_TEXT` characters of a text in UTF-8, plain or packed as .gz or .xz.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    how = "give a text file in UTF-8, or one packed as .gz or .xz"
    try:
        with (
            open_unpacked(path, how=how) as packed,
            io.TextIOWrapper(cast(BinaryIO, packed), encoding="utf-8", errors="replace") as text,
        ):
            return text.read(MOST_TEXT)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"cannot read {path}: {reason}: {how}") from error


def token_ids(files: ModelFiles, text: str, n: int) -> tuple[Tensor | None, str]:
    """(ids of the text (N,), ""), as tokenizer.json or else transformers reads the tokenizer of the directory; or (None, why not)."""
    tokenizer, why = load_tokenizer(files)
    if tokenizer is None:
        return None, why
    try:
        ids = torch.tensor(tokenizer.encode(text).ids, dtype=torch.int64)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        return None, f"the tokenizer fails ({first_line(error)})"
    if len(ids) and int(ids.max()) >= n:
        return None, f"the tokenizer gives id {int(ids.max())}, the model has {n} rows"
    return ids, ""


def load_tokenizer(files: ModelFiles) -> tuple[Any, str]:
    """(the `tokenizers.Tokenizer` of a directory, ""), which neither cuts nor pads; or (None, why not)."""
    try:
        tokenizer = open_tokenizer(files.path)
    except UnconeError as error:
        return None, f"its tokenizer cannot be read ({first_line(error)})"
    if tokenizer is None:
        return None, "the model has no tokenizer"
    return tokenizer, ""
