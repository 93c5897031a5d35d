"""Which algorithm finds the tree of which cloud."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

from uncone.errors import InputError
from uncone.topology import boruvka, compiled, one_pass
from uncone.topology.clouds import Clouds
from uncone.topology.one_pass import Progress

Tensor = torch.Tensor
Algorithm = Literal["compiled", "torch", "one pass"]
_forced: ContextVar[Algorithm | None] = ContextVar("_forced", default=None)
LARGEST_DENSE = 8192
"""Points up to which all squared distances of a cloud are kept at once: 256 MiB of them as float32 numbers,
twice that as float64."""


@contextmanager
def forced(algorithm: Algorithm) -> Iterator[None]:
    """Barcodes inside take this algorithm whatever the size and device of the clouds; for tests and
    benchmarks.

    "compiled" is Prim's on all squared distances, by numba's loops; "torch" is Boruvka's on the same, which
    is taken on a GPU and where there is no numba; "one pass" is the one for large clouds, which keeps no
    squared distances.
    """
    token = _forced.set(algorithm)
    try:
        yield
    finally:
        _forced.reset(token)


def shortest_first(points: Tensor, clouds: Clouds, progress: Progress | None = None) -> tuple[Tensor, Tensor]:
    """Edges (M, 2) of the Euclidean minimum spanning tree of each cloud and their lengths (M,).

    Smaller row first; those of one cloud together, in ascending order of (length, smaller row, larger row).
    """
    how, on_cpu = _forced.get(), points.device.type == "cpu"
    edges = points.new_empty(sum(clouds.bars), 2, dtype=torch.int64)
    lengths = points.new_empty(len(edges))
    left = [c for c, size in enumerate(clouds.sizes) if size > 1]
    large = [c for c in left if how == "one pass" or (how is None and clouds.sizes[c] > LARGEST_DENSE)]
    for turn, cloud in enumerate(large):
        rows = clouds.rows(cloud)
        told = _numbered(progress, turn, len(large))
        tree = one_pass.spanning_tree(points if len(rows) == len(points) else points[rows], progress=told)
        boruvka.place(points, clouds, [cloud], rows[tree][None], None, edges, lengths)
    left = [c for c in left if c not in set(large)]
    if how == "compiled" and compiled.kernels() is None:
        raise InputError(
            "expected numba for the compiled algorithm, found none that works: pip install 'uncone[topology]'"
        )
    if how in (None, "compiled") and on_cpu and compiled.kernels() is not None:
        left = compiled.spanning_trees(points, clouds, left, edges, lengths)
    boruvka.spanning_trees(points, clouds, left, edges, lengths, exact=on_cpu)
    return edges, lengths


def _numbered(progress: Progress | None, turn: int, turns: int) -> Progress | None:
    """`progress` that hears which of several trees it is."""
    if progress is None or turns == 1:
        return progress
    return lambda what, done, total: progress(f"{what} {turn + 1} of {turns}", done, total)
