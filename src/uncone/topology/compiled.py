"""Minimum spanning trees of clouds by Prim's algorithm in compiled loops, on squared distances by difference
or from a product."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

from uncone import memory
from uncone.threads import share
from uncone.topology.clouds import Clouds

Tensor = torch.Tensor
DIRECT_POINTS = 192  # up to which size of a cloud differences are as fast as a product, or nearly so, and need no second look
_DIRECT_FEATURES = 16
_ROWS = 64  # of a block of the product
_SHARED = 512  # points from which on the product is worth more than one thread
_EXACT = 8  # half ulps that the squared length of an edge may be off, measured on all edges of a tree,
_ROUND = 2  # and how much larger the sum of the squared norms of its ends may be, for a cloud in which rounding hides no edge
_VANISHING = {torch.float32: 1e-16, torch.float64: 1e-150}
_PAD = 16  # numbers between rows: columns of a power of two meet in the same lines of the cache


@cache
def kernels() -> Any | None:
    """The compiled loops; None where numba is missing, and, with a warning, where it does not work here."""
    try:
        return import_module("uncone.topology.kernels")
    except ImportError:
        return None
    except Exception as problem:  # a numba that does not fit its numpy or LLVM fails in many ways
        warnings.warn(
            f"numba is installed but fails, so that spanning trees are slower: {type(problem).__name__}: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def spanning_trees(
    points: Tensor, clouds: Clouds, which: list[int], edges: Tensor, lengths: Tensor
) -> list[int]:
    """Write the edges of the clouds `which` and their lengths to where `clouds` has them, shortest first.

    Returns the clouds that are left to do, since their squared distances leave the range of their floats.
    """
    loops = kernels()
    assert loops is not None
    x = points.contiguous().numpy()
    order = np.arange(len(x)) if clouds.order is None else clouds.order.numpy()
    offsets, first = np.array(clouds.offsets), np.array(clouds.first_bars(), np.int64)
    by_difference = [c for c in which if clouds.sizes[c] <= DIRECT_POINTS or x.shape[1] <= _DIRECT_FEATURES]
    left = list[int]()
    if by_difference:
        limit = _VANISHING[points.dtype]
        some = np.array(by_difference)
        if not loops.small_clouds(
            x, order, offsets, first, some, _integer(x), limit, edges.numpy(), lengths.numpy()
        ):
            left += by_difference
    for cloud in sorted(set(which) - set(by_difference)):
        rows = order[offsets[cloud] : offsets[cloud + 1]]
        part = slice(first[cloud], first[cloud] + len(rows) - 1)
        if not _by_product(loops, x, rows, edges[part], lengths[part]):
            left.append(cloud)
    return left


def _by_product(loops: Any, x: Any, rows: Any, edges: Tensor, lengths: Tensor) -> bool:
    """One cloud. Distances whose rounding matters to the tree are taken again by difference, and the tree
    with them."""
    n, dtype = len(rows), lengths.dtype
    centred, norms = memory.recycled((n, x.shape[1]), dtype), np.empty(n, x.dtype)
    loops.centred(x, rows, centred.numpy(), norms)
    if not norms.max() < np.finfo(x.dtype).max / 16:  # products and sums of them may overflow
        return False
    product = memory.recycled((n, n + _PAD), dtype)
    with full_precision():
        _multiply(loops, centred, product)
    table, integer = product.numpy(), _integer(x)
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
    """x x^T to the first n columns: half of it, a block of rows at a time, and the other half by
    mirroring."""
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


def _integer(x: Any) -> Any:
    return np.int32 if x.dtype == np.float32 else np.int64


_lock = threading.Lock()
_inside = 0
_before = ""


@contextmanager
def full_precision() -> Iterator[None]:
    """Ask torch for whole products on the CPU. The setting is the process's: the last of several threads puts
    back what the first one found."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = _change(None)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _change(_before)


def _change(to: str | None) -> str:
    """Set the precision, by default the full one, and give the one before."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if hasattr(matmul, "fp32_precision"):
        before = str(matmul.fp32_precision)
        matmul.fp32_precision = "ieee" if to is None else to
        return before
    before = torch.get_float32_matmul_precision()  # before torch 2.9
    torch.set_float32_matmul_precision("highest" if to is None else to)
    return before
