"""The rare-token gate."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from uncone.arguments import one_of, shown, whole_number
from uncone.errors import InputError
from uncone.roles import Path_
from uncone.training import resume
from uncone.training.cloud import world
from uncone.training.counts import ExactWindow, Gates, Rule, counts_of, memory_of, positive
from uncone.training.resume import like, not_negative

Tensor = torch.Tensor
FEWEST_SHARE = 0.05  # of the vocabulary: gating fewer rare ids changes almost nothing
LARGEST_MASS = 0.02  # of all targets: ids with more are not rare, and gating them slows what has to be learnt
BATCH_FACTOR = 1.5  # so many times more or fewer targets per step after a resume mean another batch size
_GATES = ("rare", "g1", "g2")


@dataclass(frozen=True)
class GateStatus:
    """What a gate did in the last closed step."""

    step: int  # optimiser steps closed, including the run's steps before the gate began (`begin_at`)
    rare_ids: int
    rare_share: float  # share of all ids except padding rows that are rare
    rare_mass: float  # share of the counted targets that are rare
    # share of the gradient by the logits that was held back: sum |(1 - G) delta| / sum |delta|; None without a report
    gated_share: float | None
    counted_steps: float  # steps that the counts cover, up to the window; faded steps with `memory="average"`
    mean_g1: float | None  # how much of the push on rare ids by other targets passes; None without rare ids
    mean_g2: float | None  # the same for the push by rare targets


class RareTokenGate:
    """Adaptive gradient gating (Yu et al. 2022): other targets push rare output rows less, or not at all.

    Call `observe(labels)` once per micro-batch and `step()` once per optimiser step. Pass the gate to
    `gated_linear_cross_entropy`, or to `attach`, which calls both.

    With a_v the count of id v in the window and R the rare ids, targets that are not rare push a rare row v with g1[v],
    and rare targets with g2[v] = min(a_v / mean of a over R, 1):

    - "relative": g1 = gate_max r_v / t, with r_v the share of v among the targets and t the share from which ids are
        not rare. Independent of the batch size; equal to the published rule at the published batch size.
    - "paper": g1 = min(a_v per step, 1), and ids with fewer than `alpha` targets per step are rare.
    - "official": as "paper", but a micro-batch is counted before it is gated, as in the published code, so that gates
        move within a step.
    - "hard": g1 = g2 = 0, no push at all.

    Args:
        vocab_size: rows of the head, V.
        window: optimiser steps that are counted, or "epoch": all steps until `set_epoch` or `end_epoch` sets the number
            of steps in an epoch (a Trainer's callback does).
        rare_share: the share of ids that are rare, 0.19 by default as in the paper's evaluation: the ids with the
            fewest targets, and among equals the higher ids, because most vocabularies are sorted by frequency.
        rare_frequency: instead, ids with a smaller share of the targets are rare.
        alpha: instead, ids with fewer targets per step are rare (0.03 by default with "paper" and "official").
        gate_max: g1 at the threshold, with "relative".
        memory: "exact", "ring" (16 buckets) or "average" (exponential).
        counts: (V,) target counts of the corpus, instead of a window.
        protected_ids: ids that are never rare: padding, end of text, unknown.
        n_tokens: rows from this one on pad the matrix.
        start_step: steps to count before the gate acts.
        ignore_index: the label of positions without a target; None where all labels are targets.
        group: the ranks to sum counts over, by default all.
        on_batch_change: where a resumed run has another number of targets per step, "refuse", or "rescale" with a
            warning: read counts per step at the former batch size.

    InputError where settings contradict each other, or would amplify a gradient.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        window: int | str = 1000,
        rare_share: float | None = None,
        rare_frequency: float | None = None,
        alpha: float | None = None,
        mode: str = "relative",
        gate_max: float = 0.03,
        memory: str = "exact",
        counts: Any = None,
        protected_ids: Iterable[int] = (),
        n_tokens: int | None = None,
        start_step: int = 1,
        ignore_index: int | None = -100,
        group: Any = None,
        on_batch_change: str = "refuse",
    ) -> None:
        self._rule = Rule(mode, rare_share, rare_frequency, alpha, gate_max)
        if whole_number(start_step, "start_step") < 1:
            raise InputError(f"expected start_step of at least 1, got {start_step}: a gate needs counts")
        one_of(on_batch_change, "on_batch_change", ("refuse", "rescale"))
        self.vocab_size, self.ignore_index = positive("vocab_size", vocab_size), ignore_index
        if ignore_index is not None:
            whole_number(ignore_index, "ignore_index", -(2**63), 2**63 - 1)
        of_run = {"start_step": start_step, "ignore_index": ignore_index, "n_tokens": n_tokens} | asdict(self._rule)
        kept = memory if counts is None else "counts"
        self._settings: dict[str, Any] = {"vocab_size": vocab_size, "window": window, "memory": kept} | of_run
        self._new_counts = partial(memory_of, memory, vocab_size, window, counts, self._rule)
        self._counts = self._new_counts()
        self._static, self._by_epoch = counts is not None, window == "epoch"
        self._n_tokens = vocab_size if n_tokens is None else n_tokens
        if not 0 < whole_number(self._n_tokens, "n_tokens") <= vocab_size:
            raise InputError(f"expected n_tokens from 1 to {vocab_size}, got {n_tokens}: pass len(tokenizer)")
        self._can_be_rare = torch.arange(vocab_size) < self._n_tokens
        self._start, self._group, self._rescale = start_step, group, on_batch_change == "rescale"
        self._current = torch.zeros(vocab_size, dtype=torch.int64)
        self._shares = torch.zeros(2, dtype=torch.float64)
        self._gated_share: float | None = None
        self._step = self._begun = 0
        self._batch = resume.Batch()
        self._said: set[str] = set()
        self._gates: Gates | None = None
        self.protect(protected_ids)

    def protect(self, ids: Iterable[int]) -> None:
        if not isinstance(ids, Iterable):
            raise InputError(f"expected protected_ids to be a list of ids, got {shown(ids)}: pass for instance [0]")
        for token in ids:
            if not 0 <= whole_number(token, "protected_ids") < self.vocab_size:
                raise InputError(f"expected protected_ids in [0, {self.vocab_size}), got {token}: drop it")
            self._can_be_rare[token] = False
        self._gates = None

    def observe(self, labels: Tensor) -> None:
        """Count the targets of a training micro-batch (any shape); InputError where a label is out of range."""
        if labels.dtype.is_floating_point or labels.dtype == torch.bool:
            raise InputError(f"expected labels as integer ids, got {labels.dtype}: convert them")
        if torch.compiler.is_compiling() and not self.counts_first:
            from uncone.training.loss.compiled import target_counts  # loads the compiler

            counts = target_counts(labels.detach(), self.ignore_index, self._n_tokens, self.vocab_size)
            self._current = self._current.to(counts.device) + counts
        else:
            self._observe(labels.detach())

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # one break: the gates move within the step
    def _observe(self, labels: Tensor) -> None:
        counts = counts_of(labels, self.ignore_index, self._n_tokens, self.vocab_size)
        counts = self._summed(counts) if self.counts_first else counts
        self._current = self._current.to(counts.device) + counts
        if self.counts_first:
            self._freeze()

    def step(self) -> None:
        """Close an optimiser step: sum its counts over the ranks, move the window, freeze the next gates. InputError
        where a resumed run's first steps have another number of targets and `on_batch_change` is "refuse"."""
        counts = (self._current if self.counts_first else self._summed(self._current)).cpu()
        if not self._static:
            self._batch.check(int(counts.sum()), rescale=self._rescale, factor=BATCH_FACTOR)
        self._counts.push(counts)
        self._current.zero_()
        self._step += 1
        gated, total = self._summed(self._shares).tolist()
        self._gated_share = gated / total if total > 0 else None
        self._shares.zero_()
        self._freeze()
        self._warn()

    def gates(self) -> Gates:
        """(rare, g1, g2): bool, float32, float32, each (V,), on the CPU; the factors are 1 where `rare` is False."""
        return self._gates or self._freeze()

    def record(self, gated: Tensor, total: Tensor) -> None:
        """A loss calls it with sum |(1 - G) delta| and sum |delta| of its targets, as scalars."""
        both = torch.stack([gated.detach(), total.detach()]).double()
        self._shares = self._shares.to(both.device) + both

    def set_batch(self, sequences: int) -> None:
        """Set the number of sequences in a step, over all ranks and micro-batches; InputError where a loaded state has
        another number and `on_batch_change` is "refuse"."""
        if not self._static:
            self._batch.tell(positive("sequences", sequences), rescale=self._rescale)

    def set_epoch(self, steps: int) -> None:
        """With `window="epoch"`: set the number of optimiser steps in an epoch."""
        if self._by_epoch and isinstance(self._counts, ExactWindow):
            self._counts.limit(positive("steps", steps))

    def begin_at(self, step: int) -> None:
        """Begin, before any step, in a run that has closed so many steps; `start_step` counts from here on."""
        if self._step:
            raise InputError(f"expected a gate that has not begun, got one at step {self._step}: make another")
        self._step = self._begun = step

    def end_epoch(self) -> None:
        """With `window="epoch"`: the steps so far make one epoch, and the gate remembers as many from now on."""
        if self._step > self._begun and not self._static:
            self.set_epoch(int(self._counts.steps))

    @property
    def counts_first(self) -> bool:
        return self._rule.mode == "official"

    @property
    def status(self) -> GateStatus:
        """The rare set now, and what the last step gated."""
        (rare, g1, g2), counts = self.gates(), self._counts.total
        total, size = float(counts.sum()), int(rare.sum())
        mass = float(counts[rare].sum()) / total if total > 0 else 0.0
        means = [float(g[rare].mean()) if size else None for g in (g1, g2)]
        return GateStatus(self._step, size, size / self._n_tokens, mass, self._gated_share, self._counts.steps, *means)

    @property
    def memory_bytes(self) -> int:
        return self._counts.memory_bytes + self._current.nbytes + sum(g.nbytes for g in self._gates or ())

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes, as tensors and plain numbers; InputError within a step of several ranks,
        whose counts are not summed yet."""
        if not self.counts_first and world(self._group) > 1 and bool(self._current.any()):
            raise InputError("expected no micro-batch since step() on several ranks, got some: save right after step()")
        return {
            "settings": dict(self._settings),
            "counts": self._counts.state(),
            "can_be_rare": self._can_be_rare.clone(),
            "current": self._current.cpu().clone(),
            "shares": self._shares.cpu().clone(),
            "gates": {name: gate.clone() for name, gate in zip(_GATES, self.gates(), strict=True)},
            "step": self._step,
            "begun": self._begun,
            "gated_share": self._gated_share,
            "batch": asdict(self._batch),
            "said": sorted(self._said),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`: the next gates equal an uninterrupted run's, to the bit. Ids that either gate protects
        stay protected. InputError, with the gate unchanged, where settings differ or `state` is not a gate's state."""
        with resume.refusing_damaged_state():
            resume.check_settings(self._settings, dict(state["settings"]))
            counts = self._new_counts()
            counts.load(state["counts"])
            current = not_negative(like(state["current"], torch.zeros(self.vocab_size, dtype=torch.int64)))
            shares = not_negative(like(state["shares"], torch.zeros(2, dtype=torch.float64)))
            can_be_rare = like(state["can_be_rare"], self._can_be_rare) & self._can_be_rare
            mine = zip(_GATES, self.gates(), strict=True)
            rare, g1, g2 = (like(state["gates"][name], gate) for name, gate in mine)
            if not all(bool(((not_negative(g) <= 1) & (rare | (g == 1))).all()) for g in (g1, g2)):
                raise ValueError("gates that amplify, or act on ids that are not rare")
            step, gated_share, begun = int(state["step"]), state["gated_share"], int(state.get("begun", 0))
            batch = resume.Batch.resumed(dict(state["batch"]))
            said = {str(what) for what in list(state["said"])}
            if not 0 <= begun <= step or not (gated_share is None or 0 <= gated_share <= 1):
                raise ValueError(f"step {step}, gated share {gated_share}")
        self._gates = (rare, g1, g2) if torch.equal(can_be_rare, state["can_be_rare"]) else None
        self._counts, self._current, self._shares, self._can_be_rare = counts, current, shares, can_be_rare
        self._step, self._begun, self._gated_share, self._batch, self._said = step, begun, gated_share, batch, said

    def save(self, path: Path_) -> None:
        resume.save(self.state_dict(), path)

    def load(self, path: Path_) -> None:
        """InputError where the file is not the state of a gate with these settings."""
        self.load_state_dict(resume.load(path))

    def _freeze(self) -> Gates:
        counts, steps = self._counts.total, self._counts.steps
        if self.counts_first and isinstance(self._counts, ExactWindow):
            counts, steps = self._counts.with_unfinished(self._current.cpu())
        if not self._static and self._step - self._begun + self.counts_first < self._start:
            steps = 0.0
        self._gates = gates = self._rule.gates(counts, steps, self._can_be_rare, self._batch.per_step)
        return gates

    def _summed(self, counts: Tensor) -> Tensor:
        if not (dist.is_available() and dist.is_initialized()):
            return counts
        on = "cuda" if "nccl" in str(dist.get_backend(self._group)) else counts.device
        counts = counts.to(on, copy=True)
        dist.all_reduce(counts, group=self._group)
        return counts

    def _warn(self) -> None:
        if self._step - self._begun < self._start:
            return
        now = self.status
        size = f"only {now.rare_ids} ids ({now.rare_share:.1%} of the vocabulary) are rare"
        mass = f"the {now.rare_ids} rare ids are {now.rare_mass:.1%} of the targets"
        for what, is_wrong, message in (
            ("few", now.rare_share < FEWEST_SHARE, f"{size}, so the gate changes almost nothing: raise"),
            ("mass", now.rare_mass > LARGEST_MASS, f"{mass}, so these ids are not rare: lower"),
        ):
            if is_wrong and what not in self._said:
                self._said.add(what)
                warnings.warn(f"{message} rare_share, rare_frequency or alpha", stacklevel=3)
