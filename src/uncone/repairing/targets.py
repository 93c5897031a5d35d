"""What a spec names, as far as a repair has to know it."""

import os
from typing import Literal

from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.sources.models import is_model
from uncone.sources.spec import split

Kind = Literal["vectors", "encoder", "model"]


def kind_of(spec: str | os.PathLike[str]) -> Kind:
    """A matrix, a directory of Sentence Transformers, or a language model as a whole.

    Raises:
        InputError: it names nothing that is there.
    """
    path, part = split(spec)
    if part is not None or not is_model(path):
        return "vectors"
    return "encoder" if is_sentence_transformers(path) else "model"
