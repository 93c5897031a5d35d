"""Weights of rows, checked and cut on the grid."""

from collections.abc import Iterator
from typing import Any

import torch

from uncone.errors import InputError
from uncone.rows import GRID

Tensor = torch.Tensor


def weight_blocks(weights: Any, n: int) -> Iterator[Tensor | None]:
    """`weights` cut on the grid (None for each block when there are none).

    Raises:
        InputError: another length, negative, not finite, or all zero.
    """
    if weights is None:
        while True:
            yield None
    w = torch.as_tensor(weights).to(torch.float64)
    if w.shape != (n,):
        raise InputError(f"expected weights of shape ({n},), got {tuple(w.shape)}: give one weight a row")
    if not bool(torch.isfinite(w).all()) or float(w.min()) < 0 or not 0 < float(w.sum()) < torch.inf:
        raise InputError(
            f"expected finite weights from 0 up with a positive sum that is finite, got a smallest of {float(w.min())} and a sum of "
            f"{float(w.sum())}: pass counts or probabilities"
        )
    for start in range(0, n, GRID):
        yield w[start : start + GRID]
