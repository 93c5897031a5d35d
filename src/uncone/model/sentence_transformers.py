"""A directory of Sentence Transformers: where modules.json says that the module with the token table lies. No code that it names is run."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from uncone.errors import InputError, UnsupportedModel
from uncone.model.files import ModelFiles, open_model_files, open_weights, read_json, rows_of
from uncone.model.places import Places, find_places
from uncone.rows import Rows
from uncone.rows.names import listing

MODULES = "modules.json"
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,200}")
_STATIC = "StaticEmbedding"
_TABLES = ("embedding.weight", "embeddings")
"""Of Sentence Transformers, and of model2vec."""
_PER_TOKEN = ("mapping", "weights")
"""model2vec's tensors that are there only where tokens share rows."""


@dataclass(frozen=True)
class SentenceModel:
    """The first module of a Sentence Transformers model: the one that holds the token table."""

    kind: str
    """The class that modules.json names, without its module: Transformer, StaticEmbedding, ..."""
    files: ModelFiles


def is_sentence_transformers(directory: Path) -> bool:
    """There is a modules.json."""
    return (directory / MODULES).is_file()


def open_sentence_transformers(directory: Path) -> SentenceModel:
    """Open the folder of the first module that modules.json names.

    Raises:
        InputError: modules.json does not parse, names no module or a folder outside the directory, or the folder cannot be opened.
        UnsupportedModel: the first module has no token table that is one matrix.
    """
    kind, folder = _first_module(directory)
    if kind == _STATIC:
        return SentenceModel(kind, ModelFiles(folder, {}, open_weights(folder)))
    if not (folder / "config.json").is_file():
        raise UnsupportedModel(
            f"the first module of {directory} is a {kind} without config.json: its token table is not known; "
            "open a matrix of its weights as FILE#NAME"
        )
    return SentenceModel(kind, open_model_files(folder))


def sentence_places(model: SentenceModel) -> Places:
    """The token table. Sentence Transformers loads a Transformer without the head that its checkpoint may have been trained with.

    Raises:
        UnsupportedModel: the table cannot be found.
    """
    if model.kind == _STATIC:
        table = next((name for name in _TABLES if name in model.files.tensors), None)
        if table is None:
            raise UnsupportedModel(
                f"no tensor {' or '.join(map(repr, _TABLES))} in {model.files.path}: name one yourself; there are "
                f"{listing(model.files.tensors)}"
            )
        return Places(
            table, None, False, f"{_STATIC} has no output head: its vectors are means of rows of the table"
        )
    found = find_places(model.files)
    if found.head is None or model.kind != "Transformer":
        return found
    return replace(
        found, head=None, tied=False, why="Sentence Transformers uses the model without its output head"
    )


def sentence_rows(model: SentenceModel, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor of the module, with token strings where each row stands for one token."""
    each = model.kind != _STATIC or not any(name in model.files.tensors for name in _PER_TOKEN)
    return rows_of(model.files, tensor, with_tokens=with_tokens and each)


def _first_module(directory: Path) -> tuple[str, Path]:
    """Its class and its folder. The folder's name comes from the file, so it must not lead out of the directory."""
    where = directory / MODULES
    modules = read_json(where, list)
    if not modules or not isinstance(modules[0], dict):
        raise InputError(
            f"expected a list of modules in {where}, got none that could be the first: copy the model again"
        )
    kind, folder = modules[0].get("type"), modules[0].get("path", "")
    if not isinstance(kind, str) or not isinstance(folder, str):
        raise InputError(
            f"expected a type and a path of the first module in {where}, got {str(modules[0])[:80]!r}: copy it again"
        )
    if folder not in ("", ".") and not _FOLDER.fullmatch(folder):
        raise InputError(
            f"expected the plain name of a folder in {where}, got {folder[:200]!r}: do not trust this file"
        )
    path = directory / folder if folder not in ("", ".") else directory
    if not path.is_dir():
        raise InputError(
            f"{where} names the folder {folder}, which is missing: download the rest of the model"
        )
    return kind.rpartition(".")[2][:80], path
