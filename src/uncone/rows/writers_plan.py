"""What is to be written, and where the rows come from: the format that a file name asks for, its dtype, and what it has no place for."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from uncone.errors import InputError
from uncone.rows import Rows
from uncone.rows.flat import TORCH_DTYPES, FlatRows
from uncone.rows.npy import ColumnRows
from uncone.rows.npz import InflatedRows
from uncone.rows.parquet import ParquetRows
from uncone.rows.word_vectors import WordVectorRows
from uncone.rows.word_vectors_binary import Word2VecRows

_SUFFIXES: tuple[tuple[str, str], ...] = (
    (".npy", "npy"),
    (".npz", "npz"),
    (".safetensors", "safetensors"),
    (".parquet", "parquet"),
    (".vec", "text"),
    (".txt", "text"),
    (".glove", "text"),
    (".vec.gz", "gzip"),
    (".txt.gz", "gzip"),
    (".bin", "word2vec"),
)
_PARTS = {"npz": "vectors", "safetensors": "vectors", "parquet": "vector"}
"""Formats whose files hold several things by name, and what the rows are called where nothing says it."""
_WORDS = ("text", "gzip", "word2vec")
_NUMPY = ("float64", "float32", "float16")


@runtime_checkable
class Writer(Protocol):
    """Takes the rows in order."""

    def write(self, rows: torch.Tensor) -> None:
        """The next rows, (any number, K), in the plan's dtype. They may change once this returns."""

    def close(self) -> None:
        """Write what follows the last row."""


@dataclass(frozen=True)
class Source:
    """The rows that are read. `format`, `path` and `part` say where they lie as they are, if that is a file that could be written too."""

    rows: Rows
    format: str | None = None
    path: Path | None = None
    part: str | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be written: `shape` (N, K) of `dtype` in `format`, under the name `part` where a file of that format has names."""

    path: Path
    format: str
    part: str
    shape: tuple[int, int]
    dtype: str
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> torch.dtype:
        """The dtype of what the writer is given."""
        return TORCH_DTYPES[self.dtype]


def plan_output(out: str | os.PathLike[str], source: Source, k: int) -> Plan:
    """What `out` asks for, by its suffix; without one, the format of the source. `k` is the width of what is written.

    Raises:
        InputError: a suffix that is not written, or '#' after a file that holds one matrix.
    """
    path, part = split_part(os.fspath(out))
    form = _format(path, source)
    if part is not None and form not in _PARTS:
        raise InputError(
            f"expected a file name without '#', got {path}#{part}: a file of that kind holds one matrix"
        )
    if part is None:
        part = (source.part if source.format == form else None) or _PARTS.get(form, "")
    dtype, notes = _dtype(form, source.rows.dtype)
    return Plan(path, form, part, (source.rows.shape[0], k), dtype, (*notes, *_lost(form, source)))


def source_of(rows: Rows) -> Source:
    """The rows, with the file that they are the whole of or a named part of."""
    path, part = split_part(rows.name)
    known = suffixed(path)
    if isinstance(rows, ParquetRows) and path.exists():
        return Source(rows, "parquet", path, part)
    if not path.is_file():
        return Source(rows)
    if isinstance(rows, WordVectorRows):
        return Source(rows, "gzip" if path.name.endswith(".gz") else "text", path)
    if isinstance(rows, Word2VecRows):
        return Source(rows, "word2vec", path)
    if isinstance(rows, FlatRows | ColumnRows | InflatedRows) and known in ("npy", "npz", "safetensors"):
        return Source(rows, known, path, part)
    return Source(rows)


def split_part(text: str) -> tuple[Path, str | None]:
    """A path, and what follows its '#' where that names a part of a file. A '#' may also stand in the name of a file or folder."""
    if Path(text).exists():
        return Path(text), None
    at = text.find("#")
    while at >= 0:
        left = Path(text[:at])
        if text[at + 1 :] and (suffixed(left) is not None or left.exists()):
            return left, text[at + 1 :]
        at = text.find("#", at + 1)
    return Path(text), None


def suffixed(path: Path) -> str | None:
    """The format that the end of a name says."""
    return next((form for suffix, form in _SUFFIXES if path.name.endswith(suffix)), None)


def _format(path: Path, source: Source) -> str:
    known = suffixed(path)
    if known is not None:
        return known
    if not path.suffix and source.format is not None:
        return source.format
    written = ", ".join(suffix for suffix, _ in _SUFFIXES)
    raise InputError(
        f"expected a file name that ends in one of {written}, got {path.name!r}: its end says what is written"
    )


def _dtype(form: str, stored: str) -> tuple[str, tuple[str, ...]]:
    """The dtype that is written for rows stored as `stored`, and what is to be said of it."""
    if stored == "float32" or (stored == "float64" and form not in _WORDS):
        return stored, ()
    if form in _WORDS:
        return "float32", (f"The rows are stored as {stored}; with words float32 is written.",)
    if stored in _NUMPY or (form == "safetensors" and stored in TORCH_DTYPES):
        return stored, (f"Computed in float32, then rounded once to {stored}, as the rows are stored.",)
    return "float32", (
        f"The rows are stored as {stored}; float32 is written, which holds every such number.",
    )


def _lost(form: str, source: Source) -> tuple[str, ...]:
    """What the source has beside the rows and this format has no place for."""
    if source.format == "parquet" and form != "parquet":
        return ("Other columns of the source are not in the file written; a .parquet file would have them.",)
    if source.format in _WORDS and form not in (*_WORDS, "parquet"):
        return (
            "The words of the source are not in the file written; text, word2vec and .parquet have a place for them.",
        )
    if source.format in ("npz", "safetensors") and form != source.format:
        return (
            f"What else {source.path.name if source.path else 'the source'} holds is not in the file written.",
        )
    return ()
