"""Checks of what penalties are given and what they compute from points."""

import math
from numbers import Real
from typing import Any

import torch

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.training.bars.barcode import check_rows

Tensor = torch.Tensor


def factor(value: Any, name: str, least: float = 0.0) -> float:
    """A finite number from `least` up."""
    if not isinstance(value, Real) or isinstance(value, bool) or not least <= float(value) < math.inf:
        which = "from 0 up" if least == 0 else "that is finite"
        raise InputError(f"expected {name} to be a number {which}, got {shown(value)}: 1 is usual")
    return float(value)


def refuse_unless_finite(value: Tensor, points: Tensor) -> None:
    """Refuse points that are not finite, or that make the value overflow. On a GPU the host waits for the value."""
    if not bool(torch.isfinite(value)):
        check_rows(torch.isfinite(points).all(1))
        raise InputError("expected points whose squares are finite, got larger ones: scale them down")
