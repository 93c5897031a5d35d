"""The H0 barcode of a cloud: the lengths of its Euclidean minimum spanning tree, with a gradient."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from uncone.errors import InputError
from uncone.topology.lengths import edge_lengths
from uncone.topology.prim import spanning_tree

Tensor = torch.Tensor


@dataclass(frozen=True)
class Barcode:
    """The finite bars of one cloud or of several: all are born at 0, and die at their length.

    Bars of one group lie together, in ascending order of length (of the first, then of the second end where lengths are equal); the groups are in ascending
    order of their label.
    """

    lengths: Tensor
    """(M,), in the unit of the points; float32, or float64 where the points are. Differentiable."""
    edges: Tensor
    """(M, 2) int64, the two rows of `points` that each bar's edge joins, the smaller one first."""
    bars: Tensor
    """(G,) int64, how many bars each group has: its number of points less one. One group where none were given."""
    labels: Tensor
    """(G,) the label of each group, as given; (1,) zero where none were given."""

    @property
    def zero(self) -> Tensor:
        """How many bars have length 0 in each group (G,): each is a point that is there already."""
        group = torch.repeat_interleave(torch.arange(len(self.bars), device=self.bars.device), self.bars)
        return torch.zeros_like(self.bars).index_add_(0, group, (self.lengths == 0).to(self.bars.dtype))

    def split(self) -> Iterator[Tensor]:
        """The lengths of each group."""
        return iter(torch.split(self.lengths, self.bars.tolist()))


def barcode(points: Tensor, groups: Tensor | None = None) -> Barcode:
    """The H0 barcode of a Vietoris-Rips filtration: the n - 1 edges of the Euclidean minimum spanning tree.

    An edge enters at its length (the diameter convention of ripser and gudhi). The essential bar is left out.

    Args:
        points: (N, D), floating point; computed in float32 or better, whatever autocast says.
        groups: (N,) integers: points of one value are a cloud of their own. None is one cloud.

    Raises:
        InputError: another shape or dtype, or points that are not finite.
    """
    if points.ndim != 2 or not points.is_floating_point():
        raise InputError(
            f"expected points of shape (N, D) with floating point numbers, got {tuple(points.shape)} of {points.dtype}: pass one row per point"
        )
    if not bool(torch.isfinite(points).all()):
        raise InputError("expected finite points, got NaN or infinity: look for what made them before taking a barcode")
    with torch.autocast(points.device.type, enabled=False):
        x = points if points.dtype == torch.float64 else points.float()
        members = [torch.arange(len(x), device=x.device)]
        labels = torch.zeros(1, dtype=torch.int64, device=x.device)
        if groups is not None:
            labels, inverse = torch.unique(groups, return_inverse=True)
            members = [(inverse == g).nonzero().flatten() for g in range(len(labels))]
        lengths, edges = list[Tensor](), list[Tensor]()
        for rows in members:
            tree = rows[spanning_tree(x.detach()[rows])].sort(1).values
            length = edge_lengths(x, tree)
            order = torch.sort(length.detach(), stable=True).indices
            lengths.append(length[order])
            edges.append(tree[order])
        bars = torch.tensor([len(one) for one in edges], device=x.device)
        return Barcode(torch.cat(lengths), torch.cat(edges), bars, labels)
