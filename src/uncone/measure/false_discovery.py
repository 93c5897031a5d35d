"""Which of many rows stand out? A null from the rows themselves, and a bound on the share of false finds."""

import math
from dataclasses import dataclass

import torch

from uncone.errors import InputError, UndefinedMeasure

Tensor = torch.Tensor
FEWEST_FOR_A_NULL = 100
"""Quantiles of fewer rows say too little about the spread of the others."""
_QUARTER, _TENTH = 0.6744897501960817, 1.2815515655446004  # of the standard normal, in standard deviations


@dataclass(frozen=True)
class Null:
    """The normal distribution that the readings of ordinary rows are taken to have."""

    center: float
    scale: float

    def upper_p(self, values: Tensor) -> Tensor:
        """The probability of a reading as high or higher, float64 of the shape of `values`, in (0, 1]."""
        z = (values.double() - self.center) / (self.scale * math.sqrt(2))
        p: Tensor = (torch.special.erfc(z) / 2).clamp_min(torch.finfo(torch.float64).tiny)
        return p


def robust_null(values: Tensor) -> Null:
    """A normal null for one-sided tests of large values, fitted to the bulk of the values themselves.

    The centre is the median. The scale is the largest of three: the distances from the median to both
    quartiles and to the lowest tenth, each in units of the normal distribution (an empirical null, after
    Efron 2004, by quantiles). Rows that stand out lie above, and move only the median and the upper quartile:
    while they are less than a quarter of the rows the null grows only wider and higher, and p-values larger.
    It assumes that the readings of ordinary rows have no heavier upper tail than this normal distribution.

    Args:
        values: finite readings (N,), most of them of ordinary rows.

    Raises:
        UndefinedMeasure: fewer than 100 values, or the lowest tenth, the median and both quartiles are the
            same (to 1e-12), which takes about two thirds of the values.
    """
    if len(values) < FEWEST_FOR_A_NULL:
        raise UndefinedMeasure(
            f"expected at least {FEWEST_FOR_A_NULL} rows for a null, got {len(values)}: pass more rows"
        )
    values = values.double()

    def at(q: float) -> float:
        return float(values.kthvalue(1 + round(q * (len(values) - 1))).values)

    center = at(0.5)
    scale = max((center - at(0.25)) / _QUARTER, (at(0.75) - center) / _QUARTER, (center - at(0.1)) / _TENTH)
    if not scale > 1e-12 * abs(center):
        raise UndefinedMeasure(
            "expected rows that differ, got the same reading for most of them: pass others"
        )
    return Null(center, scale)


def benjamini_hochberg(p: Tensor) -> Tensor:
    """The q-values: the least false-discovery rate at which each is a find (Benjamini & Hochberg 1995).

    q_(i) = min over j >= i of N p_(j) / j. Taking all rows with q <= a keeps the expected share of false
    finds at or below a, for independent p-values, and for ones with positive dependence (Benjamini &
    Yekutieli 2001).

    Returns:
        float64 (N,), in the order of `p`, each in [0, 1].

    Raises:
        InputError: a p-value outside [0, 1].

    >>> [round(q, 6) for q in benjamini_hochberg(torch.tensor([0.01, 0.5, 0.02], dtype=torch.float64)).tolist()]
    [0.03, 0.5, 0.03]
    """
    if len(p) == 0:
        return p.double()
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InputError(
            f"expected p-values from 0 to 1, got {float(p.min())} to {float(p.max())}: pass probabilities"
        )
    ordered, order = p.double().sort()
    ranks = torch.arange(1, len(p) + 1, dtype=torch.float64)
    least = (len(p) * ordered / ranks).flip(0).cummin(0).values.flip(0).clamp_max(1.0)
    return torch.empty_like(least).scatter_(0, order, least)
