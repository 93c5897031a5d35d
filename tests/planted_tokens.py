"""Token tables with known untrained rows, made from a seed: the material for finding them again."""

from dataclasses import dataclass

import torch

from .matrices import gaussian

Tensor = torch.Tensor


@dataclass(frozen=True)
class Planted:
    """A table with its tokens: `unused` rows are reserved by name, `planted` rows are untrained and are not."""

    table: Tensor
    labels: list[str]
    unused: Tensor
    planted: Tensor


def plant(
    *,
    n: int = 4000,
    d: int = 64,
    reserved: int = 10,
    planted: int = 40,
    drift: float = 0.0,
    seed: int = 0,
    pull: float = 0.6,
) -> Planted:
    """A head in which untrained rows were pushed to one point: `pull` along it, and 0.4 of an ordinary row beside it.

    Ordinary rows have a length near 1. `drift` is added to all rows along another direction.
    """
    unused, hidden = _places(n, reserved, planted, seed)
    x = gaussian(n, d, seed=seed) / d**0.5
    point = torch.nn.functional.normalize(gaussian(1, d, seed=seed + 1000), dim=1)
    for rows in (unused, hidden):
        x[rows] = 0.4 * x[rows] + pull * point
    x += drift * torch.nn.functional.normalize(gaussian(1, d, seed=seed + 2000), dim=1)
    return Planted(x, _labels(n, unused), unused, hidden)


def plant_short(*, n: int = 4000, d: int = 64, reserved: int = 10, planted: int = 40, seed: int = 0) -> Planted:
    """An input table of its own: untrained rows kept their small start, a fifth of the length of the others."""
    unused, hidden = _places(n, reserved, planted, seed)
    x = gaussian(n, d, seed=seed) / d**0.5
    x[torch.cat([unused, hidden])] *= 0.2
    return Planted(x, _labels(n, unused), unused, hidden)


def _places(n: int, reserved: int, planted: int, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[:reserved].sort().values, order[reserved : reserved + planted].sort().values


def _labels(n: int, unused: Tensor) -> list[str]:
    reserved = set(unused.tolist())
    return [f"[unused{i}]" if i in reserved else f"token{i}" for i in range(n)]
