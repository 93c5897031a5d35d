"""A scaling law in one sentence, and what a reader must know beside it."""

import math
from collections.abc import Sequence

from uncone.records.text import count, listing, number, plural
from uncone.saturation.law.fit import CONSTANTS, GRID
from uncone.saturation.law.intervals import RUNS_A_CONSTANT
from uncone.saturation.law.record import COUNTED, Gap, LawConstant, LawRun, between, ends, short

FEW_SPARE = 3
"""Runs beyond the constants below which the noise is hardly known."""
FAR = 4.0
"""How many times smaller or larger than all fitted runs a run is that the law says little of."""

_TERMS = {
    "A": "the loss of these runs does not depend on N, and alpha means nothing",
    "B": "the loss of these runs does not depend on T, and beta means nothing",
    "E": "these runs show no loss that more N and T would not remove",
}


def verdict(
    runs: Sequence[LawRun], constants: Sequence[LawConstant], gap: Gap | None, parameters: str, smallest: float | None
) -> str:
    """The mean gap of the runs held out, or without them how fast loss falls."""
    held = [run for run in runs if not run.fitted]
    fitted = len(runs) - len(held)
    if not held or smallest is None:
        far = max(abs(run.gap) for run in runs)
        fixed = all(constant.given for constant in constants)
        law = "the given law" if fixed else "the law fitted to them"
        powers = [f"{c.name} {number(c.value)}{_interval(c)}" for c in constants if c.name in ("alpha", "beta")]
        return f"The {_runs(fitted)} lie within {far:.1%} of {law}, with {' and '.join(powers)}; {COUNTED[parameters]}."
    mean = sum(run.gap for run in held) / len(held)
    size, side = f"{abs(mean):.1%}", "above" if mean > 0 else "below"
    told = f"The {_runs(len(held))} below {short(smallest)} {plural(len(held), 'lies', 'lie')}"
    law = f"the law of the {count(fitted)} larger {plural(fitted, 'one')}"
    if gap is None:
        return f"{told} {size} {side} {law}, which has no interval; {COUNTED[parameters]}."
    if gap.low <= 0 <= gap.high:
        return (
            f"{told} no farther from {law} than its error and noise explain: {mean:+.1%} "
            f"({between(gap.low, gap.high)}); "
            f"{COUNTED[parameters]}."
        )
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{told} {size} ({low:.1%} to {high:.1%}) {side} {law}; {COUNTED[parameters]}."


def notes(
    runs: Sequence[LawRun],
    constants: Sequence[LawConstant],
    gap: Gap | None,
    at_limit: Sequence[str],
    parameters: str,
    delta: float,
) -> list[str]:
    """What the numbers rest on. `at_limit` are powers that ended at the largest value that is tried."""
    fitted = [run.n for run in runs if run.fitted]
    free = [constant.name for constant in constants if not constant.given]
    spare = len(fitted) - len(free)
    starts = math.prod(len(GRID[CONSTANTS.index(name)]) for name in free)
    told = [
        f"Every constant is given, so nothing was fitted; Huber's loss of ln L, squares up to {delta:g}, summed over "
        "the runs."
        if not free
        else f"The best of {count(starts)} starts; Huber's loss of ln L, squares up to {delta:g}, summed over the runs."
    ]
    if 0 < spare < FEW_SPARE:
        told.append(f"Only {_runs(spare)} more than constants: the noise, and so every interval, is hardly known.")
    told += _limits(constants, at_limit)
    if spare > 0 and len(fitted) < RUNS_A_CONSTANT * len(free):
        told.append(
            f"{_runs(len(fitted))} for {count(len(free))} fitted constants are too few for a bootstrap interval: "
            f"it takes {RUNS_A_CONSTANT} runs for each."
        )
    open_ended = [c.name for c in constants if c.profile is not None and None in c.profile]
    if open_ended:
        told.append(
            f"The runs do not bound {listing(open_ended)} on both sides: fix a constant, or add runs of other N and T."
        )
    if gap is None and spare > 0 and len(fitted) < len(runs):
        told.append("The fitted runs allow any loss for the runs held out: their gap has no interval.")
    far = [run.model for run in runs if not min(fitted) / FAR <= run.n <= max(fitted) * FAR]
    if far:
        beyond = f"{_runs(len(far))} {plural(len(far), 'is', 'are')} more than {FAR:g} times smaller or larger"
        told.append(f"{beyond} than all fitted runs: the gap rests on the form of the law.")
    if any(not run.fitted for run in runs) and parameters == "total":
        told.append(
            "Small models hold most of their parameters in embeddings. Fit with parameters outside the embeddings "
            "too: the sign "
            "of the gap may change."
        )
    return told


def _limits(constants: Sequence[LawConstant], at_limit: Sequence[str]) -> list[str]:
    """Where the fit has lost a term or a power ended at its limit, and what follows for the intervals."""
    gone = [c.name for c in constants if c.value == 0 and c.name in _TERMS]
    found = [f"The best fit has {c} = 0: {_TERMS[c]}." for c in gone]
    if at_limit:
        found.append(
            f"The fit of {listing(at_limit)} ended at the largest power that is tried: one run alone sets that term "
            "of the law."
        )
    if found and any(c.profile for c in constants):
        found.append(
            "A law at such a limit gives simulated runs that scatter too little, so the constants have no bootstrap "
            "interval."
        )
    return found


def _runs(n: int) -> str:
    return f"{count(n)} {plural(n, 'run')}"


def _interval(constant: LawConstant) -> str:
    return f" ({ends(constant.profile, 3)})" if constant.profile else ""
