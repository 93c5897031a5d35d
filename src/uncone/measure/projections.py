"""Passes over rows: piece by piece, products with a few axes, and sums of unit rows by group."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch.nn.functional import linear

from uncone.moments import inverse, row_norms
from uncone.rows import Rows
from uncone.threads import share

T = TypeVar("T")
Tensor = torch.Tensor
_PIECE = 2048  # rows multiplied at once, by one thread


def by_piece(
    rows: Rows, size: int, work: Callable[[slice, Tensor], T], progress: Callable[[int], None] | None = None
) -> Iterator[T]:
    """`work(which, x)` of every `size` rows x in order, each on one thread; `which` rows of all they are."""
    for done, block in rows.numbered(progress):
        starts = range(done, done + len(block), size)
        pieces = zip(starts, torch.split(block, size), strict=True)
        yield from share(partial(work, slice(start, start + len(x)), x) for start, x in pieces)
        del block, pieces  # lets the reader use its buffer again


class UnitSums:
    """The sums of unit rows of each group (0 to K - 1), float64 (K, D), and the norms of all rows, (N,)."""

    def __init__(self, groups: Tensor, k: int, d: int) -> None:
        self.groups, self._done = groups, 0
        self.norms = torch.zeros(len(groups), dtype=torch.float64)
        self.sums = torch.zeros(k, d, dtype=torch.float64)
        self._near: Tensor | None = None
        """A direction near all rows if they have one: sums of what is left over keep their digits."""

    def update(self, block: Tensor, norms: Tensor) -> None:
        """Add the next rows (n, D) with their norms (n,)."""
        part = slice(self._done, self._done + len(block))
        self.norms[part] = norms
        scale, groups = inverse(norms), self.groups[part]
        if self._near is None:
            self._near = (block * scale.to(block.dtype)[:, None]).mean(0)
        member = torch.zeros(len(self.sums), len(block), dtype=block.dtype)
        member.scatter_(0, groups[None], (norms > 0).to(block.dtype)[None])
        pieces = zip(*(torch.split(t, _PIECE) for t in (block, scale, member.T)), strict=True)
        for piece in share(partial(_sums, self._near, *cut) for cut in pieces):
            self.sums += piece
        self.sums += member.sum(1, dtype=torch.float64)[:, None] * self._near.double()
        self._done += len(block)


def _sums(near: Tensor, x: Tensor, scale: Tensor, member: Tensor) -> Tensor:
    """Sums of x / |x| - near by group."""
    return member.T @ (x * scale.to(x.dtype)[:, None]).sub_(near)


def project(rows: Rows, axes: Tensor, progress: Callable[[int], None] | None = None) -> Tensor:
    """The products of all rows with the columns of `axes` (D, K), float64 (N, K). Read once."""
    unit, lengths = _unit(axes, rows)
    products = torch.empty(rows.shape[0], axes.shape[1], dtype=torch.float64)

    def work(which: slice, x: Tensor) -> None:
        torch.mul(linear(x, unit), lengths, out=products[which])

    list(by_piece(rows, _PIECE, work, progress))
    return products


def project_about(
    rows: Rows, axes: Tensor, point: Tensor, progress: Callable[[int], None] | None = None
) -> tuple[Tensor, Tensor]:
    """The products of all rows less `point` (D,) with the columns of `axes` (D, K), float64 (N, K), and the
    squared lengths of these differences, float64 (N,). Read once.

    The difference is taken before the products: of rows that share an offset the products of the rows
    themselves would hold nothing else. It is taken in the dtype of the blocks, where it loses no digit of a
    row near to `point`, and what rounding left of `point` is put right in float64.
    """
    near = point.to(rows.widened)
    left = point.double() - near.double()
    unit, lengths = _unit(torch.cat([axes, left[:, None]], dim=1), rows)
    products = torch.empty(rows.shape[0], axes.shape[1] + 1, dtype=torch.float64)
    squares = torch.empty(rows.shape[0], dtype=torch.float64)

    def work(which: slice, x: Tensor) -> None:
        y = x - near
        torch.mul(linear(y, unit), lengths, out=products[which])
        torch.square(row_norms(y), out=squares[which])

    list(by_piece(rows, _PIECE, work, progress))
    squares += left @ left - 2 * products[:, -1]
    return products[:, :-1] - left @ axes, squares.clamp_min_(0.0)


def _unit(axes: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """The axes at unit length, (K, D) in the dtype of the blocks, whose range products then keep to, and their
    lengths (K,)."""
    lengths = axes.norm(dim=0)
    unit = axes / torch.where(lengths > 0, lengths, 1.0)
    return unit.T.contiguous().to(rows.widened), lengths  # twice as fast as (D, K)
