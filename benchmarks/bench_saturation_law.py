"""How long do the 4,500 starts of a scaling law take, and does another optimiser end lower?

    python benchmarks/bench_saturation_law.py

245 simulated runs, as many as Hoffmann et al. 2022 have, 1 % log-normal noise, all five constants free, Huber's loss with delta 0.001 summed. Rows: this
package's choice among starts; its full descent of every start; scipy's L-BFGS-B with the gradient from a sample of the starts, one after the other, its
time multiplied up to 4,500. Processor time is told beside time on the clock, since neighbours on the machine come and go.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from uncone.saturation.law.fit import GRID, Law, fitted, problem_of
from uncone.saturation.law.intervals import uncertainty

Array = np.ndarray[Any, Any]
RUNS, NOISE, DELTA = 245, 0.01, 1e-3


def simulated() -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(0)
    n, t = 10 ** generator.uniform(7.6, 10.2, RUNS), 10 ** generator.uniform(9.3, 12, RUNS)
    law = Law(482.01, 0.3478, 2085.43, 0.3658, 1.8172)
    return n, t, law.predict(n, t) * np.exp(NOISE * generator.standard_normal(RUNS))


def sum_and_slope(theta: Array, x: Array, y: Array) -> tuple[float, Array]:
    terms = np.stack([theta[0] - theta[1] * x[0], theta[2] - theta[3] * x[1], np.full(len(y), theta[4])])
    predicted = np.logaddexp.reduce(terms)
    residuals, shares = predicted - y, np.exp(terms - predicted)
    size, slope = np.abs(residuals), np.clip(residuals, -DELTA, DELTA)
    total = np.where(size <= DELTA, 0.5 * size**2, DELTA * (size - 0.5 * DELTA)).sum()
    along = np.stack([shares[0], -shares[0] * x[0], shares[1], -shares[1] * x[1], shares[2]])
    return float(total), along @ slope


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60)
    sample = parser.parse_args().sample
    problem = problem_of(*simulated())
    every = np.array(list(itertools.product(*GRID)), np.float64)
    law, clock, processor = timed(lambda: fitted(problem))
    lines = ["| row | s | s of processor | least sum |", "|---|---|---|---|"]
    lines.append(f"| uncone, {len(every):,} starts | {clock:.2f} | {processor:.2f} | {law.objective:.12g} |")
    (_, sums), clock, processor = timed(lambda: problem.descend(every))
    lines.append(f"| uncone, each start to its end | {clock:.2f} | {processor:.2f} | {sums.min():.12g} |")
    chosen = every[np.random.default_rng(1).permutation(len(every))[:sample]]
    for name, scale in (("as published", 1.0), ("sum times 10,000", 1e4)):

        def sought(theta: Array, scale: float = scale) -> tuple[float, Array]:
            total, slope = sum_and_slope(theta, problem.x, problem.y)
            return scale * total, scale * slope

        def ends(sought: Any = sought, scale: float = scale) -> Array:
            return np.array([minimize(sought, one, jac=True, method="L-BFGS-B").fun / scale for one in chosen])

        found, clock, processor = timed(ends)
        times = len(every) / sample
        lines.append(
            f"| scipy L-BFGS-B, {name}, {sample} starts x {times:g} | {clock * times:.0f} | {processor * times:.0f} | {found.min():.12g} |"
        )
    known, clock, processor = timed(lambda: uncertainty(problem, law, resamples=1000))
    lines.append(f"| uncone, 1,000 simulated fits with and without each constant | {clock:.2f} | {processor:.2f} | |")
    _, clock, processor = timed(lambda: [known.profile(place) for place in range(5)])
    lines.append(f"| uncone, profile intervals of five constants | {clock:.2f} | {processor:.2f} | |")
    load = f"Load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; numpy {np.__version__}."
    text = "\n".join([*lines, "", load]) + "\n"
    print(text)
    (Path(__file__).parent / "results/saturation_law.md").write_text(text)


if __name__ == "__main__":
    main()
