"""Which bars stand out: the selection of Atienza, Gonzalez-Diaz and Rucco (2019)."""

import math
from typing import Literal

import torch

Tensor = torch.Tensor
Convention = Literal["official", "exclusive"]


def prominent_bars(lengths: Tensor, *, convention: Convention = "official") -> int:
    """How many of the longest bars are features and not noise.

    Args:
        lengths: (m,), in any order; bars of length 0 are left out.
        convention: "official" keeps the bar at which the test stops, as the code of "Shrink the longest" does; "exclusive" does not.
    """
    bars = torch.sort(lengths.detach().double()[lengths.detach() > 0], descending=True).values
    n = len(bars)
    if n < 4:
        return n
    longest, shortest = float(bars[0]), float(bars[-1])
    alpha = shortest / longest
    body = bars[1:-1]
    while True:
        tail = torch.cat([body, bars[-1:], bars[:1]]) if n != len(bars) else torch.cat([bars[1:], bars[:1]])
        mass = tail.flip(0).cumsum(0).flip(0)
        weighted = (tail * tail.log()).flip(0).cumsum(0).flip(0)
        index = torch.arange(len(tail), dtype=torch.float64)
        total = mass + index * (weighted / mass).exp()
        total[0] = mass[0]
        steps = total[: n - 2]  # S'_0 to S'_(n-3)
        below = (steps[:-1] / steps[1:] < 1).nonzero().flatten()
        i = int(below[0]) + 1 if len(below) else n - 3
        bound = math.ceil(n * alpha * (alpha - 1 - math.log(alpha)) / (1 - alpha) ** 2) if alpha < 1 else math.inf
        if i <= bound:
            return i + 1 if convention == "official" else i
        body, n = body[:i], i + 2
