"""How many dimensions do the rows fill locally? TwoNN, and Levina and Bickel's estimate."""

import csv
import math
from functools import cache
from importlib import resources
from typing import Any, Literal

import numpy as np

from uncone.arguments import shown, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.neighbours import Neighbours, searched
from uncone.measure.reading import reading
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import plural
from uncone.roles import Ticks
from uncone.rows import Array
from uncone.threads import on_one_thread

FEW_RATIOS = 100  # rows, below which an estimate has a relative standard error above a tenth
UNDERESTIMATED = 20.0  # dimensions, above which no row has neighbours near enough
BIASED = 0.1  # of a reading: a ball with more extra dimensions than this share, but the same reading, gives a warning
NEIGHBOURS = 100  # as in Cai et al. 2021 for embeddings
_ROUNDINGS = 4.0  # of the rows: distances to neighbours that differ by less on average count as equal
_Z = 1.959963984540054


_ISOTROPIC = "no closed form; it reads below D"

TWO_NN = MeasureDescription(
    "two_nn", range=(0.0, None), better="neither",
    says="How many dimensions the rows fill locally, from the two nearest rows.",
    definition="(N - 1) / sum ln(r2 / r1) over the distances to the two nearest rows, equal rows left out (Facco et al. 2017)",
    formula="""\
(N - 1) / sum_i ln(r_2 / r_1),  r_1 <= r_2 the distances to the two nearest rows
where rows are spread evenly over the distance r_2:  P(r_2 / r_1 > m) = m^-d""",
    isotropic=_ISOTROPIC,
    reads_badly="the dimension is above about 20: no row then has neighbours near enough, and the value is too low. "
    "The value changes with N, near copies lower it, and noise or rounding as large as r_1 spoils it. Rows at the edge "
    "of a cloud have neighbours on one side only. The interval ignores such bias and treats ratios as independent, "
    "which is not quite true of rows that share neighbours. `ball_dimensions` and `gaussian_dimensions` in `details` "
    "show how large the bias is for a ball and for a Gaussian cloud, simulated at several N.",
    source="Facco et al. 2017. The likelihood avoids the bias of N / sum ln(r_2 / r_1); libraries differ in which of "
    "the two they return.", interval="95%, exact for independent ratios; `details` shows the bias of the value.",
)  # fmt: skip
LEVINA_BICKEL = MeasureDescription(
    "levina_bickel", range=(0.0, None), better="neither",
    says="How many dimensions the rows fill locally, from the k nearest rows, on a larger scale than `two_nn`.",
    definition="1 over the mean of ln(T_k / T_j) over the k = {k} nearest rows, equal rows left out "
    "(Levina & Bickel 2004; MacKay & Ghahramani 2005)",
    formula="""\
1 / mean_x (1 / m(x)),  1 / m(x) = sum_{j < k} ln(T_k / T_j) / (k - 1)
T_j the distance to the j-th nearest row;  k = 100, or all other rows""",
    isotropic=_ISOTROPIC,
    reads_badly="the dimension is above about 20, where the value is too low by more than `two_nn`, or when density "
    "changes within the k nearest rows. Values for different k describe different scales.",
    source="Levina & Bickel 2004, eq. 8; MacKay & Ghahramani 2005 for averaging the inverses.",
    interval="95%, for all rows, from a sample of rows. All rows give none, because local estimates share neighbours.",
)  # fmt: skip


@on_one_thread
def two_nn(
    rows: Any,
    moments: Moments | None = None,
    *,
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Ticks = None,
    mask: Any = None,
) -> Measurement:
    """`TWO_NN` of the rows. `interval` is the exact 95% interval, sum ln(r_2 / r_1) being Gamma(N, 1 / d).

    `details` has `linear_fit`, the paper's line through the origin of -ln(1 - F) on ln(r_2 / r_1) without the top 10%;
    `censored`, the maximum likelihood where this 10% is only known to be above the rest; `duplicates`; and the bias,
    which the interval does not include: `ball_dimensions` and `gaussian_dimensions`, the dimensions of clouds with as
    many rows and the same reading.

    `neighbours` holds two or more neighbours of the same rows, `distinct` and Euclidean; other arguments are as for
    `nearest_neighbours`. Undefined: fewer than three different rows, or no row whose two nearest rows differ in
    distance by more than rounding.
    >>> line = [[0.0], [1.0], [3.0], [7.0]]  # r_2 / r_1 is 3, 2, 3/2, 3/2
    >>> round(two_nn(line), 4)  # 3 / ln 13.5
    1.1527
    """
    _, m, near = searched(rows, moments, mask, neighbours, 2, sample, seed, progress, distinct=True)
    _require_two(near)
    ratios = np.sort(np.log(near.distances[:, 1] / near.distances[:, 0]))
    n, total = len(ratios), float(ratios.sum())
    if n < 2 or total <= n * _ROUNDINGS * m.epsilon:
        got = f"{n} on a lattice, to within rounding: there is no scale"
        raise UndefinedMeasure(f"expected two rows or more whose two nearest rows differ in distance, got {got}")
    value, kept = (n - 1) / total, int(n * (1 - 0.1))
    first, square = ratios[:kept], float(np.square(ratios[:kept]).sum())
    fit = float(first @ -np.log1p(-np.arange(1, kept + 1) / n)) / square if square else None
    below = float(first.sum() + (n - kept) * first[-1]) if kept > 1 else 0.0  # with the others known to be larger
    low, high = (gamma_quantile((1 + side * 0.95) / 2, n) / total for side in (-1, 1))
    details = {"linear_fit": fit, "censored": (kept - 1) / below if below > 0 else None, **_counts(near)}
    alike = {f"{cloud}_dimensions": dimensions_of(value, near.searched, cloud) for cloud in ("ball", "gaussian")}
    warnings = (*_warnings(value, near, n), *_bias(value, near.searched, alike["ball_dimensions"]))
    return reading(TWO_NN, value, m, interval=(low, high), warnings=warnings, details=details | alike)


@on_one_thread
def levina_bickel(
    rows: Any,
    moments: Moments | None = None,
    *,
    k: int = NEIGHBOURS,
    neighbours: Neighbours | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: Ticks = None,
    mask: Any = None,
) -> Measurement:
    """`LEVINA_BICKEL` of the rows. `details` has `k` as used, and the quantiles of the local estimates.

    With a sample, `interval` is the 95% interval for all rows (standard error of the mean inverse). Without a sample
    there is no interval, because local estimates share neighbours. `local_dimensions` gives the estimate of every row.

    Arguments are as for `two_nn`; `k` is all other rows where there are fewer. Undefined: fewer than three different
    rows, or all neighbours of every row equally far, to within rounding.
    >>> line = [[0.0], [1.0], [3.0], [7.0]]  # T_2 / T_1 is 3, 2, 3/2, 3/2
    >>> round(levina_bickel(line, k=2), 4)  # 4 / ln 13.5
    1.5369
    """
    if whole_number(k, "k") < 2:
        raise InputError(f"expected k of 2 or more, got {k}: {NEIGHBOURS} is customary")
    _, m, near = searched(rows, moments, mask, neighbours, k, sample, seed, progress, distinct=True)
    inverse = _inverse_dimensions(near, k)
    mean, n = float(inverse.mean()), len(inverse)
    if mean <= _ROUNDINGS * m.epsilon:
        got = f"{n} rows with all neighbours equally far, to within rounding: there is no scale"
        raise UndefinedMeasure(f"expected neighbours at different distances, got {got}")
    quantiles = np.quantile(inverse[:: max(1, n // 2**20)], (0.95, 0.5, 0.05)).tolist()
    local = zip(("local_5_percent", "local_median", "local_95_percent"), quantiles, strict=True)
    k, interval = min(k, near.k), None
    if near.sampled and n > 1:
        error = _Z * float(inverse.std(ddof=1)) * math.sqrt((1 - n / near.searched) / n)
        interval = (1 / (mean + error), 1 / (mean - error)) if error < mean else None
    details = {"k": k, **{name: 1 / one if one > 0 else None for name, one in local}, **_counts(near)}
    rest = {"asked": {"k": k}, "warnings": _warnings(1 / mean, near, n), "details": details}
    return reading(LEVINA_BICKEL, 1 / mean, m, interval=interval, **rest)


def local_dimensions(neighbours: Neighbours, k: int = NEIGHBOURS) -> Array:
    """Levina and Bickel's estimate at every query row, float64 (Q,), infinite where all neighbours are equally far. The
    neighbours are `distinct` and Euclidean, at least two per row."""
    if not isinstance(neighbours, Neighbours):
        raise InputError(f"expected neighbours from nearest_neighbours, got {shown(neighbours)}: search the rows first")
    whole_number(k, "k", 2)
    if not neighbours.distinct:
        raise InputError("expected neighbours without copies, got copies: search with distinct=True")
    with np.errstate(divide="ignore"):
        return 1 / _inverse_dimensions(neighbours, k)


def _inverse_dimensions(near: Neighbours, k: int) -> Array:
    _require_two(near, k)
    logarithms = np.log(near.distances[:, :k])
    return (logarithms[:, -1:] - logarithms[:, :-1]).mean(1)  # type: ignore[no-any-return]


def dimensions_of(reading: float, n: int, cloud: Literal["ball", "gaussian"]) -> float | None:
    """How many dimensions n rows fill, spread evenly over a ball or Gaussian, if TwoNN gives `reading`. Simulated by
    experiments/intervals/two_nn_bias.py up to 300,000 rows and 200 dimensions; None outside."""
    lines = _simulated()
    rows, dimensions = (np.unique([line[name] for line in lines]) for name in ("rows", "dimensions"))
    if not rows[0] <= n <= rows[-1]:
        return None
    logs = np.log([line[cloud] for line in lines]).reshape(len(rows), len(dimensions))
    at_n = [np.interp(math.log(n), np.log(rows), column) for column in logs.T]
    known = np.maximum.accumulate(at_n)
    if not known[0] <= math.log(reading) <= known[-1]:
        return None
    return float(np.exp(np.interp(math.log(reading), known, np.log(dimensions))))


@cache
def _simulated() -> list[dict[str, float]]:
    text = resources.files("uncone.measure").joinpath("two_nn_bias.csv").read_text(encoding="utf-8")
    return [{name: float(number) for name, number in line.items()} for line in csv.DictReader(text.splitlines())]


def _bias(value: float, n: int, of_ball: float | None) -> tuple[str, ...]:
    if of_ball is None or of_ball <= (1 + BIASED) * value:
        return ()
    ball = f"{n:,} rows spread evenly over a ball of {of_ball:.3g} dimensions give the same low value"
    return (f"{ball}. The interval ignores this bias",)


def gamma_quantile(probability: float, shape: float) -> float:
    """The quantile of a Gamma distribution of scale 1, by bisection of the incomplete gamma function: of x and shape a,
    x^a exp(-x) / Gamma(a + 1) times the sum over n of x^n / ((a + 1) ... (a + n))."""
    low, high = 0.0, shape + 30 * math.sqrt(shape) + 40
    while low < (x := (low + high) / 2) < high:
        n = np.arange(1, 100 + int(10 * math.sqrt(shape) + 3 * max(0.0, x - shape)))  # to below a rounding
        first = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1))
        below = first * (1 + float(np.cumprod(x / (shape + n)).sum()))
        low, high = (x, high) if below < probability else (low, x)
    return x


def _require_two(near: Neighbours, k: int = 2) -> None:
    if min(k, near.k) < 2:
        got = f"{near.searched} of {near.rows}: pass more rows"
        raise UndefinedMeasure(f"expected at least three different rows, got {got}")


def _counts(near: Neighbours) -> dict[str, int]:
    return {"duplicates": near.duplicates, "queries": len(near.queries), "searched": near.searched}


def _warnings(value: float, near: Neighbours, n: int) -> tuple[str, ...]:
    copies = near.duplicates
    equal = plural(copies, "row equals another row and is", "rows equal another row and are")
    too_low = f"above about {UNDERESTIMATED:.0f} dimensions estimates from neighbours are too low"
    return near.warnings(
        (n < FEW_RATIOS, f"{n} rows are few: the estimate varies by about {1 / math.sqrt(n):.0%}"),
        (value > UNDERESTIMATED, f"{too_low}: compare only with similar numbers of rows"),
        (copies, f"{copies} {equal} left out"),
    )
