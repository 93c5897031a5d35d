"""One door to every kind of model: a directory of transformers or Sentence Transformers, or a GGUF file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from uncone.model.files import open_model_files, rows_of
from uncone.model.gguf import find_gguf, gguf_model_rows, gguf_places, is_gguf, open_gguf
from uncone.model.places import Places, find_places
from uncone.model.sentence_transformers import (
    is_sentence_transformers,
    open_sentence_transformers,
    sentence_places,
    sentence_rows,
)
from uncone.rows import Rows


@dataclass(frozen=True)
class LanguageModel:
    """A model whose headers are read and whose tensors are not."""

    path: Path
    places: Callable[[], Places]
    """Which tensors are its table and its head; looked for when asked."""
    rows: Callable[..., Rows]
    """rows(tensor, with_tokens=False): one tensor, with token strings where its rows stand for the
    vocabulary."""


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
