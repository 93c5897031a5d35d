"""A computed number as a `Measurement`, with the warnings that every measure shares."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uncone.arguments import shown
from uncone.errors import InputError, UndefinedMeasure, first_line
from uncone.measure.influence import Influence, NoIntervalError, interval_of
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import counted, percent, plural
from uncone.rows import Array, Rows, as_array, as_samples

FEW_ROWS = 5  # rows per feature, below which noise spreads an isotropic spectrum by more than 2 : 1 on each side
DOMINANT_SHARE = 0.2  # with so much of all variance in one feature, cosines and spectra describe it more than the cloud
TINY_NORM = 1e-4  # of the mean norm: the direction of shorter rows means little, but counts as much as any other
_OPEN = (-math.inf, math.inf)
ROUNDINGS = 64.0  # by which a value may exceed an end of its range and become that end
ROUNDED = 1e-5  # a relative error from which on a warning gives the number of digits left


def reading(description: MeasureDescription, value: float, m: Moments, **rest: Any) -> Measurement:
    """The `Measurement` of `value`, with `rest` as for `MeasureDescription.measured`. A value that rounding moved past
    an end of the range becomes the end.

    With an `influence` on `value`, or on its `logarithm` where given, the reading has an interval inside the range,
    from a standard error of `least_error` or more. Where there is no interval, `details` has the reason in `no_interval`.
    """
    influence: Influence | None = rest.pop("influence", None)
    least, logarithm = rest.pop("least_error", 0.0), rest.pop("logarithm", None)
    measured = description.measured(value, n=m.n, d=m.d, **rest)
    if not math.isfinite(value):
        got = f"expected a finite {measured.name}, got {value}"
        raise UndefinedMeasure(f"{got}: the rows have no spread or are out of range")
    for end, past in zip(measured.range, (-1.0, 1.0), strict=True):
        if end is not None and 0 < (value - end) * past <= ROUNDINGS * m.epsilon * max(1.0, abs(end)):
            value = end
    reference = measured.reference
    measured = replace(measured, value=value, reference=reference if math.isfinite(reference or 0.0) else None)
    if influence is None or m.drawn is None:
        return measured
    try:
        of = value if logarithm is None else logarithm
        ends = interval_of(of, influence, m, least, log=logarithm is not None)
    except NoIntervalError as reason:
        return replace(measured, details={**measured.details, "no_interval": str(reason)})
    first, last = (given if given is not None else inf for given, inf in zip(measured.range, _OPEN, strict=True))
    return replace(measured, interval=(max(first, min(ends[0], value)), min(last, max(ends[1], value))))


def read(name: str, function: Callable[..., Measurement], *of: Any) -> Measurement:
    """`function(*of)`, where `of` ends with the moments. Where the measure is undefined, the record has the reason."""
    try:
        return function(*of)
    except UndefinedMeasure as error:
        return Measurement(name, None, reason=str(error), n=of[-1].n, d=of[-1].d)


def moments_of(x: Any, mask: Any = None, **sums: Any) -> Moments:
    """The moments that a measure reads: `x` itself if it is `Moments`, otherwise the moments of its rows.

    Args:
        x: Moments; or Rows, or an array, tensor, list or DataFrame (N, D) of numbers; with a mask also (B, T, D).
        mask: (B, T), or (N,), bool or 0 and 1: True = keep. Three axes without a mask are refused: no number
            distinguishes padding from a state.
        sums: as for `Moments.of`.
    Raises InputError: anything else, rows that are not finite, or a mask together with moments.
    >>> states = np.array([[[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [9.0, 9.0]]])  # the last one is padding
    >>> moments_of(states, mask=[[1, 1], [1, 0]]).n
    3
    """
    if not isinstance(x, Moments):
        return Moments.of(as_samples(x, mask), **sums)
    if mask is not None:
        raise InputError("expected no mask with moments, got a mask: pass the rows, or moments of the rows to keep")
    return x


def with_moments(rows: Any, moments: Moments | None, mask: Any = None, **sums: Any) -> tuple[Rows, Moments]:
    """The rows that `mask` keeps, and their unweighted moments, as given or computed with `sums`."""
    rows = as_samples(rows, mask)
    m = Moments.of(rows, **sums) if moments is None else moments
    if not isinstance(m, Moments):
        raise InputError(f"expected moments, got {shown(moments)}: sum these rows with Moments.of")
    if m.n != rows.shape[0] or m.weight != m.n:
        got = f"moments of {counted(m.n, 'row')} of weight {m.weight:g}: sum these rows"
        raise InputError(f"expected unweighted moments of the same {counted(rows.shape[0], 'row')}, got {got}")
    if m.d != rows.shape[1]:
        raise InputError(f"expected moments of {counted(rows.shape[1], 'feature')}, got {m.d} features: sum these rows")
    return rows, m


def flat_array(given: Any) -> Array:
    try:
        return np.asarray(as_array(given))
    except (TypeError, ValueError) as error:
        got = f"{shown(given)} ({first_line(error)}): pass a flat list"
        raise InputError(f"expected a number for each row, got {got}") from error


def counts_for(counts: Any, n: int) -> Array | None:
    """How often each of `n` tokens occurs, (n,), checked."""
    if counts is None:
        return None
    given = flat_array(counts)
    if given.dtype.kind not in "iuf" or given.shape != (n,):
        got = shown(counts) if given.shape == (n,) else given.shape
        raise InputError(f"expected counts of shape ({n},), got {got}: give one number per row")
    if n and not 0 <= float(given.min()) <= float(given.max()) < math.inf:
        raise InputError(f"expected finite counts from 0 up, got {given.min()} to {given.max()}: count tokens by id")
    return given


def spectral_warnings(m: Moments, *, centered: bool, debiased: bool = False) -> tuple[str, ...]:
    warnings, least = [], FEW_ROWS * m.d
    if m.effective_n < least and not debiased:
        few = f"N = {m.effective_n:.0f} is below {FEW_ROWS} D = {least}: sampling noise shapes the spectrum"
        warnings.append(f"{few}, so compare only with the isotropic reference")
    (share, dimension), total = largest_share(m, centered=centered), "variance" if centered else "second moment"
    if share > max(DOMINANT_SHARE, FEW_ROWS / m.d):
        carried = f"dimension {dimension} alone carries {percent(share)} of the {total}"
        warnings.append(f"{carried}: the value mostly describes that dimension")
    return tuple(warnings)


def cosine_warnings(m: Moments) -> tuple[str, ...]:
    warnings, mean = [], m.mean_norm()
    if m.zero_rows:
        rows = plural(m.zero_rows, "row is", "rows are")
        warnings.append(f"{m.zero_rows} {rows} all zero and left out of cosines, because zero rows have no direction")
    if 0 < m.norm_min < TINY_NORM * mean:
        tiny = f"tiny norms: the shortest row has length {m.norm_min:.2g}, and the mean is {mean:.2g}"
        warnings.append(f"{tiny}. Its direction counts as much as any other")
    return tuple(warnings)


def rounding_warnings(value: float, m: Moments, error: float) -> tuple[str, ...]:
    """How many digits are left where rounding may have moved `value` by `error`, if fewer than five."""
    if error <= ROUNDED * abs(value):
        return ()
    digits = max(0, math.floor(-math.log10(error / abs(value)))) if value else 0
    left = f"about {counted(digits, 'digit is', 'digits are')}" if digits else "no digit is"
    return (f"{left} left after rounding" + ": pass float64 rows for more" * (m.epsilon > 2.0**-52),)


def largest_share(m: Moments, *, centered: bool) -> tuple[float, int]:
    """The largest share of one feature in the variance (or raw second moment), and which feature."""
    diagonal = m.variances(centered=centered)
    total, dimension = float(diagonal.sum()), int(diagonal.argmax())
    return (float(diagonal[dimension] / total), dimension) if total > 0 else (0.0, 0)
