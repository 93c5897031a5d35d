"""A language model: a token table, an output head, and what their rows stand for."""

from uncone.lazy import open_room
from uncone.model.files import ModelFiles, TokenLabels, open_model_files, rows_of, token_labels
from uncone.model.gguf import is_model_file
from uncone.model.hugging_face import cached_snapshot
from uncone.model.open import open_language_model
from uncone.model.places import LanguageModel, Places, find_places

__all__ = [
    "LanguageModel",
    "ModelFiles",
    "Places",
    "TokenLabels",
    "cached_snapshot",
    "find_places",
    "is_model_file",
    "open_language_model",
    "open_model_files",
    "rows_of",
    "token_labels",
]

open_room(__name__)
