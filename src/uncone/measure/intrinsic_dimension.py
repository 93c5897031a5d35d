"""How many dimensions do the rows fill locally? TwoNN, and the maximum-likelihood estimate of Levina and Bickel."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.neighbours import Neighbours, check_searched, nearest_neighbours
from uncone.measure.reading import reading
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.rows import as_rows
from uncone.threads import on_one_thread

Tensor = torch.Tensor
FEW_RATIOS = 100
"""Below 100 rows an estimate from two neighbours has a relative standard error above a tenth."""
UNDERESTIMATED = 20.0
"""Above about 20 dimensions, estimates from neighbours fall short: with any feasible N no row has neighbours near enough."""
NEIGHBOURS = 100
"""What Cai et al. 2021 take for embeddings, and scikit-dimension where it makes local estimates."""
_ROUNDINGS = 4.0
"""Of the rows: where the distances to neighbours differ by less on average, they are equal as far as one can see."""
_DROPPED = 0.1
_LEVEL = 0.95
_Z = 1.959963984540054


def two_nn(
    rows: Any,
    moments: Moments | None = None,
    *,
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """The intrinsic dimension from the distances r1 <= r2 to the two nearest rows (Facco et al. 2017).

    Where rows are spread evenly over the distance r2, mu = r2 / r1 has P(mu > m) = m^-d, and the unbiased maximum-likelihood
    estimate is d = (N - 1) / sum ln mu. `interval` is its exact 95 % interval, sum ln mu being Gamma(N, 1 / d) for
    independent ratios; ratios of neighbouring rows are not quite independent. In `details`: `linear_fit`, the paper's line
    through the origin of -ln(1 - F) on ln mu without the top 10 %; `censored`, the maximum likelihood with those 10 %
    known to be above the rest only; and `duplicates`, how many equal rows were left out, whose r1 is 0.

    Args:
        rows: Rows, or a tensor or array (N, D).
        moments: of the same rows, first-order sums suffice; computed when not given.
        neighbours: a search of the same rows with `distinct=True`, k of 2 or more and the Euclidean metric, to be shared by
            measures; made when not given.
        sample, seed, progress: as for `nearest_neighbours`. A sample of rows has its neighbours among all rows, so that
            the scale at which the dimension is read stays what it is.

    Returns:
        A value above 0, in dimensions; neither end is better. The isotropic cloud has no closed form: it reads below D.

    Raises:
        InputError: rows that are not finite, or neighbours of another search. UndefinedMeasure: fewer than three different
        rows, or no row whose two nearest differ in distance by more than rounding.

    Reads badly above about 20 dimensions (too low), with few rows, and where noise or rounding is as large as r1.

    Example:
        >>> import torch, uncone
        >>> line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])  # mu is 3, 2, 3/2, 3/2
        >>> round(float(uncone.measure.two_nn(line)), 4)
        1.1527
    """
    rows, m = _with_moments(rows, moments)
    if neighbours is None:
        neighbours = nearest_neighbours(
            rows, 2, m, distinct=True, sample=sample, seed=seed, progress=progress
        )
    check_searched(neighbours, rows, metric="euclidean", distinct=True)
    return _two_nn(m, neighbours)


@on_one_thread
def _two_nn(m: Moments, neighbours: Neighbours) -> Measurement:
    if neighbours.k < 2:
        raise UndefinedMeasure(
            f"expected at least three different rows, got {neighbours.searched} of {m.n}: pass more rows"
        )
    ratios = (neighbours.distances[:, 1] / neighbours.distances[:, 0]).log().sort().values
    n, total = len(ratios), float(ratios.sum())
    if n < 2 or total <= n * _ROUNDINGS * m.epsilon:
        raise UndefinedMeasure(
            f"expected two rows or more with their two nearest at different distances, got {n} on a lattice, to rounding: there is no scale"
        )
    value = (n - 1) / total
    kept = int(n * (1 - _DROPPED))
    return _with_interval(
        reading(
            "two_nn", value, m, range=(0.0, None),
            details={
                "linear_fit": _linear_fit(ratios[:kept], n), "censored": _censored(ratios, kept),
                "duplicates": neighbours.duplicates, "queries": n, "searched": neighbours.searched,
            },
            warnings=_warnings(value, neighbours, n),
            definition="(N - 1) / sum ln(r2 / r1) over the distances to the two nearest rows, equal rows left out (Facco et al. 2017)",
        ),
        (gamma_quantile((1 - _LEVEL) / 2, n) / total, gamma_quantile((1 + _LEVEL) / 2, n) / total),
    )  # fmt: skip


def levina_bickel(
    rows: Any,
    moments: Moments | None = None,
    *,
    k: int = NEIGHBOURS,
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """The intrinsic dimension from the distances T_1 <= ... <= T_k to the k nearest rows (Levina & Bickel 2004).

    Each row has the local estimate m(x) = [1/(k - 1) sum over j < k of ln(T_k / T_j)]^-1 (eq. 8; see `local_dimensions`).
    The value is 1 / mean(1 / m(x)), which averages inverses as MacKay & Ghahramani 2005 have it; Levina and Bickel average
    the estimates themselves. `details` has `k` as used, and the quantiles of the local estimates.

    Args:
        rows, moments, sample, seed, progress: as for `two_nn`.
        k: neighbours of each row; all other rows where there are fewer. Values of different k are at different scales.
        neighbours: as for `two_nn`, with at least k neighbours.

    Returns:
        A value above 0, in dimensions; neither end is better. With a sample, `interval` is the 95 % interval for what all
        rows would give (standard error of the mean inverse); without, there is none: local estimates share their neighbours.

    Raises:
        InputError: k below 2, rows that are not finite, or neighbours of another search. UndefinedMeasure: fewer than three
        different rows, or all neighbours of every row equally far, to rounding.

    Reads badly above about 20 dimensions (too low), and where density changes within the k nearest.
    """
    if k < 2:
        raise InputError(
            f"expected k of 2 or more, got {k}: an estimate compares distances; {NEIGHBOURS} is customary"
        )
    rows, m = _with_moments(rows, moments)
    if neighbours is None:
        neighbours = nearest_neighbours(
            rows, k, m, distinct=True, sample=sample, seed=seed, progress=progress
        )
    check_searched(neighbours, rows, metric="euclidean", distinct=True)
    return _levina_bickel(m, k, neighbours)


@on_one_thread
def _levina_bickel(m: Moments, k: int, neighbours: Neighbours) -> Measurement:
    inverse = _inverse_dimensions(neighbours, k)
    mean, n = float(inverse.mean()), len(inverse)
    if mean <= _ROUNDINGS * m.epsilon:
        raise UndefinedMeasure(
            f"expected neighbours at different distances, got {n} rows with all of theirs equally far, to rounding: there is no scale"
        )
    low, median, high = torch.quantile(
        inverse[:: max(1, n // 2**20)], torch.tensor([0.95, 0.5, 0.05], dtype=torch.float64)
    ).tolist()
    k = min(k, neighbours.k)
    found = reading(
        "levina_bickel", 1 / mean, m, range=(0.0, None),
        details={
            "k": k, "local_5_percent": _inverse(low), "local_median": _inverse(median), "local_95_percent": _inverse(high),
            "duplicates": neighbours.duplicates, "queries": n, "searched": neighbours.searched,
        },
        warnings=_warnings(1 / mean, neighbours, n),
        definition=f"1 over the mean of ln(T_k / T_j) over the k = {k} nearest rows, equal rows left out (Levina & Bickel 2004; MacKay & Ghahramani 2005)",
    )  # fmt: skip
    if not neighbours.sampled or n < 2:
        return found
    error = _Z * float(inverse.std()) * math.sqrt((1 - n / neighbours.searched) / n)
    return _with_interval(found, (1 / (mean + error), _inverse(max(0.0, mean - error)) or math.inf))


def local_dimensions(neighbours: Neighbours, k: int = NEIGHBOURS) -> Tensor:
    """Levina and Bickel's estimate at every row that was asked: float64 (Q,), in dimensions, infinite where all neighbours are equally far.

    Args:
        neighbours: a search with `distinct=True` and the Euclidean metric.
        k: how many of its neighbours to use, or all where there are fewer.

    Raises:
        UndefinedMeasure: fewer than two neighbours a row. InputError: neighbours with copies among them.
    """
    if not neighbours.distinct:
        raise InputError(
            "expected neighbours without copies, got a search with them: search with distinct=True"
        )
    return _inverse_dimensions(neighbours, k).reciprocal()


def _inverse_dimensions(neighbours: Neighbours, k: int) -> Tensor:
    k = min(k, neighbours.k)
    if k < 2:
        raise UndefinedMeasure(
            f"expected at least three different rows, got {neighbours.searched} of {neighbours.rows}: pass more rows"
        )
    logarithms = neighbours.distances[:, :k].log()
    return (logarithms[:, -1:] - logarithms[:, :-1]).mean(1)


def _linear_fit(ratios: Tensor, n: int) -> float | None:
    """The slope through the origin of -ln(1 - i / n) on the i-th smallest ln mu."""
    square = float(ratios.square().sum())
    if square == 0:
        return None
    empirical = torch.arange(1, len(ratios) + 1, dtype=torch.float64) / n
    return float(ratios @ -torch.log1p(-empirical)) / square


def _censored(ratios: Tensor, kept: int) -> float | None:
    """The unbiased maximum likelihood from the `kept` smallest ln mu, of the others only that they are larger."""
    if kept < 2:
        return None
    total = float(ratios[:kept].sum() + (len(ratios) - kept) * ratios[kept - 1])
    return (kept - 1) / total if total > 0 else None


def gamma_quantile(probability: float, shape: float) -> float:
    """The quantile of a Gamma distribution with this shape and scale 1, by bisection of the incomplete gamma function."""
    low, high = 0.0, shape + 40 * math.sqrt(shape) + 40
    a = torch.tensor(shape, dtype=torch.float64)
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if float(torch.special.gammainc(a, torch.tensor(middle, dtype=torch.float64))) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _with_moments(rows: Any, moments: Moments | None) -> tuple[Any, Moments]:
    rows = as_rows(rows)
    return rows, Moments.of(rows, second=False) if moments is None else moments


def _with_interval(found: Measurement, interval: tuple[float, float]) -> Measurement:
    return replace(found, interval=interval if all(map(math.isfinite, interval)) else None)


def _inverse(value: float) -> float | None:
    return 1 / value if value > 0 else None


def _warnings(value: float, neighbours: Neighbours, n: int) -> tuple[str, ...]:
    found = []
    if n < FEW_RATIOS:
        found.append(f"{n} rows are few: the estimate varies by about {1 / math.sqrt(n):.0%}")
    if value > UNDERESTIMATED:
        found.append(
            f"above about {UNDERESTIMATED:.0f} dimensions estimates from neighbours are too low: compare rows of like number only"
        )
    if neighbours.duplicates:
        rows = "row equals another and is" if neighbours.duplicates == 1 else "rows equal another and are"
        found.append(f"{neighbours.duplicates} {rows} left out")
    if neighbours.sampled:
        found.append(f"sampled: {n} rows were asked for their neighbours among {neighbours.searched}")
    return tuple(found)
