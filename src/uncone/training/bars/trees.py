"""Which algorithm finds the tree of a cloud; and Prim's algorithm in compiled loops."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from uncone.errors import InputError
from uncone.roles import Progress
from uncone.tensors import empty, share
from uncone.training.bars import boruvka, lengths, one_pass
from uncone.training.bars.clouds import Clouds

Tensor = torch.Tensor
Algorithm = Literal["compiled", "torch", "one pass"]
_forced: ContextVar[Algorithm | None] = ContextVar("_forced", default=None)
LARGEST_DENSE = 8192  # points up to which a cloud's squared distances are kept: 256 MiB in float32, 512 in float64
_DIRECT_POINTS = 192  # up to which differences are about as fast as a product, and need no second look
_DIRECT_FEATURES = 16
_ROWS = 64  # of a block of the product
_SHARED = 512  # points from which on the product is worth more than one thread
_EXACT = 8  # half ulps that the squared length of an edge may be off, measured on all edges of a tree,
_ROUND = 2  # and how much larger the squared norms of its ends may be where rounding hides no edge
_INTEGERS = {torch.float32: np.int32, torch.float64: np.int64}  # as wide as floats
_VANISHING = {torch.float32: 1e-16, torch.float64: 1e-150}


@contextmanager
def forced(algorithm: Algorithm) -> Iterator[None]:
    """For tests and benchmarks: Prim's on all squared distances ("compiled", by numba's loops), Boruvka's on the same
    ("torch", for a GPU and without numba), or "one pass", for large clouds, for clouds of any size and device."""
    token = _forced.set(algorithm)
    try:
        yield
    finally:
        _forced.reset(token)


def shortest_first(clouds: Clouds, progress: Progress | None = None) -> tuple[Tensor, Tensor]:
    """Edges (M, 2) of the Euclidean minimum spanning tree of each cloud, smaller row first, and their lengths (M,). The
    edges of a cloud are consecutive, ascending by (length, smaller row, larger row)."""
    how, points, loops = _forced.get(), clouds.points, lengths.kernels()
    on_cpu = points.device.type == "cpu"
    edges = points.new_empty(sum(clouds.bars), 2, dtype=torch.int64)
    measured = points.new_empty(len(edges))
    left = [c for c, size in enumerate(clouds.sizes) if size > 1]
    large = [c for c in left if how == "one pass" or (how is None and clouds.sizes[c] > LARGEST_DENSE)]
    for turn, cloud in enumerate(large):
        rows = clouds.padded([cloud])[0][0]
        report = progress if len(large) == 1 else _numbered(progress, turn, len(large))
        tree = one_pass.grow(points if len(rows) == len(points) else points[rows], progress=report).edges
        boruvka.place(clouds, [cloud], rows[tree][None], None, edges, measured)
    left = [c for c in left if c not in set(large)]
    if how == "compiled" and loops is None:
        install = "pip install 'uncone[topology]'"
        raise InputError(f"expected numba for the compiled algorithm, found none that works: {install}")
    if how in (None, "compiled") and on_cpu and loops is not None:
        left = _by_prim(loops, clouds, left, edges, measured)
    boruvka.spanning_trees(clouds, left, edges, measured, exact=on_cpu)
    return edges, measured


def _numbered(progress: Progress | None, turn: int, turns: int) -> Progress | None:
    return progress and (lambda what, *pairs: progress(f"{what} {turn + 1} of {turns}", *pairs))


def _by_prim(loops: Any, clouds: Clouds, which: list[int], edges: Tensor, lengths: Tensor) -> list[int]:
    """Write the trees of the clouds `which`; returns those whose squares leave the range of their floats."""
    x, dtype = clouds.points.contiguous().numpy(), clouds.points.dtype
    order = np.arange(len(x)) if clouds.order is None else clouds.order.numpy()
    offsets, first = np.array(clouds.offsets), np.array(clouds.first_bars, np.int64)
    direct = [c for c in which if clouds.sizes[c] <= _DIRECT_POINTS or x.shape[1] <= _DIRECT_FEATURES]
    left = list[int]()
    if direct:
        types_and_out = _INTEGERS[dtype], _VANISHING[dtype], edges.numpy(), lengths.numpy()
        if not loops.small_clouds(x, order, offsets, first, np.array(direct), *types_and_out):
            left += direct
    for cloud in sorted(set(which) - set(direct)):
        rows = order[offsets[cloud] : offsets[cloud + 1]]
        part = slice(first[cloud], first[cloud] + len(rows) - 1)
        if not _by_product(loops, x, rows, edges[part], lengths[part]):
            left.append(cloud)
    return left


def _by_product(loops: Any, x: Any, rows: Any, edges: Tensor, lengths: Tensor) -> bool:
    """One cloud. Distances whose rounding matters are taken again by difference, and then the tree."""
    n, dtype = len(rows), lengths.dtype
    centred, norms = empty((n, x.shape[1]), dtype), np.empty(n, x.dtype)
    loops.centred(x, rows, centred.numpy(), norms)
    if not norms.max() < np.finfo(x.dtype).max / 16:  # products and sums of them may overflow
        return False
    product = empty((n, n + 16), dtype)  # columns of a power of two meet in the same lines of the cache
    with full_precision():
        _multiply(loops, centred, product)
    table, integer = product.numpy(), _INTEGERS[dtype]
    ends, weights = np.empty((n - 1, 2), np.int64), np.empty(n - 1, x.dtype)
    if not loops.prim(table, norms, integer, ends, weights):
        return False
    unit = np.finfo(x.dtype).eps / 2
    of_sums, of_itself, sums_of = loops.rounding(x, rows, ends, weights, norms)
    if of_itself > _EXACT * unit or sums_of > _ROUND:
        # the rounding of a product grows with the root of its terms
        error = max(3 * of_sums, (8 + x.shape[1] ** 0.5) * unit)
        loops.settle(x, rows, table, norms, ends, weights, x.dtype.type(error))
        if not loops.prim(table, np.zeros_like(norms), integer, ends, weights):
            return False
    return bool(loops.ordered(x, rows, ends, _VANISHING[dtype], edges.numpy(), lengths.numpy()))


def _multiply(loops: Any, x: Tensor, product: Tensor) -> None:
    """x x^T to the first n columns: half of it, a block of rows at a time, and the rest by mirroring."""
    n, table = len(x), product.numpy()

    def block(begin: int) -> None:
        end = min(begin + _ROWS, n)
        torch.mm(x[begin:end], x[begin:].T, out=product[begin:end, begin:n])
        loops.mirror(table, begin, end, n)

    if n >= _SHARED:
        share(partial(block, begin) for begin in range(0, n, _ROWS))
        return
    for begin in range(0, n, _ROWS):
        block(begin)


_lock = threading.Lock()
_before: list[str] = []  # the precisions that the threads inside `full_precision` came upon


@contextmanager
def full_precision() -> Iterator[None]:
    """Whole products on the CPU. The process has one setting: the last thread out resets it."""
    with _lock:
        _before.append(_change("highest"))
    try:
        yield
    finally:
        with _lock:
            first = _before.pop()
            if not _before:
                _change(first)


def _change(to: str) -> str:
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if hasattr(matmul, "fp32_precision"):
        before, matmul.fp32_precision = str(matmul.fp32_precision), "ieee" if to == "highest" else to
        return before
    before = torch.get_float32_matmul_precision()  # before torch 2.9
    torch.set_float32_matmul_precision(to)
    return before
