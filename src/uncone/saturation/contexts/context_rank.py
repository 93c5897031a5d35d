"""Of how many dimensions are a text's contexts, and how many do its shuffled tokens take?"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.model.hugging_face import attempt, open_tokenizer, tokenizer_class
from uncone.model.open import split
from uncone.model.text_sources import read_texts
from uncone.roles import Path_, Progress, Source
from uncone.saturation.contexts.curves import context_rank as measured
from uncone.saturation.contexts.curves import token_arrays
from uncone.saturation.contexts.record import ContextRank

MOST_CHARACTERS = 2**28
"""Of a text file that is read."""


def context_rank(
    source: Source,
    *,
    tokenizer: Source = None,
    order: int = 5,
    dimensions: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> ContextRank:
    """Measure how many dimensions the next-token distributions of a text need, beside shuffled tokens.

    Needs scipy (extra `[cluster]`) and no torch. 2 million tokens take some minutes and about 2 GB; `dimensions`
    decides.

    Args:
        source: the path of a text (plain, whose lines are one text, or JSON lines or Parquet, whose rows are texts); a
            list of texts, over whose boundaries no context reaches; or token ids, an array (n,) or a list of such.
        tokenizer: of texts: a directory of a model, a `tokenizer.json`, or a `tokenizers.Tokenizer`. None takes
            the words between white space. Ids need none.
        order: tokens of context, and the one after them: 5 has contexts of 4.
        dimensions: singular values to compute.
        seed: of the shuffled tokens and of the intervals.
        progress: called with (the step, done, in all).

    Returns:
        `ContextRank`: curves of W-error of the text and of both nulls, their differences with intervals, and the
        verdict, which rests on the difference from shuffled tokens.

    Raises:
        InputError: no such file or tokenizer, fewer than `order` tokens, no scipy.
    """
    name = f"{Path(source).name}" if isinstance(source, str | os.PathLike) else ""
    arrays = _ids(source)
    told = "" if arrays is not None else "words between white space"
    if arrays is None:
        read = None if tokenizer is None else _tokenizer(tokenizer)
        if isinstance(tokenizer, str | os.PathLike):
            told = f"tokenizer of {Path(tokenizer).name}"
        elif tokenizer is not None:
            told = "a tokenizer"
        arrays = token_arrays(read, _texts(source))
    elif tokenizer is not None:
        raise InputError("expected texts with a tokenizer, got token ids: leave the tokenizer out")
    return measured(arrays, order=order, dimensions=dimensions, name=name, tokenizer=told, seed=seed, progress=progress)


def _ids(source: Any) -> Sequence[Any] | None:
    """Arrays of ids where the source holds such."""
    if isinstance(source, str | os.PathLike):
        return None
    if not hasattr(source, "__array__") and not isinstance(source, Sequence):
        raise InputError(f"expected a path, a list of texts or token ids, got {shown(source)}: pass one of them")
    if hasattr(source, "__array__") or (len(source) and isinstance(source[0], int | np.integer)):
        return [source]
    return None if all(isinstance(one, str) for one in source) else source


def _texts(source: Path_ | Sequence[str]) -> list[str]:
    if isinstance(source, str | os.PathLike):
        return read_texts(source, MOST_CHARACTERS)
    return list(source)


def _tokenizer(given: Any) -> Any:
    """A `tokenizers.Tokenizer` of a path, or what was given."""
    if not isinstance(given, str | os.PathLike):
        return given
    path, _ = split(given)
    if path.is_file():
        of_json = tokenizer_class()
        found, error = attempt(lambda: of_json.from_file(str(path)))
        if error is not None:
            raise InputError(f"expected a tokenizer.json, got {path}: save the tokenizer in that form") from error
        return found
    found = open_tokenizer(path)
    if found is None:
        raise InputError(f"expected a tokenizer in {path}, got none: add tokenizer.json")
    return found
