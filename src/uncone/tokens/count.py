"""`count`: from a model's tokenizer and texts to how often each token occurs."""

import os
from pathlib import Path

import numpy as np

from uncone.atomic import check_apart, replacing, unused, writable
from uncone.errors import InputError
from uncone.model.token_counts import count_tokens, forget
from uncone.roles import Model, Paths, Progress, Write
from uncone.rows.open import split_part
from uncone.tokens.record import TokenFrequencies
from uncone.tokens.token_frequencies import token_frequencies


def count(
    model: Model,
    texts: Paths,
    *,
    save: Write = None,
    words: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TokenFrequencies:
    """Count how often each token of a model occurs in texts, and how often each word does.

    Saved counts are what `counts` of every other function takes; `uncone.fit_zipf` fits the law that tokens follow.

    Args:
        model: a model (a directory or a cached name), a tokenizer's directory, or a tokenizer.json.
        texts: files: `.txt` or any other plain text, `.jsonl#field`, `.parquet#column`, also packed (.gz, .xz, .zst);
            and counts to add, `.npy` or `.tsv`, for instance of other parts of a text.
        save: a `.npy` file for the counts, int64 (V,), one for each row of the model's table. While it works, its
            state is kept in a file of this name plus `.part`: after a stop, the same call continues from it.
        words: also count words, which takes up to a third more time.
        overwrite: replace an existing file `save`, and a `.part` file from which this call cannot continue.
        progress: called with (the step, done, in all).

    Returns:
        `TokenFrequencies`: the exponent of Zipf's law with its interval, coverage, and tokens by name.

    Raises:
        InputError: no text, an empty text or a text not in UTF-8 (the message says where); counts of another
            vocabulary; a tokenizer with ids beyond the model's table; without `overwrite` a file to save that
            exists, or a `.part` file that is not the state of this call.
        UnsupportedModel: the model's token table cannot be found.
    """
    given = [texts] if isinstance(texts, str | os.PathLike) else list(texts)
    state = None
    if save is not None:
        if Path(save).suffix != ".npy":
            came = f"got {os.fspath(save)}: use {Path(save).with_suffix('.npy')}"
            raise InputError(f"expected a name that ends in .npy for the counts (--save), {came}")
        target = writable(save)
        state = target.with_name(target.name + ".part")
        check_apart([target, state], [split_part(one)[0] for one in given])
        unused(save, overwrite=overwrite)
        writable(state)
    elif overwrite:
        raise InputError("expected a file to save with overwrite, got none: name one (save=, --save)")
    counted = count_tokens(model, given, words=words, resume=state, overwrite=overwrite, progress=progress)
    record = token_frequencies(counted)
    if save is not None and state is not None:
        unused(save, overwrite=overwrite)  # counting takes hours
        with replacing(save) as file:
            np.save(file, counted.counts)
        forget(state)
    return record
