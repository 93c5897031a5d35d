"""How often do the rules of a monitor warn of nothing, how late do they warn of a planted collapse, and how far before the loss?

    nice python experiments/monitor_rules/run.py [--series 200] [--only trained,simulated,whole] [--files FOLDER]

Simulated cells that are in results/simulated.json and trainings that are in results/runs are not computed again; results.md is written
from what is there. The trainings read WikiText-2 from ../shared/data and take some 30 minutes on one core. `--files` writes the
trained runs as a monitor does, for `uncone watch`.
"""

import argparse
import json
import lzma
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from uncone.atomic import write_text
from uncone.training.monitor import rules
from uncone.training.monitor.rules import ONE_DIRECTION, RULES, THRESHOLD, Rules, Warning_, _reading, _rule_of, _Series

RESULTS = Path(__file__).parent / "results"
PLANTED, AFTER = 1000, 400  # as in runs.py, which needs torch
SPAN = 10_000  # steps for which false alarms are counted
PER = (50, 10)  # steps from one record to the next
READ = (10, 20, 50)  # of the trained runs
WHOLE = 40  # simulated runs with all readings of a training
NOISES = (0.02, 0.1, 0.5)  # deviations of the level or, of walks, of increments times the root of 40, over the effect
THRESHOLDS = (0.0, 4.0, 6.0, 8.0, 12.0)
MODELS = {"gpt2": "GPT2LMHeadModel", "encoder": "GPT2Model"}
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


@cache
def records(stem: str, every: int) -> list[dict[str, float]]:
    """Of a trained run by one of its monitors; those before the planted fault are of the healthy run."""
    text = lzma.decompress((RESULTS / "runs" / f"{stem}.jsonl.xz").read_bytes()).decode()
    lines = [line for line in map(json.loads, text.splitlines()) if line.pop("every") == every]
    if lines[0]["step"] > PLANTED:
        kind, _, seed = stem.split("-")
        lines = [*(one for one in records(f"{kind}-healthy-{seed}", every) if one["step"] <= PLANTED), *lines]
    return lines


def warnings_of(lines: Iterable[Mapping[str, float]], every: int) -> list[Warning_]:
    watched = Rules(every)
    return [one for line in lines for one in watched.see(int(line["step"]), line)]


def noises(every: int) -> dict[str, list[float]]:
    """Of each reading of the healthy trainings, the deviation of its increments about their course, in effects."""
    found = dict[str, list[float]]()
    for stem in stems("healthy"):
        lines = records(stem, every)
        for name in sorted({name for line in lines for name in line}):
            if (rule := _rule_of(name)) is not None:
                course = [_reading(name, rule, line[name], line) for line in lines[len(lines) // 5 :] if name in line]
                steps = np.diff([one for one in course if one is not None])
                if len(steps) > 10:
                    found.setdefault(f"{stem.partition('-')[0]} {name}", []).append(
                        1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / rule.effect
                    )
    return found


def whole(every: int, n: int) -> dict[str, int]:
    """Warnings in simulated runs with all readings of a GPT-2, each with the noise that it has in training and a kind of
    series drawn for it."""
    random, alarms = np.random.default_rng([37, every]), 0
    noise = {name.split()[1]: max(found) for name, found in noises(every).items() if name.startswith("gpt2")}
    kinds, length = list(SERIES.values()), SPAN // every + 1
    for _ in range(n):
        drawn = {name: kinds[random.integers(len(kinds))]((1, length), s, random)[0] for name, s in noise.items()}
        lines = [
            {"step": i * every, **{name: value(name, x[i]) for name, x in drawn.items() if is_read(name, i)}}
            for i in range(length)
        ]
        alarms += len(warnings_of(lines, every))
    return {"spans": n, "alarms": alarms, "readings": len(noise)}


def is_read(name: str, place: int) -> bool:
    return place % 10 == 0 or not name.startswith(("table", "head")) or not name.endswith("effective_rank")


def value(name: str, x: float) -> float:
    """The reading that is `x` effects worse than its usual one."""
    rule = _rule_of(name)
    assert rule is not None
    followed = rule.effect * x * (-rule.way if rule.from_one else rule.way)
    followed = math.exp(followed) if rule.is_log else followed
    return 1 - 40 * followed if rule.from_one else followed  # far from the limit, which a trend would reach


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


def stems(which: str) -> list[str]:
    return [name for file in sorted((RESULTS / "runs").glob("*.xz")) if which in (name := file.name.partition(".")[0])]


def of_runs(done: Mapping[str, Any]) -> Iterator[str]:
    yield "## Trained runs\n"
    rows = [[stem, *(said(warnings_of(records(stem, every), every)) for every in READ)] for stem in stems("healthy")]
    yield table(["healthy run", *(f"warnings, every {every}" for every in READ)], rows)
    said_of = f"Collapses were planted at step {PLANTED:,}: steps after it, a number for each seed."
    yield f"{said_of} The lead is from the first warning of the geometry to that of the loss; > where no rule warned of the"
    yield "loss to the end of the run.\n"
    faults = dict.fromkeys(stem.rpartition("-")[0] for stem in stems("") if "healthy" not in stem)
    rows = [[fault, f"{every}", *planted(fault, every)] for fault in faults for every in READ]
    yield table(["planted", "every", "first warning", "by", "warnings", "of the loss", "lead, median (range)"], rows)
    yield "## Noise of readings in the healthy trainings\n"
    yield "The deviation of increments in effects of the rule: median and largest of all readings and seeds.\n"
    found = {every: noises(every) for every in READ}
    names = {rule.name: [name for name in found[READ[0]] if _rule_of(name) is rule] for rule in RULES}
    rows = [
        [
            rule,
            *(
                f"{np.median(of):.3f}, {max(of):.3f}"
                for e in READ
                if (of := [x for n in names[rule] for x in found[e].get(n, [])])
            ),
        ]
        for rule in names
        if names[rule]
    ]
    yield table(["rule", *(f"every {every}" for every in READ)], rows)
    yield "## False alarms of a whole monitor in 10,000 steps\n"
    yield "Simulated runs with all readings of a GPT-2 and its groups, each with its largest noise of the table above.\n"
    known = [(every, one) for every in READ if (one := done.get(f"whole {every}"))]
    rows = [[f"{every}", f"{one['readings']}", f"{one['spans']}", rate(one)] for every, one in known]
    yield table(["every", "readings", "runs", "warnings a run"], rows)


def said(found: list[Warning_]) -> str:
    return ", ".join(f"{one.rule} of {one.name} at {one.step}" for one in found) or "none"


def planted(fault: str, every: int) -> list[str]:
    """Of each seed the first warning after the fault, how many there are, that of the loss, and the steps between them."""
    first, by, counts, losses, leads = list[str](), dict[str, None](), list[str](), list[str](), list[tuple[int, str]]()
    for stem in stems(f"{fault}-"):
        found = [one for one in warnings_of(records(stem, every), every) if one.step > PLANTED]
        geometry = [one for one in found if one.rule != "loss"]
        loss = next((one.step for one in found if one.rule == "loss"), None)
        first.append(f"{geometry[0].step - PLANTED}" if geometry else "none")
        by |= dict.fromkeys(f"{one.rule} ({one.name})" for one in geometry[:1])
        counts.append(f"{len(geometry)}")
        losses.append("none" if loss is None else f"{loss - PLANTED}")
        if geometry:
            lead = (PLANTED + AFTER if loss is None else loss) - geometry[0].step
            leads.append((lead, f"{'>' * (loss is None)}{lead}"))
    leads.sort()
    lead = f"{leads[len(leads) // 2][1]} ({leads[0][1]} to {leads[-1][1]})" if leads else ""
    return [", ".join(first), ", ".join(by), ", ".join(counts), ", ".join(losses), lead]


def write_files(folder: Path, every: int) -> None:
    """The trained runs as a monitor writes them."""
    folder.mkdir(exist_ok=True)
    for stem in stems(""):
        lines: list[Any] = [
            {"schema": "uncone.run/1", "model": MODELS[stem.partition("-")[0]], "every": every, "groups": {}}
        ]
        watched = Rules(every)
        for line in records(stem, every):
            lines.append(line)
            for one in watched.see(int(line["step"]), line):
                lines.append({"step": one.step, "warning": {"rule": one.rule, "name": one.name, "text": one.text}})
        write_text(folder / f"{stem}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--only", default="trained,simulated,whole")
    parser.add_argument("--files", type=Path)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    if "trained" in options.only:
        train()
    if "simulated" in options.only:
        simulate(options.series)
    file = RESULTS / "simulated.json"
    done = json.loads(file.read_text()) if file.exists() else {}
    for every in READ if "whole" in options.only else ():
        if f"whole {every}" not in done:
            done[f"whole {every}"] = whole(every, WHOLE)
            write_text(file, json.dumps(done, indent=0) + "\n")
    if options.files is not None:
        write_files(options.files, options.every)
    pages = ["# False alarms, delays and leads of the rules\n", *of_runs(done), *of_simulations(done)]
    write_text(RESULTS.parent / "results.md", "\n".join(pages))


if __name__ == "__main__":
    main()
