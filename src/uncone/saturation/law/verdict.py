import math
from collections.abc import Sequence

from uncone.records.text import count, counted, listing, number, plural
from uncone.saturation.law.fit import GRID
from uncone.saturation.law.intervals import RUNS_A_CONSTANT
from uncone.saturation.law.record import COUNTED, Gap, LawConstant, LawRun, ends, share, short

FEW_SPARE = 3  # runs beyond the constants: with fewer the noise is hardly known
ALPHA = 0.05  # of the runs held out together
MOST_NAMED = 4
FAR = 4.0  # times smaller or larger than all fitted runs: the law is unreliable there

_TERMS = {
    "A": "the loss of these runs does not depend on N, and alpha means nothing",
    "B": "the loss of these runs does not depend on T, and beta means nothing",
    "E": "these runs show no loss that more N and T would not remove",
}


def verdict(
    runs: Sequence[LawRun], constants: Sequence[LawConstant], gap: Gap | None, parameters: str, smallest: float | None
) -> str:
    held = [run for run in runs if not run.fitted]
    fitted, end = len(runs) - len(held), f"{COUNTED[parameters]}."
    if not held or smallest is None:
        far = max(abs(run.gap) for run in runs)
        law = "the given law" if all(constant.given for constant in constants) else "the law fitted to them"
        _, alpha, _, beta, _ = (
            f"{c.name} {number(c.value)}{f' ({ends(c.profile, 3)})' if c.profile else ''}" for c in constants
        )
        within = f"The {counted(fitted, 'run')} {plural(fitted, 'is', 'are')} within {far:.1%} of {law}"
        return f"{within}. The exponents are {alpha} and {beta}. {end}"
    mean = sum(run.gap for run in held) / len(held)
    size, side = f"{abs(mean):.1%}", "above" if mean > 0 else "below"
    first = f"The {counted(len(held), 'run')} below {short(smallest)} {plural(len(held), 'is', 'are')}"
    law = f"the law of the {counted(fitted, 'larger run')}"
    if gap is None:
        return f"{first} {size} {side} {law}. The gap has no interval. {end}"
    alone = _alone(held)
    if gap.low <= 0 <= gap.high:
        shown = f"{mean:+.1%} ({share(gap.low)} to {share(gap.high)})"
        what = f"{counted(len(held), 'run')} below {short(smallest)} {plural(len(held), 'shows', 'show')} no clear gap"
        return f"{'Together the' if len(held) > 1 else 'The'} {what} from {law}: {shown}{alone}. {end}"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{first} {size} ({low:.1%} to {high:.1%}) {side} {law}{alone}. {end}"


def _alone(held: Sequence[LawRun]) -> str:
    """Which single runs with an interval are off the law, at `ALPHA` after Holm."""
    known = [run for run in held if run.interval and run.p_holm is not None]
    if len(held) < 2 or not known:
        return ""
    off = [run for run in known if (run.p_holm or 0.0) <= ALPHA]
    if not off:
        width = sum(run.interval[1] - run.interval[0] for run in known if run.interval) / len(known)
        return f". No run alone is clearly off it, with intervals of {width / 2:.1%} to each side on average"
    if len(off) == len(held):
        return ", and each run alone is off it"
    named = [f"{run.model} {run.gap:+.1%} ({' to '.join(map(share, run.interval or ()))})" for run in off[:MOST_NAMED]]
    named += [f"{count(len(off) - MOST_NAMED)} more"] * (len(off) > MOST_NAMED)
    return f". Alone, {count(len(off))} of {count(len(known))} {plural(len(off), 'is', 'are')} off it: {listing(named)}"


def notes(
    runs: Sequence[LawRun],
    constants: Sequence[LawConstant],
    gap: Gap | None,
    at_limit: Sequence[str],
    parameters: str,
    delta: float,
    resamples: int,
) -> list[str]:
    """What the numbers are based on. `at_limit` are powers that ended at the largest value that is tried."""
    fitted = [run.n for run in runs if run.fitted]
    free = [len(starts) for constant, starts in zip(constants, GRID, strict=True) if not constant.given]
    spare = len(fitted) - len(free)
    what = f"The best of {count(math.prod(free))} starts" if free else "Every constant is given, so nothing was fitted"
    found = [f"{what}. The objective is Huber's loss of ln L, squares up to {delta:g}, summed over the runs."]
    if 0 < spare < FEW_SPARE:
        few = counted(spare, "run")
        found.append(f"Only {few} more than constants: the noise, and so every interval, is hardly known.")
    found += _limits(constants, at_limit)
    if spare > 0 and len(fitted) < RUNS_A_CONSTANT * len(free):
        few = f"{counted(len(fitted), 'run')} for {count(len(free))} fitted constants are too few"
        found.append(f"{few} for a bootstrap interval, which takes {RUNS_A_CONSTANT} runs for each.")
    if open_ended := [c.name for c in constants if c.profile is not None and None in c.profile]:
        how = "fix a constant, or add runs of other N and T"
        found.append(f"The runs do not bound {listing(open_ended)} on both sides: {how}.")
    if gap is None and spare > 0 and len(fitted) < len(runs):
        found.append("The fitted runs allow any loss for the runs held out: their gap has no interval.")
    held = len(runs) - len(fitted)
    if resamples and held * 2 > ALPHA * (resamples + 1):
        least = math.ceil(2 * held / ALPHA)
        found.append(f"No single run of {count(held)} can be shown off the law: that takes {count(least)} resamples.")
    if far := sum(not min(fitted) / FAR <= run.n <= max(fitted) * FAR for run in runs):
        beyond = f"{counted(far, 'run')} {plural(far, 'is', 'are')} more than {FAR:g} times smaller or larger"
        found.append(f"{beyond} than all fitted runs, so the gap depends on the form of the law.")
    if len(fitted) < len(runs) and parameters == "total":
        small = "Small models hold most of their parameters in embeddings."
        found.append(f"{small} Fit with parameters outside the embeddings too: the sign of the gap may change.")
    return found


def _limits(constants: Sequence[LawConstant], at_limit: Sequence[str]) -> list[str]:
    gone = (c.name for c in constants if c.value == 0 and c.name in _TERMS)
    found = [f"The best fit has {name} = 0: {_TERMS[name]}." for name in gone]
    if at_limit:
        ended = f"The fit of {listing(at_limit)} ended at the largest power that is tried"
        found.append(f"{ended}: one run alone sets that term of the law.")
    if found and any(c.profile for c in constants):
        scatter = "A law at such a limit gives simulated runs that scatter too little"
        found.append(f"{scatter}, so the constants have no bootstrap interval.")
    return found
