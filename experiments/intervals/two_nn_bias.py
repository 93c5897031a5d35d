"""What does TwoNN read on clouds of known dimension, at several numbers of rows?

    python experiments/intervals/two_nn_bias.py

Rows spread evenly over a ball, and Gaussian rows, whose density falls outwards. Every mean reading, over as many draws as give 4,000 rows their
neighbours, goes to src/uncone/measure/two_nn_bias.csv, where `two_nn` looks up which dimension reads as the rows do.
"""

import csv
from pathlib import Path

import numpy as np

from uncone import measure

TABLE = Path(__file__).parents[2] / "src/uncone/measure/two_nn_bias.csv"
ROWS = (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
DIMENSIONS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)
ASKED = 4000


def cloud(random: np.random.Generator, n: int, d: int, *, ball: bool) -> np.ndarray:
    x = random.standard_normal((n, d), np.float32)
    if ball:
        x *= (random.random((n, 1)) ** (1 / d) / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    return x


def main() -> None:
    random = np.random.default_rng(0)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("rows", "dimensions", "ball", "gaussian"))
        for n in ROWS:
            for d in DIMENSIONS:
                means = []
                for ball in (True, False):
                    sample = min(n, ASKED if n < 100_000 else ASKED // 2)
                    draws = max(1, ASKED // sample)
                    found = [measure.two_nn(cloud(random, n, d, ball=ball), sample=sample) for _ in range(draws)]
                    # of all draws together: the mean of ln(r_2 / r_1) has no bias, its inverse has
                    means.append(1 / np.mean([1 / float(one) for one in found]))
                writer.writerow((n, d, *(f"{one:.3f}" for one in means)))
                file.flush()


if __name__ == "__main__":
    main()
