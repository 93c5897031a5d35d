"""The minimum spanning tree of one large cloud: each block of the product is computed once, and only its light edges
are kept.

A pair that is longer than every edge on a spanning tree's path between its ends is in no minimum spanning tree (Karger,
Klein and Tarjan, A randomized linear-time algorithm to find minimum spanning trees, 1995). The others replace edges
from time to time. In a random order of points, a pass over all pairs meets O(n log n) of them (their sampling lemma).

The product only rules pairs out; the others are measured by direct difference in float64, to be compared.
"""

import math
import timeit
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from threading import Event, Lock
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.roles import Progress
from uncone.tensors import alone, on_every_thread
from uncone.training.bars.light_edges import Forest, Light, Rounded, Rounding, light_edges, spanning, squared_distances

Tensor = torch.Tensor
_Task = tuple[Rounded, int, int]  # rows, the first column's position, the first row that is still to be done
_PANEL = 4  # blocks of rows that share one preparation of the columns
_GROWTH = 4  # before a tree can rule anything out, rows come in groups that grow by this factor
_WASTE = 1 / 64  # share of the pairs that may be measured for nothing before a coarse product no longer pays
_WORTH_ASKING = 2**33  # multiplications from which on it pays to measure which product is faster
_VANISHING = 2.0**-1000  # squared lengths of float64 points that have lost digits
_HASHED = 256  # rows hashed or compared at once
_WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}


@dataclass(frozen=True)
class Growth:
    edges: Tensor  # (n - 1, 2) int64, the smaller row first
    passes: float  # pairs whose product was computed, over n x n: 1/2 is each pair once
    coarse: float  # the share of `passes` in bfloat16
    measured: int  # pairs that were measured by direct difference
    light: int  # pairs that replaced or might have replaced an edge of the tree


def grow(
    points: Tensor, *, block: int | None = None, progress: Progress | None = None, candidates: torch.dtype | None = None
) -> Growth:
    """The Euclidean minimum spanning tree of finite points (n, D), float32 or float64, `block` rows at once. Memory in
    addition to the points is O(n + block x (D + block)) per thread. Ties go by (square, smaller row, larger row). The
    tree does not depend on `block`, threads or `candidates`, the dtype of the product: float32 or (on a CPU) bfloat16,
    by default whichever is faster."""
    stopped, on_cpu = Event(), points.device.type == "cpu"
    block = block or (1024 if on_cpu else 8192)
    work = partial(_grow, points.detach(), block, progress, candidates, stopped)
    try:
        return alone(work) if on_cpu else work()
    except BaseException:  # an interrupt reaches only this thread
        stopped.set()
        raise


def _grow(
    points: Tensor, block: int, progress: Progress | None, candidates: torch.dtype | None, stopped: Event
) -> Growth:
    points = points if points.stride()[1:] == (1,) else points.contiguous()
    largest = max(abs(float(end)) for end in torch.aminmax(points)) if points.numel() else 0.0
    low, high = (1e-30, 1e30) if points.dtype == torch.float32 else (1e-100, 1e100)
    stretched = not (largest == 0 or low < largest < high)
    kept, repeats = without_repeats(points)
    while True:
        sweep = _Sweep(_stretched(points, largest) if stretched else points, kept, block, candidates, stopped)
        sweep.run(progress)
        near = sweep.vanishing()
        if not len(near):
            break
        if stretched:
            (a, b), far = near[0].tolist(), int(points.abs().amax(1).argmax())
            got = f"got rows {a} and {b} too close for the largest coordinate, in row {far}: leave that row out"
            raise InputError(f"expected distances within a factor of 1e300, {got}")
        stretched = True
    edges = torch.cat([sweep.edges(), repeats]).sort(1).values
    passes, coarse = sweep.pairs / (len(points) ** 2 or 1), sweep.coarse / (sweep.pairs or 1)
    return Growth(edges, passes, coarse, sweep.measured, sweep.light)


def _stretched(points: Tensor, largest: float) -> Tensor:
    """Float64 rows whose `largest` coordinate is near 2^500, so that sums of squares fit."""
    # A power of two leaves equal distances equal; it may be out of range, so its root twice.
    half = (500 - math.frexp(largest)[1]) // 2
    return points.double() * 2.0**half * 2.0**half


class _Sweep:
    """One pass over the pairs of the `kept` rows, in positions of a random order."""

    def __init__(
        self, points: Tensor, kept: Tensor, block: int, candidates: torch.dtype | None, stopped: Event
    ) -> None:
        self._points, self._block, self._stopped = points, block, stopped
        mixed = torch.randperm(len(kept), generator=torch.Generator().manual_seed(0)).to(kept.device)
        self._order = kept[mixed]
        self._ids = self._order.cpu().numpy()
        self._dtype, self._fixed = candidates or _candidates(points, len(kept)), candidates is not None
        self._collected: list[Light] = []
        self._lock, self._full = Lock(), Event()
        self._forest: Forest | None = None
        self.pairs = self.coarse = self.measured = self.light = 0

    def edges(self) -> Tensor:
        ends = np.empty((0, 2), np.int64) if self._forest is None else self._forest.ends
        return self._order[torch.from_numpy(ends).to(self._order.device).long()]

    def vanishing(self) -> Tensor:
        """The tree's edges (k, 2) between unequal points whose squared lengths have lost digits."""
        squared = np.empty(0) if self._forest is None else self._forest.squared
        edges = self.edges()[: int(np.searchsorted(squared, _VANISHING))]
        return edges[(self._points[edges[:, 0]] != self._points[edges[:, 1]]).any(1)]

    def run(self, progress: Progress | None) -> None:
        m = len(self._order)
        if m < 2:
            return
        self._rounding = Rounding(self._points, self._order)
        # The first point's edge to every other is the first tree.
        ends = np.stack([np.zeros(m - 1, np.int32), np.arange(1, m, dtype=np.int32)], 1)
        squared = squared_distances(self._points, self._order[:1].expand(m - 1), self._order[1:])
        self._collected.append((ends, squared.cpu().numpy(), m - 1))
        self._merge()
        self.measured += m - 1
        for start, stop in _panels(m, self._block):
            pairs, wasted = self.pairs, self.measured - self.light
            self._panel(start, stop)
            if progress:
                progress("spanning tree", stop * (2 * m - stop - 1) // 2, m * (m - 1) // 2)
            wasted = self.measured - self.light - wasted
            if not self._fixed and wasted > max(_WASTE * (self.pairs - pairs), 4 * m):
                self._dtype = torch.float32
        self._merge()

    def _panel(self, start: int, stop: int) -> None:
        rows = self._rounding.block(start, stop, self._dtype)
        columns = range(start, len(self._order), self._block)
        tasks: deque[_Task] = deque((rows, column, 0) for column in columns)
        work = partial(self._work, tasks)
        while tasks:
            if self._stopped.is_set():
                raise KeyboardInterrupt  # of the thread that waits for this one
            self._full.clear()
            if self._points.device.type == "cpu":
                on_every_thread(work)
            else:
                work()
            if self._full.is_set():
                self._merge()

    def _work(self, tasks: Any) -> None:  # a type checker would not see that other threads change a deque
        """Until no tasks are left, or enough light edges to merge; the rest of a task goes back."""
        try:
            while not self._full.is_set() and not self._stopped.is_set():
                with self._lock:
                    if not tasks:
                        return
                    rows, column, at = tasks.popleft()
                left = self._column(rows, column, at)
                if left < len(rows.values):
                    with self._lock:
                        tasks.appendleft((rows, column, left))
        except BaseException:
            self._stopped.set()
            raise

    def _column(self, rows: Rounded, column: int, at: int) -> int:
        """Rows from `at` on, with one block of columns; returns the row that it came to."""
        assert self._forest is not None
        stop = min(column + self._block, len(self._order))
        columns = self._rounding.block(column, stop, rows.values.dtype)
        end = min(len(rows.values), stop - 1 - rows.first)  # a row's pairs are with later positions
        while at < end and not self._full.is_set() and not self._stopped.is_set():
            some = rows.rows(at, min(at + self._block, end))
            product = torch.mm(some.values, columns.values.T)
            cloud = self._points, self._order, self._rounding.scale
            self._keep(light_edges(product, some, columns, *cloud, self._forest), product)
            at += len(some.values)
        return at if at < end else len(rows.values)

    def _keep(self, light: Light, product: Tensor) -> None:
        with self._lock:
            self._collected.append(light)
            self.pairs += product.numel()
            self.coarse += product.numel() if product.dtype == torch.bfloat16 else 0
            self.measured += light[2]
            self.light += len(light[1])
            if sum(len(squared) for _, squared, _ in self._collected) > len(self._order):
                self._full.set()

    def _merge(self) -> None:
        if self._collected:
            before = [] if self._forest is None else [(self._forest.ends, self._forest.squared, 0)]
            ends, squared, _ = zip(*before, *self._collected, strict=True)
            self._collected.clear()
            new = np.concatenate(ends), np.concatenate(squared)
            self._forest = spanning(*new, self._ids, self._rounding.scale, self._order.device)


def _panels(m: int, block: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows from the second on: small ones that grow, then `_PANEL` blocks at a time."""
    start = 1
    while start < m:
        stop = min(m, start * _GROWTH if start * _GROWTH < block else start + _PANEL * block)
        yield start, stop
        start = stop


def _candidates(points: Tensor, m: int) -> torch.dtype:
    worth = points.device.type == "cpu" and m * m * points.shape[1] >= _WORTH_ASKING
    return torch.bfloat16 if worth and _bfloat16_pays() else torch.float32


@cache
def _bfloat16_pays() -> bool:
    """Whether this machine multiplies bfloat16 faster: measured, because no flag shows it."""
    plain = torch.ones(512, 768)
    times = [min(timeit.repeat(partial(torch.mm, x, x.T), number=1, repeat=4)) for x in (plain.bfloat16(), plain)]
    return times[0] < 0.75 * times[1]


def without_repeats(points: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each value (m,), ascending, and edges (n - m, 2) from it to all others of the value. Rows with
    one hash are compared whole."""
    rows = torch.arange(len(points), device=points.device)
    inverse = torch.unique(_hashes(points), return_inverse=True)[1]
    first = rows.scatter_reduce(0, inverse, rows, "amin", include_self=False)[inverse]
    other = (first != rows).nonzero().flatten()
    equal = torch.empty(len(other), dtype=torch.bool, device=points.device)
    # in pieces: a cloud may be one point many times over
    for some, out in zip(torch.split(other, _HASHED), torch.split(equal, _HASHED), strict=True):
        torch.all(points[some] == points[first[some]], 1, out=out)
    repeats = other[equal]
    keep = torch.ones_like(rows, dtype=torch.bool)
    keep[repeats] = False
    return keep.nonzero().flatten(), torch.stack([first[repeats], repeats], 1)


def _hashes(points: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.shape[1],), generator=generator).to(points.device) * 2 + 1
    # Into one tensor: small ones between large ones leave holes, which the C library keeps.
    hashes = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for some, out in zip(torch.split(points, _HASHED), torch.split(hashes, _HASHED), strict=True):
        rows = some + 0.0  # -0.0 and 0.0 are one value in two patterns of bits
        bits = rows.view(_WORDS[points.dtype]).to(torch.int64)
        bits ^= bits >> 17  # the low bits of round numbers are all zero, and a product only carries upwards
        bits *= odd
        bits ^= bits >> 29
        torch.sum(bits, 1, out=out)
    return hashes
