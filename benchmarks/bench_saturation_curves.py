"""Curves judged a minute: families of 16 over the checkpoints of Pythia, and over 30 and 100 even ones.

The rival counts draws, as the note's script did, but as many as Holm asks for: up to 10 m / alpha for a family of m, in
blocks, and it stops where 10 draws reached the peak. It has no autocorrelation and no bend.
"""

import argparse
import time

import numpy as np
from measured import HERE, _circumstances
from sklearn.isotonic import isotonic_regression

from uncone.atomic import write_text
from uncone.saturation.curves.decline import Curve, judge

GRIDS = {
    "16, Pythia": np.array([1, 3, *range(13, 144, 10)], float),
    "30": np.arange(1.0, 31),
    "100": np.arange(1.0, 101),
}
FAMILY, ALPHA, FALLING = 16, 0.05, 4


def curves_of(steps: np.ndarray, count: int) -> list[Curve]:
    """A quarter of each family declines; the others rise and are level. Noise is that of the standard errors."""
    random, u = np.random.default_rng(0), steps / steps[-1]
    rise, fall = 20 * (1 - np.exp(-10 * u)), 10 * np.maximum(u - 0.5, 0) / 0.5
    curves = []
    for i in range(count):
        y = rise - fall * (i % FAMILY < FALLING) + random.standard_normal(len(u))
        curves.append(Curve(str(i % FAMILY), str(i // FAMILY), "acc", steps, y, np.ones(len(u))))
    return curves


def counted(curves: list[Curve]) -> list[float]:
    """The chance of each peak by draws."""
    random, most, found = np.random.default_rng(0), int(10 * FAMILY / ALPHA), []
    for curve in curves:
        mean, reach = isotonic_regression(curve.values), curve.values.max() - curve.values[-1]
        hits = draws = 0
        while hits < 10 and draws < most:
            drawn = mean + random.standard_normal((100, len(mean)))
            hits += int((drawn.max(1) - drawn[:, -1] >= reach).sum())
            draws += 100
        found.append((1 + hits) / (1 + draws))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rival", type=int, default=800, help="how many curves the rival is given")
    options = parser.parse_args()
    rows = []
    for name, steps in GRIDS.items():
        curves = curves_of(steps, options.curves)
        times, cpu = [], []
        for _ in range(options.repeats):
            began, spent = time.perf_counter(), time.process_time()
            verdicts, _families = judge(curves)
            times.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
        began, spent = time.perf_counter(), time.process_time()
        counted(curves[: options.rival])
        rival, rival_cpu = time.perf_counter() - began, time.process_time() - spent
        rows.append(
            f"| {name} | {min(times):.1f} ({max(times):.1f}) | {min(cpu):.1f} | {60 * len(curves) / min(times):,.0f} | {120 * len(curves) / min(cpu):,.0f} "
            f"| {60 * options.rival / rival:,.0f} | {120 * options.rival / rival_cpu:,.0f} | {sum(v.declined is True for v in verdicts):,} |"
        )
        print(rows[-1], flush=True)
    header = (
        f"{options.curves:,} curves in families of {FAMILY}, a quarter of them declining; `python benchmarks/bench_saturation_curves.py`. "
        f"{_circumstances()}\n\nA column of CPU says how many two idle cores would judge.\n\n"
        "| checkpoints | seconds, least (most) | CPU seconds | curves a minute | by CPU | counted draws, curves a minute | by CPU | declined |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    write_text(HERE / "results" / "saturation_curves.md", header + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
