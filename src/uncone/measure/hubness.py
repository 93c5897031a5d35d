"""Are a few rows everybody's neighbour? How unevenly rows occur in lists of nearest neighbours."""

import math
from collections.abc import Callable
from typing import Any

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.neighbours import Metric, Neighbours, searched
from uncone.measure.reading import reading
from uncone.moments import Moments
from uncone.records import MeasureDescription, Measurement
from uncone.records.wording import cut_label, plural
from uncone.rows import Rows, as_rows
from uncone.threads import on_one_thread

Tensor = torch.Tensor
NEIGHBOURS = 10
"""Neighbours a row: the customary k of the literature on hubness."""
TOP_HUBS = 10
FEW_LISTS = 1000
"""Below 1,000 rows single rows decide a skewness."""
_TOP_SHARE = 0.01
_ROUNDING = 1e-12  # of a variance, from sums in float64 that nearly cancel
_GROUPS = 20
_T_19 = 2.093024054408263  # the 97.5 % quantile of Student's t with 19 degrees of freedom


HUBNESS = MeasureDescription(
    name="hubness",
    says="Whether a few rows are everybody's neighbour: these turn up in answers to any query.",
    definition="skewness of the number of rows that have a row among their k = {k} nearest, {metric} (Radovanovic et al. 2010)",
    formula="""\
E (N_k - k)^3 / s^3,  N_k the number of rows that have x among their k nearest, s its standard deviation
k = 10, cosine, unless given; 0 where every row occurs equally often""",
    range=("-(N - 2) / sqrt(N - 1)", "(N - 2) / sqrt(N - 1)"),
    better="lower",
    isotropic="no closed form; it grows with D",
    reads_badly="values of different N, k or metric are compared, and when many rows are equal: of copies those with the "
    "lowest numbers are listed. Of a sample of lists the skewness comes from factorial moments, without bias in each of "
    "them, and its interval from a jackknife; it is wide where hubs are few.",
    source="Radovanovic et al. 2010, eq. 1; the Robin Hood index of Feldbauer et al. 2018.",
)


def hubness(
    rows: Any,
    moments: Moments | None = None,
    *,
    k: int = NEIGHBOURS,
    metric: Metric = "cosine",
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """`HUBNESS` of the rows.

    In `details`: `robin_hood`, the share of all occurrences that would have to change hands to make them
    even, sum |N_k - k| / (2 k N); `antihub_share`, the share of rows that occur nowhere; `top_share`, the
    share of all occurrences that the 1 % of rows with the most have; and the rows that occur most: `hubs`
    (ids), `hub_counts`, `hub_labels`. Of a sample of Q rows only their lists are known: the shares are then
    None, and hub counts are scaled by N / Q.

    Args:
        rows, moments, sample, seed, progress: as for `nearest_neighbours`.
        k: neighbours of each row.
        metric: "cosine", as most retrieval compares rows, or "euclidean".
        neighbours: a search of the same rows with copies (`distinct=False`), this metric and at least k neighbours.

    Raises:
        InputError: k below 1, an unknown metric, rows that are not finite, neighbours of another search.
            UndefinedMeasure: not more than k rows.

    Example:
        >>> import torch, uncone
        >>> star = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.1, 0.0], [0.0, 1.2]])  # listed 3, 1, 0 and 0 times
        >>> round(float(uncone.measure.hubness(star, k=1, metric="euclidean")), 4)  # 1.5 / 1.5^1.5
        0.8165
    """
    rows = as_rows(rows)
    if k < 1:
        raise InputError(f"expected at least one neighbour, got k = {k}: {NEIGHBOURS} is customary")
    m, neighbours = searched(
        rows, moments, neighbours, k, metric=metric, sample=sample, seed=seed, progress=progress
    )
    if neighbours.k < k:
        raise UndefinedMeasure(
            f"expected more than k = {k} rows to be neighbours, got {neighbours.searched}: pass more rows or a smaller k"
        )
    return _hubness(rows, m, k, neighbours, seed)


@on_one_thread
def _hubness(rows: Rows, m: Moments, k: int, neighbours: Neighbours, seed: int) -> Measurement:
    """The measurement, from a search that fits it."""
    lists, n = neighbours.indices[:, :k], neighbours.searched
    counts, interval = torch.bincount(lists.reshape(-1), minlength=m.n), None
    of_searched = counts[_present(m, rows, neighbours)]
    if neighbours.sampled:
        value, interval = _sampled_skewness(lists, n, seed)
    else:
        value = _skewness(of_searched.double() - k)
    bound = _bound(n)
    return reading(
        HUBNESS, value, m, lowest=-bound, highest=bound, interval=interval,
        asked={"k": k, "metric": neighbours.metric}, warnings=_warnings(neighbours, k),
        details={
            "k": k, "metric": neighbours.metric, **_shares(of_searched, k, neighbours), **_top(counts, rows, n / len(lists)),
            "duplicates": neighbours.duplicates, "tied": neighbours.tied, "queries": len(lists), "searched": n,
        },
    )  # fmt: skip


def _present(m: Moments, rows: Rows, neighbours: Neighbours) -> Tensor:
    """Which rows were searched, (N,) bool: all, but for rows without a direction."""
    present = torch.ones(m.n, dtype=torch.bool)
    if neighbours.searched < m.n:
        done = 0
        for block in rows.blocks():
            present[done : done + len(block)] = (block != 0).any(1)
            done += len(block)
            del block
    return present


def _bound(n: int) -> float:
    """The largest skewness of n numbers: one differs from all others."""
    return (n - 2) / math.sqrt(n - 1)


def _skewness(deviation: Tensor) -> float:
    variance = float(deviation.square().mean())
    return 0.0 if variance == 0 else float(deviation.pow(3).mean()) / variance**1.5


def _sampled_skewness(lists: Tensor, n: int, seed: int) -> tuple[float, tuple[float, float] | None]:
    """The skewness of N_k over n rows, from the lists of a sample, and its jackknife interval."""
    value, bound = _thinned_skewness(lists, n), _bound(n)
    if value is None or abs(value) > bound:  # the unbiased variance of too few lists may be near 0, or below
        raise UndefinedMeasure(
            f"expected enough lists to estimate how unevenly rows occur in them, got {len(lists)}: take a larger sample"
        )
    if len(lists) < 4 * _GROUPS:
        return value, None
    order = torch.randperm(len(lists), generator=torch.Generator().manual_seed(seed))
    group = torch.empty(len(lists), dtype=torch.int64)
    group[order] = torch.arange(len(lists)) % _GROUPS
    without = [_thinned_skewness(lists[group != i], n) for i in range(_GROUPS)]
    values = [one for one in without if one is not None]
    if len(values) < _GROUPS:
        return value, None
    mean = sum(values) / _GROUPS
    squares = sum((one - mean) ** 2 for one in values)
    error = math.sqrt((_GROUPS - 1) / _GROUPS * squares * (1 - len(lists) / n))
    return value, (max(-bound, value - _T_19 * error), min(bound, value + _T_19 * error))


def _thinned_skewness(lists: Tensor, n: int) -> float | None:
    """From factorial moments: of a count that is hypergeometric (n rows, N_k of them, q drawn), E (c)_r =
    (N_k)_r (q)_r / (n)_r."""
    q, k = lists.shape
    if q < 3:
        return None
    counts = torch.bincount(lists.reshape(-1)).double()
    second = float((counts * (counts - 1)).sum()) / n * (n / q) * ((n - 1) / (q - 1))
    triples = float((counts * (counts - 1) * (counts - 2)).sum())
    third = triples / n * (n / q) * ((n - 1) / (q - 1)) * ((n - 2) / (q - 2))
    square, cube = second + k, third + 3 * second + k
    variance = square - k**2
    return None if variance <= _ROUNDING * square else (cube - 3 * k * square + 2 * k**3) / variance**1.5


def _shares(counts: Tensor, k: int, neighbours: Neighbours) -> dict[str, float | None]:
    """The shares of hubs and antihubs; None each where only a sample of lists is known."""
    if neighbours.sampled:
        return dict.fromkeys(("robin_hood", "antihub_share", "top_share"))
    n = len(counts)
    top = counts.sort(descending=True).values[: max(1, round(_TOP_SHARE * n))]
    return {
        "robin_hood": float((counts - k).abs().sum()) / (2 * k * n),
        "antihub_share": float((counts == 0).sum()) / n,
        "top_share": float(top.sum()) / (k * n),
    }


def _top(counts: Tensor, rows: Rows, scale: float) -> dict[str, list[Any]]:
    """The rows that occur most often, ties in their order."""
    order = counts.sort(descending=True, stable=True).indices[:TOP_HUBS]
    top = counts[order].tolist()
    details: dict[str, list[Any]] = {
        "hubs": (order if rows.ids is None else rows.ids[order]).tolist(),
        "hub_counts": top if scale == 1 else [round(count * scale, 1) for count in top],
    }
    if rows.labels is not None:
        details["hub_labels"] = [cut_label(rows.labels[i]) for i in order.tolist()]
    return details


def _warnings(neighbours: Neighbours, k: int) -> tuple[str, ...]:
    warnings = []
    if neighbours.searched < FEW_LISTS:
        warnings.append(f"{neighbours.searched} rows are few: single rows decide the skewness")
    zero, copies, tied = neighbours.rows - neighbours.searched, neighbours.duplicates, neighbours.tied
    if zero:
        are = plural(zero, "row is", "rows are")
        warnings.append(f"{zero} {are} all zero, without a direction, and left out")
    if copies:
        equal = plural(copies, "row equals", "rows equal")
        warnings.append(f"{copies} {equal} another: of copies, the first are listed")
    if tied and neighbours.k == k:
        warnings.append(
            f"{tied} {plural(tied, 'row has', 'rows have')} two candidates for the last neighbour equally far: "
            "the lower number is listed"
        )
    return (*warnings, *neighbours.sampling_warnings())
