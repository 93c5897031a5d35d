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
from uncone.saturation.contexts import curves
from uncone.saturation.contexts.record import ContextRank

MOST_CHARACTERS = 2**28  # read of a text file


def context_rank(
    source: Source,
    *,
    tokenizer: Source = None,
    order: int = 5,
    dimensions: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> ContextRank:
    """Measure how many dimensions the next-token distributions of a text need, compared with shuffled tokens.

    Needs scipy (extra `[cluster]`) but not torch. 2 million tokens take some minutes and about 2 GB, depending on
    `dimensions`.

    Args:
        source: the path of a file (plain text, read as one text, or JSON lines or Parquet with a text per row); a list
            of texts; or token ids, an array (n,) or a list of arrays. No context reaches over the end of a text.
        tokenizer: for texts: the directory of a model, a `tokenizer.json`, or a `tokenizers.Tokenizer`. None takes
            the words between white space. Token ids need no tokenizer.
        order: length of the n-grams, a context and the token after it: 5 has contexts of 4 tokens.
        dimensions: singular values to compute.
        seed: for the shuffled tokens and the intervals.
        progress: called with (the step, done, in all).

    Raises:
        InputError: no such file or tokenizer, fewer than `order` tokens, no scipy.
    """
    is_path, words = isinstance(source, str | os.PathLike), ""
    arrays = None if is_path else _ids(source)
    if arrays is None:
        read, words = tokenizer, "words between white space" if tokenizer is None else "a tokenizer"
        if isinstance(tokenizer, str | os.PathLike):
            read, words = _tokenizer(tokenizer), f"tokenizer of {Path(tokenizer).name}"
        arrays = curves.token_arrays(read, read_texts(source, MOST_CHARACTERS) if is_path else list(source))
    elif tokenizer is not None:
        raise InputError("expected texts with a tokenizer, got token ids: leave the tokenizer out")
    name = Path(source).name if is_path else ""
    return curves.context_rank(arrays, order, dimensions, name, words, seed, progress)


def _ids(source: Any) -> Sequence[Any] | None:
    is_array = hasattr(source, "__array__")
    if not is_array and not isinstance(source, Sequence):
        raise InputError(f"expected a path, a list of texts or token ids, got {shown(source)}: pass one of them")
    if is_array or (len(source) and isinstance(source[0], int | np.integer)):
        return [source]
    return None if all(isinstance(one, str) for one in source) else source


def _tokenizer(given: Path_) -> Any:
    path, _ = split(given)
    if not path.is_file():
        if (found := open_tokenizer(path)) is None:
            raise InputError(f"expected a tokenizer in {path}, got none: add tokenizer.json")
        return found
    of_json = tokenizer_class()
    found, error = attempt(lambda: of_json.from_file(str(path)))
    if error is not None:
        raise InputError(f"expected a tokenizer.json, got {path}: save the tokenizer in that form") from error
    return found
