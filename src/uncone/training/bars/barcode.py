"""The H0 barcode of a cloud, with a gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from uncone.errors import InputError
from uncone.roles import Progress
from uncone.training.bars.clouds import INTEGERS, Clouds, floats, group_of_each, integers, kind, whole_as_floats
from uncone.training.bars.lengths import differentiable
from uncone.training.bars.trees import shortest_first

Tensor = torch.Tensor


@dataclass(frozen=True)
class Barcode:
    """The finite bars of one cloud or of several: all are born at 0, and die at their length.

    Bars of one group are consecutive, ascending by (length, smaller row, larger row); the groups ascend by label.
    """

    lengths: Tensor  # (M,), differentiable, in the unit of the points; float32, or float64 where the points are
    edges: Tensor  # (M, 2) int64, the rows of `points` that each edge joins, smaller first; of (B n, D) for (B, n, D)
    bars: Tensor  # (G,) int64, how many bars each group has: its points less one, or 0; (1,) without groups
    labels: Tensor  # (G,) the label of each group; 0 to B - 1 for points (B, n, D); (1,) zero without groups

    def __repr__(self) -> str:
        size = f"{len(self.lengths):,} bars in {len(self.bars):,} group{'s' * (len(self.bars) != 1)}"
        ends = self.lengths.detach().aminmax() if len(self.lengths) else ()
        return f"Barcode({size}{', lengths ' * bool(ends)}{' to '.join(f'{float(end):.4g}' for end in ends)})"

    @cached_property
    def group(self) -> Tensor:
        return group_of_each(self.bars, len(self.lengths))

    @property
    def zero(self) -> Tensor:  # (G,) bars of length 0: repeated points
        return torch.zeros_like(self.bars).scatter_add_(0, self.group, (self.lengths == 0).long())

    def split(self) -> Iterator[Tensor]:
        return iter(torch.split(self.lengths, self.bars.tolist()))


def barcode(points: Any, groups: Any = None, *, progress: Progress | None = None) -> Barcode:
    """The H0 barcode of a Vietoris-Rips filtration: the edges of the Euclidean minimum spanning tree.

    An edge enters at its length (the diameter convention of ripser and gudhi). The essential bar is left out. Ties go
    by the smaller row, then the larger; lengths do not depend on it. `dl/dx_a = (x_a - x_b) / l = -dl/dx_b` for an edge
    (a, b) of length l, and 0 where l is 0.

    Args:
        points: (N, D) numbers, a tensor, array or list (integers become float64), or (B, n, D) for B clouds of n
            points. Computed in float32 or better, also under autocast; lengths by direct difference.
        groups: (N,) integers, a tensor, array or list: points with the same value are a cloud. None is one cloud.
        progress: called with ("spanning tree", pairs done, pairs) for a cloud too large to keep all its distances.

    Raises:
        InputError: another shape or dtype, points that are not finite, or too far apart for their dtype; in a cloud of
            more than 8,192 points in float64, distances whose quotient is above 1e300. Distances on a GPU are not
            checked, nor points while a CUDA graph is captured.

    Reads badly when: on a GPU, two points of a cloud of up to 8,192 are 1e7 times nearer to each other than to most
    others: the float64 product that gives distances there cannot separate them, and may join them by longer edges.
    """
    points, groups = whole_as_floats(floats(points)), integers(groups)
    check_points(points, "(N, D) or (B, n, D)")
    if groups is not None:
        _check_groups(points, groups)
    with torch.autocast(points.device.type, enabled=False):
        x = (points if points.dtype == torch.float64 else points.float()).flatten(0, -2)
        if groups is None:
            count, size = points.shape[:-1] if points.ndim == 3 else (1, len(points))
            sizes, order, labels = [size] * count, None, torch.arange(count, device=points.device)
        else:
            ordered, order = torch.sort(groups, stable=True)
            labels, counts = torch.unique_consecutive(ordered, return_counts=True)
            sizes = counts.tolist()
        clouds = Clouds(x.detach(), sizes, order)
        with torch.no_grad():
            edges, lengths = shortest_first(clouds, progress)
            if x.device.type == "cpu":
                check_distances(lengths, edges)
        return Barcode(differentiable(x, edges, lengths), edges, clouds.bar_counts(), labels)


def check_distances(lengths: Tensor, edges: Tensor) -> None:
    if bool(torch.isfinite(lengths.sum())):
        return
    far = edges[~torch.isfinite(lengths)]
    if len(far):  # else the sum alone has overflowed
        a, b = far[0].tolist()
        got = f"got rows {a} and {b} further apart: scale the points down"
        most = torch.finfo(lengths.dtype).max
        raise InputError(f"expected distances up to {most:.2g}, the largest {lengths.dtype}, {got}")


def check_points(points: object, shapes: str = "(N, D)") -> None:
    if isinstance(points, Tensor) and points.layout != torch.strided:
        raise InputError(f"expected points in a dense tensor, got {points.layout}: pass points.to_dense()")
    dimensions = (2, 3) if "B" in shapes else (2,)
    if not isinstance(points, Tensor) or points.ndim not in dimensions or not points.is_floating_point():
        raise InputError(f"expected points of shape {shapes} with floats, got {kind(points)}: pass one row per point")
    if points.is_meta:
        raise InputError("expected points with values, got a tensor on meta, which has none: load them first")
    if points.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # a graph cannot check; NaN then gives NaN
    wide = torch.float64 if points.dtype == torch.float64 else torch.float32
    if not bool(torch.isfinite(points.sum(dtype=wide))):  # a point is not finite, or the sum alone overflowed
        check_rows(torch.isfinite(points).all(-1).flatten())


def _check_groups(points: Tensor, groups: object) -> None:
    if points.ndim == 3:
        raise InputError("expected points (N, D) with groups, got (B, n, D): leave groups out")
    if not isinstance(groups, Tensor) or groups.dtype not in (*INTEGERS, torch.bool):
        given = groups.dtype if isinstance(groups, Tensor) else type(groups).__name__
        raise InputError(f"expected groups as a tensor of integers, got {given}: number the classes")
    if groups.shape != points.shape[:1]:
        raise InputError(f"expected groups of shape ({len(points)},), got {tuple(groups.shape)}: label each point")
    if groups.device != points.device:
        raise InputError(f"expected groups on {points.device}, where the points are, got {groups.device}: move one")


def check_rows(finite: Tensor) -> None:
    if not bool(finite.all()):
        first, count = int((~finite).nonzero()[0]), int((~finite).sum())
        got = f"got NaN or infinity in row {first} ({count} of {len(finite)} rows): look for what made them"
        raise InputError(f"expected finite points, {got}")
