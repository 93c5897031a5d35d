"""Are a few rows everybody's neighbour? How unevenly rows occur in lists of nearest neighbours."""

import math
from typing import Any

import numpy as np

from uncone.arguments import whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.neighbours import Neighbours, searched
from uncone.measure.points import Metric
from uncone.measure.reading import reading
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import plural
from uncone.records.token_text import token_texts
from uncone.roles import Ticks
from uncone.rows import Array
from uncone.threads import on_one_thread

FEW_LISTS = 1000  # rows, below which single ones decide a skewness
_ROUNDING = 1e-12  # of a variance, from sums in float64 that nearly cancel
_GROUPS = 20
_T_19 = 2.093024054408263  # the 97.5% quantile of Student's t with 19 degrees of freedom


HUBNESS = MeasureDescription(
    "hubness", range=("-(N - 2) / sqrt(N - 1)", "(N - 2) / sqrt(N - 1)"), better="lower",
    says="Whether a few rows are everybody's neighbour. Such rows turn up in answers to any query.",
    definition="skewness of the number of rows that have a row among their k = {k} nearest, {metric} (Radovanovic et al. 2010)",
    formula="""\
E (N_k - k)^3 / s^3,  N_k the number of rows that have x among their k nearest, s its standard deviation
k = 10, cosine, unless given; 0 where every row occurs equally often""",
    isotropic="no closed form; it grows with D",
    reads_badly="values of different N, k or metric are compared, or when many rows are equal: among copies, the "
    "lowest numbers are listed. From a sample of lists, the skewness comes from factorial moments, each without bias, "
    "and its interval from a jackknife. The interval is wide where hubs are few.",
    source="Radovanovic et al. 2010, eq. 1; the Robin Hood index of Feldbauer et al. 2018.",
    interval="95%, for all rows, from a sample of lists. All lists give none, because other rows would change every "
    "list.",
)  # fmt: skip


@on_one_thread
def hubness(
    rows: Any,
    moments: Moments | None = None,
    *,
    k: int = 10,
    metric: Metric = "cosine",
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Ticks = None,
    mask: Any = None,
) -> Measurement:
    """`HUBNESS` of the rows.

    `details` has `robin_hood`, the share of all occurrences that would have to change hands to make them even, sum |N_k
    - k| / (2 k N); `antihub_share`, the share of rows that occur nowhere; `top_share`, the share of all occurrences
    that the 1% of rows with the most have; and the rows that occur most: `hubs` (ids), `hub_counts`, `hub_labels`. With
    a sample of Q rows the shares are None, and counts are scaled by N / Q.

    `neighbours` holds k or more neighbours of the same rows, with copies; other arguments are as for
    `nearest_neighbours`. Undefined: k rows or fewer.
    >>> star = [[0.0, 0.0], [1.0, 0.0], [-1.1, 0.0], [0.0, 1.2]]  # listed 3, 1, 0 and 0 times
    >>> round(hubness(star, k=1, metric="euclidean"), 4)  # 1.5 / 1.5^1.5
    0.8165
    """
    if whole_number(k, "k") < 1:
        raise InputError(f"expected at least one neighbour, got k = {k}: 10 is customary")
    rows, m, near = searched(rows, moments, mask, neighbours, k, sample, seed, progress, metric)
    n = near.searched
    if near.k < k:
        got = f"{n}: pass more rows or a smaller k"
        raise UndefinedMeasure(f"expected more than k = {k} rows to be neighbours, got {got}")
    lists, interval, scale = near.indices[:, :k], None, n / len(near.queries)
    counts = np.bincount(lists.reshape(-1), minlength=m.n)
    bound = (n - 2) / math.sqrt(n - 1)  # of the skewness of n numbers, where one differs from all others
    shares: tuple[float | None, ...] = (None, None, None)
    if near.sampled:
        value, interval = _sampled_skewness(lists, n, bound, seed)
    else:
        listed = counts[near.queries]
        deviation, most = (listed - k).astype(np.float64), np.sort(listed)[-max(1, round(0.01 * n)) :]
        robin_hood = float(np.abs(deviation).sum()) / (2 * k * n)
        shares = robin_hood, float((listed == 0).mean()), float(most.sum()) / (k * n)
        variance = float(np.square(deviation).mean())
        value = 0.0 if variance == 0 else float((deviation**3).mean()) / variance**1.5
    order = np.argsort(-counts, kind="stable")[:10]
    top, asked = counts[order].tolist(), {"k": k, "metric": metric}
    details: dict[str, Any] = asked | dict(zip(("robin_hood", "antihub_share", "top_share"), shares, strict=True))
    details["hubs"] = (order if rows.ids is None else rows.ids[order]).tolist()
    details["hub_counts"] = top if scale == 1 else [round(count * scale, 1) for count in top]
    if rows.labels is not None:
        details["hub_labels"] = token_texts(rows.labels, order.tolist())
    details |= {"duplicates": near.duplicates, "tied": near.tied, "queries": len(lists), "searched": n}
    rest = {"interval": interval, "asked": asked, "details": details, "warnings": _warnings(near, k)}
    return reading(HUBNESS, value, m, lowest=-bound, highest=bound, **rest)


def _sampled_skewness(lists: Array, n: int, bound: float, seed: int) -> tuple[float, tuple[float, float] | None]:
    """The skewness of N_k over n rows, from a sample of lists, with its jackknife interval."""
    value = _thinned_skewness(lists, n)
    if value is None or abs(value) > bound:  # the unbiased variance of too few lists may be near 0, or below
        got = f"{len(lists)}: take a larger sample"
        raise UndefinedMeasure(f"expected enough lists to estimate how unevenly rows occur in them, got {got}")
    if len(lists) < 4 * _GROUPS:
        return value, None
    group = np.random.default_rng(seed).permutation(len(lists)) % _GROUPS
    without = (_thinned_skewness(lists[group != i], n) for i in range(_GROUPS))
    values = [one for one in without if one is not None]
    if len(values) < _GROUPS:
        return value, None
    mean = sum(values) / _GROUPS
    squares = sum((one - mean) ** 2 for one in values)
    error = math.sqrt((_GROUPS - 1) / _GROUPS * squares * (1 - len(lists) / n))
    return value, (max(-bound, value - _T_19 * error), min(bound, value + _T_19 * error))


def _thinned_skewness(lists: Array, n: int) -> float | None:
    """The skewness from factorial moments: a hypergeometric count (n rows, N_k of them, q drawn) has E (c)_r =
    (N_k)_r (q)_r / (n)_r."""
    q, k = lists.shape
    if q < 3:
        return None
    counts = np.bincount(lists.reshape(-1)).astype(np.float64)
    second = float((counts * (counts - 1)).sum()) / n * (n / q) * ((n - 1) / (q - 1))
    triples = float((counts * (counts - 1) * (counts - 2)).sum())
    third = triples / n * (n / q) * ((n - 1) / (q - 1)) * ((n - 2) / (q - 2))
    square, cube = second + k, third + 3 * second + k
    variance = square - k**2
    return None if variance <= _ROUNDING * square else (cube - 3 * k * square + 2 * k**3) / variance**1.5


def _warnings(near: Neighbours, k: int) -> tuple[str, ...]:
    n, copies, tied = near.searched, near.duplicates, near.tied
    zero = near.rows - n
    last = f"{tied} {plural(tied, 'row has', 'rows have')} two equally near candidates for the last neighbour"
    return near.warnings(
        (n < FEW_LISTS, f"{n} rows are few: single rows decide the skewness"),
        (
            zero,
            f"{zero} {plural(zero, 'row is', 'rows are')} all zero and left out, because zero rows have no direction",
        ),
        (
            copies,
            f"{copies} {plural(copies, 'row equals', 'rows equal')} another row: among copies, the first are listed",
        ),
        (tied and near.k == k, f"{last}: the lower number is listed"),
    )
