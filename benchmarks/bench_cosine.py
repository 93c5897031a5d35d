"""The exact mean cosine against samples of pairs."""

import numpy as np
import torch
from measured import Row, run

from matrices import on_tensor
from uncone import Moments, measure

PAIRS = 100_000


def sampled(x: torch.Tensor) -> float:
    """100,000 random pairs at once: an estimate with a standard error, not the value."""
    i, j = torch.randint(len(x), (2, PAIRS))
    return float(torch.nn.functional.cosine_similarity(x[i], x[j], dim=1).mean())


def looped(x: np.ndarray) -> float:
    """The published loop: one pair after another."""
    random = np.random.default_rng(0)
    total = 0.0
    for _ in range(PAIRS):
        a, b = x[random.integers(len(x))], x[random.integers(len(x))]
        total += float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return total / PAIRS


ROWS = [
    Row(
        "uncone mean_cosine, exact over all 1.26e9 pairs",
        lambda: on_tensor(lambda x: float(measure.mean_cosine(Moments.of(x, second=False)))),
    ),
    Row("100,000 random pairs, vectorised (torch)", lambda: on_tensor(sampled)),
    Row("100,000 random pairs, published loop", lambda: on_tensor(lambda x: looped(x.numpy())), repeats=3),
]

if __name__ == "__main__":
    run(__file__, "Mean cosine on 50257 x 768 float32", ROWS, repeats=9, columns=[("uncone", ROWS[0].name)])
