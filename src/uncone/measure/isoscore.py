"""How many dimensions are used evenly? The participation ratio and its functions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from uncone.arguments import finite_number, flag
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.influence import Influence, on_concentration
from uncone.measure.reading import moments_of, reading, spectral_warnings
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.rows.samples import as_numbers

_ROUNDINGS = 4.0  # by which |C|_F^2 / tr(C)^2 may be off; frames, whose value is known, came within 1.1
Score = Callable[[float], float]

PARTICIPATION_RATIO = MeasureDescription(
    "participation_ratio", range=(1.0, "D, debiased without an end"), better="higher", centered=True,
    says="How many dimensions share the variance evenly.",
    definition="tr(C)^2 / |C|_F^2 of the covariance: dimensions that share the variance evenly{debiased}",
    formula="""\
tr(C)^2 / |C|_F^2 = (sum lambda)^2 / sum lambda^2
debiased, by terms that are unbiased for Gaussian rows, n = N - 1:
    f = n^2 / ((n - 1)(n + 2)) (|C|_F^2 - tr(C)^2 / n)
    (tr(C)^2 - 2 f / n) / f""",
    isotropic="(D + 2/n) / (1 + (D + 1)/n), n = N - 1; debiased: D",
    reads_badly="there are few rows: the value is then about D / (1 + D/N) even for an isotropic cloud. One loud "
    "feature brings it near 1. The debiased value can exceed D by its sampling error. A warning shows where it exceeds "
    "D by more: such rows are more even than random rows.",
    source="The debiased terms are the usual terms for Gaussian rows.",
    variants=(("participation_ratio_debiased", "`debiased=True`: the sampling bias is removed"),),
)  # fmt: skip
ISOSCORE = MeasureDescription(
    "isoscore", range=(0.0, "1, debiased without an end"), better="higher", centered=True,
    says="The share of dimensions that the rows use evenly.",
    definition="(P - 1) / (D - 1), P the participation ratio (Rudman et al. 2022){debiased}",
    formula="(P - 1) / (D - 1),  P the participation ratio", isotropic="the same function of the isotropic P",
    reads_badly="the mean matters: IsoScore ignores the mean, so read it together with `mean_cosine`. With few rows "
    "IsoScore falls, even for an isotropic cloud.",
    source="Rudman et al. 2022: their algorithm of seven steps gives exactly this.",
    variants=(("isoscore_debiased", "`debiased=True`: of the debiased P"),),
)  # fmt: skip
ISOSCORE_STAR = MeasureDescription(
    "isoscore_star", range=(0.0, 1.0), better="higher", centered=True,
    says="IsoScore of a covariance that was shrunk towards an even covariance.",
    definition="IsoScore of (1 - z) C + z C0 with z = {zeta} (Rudman & Eickhoff 2024), C0 = (tr C / D) I unless given",
    formula="IsoScore of (1 - zeta) C + zeta C0,  zeta = 0.2 and C0 = (tr C / D) I unless given",
    isotropic="the same shrinkage of the isotropic cloud",
    reads_badly="values of different zeta or C0 are compared. The published examples use C0 = I: the score then "
    "changes when all rows are multiplied by a number.",
    source="Rudman & Eickhoff 2024.",
)  # fmt: skip


def participation_ratio(x: Any, *, debiased: bool = False, mask: Any = None) -> Measurement:
    """`PARTICIPATION_RATIO` of `x`, rows or moments.

    Undefined: fewer than two rows (three when debiased), rows that are all equal, or |C|_F^2 within
    rounding of its bias.
    >>> x = [[1.0, 0.0], [-1.0, 0.0]] * 3 + [[0.0, 1.0], [0.0, -1.0]]  # variances as 3 to 1
    >>> round(participation_ratio(x), 12)  # 4^2 / (3^2 + 1^2)
    1.6
    """
    m = moments_of(x, mask)
    return _of_ratio(PARTICIPATION_RATIO, m, debiased, lambda ratio: ratio, float(m.d))


def isoscore(x: Any, *, debiased: bool = False, mask: Any = None) -> Measurement:
    """`ISOSCORE` of `x`, rows or moments; undefined for one feature, or as `participation_ratio`.
    >>> x = [[1.0, 0.0], [-1.0, 0.0]] * 3 + [[0.0, 1.0], [0.0, -1.0]]  # a participation ratio of 1.6
    >>> round(isoscore(x), 12)
    0.6
    """
    m = _of_features(x, mask)
    return _of_ratio(ISOSCORE, m, debiased, lambda ratio: (ratio - 1) / (m.d - 1), 1.0)


def isoscore_star(x: Any, *, zeta: float = 0.2, target: Any = None, mask: Any = None) -> Measurement:
    """`ISOSCORE_STAR` of `x`, rows or moments, with shrinkage `zeta` in [0, 1] towards `target`, C0 (D, D).

    By default C0 is (tr C / D) I, which keeps the score independent of scale. Undefined: as `isoscore`.
    >>> x = [[1.0, 0.0], [-1.0, 0.0]] * 3 + [[0.0, 1.0], [0.0, -1.0]]  # variances as 3 to 1
    >>> round(isoscore_star(x), 6)  # as 0.7 to 0.3: 1 / (0.49 + 0.09) - 1
    0.724138
    """
    m = _of_features(x, mask)
    if not 0 <= finite_number(zeta, "zeta") <= 1:
        raise InputError(f"expected zeta in [0, 1], got {zeta}: 0 is no shrinkage")
    concentration, target = _concentration(m), None if target is None else as_numbers(target)
    influence: Influence | None = None  # none on the score towards another target
    if target is None:  # tr(C0) = tr(C), <C, C0> = |C0|^2 = tr(C)^2 / D
        ratio = 1 / ((1 - zeta) ** 2 * concentration + zeta * (2 - zeta) / m.d)
        slope = -(((1 - zeta) * ratio) ** 2) / (m.d - 1)
        influence = lambda: slope * on_concentration(m)  # noqa: E731
    elif target.shape != (m.d, m.d) or not np.isfinite(target).all():
        got = f"{target.shape}: give one row of finite numbers per feature"
        raise InputError(f"expected a target of shape {(m.d, m.d)}, got {got}")
    else:
        shrunk = (1 - zeta) * m.covariance() + zeta * target.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):  # a target of zeros leaves nothing
            ratio = float(1 / np.square(shrunk / shrunk.trace()).sum())
    # Of an isotropic cloud only |C - (t/D) I|^2 shrinks, by (1 - zeta)^2.
    inverse = (1 / _isotropic_ratio(m) - 1 / m.d) * (1 - zeta) ** 2 + 1 / m.d
    value, reference = (ratio - 1) / (m.d - 1), (1 / inverse - 1) / (m.d - 1)
    rest = {"asked": {"zeta": zeta}, "details": {"zeta": zeta}, "warnings": spectral_warnings(m, centered=True)}
    return reading(ISOSCORE_STAR, value, m, reference=reference, influence=influence, **rest)


def _of_features(x: Any, mask: Any) -> Moments:
    m = moments_of(x, mask)
    if m.d < 2:
        raise UndefinedMeasure("expected at least two features, got 1: isotropy needs two directions")
    return m


def _of_ratio(what: MeasureDescription, m: Moments, debiased: bool, score: Score, highest: float) -> Measurement:
    debiased = flag(debiased, "debiased")
    concentration, n, words = _concentration(m), m.effective_n - 1, ""
    ratio, reference = 1 / concentration, _isotropic_ratio(m)
    slope = -(score(ratio) - score(0.0)) * ratio
    warnings = spectral_warnings(m, centered=True, debiased=debiased)
    if debiased:
        words = ", sampling bias removed (unbiased for Gaussian rows)"
        ratio, reference = _debiased(m, concentration), float(m.d)
        # ratio + 2 / n is 1 / f, and f is linear in the concentration
        slope = -(score(1.0) - score(0.0)) * (ratio + 2 / n) ** 2 * n**2 / ((n - 1) * (n + 2))
        # Of isotropic rows 1 / P varies by 2 / n of itself.
        if ratio > m.d * (1 + 10 / n):
            above = f"the ratio {ratio:.3g} exceeds D = {m.d} by more than sampling error"
            even = "the rows are more even than random rows, whose bias is removed here"
            warnings += (f"{above}: {even}. Use the ratio that is not debiased",)
    ends = {"highest": None if debiased else highest, "reference": score(reference)}
    rest = {"suffix": "_debiased" * debiased, "asked": {"debiased": words}, "warnings": warnings}
    return reading(what, score(ratio), m, influence=lambda: slope * on_concentration(m), **ends, **rest)


def _debiased(m: Moments, concentration: float) -> float:
    n = m.effective_n - 1
    if n <= 1:
        raise UndefinedMeasure(f"expected at least three rows for the debiased ratio, got {m.n}: pass more")
    excess = concentration - 1 / n
    # The sum of squares about the shift, and its rounding, are so much larger than about the mean.
    about_mean = float(m.variances().sum()) * (1 - 1 / m.effective_n)
    cancelled = 1 + float(np.square(m.first / m.weight).sum() / about_mean)
    if excess <= _ROUNDINGS * m.epsilon * cancelled:
        bias = f"|C|_F^2 is {concentration:.3g} tr(C)^2, equal within rounding to its bias 1 / (N - 1) with N = {m.n}"
        raise UndefinedMeasure(f"{bias}: removing the bias leaves nothing; pass more rows")
    unbiased = n**2 / ((n - 1) * (n + 2)) * excess  # of |C|_F^2, in units of tr(C)^2
    return (1 - 2 * unbiased / n) / unbiased


def _isotropic_ratio(m: Moments) -> float:
    """E tr(C)^2 / E |C|_F^2 of an isotropic Gaussian cloud."""
    n = max(m.effective_n - 1, 1.0)  # under weights one row may have nearly all of it
    return (m.d + 2 / n) / (1 + (m.d + 1) / n)


def _concentration(m: Moments) -> float:
    """|C|_F^2 / tr(C)^2 of the covariance, of rows that differ."""
    if m.concentration() <= 0:
        raise UndefinedMeasure("expected rows that differ, got rows that are all equal: there is no variance")
    return m.concentration()
