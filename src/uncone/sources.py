"""From a spec to `Rows`: arrays, files, and the matrices of a model."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnconeError
from uncone.model import Places, cached_snapshot, find_places, open_model_files, rows_of
from uncone.rows import Rows, as_rows, open_npy, without_nonfinite
from uncone.rows.bytes import LocalFile
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices, read_header, tensor_rows

_LONGEST_SPEC = 4000
_KINDS = "a model directory, a .safetensors file, a .npy file, or the name of a model in the Hugging Face cache"


@dataclass(frozen=True)
class Subjects:
    """The matrices a diagnosis is about, (name, rows) each, and what is to be said about the others."""

    name: str
    rows: tuple[tuple[str, Rows], ...]
    notes: tuple[str, ...] = ()


def open_rows(spec: Any, *, skip_nonfinite: bool = False) -> Rows:
    """Open a matrix to be read block by block; nothing is loaded and nothing touches the network.

    Args:
        spec: one of
            - a tensor or NumPy array of shape (N, D);
            - `file.npy`;
            - `file.safetensors`, or `file.safetensors#tensor` when it holds several matrices;
            - `DIR#input` or `DIR#head`: the token table or output head of a Hugging Face model directory (or the name
              of a cached model, NAME or NAME@REVISION), or `DIR#tensor` for any other of its tensors.
        skip_nonfinite: leave out rows with NaN or inf (`left_out` of the result names them); costs one pass.

    Returns:
        `Rows` with `shape`, `dtype`, `name`, `labels` (token strings, for a model's table and head) and `blocks()`.

    Raises:
        InputError: the source is missing, cut, pickled, not a matrix of floats, empty, or holds no such tensor.
        UnsupportedModel: the table or head cannot be found in the model's files.

    Example:
        >>> import numpy, uncone
        >>> uncone.open_rows(numpy.ones((3, 2), dtype="float32")).shape
        (3, 2)
    """
    rows = _open(spec)
    return without_nonfinite(rows) if skip_nonfinite else rows


def open_subjects(
    spec: Any, *, skip_nonfinite: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> Subjects:
    """What `diagnose` looks at: a model's table and head, or the one matrix that `spec` names.

    `progress` is called with (what is done, rows done, rows in all) while rows are looked through.
    """
    opened = _open_subjects(spec)
    if not skip_nonfinite:
        return opened

    def kept(name: str, rows: Rows) -> Rows:
        n = rows.shape[0]
        tick = None if progress is None else lambda done: progress(f"{name}: looking for rows that are not finite", done, n)
        return without_nonfinite(rows, tick)

    return Subjects(opened.name, tuple((name, kept(name, rows)) for name, rows in opened.rows), opened.notes)


def _open(spec: Any) -> Rows:
    if not isinstance(spec, str | os.PathLike):
        return as_rows(spec)
    path, part = _split(spec)
    if path.is_dir():
        return _open_part(path, part)
    if path.suffix == ".npy":
        if part is not None:
            raise InputError(f"expected a .npy file without '#', got {spec}: it holds one array")
        return open_npy(path)
    if path.suffix == ".safetensors":
        return _open_safetensors(path, part)
    raise InputError(f"expected {_KINDS}, got {path.name!r} of another kind: convert it, or load it and pass the array")


def _open_subjects(spec: Any) -> Subjects:
    if isinstance(spec, str | os.PathLike):
        path, part = _split(spec)
        if path.is_dir() and part is None:
            return _open_model(path, _name(spec, path))
        if path.is_dir() and part is not None:
            kind, rows = _open_kind(path, part)
            return Subjects(f"{_name(spec, path)}#{part}", ((kind, rows),))
    rows = _open(spec)
    return Subjects(Path(rows.name).name, (("rows", rows),))


def _open_kind(path: Path, part: str) -> tuple[str, Rows]:
    """A matrix of a model, and what it is: a head that is named by its tensor is still read as a head."""
    if part in ("input", "head"):
        return part, _open_part(path, part)
    files = open_model_files(path)
    rows = rows_of(files, part)
    try:
        places = find_places(files)
    except UnconeError:
        return "rows", rows
    kinds = {places.head: "head", places.input: "input"}
    return (kinds[part], rows_of(files, part, with_tokens=True)) if part in kinds else ("rows", rows)


def _name(spec: str | os.PathLike[str], path: Path) -> str:
    """What to call a model in a report that people share: as it was named, but never a whole path of their machine."""
    text = os.fspath(spec).partition("#")[0]
    return "/".join(path.resolve().parts[-2:]) if Path(text).exists() else text


def _split(spec: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The existing path in a spec, and what follows its '#'. A model's name becomes the path of its cached snapshot."""
    text = os.fspath(spec)
    if len(text) > _LONGEST_SPEC or "\0" in text:
        raise InputError(f"expected {_KINDS}, got a text of {len(text)} characters: give a path or a name")
    if _exists(text):
        return Path(text), None
    text, mark, part = text.partition("#") if "#" in text else (text, "", "")
    while "#" in part and not _exists(text):  # a '#' in a folder's name
        more, _, part = part.partition("#")
        text = f"{text}#{more}"
    path = Path(text)
    if _exists(text):
        return path, _part(part, spec) if mark else None
    snapshot = cached_snapshot(text)
    if snapshot is None:
        raise InputError(
            f"no file or folder {text!r}, and no model of that name in the Hugging Face cache: "
            f"expected {_KINDS}; uncone downloads nothing"
        )
    return snapshot, _part(part, spec) if mark else None


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # longer than a file system's names
        return False


def _part(part: str, spec: str | os.PathLike[str]) -> str:
    if not part:
        raise InputError(f"expected a tensor's name after '#', got {os.fspath(spec)!r}: name it, or leave out the '#'")
    return part


def _open_safetensors(path: Path, part: str | None) -> Rows:
    source = LocalFile(path)
    entries = read_header(source)
    if part is not None:
        return tensor_rows(source, entries, part)
    found = matrices(entries)
    if len(found) == 1:
        return tensor_rows(source, entries, next(iter(found)))
    if not found:
        raise InputError(
            f"expected a matrix of floats in {path}, got none among {len(entries)} tensors: there are no rows to read"
        )
    raise InputError(
        f"expected one matrix in {path}, got {len(found)}: say which with {path.name}#NAME; it holds {listing(found)}"
    )


def _open_part(path: Path, part: str | None) -> Rows:
    files = open_model_files(path)
    if part is None:
        raise InputError(
            f"expected one matrix of the model {path}, got the whole model: say {path}#input, {path}#head or {path}#TENSOR"
        )
    if part not in ("input", "head"):
        return rows_of(files, part)
    places = find_places(files)
    if part == "input":
        return rows_of(files, places.input, with_tokens=True)
    if places.head is None:
        raise InputError(f"expected a model with an output head, got {path}: {places.why}; its token table is {path}#input")
    return rows_of(files, places.head, with_tokens=True)


def _open_model(path: Path, name: str) -> Subjects:
    files = open_model_files(path)
    places: Places = find_places(files)
    rows = [("input", rows_of(files, places.input, with_tokens=True))]
    notes = []
    if places.head is None:
        notes.append(places.why)
    else:
        rows.append(("head", rows_of(files, places.head, with_tokens=True)))
    if places.tied:
        notes.append(
            "The output head is tied to the token table: one matrix, read as table and, with its mean removed, as head."
        )
    return Subjects(name, tuple(rows), tuple(notes))
