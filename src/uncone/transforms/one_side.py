"""Whether documents and queries can be compared: of one width, and both or neither repaired."""

import numpy as np

from uncone.errors import expect
from uncone.records.text import number
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

_MOST_ROWS, _MOST_BYTES = 16_384, 2**26
_FEWEST = 10
_COMMON = 0.5  # up to this mean cosine raw queries and centred documents lose under 0.01 nDCG@10 (MiniLM on SciFact)
_NEAR, _FEW = 0.75, 0.001
"""Rows this far along the other side's mean row share its direction. Queries about one topic are alike too, but then
more than one in a thousand documents share their direction."""


def check_same_width(documents: Rows, queries: Rows) -> None:
    d, width = documents.shape[1], queries.shape[1]
    got = f"got {width} in {queries.name}: encode both with the same model"
    expect(d == width, f"queries of {d} features like {documents.name}, {got}")


@on_one_thread
def one_sided(documents: Rows, queries: Rows) -> str:
    """A caution where one side has a common direction that no row of the other shares, else "".

    Up to 16,384 evenly spaced rows of each side count. The side with the higher mean cosine has the direction: the mean
    of its unit rows, on which they project at p on average. The other side lacks it if at most one row in a thousand
    projects at 0.75 p or more. Mean cosines below 0.5, or fewer than 10 rows, decide nothing."""
    sides = {"queries": _units(queries), "documents": _units(documents)}
    if min(map(len, sides.values())) < _FEWEST:
        return ""
    common = {name: _mean_cosine(x) for name, x in sides.items()}
    has, lacks = sorted(common, key=common.__getitem__, reverse=True)
    mean = sides[has].mean(axis=0)
    if common[has] < _COMMON or (sides[lacks] @ mean >= _NEAR * (mean @ mean)).mean() > _FEW:
        return ""
    high, low = (number(common[side], limits=(-1, 1), digits=2) for side in (has, lacks))
    return (
        f"The {has} have a common direction (mean cosine {high}) that the {lacks} lack ({low}). This happens when only "
        f"the {lacks} were repaired, or when the two come from different models. Scores between them then mean little. "
        f"Give both sides the same transformation (`uncone repair {has.upper()} REPAIRED_{has.upper()} --load "
        "T.safetensors`), or compare both as they were."
    )


def _units(rows: Rows) -> Array:
    n, d = rows.shape
    count = min(n, _MOST_ROWS, max(_FEWEST, _MOST_BYTES // (4 * d)))
    x = rows.take(np.arange(count) * (n - 1) // max(1, count - 1))
    with np.errstate(all="ignore"):
        x = x / np.abs(x).max(axis=1, keepdims=True)  # so that no square overflows
    x = x[np.isfinite(x).all(axis=1)].astype(np.float32, copy=False)
    units: Array = x / np.linalg.norm(x, axis=1, keepdims=True)
    return units


def _mean_cosine(units: Array) -> float:
    n = len(units)
    return (float(np.square(units.sum(axis=0, dtype=np.float64)).sum()) - n) / (n * (n - 1))
