"""How often are curves that never decline called declined, how large a decline is found, and is its bend held?

    nice python experiments/saturation/false_alarms.py [--only single,family,mixed,first,end,power,bend] [--sims 2000]

One cell after another; a cell that is in results/ (false_alarms.json, power.json) is not computed again. A cell of families counts
families with any false alarm, and beside it the share of single curves judged alone.
"""

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.saturation.curves.decline import Curve, judge
from uncone.saturation.curves.late_fall import jitter_of

RESULTS = Path(__file__).parent / "results"
PYTHIA = Path(__file__).parents[2] / "../shared/data/pythia/pythia_evals_v1.csv"
FILES = dict.fromkeys(("single", "family", "mixed", "first", "end"), "false_alarms.json") | dict.fromkeys(
    ("power", "bend"), "power.json"
)
GRIDS = {
    "Pythia, 16": np.array([1, 3, *range(13, 144, 10)], float),
    "30 even": np.arange(1, 31, dtype=float),
    "100 even": np.arange(1, 101, dtype=float),
}
SHAPES = ("plateau", "rise then flat", "power law", "linear")
CORRELATIONS = (0.0, 0.5, 0.8, 0.9)  # of which the last is only reported
FAMILY = 16
RISE, BAD = 20.0, 8.0
"""Of a monotone curve over its training, and of one bad last checkpoint, in deviations of the jitter."""
SIZES = (2, 3, 4, 6, 8, 12)
SMALL = ("pythia-70m", "pythia-70m-deduped", "pythia-160m", "pythia-160m-deduped")
BEFORE, AFTER = ("level", "saturates", "rises to .1", "rises to .2"), ("straight", "over ln(step)")


def shape_of(name: str, steps: np.ndarray) -> np.ndarray:
    u = steps / steps[-1]
    shapes = {"plateau": 0 * u, "rise then flat": 1 - np.exp(-10 * u), "power law": -0.3 * u**-0.3, "linear": u}
    shapes |= {"level": 0 * u, "saturates": 1 - np.exp(-u / 0.05)}
    shapes |= {f"rises to .{tenths}": np.minimum(u / (tenths / 10), 1) for tenths in (1, 2)}
    return RISE * shapes[name]


def jitter(m: int, n: int, correlation: float, random: np.random.Generator) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return random.standard_normal((m, n)) @ np.linalg.cholesky(correlation**lag).T


def judged(y: np.ndarray, steps: np.ndarray, family: int, first: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Whether each curve was called declined in its family, of which `first` are tested first, and alone, (curves /
    family, family)."""
    curves = [Curve(str(i % family), str(i // family), "acc", steps, row) for i, row in enumerate(y)]
    verdicts, _ = judge(curves, first=first)
    both = np.array([(verdict.declined, verdict.declined_alone) for verdict in verdicts])
    return both[:, 0].reshape(-1, family), both[:, 1].reshape(-1, family)


def upper(k: int, n: int) -> float:
    return 1.0 if k == n else float(beta.ppf(0.95, k + 1, n - k))


def rate(hits: np.ndarray) -> dict[str, Any]:
    k, n = int(hits.sum()), len(hits)
    return {"n": n, "hits": k, "rate": round(k / n, 5), "upper_95": round(upper(k, n), 5)}


def cells() -> Iterator[tuple[str, dict[str, Any]]]:
    for grid in GRIDS:
        for correlation in CORRELATIONS:
            for shape in SHAPES:
                for kind in ("single", "family"):
                    yield kind, {"grid": grid, "shape": shape, "correlation": correlation}
            for loud in (3, 1):
                yield "mixed", {"grid": grid, "correlation": correlation, "loud": loud}
            yield "first", {"grid": grid, "correlation": correlation, "loud": 1}
            yield "end", {"grid": grid, "correlation": correlation}
    for grid in GRIDS:
        for correlation in (0.0, 0.5):
            for size in SIZES:
                for of, fall in product(("single", "family"), FALLS):
                    yield "power", {"of": of, "grid": grid, "fall": fall, "correlation": correlation, "jitters": size}
    for fell, correlation in product((1, 4), (0.0, 0.5)):
        yield "power", {"of": "70M", "grid": "Pythia, 16", "fall": f"{fell} of four", "correlation": correlation}
    for grid in GRIDS:
        for correlation in CORRELATIONS[:-1]:
            for size in (4, 8, 16):
                for before, after in (*product(BEFORE, AFTER), ("broken line over ln(step)", "")):
                    yield (
                        "bend",
                        {"grid": grid, "before": before, "after": after, "correlation": correlation, "jitters": size},
                    )


def compute(kind: str, cell: dict[str, Any], sims: int) -> dict[str, Any]:
    steps = GRIDS[cell["grid"]]
    random = np.random.default_rng([20, *map(ord, json.dumps(cell))])
    if kind == "bend":
        return bend(cell, steps, sims // 4, random)
    if kind == "power":
        return (
            of_pythia(cell, steps, sims // 2, random) if cell["of"] == "70M" else power(cell, steps, sims // 4, random)
        )
    family = 1 if kind == "single" else FAMILY
    y = jitter(sims * family, len(steps), 0.0 if kind in ("mixed", "first") else cell["correlation"], random).reshape(
        sims, family, -1
    )
    if kind in ("mixed", "first"):  # 12 rise in white noise, 4 are level, autocorrelated and louder
        y[:, 4:] += shape_of("rise then flat", steps)
        y[:, :4] = cell["loud"] * jitter(sims * 4, len(steps), cell["correlation"], random).reshape(sims, 4, -1)
    elif kind == "end":
        y[:, 0, -1] -= BAD
    else:
        y += shape_of(cell["shape"], steps)
    first = ("0", "1", "2", "3") if kind == "first" else ()
    declined, alone = judged(y.reshape(sims * family, -1), steps, family, first)
    watched = alone[:, :4] if kind in ("mixed", "first") else alone[:, :1] if kind == "end" else alone
    return rate(declined.any(1)) | ({"alone": rate(watched.ravel())} if family > 1 else {})


def fall_of(name: str, steps: np.ndarray) -> np.ndarray:
    """By 1, straight; a rise of ten deviations comes first where it says so."""
    u = steps / steps[-1]
    begins = 0.5 if "half" in name else 2 / 3
    return -np.maximum(u - begins, 0) / (1 - begins)


FALLS = ("over the last third", "over the last third after a rise to .15", "over the last half")


def power(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """The share of planted declines that is found; in a family one of 16 curves falls, the others rise."""
    family = FAMILY if cell["of"] == "family" else 1
    y = jitter(sims * family, len(steps), cell["correlation"], random).reshape(sims, family, -1)
    y[:, 0] += cell["jitters"] * fall_of(cell["fall"], steps)
    if "rise" in cell["fall"]:
        y[:, 0] += 10 * np.minimum(steps / steps[-1] / 0.15, 1)
    y[:, 1:] += shape_of("rise then flat", steps)
    declined, alone = judged(y.reshape(sims * family, -1), steps, family)
    others = rate(declined[:, 1:].any(1)) if family > 1 else None
    return rate(declined[:, 0]) | {"alone": rate(alone[:, 0]), "others": others}


def of_pythia(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """70M beside three small models on LAMBADA: their quadratic trends from a fifth of the training on, in jitter of
    their own size; where one of four falls, the others stay at their highest value."""
    means, sizes = [], []
    with PYTHIA.open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["task"], row["metric"], row["shots"]) == ("lambada_openai", "acc", "0")
        ]
    for place, model in enumerate(SMALL):
        points = np.array(sorted((float(row["step"]), float(row["value"])) for row in rows if row["model"] == model))
        x, y = points[points[:, 0] >= 1000].T
        body = x >= 0.2 * x[-1]
        mean = np.where(body, np.polyval(np.polyfit(x[body], y[body], 2), x), y)
        means.append(np.maximum.accumulate(mean) if place and cell["fall"] == "1 of four" else mean)
        sizes.append(jitter_of(y[None, body], x[body])[0])
    noise = jitter(sims * len(SMALL), len(steps), cell["correlation"], random).reshape(sims, len(SMALL), -1)
    y = np.array(means) + np.array(sizes)[:, None] * noise
    found = {}
    for name, first in (("family", ()), ("first", ("0",))):
        declined, alone = judged(y.reshape(-1, len(steps)), steps, len(SMALL), first)
        found[name] = rate(declined[:, 0])
    return found["family"] | {"alone": rate(alone[:, 0]), "first": found["first"]}


def bend(cell: dict[str, Any], steps: np.ndarray, sims: int, random: np.random.Generator) -> dict[str, Any]:
    """How often the interval holds the checkpoint at which a curve was made to bend: half of the training, or two fifths
    of a broken line over ln(step)."""
    u = steps / steps[-1]
    knot = int(np.abs(u - 0.5).argmin()) if cell["after"] else int(np.searchsorted(u, 0.4))
    if cell["after"]:
        begin = u[knot]
        fall = (u - begin) / (1 - begin) if cell["after"] == "straight" else np.log(u / begin) / -np.log(begin)
        line = shape_of(cell["before"], steps) - cell["jitters"] * np.maximum(fall, 0)
    else:
        x = np.log(u / u[knot])
        line = np.where(x < 0, x, x / x[-1] * -1.0) * cell["jitters"]
    y = line + jitter(sims, len(steps), cell["correlation"], random)
    verdicts, _ = judge([Curve(str(i), str(i), "acc", steps, row) for i, row in enumerate(y)])
    inside = np.array([v.change_low <= steps[knot] <= v.change_high for v in verdicts])
    width = np.array([(v.change_high - v.change_low) / steps[-1] for v in verdicts])
    return {"n": sims, "held": round(float(inside.mean()), 4), "mean_width_of_training": round(float(width.mean()), 4)}


def table(alarms: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Curves that decline late: false alarms, power, bends",
        "",
        "`python experiments/saturation/false_alarms.py`. Single curves and families of 16 with any false alarm: the worst of four shapes (upper 95 % limit).",
        "",
        "| checkpoints | AR(1) | single curves | families | 12 of them white | these 4 of 3 times the size | tested first | one bad last checkpoint |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for grid, correlation in product(GRIDS, CORRELATIONS):
        some = {k: one for k, one in alarms.items() if (one["grid"], one["correlation"]) == (grid, correlation)}

        def worst(kind: str, loud: int | None = None, some: dict[str, dict[str, Any]] = some) -> str:
            cells_ = [one for k, one in some.items() if k.startswith(kind) and one.get("loud") == loud]
            if not cells_:
                return "not run"
            of = max(cells_, key=lambda one: one["rate"])
            return f"{of['rate']:.1%} ({of['upper_95']:.1%})"

        row = [worst("single"), worst("family"), worst("mixed", 1), worst("mixed", 3), worst("first", 1), worst("end")]
        lines.append(f"| {grid} | {correlation} | {' | '.join(row)} |")
    lines += [
        "",
        "The share of planted falls that is found, by their size in deviations of the jitter; 70M is a plant of its own size beside 70M deduped and both 160M.",
        "",
    ]
    lines += [
        "| checkpoints | fall | AR(1) | judged | " + " | ".join(map(str, SIZES)) + " |",
        "|---|---|---|---|" + "---|" * len(SIZES),
    ]
    for grid, fall, correlation, of in product(GRIDS, FALLS, (0.0, 0.5), ("single", "family")):
        some = {
            one["jitters"]: one
            for k, one in found.items()
            if k.startswith("power")
            and (one["of"], one["grid"], one["fall"], one["correlation"]) == (of, grid, fall, correlation)
        }
        shares = [f"{some[size]['rate']:.2f}" if size in some else "not run" for size in SIZES]
        lines.append(
            f"| {grid} | {fall} | {correlation} | {'alone' if of == 'single' else 'in a family of 16'} | {' | '.join(shares)} |"
        )
    lines += [
        "",
        "| 70M beside three small models | AR(1) | alone | in the family | in the family, tested first |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one['fall']} falls | {one['correlation']} | {one['alone']['rate']:.2f} | {one['rate']:.2f} | {one['first']['rate']:.2f} |"
        for one in found.values()
        if one.get("of") == "70M"
    ]
    lines += [
        "",
        "The share of 95 % intervals that hold the bend: the least of falls of 4, 8 and 16 deviations (and the mean width for 8, as a part of the training).",
        "",
    ]
    lines += ["| before | after | AR(1) | " + " | ".join(GRIDS) + " |", "|---|---|---|" + "---|" * len(GRIDS)]
    for (before, after), correlation in product(
        (*product(BEFORE, AFTER), ("broken line over ln(step)", "")), CORRELATIONS[:-1]
    ):
        shares = []
        for grid in GRIDS:
            some = {
                one["jitters"]: one
                for k, one in found.items()
                if k.startswith("bend")
                and (one["grid"], one["before"], one["after"], one["correlation"]) == (grid, before, after, correlation)
            }
            shares.append(
                f"{min(one['held'] for one in some.values()):.2f} ({some[8]['mean_width_of_training']:.2f})"
                if len(some) == 3
                else "not run"
            )
        lines.append(f"| {before} | {after} | {correlation} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="single,family,mixed,first,end,power,bend")
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
    kept = [
        json.loads(file.read_text()) if file.exists() else {}
        for file in (RESULTS / "false_alarms.json", RESULTS / "power.json")
    ]
    write_text(RESULTS / "curves.md", table(*kept))


if __name__ == "__main__":
    main()
