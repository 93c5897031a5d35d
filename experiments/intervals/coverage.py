"""How often does the 95% interval of a reading hold what it is for?

    python experiments/intervals/coverage.py [DRAWS]

Of each cloud and shape rows are drawn again and again (500 times, or DRAWS). Three shares are counted: of draws whose reading has an interval; of
these, of intervals that hold the mean reading of all draws; and of those that hold the reading of 300,000 rows, which few rows read with a bias of
their own. Of I(W) the last is that of the same directions, known of Gaussian clouds only. A logarithm is averaged as such. The tables go to
results/coverage.md.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from uncone import measure
from uncone.moments import drawn
from uncone.records.parts import Measurement

RESULTS = Path(__file__).parent / "results" / "coverage.md"
D = 32
SHAPES = ((64, 8192), (320, 8192), (3200, 8192), (3200, 320))  # rows, and how many of them are kept
READINGS = (
    "mean_cosine", "mean_shift", "rogue_dimensions", "dominant_dimension", "isoscore", "isoscore_debiased", "isoscore_star",
    "participation_ratio", "participation_ratio_debiased", "effective_rank", "rankme", "stable_rank", "stable_rank_centered",
    "anisotropy_1", "anisotropy_1_raw", "singular_entropy", "singular_entropy_raw", "condition_number", "uniformity",
    "gaussian_isotropy", "partition_isotropy", "norm_id_correlation",
)  # fmt: skip
EVEN, POWER = np.ones(D), np.arange(1, D + 1) ** -0.5
MEAN = np.zeros(D)
CONE = MEAN + 2 * (np.arange(D) == 0) + 1 * (np.arange(D) == D // 2)
GAUSSIAN = {
    "even": (EVEN, MEAN),
    "power law": (POWER, MEAN),
    "cone": (np.sqrt(POWER), CONE),
    "clustered spectrum": (np.where(np.arange(D) < D // 4, 2.0, 0.5), MEAN),
    "loud feature": (np.where(np.arange(D) == 0, 10.0, 1.0), MEAN),
}
CENTRES = np.random.default_rng(1).standard_normal((5, D)) * 0.5
Cloud = Callable[[np.random.Generator, int], np.ndarray]


def gaussian(scales: np.ndarray, mean: np.ndarray) -> Cloud:
    return lambda random, n: random.standard_normal((n, D)) * scales + mean


def heavy(degrees: int) -> Cloud:
    """Rows of Student's t: every row is a Gaussian one of a random length."""
    return lambda random, n: (
        gaussian(np.sqrt(POWER), MEAN)(random, n) * np.sqrt(degrees / random.chisquare(degrees, (n, 1))) + 0.2
    )


def clusters(random: np.random.Generator, n: int) -> np.ndarray:
    return 0.5 * random.standard_normal((n, D)) + CENTRES[random.integers(0, len(CENTRES), n)]


CLOUDS: dict[str, Cloud] = {name: gaussian(*of) for name, of in GAUSSIAN.items()}
CLOUDS |= {"clusters": clusters, "t, 5 degrees": heavy(5), "t, 3 degrees": heavy(3)}


def log_isotropy(x: np.ndarray, scales: np.ndarray, mean: np.ndarray) -> float:
    """ln I(W) of a Gaussian cloud along the directions that these rows choose."""
    products = x @ (axes := np.linalg.eigh(x.T @ x)[1])
    both = np.log(np.concatenate([np.exp(products), np.exp(-products)], axis=1).mean(0))
    linear, quadratic = mean @ axes, 0.5 * np.square(scales) @ np.square(axes)
    truth = np.concatenate([linear, -linear]) + np.tile(quadratic, 2)
    return float(truth[both.argmin()] - truth[both.argmax()])


def held(readings: list[Measurement], target: float | list[float]) -> float:
    """The share of intervals that hold the target, or each its own."""
    targets = target if isinstance(target, list) else [target] * len(readings)
    given = [(one.interval, at) for one, at in zip(readings, targets, strict=True) if one.interval]
    return float(np.mean([low <= at <= high for (low, high), at in given])) if given else math.nan


@cache
def of_many(name: str) -> measure.everything.Readings:
    return measure.all(CLOUDS[name](np.random.default_rng(8), 300_000))


def one_cloud(name: str, n: int, draws: int) -> dict[str, tuple[float, float, float]]:
    random, found, along = np.random.default_rng(7), dict[str, list[Measurement]](), list[float]()
    for _ in range(draws):
        x = CLOUDS[name](random, n)
        for reading, one in measure.all(x).items():
            if one.value is not None:
                found.setdefault(reading, []).append(one)
        if name in GAUSSIAN:
            along.append(math.exp(log_isotropy(x, *GAUSSIAN[name])))
    large = of_many(name)
    table = {}
    for reading in READINGS:
        taken = found.get(reading, [])
        if len(taken) < draws // 10:
            continue
        values = np.array([float(one) for one in taken])
        mean = float(np.exp(np.log(values).mean()) if reading == "gaussian_isotropy" else values.mean())
        of_all = large[reading].value
        truth: float | list[float] = (
            along if reading == "partition_isotropy" else math.nan if of_all is None else of_all
        )
        known = truth if truth != [] else math.nan
        table[reading] = (sum(one.interval is not None for one in taken) / draws, held(taken, mean), held(taken, known))
    return table


def cell(given: float, mean: float, truth: float) -> str:
    """Below 90% in bold."""
    shares = [
        f"**{100 * one:.0f}**" if one < 0.9 else "" if math.isnan(one) else f"{100 * one:.0f}" for one in (mean, truth)
    ]
    return f"{100 * given:.0f}: {shares[0]} ({shares[1]})" if given else "0"


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    lines = ["# Coverage of intervals", "", __doc__.split("\n\n")[2].replace("\n", " "), ""]
    lines += [
        f"{draws} draws. A cell has the percentage of draws with an interval, then the coverage of the mean reading and (of all rows).",
        "",
    ]
    for n, most in SHAPES:
        drawn.FEWEST = drawn.MOST = most
        tables = {name: one_cloud(name, n, draws) for name in CLOUDS}
        kept = f", of which {most} are kept" if most < n else ""
        lines += [f"## {n:,} x {D}{kept}", "", f"| reading | {' | '.join(CLOUDS)} |", f"|---{'|---' * len(CLOUDS)}|"]
        for reading in READINGS:
            row = (cell(*table[reading]) if reading in table else "" for table in tables.values())
            lines.append(f"| `{reading}` | {' | '.join(row)} |")
        lines.append("")
        RESULTS.write_text("\n".join(lines), encoding="utf-8")
        print("\n".join(lines[-len(READINGS) - 5 :]), flush=True)


if __name__ == "__main__":
    main()
