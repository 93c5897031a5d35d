"""From a spec to `Rows`: arrays, files, and the matrices of every kind of model."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnconeError
from uncone.model.files import open_model_files, rows_of
from uncone.model.gguf import find_gguf, gguf_model_rows, gguf_places, is_gguf, open_gguf
from uncone.model.hugging_face import cached_snapshot
from uncone.model.places import Places, find_places
from uncone.model.sentence_transformers import (
    is_sentence_transformers,
    open_sentence_transformers,
    sentence_places,
    sentence_rows,
)
from uncone.rows import Rows, as_rows, without_nonfinite
from uncone.rows.base import DTYPES
from uncone.rows.open import KINDS, is_there, open_file, split_part
from uncone.rows.parquet import is_parquet_folder

Spec = str | os.PathLike[str]
_LONGEST_SPEC = 4000


@dataclass(frozen=True)
class LanguageModel:
    """A model whose headers are read and whose tensors are not."""

    path: Path
    places: Callable[[], Places]
    """Which tensors are its table and its head; looked for when asked."""
    rows: Callable[..., Rows]
    """rows(tensor, with_tokens=False): one tensor; token strings where its rows are the vocabulary."""


@dataclass(frozen=True)
class Subjects:
    """The matrices a diagnosis is about, (name, rows) each, and notes on the others."""

    name: str
    rows: tuple[tuple[str, Rows], ...]
    notes: tuple[str, ...] = ()


def open_rows(spec: Any, *, skip_nonfinite: bool = False) -> Rows:
    """Open a matrix to be read block by block; nothing is loaded and nothing touches the network.

    Args:
        spec: one of
            - a tensor or NumPy array of shape (N, D);
            - `file.npy`; `file.npz`, or `file.npz#key` when it holds several matrices;
            - `file.parquet` or a folder of such files, with `#column` when several columns hold lists of floats;
            - word vectors: text (`.vec`, `.txt`, `.glove`, `.vec.gz`, `.txt.gz`), or word2vec binary (`.bin`);
            - `file.safetensors`, or `file.safetensors#tensor` when it holds several matrices;
            - `file.pt`, `.pth`, `.ckpt` or `.bin` as `torch.save` writes them, with `#tensor` where there are several;
            - `MODEL#input` or `MODEL#head`: the token table or output head of a model, or `MODEL#tensor` for any other of its
              tensors. A model is a directory of transformers or Sentence Transformers, the name of a cached one (NAME or
              NAME@REVISION), or a GGUF file.
        skip_nonfinite: leave out rows with NaN or inf (`left_out` of the result names them); costs one pass.

    Returns:
        `Rows` with `shape`, `dtype`, `name`, `labels` (token strings or words, where the source has them) and `blocks()`.

    Raises:
        InputError: the source is missing, cut, pickled, not a matrix of floats, empty, or holds no such tensor.
        UnsupportedModel: the table or head cannot be found in the model's files.

    Example:
        >>> import numpy, uncone
        >>> uncone.open_rows(numpy.ones((3, 2), dtype="float32")).shape
        (3, 2)
    """
    rows = _open(*split(spec)) if isinstance(spec, str | os.PathLike) else as_rows(spec)
    return without_nonfinite(rows) if skip_nonfinite else rows


def open_subjects(
    spec: Any, *, skip_nonfinite: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> Subjects:
    """The matrices that `diagnose` looks at: a model's table and head, or the one matrix that `spec` names.

    `progress` is called with (what is done, rows done, rows in all) while rows are looked through.
    """
    opened = _open_subjects(spec)
    if not skip_nonfinite:
        return opened

    def kept(name: str, rows: Rows) -> Rows:
        if progress is None:
            return without_nonfinite(rows)
        what, n = f"{name}: looking for rows that are not finite", rows.shape[0]
        return without_nonfinite(rows, lambda done: progress(what, done, n))

    return Subjects(opened.name, tuple((name, kept(name, rows)) for name, rows in opened.rows), opened.notes)


def split(spec: Spec) -> tuple[Path, str | None]:
    """The existing path in a spec (of a model's name its cached snapshot), and the part after its '#'.

    Raises:
        InputError: no such path and no cached model of that name, or nothing after the '#'.
    """
    text = os.fspath(spec)
    if len(text) > _LONGEST_SPEC or "\0" in text:
        raise InputError(f"expected {KINDS}, got a text of {len(text)} characters: give a path or a name")
    name, part = split_part(text, names=True)
    path = Path(name) if is_there(name) else cached_snapshot(name)
    if path is None:
        raise InputError(
            f"no file or folder {name!r}, and no model of that name in the Hugging Face cache: "
            f"expected {KINDS}; uncone downloads nothing"
        )
    if part == "":
        raise InputError(f"expected a tensor's name after '#', got {text!r}: name it, or leave out the '#'")
    return path, part


def name_of(spec: Spec, path: Path) -> str:
    """What a shared report calls a model: as it was named, but never a whole path of a machine."""
    text, _ = split_part(spec, names=True)
    return "/".join(path.resolve().parts[-2:]) if is_there(text) else text


def is_model(path: Path) -> bool:
    """The path is a model of a table and a head, and not only a file of tensors."""
    return (path.is_dir() and not is_parquet_folder(path)) or is_model_file(path)


def _open(path: Path, part: str | None) -> Rows:
    return _open_matrix(path, part)[1] if is_model(path) else open_file(path, part)


def _open_subjects(spec: Any) -> Subjects:
    if not isinstance(spec, str | os.PathLike):
        rows = as_rows(spec)
        return Subjects(Path(rows.name).name, (("rows", rows),))
    path, part = split(spec)
    if not is_model(path):
        rows = open_file(path, part)
        return Subjects(Path(rows.name).name, (("rows", rows),))
    name = name_of(spec, path)
    return _open_model(path, name) if part is None else Subjects(f"{name}#{part}", (_open_kind(path, part),))


def _open_matrix(path: Path, part: str | None) -> tuple[str, Rows]:
    """`#input`, `#head` or any other tensor of a model, and which of these it is."""
    model = open_language_model(path)
    if part is None:
        raise InputError(
            f"expected one matrix of the model {path}, got the whole model: say {path}#input, {path}#head or {path}#TENSOR"
        )
    if part not in ("input", "head"):
        return "rows", model.rows(part)
    places = model.places()
    tensor = places.input if part == "input" else places.head
    if tensor is None:
        raise InputError(
            f"expected a model with an output head, got {path}: {places.why}; its token table is {path}#input"
        )
    return part, model.rows(tensor, with_tokens=True)


def _open_kind(path: Path, part: str) -> tuple[str, Rows]:
    """A head or table that is named by its tensor is still read as a head or table."""
    kind, rows = _open_matrix(path, part)
    if kind != "rows":
        return kind, rows
    model = open_language_model(path)
    try:
        places = model.places()
    except UnconeError:
        return kind, rows
    kinds = {places.head: "head", places.input: "input"}
    return (kinds[part], model.rows(part, with_tokens=True)) if part in kinds else (kind, rows)


def _open_model(path: Path, name: str) -> Subjects:
    """The table and the head of a model."""
    model = open_language_model(path)
    places = model.places()
    rows = [("input", model.rows(places.input, with_tokens=True))]
    notes = []
    if places.head is None:
        notes.append(places.why)
    else:
        rows.append(("head", model.rows(places.head, with_tokens=True)))
    if places.tied:
        notes.append(
            "The output head is tied to the token table: one matrix, read as table and, with its mean removed, as head."
        )
    kinds = sorted({matrix.dtype for _, matrix in rows} - set(DTYPES))
    if kinds:
        notes.append(f"The rows are stored as {' and '.join(kinds)}: what is read are the dequantised rows.")
    return Subjects(name, tuple(rows), tuple(notes))


def is_model_file(path: Path) -> bool:
    """A file that is a whole model, of a table and a head, and not only tensors: GGUF."""
    return path.is_file() and is_gguf(path)


def open_language_model(path: Path) -> LanguageModel:
    """Open a model: a directory with modules.json, config.json or one GGUF model, or a GGUF file.

    Raises:
        InputError: nothing of this, or a file that is cut or lies.
        UnsupportedModel: a Sentence Transformers model without a token table.
    """
    if path.is_file():
        return _gguf(path)
    if is_sentence_transformers(path):
        sentence = open_sentence_transformers(path)
        return LanguageModel(path, partial(sentence_places, sentence), partial(sentence_rows, sentence))
    if not (path / "config.json").is_file() and (file := find_gguf(path)) is not None:
        return _gguf(file)
    files = open_model_files(path)
    return LanguageModel(path, partial(find_places, files), partial(rows_of, files))


def _gguf(path: Path) -> LanguageModel:
    model = open_gguf(path)
    return LanguageModel(path, partial(gguf_places, model), partial(gguf_model_rows, model))
