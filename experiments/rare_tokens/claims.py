"""What the runs say of each claim of the papers: our effect, that of a control, and a verdict that follows from both."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from runs import FREQUENT, MEDIUM, RARE, Effect, Run, effect, paired, unique, words, written

GAO, BIS, YU, KAR = "Gao et al. 2019", "Bis et al. 2021", "Yu et al. 2022", "Kar 2026"


@dataclass(frozen=True)
class Claim:
    """`of` is read in `arm` less `base`, or in `arm` alone where there is none; the paper says that it goes `way`."""

    source: str
    text: str
    paper: str  # its number, and how we know it
    of: Callable[[Run], float]
    unit: str
    arm: str
    way: int = 1
    base: str | None = "adamw95"
    control: str | None = "adamw999"


def cosine(*groups: int) -> Callable[[Run], float]:
    names = [("frequent", "medium", "rare")[g] for g in groups]
    return lambda run: sum(run["head", name, "mean_cosine"] for name in names) / len(names)


def after_rare(run: Run) -> float:
    of = {one["name"]: one["loss"]["value"] for one in run.groups("input")}
    return float(of["rare"] - of["frequent"])


def of_others(run: Run) -> float:
    """The loss of frequent and medium targets."""
    sums = np.array(run.result["measured"]["documents"]).sum(0)
    return float(sums[4:6].sum() / sums[:2].sum())


def biased(run: Run) -> float:
    return run["shifted", "rare_loss"]


CLAIMS = (
    Claim(GAO, "Plain training draws rare rows together more than frequent ones",
          "unknown", lambda run: cosine(RARE)(run) - cosine(FREQUENT)(run), "cosine", "adamw95", base=None, control="column"),
    Claim(GAO, "Cosine regularisation lowers the loss",
          "WikiText-2 perplexity 66.0 to 65.2 (verified)", Run.loss, "nats", "cosreg", way=-1),
    Claim(BIS, "Rows drift in one direction",
          "norm of the mean row .16 to .67 of a row in eight models (verified)", lambda run: run["head", "mean_row"],
          "of a row", "adamw95", base=None, control="column"),
    Claim(BIS, "The mean row is what makes I(W) low: without it the table is even",
          "I(W) .07 to .59 as stored, .64 to .98 centred (verified)",
          lambda run: run["head", "partition_isotropy_centred"] - run["head", "partition_isotropy"], "I(W)", "adamw95",
          base=None, control="column"),
    Claim(BIS, "Models are worse after rare words", "unknown", after_rare, "nats", "adamw95", base=None),
    Claim(YU, "The push of other targets on rare rows (part b) is why rows of all tokens share a direction: without it "
          "frequent and medium rows do so less", "unknown", cosine(FREQUENT, MEDIUM), "cosine", "without-b", way=-1,
          control="column"),
    Claim(YU, "With rare rows frozen, frequent and medium rows share a direction less",
          "unknown", cosine(FREQUENT, MEDIUM), "cosine", "freeze-all", way=-1, control="column"),
    Claim(YU, "The same, where all rows share one second moment for each column", "unknown", cosine(FREQUENT, MEDIUM), "cosine",
          "column-without-b", way=-1, base="column", control=None),
    Claim(YU, "With rare rows frozen, frequent and medium tokens are predicted better", "unknown", of_others, "nats",
          "freeze-all", way=-1),
    Claim(YU, "Without part b, frequent and medium tokens are predicted better", "unknown", of_others, "nats", "without-b", way=-1),
    Claim(YU, "The gate does not raise the total loss", "perplexity 15.51 with it and without (recalled)", Run.loss,
          "nats", "agg", way=-1, control=None),
    Claim(YU, "Both gates are needed: with g2 too, rare tokens are predicted better than with g1 alone", "unknown",
          lambda run: run.loss(RARE), "nats", "agg", way=-1, base="agg-g1", control=None),
    Claim(YU, "The gate lowers the perplexity of rare tokens", "438.67 to 75.39 (recalled)",
          lambda run: run.loss(RARE), "nats", "agg", way=-1),
    Claim(YU, "It still does with one bias on all rare logits in both arms", "unknown", biased, "nats", "agg", way=-1),
    Claim(YU, "The gate doubles the rare tokens that are predicted", "91 to 345 (recalled)", unique, "tokens", "agg"),
    Claim(YU, "The gate makes I(W) higher", ".377 to .813 (recalled)",
          lambda run: run["head", "partition_isotropy"], "I(W)", "agg"),
    Claim(YU, "The gate makes the word similarity of output rows better",
          "MEN 33.6 to 55.1, WordSim-353 47.5 to 56.5, RG-65 35.5 to 65.5, RW 32.1 to 36.4 (recalled)", words,
          "Spearman x 100", "agg"),
    Claim(KAR, "A slower second moment brings the probability of rare tokens up to their share",
          "log ratio -2.72 at beta2 .95, -.06 at .999 (through others)", lambda run: run.ratio(RARE), "log ratio",
          "adamw999", control="column"),
    Claim(KAR, "A second moment without rows of its own does so too", "unknown", lambda run: run.ratio(RARE),
          "log ratio", "column"),
)  # fmt: skip


def read(runs: Iterable[Run], claim: Claim, arm: str, other: str | None) -> Effect | None:
    some = list(runs)
    if other is not None:
        return paired(some, arm, other, claim.of)
    of = [claim.of(run) for run in some if run.cell.arm == arm]
    return effect(of) if of else None


def verdict(claim: Claim, ours: Effect | None, less: Effect | None) -> str:
    """By 95% intervals over seeds: of the effect, and of the effect less the control's."""
    if ours is None:
        return "not run"
    if ours.low is None or ours.high is None:
        return "cannot be decided: one seed"
    low, high = sorted((claim.way * ours.low, claim.way * ours.high))
    if high < 0:
        return "contradicted"
    if low <= 0:
        return f"cannot be decided at this size: an effect below {ours.smallest:.2g} would not be seen"
    if claim.control is None:
        return "confirmed"
    if less is None or less.low is None or less.high is None:
        return "the effect is there; the control is not run"
    if claim.way * less.value > 0 and min(claim.way * less.low, claim.way * less.high) > 0:
        return "confirmed"
    return "weakened: the control does as much"


def row(claim: Claim, best: dict[str, list[Run]]) -> list[str]:
    """What it says, its paper's number, ours, the control's, and the verdict; of the runs at each arm's best rate."""
    runs = [run for some in best.values() for run in some]
    ours = read(runs, claim, claim.arm, claim.base)
    control = read(runs, claim, claim.control, claim.base) if claim.control else None
    less = paired(runs, claim.arm, claim.control, claim.of) if claim.control else None
    named = f"{claim.control}: {written(control)}" if claim.control else "-"
    what = f"{claim.source}: {claim.text}"
    return [what, claim.paper, f"{written(ours)} {claim.unit}", named, verdict(claim, ours, less)]


def claims_table(best: dict[str, list[Run]], claims: Sequence[Claim] = CLAIMS) -> list[str]:
    """A row each claim."""
    lines = ["| claim | paper | ours | control | verdict |", "|---|---|---|---|---|"]
    return [*lines, *(f"| {' | '.join(row(one, best))} |" for one in claims)]
