"""What a spec names, as far as a repair has to know it, and whether the repaired copy can be written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from uncone.atomic import creatable, writable
from uncone.errors import InputError
from uncone.model.open import open_rows
from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.model.spec import split
from uncone.model.subjects import is_model
from uncone.transforms.apply import check_out
from uncone.version import __version__

Progress = Callable[[str, int, int], None]
Path_ = str | os.PathLike[str]
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


def check_target(
    spec: str | os.PathLike[str], out: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Refuse before any work an `out` that could not be written after it.

    Raises:
        InputError: it exists (of files only without `overwrite`), lies in the model, has no folder or one that is read-only, or, of vectors, its
            suffix says no format.
    """
    if kind_of(spec) == "vectors":
        check_out(out, open_rows(spec), overwrite=overwrite)
    else:
        creatable(out, outside=split(spec)[0])


def check_options(
    *, method: str | None, fit_on: Path_ | None, load: Path_ | None, counts: Path_ | None = None
) -> None:
    """Raise InputError where a transformation would be both loaded and fitted, or is not named."""
    given = [
        flag
        for flag, value in (("--method", method), ("--fit-on", fit_on), ("--counts", counts))
        if value is not None
    ]
    if load is not None and given:
        raise InputError(f"expected either --load or {given[0]}, got both: what is loaded was fitted before")
    if load is None and method is None:
        raise InputError(
            "expected a repair by its name (--method center, method=), or --data DIR to have one chosen by a task, got neither: "
            "no repair helps every task, so by default vectors stay as they are"
        )
    if fit_on is not None and Path(fit_on).is_dir() and kind_of(fit_on) != "vectors":
        raise InputError(
            f"expected vectors to fit on, got the model {fit_on}: name a matrix, or a file of vectors"
        )


def check_save(save: Path_ | None, *, overwrite: bool = False) -> None:
    """Raise InputError where the file of the transformation cannot be written, or is there already (unless `overwrite`)."""
    if save is not None and writable(save).exists() and not overwrite:
        raise InputError(
            f"expected a new file for the transformation, got {os.fspath(save)} which exists: choose another name, or remove it; of a file of vectors "
            "--overwrite (overwrite=True) replaces both"
        )


def versions() -> dict[str, str]:
    """What made it."""
    return {"uncone": __version__, "torch": str(torch.__version__)}


def whole_model(spec: Path_) -> Path:
    """The directory of a model that is edited as a whole."""
    path, part = split(spec)
    if part is not None:
        raise InputError(f"expected a whole model to edit, got its part #{part}: leave that out")
    return path
