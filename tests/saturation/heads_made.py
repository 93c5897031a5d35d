"""States made by hand: a head whose rank is known, and labels drawn from what it predicts."""

import torch

from uncone.model.last_states import States

Tensor = torch.Tensor


def made(
    n: int = 4000,
    v: int = 60,
    d: int = 16,
    *,
    rank: int | None = None,
    cap: float | None = None,
    bias: bool = False,
    scale: float = 1.0,
    size: float = 3.0,
    seed: int = 0,
    labels: bool = True,
) -> States:
    """A head (v, d) of `rank`, its centred singular values near each other, and labels drawn from its probabilities."""
    random = torch.Generator().manual_seed(seed)
    left = torch.randn(v, d, generator=random, dtype=torch.float64)
    left = torch.linalg.qr(left - left.mean(0))[0]
    right = torch.linalg.qr(torch.randn(d, d, generator=random, dtype=torch.float64))[0]
    kept = d if rank is None else rank
    head = (left[:, :kept] * torch.linspace(1.2, 0.8, kept) @ right[:kept] * size * (v / kept) ** 0.5).float()
    x = torch.randn(n, d, generator=random)
    shift = torch.randn(v, generator=random) if bias else None
    z = scale * x @ head.T + (0 if shift is None else shift)
    z = z if cap is None else cap * torch.tanh(z / cap)
    drawn = torch.multinomial(torch.softmax(z, 1), 1, generator=random)[:, 0]
    if not labels:
        drawn = torch.randint(0, v, (n,), generator=random)
    return States(x, drawn, head, shift, cap, scale, "made", torch.zeros(n, dtype=torch.int64))
