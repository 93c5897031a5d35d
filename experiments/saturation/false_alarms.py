"""How often are curves that never decline called declined, and how large a decline is found?

    nice python experiments/saturation/false_alarms.py [--only single,family,mixed,power,bend] [--sims 2000]

One cell after another; a cell that is in results/ (false_alarms.json, power.json) is not computed again. A cell of families counts
families with any false alarm, and beside it the share of single curves.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.saturation.curves.decline import Curve, judge

RESULTS = Path(__file__).parent / "results"
FILES = {
    "single": "false_alarms.json",
    "family": "false_alarms.json",
    "mixed": "false_alarms.json",
    "power": "power.json",
    "bend": "power.json",
}
GRIDS = {
    "Pythia, 16": np.array([1, 3, *range(13, 144, 10)], float),
    "30 even": np.arange(1, 31, dtype=float),
    "100 even": np.arange(1, 101, dtype=float),
}
SHAPES = ("plateau", "rise then flat", "power law", "linear")
CORRELATIONS = (0.0, 0.5, 0.8)
FAMILY = 16
RISE = 20.0
"""Of a monotone curve over its training, in deviations of the jitter."""
ERRORS = {"none": None, "right": 1.0, "half the jitter": 0.5}
SIZES = (1, 2, 3, 4, 6, 8, 12)


def shape_of(name: str, steps: np.ndarray) -> np.ndarray:
    u = steps / steps[-1]
    shapes = {"plateau": 0 * u, "rise then flat": 1 - np.exp(-10 * u), "power law": -0.3 * u**-0.3, "linear": u}
    return RISE * shapes[name]


def jitter_of(m: int, n: int, correlation: float, random: np.random.Generator) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return random.standard_normal((m, n)) @ np.linalg.cholesky(correlation**lag).T


def judged(y: np.ndarray, steps: np.ndarray, errors: float | None, family: int) -> np.ndarray:
    """Whether each curve was called declined, (curves / family, family)."""
    error = None if errors is None else np.full(len(steps), errors)
    curves = [Curve(str(i % family), str(i // family), "acc", steps, row, error) for i, row in enumerate(y)]
    verdicts, _ = judge(curves)
    return np.array([verdict.declined for verdict in verdicts]).reshape(-1, family)


def upper(k: int, n: int) -> float:
    return 1.0 if k == n else float(beta.ppf(0.95, k + 1, n - k))


def rate(hits: np.ndarray) -> dict[str, Any]:
    k, n = int(hits.sum()), len(hits)
    return {"n": n, "hits": k, "rate": round(k / n, 5), "upper_95": round(upper(k, n), 5)}


def cells() -> Iterator[tuple[str, dict[str, Any]]]:
    for grid in GRIDS:
        for shape in SHAPES:
            for correlation in CORRELATIONS:
                for errors in ("none", "right"):
                    yield ("single", {"grid": grid, "shape": shape, "correlation": correlation, "errors": errors})
    for shape in SHAPES:
        for correlation in reversed(CORRELATIONS):  # what is hardest comes first
            for grid in GRIDS:
                for errors in ERRORS:
                    yield ("family", {"grid": grid, "shape": shape, "correlation": correlation, "errors": errors})
    for grid in GRIDS:
        for correlation in CORRELATIONS[1:]:
            yield "mixed", {"grid": grid, "correlation": correlation, "errors": "right for the others"}
    for kind in ("single", "family"):
        for grid in GRIDS:
            for correlation in (0.0, 0.5):
                for errors in ERRORS if kind == "family" else ("none",):
                    for size in SIZES:
                        yield (
                            "power",
                            {"of": kind, "grid": grid, "correlation": correlation, "errors": errors, "jitters": size},
                        )
    for grid in GRIDS:
        for correlation in CORRELATIONS:
            for size in (4, 8, 16):
                yield "bend", {"grid": grid, "correlation": correlation, "jitters": size}


def compute(kind: str, cell: dict[str, Any], sims: int) -> dict[str, Any]:
    steps = GRIDS[cell["grid"]]
    random = np.random.default_rng([20, *map(ord, json.dumps(cell))])
    if kind == "bend":
        return bend(cell, steps, sims, random)
    if kind == "mixed":
        return mixed(cell, steps, sims, random)
    if kind == "power":
        return power(cell, steps, max(sims // 8, 1) * (2 if cell["of"] == "single" else 1), random)
    family = FAMILY if kind == "family" else 1
    y = shape_of(cell["shape"], steps) + jitter_of(sims * family, len(steps), cell["correlation"], random)
    declined = judged(y, steps, ERRORS[cell["errors"]], family)
    return rate(declined.any(1)) | ({"curves": rate(declined.ravel())} if family > 1 else {})


def mixed(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """Families against the assumption of one correlation: 12 rise in white noise, 4 are level in 3 times that, autocorrelated."""
    y = jitter_of(sims * FAMILY, len(steps), 0.0, random).reshape(sims, FAMILY, -1)
    y[:, 4:] += shape_of("rise then flat", steps)
    y[:, :4] = 3 * jitter_of(sims * 4, len(steps), cell["correlation"], random).reshape(sims, 4, -1)
    declined = judged(y.reshape(sims * FAMILY, -1), steps, 1.0, FAMILY)
    return rate(declined.any(1)) | {"curves": rate(declined[:, :4].ravel())}


def fall(steps: np.ndarray) -> np.ndarray:
    """A rise, level from a fifth of the training on, and from half on a straight fall by 1."""
    u = steps / steps[-1]
    return -np.maximum(u - 0.5, 0) / 0.5 - 5 * np.exp(-20 * u)


def power(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """The share of planted declines that is found; in a family 4 of 16 curves fall, the others rise."""
    family = FAMILY if cell["of"] == "family" else 1
    falling = 4 if family > 1 else 1
    y = jitter_of(sims * family, len(steps), cell["correlation"], random).reshape(sims, family, -1)
    y[:, :falling] += cell["jitters"] * fall(steps)
    y[:, falling:] += shape_of("rise then flat", steps)
    declined = judged(y.reshape(sims * family, -1), steps, ERRORS[cell["errors"]], family)
    errors = ERRORS[cell["errors"]]
    sizes = {} if errors is None else {"standard_errors": cell["jitters"] / errors}
    return (
        rate(declined[:, :falling].ravel())
        | sizes
        | {"others": rate(declined[:, falling:].any(1)) if family > 1 else None}
    )


def bend(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """How often the interval holds the checkpoint at which a broken line over ln(step) was made to bend."""
    x = np.log(steps)
    knot = int(np.searchsorted(steps, 0.4 * steps[-1]))
    line = np.where(x < x[knot], x - x[knot], -(x - x[knot]) / (x[-1] - x[knot])) * cell["jitters"]
    y = line + jitter_of(sims, len(steps), cell["correlation"], random)
    curves = [Curve(str(i), "", "acc", steps, row) for i, row in enumerate(y)]
    verdicts, _ = judge(curves)
    inside = np.array([v.change_low <= steps[knot] <= v.change_high for v in verdicts])
    width = np.array([(v.change_high - v.change_low) / steps[-1] for v in verdicts])
    return {"n": sims, "held": round(float(inside.mean()), 4), "mean_width_of_training": round(float(width.mean()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="single,family,mixed,power,bend")
    parser.add_argument("--sims", type=int, default=2000)
    options = parser.parse_args()
    for kind, cell in cells():
        file = RESULTS / FILES[kind]
        done = json.loads(file.read_text()) if file.exists() else {}
        key = f"{kind}: " + ", ".join(f"{name} {value}" for name, value in cell.items())
        if key in done or kind not in options.only.split(","):
            continue
        done[key] = cell | compute(kind, cell, options.sims)
        RESULTS.mkdir(exist_ok=True)
        write_text(file, json.dumps(done, indent=0) + "\n")
        print(key, {name: value for name, value in done[key].items() if name not in cell}, flush=True)


if __name__ == "__main__":
    main()
