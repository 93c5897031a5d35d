"""Merge the moments of torch.distributed ranks, such as `torchrun` starts."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from uncone.errors import InputError
from uncone.rows.parts import Fold

M = TypeVar("M")
_PIECE = 2**28  # bytes sent at once


def merged(
    own: M, to_bytes: Callable[[M], bytes], from_bytes: Callable[[bytes], M], kinds: dict[str, Any], group: Any
) -> M:
    """The sum of `own` over the ranks of `group`: the first rank merges them in order and sends the sum to all."""
    if not (dist.is_available() and dist.is_initialized()):
        raise InputError(
            "expected ranks of torch.distributed, got none: start them with torchrun and init_process_group"
        )
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise InputError("expected a group that this rank is in, got another: give each rank its own group")
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, kinds, group=group)
    for number, other in enumerate(every):  # on every rank, so that no rank waits for ever
        if other != every[0]:
            raise InputError(f"expected the same moments on all ranks, got {every[0]} on 0 and {other} on {number}")
    is_nccl = dist.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")
    place = [number if group is None else dist.get_global_rank(group, number) for number in range(ranks)]
    if rank:
        _send(to_bytes(own), place[0], device, group)
        return from_bytes(_broadcast(b"", place[0], device, group))
    fold = Fold[Any](lambda one, other: one.absorb(other))
    fold.add(from_bytes(to_bytes(own)))
    for number in range(1, ranks):
        fold.add(from_bytes(_received(place[number], device, group)))
    return from_bytes(_broadcast(to_bytes(fold.result()), place[0], device, group))


def _tensor(content: bytes, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy()).to(device)


def _send(content: bytes, to: int, device: torch.device, group: Any) -> None:
    dist.send(torch.tensor([len(content)], device=device), to, group=group)
    for piece in torch.split(_tensor(content, device), _PIECE):
        dist.send(piece, to, group=group)


def _received(of: int, device: torch.device, group: Any) -> bytes:
    size = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(size, of, group=group)
    content = torch.empty(int(size), dtype=torch.uint8, device=device)
    for piece in torch.split(content, _PIECE):
        dist.recv(piece, of, group=group)
    return content.cpu().numpy().tobytes()


def _broadcast(content: bytes, of: int, device: torch.device, group: Any) -> bytes:
    size = torch.tensor([len(content)], device=device)
    dist.broadcast(size, of, group=group)
    made = _tensor(content, device) if content else torch.empty(int(size), dtype=torch.uint8, device=device)
    for piece in torch.split(made, _PIECE):
        dist.broadcast(piece, of, group=group)
    return made.cpu().numpy().tobytes()
