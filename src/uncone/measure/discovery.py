"""A normal null fitted to the bulk of readings, and q-values: which rows stand out at a false-discovery rate."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError, UndefinedMeasure
from uncone.rows import Array, as_array
from uncone.rows.samples import as_floats

FEWEST_FOR_A_NULL = 100  # quantiles of fewer rows are too uncertain
_QUARTER, _TENTH = 0.6744897501960817, 1.2815515655446004  # of the standard normal, in standard deviations


def q_if_tested(p: Array, tested: Array) -> Array:
    """The q-value of each p-value if that row alone were tested with the others."""
    ordered, n = np.sort(tested), len(tested)
    # The q-value at the p-value of each other row, then the least q-value from there on.
    later = ((n + 1) * ordered / np.arange(2, n + 2))[::-1]
    least = np.append(np.minimum.accumulate(later)[::-1], 1.0)
    own = (n + 1) * p / (np.searchsorted(ordered, p, side="right") + 1)
    return np.minimum(own, least[np.searchsorted(ordered, p)]).clip(max=1.0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Null:
    """The normal distribution that we assume for the readings of ordinary rows."""

    center: float
    scale: float

    def upper_p(self, values: Any) -> Array:
        """The probability of a reading as high or higher, in (0, 1]."""
        z = (np.asarray(as_array(values), np.float64) - self.center) / (self.scale * math.sqrt(2))
        p = np.fromiter(map(math.erfc, z.ravel().tolist()), np.float64, z.size).reshape(z.shape)
        return np.maximum(p / 2, np.finfo(np.float64).tiny)


def robust_null(values: Any) -> Null:
    """A normal null for one-sided tests of large values, fitted to the bulk of the finite readings `values` (N,).

    The centre is the median. The scale is the largest distance from the median to either quartile or to the lowest
    tenth, in units of the normal distribution (after Efron 2004, by quantiles). As long as less than a quarter of all
    rows stand out, they only make the null wider and higher, and p-values larger. We assume that ordinary rows have no
    heavier tail. Undefined: fewer than 100 values, or about two thirds of them the same.
    """
    values = as_floats(values, "values")
    if values.ndim != 1 or not np.isfinite(values).all():
        got = f"shape {values.shape} or some that are not finite: pass one number per row"
        raise InputError(f"expected finite readings (N,), got {got}")
    if len(values) < FEWEST_FOR_A_NULL:
        got = f"{len(values)}: pass more rows"
        raise UndefinedMeasure(f"expected at least {FEWEST_FOR_A_NULL} rows for a null, got {got}")
    tenth, lower, center, upper = np.quantile(values, (0.1, 0.25, 0.5, 0.75), method="nearest").tolist()
    scale = max((center - lower) / _QUARTER, (upper - center) / _QUARTER, (center - tenth) / _TENTH)
    if not scale > 1e-12 * abs(center):
        raise UndefinedMeasure("expected rows that differ, got the same reading for most of them: pass other rows")
    return Null(center, scale)


def benjamini_hochberg(p: Any) -> Array:
    """The q-values: the lowest false-discovery rate at which each p-value is a find (Benjamini & Hochberg 1995).

    q_(i) = min over j >= i of N p_(j) / j, float64 (N,), in the order of `p`. The p-values must be independent or
    positively dependent.
    >>> [round(q, 6) for q in benjamini_hochberg([0.01, 0.5, 0.02]).tolist()]
    [0.03, 0.5, 0.03]
    """
    p = as_floats(p, "p")
    if p.ndim != 1:
        raise InputError(f"expected p-values of shape (N,), got shape {p.shape}: pass a flat list")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"expected p-values from 0 to 1, got {p.min()} to {p.max()}: pass probabilities")
    falling, q = np.argsort(p)[::-1], np.empty_like(p)
    q[falling] = np.minimum.accumulate(len(p) * p[falling] / np.arange(len(p), 0, -1)).clip(max=1.0)
    return q  # type: ignore[no-any-return]


def support_line(p: Any, rate: float) -> float:
    """The largest p-value that is still a find, where the least certain find is false with a chance of at most `rate`,
    for independent p-values (N,); -1 without finds.

    The k smallest p-values are finds, with k where rate k / N - p_(k) is largest (Soloff, Xiang & Fithian 2024).
    `benjamini_hochberg` bounds the mean over all finds, so that certain finds make room for doubtful finds at the edge.
    >>> support_line([0.001, 0.002, 0.2, 0.9], 0.2)  # 0.2 k / N - p: 0.049, 0.098, -0.05, -0.7
    0.002
    """
    ordered = np.sort(as_floats(p, "p"))
    gain = rate * np.arange(1, len(ordered) + 1) / max(1, len(ordered)) - ordered
    return float(ordered[gain.argmax()]) if len(gain) and gain.max() > 0 else -1.0
