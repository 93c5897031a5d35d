"""The matrices of a model, of whatever format."""

from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError, UnconeError
from uncone.model import LanguageModel, Places, is_model_file, open_language_model
from uncone.rows import Rows
from uncone.rows.flat import TORCH_DTYPES
from uncone.rows.parquet import is_parquet_folder


@dataclass(frozen=True)
class Subjects:
    """The matrices a diagnosis is about, (name, rows) each, and what is to be said about the others."""

    name: str
    rows: tuple[tuple[str, Rows], ...]
    notes: tuple[str, ...] = ()


def is_model(path: Path) -> bool:
    """The path is a model of a table and a head, and not only a file of tensors."""
    return (path.is_dir() and not is_parquet_folder(path)) or is_model_file(path)


def open_part(path: Path, part: str | None) -> Rows:
    """`#input`, `#head` or any other tensor of a model."""
    model = open_language_model(path)
    if part is None:
        raise InputError(
            f"expected one matrix of the model {path}, got the whole model: say {path}#input, {path}#head or {path}#TENSOR"
        )
    if part not in ("input", "head"):
        return model.rows(part)
    places = model.places()
    if part == "input":
        return model.rows(places.input, with_tokens=True)
    if places.head is None:
        raise InputError(
            f"expected a model with an output head, got {path}: {places.why}; its token table is {path}#input"
        )
    return model.rows(places.head, with_tokens=True)


def open_kind(path: Path, part: str) -> tuple[str, Rows]:
    """A matrix of a model, and what it is: a head that is named by its tensor is still read as a head."""
    if part in ("input", "head"):
        return part, open_part(path, part)
    model = open_language_model(path)
    rows = model.rows(part)
    try:
        places = model.places()
    except UnconeError:
        return "rows", rows
    kinds = {places.head: "head", places.input: "input"}
    return (kinds[part], model.rows(part, with_tokens=True)) if part in kinds else ("rows", rows)


def open_model(path: Path, name: str) -> Subjects:
    """The table and the head of a model, and what is to be said of them."""
    model: LanguageModel = open_language_model(path)
    places: Places = model.places()
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
    kinds = sorted({matrix.dtype for _, matrix in rows} - set(TORCH_DTYPES))
    if kinds:
        notes.append(f"The rows are stored as {' and '.join(kinds)}: what is read are the dequantised rows.")
    return Subjects(name, tuple(rows), tuple(notes))
