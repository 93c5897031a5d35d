"""What a spec names, as far as a repair has to know it, and whether the repaired copy can be written."""

import os
from typing import Literal

from uncone.atomic import creatable
from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.repair.apply import check_out
from uncone.sources import open_rows
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


def check_target(spec: str | os.PathLike[str], out: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse before any work an `out` that could not be written after it.

    Raises:
        InputError: it exists (of files only without `overwrite`), lies in the model, has no folder or one that is read-only, or, of vectors, its
            suffix says no format.
    """
    if kind_of(spec) == "vectors":
        check_out(out, open_rows(spec), overwrite=overwrite)
    else:
        creatable(out, outside=split(spec)[0])
