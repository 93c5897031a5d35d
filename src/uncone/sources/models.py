"""The matrices of a model directory."""

from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError, UnconeError
from uncone.model import Places, find_places, open_model_files, rows_of
from uncone.rows import Rows


@dataclass(frozen=True)
class Subjects:
    """The matrices a diagnosis is about, (name, rows) each, and what is to be said about the others."""

    name: str
    rows: tuple[tuple[str, Rows], ...]
    notes: tuple[str, ...] = ()


def open_part(path: Path, part: str | None) -> Rows:
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


def open_kind(path: Path, part: str) -> tuple[str, Rows]:
    """A matrix of a model, and what it is: a head that is named by its tensor is still read as a head."""
    if part in ("input", "head"):
        return part, open_part(path, part)
    files = open_model_files(path)
    rows = rows_of(files, part)
    try:
        places = find_places(files)
    except UnconeError:
        return "rows", rows
    kinds = {places.head: "head", places.input: "input"}
    return (kinds[part], rows_of(files, part, with_tokens=True)) if part in kinds else ("rows", rows)


def open_model(path: Path, name: str) -> Subjects:
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
