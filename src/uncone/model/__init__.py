"""What a language model is to uncone: a token table, an output head, and what their rows stand for."""

from uncone.model.cache import cached_snapshot
from uncone.model.files import ModelFiles, open_model_files, rows_of
from uncone.model.places import Places, find_places
from uncone.model.tokens import TokenLabels, token_labels

__all__ = [
    "ModelFiles",
    "Places",
    "TokenLabels",
    "cached_snapshot",
    "find_places",
    "open_model_files",
    "rows_of",
    "token_labels",
]
