"""How often do the rules of a monitor warn of nothing, how late do they warn of a planted collapse, and how far before the loss?

    nice python experiments/monitor_rules/run.py [--series 200] [--only simulated,trained]

Simulated cells that are in results/simulated.json and trainings that are in results/runs are not computed again; results.md is written
from what is there. The trainings read WikiText-2 from ../shared/data and take some 15 minutes on one core.
"""

import argparse
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from uncone.atomic import write_text
from uncone.training.monitor import rules
from uncone.training.monitor.rules import ONE_DIRECTION, THRESHOLD, Rules, Warning_, _Series

RESULTS = Path(__file__).parent / "results"
PLANTED, AFTER = 1500, 600  # as in runs.py, which needs torch
SPAN = 10_000  # steps for which false alarms are counted
PER = (50, 10)  # steps from one record to the next
NOISES = (0.02, 0.1, 0.5)  # deviations of the level or, of walks, of increments times the root of 40, over the effect
THRESHOLDS = (0.0, 4.0, 6.0, 8.0, 12.0)
RULE = replace(ONE_DIRECTION, effect=1.0, is_log=False, from_one=False)
Floats = np.ndarray[Any, np.dtype[np.float64]]


def ar(phi: float, shape: tuple[int, int], random: np.random.Generator, heavy: bool = False) -> Floats:
    """Of deviation 1."""
    noise = random.standard_t(3, shape) / math.sqrt(3) if heavy else random.standard_normal(shape)
    x = noise.copy()
    for t in range(1, shape[1]):
        x[:, t] = phi * x[:, t - 1] + math.sqrt(1 - phi * phi) * noise[:, t]
    return x


def walk(shape: tuple[int, int], random: np.random.Generator, phi: float = 0.0) -> Floats:
    return np.cumsum(ar(phi, shape, random), axis=1) / math.sqrt(40)


def trend(shape: tuple[int, int], curve: Callable[[Floats], Floats]) -> Floats:
    return curve((np.arange(shape[1]) + 1) / shape[1])[None, :]


Draw = Callable[[tuple[int, int], float, np.random.Generator], Floats]
SERIES: dict[str, Draw] = {
    "white noise": lambda n, s, r: s * ar(0.0, n, r),
    "AR(1), 0.5": lambda n, s, r: s * ar(0.5, n, r),
    "AR(1), 0.9": lambda n, s, r: s * ar(0.9, n, r),
    "AR(1), 0.99": lambda n, s, r: s * ar(0.99, n, r),
    "random walk": lambda n, s, r: s * walk(n, r),
    "walk with momentum 0.8": lambda n, s, r: s * walk(n, r, 0.8),
    "heavy tails (t, 3), AR(1), 0.5": lambda n, s, r: s * ar(0.5, n, r, heavy=True),
    "noise that grows fivefold": lambda n, s, r: s * ar(0.5, n, r) * np.linspace(0.4, 2, n[1]),
    "linear rise by 10 effects": lambda n, s, r: s * ar(0.5, n, r) + trend(n, lambda u: 10 * u),
    "rise that slows, by 10": lambda n, s, r: s * ar(0.5, n, r) + trend(n, lambda u: 10 * u**0.3),
    "rise that quickens, by 10": lambda n, s, r: s * ar(0.5, n, r) + trend(n, lambda u: 10 * u**2),
    "S-shaped rise by 3": lambda n, s, r: s * ar(0.5, n, r) + trend(n, lambda u: 3 / (1 + np.exp(8 - 16 * u))),
}
PLANTS: dict[str, Callable[[Floats], Floats]] = {  # of steps after the fault, in effects
    "jump by 3": lambda t: 3.0 * (t > 0),
    "3 in 100 steps": lambda t: 3 * np.clip(t / 100, 0, 1),
    "3 in 200 steps": lambda t: 3 * np.clip(t / 200, 0, 1),
    "3 in 1,000 steps": lambda t: 3 * np.clip(t / 1000, 0, 1),
    "doubling every 50 steps to 4": lambda t: np.where(t > 0, np.minimum(0.25 * 2 ** (t / 50), 4), 0),
}


def warnings_in(x: Floats, every: int, threshold: float, batch: bool) -> list[int]:
    """The records at which one series is warned of, as `Rules` does it."""
    series, found = _Series(0, float(x[0])), []
    for i, value in enumerate(x[1:].tolist(), start=1):
        if series.see(i * every, value, every, RULE, threshold, batch=batch):
            found.append(i)
            series = _Series(i * every, value)
    return found


@contextmanager
def whitened(on: bool) -> Iterator[None]:
    kept = rules._correlation
    rules._correlation = kept if on else lambda rests: 0.0
    yield
    rules._correlation = kept


def cells() -> Iterator[dict[str, Any]]:
    for every in PER:
        for kind in SERIES:
            for noise in NOISES:
                for batch in (False, True):
                    chosen = {"threshold": THRESHOLD, "whiten": True}
                    yield {
                        "of": "false alarms",
                        "every": every,
                        "series": kind,
                        "noise": noise,
                        "batch": batch,
                        **chosen,
                    }
        for plant in PLANTS:
            for noise in NOISES:
                chosen = {"threshold": THRESHOLD, "whiten": True}
                yield {"of": "delay", "every": every, "plant": plant, "noise": noise, "batch": False, **chosen}
    for whiten in (True, False):
        for threshold in THRESHOLDS:
            chosen = {"threshold": threshold, "whiten": whiten}
            for kind in SERIES:
                yield {"of": "false alarms", "every": 50, "series": kind, "noise": 0.5, "batch": False, **chosen}
            for plant in PLANTS:
                yield {"of": "delay", "every": 50, "plant": plant, "noise": 0.1, "batch": False, **chosen}


def compute(cell: Mapping[str, Any], n: int) -> dict[str, Any]:
    of = [cell.get(key, "") for key in ("of", "series", "plant", "noise", "every")]  # the same draws for every rule
    random = np.random.default_rng([37, zlib.crc32(json.dumps(of).encode())])
    every, seen = cell["every"], (cell["every"], cell["threshold"], cell["batch"])
    if cell["of"] == "false alarms":
        shape = (n * 10 // every if every < 50 else n, SPAN // every + 1)
        x = SERIES[cell["series"]](shape, cell["noise"], random)
        return {"spans": shape[0], "alarms": sum(len(warnings_in(row, *seen)) for row in x)}
    start = 40 * every
    t = np.arange(0, start + 2000, every, dtype=float)
    x = cell["noise"] * ar(0.5, (n // 2, len(t)), random) + PLANTS[cell["plant"]](t - start)
    first = [next((i * every - start for i in warnings_in(row, *seen) if i * every > start), math.inf) for row in x]
    found = sorted(first)
    late = found[math.ceil(0.95 * len(found)) - 1]
    return {
        "median": None if math.isinf(found[len(found) // 2]) else found[len(found) // 2],
        "95%": None if math.isinf(late) else late,
        "within 200": sum(one <= 200 for one in found) / len(found),
    }


def simulate(n: int) -> None:
    file = RESULTS / "simulated.json"
    done = json.loads(file.read_text()) if file.exists() else {}
    for cell in cells():
        key = json.dumps(cell)
        if key not in done:
            with whitened(cell["whiten"]):
                done[key] = compute(cell, n)
            write_text(file, json.dumps(done, indent=0) + "\n")
            sys.stdout.write(f"{key} {done[key]}\n")
            sys.stdout.flush()


def train() -> None:
    import torch
    from runs import run_all

    torch.set_num_threads(1)
    run_all(lambda said: print(said, flush=True))


def warnings_of(file: Path, every: int) -> list[Warning_]:
    """Of a trained run, read every so many steps; the spectrum every tenth record, as a monitor does."""
    watched, found = Rules(every), list[Warning_]()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    if lines[0]["step"]:
        kind, _, seed = file.stem.split("-")
        before = (json.loads(line) for line in (file.parent / f"{kind}-healthy-{seed}.jsonl").read_text().splitlines())
        lines = [*(line for line in before if line["step"] < lines[0]["step"]), *lines]
    for place, numbers in enumerate(line for line in lines if line["step"] % every == 0):
        step = numbers.pop("step")
        found += watched.see(step, {k: v for k, v in numbers.items() if place % 10 == 0 or "effective_rank" not in k})
    return found


def rate(found: Mapping[str, Any]) -> str:
    """For a span of 10,000 steps, with the upper end of the one-sided 95% interval of Poisson counts."""
    high = chi2.ppf(0.95, 2 * found["alarms"] + 2) / 2 / found["spans"]
    return f"{found['alarms'] / found['spans']:.3f} (<{high:.3f})"


def summed(found: Iterable[Mapping[str, int] | None]) -> dict[str, int]:
    there = [one for one in found if one]
    return {key: sum(one[key] for one in there) for key in ("spans", "alarms")}


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def of_simulations(done: Mapping[str, Any]) -> Iterator[str]:
    def found(of: str, every: int, what: str, noise: float, batch: bool, threshold: float, whiten: bool) -> Any:
        named = {"of": of, "every": every, "series" if of == "false alarms" else "plant": what, "noise": noise}
        return done.get(json.dumps({**named, "batch": batch, "threshold": threshold, "whiten": whiten}))

    chosen = (THRESHOLD, True)
    yield "## False alarms of one reading in 10,000 steps\n"
    yield "Simulated; in brackets the upper end of a one-sided 95% interval. Noise is in effects of the rule.\n"
    for batch, called in ((False, "read from a whole table"), (True, "read from a batch")):
        columns = [called, *(f"every {every}, noise {noise:g}" for every in PER for noise in NOISES)]
        cells_of = [[found("false alarms", e, kind, n, batch, *chosen) for e in PER for n in NOISES] for kind in SERIES]
        rows = [
            [kind, *(rate(one) if one else "" for one in line)] for kind, line in zip(SERIES, cells_of, strict=True)
        ]
        yield table(columns, rows)
        small = [
            one for line in cells_of for one, (_, noise) in zip(line, product(PER, NOISES), strict=True) if noise <= 0.1
        ]
        every = summed(one for line in cells_of for one in line), summed(small)
        yield f"All together: {rate(every[0])} for each reading; with noise of at most 0.1 effects {rate(every[1])}.\n"
    yield "## Steps from a planted change to its warning\n"
    yield "Median, 95th percentile, and the share found within 200 steps; the change is in effects.\n"
    columns = ["change", *(f"every {every}, noise {noise:g}" for every in PER for noise in NOISES)]
    yield table(
        columns, [[p, *(delay(found("delay", e, p, n, False, *chosen)) for e in PER for n in NOISES)] for p in PLANTS]
    )
    yield "## Why this threshold, and why whitened\n"
    yield "False alarms of all series together at noise 0.5, and the delay at noise 0.1; a record every 50 steps.\n"
    rows = []
    for whiten in (True, False):
        for threshold in THRESHOLDS:
            every = [found("false alarms", 50, kind, 0.5, False, threshold, whiten) for kind in SERIES]
            total = summed(every)
            said = [delay(found("delay", 50, plant, 0.1, False, threshold, whiten)) for plant in PLANTS]
            rows.append([f"{threshold:g}", "yes" if whiten else "no", rate(total) if total["spans"] else "", *said])
    yield table(["threshold", "whitened", "false alarms", *PLANTS], rows)


def delay(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    median, late = ("never" if found[key] is None else f"{found[key]:g}" for key in ("median", "95%"))
    return f"{median}, {late}, {found['within 200']:.0%}"


def of_runs() -> Iterator[str]:
    files = sorted((RESULTS / "runs").glob("*.jsonl"))
    yield "## Trained runs\n"
    healthy = [file for file in files if "healthy" in file.name]
    rows = [[file.stem, *(said(warnings_of(file, every)) for every in PER[::-1])] for file in healthy]
    yield table(["healthy run", *(f"warnings, every {every}" for every in PER[::-1])], rows)
    yield f"Collapses were planted at step {PLANTED:,}. Steps after it, and how long the loss took.\n"
    rows = []
    for file in files:
        if file not in healthy:
            rows.append([file.stem, *(cell for every in PER[::-1] for cell in planted(file, every))])
    columns = [f"{what}, every {every}" for every in PER[::-1] for what in ("first warning", "the loss", "before")]
    yield table(["planted", *columns], rows)


def said(found: list[Warning_]) -> str:
    return ", ".join(f"{one.rule} of {one.name} at {one.step}" for one in found) or "none"


def planted(file: Path, every: int) -> list[str]:
    """The first warning after the fault, that of the loss, and the steps between them."""
    found = warnings_of(file, every)
    assert not (found and found[0].step <= PLANTED)
    geometry = next((one for one in found if one.rule != "loss"), None)
    loss = next((one for one in found if one.rule == "loss"), None)
    first = "none" if geometry is None else f"{geometry.step - PLANTED} ({geometry.rule})"
    lead = (
        f"{loss.step - geometry.step}"
        if geometry and loss
        else f">{AFTER - geometry.step + PLANTED}"
        if geometry
        else ""
    )
    return [first, "none" if loss is None else f"{loss.step - PLANTED}", lead]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--only", default="simulated,trained")
    options = parser.parse_args()
    if "trained" in options.only:
        train()
    if "simulated" in options.only:
        simulate(options.series)
    file = RESULTS / "simulated.json"
    done = json.loads(file.read_text()) if file.exists() else {}
    pages = ["# False alarms, delays and leads of the rules\n", *of_runs(), *of_simulations(done)]
    write_text(RESULTS.parent / "results.md", "\n".join(pages))


if __name__ == "__main__":
    main()
