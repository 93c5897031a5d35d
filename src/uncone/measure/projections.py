"""Passes over rows: piece by piece, products with a few axes, and sums of unit rows by group."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from uncone.moments import cuts, inverse, row_norms
from uncone.roles import Ticks
from uncone.rows import Array, Rows
from uncone.threads import share

T = TypeVar("T")
_STRIP = 256  # rows that a core's cache holds


def by_piece(rows: Rows, size: int, work: Callable[[slice, Array], T], progress: Ticks = None) -> Iterator[T]:
    """`work(which, x)` of every `size` rows x in order, each on one thread."""
    for done, block in rows.numbered(progress, rows.part):
        pieces = cuts(len(block), size)
        yield from share(partial(work, slice(done + at.start, done + at.stop), block[at]) for at in pieces)
        del block  # the reader uses its buffer again


class UnitSums:
    """The sums of unit rows of each group (0 to K - 1), float64 (K, D), and the norms of all rows, (N,)."""

    def __init__(self, groups: Array, k: int, d: int) -> None:
        self.groups, self._done = groups, 0
        self.norms, self.sums = np.zeros(len(groups)), np.zeros((k, d))
        self._near: Array | None = None  # a direction near all rows: sums of what is left over keep their digits

    def update(self, block: Array, norms: Array) -> None:
        """Add the next rows (n, D) with their norms (n,)."""
        part = slice(self._done, self._done + len(block))
        self.norms[part] = norms
        scale = inverse(norms).astype(block.dtype)
        if self._near is None:
            self._near = (block[:_STRIP] * scale[:_STRIP, None]).mean(0)
        member = np.zeros((len(self.sums), len(block)), block.dtype)
        member[self.groups[part], np.arange(len(block))] = norms > 0
        tasks = (partial(_sums, self._near, block[at], scale[at], member[:, at]) for at in cuts(len(block), 2048))
        self.sums += sum(share(tasks))
        self.sums += member.sum(1, dtype=np.float64)[:, None] * self._near
        self._done += len(block)


def _sums(near: Array, x: Array, scale: Array, member: Array) -> Array:
    """Sums of x / |x| - near by group, float64 (K, D)."""
    sums, kept = np.zeros((len(member), len(near))), np.empty((min(_STRIP, len(x)), len(near)), x.dtype)
    for cut in cuts(len(x), _STRIP):
        y = np.multiply(x[cut], scale[cut, None], out=kept[: len(x[cut])])
        sums += member[:, cut] @ np.subtract(y, near, out=y)
    return sums


def project(rows: Rows, axes: Array, progress: Ticks = None) -> Array:
    """The products of all rows with the columns of `axes` (D, K), float64 (N, K). Read once."""
    unit, lengths = _unit(axes, rows)
    products = np.empty((rows.shape[0], axes.shape[1]))

    def work(which: slice, x: Array) -> None:
        np.multiply(x @ unit.T, lengths, out=products[which])

    list(by_piece(rows, _STRIP, work, progress))
    return products


def project_about(rows: Rows, axes: Array, point: Array, progress: Ticks = None) -> tuple[Array, Array]:
    """The products of all rows less `point` (D,) with the columns of `axes` (D, K), float64 (N, K), and the squared
    lengths of these differences, float64 (N,). Read once.

    The difference is taken first, in the dtype of the blocks: products of rows that share an offset would hold nothing
    else. What rounding left of `point` is put right in float64.
    """
    near = point.astype(rows.widened)
    left = point - near
    unit, lengths = _unit(np.concatenate([axes, left[:, None]], axis=1), rows)
    products, squares = np.empty((rows.shape[0], len(unit))), np.empty(rows.shape[0])

    def work(which: slice, x: Array) -> None:
        y = x - near
        np.multiply(y @ unit.T, lengths, out=products[which])
        np.square(row_norms(y), out=squares[which])

    list(by_piece(rows, _STRIP, work, progress))
    squares += np.square(left).sum() - 2 * products[:, -1]
    return products[:, :-1] - np.einsum("i,ij->j", left, axes), np.maximum(squares, 0.0, out=squares)


def _unit(axes: Array, rows: Rows) -> tuple[Array, Array]:
    """The axes at unit length, (K, D), whose products keep to the range of the dtype, and their lengths (K,)."""
    lengths = np.sqrt(np.square(axes).sum(0))
    unit = axes / np.where(lengths > 0, lengths, 1.0)
    return np.ascontiguousarray(unit.T, rows.widened), lengths  # twice as fast as (D, K)
