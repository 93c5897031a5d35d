"""How often does a series that never turns look as if it did, and how often does the interval hold a planted turn?

nice python experiments/saturation/turns.py [--sims 500]    # results/turns.json, cell by cell, and turns.md

Thirty checkpoints. Noise is white or AR(1), of 0.015; the planted valley falls by 0.2 and rises by 0.1 or by 0.3. How often
is a late rise of a loss found, by its size in deviations of the noise, where the loss is least and the number of checkpoints?
The phases of RankMe rest on two such tests, a valley and a peak: how often is any phase claimed of a series without one, how
often are planted phases claimed and no others, and how often do their intervals hold the ends?
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.saturation.checkpoints.order import phases
from uncone.saturation.checkpoints.turns import LEVEL, SURE, find_turn, probability_before

OUT = Path(__file__).parent / "results" / "turns.json"
X, TURN, NOISE, DRAWS = np.linspace(0.0, 29.0, 30), 12.0, 0.015, 199
SHAPES = {
    "level": 0 * X,
    "power law": 2 / np.sqrt(1 + X),
    "rise": 0.02 * X,
    "fall, then level": np.maximum(0.6 - 0.1 * X, 0),
    "valley of 0.1": np.where(X < TURN, 0.2 * (1 - X / TURN), 0.1 * (X - TURN) / (29 - TURN)),
    "valley of 0.3": np.where(X < TURN, 0.2 * (1 - X / TURN), 0.3 * (X - TURN) / (29 - TURN)),
}
COLLAPSE, EXPANSION = 3.0, 20.0
_FALL = np.maximum(COLLAPSE - X, 0) / COLLAPSE
PHASES = {  # of a RankMe, in dimensions: 1 is `NOISE`
    "level": 0 * X,
    "rise": 2.0 * X,
    "fall": -2.0 * X,
    "power law": 60 / np.sqrt(1 + X),
    "collapse, expansion": 20 * _FALL + np.maximum(X - COLLAPSE, 0),
    "expansion, compression": np.where(X < EXPANSION, X, EXPANSION - 2 * (X - EXPANSION)),
    "collapse, expansion, compression": 20 * _FALL
    + np.where(X < EXPANSION, np.maximum(X - COLLAPSE, 0), 17 - 2 * (X - EXPANSION)),
}
RISES = {
    f"{n} checkpoints, least at {least:g} of the training, rise of {size}": (n, least, size)
    for n in (16, 30, 60)
    for least in (0.35, 0.5, 0.65)
    for size in (4, 6, 8, 10)
}
ORDERS = {"at the same step": 0, "3 checkpoints later": 3, "6 checkpoints later": 6}
CORRELATIONS = (0.0, 0.5, 0.8)


def noise(correlation: float, generator: np.random.Generator, n: int = len(X)) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return NOISE * np.linalg.cholesky(correlation**lag) @ generator.standard_normal(n)


def simulated(shape: str, correlation: float, sims: int) -> dict[str, Any]:
    """The share of series that turned, and the share of intervals that hold the planted turn. Four times as many series
    without a turn, of which it is not asked where."""
    sims, draws = (sims, DRAWS) if "valley" in shape else (4 * sims, 2)
    turned, held = np.zeros(sims, bool), np.zeros(sims, bool)
    for i in range(sims):
        generator = np.random.default_rng([7, i])
        y = SHAPES[shape] + noise(correlation, generator)
        found = find_turn(X, y, generator.standard_normal((draws, len(X))), generator)
        assert found is not None
        turned[i], held[i] = found.p <= LEVEL, found.low <= TURN <= found.high
    told = {"turned": float(turned.mean()), "upper_95": round(upper(int(turned.sum()), sims), 4)}
    if "valley" in shape:
        told |= {"held": float(held.mean()), "held_of_turned": round(float(held[turned].mean()), 4)}
    return {"sims": sims, **told}


def risen(shape: str, correlation: float, sims: int) -> dict[str, Any]:
    """The share of losses that fall by 60 deviations as a power law, and then rise straight, that turned. More series
    where the documents say the share."""
    n, least, size = RISES[shape]
    sims = 4 * sims if (n, size) == (30, 8) else sims
    steps = np.arange(1.0, n + 1)
    u = steps / n
    loss = 60 * (np.maximum(u, 0.05) ** -0.5 - least**-0.5) / (0.05**-0.5 - least**-0.5)
    loss = np.where(u < least, loss, size * (u - least) / (1 - least))
    turned = np.zeros(sims, bool)
    for i in range(sims):
        generator = np.random.default_rng([9, i])
        y = loss + noise(correlation, generator, n) / NOISE
        found = find_turn(steps, y, generator.standard_normal((2, n)), generator)  # two draws: where is not asked
        assert found is not None
        turned[i] = found.p <= LEVEL
    return {"sims": sims, "turned": float(turned.mean())}


def ordered(shape: str, correlation: float, sims: int) -> dict[str, Any]:
    """The share of pairs of series, the second with its valley so many checkpoints later, of which an order is named."""
    said = np.zeros(sims, bool)
    for i in range(sims):
        generator, found = np.random.default_rng([10, i]), []
        for later in (0, ORDERS[shape]):
            at = TURN + later
            y = np.where(at > X, 0.2 * (1 - X / at), 0.3 * (X - at) / (29 - TURN)) + noise(correlation, generator)
            turn = find_turn(X, y, generator.standard_normal((DRAWS, len(X))), generator)
            assert turn is not None
            found.append(turn)
        said[i] = max(one := probability_before(*found), 1 - one) >= SURE
    return {"sims": sims, "ordered": float(said.mean())}


def table_of_orders(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| valley of the second series | AR(1) | an order is named |", "|---|---|---|"]
    rows += [f"| {' | '.join(name.rsplit(', ', 1))} | {one['ordered']:.1%} |" for name, one in found.items()]
    return "\n" + "\n".join(rows) + "\n"


def table_of_rises(found: dict[str, dict[str, Any]]) -> str:
    sizes = sorted({size for *_, size in RISES.values()})
    rows = [
        "| late rise, in deviations | AR(1) | " + " | ".join(map(str, sizes)) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for correlation in CORRELATIONS:
        for name in dict.fromkeys(name.rpartition(",")[0] for name in RISES):
            shares = (found[f"{name}, rise of {size}, {correlation}"]["turned"] for size in sizes)
            rows.append(f"| {name} | {correlation} | {' | '.join(f'{share:.2f}' for share in shares)} |")
    return "\n" + "\n".join(rows) + "\n"


def phases_of(shape: str, correlation: float, sims: int) -> dict[str, Any]:
    """The share of series of which any phase is claimed, of which exactly the planted ones are, and of ends that are held."""
    planted = shape.split(", ") if "expansion" in shape else []
    sims = sims // 4 if planted else sims  # power is large or none; false alarms are few
    said, right, held = np.zeros(sims, bool), np.zeros(sims, bool), list[bool]()
    for i in range(sims):
        generator = np.random.default_rng([8, i])
        y = PHASES[shape] + noise(correlation, generator) / NOISE
        series = {"states_rankme": list(zip(X.tolist(), y.tolist(), strict=True))}
        peak = find_turn(X, y, generator.standard_normal((DRAWS, len(X))), generator, peak=True)
        assert peak is not None
        sentence = phases(series, {"states_rankme": peak}, seed=i)
        claimed = re.findall(
            r"(collapse|expansion|compression)(?: until step [\d,-]+ \(([\d-]+) to (\d+)\))?",
            sentence.partition(": ")[2],
        )
        said[i], right[i] = bool(claimed), [name for name, *_ in claimed] == planted
        if planted and right[i]:
            ends = {"collapse": COLLAPSE, "expansion": EXPANSION}
            held += [float(low) <= ends[name] <= float(high) for name, low, high in claimed if high]
    told = {"claimed": float(said.mean()), "upper_95": round(upper(int(said.sum()), sims), 4)}
    if planted:
        told |= {"right": float(right.mean()), "held": round(float(np.mean(held)), 4) if held else None}
    return {"sims": sims, **told}


def upper(hits: int, n: int) -> float:
    """Clopper and Pearson's 95% limit."""
    return 1.0 if hits == n else float(beta.ppf(0.975, hits + 1, n - hits))


def table(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| series | AR(1) | turned (upper 95 % limit) | the interval holds the turn | of those that turned |"]
    rows += ["|---|---|---|---|---|"]
    for name, one in found.items():
        shape, correlation = name.rsplit(", ", 1)
        held = (f"{one[key]:.1%}" if key in one else "" for key in ("held", "held_of_turned"))
        rows.append(f"| {shape} | {correlation} | {one['turned']:.1%} ({one['upper_95']:.1%}) | {' | '.join(held)} |")
    few, many = sorted({one["sims"] for one in found.values()})
    return "\n".join(rows) + f"\n\n{few} series a cell, {many} without a turn; {len(X)} checkpoints, level {LEVEL}.\n"


def table_of_phases(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        "| RankMe | AR(1) | any phase claimed (upper 95 % limit) | exactly the planted phases | their intervals hold the ends | series |"
    ]
    rows += ["|---|---|---|---|---|---|"]
    for name, one in found.items():
        shape, correlation = name.rsplit(", ", 1)
        more = (f"{one[key]:.1%}" if one.get(key) is not None else "" for key in ("right", "held"))
        rows.append(
            f"| {shape} | {correlation} | {one['claimed']:.1%} ({one['upper_95']:.1%}) | {' | '.join(more)} | {one['sims']} |"
        )
    return "\n" + "\n".join(rows) + "\n\nThe noise has a deviation of 1.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=500)
    sims = parser.parse_args().sims
    tables = []
    for out, shapes, work, drawn in (
        (OUT, SHAPES, simulated, table),
        (OUT.with_name("late_rises.json"), RISES, risen, table_of_rises),
        (OUT.with_name("orders.json"), ORDERS, ordered, table_of_orders),
        (OUT.with_name("phases.json"), PHASES, phases_of, table_of_phases),
    ):
        found = json.loads(out.read_text()) if out.exists() else {}
        for name, shape, correlation in ((f"{s}, {c}", s, c) for c in CORRELATIONS for s in shapes):
            if name not in found:
                found[name] = work(shape, correlation, sims)
                write_text(out, json.dumps(found, indent=1) + "\n")
                print(name, found[name], flush=True)
        tables.append(drawn(found))
    write_text(OUT.with_suffix(".md"), "".join(tables))


if __name__ == "__main__":
    main()
