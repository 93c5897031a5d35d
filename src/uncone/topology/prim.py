"""The minimum spanning tree of one cloud from the product of its points."""

import torch

Tensor = torch.Tensor


def spanning_tree(points: Tensor) -> Tensor:
    """Edges (n - 1, 2) of the Euclidean minimum spanning tree of points (n, D), by Prim's algorithm on squared distances."""
    n = len(points)
    if n < 2:
        return torch.empty(0, 2, dtype=torch.int64, device=points.device)
    x = points - points.mean(0)
    squares = x.square().sum(1)
    distance = torch.addmm(squares[:, None] + squares[None], x, x.T, alpha=-2)
    best, parent = distance[0].clone(), torch.zeros(n, dtype=torch.int64, device=points.device)
    best[0] = torch.inf
    edges = torch.empty(n - 1, 2, dtype=torch.int64, device=points.device)
    done = torch.zeros(n, dtype=torch.bool, device=points.device)
    done[0] = True
    for step in range(n - 1):
        new = best.argmin()
        edges[step, 0], edges[step, 1] = parent[new], new
        done[new] = True
        nearer = (distance[new] < best) & ~done
        best = torch.where(nearer, distance[new], best)
        parent = torch.where(nearer, new, parent)
        best[new] = torch.inf
    return edges
