"""Bars of loops and voids (H1 and beyond) with a gradient, from the pairs of gudhi, giotto-ph or ripser.

In a Vietoris-Rips filtration a class of dimension 1 or more is born when one edge enters and dies when
another does. Those packages find the two edges, without a gradient. The lengths of the two edges carry it:
d(death - birth) is the one edge's gradient less the other's, wherever no two edges are of one length.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.topology.barcode import check_distances, check_points
from uncone.topology.clouds import floats
from uncone.topology.lengths import differentiable, measured

Tensor = torch.Tensor
_SOURCES = 'pass what flag_persistence_generators() of gudhi or "gens" of giotto-ph gives'
_FOREIGN = 1e-4  # of a length: programs that work in float32 are nearer than this


def pair_lengths(points: Any, pairs: Any) -> Tensor:
    """The persistence (m,) of pairs, death less birth, of points (N, D), in the unit of the points: the
    length of the edge that ends a class less the length of the edge that begins it.

    Args:
        points: (N, D), floating point, a tensor on any device, an array or a list. Distances are Euclidean, in
            float32 at least.
        pairs: (m, 4) integers, two rows for the edge of birth and two for the edge of death, as made by
            `pairs_of_generators` or `pairs_of_intervals`. (m, 3), a vertex and an edge, are H0, born at 0.

    Returns:
        (m,), in the order of the pairs, at least 0. A length that rounding leaves below 0 is 0 with gradient
        0. An edge of length 0 has gradient 0.

    Raises:
        InputError: another shape or dtype, points that are not finite or too far apart for their dtype, rows
            that are not of the points, or a death before its birth: such pairs are of other points.
    """
    births, deaths = pair_ends(points, pairs)
    early = (deaths < births * (1 - _FOREIGN)).detach()
    if bool(early.any()):
        first = int(early.nonzero()[0])
        birth, death = (float(ends[first].detach()) for ends in (births, deaths))
        raise InputError(
            f"expected pairs of these points, got a death at {death:g} before its birth at {birth:g} in pair "
            f"{first}: find the pairs anew, for the Euclidean distances of these points"
        )
    return (deaths - births).clamp(min=0)


def pair_ends(points: Any, pairs: Any) -> tuple[Tensor, Tensor]:
    """The births (m,) and deaths (m,) of pairs, each with its gradient. Arguments as of `pair_lengths`."""
    points = floats(points)
    check_points(points)
    rows = _rows(pairs, len(points)).to(points.device)
    with torch.autocast(points.device.type, enabled=False):
        x = points if points.dtype == torch.float64 else points.float()
        edges = rows[:, 1:] if rows.shape[1] == 3 else rows.reshape(-1, 2)
        lengths = differentiable(x, edges, measured(x.detach(), edges))
        check_distances(lengths.detach(), edges)
        return (torch.zeros_like(lengths), lengths) if rows.shape[1] == 3 else (lengths[::2], lengths[1::2])


def pairs_of_generators(generators: Sequence[Any], dimension: int = 1) -> np.ndarray:
    """The pairs of one dimension from gudhi's `flag_persistence_generators()` or giotto-ph's
    `ripser_parallel(..., return_generators=True)["gens"]`.

    Both are (H0, [H1, H2, ...], essential H0, [essential H1, ...]). Classes that never die are left out,
    having no length: those of H0 are one for each piece that stays apart, those of H1 are there only where
    the filtration was cut off at some length.

    Returns:
        (m, 3) for dimension 0 and (m, 4) otherwise, int64; no rows where there is no class.

    Raises:
        InputError: something else than these generators, or a dimension below 0.
    """
    if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 0:
        raise InputError(f"expected dimension from 0 up, got {dimension!r}: 1 for loops")
    match generators:
        case (of_zero, (*of_more,), _, _):
            classes = [of_zero, *of_more]
        case _:
            raise InputError(
                "expected generators (H0, [H1, ...], essential H0, [essential H1, ...]), got "
                f"{type(generators).__name__}: {_SOURCES}"
            )
    given, width = _array(classes[dimension] if dimension < len(classes) else ()), 3 if dimension == 0 else 4
    if given.size == 0:
        return np.empty((0, width), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != width or given.dtype.kind not in "iu":
        raise InputError(
            f"expected (m, {width}) integers in dimension {dimension}, got {given.shape} {given.dtype}: "
            f"{_SOURCES}"
        )
    return given.astype(np.int64)


def pairs_of_intervals(points: Any, intervals: Any) -> np.ndarray:
    """The pairs of intervals without indices, as `ripser(x)["dgms"][1]`, by the edges of nearest length.

    Of edges as near the first by (smaller row, larger row) is taken: then the lengths are right, but their
    gradient belongs to one edge of several. Takes O(N^2) memory. Intervals that never end are left out.

    Args:
        points: (N, D), a tensor, array or list, the points that the intervals are of, with Euclidean distances.
        intervals: (m, 2), births and deaths of H1 or beyond.

    Returns:
        (m, 4) int64 for `pair_lengths`, in the order of the intervals that end.

    Raises:
        InputError: another shape, points that are not finite, or an end that is no distance to 0.01%.
    """
    points = floats(points)
    check_points(points)
    ends = _array(intervals)
    if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "fiu":
        raise InputError(
            f"expected intervals (m, 2), got {ends.shape} of {ends.dtype}: pass one diagram, as dgms[1]"
        )
    ends = ends[ends[:, 1] != np.inf].astype(np.float64)
    if len(ends) == 0:
        return np.empty((0, 4), dtype=np.int64)
    if len(points) < 2:
        raise InputError(f"expected at least two points, got {len(points)}: pass those of the intervals")
    x = points.detach().double().cpu()
    # By a power of two that keeps squares in range and equal distances equal.
    power = 500 - math.frexp(float(x.abs().amax()) if x.numel() else 0.0)[1]
    length = torch.nn.functional.pdist(torch.from_numpy(np.ldexp(x.numpy(), power))).numpy()
    order = np.argsort(length, kind="stable")
    ranked = length[order]
    with np.errstate(over="ignore"):
        wanted = np.ldexp(ends.ravel(), power)
    above = np.searchsorted(ranked, wanted).clip(0, len(ranked) - 1)
    # the first of equal ones
    above, below = (np.searchsorted(ranked, ranked[i]) for i in (above, (above - 1).clip(0)))
    place = np.where(np.abs(ranked[below] - wanted) <= np.abs(ranked[above] - wanted), below, above)
    off = ~(np.abs(ranked[place] - wanted) <= _FOREIGN * np.abs(wanted))  # NaN is off too
    if off.any():
        raise InputError(
            f"expected ends of intervals at distances between points, got {ends.ravel()[off][0]:g}, "
            "which none has: pass the points and Euclidean distances that the intervals were made of"
        )
    first, second = np.triu_indices(len(points), 1)
    edge = order[place]
    return np.stack([first[edge], second[edge]], axis=1).reshape(-1, 4).astype(np.int64)


def _array(numbers: Any) -> np.ndarray:
    if isinstance(numbers, Tensor):
        if numbers.is_meta:
            raise InputError(
                "expected pairs with values, got some on meta, which has none: compute them first"
            )
        return numbers.detach().cpu().numpy()
    try:
        return np.asarray(numbers)
    except ValueError:  # rows of several lengths
        raise InputError(
            "expected rows of one length, got several: pass the pairs or intervals of one dimension"
        ) from None


def _rows(pairs: Any, points: int) -> Tensor:
    array = _array(pairs)
    if array.size == 0 and array.ndim < 2:
        return torch.empty(0, 4, dtype=torch.int64)
    if array.ndim != 2 or array.shape[1] not in (3, 4) or array.dtype.kind not in "iu":
        raise InputError(
            f"expected integers (m, 4), rows of two edges, or (m, 3), got {array.shape} {array.dtype}: take "
            "those of pairs_of_generators or pairs_of_intervals; a class that never dies has no length"
        )
    if array.size and not (array.min() >= 0 and array.max() < points):
        row = array.max() if array.min() >= 0 else array.min()
        raise InputError(f"expected rows 0 to {points - 1} in pairs, got {row}: pass the points they are of")
    return torch.from_numpy(array.astype(np.int64))
