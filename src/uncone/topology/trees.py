"""Which algorithm finds the tree of which cloud."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

from uncone.errors import InputError
from uncone.topology import boruvka_batched, compiled, prim
from uncone.topology.clouds import Clouds
from uncone.topology.lengths import measured

Tensor = torch.Tensor
Algorithm = Literal["compiled", "torch"]
_forced: ContextVar[Algorithm | None] = ContextVar("_forced", default=None)


@contextmanager
def forced(algorithm: Algorithm) -> Iterator[None]:
    """Barcodes inside take this algorithm whatever their size and device: "compiled" or "torch". For tests and benchmarks."""
    token = _forced.set(algorithm)
    try:
        yield
    finally:
        _forced.reset(token)


def shortest_first(points: Tensor, clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Edges (M, 2) of the Euclidean minimum spanning tree of each cloud and their lengths (M,).

    Smaller row first; those of one cloud together, in ascending order of (length, smaller row, larger row).
    """
    if _forced.get() is None and boruvka_batched.suits(points, clouds):
        return boruvka_batched.shortest_first(points, clouds)
    total = sum(clouds.bars)
    edges, lengths = points.new_empty(total, 2, dtype=torch.int64), points.new_empty(total)
    which = [c for c, size in enumerate(clouds.sizes) if size > 1]
    if _forced.get() == "compiled" and compiled.kernels() is None:
        raise InputError("expected numba for the compiled algorithm, found none that works: pip install 'uncone[topology]'")
    if _forced.get() != "torch" and points.device.type == "cpu" and compiled.kernels() is not None:
        which = compiled.spanning_trees(points, clouds, which, edges, lengths)
    begins = clouds.first_bars() if which else []
    for cloud, tree in prim.spanning_trees(points, clouds, which):
        part = slice(begins[cloud], begins[cloud] + len(tree))
        edges[part], lengths[part] = _ordered(points, tree)
    return edges, lengths


def _ordered(points: Tensor, tree: Tensor) -> tuple[Tensor, Tensor]:
    edges = tree.sort(1).values
    lengths = measured(points, edges)
    order = torch.sort(edges[:, 0] * len(points) + edges[:, 1]).indices
    order = order[torch.sort(lengths[order], stable=True).indices]
    return edges[order], lengths[order]
