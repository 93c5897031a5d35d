"""Which algorithm finds the tree of which cloud."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

from uncone.errors import InputError
from uncone.topology import boruvka_batched, compiled, one_pass, prim
from uncone.topology.clouds import Clouds
from uncone.topology.lengths import measured
from uncone.topology.one_pass import Progress

Tensor = torch.Tensor
Algorithm = Literal["compiled", "torch", "one pass", "fixed rounds"]
_forced: ContextVar[Algorithm | None] = ContextVar("_forced", default=None)
LARGEST_DENSE = 8192
"""Points up to which all squared distances of a cloud are kept at once: 256 MiB of them as float32 numbers, twice that as float64."""


@contextmanager
def forced(algorithm: Algorithm) -> Iterator[None]:
    """Barcodes inside take this algorithm whatever the size and device of the clouds; for tests and benchmarks.

    "compiled" and "torch" are Prim's on all squared distances, by numba's loops or without them; "fixed rounds" is Boruvka's on
    the same, which waits for no device; "one pass" is the one for large clouds, which keeps no squared distances.
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
    how = _forced.get()
    if how is None and boruvka_batched.suits(points, clouds):
        return boruvka_batched.shortest_first(points, clouds)
    total = sum(clouds.bars)
    edges, lengths = points.new_empty(total, 2, dtype=torch.int64), points.new_empty(total)
    left = [c for c, size in enumerate(clouds.sizes) if size > 1]
    large = [c for c in left if how == "one pass" or (how is None and clouds.sizes[c] > LARGEST_DENSE)]
    for turn, cloud in enumerate(large):
        rows = clouds.rows(cloud)
        told = _numbered(progress, turn, len(large))
        tree = rows[
            one_pass.spanning_tree(points if len(rows) == len(points) else points[rows], progress=told)
        ]
        _place(
            points,
            clouds,
            [cloud],
            tree[None],
            torch.ones_like(tree[None, :, 0], dtype=torch.bool),
            (edges, lengths),
        )
    left = [c for c in left if c not in set(large)]
    if how == "compiled" and compiled.kernels() is None:
        raise InputError(
            "expected numba for the compiled algorithm, found none that works: pip install 'uncone[topology]'"
        )
    if how in (None, "compiled") and points.device.type == "cpu" and compiled.kernels() is not None:
        left = compiled.spanning_trees(points, clouds, left, edges, lengths)
    waits = points.device.type == "cpu" and how != "fixed rounds"
    for batch, trees, inside in prim.spanning_trees(points, clouds, left, steps=waits):
        _place(points, clouds, batch, trees, inside, (edges, lengths))
    return edges, lengths


def _numbered(progress: Progress | None, turn: int, turns: int) -> Progress | None:
    """`progress` that hears which of several trees it is."""
    if progress is None or turns == 1:
        return progress
    return lambda what, done, total: progress(f"{what} {turn + 1} of {turns}", done, total)


def _place(
    points: Tensor, clouds: Clouds, batch: list[int], trees: Tensor, inside: Tensor, to: tuple[Tensor, Tensor]
) -> None:
    """Measure edges (b, n - 1, 2) of a `batch` of clouds, those `inside` (b, n - 1) only, and write them to where `clouds` has them, shortest first."""
    edges, lengths = to
    begins = clouds.first_bars()
    begin = torch.tensor([begins[c] for c in batch], device=points.device)[:, None]
    found, cloud = trees[inside], begin.expand(inside.shape)[inside]
    measures = measured(points, found)
    order = torch.sort(found[:, 0] * len(points) + found[:, 1]).indices
    for key in (measures, cloud):
        order = order[torch.sort(key[order], stable=True).indices]
    place = (begin + torch.arange(inside.shape[1], device=points.device))[inside].sort().values
    edges[place], lengths[place] = found[order], measures[order]
