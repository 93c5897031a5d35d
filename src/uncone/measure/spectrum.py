"""How is the variance spread over directions? Ranks, entropies and shares read from the eigenvalues."""

import math
from collections.abc import Callable

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.isotropic import marchenko_pastur
from uncone.measure.reading import reading, rounding_warnings, spectral_warnings
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.records.wording import counted

Tensor = torch.Tensor


def effective_rank(m: Moments, *, centered: bool = True) -> Measurement:
    """The effective rank, exp(H(p)) with p = s / sum s over singular values s (Roy & Vetterli 2007).

    The paper takes the matrix as it is (`centered=False`); centred, the common direction does not count as a dimension.

    Returns:
        A value in [1, min(N, D)]; higher is better.

    Raises:
        UndefinedMeasure: no variance.
    """

    def rank(values: Tensor) -> float:
        return math.exp(_entropy(values.sqrt()))

    return _spectral(
        "effective_rank" + ("" if centered else "_raw"), rank, m, centered, range=(1.0, float(min(m.n, m.d))), better="higher",
        definition="exp of the entropy of the normalised singular values (Roy & Vetterli 2007)",
    )  # fmt: skip


def rankme(m: Moments) -> Measurement:
    """RankMe (Garrido et al. 2023, eq. 3): exp(-sum p ln p) with p = s / sum s + 1e-7 over min(N, D) terms, uncentred.

    Returns:
        A value from 1 to K = min(N, D), but for what the K terms of 1e-7 add; `range` has the ends with them. Higher is
        better. It grows with N (the paper takes 25,600 rows) and with D.

    Raises:
        UndefinedMeasure: rows that are all zero.
    """
    terms = min(m.n, m.d)

    def rank(values: Tensor) -> float:
        s = values[:terms].sqrt()
        p = s / s.sum() + 1e-7
        return math.exp(float(-(p * p.log()).sum()))

    one, all_alike = torch.eye(1, terms, dtype=torch.float64)[0], torch.ones(terms, dtype=torch.float64)
    return _spectral(
        "rankme", rank, m, False, range=(rank(one), rank(all_alike)), better="higher",
        definition="exp of the entropy of the normalised singular values plus 1e-7 (Garrido et al. 2023); depends on N",
    )  # fmt: skip


def stable_rank(m: Moments, *, centered: bool = False) -> Measurement:
    """The stable rank, |W|_F^2 / s_1^2: near 1 when one direction, raw most often the mean, carries the matrix.

    Returns:
        A value in [1, min(N, D)]; higher is better.

    Raises:
        UndefinedMeasure: rows that are all zero (all equal when centred).
    """
    return _spectral(
        "stable_rank" + ("_centered" if centered else ""), lambda values: float(values.sum() / values[0]), m, centered,
        range=(1.0, float(min(m.n, m.d))), better="higher",
        definition="sum of squared singular values divided by the largest",
    )  # fmt: skip


def anisotropy(m: Moments, k: int = 1, *, centered: bool = True) -> Measurement:
    """The k-th anisotropy, s_k^2 / sum s^2: the share of the k-th direction (k = 1 centred: Razzhigaev et al. 2024).

    Args:
        m: moments.
        k: which direction, from 1 to D.
        centered: whether the mean row is subtracted. Raw, the first direction of a drifted cloud is its mean.

    Returns:
        A value in [0, 1/k]; lower is better for k = 1; an isotropic cloud has about 1/D.
    """
    if not 1 <= k <= m.d:
        raise InputError(f"expected k from 1 to D = {m.d}, got {k}: directions are counted from the largest")
    return _spectral(
        f"anisotropy_{k}" + ("" if centered else "_raw"), lambda values: float(values[k - 1] / values.sum()), m, centered, range=(0.0, 1.0 / k), better="lower",
        definition=f"squared singular value {k} divided by the sum of all (Razzhigaev et al. 2024)",
    )  # fmt: skip


def singular_entropy(m: Moments, *, centered: bool = True) -> Measurement:
    """The entropy in nats of p = s^2 / sum s^2, with s the singular values.

    Its exponential is another "effective rank" found in the literature: over squared singular values, where Roy &
    Vetterli take the singular values themselves and get a larger number.

    Returns:
        A value in [0, ln D]; higher is better.

    Raises:
        UndefinedMeasure: rows that are all equal (all zero when raw).
    """
    return _spectral(
        "singular_entropy" + ("" if centered else "_raw"), _entropy, m, centered, range=(0.0, math.log(m.d)), better="higher",
        definition="entropy in nats of the normalised squared singular values",
    )  # fmt: skip


def condition_number(m: Moments, *, centered: bool = False) -> Measurement:
    """The condition number s_1 / s_D of the N x D matrix. From 1 up; lower is better.

    Raises:
        UndefinedMeasure: the matrix has not full column rank, to the precision of the products it was summed with.
    """
    found = m.spectrum(centered=centered)
    rounding = m.spectral_rounding(centered=centered)
    if m.n < m.d or float(found[-1]) <= rounding:
        raise UndefinedMeasure(
            f"the smallest of {m.d} squared singular values is within the rounding of the largest: "
            "the rows do not span all dimensions, or not to this precision; pass float64 rows for more digits"
        )
    return _spectral(
        "condition_number" + ("_centered" if centered else ""), lambda values: math.sqrt(float(values[0] / values[-1])), m, centered,
        range=(1.0, None), better="lower",
        definition="largest singular value divided by the smallest",
    )  # fmt: skip


def _spectral(
    name: str,
    function: Callable[[Tensor], float],
    m: Moments,
    centered: bool,
    *,
    range: tuple[float | None, float | None],
    better: str,
    definition: str,
) -> Measurement:
    """The reading of `function` on the spectrum of `m`, with the same function of an isotropic spectrum as reference."""
    values = m.spectrum(centered=centered)
    if float(values.sum()) <= 0:
        raise UndefinedMeasure(
            f"{'rows that are all equal' if centered else 'rows that are all zero'} have no spectrum: pass rows that differ"
        )
    rounding = m.spectral_rounding(centered=centered)
    resolved, most = values > rounding, min(m.n - int(centered), m.d)
    resolved[most:] = False  # so few rows span no more directions: the others are rounding, however large
    dropped = most - int(resolved.sum())
    said = f"{counted(dropped, 'squared singular value')} within the rounding of the largest count as 0"
    values = torch.where(resolved, values, 0.0)
    value = function(values)
    moved = values.clone()
    moved[:most] += rounding
    warnings = spectral_warnings(m, centered=centered) + ((said,) if dropped else ())
    warnings += rounding_warnings(value, m, abs(function(moved) - value))
    isotropic = marchenko_pastur(m.effective_n - int(centered), m.d)
    try:
        reference = function(isotropic)
    except (ZeroDivisionError, ValueError):
        reference = math.nan  # an isotropic cloud of so few rows has no such number
    return reading(
        name, value, m,
        range=range, better=better, reference=reference, centered=centered,  # type: ignore[arg-type]
        definition=f"{definition}, {'mean row subtracted' if centered else 'uncentred'}",
        warnings=warnings,
    )  # fmt: skip


def _entropy(weights: Tensor) -> float:
    p = weights / weights.sum()
    return float(-torch.xlogy(p, p).sum())
