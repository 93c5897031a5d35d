"""How evenly do directions cover the sphere? Uniformity, from moments or over all pairs."""

import math
from typing import Any

import numpy as np

from uncone.arguments import finite_number
from uncone.errors import InputError
from uncone.measure.cosine import on_mean_cosine, pair_weight
from uncone.measure.influence import NoIntervalError, norms, quadratic
from uncone.measure.neighbours import sampled_rows, ticks
from uncone.measure.points import Points
from uncone.measure.reading import cosine_warnings, moments_of, reading, rounding_warnings, with_moments
from uncone.measure.tiles import sum_by_query, sum_over_pairs
from uncone.moments import Moments, inverse
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import counted
from uncone.roles import Ticks
from uncone.rows import Array
from uncone.threads import on_one_thread

_ROUNDINGS = 6.0  # over sqrt(D), by which a mean cosine and the mean square of cosines may be off
_Z = 1.959963984540054

UNIFORMITY = MeasureDescription(
    "uniformity", range=("-4t", "2t (t - 1) + 1/2"), better="lower", centered=False,
    says="How evenly directions cover the sphere.",
    definition="ln E exp(-{t:g} |u - v|^2) over pairs of unit rows (Wang & Isola 2020), to second order in the cosine",
    formula="""\
ln E exp(-t |u - v|^2) over pairs of unit rows, t = 2, to second order in their cosine c:
    -2t + 2t E[c] + 2t^2 Var[c],  E[c] and E[c^2] exact over all pairs""",
    isotropic="-2t + 2t^2 / D",
    reads_badly="cosines are far from normally distributed, as with few features or one feature much louder than the "
    "others: on two opposite cones the value is -1.94 instead of -2.62. The value is mostly below 0, and exceeds 0 "
    "where the cosines spread widely about a mean near 1 / (2t).",
    source="Wang & Isola 2020, eq. 3.",
)  # fmt: skip
UNIFORMITY_EXACT = MeasureDescription(
    "uniformity_exact", range=("-4t", 0.0), better="lower", centered=False,
    says="How evenly directions cover the sphere, pair by pair: right even where cosines are far from normal.",
    definition="ln E exp(-{t:g} |u - v|^2) over all pairs of different unit rows (Wang & Isola 2020)",
    formula="ln mean over i != j of exp(-t |u_i - u_j|^2),  t = 2",
    isotropic="ln 0F1(; D/2; t^2) - 2t, about -2t + 2t^2 / D",
    reads_badly="a few tight groups dominate the sum: near pairs weigh up to exp(4t) times as much as opposite pairs. "
    "With a sample of rows, `interval` is the 95% interval for all pairs.",
    source="Wang & Isola 2020, eq. 3, whose loss leaves normalising to its caller; here rows are divided by their norms.",
    interval="95%, for all pairs, from a sample of rows. All pairs give none.",
)  # fmt: skip


@on_one_thread
def uniformity(x: Any, *, t: float = 2.0, mask: Any = None) -> Measurement:
    """`UNIFORMITY` of `x`, rows or moments, from `Moments.of(rows, unit_second=True)`.

    Undefined: fewer than two directions, or one row with all the weight.
    >>> round(uniformity(np.eye(2)), 6)  # one cosine, of 0
    -4.0
    """
    m = moments_of(x, mask, unit_second=True)
    _check_t(t, 1e100)  # whose square is a float
    if not m.has("unit_second"):
        how = "sum with Moments.of(rows, unit_second=True)"
        raise InputError(f"expected moments with unit second moments, got moments without them: {how}")
    pairs = pair_weight(m)
    mean = (float(np.square(m.unit_sums()[0]).sum()) - m.unit_weight_square) / pairs
    square = (m.unit_squares()[0] - m.unit_weight_square) / pairs
    variance = max(0.0, square - mean**2)
    value = -2 * t + 2 * t * mean + 2 * t**2 * variance
    error = _ROUNDINGS / math.sqrt(m.d) * t * (1 + t) * m.unit_epsilon
    ends = {"lowest": -4 * t, "highest": 2 * t * (t - 1) + 0.5 if t > 0.5 else 0.0}
    details = {"t": t, "cosine_mean": mean, "cosine_variance": variance}
    rest = {"details": details, "warnings": cosine_warnings(m) + rounding_warnings(value, m, error)}

    def influence() -> Array:
        if m.keeps_rows:
            raise NoIntervalError("fewer rows than half of the columns: an interval takes more rows")
        assert m.unit_second is not None
        on_square = 2 * (quadratic(m, m.unit_second, scale=inverse(norms(m))) - 1) / (m.n - m.zero_rows - 1)
        on_mean = on_mean_cosine(m, mean)
        on_variance = np.where(norms(m) > 0, on_square - 2 * square, 0.0) - 2 * mean * on_mean
        return 2 * t * on_mean + (2 * t**2 * on_variance if variance else 0.0)

    of = {"reference": -2 * t + 2 * t**2 / m.d, "asked": {"t": t}, "influence": influence}
    return reading(UNIFORMITY, value, m, **of, **ends, **rest)


@on_one_thread
def uniformity_exact(
    rows: Any,
    moments: Moments | None = None,
    *,
    t: float = 2.0,
    sample: int | None = None,
    seed: int = 0,
    progress: Ticks = None,
    mask: Any = None,
) -> Measurement:
    """`UNIFORMITY_EXACT` of the rows, t at most 150. Costs N^2 D / 2 multiply-adds.

    `sample` rows are paired with all others, by default all up to 65,536 rows, else 8,192; other arguments are as for
    `nearest_neighbours`. Undefined: fewer than two rows with a direction.
    >>> float(uniformity_exact([[1.0, 0.0], [-2.0, 0.0]]))  # one pair, 2 apart
    -8.0
    """
    _check_t(t, 150)  # exp(-4 t) has to stay inside float64
    rows, m = with_moments(rows, moments, mask, second=False)
    n, pairs = m.n - m.zero_rows, pair_weight(m)
    queries = sampled_rows(n, sample, seed)
    first = m.unit_sums()[0] / m.unit_weight
    # Small exponents keep the digits in exp - 1 that exp would round off.
    near = 2 * t * (1 - float(first @ first)) < 0.5
    log, exp, tick = math.log1p if near else math.log, np.expm1 if near else np.exp, ticks(rows.shape[0], progress)

    def kernel(scores: Array) -> Array:
        """The terms, from -|u - v|^2 / 2, which rounding may have left above 0."""
        np.minimum(scores, 0.0, out=scores)
        exponents = scores if t <= 20 else scores.astype(np.float64)
        exponents *= 2 * t
        return np.asarray(exp(exponents, out=exponents))

    def read(mean: float) -> float:
        return min(0.0, max(-4 * t, log(mean)))

    points, interval, sampled = Points(rows, m, metric="cosine"), None, tuple[str, ...]()
    if len(queries) == n:
        mean = sum_over_pairs(points, kernel, tick) * 2 / pairs
    else:
        means = sum_by_query(points, queries, kernel, tick) / (n - 1)
        mean, asked = float(means.mean()), len(queries)
        sampled = (f"sampled: {counted(asked, 'row was', 'rows were')} paired with all {n:,}",)
        error = _Z * float(means.std(ddof=1)) * math.sqrt((1 - asked / n) / asked) if asked > 1 else math.inf
        if error < mean + near:
            interval = (read(mean - error), read(mean + error))
    details, warnings = {"t": t, "queries": len(queries), "searched": n}, (*cosine_warnings(m), *sampled)
    rest = {"interval": interval, "asked": {"t": t}, "details": details, "warnings": warnings}
    return reading(UNIFORMITY_EXACT, read(mean), m, lowest=-4 * t, reference=_uniform(t, m.d), **rest)


def _uniform(t: float, d: int) -> float:
    """ln E exp(-t |u - v|^2) of uniform directions: E exp(2 t c) is the series of 0F1(; D / 2; t^2)."""
    term, total, k = 1.0, 1.0, 0
    while term > total * 1e-17:
        k += 1
        term *= t * t / (k * (k - 1 + d / 2))
        total += term
    return math.log(total) - 2 * t


def _check_t(t: float, most: float) -> None:
    if not 0 < finite_number(t, "t") <= most:
        raise InputError(f"expected t above 0 and at most {most:g}, got {t}: the paper uses 2")
