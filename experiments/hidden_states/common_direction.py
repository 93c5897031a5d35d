"""How often are states said to share a common direction where theirs is weaker than the threshold, and where it is stronger?

    python experiments/hidden_states/common_direction.py [--sims 200]    # results/common_direction.json and .md; it goes on after a stop

States of 13 layers, each layer by itself (so that the largest of them has its best chance to be too large), in windows of 100 tokens. A state is a common
direction, a topic of its window and noise with a correlation of .5 from token to token; the topic has a tenth or half of what is not common. The mean cosine of
two states of different windows is planted, and the sentence is that of `_verdict`.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.diagnosis.findings import DRIFT
from uncone.diagnosis.why.layers.layers import _verdict
from uncone.moments.unit_blocks import UnitBlocks

OUT = Path(__file__).parent / "results" / "common_direction.json"
LAYERS, WINDOW, CORRELATION = 13, 100, 0.5
SIZES, WIDTHS, TOPICS = (3_000, 12_000), (64, 256), (0.1, 0.5)
NAMES = ("tokens", "d", "topic", "times")
PLANTED = (0.5, 0.8, 0.95, 1.25, 2.0)  # times the threshold


def states(n: int, d: int, cosine: float, topic: float, random: np.random.Generator) -> np.ndarray:
    """(n, D) float32, in windows."""
    noise = random.standard_normal((n, d), np.float32)
    step = np.float32(np.sqrt(1 - CORRELATION**2))
    noise = noise.reshape(-1, WINDOW, d)
    for at in range(1, WINDOW):
        noise[:, at] = np.float32(CORRELATION) * noise[:, at - 1] + step * noise[:, at]
    topics = random.standard_normal((n // WINDOW, 1, d), np.float32)
    x = (np.sqrt(topic) * topics + np.sqrt(1 - topic) * noise).reshape(n, d) * np.sqrt((1 - cosine) / d)
    x[:, 0] += np.sqrt(cosine)
    return x.astype(np.float32)


def mean_unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).mean(0, dtype=np.float64)


def planted(d: int, truth: float, topic: float) -> float:
    """The parameter whose mean cosine of states of different windows is `truth`: the unit rows' mean has its square root."""
    low, high = truth / 2, min(0.99, 2 * truth)
    for _ in range(12):  # the same numbers each time
        middle = (low + high) / 2
        at = float(mean_unit(states(20_000, d, middle, topic, np.random.default_rng(0)))[0]) ** 2
        low, high = (middle, high) if at < truth else (low, middle)
    return (low + high) / 2


def layer(n: int, d: int, cosine: float, topic: float, random: np.random.Generator) -> Any:
    x = states(n, d, cosine, topic, random)
    inverse, blocks = 1 / np.linalg.norm(x, axis=1), UnitBlocks([d])
    blocks.update([x], [inverse.astype(np.float32)], np.arange(n) // WINDOW)
    total = inverse @ x.astype(np.float64)
    value = (float(total @ total) - n) / (n * (n - 1))
    interval = blocks.mean_cosine_interval(0)
    found = SimpleNamespace(value=value, interval=interval and (min(interval[0], value), max(interval[1], value)))
    return SimpleNamespace(name="layer", n=n, d=d, mean_cosine=found, rogue_share=None)


def cell(n: int, d: int, topic: float, times: float, sims: int) -> dict[str, Any]:
    cosine, said, none = planted(d, times * DRIFT, topic), 0, 0
    for sim in range(sims):
        random = np.random.default_rng((41, n, d, int(10 * topic), int(100 * times), sim))
        verdict = _verdict([layer(n, d, cosine, topic, random) for _ in range(LAYERS)])
        said += verdict.startswith("States share a common direction")
        none += verdict.startswith("No layer has a common direction")
    return {"tokens": n, "d": d, "topic": topic, "times": times, "sims": sims, "said": said / sims, "none": none / sims}


def table(cells: list[dict[str, Any]]) -> str:
    lines = [
        "# How often states are said to share a common direction", "",
        f"The largest mean cosine of {LAYERS} layers against {DRIFT}; behind the comma how often no layer is said to have one.", "",
        "`python experiments/hidden_states/common_direction.py`", "",
        "| tokens | columns | the topic's share | " + " | ".join(f"true cosine {t * DRIFT:.3g}" for t in PLANTED) + " |",
        "|---|---|---|" + "---|" * len(PLANTED),
    ]  # fmt: skip
    for n, d, topic in product(SIZES, WIDTHS, TOPICS):
        found = {one["times"]: one for one in cells if (one["tokens"], one["d"], one["topic"]) == (n, d, topic)}
        shares = (f"{found[t]['said']:.1%}, {found[t]['none']:.1%}" if t in found else "not run" for t in PLANTED)
        lines.append(f"| {n:,} | {d} | {topic} | " + " | ".join(shares) + " |")
    below = [one for one in cells if one["times"] < 1]
    ends = [
        float(beta.ppf(0.95, round(one["said"] * one["sims"]) + 1, one["sims"] * (1 - one["said"]) + 1e-9))
        for one in below
        if one["said"] < 1
    ]
    lines += ["", f"Largest one-sided 95% limit below the threshold: {max(ends):.1%}.", ""] if ends else [""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sims", type=int, default=200)
    sims = parser.parse_args().sims
    cells: list[dict[str, Any]] = json.loads(OUT.read_text()) if OUT.exists() else []
    known = {tuple(one[name] for name in NAMES) for one in cells}
    for place in product(SIZES, WIDTHS, TOPICS, PLANTED):
        if place not in known:
            cells.append(cell(*place, sims if place[0] < SIZES[-1] else sims // 2))
            write_text(OUT, json.dumps(cells, indent=1) + "\n")
    write_text(OUT.with_suffix(".md"), table(cells))


if __name__ == "__main__":
    main()
