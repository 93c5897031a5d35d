"""The loss of a head against its rank: V 16,384, D 256, 8 ranks, 200,000 states, all methods (the bar: 5 minutes on two cores)."""

import time
from functools import cache

import torch
from measured import Row, product_rate, run

from uncone.model.last_states import States
from uncone.saturation.head.rank.rank_curve import rank_curve

V, D, N = 16384, 256, 200_000
RANKS = (8, 16, 32, 64, 96, 128, 192, 256)


@cache
def _states() -> States:
    torch.manual_seed(0)
    head, x = 0.15 * torch.randn(V, D), torch.randn(N, D)
    labels = torch.cat([torch.multinomial(torch.softmax(part @ head.T, 1), 1)[:, 0] for part in torch.split(x, 1000)])
    return States(x, labels, head, None, None, 1.0, "made", torch.zeros(N, dtype=torch.int64))


def floor():
    """Sleeps for as long as one product of all states with the head takes at the rate measured now."""
    duration = 2 * V * D * N / product_rate()
    return lambda: time.sleep(duration)


def truncations():
    states = _states()
    return lambda: rank_curve(states, ranks=RANKS, refits=False)


def all_methods():
    states = _states()
    return lambda: rank_curve(states, ranks=RANKS)


ROWS = [
    Row("floor: one full product at the measured rate", floor, repeats=1, memory=False),
    Row("truncations, whole text and bounds", truncations, repeats=1, memory=False),
    Row("all methods", all_methods, repeats=1, memory=False),
]

if __name__ == "__main__":
    title = "Loss against rank: V 16,384, D 256, 8 ranks, 200,000 states"
    run(
        __file__, title, ROWS, repeats=1, columns=[("floor", ROWS[0].name)], notes="The bar is 300 s on two idle cores."
    )
