"""Whether documents and queries can be compared: of one width, and both repaired or neither."""

import torch

from uncone.errors import InputError
from uncone.records.text import number
from uncone.rows import Rows

Tensor = torch.Tensor
_MOST_ROWS, _MOST_BYTES = 16_384, 2**26
_FEWEST = 10
_COMMON = 0.5
"""A mean cosine from which on it matters. MiniLM on SciFact with a constant vector added: raw queries against
centred documents lose less than 0.01 nDCG@10 up to here."""
_NEAR, _FEW = 0.75, 0.001
"""Rows that lie so far along the other side's mean row share its direction. Queries about one topic lie
together too, but then the documents on that topic lie there: more than one in a thousand."""


def check_same_width(documents: Rows, queries: Rows) -> None:
    """Raise InputError where documents and queries differ in their number of features."""
    if documents.shape[1] != queries.shape[1]:
        raise InputError(
            f"expected queries of {documents.shape[1]} features like {documents.name}, got "
            f"{queries.shape[1]} in {queries.name}: encode both with the same model"
        )


def one_sided(documents: Rows, queries: Rows) -> str:
    """A caution where one side has a common direction in which no row of the other lies, else "".

    Vectors of one model share most of what is common to them. Each side is read at up to 16,384 rows, evenly
    spaced. The side with the higher mean cosine between its rows is the one with the direction: its mean of
    unit rows, along which these lie at p on average. The other side lacks it if at most one row in a thousand
    lies at 0.75 p or more. Nothing is said of a mean cosine below 0.5, or of fewer than 10 rows.
    """
    sides = {"queries": _units(queries), "documents": _units(documents)}
    if min(map(len, sides.values())) < _FEWEST:
        return ""
    common = {name: _mean_cosine(x) for name, x in sides.items()}
    has, lacks = sorted(common, key=common.__getitem__, reverse=True)
    if common[has] < _COMMON:
        return ""
    mean = sides[has].mean(dim=0)
    reach = float((sides[lacks] @ mean >= _NEAR * mean.square().sum()).double().mean())
    if reach > _FEW:
        return ""
    return (
        f"The {has} have a common direction (mean cosine {number(common[has], limits=(-1, 1), digits=2)}) that "
        f"the {lacks} lack ({number(common[lacks], limits=(-1, 1), digits=2)}), as where the {lacks} alone were "
        "repaired, or the two are of different models. Scores between them then say little. Give both sides the "
        f"same transformation (`uncone repair {has.upper()} REPAIRED_{has.upper()} --load T.safetensors`), or "
        "compare both as they were."
    )


def _units(rows: Rows) -> Tensor:
    """Some rows of length 1 (n, D), float32, without those that are zero."""
    n, d = rows.shape
    count = min(n, _MOST_ROWS, max(_FEWEST, _MOST_BYTES // (4 * d)))
    x = rows.take(torch.arange(count) * (n - 1) // max(1, count - 1))
    x = x / x.abs().amax(dim=1, keepdim=True)  # so that no square overflows
    x = x[torch.isfinite(x).all(dim=1)].float()
    units: Tensor = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return units


def _mean_cosine(units: Tensor) -> float:
    """Over the pairs of different rows."""
    n = len(units)
    return (float(units.double().sum(dim=0).square().sum()) - n) / (n * (n - 1))
