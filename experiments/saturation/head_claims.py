"""How often the sentences about a head are false, and how often they are said where they are true.

    python experiments/saturation/head_claims.py [CELL ...]

Each cell is a planted head, fixed, with as many texts drawn from it; it is made once and kept in results/head_claims.json, and
results/head_claims.md is written from that. A cell at its edge has the size at which a sentence turns from false to true, found by bisection on
a text of 30,000 tokens: there it may be said of at most 2.5 % of the texts (one side of a 95 % interval).
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from uncone.model.last_states import States
from uncone.saturation.head.excision.excision import SPARED, excise
from uncone.saturation.head.gradient.gradient_share import NEAR, kept_gradient_share
from uncone.saturation.head.rank.rank_curve import rank_curve

RESULTS = Path(__file__).parent / "results"
V, D, TOKENS, MANY, TIMES, WINDOW = 60, 16, 2000, 30_000, 200, 50
Tensor = torch.Tensor


@dataclass(frozen=True)
class Planted:
    """Normal states of 16 columns. Column 0 is `spread` as wide and its entries of the head are `read` as large; column 1 has the constant
    `constant`, its spread `width`, and all columns have one offset a window of `topics`."""

    spread: float = 1.0
    read: float = 1.0
    constant: float = 0.0
    width: float = 1.0
    topics: float = 0.0
    fall: float = 0.0
    """By how much the rows of the head get shorter, e-folds from the first to the last."""
    zipf: float = 0.0
    """The bias of the logits falls as the logarithm of the row's number, times this."""
    off: float = 0.0
    """Of the true head's rows, normal noise that the model's head lacks: what a refit may gain."""

    def lacking(self) -> Tensor:
        return torch.randn(V, D, generator=torch.Generator().manual_seed(8))

    def states(self, seed: int, n: int = TOKENS) -> States:
        drawn = torch.Generator().manual_seed(seed)
        head = 0.4 * torch.randn(V, D, generator=torch.Generator().manual_seed(7))
        head[:, 0] *= self.read
        head *= torch.exp(-self.fall * torch.arange(V) / V)[:, None]
        x = torch.randn(n, D, generator=drawn)
        x[:, 0] *= self.spread
        x[:, 1] = self.width * x[:, 1] + self.constant
        windows = torch.arange(n) // WINDOW
        x += self.topics * torch.randn(int(windows[-1]) + 1, D, generator=drawn)[windows]
        bias = -self.zipf * torch.log(torch.arange(1.0, V + 1))
        logits = x @ (head + self.off * self.lacking()).T + bias
        labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=drawn)[:, 0]
        return States(x, labels, head, bias if self.zipf else None, None, 1.0, "planted", windows)


def excised(planted: Planted, seed: int, n: int = TOKENS) -> Any:
    return excise(planted.states(seed, n), ks=[1, 2], seed=seed)


def change(found: Any, kind: str) -> float:
    value: float = next(row.change.value for row in found.rows if (row.directions, row.k) == (kind, 1))
    return value


def over_random(planted: Planted) -> float:
    """The loss without the first centred direction, over that without random ones, as a share of the loss."""
    found = [excised(planted, seed, MANY) for seed in range(6)]  # of 30 random directions
    random = sum(change(one, "random") for one in found) / len(found)
    return (change(found[0], "centred") - random) / found[0].loss


def rise(planted: Planted) -> float:
    found = excised(planted, 0, MANY)
    return change(found, "centred") / found.loss


def constant_share(planted: Planted) -> float:
    found = excised(planted, 0, MANY)
    return 1 - change(found, "bias") / change(found, "raw")


def times_chance(planted: Planted) -> float:
    found = kept_gradient_share(planted.states(0, MANY)).times_chance
    assert found is not None
    return found


def gain(planted: Planted) -> float:
    """The full head's loss less the true head's, in nats."""
    given = planted.states(0, MANY)
    heads = given.head, given.head + planted.off * planted.lacking()
    own, best = (torch.nn.functional.cross_entropy(given.states @ head.T, given.labels) for head in heads)
    return float(own - best)


def bisected(
    measure: Callable[[Planted], float], field: str, target: float, low: float, high: float, **rest: float
) -> Planted:
    """The planted head whose measure is the target: `field` between two values, by its logarithm."""
    rising = measure(Planted(**{**rest, field: high})) > measure(Planted(**{**rest, field: low}))
    for _ in range(8):
        middle = math.sqrt(low * high)
        if (measure(Planted(**{**rest, field: middle})) > target) == rising:
            high = middle
        else:
            low = middle
    return Planted(**{**rest, field: math.sqrt(low * high)})


CARRY, DRIFT, BIAS = (
    "the dominant directions carry what the head reads",
    "the drift is harmless",
    "a constant logit bias",
)
MORE, COUNTED = "more than counting dimensions predicts", "nearly all of the loss is counting of dimensions"
PRINTED = {MORE: MORE, COUNTED: "the number of dimensions explains nearly all of the loss"}
SMALL, NOT = "the head may have rank r", "the model does not fit this text"
EVERY = "every head of a lower rank that was read loses more than"
RANK, MARGIN = 12, 0.03


def of_excision(planted: Planted, seed: int) -> set[str]:
    found = excised(planted, seed)
    return {found.verdict.partition(".")[0].lower()} | ({BIAS} if found.bias.value is not None else set())


def of_gradient(planted: Planted, seed: int) -> set[str]:
    verdict = kept_gradient_share(planted.states(seed), seed=seed).verdict
    return {sentence for sentence, words in PRINTED.items() if words in verdict}


def excess(planted: Planted) -> float:
    """The least that a cut to rank 12 costs, in nats."""
    return min(line.excess[0] for line in rank_curve(planted.states(0, 8 * MANY), ranks=[RANK], refits=False).lines)


def of_rank(times: float) -> Callable[[Planted, int], set[str]]:
    """With a margin that is so many times what a head of rank 12 costs."""
    cost = list[float]()

    def said(planted: Planted, seed: int) -> set[str]:
        cost[:] = cost or [excess(planted)]
        curve = rank_curve(planted.states(seed), ranks=[RANK], refits=False, margin_nats=times * cost[0], seed=seed)
        small = {SMALL} if curve.answer is not None and curve.answer[0] <= RANK else set[str]()
        return small | {sentence for sentence in (EVERY,) if sentence in curve.verdict.lower()}

    return said


def of_fit(planted: Planted, seed: int) -> set[str]:
    curve = rank_curve(planted.states(seed), ranks=[RANK], margin_nats=MARGIN, evaluations=10, seed=seed)
    assert curve.fit is not None
    return {NOT} if curve.fit.misfit else set()


Cell = tuple[str, Callable[[], Planted], Callable[[Planted, int], set[str]], dict[str, bool]]


def carry(share: float) -> Callable[[], Planted]:
    return lambda: bisected(over_random, "read", share, 0.05, 6, spread=2.0)


def bias(share: float) -> Callable[[], Planted]:
    return lambda: bisected(constant_share, "width", share, 0.1, 4, constant=4.0)


def times(chance: float) -> Callable[[], Planted]:
    return lambda: bisected(times_chance, "fall", chance, 0.01, 20, zipf=1.5)


def off(nats: float) -> Callable[[], Planted]:
    return lambda: bisected(gain, "off", nats, 0.01, 2)


CELLS: dict[str, Cell] = {
    "round": ("round states", Planted, of_excision, {CARRY: False, DRIFT: False, BIAS: False}),
    "topics": (
        "an offset of .5 sd a window",
        lambda: Planted(topics=0.5),
        of_excision,
        {CARRY: False, DRIFT: False, BIAS: False},
    ),
    "constant": ("a constant of 4 sd, read", lambda: Planted(constant=4), of_excision, {CARRY: False, DRIFT: False}),
    "carry edge": ("1 % of the loss over random", carry(SPARED), of_excision, {CARRY: False}),
    "carry 10": ("10 % of the loss over random", carry(0.1), of_excision, {CARRY: True, DRIFT: False, BIAS: False}),
    "carry 20": ("20 % of the loss over random", carry(0.2), of_excision, {CARRY: True, DRIFT: False, BIAS: False}),
    "drift edge": (
        "8 sd, read for 1 % of the loss",
        lambda: bisected(rise, "read", SPARED, 0.001, 1, spread=8.0),
        of_excision,
        {DRIFT: False},
    ),
    "drift 4": (
        "4 sd, not read",
        lambda: Planted(spread=4, read=1e-3),
        of_excision,
        {DRIFT: True, CARRY: False, BIAS: False},
    ),
    "drift 8": (
        "8 sd, not read",
        lambda: Planted(spread=8, read=1e-3),
        of_excision,
        {DRIFT: True, CARRY: False, BIAS: False},
    ),
    "bias edge": ("half of the rise is constant", bias(0.5), of_excision, {BIAS: False}),
    "bias 60": ("60 % of the rise is constant", bias(0.6), of_excision, {BIAS: True}),
    "bias 80": ("80 % of the rise is constant", bias(0.8), of_excision, {BIAS: True}),
    "gradient edge": ("2 times chance", times(NEAR), of_gradient, {MORE: False, COUNTED: False}),
    "gradient 1.8": ("1.8 times chance", times(1.8), of_gradient, {MORE: False, COUNTED: True}),
    "gradient 1.9": ("1.9 times chance", times(1.9), of_gradient, {MORE: False, COUNTED: True}),
    "gradient 2.1": ("2.1 times chance", times(2.1), of_gradient, {MORE: True, COUNTED: False}),
    "gradient 2.2": ("2.2 times chance", times(2.2), of_gradient, {MORE: True, COUNTED: False}),
    "rank edge": ("rank 12 costs the margin", Planted, of_rank(1.0), {SMALL: False, EVERY: False}),
    "rank 1.5": ("it costs 1 / 1.5 of the margin", Planted, of_rank(1.5), {SMALL: True, EVERY: False}),
    "rank 2": ("it costs half of the margin", Planted, of_rank(2.0), {SMALL: True, EVERY: False}),
    "rank 0.5": ("it costs twice the margin", Planted, of_rank(0.5), {SMALL: False, EVERY: True}),
    "rank 0.33": ("it costs 3 times the margin", Planted, of_rank(1 / 3), {SMALL: False, EVERY: True}),
    "fit": ("the true head; margin .03 nats", Planted, of_fit, {NOT: False}),
    "fit 1": ("a true head is .03 nats better", off(MARGIN), of_fit, {NOT: False}),
    "fit 10": ("it is .3 nats better", off(10 * MARGIN), of_fit, {NOT: True}),
    "fit 20": ("it is .6 nats better", off(20 * MARGIN), of_fit, {NOT: True}),
    "fit 40": ("it is 1.2 nats better", off(40 * MARGIN), of_fit, {NOT: True}),
}
TEXTS = {"rank edge": 600, "gradient edge": 600} | {name: 100 for name in CELLS if name.startswith("fit")}
"""Where it is not 200: more at an edge, and fewer in a cell that refits."""


def compute(name: str, texts: int) -> dict[str, Any]:
    planted, make, read, sentences = CELLS[name]
    given = make()
    said = [read(given, seed) for seed in range(1, texts + 1)]
    counts = {sentence: sum(sentence in one for one in said) for sentence in sentences}
    return {"planted": planted, "texts": texts, "said": counts, "head": vars(given)}


def upper(said: int, times: int, level: float = 0.05) -> float:
    """The upper end of the exact one-sided interval of a share (Clopper and Pearson 1934), by bisection."""
    low, high = said / times, 1.0
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(math.comb(times, k) * p**k * (1 - p) ** (times - k) for k in range(said + 1))
        low, high = (p, high) if tail > level else (low, p)
    return high


def table(results: dict[str, Any]) -> str:
    lines = ["| sentence | planted | texts | false alarms (upper 95 % limit) | power | cell |", "|---" * 6 + "|"]
    rows = [
        (sentence, name, true) for name, cell in CELLS.items() if name in results for sentence, true in cell[3].items()
    ]
    order = (CARRY, DRIFT, BIAS, MORE, COUNTED, SMALL, EVERY, NOT)
    for sentence, name, true in sorted(rows, key=lambda row: (order.index(row[0]), row[2])):
        one = results[name]
        said, texts = one["said"][sentence], one["texts"]
        alarm = "" if true else f"{said / texts:.1%} ({upper(said, texts):.1%})"
        power = f"{said / texts:.1%}" if true else ""
        lines.append(f"| {sentence} | {one['planted']} | {texts} | {alarm} | {power} | `{name}` |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)}; all by default")
    asked = parser.parse_args().cells or list(CELLS)
    torch.set_num_threads(1)
    target = RESULTS / "head_claims.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    for name in asked:
        if name not in results:
            results[name] = compute(name, TEXTS.get(name, TIMES))
            print(name, results[name], flush=True)
            results = {cell: results[cell] for cell in CELLS if cell in results}
            target.write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "head_claims.md").write_text(table(results))


if __name__ == "__main__":
    main()
