"""The results in Markdown."""

from collections.abc import Sequence
from typing import Any

NAMES = {
    "head isotropy": "I(W), head",
    "input isotropy": "I(W), input",
    "head mean_shift": "mean shift, head",
    "input mean_shift": "mean shift, input",
    "head largest_row": "largest row, head",
    "input largest_row": "largest row, input",
    "head largest_over_mean": "largest / mean row, head",
    "input largest_over_mean": "largest / mean row, input",
}

TIED_NAMES = {
    "tied isotropy": "I(W)",
    "tied mean_shift": "mean shift",
    "tied largest_row": "largest row",
    "tied largest_over_mean": "largest / mean row",
}


def all_tables(found: dict[str, Any]) -> str:
    """Everything that README.md shows or points to."""
    of_rates, of_remedies = found["over_learning_rates"], found["at_fixed_learning_rate"]
    parts = [
        "## Over learning rates, within a remedy\n\nMean of Kendall's tau-b with the test loss over the five sizes (95 % interval); "
        "`*` p < 0.05, `**` also after Holm. Positive: a higher reading goes with a higher, worse loss. Cells in which more than half of "
        'the pairs of readings tie are left out; "ties": no cell is left.\n\n' + _groups(of_rates),
        "## At a fixed learning rate, over remedies and strengths\n\n" + _groups(of_remedies),
        "## How many by chance\n\n" + _multiplicity(found["multiplicity"]),
        "## By size\n\nThe mean over the ten remedies, and over the seven learning rates.\n\n"
        + _groups(found["by_size"]),
        "## Spearman's correlation beside tau-b\n\nMeans over all cells.\n\n" + _spearman(of_rates, of_remedies),
        "## Other choices of runs\n\n" + _sensitivity(found["sensitivity"]),
        "## Prediction\n\n" + _prediction(found["prediction"]),
        "## Chosen by its reading\n\nNats above the best run of the size.\n\n" + _chosen(found["chosen_by_reading"]),
        "## With the learning rate itself\n\nMean of tau-b between a reading and the learning rate, within a size and remedy.\n\n"
        + _with_rate(found["runs"]["correlation_with_the_learning_rate"]),
        f"## Tied tables\n\nThe {found['tied']['runs']} runs with a tied table, of which {found['tied']['diverged']} diverged: over "
        f"learning rates, within a remedy. Holm is over the {found['tied']['tests']} pooled values of this section.\n\n"
        + _groups(found["tied"]["over_learning_rates"], TIED_NAMES)
        + "\n\nAt a fixed learning rate, over remedies.\n\n"
        + _groups(found["tied"]["at_fixed_learning_rate"], TIED_NAMES),
    ]
    return "\n\n".join(parts) + "\n"


def in_short(found: dict[str, Any]) -> str:
    """The result in one paragraph."""
    name, runs, chance = "head isotropy", found["runs"], found["multiplicity"]
    over, fixed = found["over_learning_rates"]["all"][name], found["at_fixed_learning_rate"]["all"][name]
    rate, prices = runs["correlation_with_the_learning_rate"][name], found["chosen_by_reading"]
    alone, of_rate, both = (found["prediction"][way] for way in (name, "learning rate", f"{name}, rate given"))
    sizes = list(prices[name])
    least, most = min(prices[name].values()), max(prices[name].values())
    worse = sum(prices[name][size] > prices["the median run"][size] for size in sizes)
    first, last = (found["by_size"][f"{size} M, over learning rates"][name]["tau"] for size in (sizes[0], sizes[-1]))
    return (
        f"In {runs['runs']} models of {sizes[0]} to {sizes[-1]} M parameters (Stollenwerk 2026), compared within a size, I(W) of the untied head has "
        f"Kendall's tau-b with the test loss of {_plain(over)} over learning rates, which hides {first:+.2f} at {sizes[0]} M and {last:+.2f} at "
        f"{sizes[-1]} M, and {_plain(fixed)} over remedies at a fixed learning rate. What it follows is the learning rate (tau-b {_plain(rate)}): that "
        f"alone predicts {_share(of_rate)} of the variance of loss ranks of a remedy not seen, I(W) alone {_share(alone)}, both {_share(both)}. The "
        f"model with the most isotropic head lies {least:.2f} to {most:.2f} nats above the best of its size, in {worse} of {len(sizes)} sizes "
        f"worse than the median model. Of {chance['tests']} correlations of I(W), the mean shift or the largest row with the loss, by remedy or by "
        f"learning rate, {chance['below_0.05']} have p < 0.05, where chance gives {chance['expected_below_0.05']:.0f}; "
        f"{chance['holm_below_0.05']} are left after Holm's correction, "
        f"{chance['holm_of_z_loss_100']} of them of the one remedy that harms (z-loss 100), and their signs differ."
    )


def _plain(one: dict[str, Any]) -> str:
    return f"{one['tau']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"


def _share(one: dict[str, Any]) -> str:
    return f"{100 * one['value']:.0f} % ({100 * one['low']:.0f} to {100 * one['high']:.0f})"


def _multiplicity(of: dict[str, Any]) -> str:
    pooled = ("tests", "below_0.05", "expected_below_0.05", "holm_below_0.05", "without_a_value")
    cells = ("cells", "cells_below_0.05", "expected_cells_below_0.05")
    head = ("", "correlations", "p < 0.05", "expected by chance", "p < 0.05 after Holm", "left out: ties")
    lines = [["pooled over sizes", *(f"{of[key]:g}" for key in pooled)]]
    return table(head, [*lines, ["single cells", *(f"{of[key]:g}" for key in cells), "–", "–"]])


def _groups(of: dict[str, Any], names: dict[str, str] = NAMES) -> str:
    return table(
        ("", *names.values()), [[group, *(_tau(readings[name]) for name in names)] for group, readings in of.items()]
    )


def _tau(one: dict[str, Any] | None) -> str:
    if one is None:
        return "ties"
    stars = "" if "holm" not in one else "**" if one["holm"] < 0.05 else "*" if one["p"] < 0.05 else ""
    return f"{one['tau']:+.2f}{stars.replace('*', chr(92) + '*')} ({one['low']:+.2f} to {one['high']:+.2f})"


def _spearman(*families: dict[str, Any]) -> str:
    lines = []
    for name, said in NAMES.items():
        taken = [family["all"][name] for family in families]
        lines.append([said, *(f"{one[kind]:+.2f}" for one in taken for kind in ("tau", "spearman"))])
    return table(("", "over learning rates: tau-b", "Spearman", "at a fixed rate: tau-b", "Spearman"), lines)


def _sensitivity(ways: dict[str, Any]) -> str:
    lines = []
    for way, of in ways.items():
        for kind, said in (
            ("over_learning_rates", "over learning rates"),
            ("at_fixed_learning_rate", "at a fixed rate"),
        ):
            lines.append([f"{way} ({of['runs']}), {said}", *(_tau(of[kind][name]) for name in NAMES)])
    return table(("", *NAMES.values()), lines)


def _prediction(of: dict[str, Any]) -> str:
    def said(name: str) -> str:
        base, _, given = name.partition(", ")
        return NAMES.get(base, base) + (f", {given}" if given else "")

    sizes = list(next(iter(of.values()))["by_size"])
    head = ("predicted from", "share of the variance of loss ranks (95 %)", *(f"{size} M" for size in sizes))
    lines = [
        [
            said(name),
            f"{one['value']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})",
            *(f"{one['by_size'][s]:+.2f}" for s in sizes),
        ]
        for name, one in of.items()
    ]
    return table(head, lines)


def _chosen(of: dict[str, Any]) -> str:
    sizes = list(of["the median run"])
    words = {"head isotropy": "highest I(W) of the head", "input isotropy": "highest I(W) of the input table"}
    lines = [[words.get(name, name), *(f"{prices[size]:.3f}" for size in sizes)] for name, prices in of.items()]
    return table(("the run with", *(f"{size} M" for size in sizes)), lines)


def _with_rate(of: dict[str, Any]) -> str:
    return table(tuple(NAMES.values()), [[_tau(of[name]) for name in NAMES]])


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Rows in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))
