"""The minimum spanning tree of one large cloud: each block of the product is computed once, and only its
light edges are kept.

A spanning tree of the pairs seen so far stands at every moment. A pair that is longer than every edge on the
tree's path between its ends is in no minimum spanning tree (Karger, Klein and Tarjan, A randomized
linear-time algorithm to find minimum spanning trees, 1995); the others are collected, and replace edges of
the tree from time to time. Points are taken in a random order, so that when a fraction 1/p of the pairs has
been seen about p n of all pairs are light (their sampling lemma), and a pass over all meets O(n log n) of
them. As the distance is symmetric, half of the n x n product is enough.

Boruvka's algorithm, the usual choice for trees from products of blocks, asks for the nearest outsider of
every component anew in each round. However lazily that is done, the first round alone is the whole product,
or its half with a search along rows and columns, and parts of it come again.

The product only rules pairs out, with a bound on what its rounding hides. What it cannot rule out is measured
by direct difference in float64, and all comparisons that make the tree are between such numbers. So the tree
is the same for every size of block, number of threads and precision of the product.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch

from uncone.errors import InputError
from uncone.threads import alone, on_every_thread
from uncone.topology.forest import Forest, spanning
from uncone.topology.light_edges import Light, Rounded, Rounding, light_edges, squared_distances

Tensor = torch.Tensor
Progress = Callable[[str, int, int], None]
_Task = tuple[
    Rounded, int, int
]  # rows, the position of the first column, the first of the rows that is still to be done

_BLOCK = 1024
_BLOCK_ON_GPU = 8192
_PANEL = 4  # blocks of rows that share one preparation of the columns
# Before it can rule anything out a tree must stand: the first rows are taken in groups that grow by this factor.
_GROWTH = 4
_KEPT = 1  # edges a point that are collected before they are merged into the tree
_WASTE = 1 / 64  # of the pairs may be measured for nothing before a coarse product no longer pays
_WORTH_ASKING = 2**33  # multiplications, before it is asked which product is faster
_VANISHING = 2.0**-1000  # squared lengths of float64 points that have lost digits
_PAYS = 0.75  # of the time of a float32 product
_HASHED = 256  # rows hashed or compared at once
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Growth:
    """A spanning tree, and what it took."""

    edges: Tensor
    """(n - 1, 2) int64, the smaller row first."""
    passes: float
    """Pairs whose product was computed, over n x n: 1/2 is each pair once."""
    measured: int
    """Pairs that were measured by direct difference."""
    light: int
    """Pairs that replaced or might have replaced an edge of the tree."""
    merges: int
    """How often such pairs were merged into the tree."""
    coarse: float
    """The share of `passes` in bfloat16."""


def spanning_tree(
    points: Tensor,
    *,
    block: int | None = None,
    progress: Progress | None = None,
    candidates: torch.dtype | None = None,
) -> Tensor:
    """Edges (n - 1, 2) int64 of the Euclidean minimum spanning tree of points (n, D), the smaller row first.

    Memory beside the points is O(n + block x (D + block)) for each thread. Ties go by (squared distance, smaller row, larger
    row). Distances that decide are computed in float64, so the tree does not depend on `block`, `candidates` or the threads.

    Args:
        points: (n, D), finite, floating point; float16 and bfloat16 are widened to a float32 copy.
        block: rows and columns of a block of the product; 1,024 on a CPU, 8,192 elsewhere.
        progress: told ("spanning tree", pairs done, pairs) now and then.
        candidates: dtype of the product, float32 or (on a CPU) bfloat16. None takes what this machine is faster with.

    Raises:
        InputError: another dtype of candidates, or a block below 1.
    """
    return grow(points, block=block, progress=progress, candidates=candidates).edges


def grow(
    points: Tensor,
    *,
    block: int | None = None,
    progress: Progress | None = None,
    candidates: torch.dtype | None = None,
) -> Growth:
    """`spanning_tree` with what it took."""
    _check(points, block, candidates)
    points, stopped = points.detach(), threading.Event()
    block = block or (_BLOCK if points.device.type == "cpu" else _BLOCK_ON_GPU)
    if points.device.type != "cpu":
        return _grow(points, block, progress, candidates, stopped)
    try:
        return alone(partial(_grow, points, block, progress, candidates, stopped))
    except BaseException:  # an interrupt reaches this thread alone
        stopped.set()
        raise


def _grow(
    points: Tensor,
    block: int,
    progress: Progress | None,
    candidates: torch.dtype | None,
    stopped: threading.Event,
) -> Growth:
    points = _as_measured(points)
    kept, repeats = without_repeats(points)
    sweep = _Sweep(points, kept, block, candidates, stopped)
    sweep.run(progress)
    if len(sweep.vanishing()):
        sweep = _Sweep(_stretched(points, _largest(points)), kept, block, candidates, stopped)
        sweep.run(progress)
        _check_range(points, sweep)
    edges = torch.cat([sweep.edges(), repeats]).sort(1).values
    passes, coarse = sweep.pairs / (len(points) ** 2 or 1), sweep.coarse / (sweep.pairs or 1)
    return Growth(edges, passes, sweep.measured, sweep.light, sweep.merges, coarse)


def _check(points: Tensor, block: int | None, candidates: torch.dtype | None) -> None:
    if candidates not in (None, torch.float32, torch.bfloat16):
        raise InputError(
            f"expected candidates of torch.float32 or torch.bfloat16, got {candidates}: leave it out for what is faster here"
        )
    if candidates == torch.bfloat16 and points.device.type != "cpu":
        raise InputError(
            f"expected points on a CPU for candidates of torch.bfloat16, got {points.device}: elsewhere products are float32"
        )
    if block is not None and block < 1:
        raise InputError(
            f"expected a block of at least 1 row, got {block}: leave it out for a size that suits the cache"
        )


def _as_measured(points: Tensor) -> Tensor:
    """float32 or float64 rows that lie together and can be scaled and squared: the points themselves wherever
    they are so."""
    points = points if points.dtype in (torch.float32, torch.float64) else points.float()
    points = points if points.stride()[1:] == (1,) else points.contiguous()
    largest = _largest(points)
    low, high = (1e-30, 1e30) if points.dtype == torch.float32 else (1e-100, 1e100)
    return points if largest == 0 or low < largest < high else _stretched(points, largest)


def _largest(points: Tensor) -> float:
    return max(abs(float(end)) for end in torch.aminmax(points)) if points.numel() else 0.0


def _stretched(points: Tensor, largest: float) -> Tensor:
    """Float64 rows whose `largest` coordinate is near 2^500: of what can be squared, as much as there is."""
    # By a power of two, so that equal distances stay equal; by its root twice, as it may be out of range itself.
    half = (500 - math.frexp(largest)[1]) // 2
    return points.double() * 2.0**half * 2.0**half


def _check_range(points: Tensor, sweep: "_Sweep") -> None:
    """Refuses points some of which are nearer to each other than squares can tell beside the others."""
    near = sweep.vanishing().tolist()
    if near:
        far = int(points.abs().amax(1).argmax())
        raise InputError(
            f"expected points with distances within a factor of 1e300, got rows {near[0][0]} and {near[0][1]} too near to each other for the "
            f"largest coordinate, which is in row {far}: leave that row out"
        )


class _Sweep:
    """One pass over the pairs of the `kept` rows, in positions of a random order of them."""

    def __init__(
        self,
        points: Tensor,
        kept: Tensor,
        block: int,
        candidates: torch.dtype | None,
        stopped: threading.Event,
    ) -> None:
        self._points, self._block, self._stopped = points, block, stopped
        mixed = torch.randperm(len(kept), generator=torch.Generator().manual_seed(0)).to(kept.device)
        self._order = kept[mixed]
        self._ids = self._order.cpu().numpy()
        self._dtype = candidates or _candidates(points, len(kept))
        self._fixed = candidates is not None
        self._found: list[Light] = []
        self._lock, self._full = threading.Lock(), threading.Event()
        self._forest: Forest | None = None
        self.pairs = self.coarse = self.measured = self.light = self.merges = 0

    def edges(self) -> Tensor:
        """The rows that each edge of the tree joins (m - 1, 2)."""
        if self._forest is None:
            return torch.empty(0, 2, dtype=torch.int64, device=self._points.device)
        return self._order[torch.from_numpy(self._forest.ends).to(self._order.device).long()]

    def vanishing(self) -> Tensor:
        """The tree's edges (k, 2) between unequal points whose squared lengths have lost digits."""
        edges = self.edges()
        if self._forest is not None:
            edges = edges[: int(np.searchsorted(self._forest.squared, _VANISHING))]
        return edges[(self._points[edges[:, 0]] != self._points[edges[:, 1]]).any(1)]

    def run(self, progress: Progress | None) -> None:
        """Go over all pairs."""
        m = len(self._order)
        if m < 2:
            return
        self._rounding = Rounding(self._points, self._order)
        self._begin()
        for start, stop in _panels(m, self._block):
            pairs, wasted = self.pairs, self.measured - self.light
            self._panel(start, stop)
            if progress:
                progress("spanning tree", stop * (2 * m - stop - 1) // 2, m * (m - 1) // 2)
            if not self._fixed and self.measured - self.light - wasted > max(
                _WASTE * (self.pairs - pairs), 4 * m
            ):
                self._dtype = torch.float32
        self._merge()

    def _begin(self) -> None:
        """The first point's edge to every other is the first tree."""
        first = torch.zeros(len(self._order) - 1, dtype=torch.int64, device=self._order.device)
        squared = squared_distances(self._points, self._order[first], self._order[1:])
        ends = np.stack([np.zeros(len(first), np.int32), np.arange(1, len(first) + 1, dtype=np.int32)], 1)
        self._forest = spanning(
            ends, squared.cpu().numpy(), self._ids, self._rounding.scale, self._order.device
        )
        self.measured += len(first)

    def _panel(self, start: int, stop: int) -> None:
        """Rows `start` to `stop` with every later position."""
        rows = self._rounding.block(start, stop, self._dtype)
        tasks: deque[_Task] = deque(
            (rows, column, 0) for column in range(start, len(self._order), self._block)
        )
        while tasks:
            if self._stopped.is_set():
                raise KeyboardInterrupt  # of the thread that waits for this one
            self._full.clear()
            self._work_on(tasks)
            if self._full.is_set():
                self._merge()

    def _work_on(self, tasks: deque[_Task]) -> None:
        """Take tasks, in every thread at once, until there are none, or enough light edges to merge; what is
        left of a task goes back."""
        if self._points.device.type == "cpu":
            on_every_thread(partial(self._work, tasks))
        else:
            self._work(tasks)

    def _work(self, tasks: deque[_Task]) -> None:
        try:
            while not self._full.is_set() and not self._stopped.is_set():
                with self._lock:
                    if not tasks:
                        return
                    task = tasks.popleft()
                left = self._column(*task)
                if left < len(task[0].values):
                    with self._lock:
                        tasks.appendleft((task[0], task[1], left))
        except BaseException:
            self._stopped.set()
            raise

    def _column(self, rows: Rounded, column: int, at: int) -> int:
        """One block of columns with rows from `at` on; returns the row that it came to."""
        assert self._forest is not None
        stop = min(column + self._block, len(self._order))
        columns = self._rounding.block(column, stop, rows.values.dtype)
        end = min(len(rows.values), stop - 1 - rows.first)  # a row's pairs are with later positions
        while at < end and not self._full.is_set() and not self._stopped.is_set():
            some = rows.rows(at, min(at + self._block, end))
            product = torch.mm(some.values, columns.values.T)
            light = light_edges(
                product, some, columns, self._points, self._order, self._rounding.scale, self._forest
            )
            at += len(some.values)
            self._keep(light, product)
        return at if at < end else len(rows.values)

    def _keep(self, light: Light, product: Tensor) -> None:
        with self._lock:
            self._found.append(light)
            self.pairs += product.numel()
            self.coarse += product.numel() if product.dtype == torch.bfloat16 else 0
            self.measured += light.measured
            self.light += len(light.squared)
            if sum(len(one.squared) for one in self._found) > _KEPT * len(self._order):
                self._full.set()

    def _merge(self) -> None:
        """The light edges take their places in the tree."""
        if self._forest is None or not self._found:
            return
        ends = np.concatenate([self._forest.ends, *(one.ends for one in self._found)])
        squared = np.concatenate([self._forest.squared, *(one.squared for one in self._found)])
        self._found.clear()
        self._forest = spanning(ends, squared, self._ids, self._rounding.scale, self._order.device)
        self.merges += 1


def _panels(m: int, block: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows from the second on: small groups that grow, then `_PANEL` blocks at a time."""
    start = 1
    while start < m:
        stop = min(m, start * _GROWTH if start * _GROWTH < block else start + _PANEL * block)
        yield start, stop
        start = stop


def _candidates(points: Tensor, m: int) -> torch.dtype:
    if points.device.type != "cpu" or m * m * points.shape[1] < _WORTH_ASKING or not _bfloat16_pays():
        return torch.float32
    return torch.bfloat16


@cache
def _bfloat16_pays() -> bool:
    """Whether this machine multiplies bfloat16 faster: asked once, as flags do not say; the answer changes no
    tree."""
    factors = torch.ones(512, 768)
    return _product_seconds(factors.bfloat16()) < _PAYS * _product_seconds(factors)


def _product_seconds(factors: Tensor) -> float:
    best = math.inf
    for _ in range(4):
        began = time.perf_counter()
        torch.mm(factors, factors.T)
        best = min(best, time.perf_counter() - began)
    return best


def without_repeats(points: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each value (m,), ascending, and edges (n - m, 2) that join every other row to the
    first of its value.

    Rows are compared whole where their hashes are equal. Of unequal rows with one hash all are kept; they are
    told apart by their distances.
    """
    n = len(points)
    hashes, order = torch.sort(_hashes(points), stable=True)
    begins = torch.ones(n, dtype=torch.bool, device=points.device)
    begins[1:] = hashes[1:] != hashes[:-1]
    first = order[begins][begins.cumsum(0) - 1]
    other = (first != order).nonzero().flatten()
    equal = torch.empty(len(other), dtype=torch.bool, device=points.device)
    for start in range(0, len(other), _HASHED):  # in pieces, for a cloud may be one point many times over
        some = other[start : start + _HASHED]
        torch.all(points[order[some]] == points[first[some]], 1, out=equal[start : start + _HASHED])
    repeats = other[equal]
    keep = torch.ones(n, dtype=torch.bool, device=points.device)
    keep[order[repeats]] = False
    return keep.nonzero().flatten(), torch.stack([first[repeats], order[repeats]], 1)


def _hashes(points: Tensor) -> Tensor:
    """A number (n,) int64 for each row, the same for equal ones."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.shape[1],), generator=generator).to(points.device) * 2 + 1
    # Results go where there is room for them: small tensors between large ones leave holes, which the C library then keeps.
    hashes = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for start in range(0, len(points), _HASHED):
        rows = points[start : start + _HASHED] + 0.0  # -0.0 and 0.0 are one value in two patterns of bits
        bits = rows.view(_WORDS[points.element_size()]).to(torch.int64)
        bits ^= bits >> 17  # the low bits of round numbers are all zero, and a product only carries upwards
        bits *= odd
        bits ^= bits >> 29
        torch.sum(bits, 1, out=hashes[start : start + _HASHED])
    return hashes
