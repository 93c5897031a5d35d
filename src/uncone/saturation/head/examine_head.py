from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uncone.errors import need_torch
from uncone.records.text import number
from uncone.roles import Model, Progress, Texts
from uncone.saturation.contexts.context_rank import context_rank
from uncone.saturation.head.excision.record import Excision
from uncone.saturation.head.gradient.record import GradientShare
from uncone.saturation.head.rank.record import RankCurve
from uncone.saturation.head.record import HeadExamination
from uncone.version import versions

MOST_TOKENS = 200_000
_CAUSES = {
    "harmless drift": "are harmless drift",
    "information": "carry information",
    "none": "were not shown to hide or to carry anything",
}


def examine_head(
    model: Model,
    text: Texts,
    *,
    ranks: Sequence[int] | None = None,
    margin_nats: float | None = None,
    refits: bool = True,
    remedies: bool = False,
    most: int = MOST_TOKENS,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadExamination:
    """Show how small the head of a language model may be, and what its rank lets through of gradient and states.

    One run of the model answers four questions: how well it fits the text, and how the loss depends on the rank of the
    head (truncated, truncated for this text, and refitted on frozen states); what share of the gradient by the logits
    the head passes back; how loss and alignment change without the dominant directions of the last states; and how many
    dimensions the text's contexts need. Needs the extras [torch] and [hf]; the last question needs scipy (extra
    [cluster]) and is left out without it.

    Args:
        model: a directory of a transformers model with its tokenizer, or the name of a cached model.
        text: a text file in UTF-8, plain or packed as .gz or .xz, or a list of texts.
        ranks: the ranks of the heads to read; by default eight, from 1/32 of the columns to all.
        margin_nats: how far a loss may be above the full head's, in nats per token; by default 1 % of the full head's.
        refits: also train heads of each rank on frozen states, which takes long.
        remedies: also train a mixture of softmaxes and a wider head with as many parameters, which is slow.
        most: the most tokens to predict, from the start of the text.
        seed: for random starts, random directions, shuffled tokens and resampled blocks.
        progress: called with (the step, done, in all).

    Raises:
        InputError: no such model or text, too few tokens, or ranks beyond the head's.
        UnsupportedModel: not a causal model with one linear head.
    """
    need_torch("uncone.examine_head")
    from uncone.model.last_states import states_of
    from uncone.saturation.head.excision.excision import excise
    from uncone.saturation.head.gradient.gradient_share import kept_gradient_share
    from uncone.saturation.head.rank.rank_curve import rank_curve

    states = states_of(model, text, most=most, progress=progress)
    asked: dict[str, Any] = {"ranks": ranks, "margin_nats": margin_nats, "refits": refits, "remedies": remedies}
    rank = rank_curve(states, **asked, seed=seed, progress=progress)
    gradient = kept_gradient_share(states, seed=seed, progress=progress)
    excision = excise(states, seed=seed, progress=progress)
    contexts, notes = None, tuple[str, ...]()
    if find_spec("scipy") is None:
        notes = ("The text's contexts were left out: they need scipy (pip install 'uncone[cluster]').",)
    else:
        contexts = context_rank(text, tokenizer=model, dimensions=200, seed=seed, progress=progress)
    verdict, made = _verdict(rank, gradient, excision), versions("torch", "transformers")
    of = Path(text).name if isinstance(text, str | Path) else "texts"
    return HeadExamination(verdict, states.name, of, rank, gradient, excision, contexts, notes, made)


def _verdict(rank: RankCurve, gradient: GradientShare, excision: Excision) -> str:
    answer, margin, whose = rank.answer, f"{number(rank.margin_nats)} nats", "the full rank's loss"
    if rank.fit and rank.fit.misfit:
        whose = "its own full rank's loss, refitted to a text that the model does not fit"
    size = f"No head of a lower rank than {rank.d} was shown to stay within {margin} of {whose}"
    smallest = [line.smallest for line in rank.lines]
    estimates = [(one.rank, one.low, one.high) for one in smallest if one.rank and one.low and one.high]
    if answer is not None and (best := min(estimates, default=(rank.d, 0, 0)))[0] < rank.d:
        size += ". The smallest estimate is rank {}, with an interval from {} to {}".format(*best)
    if answer is not None and answer[0] < rank.d:
        size = f"A head of rank {answer[0]} of {rank.d} stays within {margin} of {whose}"
    elif answer is None:
        size = f"The text does not show how small the head of {rank.d} columns may be"
    squares, norms = gradient.times_chance, gradient.times_chance_of_norms
    back = ""
    if squares is not None and norms is not None:
        by = f"{number(squares)} times the squared norm ({number(norms)} times the norm)"
        back = f" The head passes back {by} of the gradient that a random subspace does."
    return f"{size}.{back} The dominant directions of its centred states {_CAUSES[excision.cause]}."
