"""How many dimensions are used evenly? The participation ratio and the scores that are functions of it."""

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure import isotropic
from uncone.measure.reading import reading, spectral_warnings
from uncone.moments import Moments
from uncone.records import Measurement

_ROUNDINGS = 4.0
"""Of the products: how far |C|_F^2 / tr(C)^2 may be off. Frames of 3 to 1,000 rows, whose value is known, came within 1.1."""
_SIGMAS = 5.0


def participation_ratio(m: Moments, *, debiased: bool = False) -> Measurement:
    """The number of dimensions that share the variance evenly: tr(C)^2 / |C|_F^2, C the covariance.

    With `debiased`, both terms are replaced by estimates that are unbiased for Gaussian rows (n = N - 1):
    f = n^2 / ((n - 1)(n + 2)) (|C|_F^2 - tr(C)^2 / n) and tr(C)^2 - 2 f / n. Without it, even an isotropic cloud
    reads about D / (1 + D/N).

    Returns:
        A value in [1, D]; higher is better. The debiased one has no upper end: it passes D by its sampling error.

    Raises:
        UndefinedMeasure: fewer than two rows (three when debiased), or rows that are all equal. Debiased also where |C|_F^2
            is no more than its bias, within rounding.
    """
    ratio, reference = _ratio(m, debiased=debiased)
    return reading(
        "participation_ratio" + _suffix(debiased), ratio, m,
        range=(1.0, None if debiased else float(m.d)), better="higher", reference=reference, centered=True,
        warnings=_warnings(m, ratio, debiased),
        definition="tr(C)^2 / |C|_F^2 of the covariance: dimensions that share the variance evenly" + _debiased_words(debiased),
    )  # fmt: skip


def isoscore(m: Moments, *, debiased: bool = False) -> Measurement:
    """IsoScore (Rudman et al. 2022), the share of dimensions used evenly.

    The published seven steps reduce exactly to (P - 1) / (D - 1) with P the participation ratio, so no eigenvalue is
    needed. `debiased` removes the sampling bias 1 / (1 + D/N); see `participation_ratio`.

    Returns:
        A value in [0, 1]; higher is better. The debiased one has no upper end: it passes 1 by its sampling error. It does
        not see the mean: read it beside `mean_cosine`.

    Raises:
        UndefinedMeasure: one feature, or as `participation_ratio`.
    """
    if m.d < 2:
        raise UndefinedMeasure(
            "expected at least two features, got 1: isotropy needs more than one direction"
        )
    ratio, reference = _ratio(m, debiased=debiased)
    return reading(
        "isoscore" + _suffix(debiased), (ratio - 1) / (m.d - 1), m,
        range=(0.0, None if debiased else 1.0), better="higher", reference=(reference - 1) / (m.d - 1), centered=True,
        warnings=_warnings(m, ratio, debiased),
        definition="(P - 1) / (D - 1), P the participation ratio (Rudman et al. 2022)" + _debiased_words(debiased),
    )  # fmt: skip


def isoscore_star(m: Moments, *, zeta: float = 0.2, target: torch.Tensor | None = None) -> Measurement:
    """IsoScore* (Rudman & Eickhoff 2024): IsoScore of the shrunk covariance (1 - zeta) C + zeta C0.

    Args:
        m: moments.
        zeta: shrinkage in [0, 1].
        target: C0, (D, D). By default (tr C / D) times the identity, which keeps the score free of scale; the published
            examples use the identity itself, and then the score changes when the rows are multiplied by a number.

    Raises:
        InputError: zeta outside [0, 1] or a target of another shape.
        UndefinedMeasure: as `isoscore`.
    """
    if not 0 <= zeta <= 1:
        raise InputError(f"expected zeta in [0, 1], got {zeta}: 0 is no shrinkage")
    if m.d < 2:
        raise UndefinedMeasure(
            "expected at least two features, got 1: isotropy needs more than one direction"
        )
    if target is None:  # tr(C0) = tr(C), <C, C0> = |C0|^2 = tr(C)^2 / D
        ratio = 1 / ((1 - zeta) ** 2 * _concentration(m) + zeta * (2 - zeta) / m.d)
    elif target.shape != (m.d, m.d):
        raise InputError(
            f"expected a target of shape {(m.d, m.d)}, got {tuple(target.shape)}: give one row a feature"
        )
    else:
        _concentration(m)
        shrunk = torch.lerp(m.covariance(), target.to(m.first), zeta)
        ratio = float(shrunk.diagonal().sum() / torch.linalg.vector_norm(shrunk)) ** 2
    # Of an isotropic cloud only |C - (t/D) I|^2 shrinks, by (1 - zeta)^2.
    inverse = (1 / isotropic.participation_ratio(m.effective_n - 1, m.d) - 1 / m.d) * (
        1 - zeta
    ) ** 2 + 1 / m.d
    return reading(
        "isoscore_star", (ratio - 1) / (m.d - 1), m,
        range=(0.0, 1.0), better="higher", reference=(1 / inverse - 1) / (m.d - 1), centered=True, details={"zeta": zeta},
        warnings=spectral_warnings(m, centered=True),
        definition=f"IsoScore of (1 - z) C + z C0 with z = {zeta} (Rudman & Eickhoff 2024), C0 = (tr C / D) I unless given",
    )  # fmt: skip


def _ratio(m: Moments, *, debiased: bool) -> tuple[float, float]:
    """The participation ratio and what an isotropic cloud has."""
    found, n = _concentration(m), m.effective_n - 1
    if not debiased:
        return 1 / found, isotropic.participation_ratio(n, m.d)
    if n <= 1:
        raise UndefinedMeasure(
            f"expected at least three rows for the debiased ratio, got {m.n}: pass more rows"
        )
    excess = found - 1 / n
    if excess <= _ROUNDINGS * m.epsilon * _cancelled(m):
        raise UndefinedMeasure(
            f"|C|_F^2 is {found:.3g} tr(C)^2, within rounding its bias 1 / (N - 1) with N = {m.n}: the rows are as long and as far "
            "apart as rows in endless dimensions, and nothing is left when the bias is removed; pass more rows"
        )
    unbiased = n**2 / ((n - 1) * (n + 2)) * excess  # of |C|_F^2, in units of tr(C)^2
    return (1 - 2 * unbiased / n) / unbiased, float(m.d)


def _cancelled(m: Moments) -> float:
    """How many times larger the sum of squares about the shift is than about the mean: so much larger is the rounding."""
    about_mean = m.variances().sum() * (1 - 1 / m.effective_n)
    return 1 + float((m.first / m.weight).square().sum() / about_mean)


def _warnings(m: Moments, ratio: float, debiased: bool) -> tuple[str, ...]:
    """The spectrum's, and whether a debiased ratio is higher than sampling error explains."""
    found = spectral_warnings(m, centered=True, debiased=debiased)
    if debiased and ratio > m.d * (
        1 + _SIGMAS * 2 / (m.effective_n - 1)
    ):  # of isotropic rows 1 / P varies by 2 / n of itself
        found += (
            f"the ratio is {ratio:.3g}, above D = {m.d} by more than sampling error: the rows are more even than random rows, "
            "whose bias is removed here; read the ratio that is not debiased",
        )
    return found


def _concentration(m: Moments) -> float:
    """|C|_F^2 / tr(C)^2 of the covariance, of rows that differ."""
    found = m.concentration()
    if found <= 0:
        raise UndefinedMeasure("expected rows that differ, got rows that are all equal: there is no variance")
    return found


def _suffix(debiased: bool) -> str:
    return "_debiased" if debiased else ""


def _debiased_words(debiased: bool) -> str:
    return ", sampling bias removed (unbiased for Gaussian rows)" if debiased else ""
