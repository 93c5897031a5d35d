"""A directory of Sentence Transformers."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from uncone.errors import InputError, UnsupportedModel
from uncone.model.files import ModelFiles, open_model_files, open_weights, read_json, rows_of
from uncone.model.hugging_face import LOCAL, asked, check_archives, need
from uncone.model.places import LanguageModel, Places, find_places
from uncone.rows import Rows
from uncone.rows.names import listing

MODULES = "modules.json"
LIBRARY = ("the Sentence Transformers model", "sentence-transformers", "sentence", "sentence_transformers")
"""Arguments of `need`."""
_STATIC = "StaticEmbedding"
_TABLES = ("embedding.weight", "embeddings")  # of Sentence Transformers, and of model2vec


def is_sentence_transformers(directory: Path) -> bool:
    return (directory / MODULES).is_file()


def read_modules(directory: Path) -> list[dict[str, Any]]:
    """The modules in modules.json, in order, each with a type, a path (of a folder in `directory`) and a name."""
    where = directory / MODULES
    if not where.is_file():
        got = f"{directory}: give the folder that its save wrote"
        raise InputError(f"expected a directory of Sentence Transformers with {MODULES}, got {got}")
    modules = read_json(where, list)
    for module in modules:
        match module:
            case {"type": str(), "path": str(path), "name": str()}:
                pass
            case _:
                got = f"{str(module)[:80]!r}: copy it again"
                raise InputError(f"expected a type, a path and a name for each module in {where}, got {got}")
        leads_out = path.startswith("/") or ".." in PurePosixPath(path).parts or {"\\", "\0"} & set(path)
        if leads_out or len(path.encode("utf-8", "replace")) > 255:
            raise InputError(f"expected folders inside {directory}, got {path[:200]!r} in {MODULES}: do not trust it")
    if not modules:
        raise InputError(f"expected modules in {where}, got none: copy the model again")
    return list(modules)


def open_sentence_transformers(directory: Path) -> LanguageModel:
    first = read_modules(directory)[0]
    kind, folder = first["type"].rpartition(".")[2][:80], directory / first["path"]
    if not folder.is_dir():
        raise InputError(f"{directory / MODULES} names {first['path'][:200]}, which is missing: download it")
    if kind == _STATIC:
        files = ModelFiles(folder, {}, open_weights(folder))
        shared = {"mapping", "weights"} & files.tensors.keys()  # of model2vec, where tokens share rows

        def rows(tensor: str, *, with_tokens: bool = False) -> Rows:
            return rows_of(files, tensor, with_tokens=with_tokens and not shared)

        return LanguageModel(partial(_static_places, files), rows, files=files)
    if not (folder / "config.json").is_file():
        way_out = "uncone does not know its token table; open a matrix of its weights as FILE#NAME"
        raise UnsupportedModel(f"the first module of {directory} is a {kind} without config.json: {way_out}")
    files = open_model_files(folder)
    return LanguageModel(cache(partial(_module_places, files, kind)), partial(rows_of, files), files=files)


def _static_places(files: ModelFiles) -> Places:
    table = next((name for name in _TABLES if name in files.tensors), None)
    if table is None:
        names, there = " or ".join(map(repr, _TABLES)), listing(files.tensors)
        raise UnsupportedModel(f"no tensor {names} in {files.path}: name one yourself; there are {there}")
    return Places(table, None, False, f"{_STATIC} has no output head: its vectors are means of table rows")


def _module_places(files: ModelFiles, kind: str) -> Places:
    places, why = find_places(files), "Sentence Transformers uses the model without its output head"
    is_cut = places.head is not None and kind == "Transformer"
    return replace(places, head=None, tied=False, why=why) if is_cut else places


def load_sentence_transformer(directory: Path, *, device: str | None = None) -> Any:
    """Load the model without running code of its own."""
    for module in read_modules(directory):
        if not module["type"].startswith("sentence_transformers."):
            raise UnsupportedModel(
                f"expected modules of sentence_transformers in {directory}, got {module['type'][:200]!r}: "
                "uncone never runs a model's code; embed the texts yourself, and give the vectors"
            )
    library = need(*LIBRARY)
    check_archives(directory)
    with asked(f"load the encoder in {directory}", "Sentence Transformers"):
        return library.SentenceTransformer(str(directory), device=device, **LOCAL).eval()
