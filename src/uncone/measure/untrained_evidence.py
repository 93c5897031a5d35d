"""Kinds of evidence that no text has trained a row, each with a p-value against its own null."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from uncone.errors import UndefinedMeasure
from uncone.measure.discovery import robust_null
from uncone.measure.norms import length_floor
from uncone.measure.odd_rows import hash_factors, hash_rows
from uncone.records.tokens import Kind
from uncone.rows import GRID, Array, Rows

Indicator = Literal["cosine", "norm"]
KINDS: dict[Kind, Indicator] = {"place": "cosine", "length": "norm", "decay": "norm", "equality": "cosine"}
"""The kinds of evidence, with the indicator that each uses."""
_MOST_COSINE = 1 - 1e-12
_AGREE = 1e-6  # of the largest: how far apart rounding may move products of equal rows
_ROUNDOFF = {"float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""By dtype, the share of a number that storing it rounds off; quantised rows count as float32."""


@dataclass(frozen=True)
class UntrainedAxes:
    rows: Rows
    counts: Array | None
    axes: Array  # (D, 3): the mean row, the sum of the centred reference rows, the first principal component (or 0)
    mean_norm: float
    expected: Array  # the rows known to be unused
    special: Array  # the rows of special tokens
    reference: Array  # the reference rows, which the sum adds up
    why: str
    unsure: bool = False  # whether the reference rows are of special tokens that no counts show to be unused


@dataclass(frozen=True)
class Evidence:
    """By row, float64 (N,): cosines are to the known-unused rows and to the mean row; None without such rows."""

    norms: Array
    to_unused: Array | None
    to_mean: Array | None
    distances: Array | None = None  # to the mean of the known-unused rows, squared
    removed: bool = False  # the first principal component, from the rows of `to_unused`
    equal: Array | None = None  # whether another row equals it

    def place(self) -> list[Array]:
        """Two readings that are near normal for ordinary rows, and large for untrained rows."""
        assert self.to_unused is not None
        assert self.distances is not None
        return [np.arctanh(self.to_unused.clip(-_MOST_COSINE, _MOST_COSINE)), -np.cbrt(self.distances)]


def evidence_of(axes: UntrainedAxes, norms: Array, products: Array, squares: Array) -> Evidence:
    """From the norms of the rows x, and of y = x - mean the products with the axes and the squared lengths."""
    mean, unused, first = axes.axes.T
    along_mean, along, along_first = products.T
    length, to_mean = math.sqrt(mean @ mean), None
    if length > 1e-5 * axes.mean_norm:  # else it is rounding, as of a head whose mean row was subtracted
        to_mean = _ratio(along_mean + length**2, norms * length)
    if not bool(unused.any()):
        return Evidence(norms, None, to_mean)
    dtype = axes.rows.dtype
    y_square = np.where(squares > np.square(_ROUNDOFF.get(dtype, 2.0**-24) * norms), squares, 0.0)
    directed, lost = np.count_nonzero(norms), np.count_nonzero((norms > 0) & (y_square == 0))
    if 2 * lost > directed:
        got = f"{lost:,} of {directed:,} equal to their mean row (length {length:.3g}) within rounding"
        then = "subtract the mean row before you store them, or store float64"
        raise UndefinedMeasure(f"expected rows that differ by more than {dtype} rounds off, got {got}: {then}")
    u_square, u_first = float(unused @ unused), float(unused @ first)
    plain = _cosines(along, y_square, u_square, axes.reference)
    equal = _equal(axes.rows, norms, products)
    whole = Evidence(norms, plain, to_mean, _distances(along, y_square, u_square, axes.reference), equal=equal)
    if not bool(first.any()):
        return whole
    # z is y without its part along `first`; what is left of a row along it is the rounding of the products
    z_square = y_square - np.square(along_first)
    z_square = np.where(z_square > 8 * np.finfo(axes.rows.widened).eps * y_square, z_square, 0.0)
    rest = max(0.0, u_square - u_first**2)
    along_rest = along - u_first * along_first
    without = _cosines(along_rest, z_square, rest, axes.reference)
    distances = _distances(along_rest, z_square, rest, axes.reference)
    removed = Evidence(norms, without, to_mean, distances, removed=True, equal=equal)
    return removed if _stand_out(removed, axes) > _stand_out(whole, axes) else whole


def _stand_out(evidence: Evidence, axes: UntrainedAxes) -> float:
    """How far the median of the known-unused rows lies above the ordinary ones, in deviations, by the weaker reading."""
    try:
        of = [(reading, robust_null(reading[~axes.expected])) for reading in evidence.place()]
    except UndefinedMeasure:
        return -math.inf
    return min((float(np.median(reading[axes.reference])) - null.center) / null.scale for reading, null in of)


def _cosines(along: Array, squares: Array, square: float, members: Array) -> Array:
    """cos(y, u) of every row from y . u, |y|^2 and |u|^2; a member of the sum u has the sum of the others."""
    dot = np.where(members, along - squares, along)
    rest = np.where(members, np.maximum(square - 2 * along + squares, 0.0), square)
    return _ratio(dot, np.sqrt(squares) * np.sqrt(rest))


def _distances(along: Array, squares: Array, square: float, members: Array) -> Array:
    """|y - u / K|^2 of every row, u the sum of K rows; a member of the sum is left out of its own."""
    k, rest = int(members.sum()) - members, np.where(members, np.maximum(square - 2 * along + squares, 0.0), square)
    k = np.maximum(k, 1)
    return np.asarray(np.maximum(squares - 2 * (along - squares * members) / k + rest / k**2, 0.0))


def _ratio(dot: Array, length: Array) -> Array:
    """Cosines; 0 where there is no length."""
    return np.divide(dot, length, out=np.zeros_like(dot), where=length > 0).clip(-1.0, 1.0)


def _equal(rows: Rows, norms: Array, products: Array) -> Array:
    """Which rows (N,) equal another one, zero rows apart: only those with a neighbour of the same length and products
    are read again."""
    order = np.lexsort((products[:, 1], norms))
    near = norms[order[1:]] > 0
    for column in (norms, *products.T):
        near &= np.abs(np.diff(column[order])) <= _AGREE * np.abs(column).max(initial=0.0)
    equal, same = np.zeros(len(norms), np.bool_), np.flatnonzero(near)
    if len(same):
        ids, factors = np.unique(order[np.concatenate([same, same + 1])]), hash_factors(rows.shape[1])
        parts = np.array_split(ids, -(-len(ids) // GRID))
        keys = np.concatenate([hash_rows(np.asarray(rows.take(part)), factors) for part in parts])
        _, run, times = np.unique(keys, return_inverse=True, return_counts=True)
        equal[ids] = times[run] > 1
    return equal


def nearer(values: Array, axes: UntrainedAxes) -> Array:
    """Which rows (N,) are nearer to the known-unused rows than to the ordinary rows; all where either is missing."""
    if not axes.reference.any() or axes.expected.all():
        return np.ones(len(values), np.bool_)
    known = float(np.quantile(values[axes.reference], 0.5, method="lower"))
    return np.asarray(values > (known + float(np.quantile(values[~axes.expected], 0.5, method="nearest"))) / 2)


def p_of(kind: Kind, axes: UntrainedAxes, evidence: Evidence) -> Array:
    """The p-value of each row by one kind of evidence (N,). Undefined where rows are too few, or too alike."""
    norms, unused, tested = evidence.norms, evidence.to_unused, ~axes.expected
    if kind == "length":
        return np.where(nearer(-norms, axes), robust_null(-norms[tested]).upper_p(-norms), 1.0)
    if kind == "decay":
        floor, p = length_floor(norms, axes.rows.shape[1]), np.ones_like(norms)
        if floor is None:
            raise UndefinedMeasure("expected rows that share one short length, got none")
        apart = np.abs(np.log(norms[floor.rows] / floor.norm))
        p[floor.rows] = np.minimum(1.0, (floor.beside + 1) * 2 * apart / floor.width / np.count_nonzero(tested))
        return p
    assert unused is not None
    near = nearer(unused, axes)
    if kind == "equality":
        assert evidence.equal is not None
        ordinary = evidence.equal[tested & ~near & (norms > 0)]
        chance = float(ordinary.mean() * near[tested].mean()) if len(ordinary) else 1.0
        return np.where(near & evidence.equal, chance, 1.0)
    of_each = [robust_null(reading[tested]).upper_p(reading) for reading in evidence.place()]
    return np.where(near, np.maximum(*of_each), 1.0)
