"""How evenly do directions cover the sphere? Wang & Isola's uniformity, from second moments of unit rows or over all pairs."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.cosine import pair_weight
from uncone.measure.neighbours import Points, check_moments, sampled_rows
from uncone.measure.neighbours.pairs import sum_by_query, sum_over_pairs
from uncone.measure.reading import cosine_warnings, reading, rounding_warnings
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.records.wording import counted
from uncone.rows import as_rows
from uncone.threads import alone, on_one_thread

Tensor = torch.Tensor
MOST_T = 150.0
"""exp(-4 t) has to stay inside float64."""
_FLOAT32_T = 20.0
_ROUNDINGS = 8  # by which a mean cosine and the mean square of cosines may be off
_NEAR = 0.5
_Z = 1.959963984540054


@on_one_thread
def uniformity(m: Moments, *, t: float = 2.0) -> Measurement:
    """Uniformity ln E exp(-t |u - v|^2) over pairs of unit rows (Wang & Isola 2020, eq. 3), to second order in the cosine.

    |u - v|^2 = 2 - 2c, so the value is -2t + ln E exp(2tc); its cumulant expansion is -2t + 2t E[c] + 2 t^2 Var[c],
    with E[c] and E[c^2] exact over all pairs from the moments of unit rows (`Moments.of(rows, unit_second=True)`).
    The expansion is good where cosines are nearly normal: many features, none much louder than the others. Against the
    exact sum it is off by about 0.003 at D = 64 and mean cosine 0.26, but reads -1.94 for -2.62 on two opposite cones.

    Returns:
        A value in [-4 t, 2 t (t - 1) + 1/2], and mostly below 0: the expansion passes 0 where the cosines spread widely about a mean
        near 1 / (2 t). Lower is better; uniform directions have -2t + 2 t^2 / D.

    Raises:
        InputError: moments without unit second moments, or t not above 0. UndefinedMeasure: fewer than two directions, or one row with
        all the weight but for rounding.
    """
    _check_t(t, math.inf)
    if m.unit_second is None:
        raise InputError(
            "expected moments with unit second moments, got moments without: sum with Moments.of(rows, unit_second=True)"
        )
    pairs = pair_weight(m)
    mean = (float(m.unit_sums()[0] @ m.unit_sums()[0]) - m.unit_weight_square) / pairs
    square = (float(torch.linalg.vector_norm(m.unit_second)) ** 2 - m.unit_weight_square) / pairs
    variance = max(0.0, square - mean**2)
    value = -2 * t + 2 * t * mean + 2 * t**2 * variance
    return reading(
        "uniformity", value, m,
        range=(-4 * t, 2 * t * (t - 1) + 0.5 if t > 0.5 else 0.0), better="lower", reference=-2 * t + 2 * t**2 / m.d, centered=False,
        details={"t": t, "cosine_mean": mean, "cosine_variance": variance},
        warnings=cosine_warnings(m) + rounding_warnings(value, m, _ROUNDINGS * t * (1 + t) * m.epsilon),
        definition=f"ln E exp(-{t:g} |u - v|^2) over pairs of unit rows (Wang & Isola 2020), to second order in the cosine",
    )  # fmt: skip


def uniformity_exact(
    rows: Any,
    moments: Moments | None = None,
    *,
    t: float = 2.0,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """Uniformity ln E exp(-t |u - v|^2) over all pairs of different unit rows (Wang & Isola 2020, eq. 3), summed pair by pair.

    `uniformity` takes the same from moments, to second order in the cosine; this is right where cosines are far from
    normal, and costs N^2 D multiply-adds over two. The published loss leaves normalising to its caller; here rows are.

    Args:
        rows: Rows, or a tensor or array (N, D).
        moments: of the same rows, first-order sums suffice; computed when not given.
        t: as in the paper, above 0 and at most 150.
        sample: how many rows to pair with all others, drawn with `seed`; by default all up to 65,536 rows, else 8,192.
        progress: called with the number of rows' worth of work done, out of N.

    Returns:
        A value in [-4 t, 0]; lower is better; uniform directions have ln 0F1(; D / 2; t^2) - 2t, about -2t + 2 t^2 / D. With a sample, `interval` is the
        95 % interval for all pairs, from the spread of the sampled rows' means.

    Raises:
        InputError: t out of range, rows that are not finite. UndefinedMeasure: fewer than two rows with a direction.

    Reads badly when a few tight groups of rows hold the sum: near pairs weigh exp(4 t) times as much as opposite ones.
    """
    _check_t(t, MOST_T)
    rows = as_rows(rows)
    m = Moments.of(rows, second=False) if moments is None else moments
    check_moments(m, rows)
    n = m.n - m.zero_rows
    if n < 2:
        raise UndefinedMeasure(
            f"expected at least two rows with a direction, got {n} of {m.n}: pass more rows"
        )
    queries = sampled_rows(n, sample, seed)
    first = m.unit_sums()[0] / m.unit_weight
    near = (
        2 * t * (1 - float(first @ first)) < _NEAR
    )  # exponents are so small that exp - 1 keeps the digits that exp would round off
    log = math.log1p if near else math.log
    means = alone(lambda: _means(Points(rows, m, metric="cosine"), t, near, queries, rows.shape[0], progress))
    value, deviation = alone(lambda: (float(means.mean()), float(means.std()) if len(means) > 1 else 0.0))
    sampled = (
        (f"sampled: {counted(len(queries), 'row was', 'rows were')} paired with all {n:,}",)
        if len(queries) < n
        else ()
    )
    found = reading(
        "uniformity_exact", _within(log(value), t), m,
        range=(-4 * t, 0.0), better="lower", reference=_uniform(t, m.d), centered=False,
        details={"t": t, "queries": len(queries), "searched": n},
        warnings=(*cosine_warnings(m), *sampled),
        definition=f"ln E exp(-{t:g} |u - v|^2) over all pairs of different unit rows (Wang & Isola 2020)",
    )  # fmt: skip
    if len(queries) == n or len(queries) < 2:
        return found
    error = _Z * deviation * math.sqrt((1 - len(queries) / n) / len(queries))
    if error >= value + near:
        return found
    return replace(found, interval=(_within(log(value - error), t), _within(log(value + error), t)))


def _within(value: float, t: float) -> float:
    """The value, no further out than float32 sums of exponents round it."""
    return min(0.0, max(-4 * t, value))


def _uniform(t: float, d: int) -> float:
    """ln E exp(-t |u - v|^2) of uniform directions: E exp(2 t c) is the series of 0F1(; D / 2; t^2), all of its terms positive."""
    term, total, k = 1.0, 1.0, 0
    while term > total * 1e-17:
        k += 1
        term *= t * t / (k * (k - 1 + d / 2))
        total += term
    return math.log(total) - 2 * t


def _means(
    points: Points, t: float, near: bool, queries: Tensor, n: int, progress: Callable[[int], None] | None
) -> Tensor:
    """The mean of exp(-t |u - v|^2), less 1 where all are `near`, over all pairs, (1,), or the pairs of each query, (Q,), in float64."""
    tick = (lambda share: None) if progress is None else (lambda share: progress(int(n * share)))
    kernel = partial(_kernel, t=t, near=near)
    if len(queries) < points.n:
        return sum_by_query(points, queries, kernel, tick) / (points.n - 1)
    mean = sum_over_pairs(points, kernel, tick) * 2 / (points.n * (points.n - 1))
    return torch.tensor([mean], dtype=torch.float64)


def _kernel(scores: Tensor, *, t: float, near: bool) -> Tensor:
    """exp(-t |u - v|^2), less 1 if `near`, from -|u - v|^2 / 2, which rounding may have left above 0; in place where float32 holds it."""
    scores = scores.clamp_max_(0.0)
    exponents = (scores if t <= _FLOAT32_T else scores.double()).mul_(2 * t)
    return exponents.expm1_() if near else exponents.exp_()


def _check_t(t: float, most: float) -> None:
    if not 0 < t <= most:
        raise InputError(
            f"expected t above 0{'' if most == math.inf else f' and at most {most:g}'}, got {t}: the paper uses 2"
        )
