"""What the paper and its notebook claim, and what one asks besides (clusters, few examples): each a difference with a sign, and what these runs say of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from runs import Group
from scoring import Difference, Paired

MAIN_METRIC = {"mrpc": "accuracy", "cola": "matthews"}
_BATCH, _HELD_OUT = ("training", "last_steps", "training_batch"), ("training", "last_steps", "held_out")
_CLUSTERS = ("held_out", "clusters")


@dataclass(frozen=True)
class Claim:
    """`second` less `first` in one number is claimed to have a sign."""

    text: str
    first: str
    second: str
    path: tuple[str | int, ...] | None
    """Of the number in a run; None is the task's main metric."""
    sign: int
    sizes: tuple[str, ...] = ("all",)


_HEADS = {"holds": "Holds", "contradicted": "Contradicted", "undecided": "Undecided"}
CLAIMS = (
    Claim("selected bars lower A1 of training batches, raw", "none", "selected", (*_BATCH, "raw", 0), -1),
    Claim("selected bars lower A1 of training batches, centred", "none", "selected", (*_BATCH, "centred", 0), -1),
    Claim("all bars lower A1 of training batches, centred", "none", "all", (*_BATCH, "centred", 0), -1),
    Claim(
        "selected bars lower A1 more than all bars do, training batches, centred",
        "all",
        "selected",
        (*_BATCH, "centred", 0),
        -1,
    ),
    Claim("selected bars lower A1 of held-out items, centred", "none", "selected", (*_HELD_OUT, "centred", 0), -1),
    Claim(
        "selected bars lower A1 of held-out items within classes: not the class direction alone",
        "none",
        "selected",
        (*_HELD_OUT, "within_class", 0),
        -1,
    ),
    Claim("selected bars raise the task metric", "none", "selected", None, 1),
    Claim("all bars raise the task metric", "none", "all", None, 1),
    Claim("selected bars raise the task metric more than all bars", "all", "selected", None, 1),
    Claim(
        "classes lie farther apart with selected bars, held out: silhouette",
        "none",
        "selected",
        (*_CLUSTERS, "silhouette"),
        1,
    ),
    Claim(
        "the length term alone lowers A1 more than selected bars, training batches, centred",
        "selected",
        "length",
        (*_BATCH, "centred", 0),
        -1,
    ),
    Claim("the length term alone costs task metric", "none", "length", None, -1),
    Claim(
        "with few examples selected bars lower A1, held out, centred",
        "none",
        "selected",
        (*_HELD_OUT, "centred", 0),
        -1,
        ("300", "1000"),
    ),
    Claim("with few examples selected bars raise the task metric", "none", "selected", None, 1, ("300", "1000")),
)


def claims(found: list[Group]) -> str:
    """A table of the claims and what holds."""
    lines = ["| claim | task | examples | difference | seeds | verdict |", "|---|---|---|---|---|---|"]
    for claim in CLAIMS:
        lines += [
            f"| {claim.text} | {group.task} | {group.size} | {_said(result, claim)} | {result.seeds} | {verdict(result, claim.sign)} |"
            for group, result in results(claim, found)
        ]
    return "\n".join(lines)


def in_short(found: list[Group]) -> str:
    """What holds, what is contradicted and what is left open, a line each; claims of one seed are not judged."""
    said: dict[str, dict[str, list[str]]] = {"holds": {}, "contradicted": {}, "undecided": {}}
    for claim in CLAIMS:
        for group, result in results(claim, found):
            where = group.task if group.size == "all" else f"{group.task} with {group.size}"
            found_of = said.get(verdict(result, claim.sign))
            if found_of is not None:
                found_of.setdefault(claim.text, []).append(where)
    count = {name: sum(map(len, texts.values())) for name, texts in said.items()}
    if not sum(count.values()):
        return "No claim can be judged yet: that takes two seeds of two arms."
    first = f"Of {sum(count.values())} comparisons: claim holds {count['holds']}, contradicted {count['contradicted']}, undecided {count['undecided']}."
    lines = [line for name, texts in said.items() if texts for line in (f"{_HEADS[name]}:", "", *_listed(texts), "")]
    return "\n".join([first, "", *lines]).rstrip()


def _listed(texts: dict[str, list[str]]) -> list[str]:
    return [f"- {text} ({', '.join(where)})" for text, where in texts.items()]


def results(claim: Claim, found: list[Group]) -> Iterator[tuple[Group, Difference | Paired]]:
    """What each task and size says of a claim; those that lack an arm are left out."""
    for group in found:
        if group.size not in claim.sizes:
            continue
        if claim.path is not None:
            result: Difference | Paired | None = group.paired(claim.first, claim.second, *claim.path)
        else:
            compared = group.compared(claim.first, claim.second)
            result = None if compared is None else compared[MAIN_METRIC[group.task]]
        if result is not None:
            yield group, result


def verdict(result: Difference | Paired, sign: int) -> str:
    """Whether a difference has the claimed sign, as far as its interval tells."""
    if result.low is None or result.high is None:
        return "one seed: not judged"
    low, high = sorted((sign * result.low, sign * result.high))
    if low > 0:
        return "holds"
    return "contradicted" if high < 0 else "undecided"


def _said(result: Difference | Paired, claim: Claim) -> str:
    scale, digits = (100, 2) if claim.path is None else (1, 3)
    what = "metric" if claim.path is None else "A1" if claim.path[-1] == 0 else str(claim.path[-1])
    if result.low is None or result.high is None:
        return f"{scale * result.value:+.{digits}f} {what}"
    detectable = (
        f", detectable {scale * result.detectable:.{digits}f}"
        if isinstance(result, Difference) and result.detectable
        else ""
    )
    return f"{scale * result.value:+.{digits}f} [{scale * result.low:+.{digits}f}, {scale * result.high:+.{digits}f}] {what}{detectable}"
