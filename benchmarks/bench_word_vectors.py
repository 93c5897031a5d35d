"""GloVe text into blocks of float32, against gensim's reader, numpy.loadtxt and pandas."""

from functools import cache
from pathlib import Path

import numpy as np
from measured import Row, run

import uncone
from matrices import DATA

N, D = 400_000, 300
LETTERS = np.array(list("etaoinshrdlucmfw"))


@cache
def _file() -> Path:
    """Random vectors with five decimals after random words, as GloVe prints them; written first if it is not there."""
    file = DATA / f"{N}x{D}.glove.txt"
    if not file.exists():
        DATA.mkdir(exist_ok=True)
        partial, generator = file.with_suffix(".partial"), np.random.default_rng(0)
        line = " ".join(["%.5f"] * D)
        with open(partial, "w", encoding="utf-8") as text:
            for _ in range(N):
                word = "".join(generator.choice(LETTERS, generator.integers(2, 12)))
                text.write(f"{word} {line % tuple(generator.normal(scale=0.4, size=D))}\n")
        partial.rename(file)
    return file


def _ours(*, labels: bool):
    def work() -> int:
        rows = uncone.open_rows(_file())
        done = 0
        for block in rows.blocks():
            done += len(block)
            del block
        assert rows.shape == (N, D)
        return done + len(rows.labels or ()) if labels else done

    return lambda: work


def _gensim() -> object:
    from gensim.models import KeyedVectors

    return lambda: KeyedVectors.load_word2vec_format(_file(), binary=False, no_header=True).vectors.shape


def _loadtxt() -> object:
    columns = range(1, D + 1)
    return lambda: (
        np.loadtxt(_file(), np.float32, comments=None, delimiter=" ", usecols=columns, encoding="utf-8").shape
    )


def _pandas() -> object:
    import csv

    import pandas as pd

    types = {0: str} | dict.fromkeys(range(1, D + 1), np.float32)
    return lambda: (
        pd.read_csv(_file(), sep=" ", header=None, quoting=csv.QUOTE_NONE, dtype=types, na_filter=False).shape
    )


ROWS = [
    Row("uncone, open and read all blocks", _ours(labels=False), repeats=5),
    Row("uncone, and the words", _ours(labels=True), repeats=5),
    Row("gensim, load_word2vec_format", _gensim, repeats=1),
    Row("numpy.loadtxt, float32, without the words", _loadtxt, repeats=1),
    Row("pandas.read_csv, float32, its C parser", _pandas, repeats=1),
]

if __name__ == "__main__":
    run(__file__, f"GloVe text of {N} words with {D} numbers", ROWS, repeats=5, columns=[("ours", ROWS[0].name)])
