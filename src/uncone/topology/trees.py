"""Which algorithm finds the trees of which clouds."""

import torch

from uncone.topology import prim
from uncone.topology.clouds import Clouds
from uncone.topology.lengths import measured

Tensor = torch.Tensor


def shortest_first(points: Tensor, clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Edges (M, 2) of the Euclidean minimum spanning tree of each cloud and their lengths (M,).

    Smaller row first; those of one cloud together, in ascending order of (length, smaller row, larger row).
    """
    edges = prim.spanning_trees(points, clouds)
    lengths = measured(points, edges)
    every = torch.arange(len(clouds.sizes), device=points.device)
    cloud = torch.repeat_interleave(every, clouds.bar_counts(), output_size=len(edges))
    order = torch.arange(len(edges), device=points.device)
    for key in (edges[:, 1], edges[:, 0], lengths, cloud):
        order = order[torch.sort(key[order], stable=True).indices]
    return edges[order], lengths[order]
