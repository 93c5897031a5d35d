"""Where the push comes from: the gradient of a head's rows on a text, by the frequency of rows and targets."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from uncone.diagnosis.why.gradients.gradient_parts import GradientParts, check_targets, gradient_parts, row_blocks
from uncone.diagnosis.why.gradients.record import GradientLedger, MeanDrift, RowGradients
from uncone.errors import UndefinedMeasure
from uncone.measure.group_comparison import FREQUENT_SHARE, NAMES, RARE_SHARE, frequency_membership
from uncone.model.counts import as_counts
from uncone.model.last_states import States
from uncone.records.text import count, number
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array

Tensor = torch.Tensor
NEVER = "never"  # the name of the rows whose token has no count
MICRO_BATCHES = 8
EPS = 1e-8  # of Adam, added to the root of the second moment
ZERO = 1e-5  # of the norms of all parts: a smaller sum over rows is rounding; float32 leaves about 1e-7
ONE_DIRECTION = 0.5  # from this mean cosine between rows on, gradients share a direction
_REACH, _DECADES = 1.96, 12
_PARTS = ("norm", "pull", "frequent", "rare")
_OPTIMISERS = ("SGD", "Adam", "coupled Adam")
_SUMS = (*_PARTS, "square along", "square", "cosine", *_OPTIMISERS, "gradients", "pushes")
"""Over the rows of a bin: norms; products with the mean state's direction; steps along it; nonzero rows."""


def gradient_ledger(
    states: States,
    *,
    counts: Any = None,
    counted_in: str = "in the counts given",
    micro_batches: int = MICRO_BATCHES,
    progress: Progress | None = None,
) -> GradientLedger:
    """Measure which targets push which rows of a head on a text, how far, and in which direction.

    The gradient of the mean cross-entropy by each output row is split into the pull of its own targets (a) and the
    pushes of frequent (b) and rare targets (c), as Yu et al. (2022) split the gradient of a rare row; `gradient_parts`
    has the equations. Frequent, medium and rare are about the first 30%, the next 50% and the last 20% of the ids with
    a count, ranked by it (Yu et al.) and cut where counts differ; ids without a count are their own group, and count as
    rare targets. Medium targets count as frequent.

    For n rows with gradients of unit directions u_v, the mean cosine over pairs is (|sum u_v|^2 - n) / (n (n - 1)).
    Without a cap the gradients of all rows sum to 0, as softmax - onehot does, so SGD keeps the mean row. Adam divides
    each row's m by its own root of v, so its steps need not sum to 0; coupled Adam (Stollenwerk and Stollenwerk 2025)
    divides by the root of the mean of v over rows and keeps the mean row too. m and v are the means over micro-batches
    of g and g^2 at the model as it is, to which bias-corrected moments tend as their betas tend to 1.

    Args:
        states: from `states_of`.
        counts: (V,) or a file, how often each id occurs where the model was trained; by default in this text.
        counted_in: where given counts come from, as the record words it.
        micro_batches: runs of targets, each used as one step of an optimiser.
        progress: called with (step, done, in all).

    Raises:
        InputError: no targets, targets outside of the head, numbers that are not finite, or counts of another length.
        UndefinedMeasure: the gradient is 0 at every row.

    Reads badly when: the text has few rare targets, or the counts come from this text alone and it is short. A text
    unlike the training text pulls more than it balances.
    """
    check_targets(states, micro_batches)
    cut = _Cut.of(states, counts, counted_in)
    parts = gradient_parts(states, cut.rare, members=cut.members, micro_batches=micro_batches, progress=progress)
    sums = _Sums(parts, states, cut.members)
    rows = _rows_of(parts, states, cut, sums)
    if not rows[0].norm > 0:
        raise UndefinedMeasure("the gradient of every row is 0: the model is certain of every target")
    k, head, hidden = cut.groups, states.head.double(), states.states.double()
    mean_row, labels = head.mean(0), states.labels.to(cut.rare.device)
    return GradientLedger(
        verdict=_verdict(rows[:k]),
        tokens=len(labels),
        vocabulary=len(head),
        dimensions=head.shape[1],
        micro_batches=min(micro_batches, len(labels)),
        definition=cut.definition,
        nats=float(parts.losses.mean()),
        rare_targets=int(cut.rare[labels].sum()),
        groups=tuple(rows[:k]),
        bins=tuple(rows[k:]),
        drifts=sums.drifts(mean_row),
        zero_sum=sums.zero_sum(),
        is_zero_sum=states.cap is None and sums.zero_sum() <= ZERO,
        mean_state_share=_share(sums.mean_state.norm(), hidden.norm(dim=1).mean()),
        mean_row_share=_share(mean_row.norm(), head.norm(dim=1).mean()),
        state_to_minus_row=_cosine(sums.direction, -mean_row),
        logit_of_mean_row=float((hidden @ mean_row).abs().mean()) * abs(states.scale),
        notes=cut.notes,
    )


@dataclass(frozen=True, eq=False)
class _Cut:
    """Rows in groups by count, the first of all rows, and in decades."""

    members: Tensor  # (V, K)
    groups: int  # the others are decades
    names: list[str]
    rare: Tensor
    definition: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, states: States, counts: Any, counted_in: str) -> "_Cut":
        v, notes, source = len(states.head), tuple[str, ...](), counted_in
        if counts is None:
            known, source = np.bincount(states.labels.cpu().numpy(), minlength=v), "in this text"
        else:
            read = as_counts(counts, v)
            known, notes = read.counts, read.notes
        of_group = np.minimum(frequency_membership(v, counts=known).groups, 3)
        of_decade = np.where(known > 0, 1 + np.log10(np.maximum(known, 1)).astype(int), 0)
        groups, names = _one_hot(of_group, [*NAMES[:3], NEVER])
        decades = (f"{count(10**k)} to {count(10 ** (k + 1) - 1)}" for k in range(_DECADES))
        bins, named = _one_hot(of_decade, ["0", *decades])
        definition = (
            f"Groups are by count {source}, over ids with a count, cut where counts differ. Frequent: about the first "
            f"{FREQUENT_SHARE:.0%}; rare: the last {RARE_SHARE:.0%} (Yu et al. 2022); {NEVER}: a count of 0."
        )
        all_ = torch.from_numpy(np.concatenate([np.ones((v, 1), np.float32), groups, bins], axis=1))
        members, rare = all_.to(states.head.device), torch.from_numpy(of_group >= 2)
        return cls(members, 1 + len(names), ["all", *names, *named], rare, definition, notes)


def _one_hot(place: Array, names: list[str]) -> tuple[Array, list[str]]:
    """(V, K) of the places that occur, and their names."""
    place = np.minimum(place, len(names) - 1)
    kept = np.unique(place)
    return (place[:, None] == kept).astype(np.float32), [names[i] for i in kept]


class _Sums:
    """Sums over the rows of each bin in float64, from one pass over the parts."""

    def __init__(self, parts: GradientParts, states: States, members: Tensor) -> None:
        d, k = states.head.shape[1], members.shape[1]
        zeros = partial(torch.zeros, dtype=torch.float64, device=members.device)
        self.mean_state = states.states.double().mean(0)
        self.direction = self.mean_state / (self.mean_state.norm() or 1.0)
        self.rows = members.double().sum(0)
        self._members, self._along = members.to(parts.pull.dtype).T, self.direction.to(parts.pull.dtype)
        self.sums = zeros(k, len(_SUMS))
        self.units = zeros(2, k, d)  # of unit gradients, and of unit pushes
        self.steps, self.step_norms = zeros(3, d), zeros(3)
        self._size, self._eps = 0.0, EPS / parts.unit
        self._raised = 2.0 ** max(0, math.frexp(self._eps)[1])  # factor for steps that epsilon makes small
        adam = dict.fromkeys(_OPTIMISERS[1:], 1 / self._raised)
        self._units = dict.fromkeys((*_PARTS, "SGD"), parts.unit) | adam
        shared = self._raised / (parts.squares.mean(0, dtype=torch.float64).sqrt() + self._eps)
        for rows, block in row_blocks(parts):
            self._add(self._members[:, rows], block, shared.to(parts.pull.dtype))
        self.steps[2] = self.steps[0] * shared

    def read(self, bin_: int) -> dict[str, float]:
        read = zip(_SUMS, self.sums[bin_].tolist(), strict=True)
        return {name: value * self._units.get(name, 1.0) for name, value in read}

    def _add(self, of: Tensor, block: tuple[Tensor, ...], shared: Tensor) -> None:
        pull, frequent, rare, second = block
        push = frequent + rare
        whole = push + pull
        adam = whole / second.sqrt().add_(self._eps).div_(self._raised)
        norms = [one.norm(dim=1) for one in (whole, pull, frequent, rare, push, adam, whole * shared)]
        along, unit, unit_push = (whole @ self._along, *(torch.where(x > 0, 1 / x, 0.0) for x in (norms[0], norms[4])))
        steps = (-along, -(adam @ self._along), -(whole @ (self._along * shared)))
        read = [*norms[:4], along**2, norms[0] ** 2, along * unit, *steps, norms[0] > 0, norms[4] > 0]
        self.sums += (of @ torch.stack([one.to(whole.dtype) for one in read], dim=1)).double()
        for i, (rows, inverse) in enumerate(((whole, unit), (push, unit_push))):
            self.units[i] += ((of * inverse) @ rows).double()
        for i, step in enumerate((whole, adam)):
            self.steps[i] -= step.sum(0, dtype=torch.float64)
        self.step_norms += torch.stack([norms[i].sum(dtype=torch.float64) for i in (0, 5, 6)])
        self._size += float((norms[1] + norms[4]).sum())

    def zero_sum(self) -> float:
        return _share(self.steps[0].norm(), self._size)

    def pair_cosine(self, which: int, bin_: int) -> float | None:
        n, total = self.read(bin_)[("gradients", "pushes")[which]], self.units[which, bin_]
        return None if n < 2 else min(1.0, (float(total @ total) - n) / (n * (n - 1)))

    def drifts(self, mean_row: Tensor) -> tuple[MeanDrift, ...]:
        found = list[MeanDrift]()
        for name, step, norm in zip(_OPTIMISERS, self.steps, self.step_norms, strict=True):
            is_zero = self.zero_sum() <= ZERO and name != "Adam"
            cosines = (None if is_zero else _cosine(step, to) for to in (self.direction, mean_row))
            found.append(MeanDrift(name, _share(step.norm(), norm), *cosines))
        return tuple(found)


def _rows_of(parts: GradientParts, states: States, cut: _Cut, sums: _Sums) -> list[RowGradients]:
    labels, n, own = states.labels, len(states.labels), parts.own[:, None]
    of_target = cut.members.to(labels.device)[labels].double()
    is_rare = cut.rare.to(labels.device)[labels, None].double()
    pushed = parts.masses - of_target * own  # a state's mass in the bin, without the mass of its own target
    budgets = [(one * share).sum(0) for one, share in ((of_target, 1 - own), (pushed, 1 - is_rare), (pushed, is_rare))]
    net = (of_target - parts.masses).sum(0)
    reach = _REACH * (parts.masses * (1 - parts.masses)).clamp(min=0).sum(0).sqrt()
    found = list[RowGradients]()
    for i, name in enumerate(cut.names):
        value, width, read = float(net[i]) / n, float(reach[i]) / n, sums.read(i)
        rows, square, counted = float(sums.rows[i]), read["square"], read["gradients"]
        norms, steps = ([read[one] / rows for one in some] for some in (_PARTS, _OPTIMISERS))
        budget = (max(0.0, float(one[i])) / n for one in budgets)
        balance = (*budget, Estimate(value, (value - width, value + width)))
        along = read["square along"] / square if square > 0 else None
        toward = read["cosine"] / counted if counted else None
        cosines = (sums.pair_cosine(0, i), sums.pair_cosine(1, i), along, toward)
        of_all: tuple[Any, ...] = (int(rows), int(of_target[:, i].sum()), *norms, *balance, *cosines, *steps)
        found.append(RowGradients(name, *of_all))
    return found


def _verdict(groups: list[RowGradients]) -> str:
    """The largest part for rare rows, whether pull and push balance, and whether pushes share a direction."""
    named = {one.name: one for one in groups}
    rows = named.get("rare") or named.get(NEVER) or groups[0]
    whose = {"rare": "rare tokens", NEVER: "tokens without a count"}.get(rows.name, "all tokens")
    parts = {
        "the pull of their own targets": rows.pull_norm,
        "the push of frequent targets (Yu et al.'s part b)": rows.frequent_norm,
        "the push of rare targets (part c)": rows.rare_norm,
    }
    largest = max(parts, key=lambda name: parts[name])
    most = parts.pop(largest)
    others = [f"{number(most / norm, digits=2)} times {name}" for name, norm in parts.items() if norm > 0]
    more = f": by mean norm {' and '.join(others)}" if others else ""
    whole = f"the largest part of the gradient of the {count(rows.rows)} rows of {whose}"
    part = f"T{largest[1:]} is {whole}{more}."
    return f"{part} {_balance(rows)} {_direction(rows)}"


def _balance(rows: RowGradients) -> str:
    if not rows.pulled > 0:
        return "This text only pushes these rows, because none of its targets is among them."
    low, high = rows.net.interval or (0.0, 0.0)
    times = number(rows.pushed / rows.pulled, digits=2)
    if low > 0:
        return f"This text pulls these rows more than it pushes them: the push is {times} of the pull."
    if high < 0:
        return f"This text pushes these rows more than it pulls them: the push is {times} times the pull."
    return "This text shows no imbalance of pull and push."


def _direction(rows: RowGradients) -> str:
    cosine = rows.push_cosine
    if cosine is None:
        return ""
    whole = "" if rows.cosine is None else f" ({number(rows.cosine)} for whole gradients)"
    how = "share a" if cosine >= ONE_DIRECTION else "share no"
    return f"The pushes {how} direction: their mean cosine between rows is {number(cosine)}{whole}."


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if float(whole) > 0 else 0.0


def _cosine(a: Tensor, b: Tensor) -> float | None:
    length = float(a.norm()) * float(b.norm())
    return min(1.0, max(-1.0, float(a @ b) / length)) if length > 0 else None
