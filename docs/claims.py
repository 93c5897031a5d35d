"""Write the tables of claims into the documents from the kept results of experiments: `python docs/claims.py`.

A row is a sentence that uncone prints, the test behind it, its level, how often it is printed where it is wrong and where it is right, and the command that
measured that. No number is typed: what no experiment has measured stands as "not measured".
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_TABLE = re.compile(r"(<!-- claims -->\n).*?(<!-- end of claims -->)", re.DOTALL)
COLUMNS = ("what is printed", "the test", "level", "printed where it is wrong", "printed where it is right", "command")


@dataclass(frozen=True)
class Claim:
    sentence: str
    test: str
    level: str
    wrong: str  # the share, with the upper 95 % limit of the worst cell
    right: str  # the share at two sizes
    command: str  # below experiments/, or why there is none


def kept(path: str) -> Any:
    """A result below experiments/."""
    return json.loads((ROOT / "experiments" / path).read_text(encoding="utf-8"))


def worst(found: Iterable[dict[str, Any]], share: Callable[[dict[str, Any]], float]) -> str:
    """The largest share of cells with `sims` simulations, with Clopper and Pearson's one-sided limit of 95 %."""
    from scipy.stats import beta

    ends = []
    for one in found:
        n, hits = one["sims"], round(share(one) * one["sims"])
        ends.append((1.0 if hits == n else float(beta.ppf(0.95, hits + 1, n - hits)), hits / n))
    limit, rate = (max(of) for of in zip(*ends, strict=True))
    return f"at most {rate:.1%} (limit {limit:.1%})"


def sized(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%} ({size})" for size, share in shares.items())


def of_zipf() -> list[Claim]:
    cells, command = kept("token_frequency/results/rivals.json"), "token_frequency/rivals.py"
    follows = [one for one in cells if one["law"].startswith(("ranks", "types, exponent"))]
    others = [one for one in cells if one not in follows]
    sizes = sorted({one["ranks"] for one in cells})

    def least(some: list[dict[str, Any]], share: Callable[[dict[str, Any]], float], of: Iterable[int]) -> str:
        return sized({f"{n:,} ranks": min(share(one) for one in some if one["ranks"] == n) for n in of})

    by_rank = [one for one in follows if one["law"].startswith("ranks")]
    plain = [one for one in others if not one["law"].startswith("types")]
    return [
        Claim(
            "Tokens do not follow Zipf's law: a log-normal fits the counts better",
            "likelihood ratio against a log-normal and a cut power law, Holm",
            "2 %",
            worst(follows, lambda one: one["no"]),
            least(plain, lambda one: one["no"], sizes[:2]),
            command,
        ),
        Claim(
            "Tokens follow Zipf's law roughly (or closely)",
            "no rival is better, the gap is at most 10 %, and the 95 % interval of the exponent's change lies within 50 %",
            "2.5 %",
            worst(others, lambda one: one["roughly"] + one["closely"]),
            least(by_rank, lambda one: one["roughly"] + one["closely"], sizes[:2]),
            command,
        ),
        Claim(
            "Tokens follow Zipf's law closely",
            "the same with a gap of at most 2 % and a change within 25 %",
            "2.5 %",
            worst(others, lambda one: one["closely"]),
            least(by_rank, lambda one: one["closely"], sizes[1:]),
            command,
        ),
        Claim("Undecided whether tokens follow Zipf's law", "none of these", "", "claims nothing", "", command),
    ]


def of_contexts() -> list[Claim]:
    cells, command = kept("saturation/results/context_claims.json"), "saturation/context_claims.py"
    none, *some = cells

    def row(sentence: str, test: str, key: str) -> Claim:
        right = sized({f"{one['share']:.0%} of 20,000 tokens follow the one before": one[key] for one in some})
        return Claim(sentence, test, "1 % each", worst([none], lambda one: one[key]), right, command)

    return [
        row(
            "Language takes more (or fewer) dimensions than frequencies alone",
            "interval of the W-error less that of the same tokens shuffled, over blocks, at one or two numbers of dimensions",
            "language",
        ),
        row(
            "Contexts seen 5 times or more take fewer (or more) dimensions than with their followers shuffled",
            "the same interval against shuffled followers",
            "often",
        ),
        Claim(
            "No difference from shuffled tokens was detected",
            "these intervals hold 0",
            "",
            "claims nothing",
            "",
            command,
        ),
    ]


def of_law() -> list[Claim]:
    cells, command = kept("saturation/results/law_gaps.json"), "saturation/law_gaps.py"
    none = [one for one in cells if one["off"] == "none off"]

    def power(off: str, deviations: int, share: str) -> str:
        some = [one for one in cells if (one["off"], one["deviations"]) == (off, deviations)]
        return sized({f"{one['design']}, {deviations} deviations": one[share] for one in some})

    missed = [
        {"sims": of, "missed": 1 - hits / of}
        for one in kept("saturation/results/coverage.json")
        for name, (hits, of) in one["counts"].items()
        if name.endswith("profile")
    ]
    return [
        Claim(
            "The 4 runs below 400M are 8.9% above the law",
            "the interval of their mean gap, from fits of simulated runs, does not hold 0",
            "5 %",
            worst(none, lambda one: one["mean_off"]),
            f"{power('all off', 8, 'mean_off')}; {power('all off', 16, 'mean_off')}",
            command,
        ),
        Claim(
            "The runs show no clear gap from the law", "the same interval holds 0", "", "claims nothing", "", command
        ),
        Claim(
            "Alone, 1 of 4 is off it",
            "the chance of a run's gap among the same simulated fits, Holm over the runs held out",
            "5 %",
            worst(none, lambda one: one["any_named"]),
            f"{power('one off', 8, 'planted_named')}; {power('one off', 16, 'planted_named')}",
            command,
        ),
        Claim(
            "The exponents alpha and beta, with their ends",
            "profile interval, with its threshold from simulated fits",
            "5 %",
            f"the interval misses the planted value in {worst(missed, lambda one: one['missed'])}",
            "",
            "saturation/coverage.py",
        ),
    ]


def of_curves() -> list[Claim]:
    alarms, found = kept("saturation/results/false_alarms.json"), kept("saturation/results/power.json")
    command = "saturation/false_alarms.py"
    bends = [
        one | {"sims": one["n"], "missed": 1 - one["held"]} for name, one in found.items() if name.startswith("bend")
    ]

    def false(*kinds: str) -> str:
        """The test is held to jitter of a correlation of 0.8; more of it is shown too."""
        cells = [one | {"sims": one["n"]} for name, one in alarms.items() if name.startswith(kinds)]
        held_to, beyond = (
            worst((one for one in cells if (one["correlation"] <= 0.8) is kept_to), lambda one: one["rate"])
            for kept_to in (True, False)
        )
        return f"{held_to}; with jitter of a correlation of 0.9, {beyond}"

    def power(of: str, grid: str) -> str:
        fall = {"of": of, "fall": "over the last third", "correlation": 0.0, "grid": grid}
        some = {one["jitters"]: one["rate"] for one in found.values() if fall.items() <= one.items()}
        return sized({f"{grid}, {size} deviations": some[size] for size in (4, 6)})

    (small,) = (
        one
        for one in found.values()
        if one.get("of") == "70M" and (one["fall"], one["correlation"]) == ("1 of four", 0.0)
    )
    turns, rises = kept("saturation/results/turns.json"), kept("saturation/results/late_rises.json")
    none = [one for name, one in turns.items() if "valley" not in name]
    wrong_phase = [one for one in kept("saturation/results/phases.json").values() if "right" not in one]
    orders = kept("saturation/results/orders.json")
    by_size = [f"30 checkpoints, least at {least} of the training, rise of 8, 0.0" for least in (0.35, 0.5, 0.65)]
    return [
        Claim(
            "1 of 16 curves declined late",
            "the least chance of a fall at the end of the last 10, 12 ... checkpoints, AR(1); correlations shared in the family, Holm",
            "5 %",
            false("family", "mixed", "end"),
            f"{power('family', 'Pythia, 16')}, {power('family', '30 even')}; 70M beside three small models: {small['rate']:.0%}",
            command,
        ),
        Claim(
            "Judged alone, 1 declined",
            "the same by the curve's own jitter, uncorrected",
            "5 % a curve",
            false("single"),
            f"{power('single', 'Pythia, 16')}, {power('single', '30 even')}; 70M: {small['alone']['rate']:.0%}",
            command,
        ),
        Claim(
            "Tested first, 1 declined",
            "the same alone; each of the curves named beforehand at the whole level, as long as all before it declined",
            "5 %",
            false("first"),
            f"70M beside three small models: {small['first']['rate']:.0%}",
            command,
        ),
        Claim(
            "No late decline was detected",
            "neither; the fall that is seen in 80 % stands beside it",
            "",
            "claims nothing",
            "",
            command,
        ),
        Claim(
            "Bends at 53,000 (43,000 to 123,000)",
            "F test of every bend and of two falls",
            "5 %",
            f"the interval misses it in {worst(bends, lambda one: one['missed'])}",
            "",
            command,
        ),
        Claim(
            "The loss turned at step 12,000",
            "a fall at the beginning and a rise at the end, both beyond chance, Holm over its family of series",
            "5 %",
            worst(none, lambda one: one["turned"]),
            sized({name.rpartition(",")[0]: rises[name]["turned"] for name in by_size}),
            "saturation/turns.py",
        ),
        Claim(
            "No turn was detected in the loss",
            "not both; the change that is seen in 80 % stands beside it",
            "",
            "claims nothing",
            "",
            "saturation/turns.py",
        ),
        Claim(
            "Geometry turned before (or after) the loss",
            "95 % of the draws of both times",
            "5 % each way",
            worst((one for name, one in orders.items() if name.startswith("at the same")), lambda one: one["ordered"]),
            sized(
                {name.rpartition(",")[0]: one["ordered"] for name, one in orders.items() if name.endswith("later, 0.0")}
            ),
            "saturation/turns.py",
        ),
        Claim(
            "Collapse, then expansion, then compression of RankMe",
            "a valley and a peak, each as a turn, Holm over both",
            "5 %",
            worst(wrong_phase, lambda one: one["claimed"]),
            sized(
                {
                    name.rpartition(",")[0]: one["right"]
                    for name, one in kept("saturation/results/phases.json").items()
                    if "right" in one and name.endswith("0.0")
                }
            ),
            "saturation/turns.py",
        ),
    ]


def of_reasons() -> list[Claim]:
    cells, command = kept("token_frequency/results/reasons.json"), "token_frequency/reasons.py"
    common = kept("hidden_states/results/common_direction.json")
    lengths = sorted({one["tokens"] for one in common})
    found = {n: min(one["said"] for one in common if one["times"] == 1.25 and one["tokens"] == n) for n in lengths}
    absent = {n: min(one["none"] for one in common if one["times"] == 0.8 and one["tokens"] == n) for n in lengths}

    def shares(sentence: str, truths: tuple[str, ...], unit: str) -> str:
        some = [one for one in cells if one["sentence"] == sentence and one["truth"] in truths]
        return sized({f"{one['n']:,} {unit}": one["said"] for one in some})

    def false(sentence: str, *truths: str) -> str:
        return worst(
            (one for one in cells if one["sentence"] == sentence and one["truth"] in truths), lambda one: one["said"]
        )

    proof = "proven in float64, rounding counted"
    return [
        Claim(
            "The norm rises with the count up to 100 occurrences and falls from there",
            "two rank correlations of opposite signs in the half of rows that did not choose the cut",
            "2.5 %",
            false("turn", "independent", "line", "plateau", "late"),
            shares("turn", ("turn",), "rows"),
            command,
        ),
        Claim(
            "This text pushes (or pulls) these rows more than it pulls (or pushes) them",
            "the net budget of rare rows and its variance under the model's own probabilities",
            "5 %",
            false("push", "1 times"),
            shares("push", ("1.5 times",), "targets, rare ones 1.5 times as often"),
            command,
        ),
        Claim(
            "This text shows no imbalance of pull and push",
            "the same interval holds 0",
            "",
            "claims nothing",
            "",
            command,
        ),
        Claim(
            "All 4,169 states avoid one direction",
            f"{proof}, and no held-out state violates it",
            "",
            "cannot be",
            "",
            "a proof",
        ),
        Claim(
            "There is no direction that all states avoid",
            f"a mixture of states of norm 0, {proof}",
            "",
            "cannot be",
            "",
            "a proof",
        ),
        Claim(
            "This token can never be predicted",
            f"a mixture of other rows lies above it, {proof}",
            "",
            "cannot be",
            "",
            "a proof",
        ),
        Claim(
            "The component common to all rows shrinks no softmax margin",
            "every margin is measured with and without it: an identity",
            "",
            "cannot be",
            "",
            "a measurement",
        ),
        Claim(
            "States share a common direction in layer 5; dimension 223 alone carries 62% of the mean cosine",
            "the interval of the largest layer's mean cosine of different passages, widened for 13 layers, lies above 0.1",
            "2.5 %",
            worst([one for one in common if one["times"] < 1], lambda one: one["said"]),
            sized({f"{n:,} tokens": share for n, share in found.items()}),
            "hidden_states/common_direction.py",
        ),
        Claim(
            "No layer has a common direction to speak of",
            "the same interval of the largest layer lies below 0.1",
            "2.5 %",
            worst([one for one in common if one["times"] > 1], lambda one: one["none"]),
            sized({f"{n:,} tokens": share for n, share in absent.items()}),
            "hidden_states/common_direction.py",
        ),
    ]


PAGES: dict[str, tuple[Callable[[], list[Claim]], ...]] = {
    "saturation.md": (of_curves, of_law, of_contexts),
    "explain.md": (of_zipf, of_reasons),
}


def table(page: str) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for claims in PAGES[page]:
        rows += [
            (
                one.sentence,
                one.test,
                one.level,
                one.wrong,
                one.right,
                f"`{one.command}`" if ".py" in one.command else one.command,
            )
            for one in claims()
        ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def written(page: str, text: str) -> str:
    return _TABLE.sub(lambda found: f"{found[1]}\n{table(page)}\n{found[2]}", text)


def main() -> None:
    for page in PAGES:
        path = ROOT / "docs" / page
        path.write_text(written(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
