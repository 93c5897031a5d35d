"""The problem that every backend solves, and refusals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from uncone.errors import InputError
from uncone.training.loss.options import CrossEntropyOptions

Tensor = torch.Tensor
Gates = tuple[Tensor, Tensor, Tensor]
_PART = 32  # rows whose absolute values are held beside the chunk


@runtime_checkable
class Gate(Protocol):
    """Any object whose `gates()` returns (rare, g1, g2), each (V,): bool, float32, float32; factors are 1 where not
    rare.

    A target pushes row v with the factor g1[v] if the target is not rare, else with g2[v]. The target's own row gets
    its whole gradient (Yu et al. 2022, adaptive gradient gating).

    Each loss whose head requires a gradient calls the method `record(gated, total)`, if there is one, with two float64
    scalars: the sums over all targets, and over all ranks of a head, of |(1 - G) delta| and of |delta|, with delta the
    gradient of a target's own loss by its logits before a cap, reduction and upstream gradient.
    """

    def gates(self) -> Gates: ...


@dataclass(frozen=True)
class Shard:
    group: ProcessGroup | None
    start: int
    stop: int
    total: int
    largest: int  # the most rows on any rank, for sizes that must be equal on every rank

    def place(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `labels` on this rank, and whether they are on it; if not, the row has no meaning."""
        here = labels - self.start
        return here.clamp(0, self.stop - self.start - 1), (here >= 0) & (labels < self.stop)

    def sum(self, x: Tensor, op: Any = distributed.ReduceOp.SUM) -> Tensor:
        if self.group is not None:
            distributed.all_reduce(x, op=op, group=self.group)
        return x

    def highest(self, x: Tensor) -> Tensor:
        return self.sum(x, distributed.ReduceOp.MAX)


def shard_of(weight: Tensor, group: ProcessGroup | None) -> Shard:
    """Slices follow each other in the order of their ranks."""
    if group is None:
        return Shard(None, 0, len(weight), len(weight), len(weight))
    rank = distributed.get_rank(group)
    if rank < 0:
        raise InputError("expected a process of the group that holds the head, got one outside: leave it out")
    counts = torch.zeros(distributed.get_world_size(group), dtype=torch.int64, device=weight.device)
    counts[rank] = len(weight)
    distributed.all_reduce(counts, group=group)
    rows = counts.tolist()
    if 0 in rows:
        raise InputError(f"expected head rows on every rank, got none on rank {rows.index(0)}: use fewer ranks")
    return Shard(group, sum(rows[:rank]), sum(rows[: rank + 1]), sum(rows), max(rows))


@dataclass(frozen=True)
class Problem:
    options: CrossEntropyOptions
    labels: Tensor  # (N,)
    valid: Tensor  # (N,): which targets count
    gates: Gates | None  # the rare ids of the whole vocabulary, and the factors of the shard's rows
    dtype: torch.dtype  # of the products
    shard: Shard
    record: Callable[[Tensor, Tensor], None] | None = None  # as `Gate` says
    class_weights: Tensor | None = None  # of the whole vocabulary
    token_weights: Tensor | None = None  # (N,)
    note: Callable[[Tensor], None] | None = None  # the numbers of `CrossEntropyStats`

    def groups(self) -> tuple[Tensor, Tensor]:
        """Row numbers of the targets that are not rare, and of the rare ones."""
        if self.gates is None:
            return self.valid.nonzero().flatten(), self.valid.new_empty(0, dtype=torch.int64)
        rare = self.gates[0][torch.where(self.valid, self.labels, 0)] & self.valid
        return (self.valid & ~rare).nonzero().flatten(), rare.nonzero().flatten()

    def share(self, device: torch.device) -> Tensor:
        if self.options.reduction == "sum":
            return torch.ones((), dtype=torch.float64, device=device)
        items = self._weights().sum() if self.options.num_items is None else self.options.num_items
        items = torch.as_tensor(items, dtype=torch.float64).to(device).reshape(())
        return torch.where(items != 0, 1 / items, 0.0)

    def _weights(self) -> Tensor:
        """The weight of each target (N,), for the divisor of "mean": 0 where ignored."""
        weights = self.valid.double()
        if self.class_weights is not None:
            weights = weights * self.class_weights[torch.where(self.valid, self.labels, 0)]
        return weights if self.token_weights is None else torch.where(self.valid, weights * self.token_weights, 0.0)


def valid_targets(labels: Tensor, options: CrossEntropyOptions) -> Tensor:
    ignored = options.ignore_index
    return torch.ones_like(labels, dtype=torch.bool) if ignored is None else labels != ignored


def check_range(labels: Tensor, valid: Tensor, vocabulary: int, ignored: int | None) -> None:
    wrong = valid & ((labels < 0) | (labels >= vocabulary))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        or_ignored = "" if ignored is None else f" or {ignored} (ignored)"
        got = f"got {int(labels[at])} at position {at} ({int(wrong.sum())} in all): does the tokenizer fit the model?"
        raise InputError(f"expected labels from 0 to {vocabulary - 1}{or_ignored}, {got}")


def checked_gates(gate: Gate, shard: Shard, device: torch.device) -> Gates:
    rare, g1, g2 = gates = gate.gates()
    if any(tensor.shape != (shard.total,) for tensor in gates):
        got = f"got shapes {tuple(rare.shape)}, {tuple(g1.shape)} and {tuple(g2.shape)}"
        how = "make the gate for this vocabulary"
        raise InputError(f"expected gates for the head's {shard.total} ids, {got}: {how}")
    if rare.dtype != torch.bool:
        raise InputError(f"expected a bool tensor of rare ids, got {rare.dtype}: compare it with 0 first")
    for name, factors in (("g1", g1), ("g2", g2)):
        low, high = map(float, torch.aminmax(factors))
        if not 0 <= low <= high <= 1:
            how = "a factor above 1 amplifies the push, a factor below 0 reverses it"
            raise InputError(f"expected {name} in [0, 1], got {low:g} to {high:g}: {how}")
        if not bool((factors[~rare] == 1).all()):
            got = "got others: gates act on rare rows only"
            raise InputError(f"expected {name} to be 1 for every id that is not rare, {got}")
    here = slice(shard.start, shard.stop)
    return rare.to(device), g1[here].to(device), g2[here].to(device)


def check_weights(class_weights: Tensor | None, token_weights: Tensor | None, vocabulary: int) -> None:
    if class_weights is not None and class_weights.shape != (vocabulary,):
        got = f"got {tuple(class_weights.shape)}: give one per id of the whole vocabulary"
        raise InputError(f"expected class_weights of shape ({vocabulary},), {got}")
    if class_weights is not None and not bool(((class_weights >= 0) & class_weights.isfinite()).all()):
        raise InputError("expected class_weights of at least 0, got others: give finite ones, 0 for an id without loss")
    if token_weights is not None and not bool(token_weights.isfinite().all()):
        raise InputError("expected finite token_weights, got others: give 0 to a target without loss")


class GatedShare:
    """Sums over targets of |delta| and |(1 - G) delta|, with delta the gradient by the logits before a cap. Outside the
    targets' own entries, all common targets share G, and so do all rare targets: one sum per column for each kind."""

    def __init__(self, gates: Gates, shard: Shard, *, signed: bool) -> None:
        self._held_back = torch.stack(gates[1:]).double().neg_().add_(1)
        self._columns = torch.zeros_like(self._held_back)
        self._of_targets = self._columns.new_zeros(())
        self._shard, self._signed = shard, signed

    def add(self, d: Tensor, at: Tensor, own: Tensor, *, rare: bool) -> None:
        """Add targets with gradients d (n, V) by the logits, their own entries at `at` (n, 1) where `own` (n, 1)."""
        of_targets = torch.where(own, d.gather(1, at), 0.0).flatten()
        self._of_targets += of_targets.abs().sum(dtype=torch.float64)
        wide = torch.promote_types(d.dtype, torch.float32)
        if self._signed:
            columns, of_targets = torch.zeros_like(self._columns[0]), of_targets.abs()
            for part in torch.split(d, _PART):
                columns += part.abs().sum(dim=0, dtype=wide)
        else:  # outside the targets' own entries these are probabilities, which are not negative
            columns = d.sum(dim=0, dtype=wide).double()
        self._columns[int(rare)] += columns.index_add_(0, at.flatten(), -of_targets.double())

    def sums(self) -> tuple[Tensor, Tensor]:
        both = [(self._held_back * self._columns).sum(), self._columns.sum() + self._of_targets]
        held_back, total = self._shard.sum(torch.stack(both))
        return held_back, total


def refuse_again(*, given: bool) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the gradients of this loss have no graph: create_graph=True would treat them as constants; use "
            "torch.nn.functional.cross_entropy on the logits for second derivatives"
        )
    if given:
        how = "they are computed with the loss and kept once; compute the loss again instead of retain_graph=True"
        raise RuntimeError(f"the gradients of this loss were used already: {how}")


def refuse_nan(losses: Tensor, hidden: Tensor, weight: Tensor | None, bias: Tensor | None, shard: Shard) -> None:
    """Raise InputError where NaN in the losses, one or (N,), came from the states (N, D), the head or the bias. Finite
    numbers whose products overflow raise none: scaled training in float16 meets them, and skips the step."""
    wrong = torch.isnan(losses)
    if not bool(wrong.any()):
        return
    states = torch.where(wrong[:, None], hidden, 0.0) if wrong.ndim else hidden
    message = _not_finite(states, weight, bias, shard.start)
    if shard.group is not None:
        elsewhere = shard.highest(torch.tensor(float(message is not None), device=losses.device))
        if message is None and bool(elsewhere):
            message = "expected a head without NaN, got NaN or infinity on another rank: its message names the row"
    if message is not None:
        raise InputError(message)


def _not_finite(hidden: Tensor, weight: Tensor | None, bias: Tensor | None, start: int) -> str | None:
    step = "look for the step that made it"
    layer = "look for the layer that made it (torch.autograd.set_detect_anomaly helps)"
    for kind, test, in_bias in (("NaN", torch.isnan, torch.isnan), ("infinity", torch.isinf, torch.isposinf)):
        for what, x, rows, first, where, how in (
            ("hidden states", hidden, "", 0, "at position", layer),
            ("a head", weight, " rows", start, "row", f"{step} (a lower learning rate or clipped gradients help)"),
            ("a bias", bias, "", start, "for id", f"{step}; only -inf is allowed, for an id that is never drawn"),
        ):
            if x is not None and len(bad := (test(x).any(dim=1) if x.ndim > 1 else in_bias(x)).nonzero()):
                got = f"got {len(bad)} of {len(x)}{rows} with {kind}, first {where} {first + int(bad[0])}"
                return f"expected {what} without {kind}, {got}: {how}"
    return None
