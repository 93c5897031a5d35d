"""One file of matrices: what PATH#PART names, and how each format is opened and written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncone.errors import InputError, needed
from uncone.roles import Path_
from uncone.rows.base import Rows, Source, Target, Writer
from uncone.rows.bytes import PICKLE, ZIP, File, FlatRows, LocalFile
from uncone.rows.floats import DTYPES
from uncone.rows.lance import open_lance
from uncone.rows.names import named, only
from uncone.rows.npy import ColumnRows, InflatedRows, NpyWriter, NpzWriter, open_npy, open_npz
from uncone.rows.parquet import ParquetRows, is_parquet_folder, open_parquet
from uncone.rows.parquet_writer import ParquetRowsWriter
from uncone.rows.safetensors import FLOATS, Entry, SafetensorsWriter, matrices, read_header, without_ties
from uncone.rows.word2vec import Word2VecRows, Word2VecWriter
from uncone.rows.word_vectors import GzipWriter, TextWriter, WordVectorRows

KINDS = (
    "a model directory, a folder or a glob of .npy or .parquet files, a .lance dataset, a .gguf, .safetensors, .npy, "
    ".npz, .parquet, .pt, .pth, .ckpt, .bin, .vec, .glove or .txt file, or the name of a model in the Hugging Face "
    "cache"
)
_FORMATS = {f".{form}": form for form in ("npy", "npz", "safetensors", "parquet", "lance")}
_FORMATS |= dict.fromkeys((".vec", ".txt", ".glove"), "text") | dict.fromkeys((".vec.gz", ".txt.gz"), "gzip")
_FORMATS |= {".bin": "word2vec"} | dict.fromkeys((".pt", ".pth", ".ckpt"), "checkpoint")
WRITERS: dict[str, type[Writer]] = {"npy": NpyWriter, "npz": NpzWriter, "safetensors": SafetensorsWriter}
WRITERS |= {"parquet": ParquetRowsWriter, "text": TextWriter, "gzip": GzipWriter, "word2vec": Word2VecWriter}
_PARTS = {"npz": "vectors", "safetensors": "vectors", "parquet": "vector"}
"""Formats that hold several things by name, and the default name."""
WORDS = {"text": "a file of word vectors", "gzip": "a file of word vectors", "word2vec": "a word2vec file"}
_SINGLE = {"npy": "a .npy file"} | WORDS


def split_part(spec: Path_, *, names: bool = False) -> tuple[str, str | None]:
    """The path in PATH#PART, and the part. With `names` other text is NAME#PART, where NAME has no '#'.

    The path ends at the first '#' after a path that exists, or else after the ending of a format: a name may hold a
    '#'.
    """
    text = os.fspath(spec)
    if is_there(text):
        return text, None
    ends = [i for i, character in enumerate(text) if character == "#" and (names or text[i + 1 :])]
    existing = (end for end in ends if is_there(text[:end]))
    known = (end for end in ends if format_of(text[:end]) is not None)
    end = next(existing, next(known, ends[0] if names and ends else len(text)))
    return text[:end], text[end + 1 :] if end < len(text) else None


def format_of(path: Path_) -> str | None:
    return next((form for suffix, form in _FORMATS.items() if os.fspath(path).endswith(suffix)), None)


def open_elsewhere(file: File, part: str | None) -> Rows:
    """Open a remote file whose format allows reading parts."""
    form = format_of(file.name)
    if form == "npy" and part is None:
        return open_npy(file)
    if form == "parquet":
        return open_parquet(file, part)
    if form == "safetensors":
        return _open_tensors(file, read_header(file)[0], part)
    expected = "a remote .safetensors, .npy or .parquet file, or a model's folder"
    raise InputError(
        f"expected {expected}, got {file.name}{f'#{part}' if part else ''}: copy the file, and open the copy"
    )


def open_file(path: Path, part: str | None, form: str | None = None) -> Rows:
    """Open a file, in the format `form` if its name shows no format."""
    form = "parquet" if is_parquet_folder(path) else form or format_of(path)
    if form is None:
        raise InputError(f"expected {KINDS}, got {path.name!r}: convert it, or pass an array")
    if form == "word2vec":
        source = LocalFile(path)
        if source.head(4) == ZIP or source.head(1) == PICKLE:
            form = "checkpoint"
        elif not source.head(1).isdigit():  # word2vec begins so, and its reader reports what is wrong
            raise InputError(
                f"expected a .bin file of torch.save or word2vec, got {path}: convert it, or pass an array"
            )
    if part is not None and form in _SINGLE:
        raise InputError(f"expected {_SINGLE[form]} without '#', got {path}#{part}: it holds one matrix")
    if form == "npy":
        return open_npy(path)
    if form == "lance":
        return open_lance(str(path), part, str(path))
    if form == "npz":
        return open_npz(path, part)
    if form == "parquet":
        return open_parquet(path, part)
    if form in WORDS:
        return Word2VecRows(path) if form == "word2vec" else WordVectorRows(path, zipped=form == "gzip")
    source = LocalFile(path)
    return _open_tensors(source, checkpoint_entries(source) if form == "checkpoint" else read_header(source)[0], part)


def _open_tensors(source: File, entries: Mapping[str, Entry], part: str | None) -> Rows:
    path = source.name
    if part is None:
        known = without_ties(entries)
        states = [name for name, entry in known.items() if len(entry.shape) > 2 and entry.dtype in FLOATS]
        # An array with more axes is refused with its shape.
        part = only(list(matrices(known)) or states[:1], path, among=f"{len(entries)} tensors")
    return named(entries, part, path).rows(source, f"{path}#{part}" if part else path)


def checkpoint_entries(source: LocalFile) -> Any:
    needed("torch", f"reading {source.name} needs torch: pip install 'uncone[torch]'")
    from uncone.rows.checkpoint import read_checkpoint

    return read_checkpoint(source)


def source_of(rows: Rows) -> Source:
    text, part = split_part(rows.name)
    path, form = Path(text), format_of(text)
    if isinstance(rows, ParquetRows):
        form = "parquet"
    elif isinstance(rows, WordVectorRows):
        form = "gzip" if text.endswith(".gz") else "text"
    elif isinstance(rows, Word2VecRows):
        form = "word2vec"
    elif not isinstance(rows, FlatRows | ColumnRows | InflatedRows) or form not in ("npy", "npz", "safetensors"):
        form = None
    is_whole = path.is_file() or (form == "parquet" and path.exists())
    return Source(rows, form, path, part) if form and is_whole else Source(rows)


def target_of(out: Path_, source: Source, k: int) -> Target:
    """The file that `out` names, in the format of its suffix or else of the source, for rows of width `k`."""
    text, part = split_part(out)
    path = Path(text)
    form = format_of(path) or (source.format if not path.suffix else None)
    if form not in WRITERS:
        written = ", ".join(suffix for suffix, form in _FORMATS.items() if form in WRITERS)
        raise InputError(f"expected a name that ends in {written}, got {path.name!r}: the ending gives the format")
    if part is not None and form not in _PARTS:
        raise InputError(f"expected a file name without '#', got {path}#{part}: such a file holds one matrix")
    if part is None:
        part = (source.part if source.format == form else None) or _PARTS.get(form, "")
    dtype, note = _written_dtype(form, source.rows.dtype)
    return Target(path, form, part, (source.rows.shape[0], k), dtype, tuple(filter(None, (note, _lost(form, source)))))


def is_there(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()  # an unset variable of a shell names no folder
    except OSError:  # longer than a file system allows
        return False


def _written_dtype(form: str, stored: str) -> tuple[str, str | None]:
    if stored == "float32" or (stored == "float64" and form not in WORDS):
        return stored, None
    if form in WORDS:
        return "float32", f"The rows are stored as {stored}. Files with words are written in float32."
    if stored in DTYPES and (form == "safetensors" or stored != "bfloat16"):
        return stored, f"Computed in float32, then rounded once to {stored}, as the rows are stored."
    return "float32", f"The rows are stored as {stored}. The file is written in float32, which holds every such number."


def _lost(form: str, source: Source) -> str | None:
    if source.format == "parquet" and form != "parquet":
        return "The written file lacks the other columns of the source. A .parquet file would have them."
    if source.format in WORDS and form not in (*WORDS, "parquet"):
        return "The written file lacks the words of the source. Text, word2vec and .parquet files hold words."
    if source.format in ("npz", "safetensors") and form != source.format:
        return f"The written file lacks everything else that {source.path.name if source.path else 'the source'} holds."
    return None
