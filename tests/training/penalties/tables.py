"""Tables and clouds of random rows, and slow penalties on them."""

import torch

Tensor = torch.Tensor


def table(v: int, d: int, seed: int = 0) -> Tensor:
    """Rows in a cone, in float64."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(v, d, generator=random, dtype=torch.float64) * torch.linspace(2, 0.3, d) + 0.5


def by_pairs(x: Tensor) -> Tensor:
    """The V x V form of MLE-CosReg."""
    unit = x / x.norm(dim=1, keepdim=True)
    cosines = unit @ unit.T
    return cosines[~torch.eye(len(x), dtype=torch.bool)].sum() / len(x) ** 2
