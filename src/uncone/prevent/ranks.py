"""One cloud of the points of all ranks, with the gradient that a single process would have."""

from typing import Any

import torch
import torch.distributed as dist

from uncone.errors import InputError

Tensor = torch.Tensor


class _Scaled(torch.autograd.Function):
    """The points as they are, and their gradient times `factor`."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, factor: int) -> Tensor:
        ctx.factor = factor
        return points.view_as(points)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


def world(group: Any = None) -> int:
    """How many ranks share the work; 1 where torch.distributed is not in use."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the rank that writes files, the first of all."""
    return world() == 1 or dist.get_rank() == 0


def joined(
    points: Tensor, labels: Tensor | None, part: Tensor, group: Any = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The points (sum of N, D) and labels of all ranks in their order, and the mean of their parts.

    Every rank sees the same cloud. Gradients reach a rank's own points only, times the number of ranks: the mean over ranks that DDP and FSDP take of
    gradients then is the gradient of one process with the joined batch. Ranks may have different numbers of points.

    Raises:
        InputError: a group that this rank is not in.
    """
    ranks = world(group)
    if ranks < 1:
        raise InputError(
            "expected a group of torch.distributed that this rank is in, got another: give each rank its own group"
        )
    if ranks == 1:
        return points, labels, part
    about = torch.stack(
        [torch.tensor(float(len(points)), device=points.device), part.to(points.device).float()]
    )
    every = torch.empty(ranks, 2, dtype=about.dtype, device=about.device)
    dist.all_gather_into_tensor(every.view(-1), about, group=group)
    sizes = [int(n) for n in every[:, 0].tolist()]
    own = dist.get_rank(group)
    clouds = _gathered(points.detach(), sizes, group)
    clouds[own] = _Scaled.apply(points, ranks)  # type: ignore[no-untyped-call]
    classes = None if labels is None else torch.cat(_gathered(labels, sizes, group))
    return torch.cat(clouds), classes, every[:, 1].mean()


def _gathered(x: Tensor, sizes: list[int], group: Any) -> list[Tensor]:
    """Each rank's rows."""
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x
    every = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(every, padded, group=group)
    return [rows[:n] for rows, n in zip(every, sizes, strict=True)]
