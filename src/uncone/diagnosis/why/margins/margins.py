"""Does what all rows of a head have in common shrink its softmax margins? Measured with and without it."""

from collections.abc import Iterator

import torch

from uncone.diagnosis.why.margins.record import HeadMargin, MarginClaim
from uncone.errors import UndefinedMeasure
from uncone.memory import check_memory
from uncone.model.last_states import States
from uncone.records.text import number, percent
from uncone.roles import Progress

Tensor = torch.Tensor
NO_CHANGE = 1e-3
"""Of the mean absolute margin: a smaller change of every margin is rounding of float32 logits."""
_ROUNDING = 0.05
TARGETS = 4096
REMOVED = (1, 3, 10)
"""How many first directions of the centred rows are taken out."""


def margin_claim(states: States, *, most: int = TARGETS, progress: Progress | None = None) -> MarginClaim:
    """Take what rows share out of a head, and see what the softmax margins do.

    "Substantial shared components of embeddings will lead to a decreased classification margin in the output softmax
    layer" (Bis et al. 2021, section 6). With w_v = mu + r_v the margin of a target y at a state h is

        scale (h . w_y + b_y) - max over v != y of scale (h . w_v + b_v),

    and h . mu is in both terms: a component common to all rows shrinks no margin and changes no probability (the
    gauge), unless logits are capped. The mean row is taken out to measure that. Then other shared directions are: that
    of the mean row, with what rows differ in along it, and the first 1, 3 and 10 of the centred rows. What the mean row
    does change is the norm of rows, and so the margin over it.

    Args:
        states: from `states_of`.
        most: targets at most, evenly spaced.
        progress: called with (step, done, in all).

    Raises:
        UndefinedMeasure: no target, or a head of one row.
    """
    n, v = len(states.labels), len(states.head)
    if n == 0 or v < 2:
        raise UndefinedMeasure(f"a margin needs a target and two tokens, got {n} and {v}")
    check_memory(3 * 8 * states.head.numel(), f"variants of a head of {v} rows", "use a machine with more")
    places = torch.arange(min(n, most)) * n // min(n, most)
    hidden, labels = states.states[places], states.labels[places]
    heads, stored = list[HeadMargin](), torch.zeros(0)
    dtype = torch.promote_types(states.states.dtype, torch.float32)
    hidden, total = hidden.to(dtype), 3 + sum(k < states.head.shape[1] for k in REMOVED)
    for done, (name, head) in enumerate(_variants(states.head), 1):
        margins, nats = _margins(states, hidden, labels, head)
        stored = margins if not heads else stored
        largest = float((margins - stored).abs().max() / stored.abs().mean().clamp(min=1e-30))
        norm = max(float(head.double().norm(dim=1).mean()), 1e-30)
        mean = float(margins.mean())
        heads.append(HeadMargin(name, mean, mean / norm, float((margins > 0).double().mean()), nats, largest))
        if progress is not None:
            progress("comparing margins", done, total)
    holds = heads[1].change <= NO_CHANGE
    return MarginClaim(_verdict(heads, holds, states.cap is not None), len(labels), holds, tuple(heads))


def _variants(head: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The head as stored, and without its mean row, its mean direction, and first directions of the centred rows."""
    yield "as stored", head
    wide = head.double()
    mean = wide.mean(0)
    centred = wide - mean
    yield "without the mean row", centred.to(head.dtype)
    squares = centred.T @ centred
    del centred
    if float(mean.norm()) > 0:
        yield "without the mean row's direction", _without(wide, (mean / mean.norm())[:, None]).to(head.dtype)
    vectors = torch.linalg.eigh(squares)[1].flip(1)
    for k in (k for k in REMOVED if k < head.shape[1]):
        what = "direction" if k == 1 else f"{k} directions"
        yield f"without the first {what} of centred rows", _without(wide, vectors[:, :k]).to(head.dtype)


def _without(rows: Tensor, directions: Tensor) -> Tensor:
    return rows - (rows @ directions) @ directions.T


def _margins(states: States, hidden: Tensor, labels: Tensor, head: Tensor) -> tuple[Tensor, float]:
    """(n,) float64 margins, and the mean loss."""
    found, losses = list[Tensor](), list[Tensor]()
    for h, y in zip(torch.split(hidden, 512), torch.split(labels, 512), strict=True):
        logits = states.logits(h, head)
        losses.append(torch.nn.functional.cross_entropy(logits, y, reduction="none").double())
        own = logits.gather(1, y[:, None])[:, 0].double()
        logits.scatter_(1, y[:, None], -torch.inf)
        found.append(own - logits.amax(1).double())
    return torch.cat(found), float(torch.cat(losses).mean())


def _verdict(heads: list[HeadMargin], holds: bool, capped: bool) -> str:
    stored, centred, *others = heads
    most = max(others, key=lambda head: abs(head.nats - stored.nats), default=None)
    also = (
        ""
        if most is None
        else f" The head {most.name} has a mean margin of {number(most.margin)}, as stored {number(stored.margin)}."
    )
    if capped:
        change = f"the largest change is {percent(centred.change, precise=True)} of a mean one"
        return f"Logits are capped, so the component common to all rows has an effect on margins: {change}.{also}"
    if not holds:
        what = "rounding" if centred.change <= _ROUNDING else "more than rounding, which is unexpected"
        return f"Margins without the mean row differ from those as stored by {number(centred.change)} of a mean one: {what}.{also}"
    times = centred.by_norm / stored.by_norm if stored.by_norm else 1.0
    return (
        "The component common to all rows shrinks no softmax margin: without it none changes by more than "
        f"{number(centred.change, digits=2)} of a mean one, as it adds the same to every logit. Only over the norm "
        "of rows, which it lengthens, "
        f"margins are {number(times)} times as large without it. Bis et al. (2021, section 6) say that shared "
        f"components decrease the margin.{also}"
    )
