"""Does the component common to all rows of a head shrink its softmax margins? Measured with and without it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from uncone.diagnosis.why.margins.record import HeadMargin, MarginClaim
from uncone.errors import UndefinedMeasure
from uncone.memory import check_memory
from uncone.model.last_states import States
from uncone.records.text import number, percent
from uncone.roles import Progress

Tensor = torch.Tensor
NO_CHANGE = 1e-3  # of the mean absolute margin: smaller changes are rounding of float32 logits
_ROUNDING = 0.05
TARGETS, _AT_ONCE = 1024, 512  # in all, and in one product
REMOVED = (1, 3, 10)  # first directions of the centred rows


def margin_claim(states: States, *, most: int = TARGETS, progress: Progress | None = None) -> MarginClaim:
    """Remove what the rows of a head share, and measure how the softmax margins change.

    "Substantial shared components of embeddings will lead to a decreased classification margin in the output softmax
    layer" (Bis et al. 2021, section 6). With w_v = mu + r_v the margin of a target y at a state h is

        scale (h . w_y + b_y) - max over v != y of scale (h . w_v + b_v),

    and h . mu is in both terms: unless logits are capped, a component common to all rows shrinks no margin and changes
    no probability (the gauge). We remove the mean row to measure that; then the direction of the mean row, including
    how rows differ along it, and the first 1, 3 and 10 directions of the centred rows. The mean row does change the
    norm of rows, and so the margin divided by that norm.

    Args:
        states: from `states_of`.
        most: the most targets, evenly spaced.
        progress: called with (step, done, in all).

    Raises:
        UndefinedMeasure: no target, or a head of one row.
    """
    n, v = len(states.labels), len(states.head)
    if n == 0 or v < 2:
        raise UndefinedMeasure(f"a margin needs a target and two tokens, got {n} and {v}")
    check_memory(3 * 8 * states.head.numel(), f"variants of a head of {v} rows", "use a machine with more")
    some, variants = states.some(most), list(_variants(states.head))
    dtype = torch.promote_types(states.states.dtype, torch.float32)
    margins, nats = _margins(states, some.states.to(dtype), some.labels, variants, progress)
    stored = margins[0].abs().mean().clamp(min=1e-30)
    heads = list[HeadMargin]()
    for one, own, loss in zip(variants, margins, nats, strict=True):
        mean, above = float(own.mean()), float((own > 0).double().mean())
        change = float((own - margins[0]).abs().max() / stored)
        heads.append(HeadMargin(one.name, mean, mean / max(one.norm, 1e-30), above, loss, change))
    holds = heads[1].change <= NO_CHANGE
    return MarginClaim(_verdict(heads, holds, states.cap is not None), len(some.labels), holds, tuple(heads), n)


@dataclass(frozen=True, eq=False)
class _Variant:
    name: str
    norm: float  # mean of its rows
    out: Tensor | None = None  # directions (D, k) that rows lack
    rows: Tensor | None = None


def _variants(head: Tensor) -> Iterator[_Variant]:
    wide = head.double()
    squares = wide.square().sum(1)
    yield _Variant("as stored", float(squares.sqrt().mean()))
    mean = wide.mean(0)
    centred = wide - mean
    yield _Variant("without the mean row", float(centred.norm(dim=1).mean()), rows=centred.to(head.dtype))
    vectors = torch.linalg.eigh(centred.T @ centred)[1].flip(1)
    del centred
    taken = {"the mean row's direction": (mean / mean.norm())[:, None]} if float(mean.norm()) > 0 else {}
    for k in REMOVED:
        if k < head.shape[1]:
            taken[f"the first {'direction' if k == 1 else f'{k} directions'} of centred rows"] = vectors[:, :k]
    for what, out in taken.items():
        left = (squares - (wide @ out).square().sum(1)).clamp(min=0)
        yield _Variant(f"without {what}", float(left.sqrt().mean()), out=out)


def _margins(
    states: States, hidden: Tensor, labels: Tensor, variants: list[_Variant], progress: Progress | None
) -> tuple[list[Tensor], list[float]]:
    """The margins (n,) and the mean loss of each variant. The mean row is removed from the rows, because its effect is
    the question. Other directions are removed from the product of states and rows, which all variants share."""
    rows, dtype = states.head.to(hidden.dtype), hidden.dtype
    along = [None if one.out is None else (states.head.double() @ one.out).to(dtype) for one in variants]
    margins, losses = ([list[Tensor]() for _ in variants] for _ in range(2))
    parts = list(zip(torch.split(hidden, _AT_ONCE), torch.split(labels, _AT_ONCE), strict=True))
    for done, (h, y) in enumerate(parts, 1):
        shared = h @ rows.T
        for place, (one, row) in enumerate(zip(variants, along, strict=True)):
            product = shared.clone() if one.rows is None else h @ one.rows.to(dtype).T
            if one.out is not None and row is not None:
                product.addmm_(h @ one.out.to(dtype), row.T, alpha=-1)
            logits = states.of_product(product)
            losses[place].append(torch.nn.functional.cross_entropy(logits, y, reduction="none").double())
            own = logits.gather(1, y[:, None])[:, 0].double()
            logits.scatter_(1, y[:, None], -torch.inf)
            margins[place].append(own - logits.amax(1).double())
        if progress:
            progress("comparing margins", done, len(parts))
    return [torch.cat(one) for one in margins], [float(torch.cat(one).mean()) for one in losses]


def _verdict(heads: list[HeadMargin], holds: bool, capped: bool) -> str:
    stored, centred, *others = heads
    most = max(others, key=lambda head: abs(head.nats - stored.nats), default=None)
    also = f" The head {most.name} has a mean margin of {number(most.margin)}" if most else ""
    also += f"; as stored it is {number(stored.margin)}." if most else ""
    if capped:
        change = f"the largest change is {percent(centred.change, precise=True)} of a mean margin"
        return f"Logits are capped, so the component common to all rows affects margins: {change}.{also}"
    if not holds:
        what = "rounding" if centred.change <= _ROUNDING else "more than rounding, which is unexpected"
        differ = f"Removing the mean row changes margins by {number(centred.change)} of a mean margin"
        return f"{differ}: {what}.{also}"
    ends = " to ".join(number(head.by_norm) for head in (stored, centred))
    return (
        "The component common to all rows shrinks no softmax margin. It adds the same to every logit, so removing it "
        f"changes no margin by more than {number(centred.change, digits=2)} of a mean margin. It only lengthens rows: "
        f"without it, the mean margin over the norm of rows goes from {ends}. Bis et al. (2021, section 6) claim that "
        f"shared components decrease the margin.{also}"
    )
