"""Whether documents and queries can be compared: of one width, and both repaired or neither."""

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.records.text import number
from uncone.rows import Rows
from uncone.threads import on_one_thread

Array = npt.NDArray[np.float32]
_MOST_ROWS, _MOST_BYTES = 16_384, 2**26
_FEWEST = 10
_COMMON = 0.5  # up to this mean cosine raw queries and centred documents lose under 0.01 nDCG@10 (MiniLM on SciFact)
_NEAR, _FEW = 0.75, 0.001
"""Rows so far along the other side's mean row share its direction. Queries about one topic lie together too, but then
more than one in a thousand documents lie there."""


def check_same_width(documents: Rows, queries: Rows) -> None:
    """Refuse documents and queries of different numbers of features."""
    if documents.shape[1] != queries.shape[1]:
        got = f"got {queries.shape[1]} in {queries.name}: encode both with the same model"
        raise InputError(f"expected queries of {documents.shape[1]} features like {documents.name}, {got}")


@on_one_thread
def one_sided(documents: Rows, queries: Rows) -> str:
    """A caution where one side has a common direction in which no row of the other lies, else "".

    Each side is read at up to 16,384 rows, evenly spaced. The side with the higher mean cosine between its rows has the
    direction: its mean of unit rows, along which these lie at p on average. The other side lacks it if at most one row
    in a thousand lies at 0.75 p or more. Nothing is said of a mean cosine below 0.5, or of fewer than 10 rows.
    """
    sides = {"queries": _units(queries), "documents": _units(documents)}
    if min(map(len, sides.values())) < _FEWEST:
        return ""
    common = {name: _mean_cosine(x) for name, x in sides.items()}
    has, lacks = sorted(common, key=common.__getitem__, reverse=True)
    if common[has] < _COMMON:
        return ""
    mean = sides[has].mean(axis=0)
    reach = float((sides[lacks] @ mean >= _NEAR * (mean @ mean)).mean())
    if reach > _FEW:
        return ""
    return (
        f"The {has} have a common direction (mean cosine {number(common[has], limits=(-1, 1), digits=2)}) that "
        f"the {lacks} lack ({number(common[lacks], limits=(-1, 1), digits=2)}), as where the {lacks} alone were "
        "repaired, or the two are of different models. Scores between them then say little. Give both sides the "
        f"same transformation (`uncone repair {has.upper()} REPAIRED_{has.upper()} --load T.safetensors`), or "
        "compare both as they were."
    )


def _units(rows: Rows) -> Array:
    """Some rows of length 1 (n, D), float32, without those that are zero."""
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
