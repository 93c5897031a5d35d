"""How often was each id a target recently, which ids are therefore rare, and how much of their push passes?

The memories have `total` (V,), int64, or float64 where steps fade, and the number of `steps` in it. `push` closes a
step with its counts, int64 (V,); `load` continues from `state`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from uncone.arguments import finite_number, shown
from uncone.errors import InputError
from uncone.rows import as_array
from uncone.rows.samples import as_floats
from uncone.training.resume import like, not_negative

Tensor = torch.Tensor
State = dict[str, Tensor]
Gates = tuple[Tensor, Tensor, Tensor]
MODES = ("relative", "paper", "official", "hard")
RARE_SHARE = 0.19  # of the vocabulary, which the paper evaluates as rare
ALPHA = 0.03  # ids with fewer targets per step are rare in the published models, with 32,768 targets in all


@dataclass
class Rule:
    """How gates follow from counts; at most one of `share`, `frequency` and `alpha` is given."""

    mode: str
    share: float | None
    frequency: float | None
    alpha: float | None
    gate_max: float

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise InputError(f"expected a mode among {', '.join(MODES)}, got {shown(self.mode)}: use one of them")
        given = sum(value is not None for value in (self.share, self.frequency, self.alpha))
        if given > 1:
            raise InputError("expected one of rare_share, rare_frequency and alpha, got several: give one")
        if not given:
            of_steps = self.mode in ("paper", "official")
            self.alpha, self.share = (ALPHA, None) if of_steps else (None, RARE_SHARE)
        why = "it is a share of the whole"
        named = (("rare_share", self.share, why), ("rare_frequency", self.frequency, why))
        for name, value, why in (*named, ("gate_max", self.gate_max, "above 1 the gate would amplify")):
            if value is not None and not 0 <= finite_number(value, name) <= 1:
                raise InputError(f"expected {name} in [0, 1], got {value}: {why}")
        if self.alpha is not None and not 0 < finite_number(self.alpha, "alpha") <= 1:
            raise InputError(
                f"expected alpha in (0, 1], got {self.alpha}: it is a number of targets per step, and above 1 the gate "
                "would amplify; rare_frequency does not depend on the batch size"
            )

    def gates(self, counts: Tensor, steps: float, can_be_rare: Tensor, targets_per_step: float | None) -> Gates:
        """The gates of ids counted `counts` (V,) times in `steps` steps, at a batch of `targets_per_step`, by default
        the batch of the counts; without counts no id is rare."""
        n, total = len(counts), float(counts.sum())
        rare, g1, g2 = torch.zeros(n, dtype=torch.bool), torch.ones(n), torch.ones(n)
        if steps == 0 or total == 0:
            return rare, g1, g2
        counts = counts.double()
        rate = counts / steps if targets_per_step is None else counts * (targets_per_step / total)
        rare, threshold = self._rare(counts, rate, total, can_be_rare)
        if bool(rare.any()):
            g1[rare], g2[rare] = (factor.float() for factor in self._factors(counts[rare], rate[rare], threshold))
        return rare, g1, g2

    def _rare(self, counts: Tensor, rate: Tensor, total: float, can_be_rare: Tensor) -> tuple[Tensor, float]:
        if self.frequency is not None:
            return (counts < self.frequency * total) & can_be_rare, self.frequency * total
        if self.alpha is not None:
            return (rate < self.alpha) & can_be_rare, self.alpha * float(total / rate.sum())
        assert self.share is not None
        ids = can_be_rare.nonzero().flatten().flip(0)  # among equal counts the higher id is the rarer
        chosen = ids[torch.sort(counts[ids], stable=True).indices[: int(self.share * len(ids))]]
        rare = torch.zeros(len(counts), dtype=torch.bool)
        rare[chosen] = True
        return rare, float(counts[chosen].max()) if len(chosen) else 0.0

    def _factors(self, counts: Tensor, rate: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
        none = torch.zeros_like(counts)
        g2 = (counts / (counts.mean() + 1e-7)).clamp_max(1.0)
        if self.mode == "relative":
            g1 = self.gate_max * counts / threshold if threshold > 0 else none
            return g1.clamp_max(self.gate_max), g2
        return (none, none) if self.mode == "hard" else (rate.clamp_max(1.0), g2)


class ExactWindow:
    """The last `window` steps, all by default: the ids (int32) and counts (int64) of each step, and 8 V bytes."""

    def __init__(self, vocab_size: int, window: int | None) -> None:
        self.total = torch.zeros(vocab_size, dtype=torch.int64)
        self._window, self._fixed = window, window is not None
        self._held: deque[tuple[Tensor, Tensor]] = deque()

    @property
    def steps(self) -> float:
        return float(len(self._held))

    @property
    def memory_bytes(self) -> int:
        return self.total.nbytes + sum(ids.nbytes + counts.nbytes for ids, counts in self._held)

    def push(self, counts: Tensor) -> None:
        ids = counts.nonzero().flatten()
        self._held.append((ids.int(), counts[ids]))
        self.total += counts
        self.limit(self._window)

    def limit(self, window: int | None) -> None:
        self._window = window
        while window is not None and len(self._held) > window:
            ids, counts = self._held.popleft()
            self.total[ids.long()] -= counts

    def with_unfinished(self, counts: Tensor) -> tuple[Tensor, float]:
        """Totals and steps of the window that ends with an unfinished step."""
        total, steps = self.total + counts, len(self._held) + 1
        if self._window is not None and steps > self._window:
            ids, oldest = self._held[0]
            total[ids.long()] -= oldest
            steps -= 1
        return total, float(steps)

    def state(self) -> State:
        empty = torch.empty(0, dtype=torch.int32)
        ids, counts = zip((empty, empty.long()), *self._held, strict=True)
        lengths = torch.tensor(list(map(len, ids[1:])), dtype=torch.int64)
        window = torch.tensor(-1 if self._window is None else self._window)
        return {"ids": torch.cat(ids), "counts": torch.cat(counts), "lengths": lengths, "window": window}

    def load(self, state: State) -> None:
        lengths: list[int] = state["lengths"].tolist()
        window = int(like(state["window"], torch.tensor(0)))
        if self._fixed and window != self._window:
            raise ValueError(f"a window of {window} instead of {self._window}")
        if window == 0 or window < -1 or (window > 0 and len(lengths) > window):
            raise ValueError(f"{len(lengths)} steps in a window of {window}")
        self._window = None if window == -1 else window
        ids = like(state["ids"], torch.empty(sum(lengths), dtype=torch.int32))
        counts = not_negative(like(state["counts"], torch.empty(sum(lengths), dtype=torch.int64)))
        parts = (map(Tensor.clone, torch.split(of_all, lengths)) for of_all in (ids, counts))
        self._held = deque(zip(*parts, strict=True))
        self.total.zero_().index_add_(0, ids.long(), counts)


class BucketRing:
    """The last `window` steps in 16 buckets of 8 V bytes. The oldest bucket is dropped whole, so at least 15/16 of the
    steps are kept."""

    def __init__(self, vocab_size: int, window: int) -> None:
        self.total = torch.zeros(vocab_size, dtype=torch.int64)
        buckets = min(16, window)
        self._lengths = (torch.arange(buckets + 1) * window // buckets).diff()
        self._counts = torch.zeros(buckets, vocab_size, dtype=torch.int64)
        self._steps = torch.zeros(buckets, dtype=torch.int64)
        self._now = 0

    @property
    def steps(self) -> float:
        return float(self._steps.sum())

    @property
    def memory_bytes(self) -> int:
        return self.total.nbytes + self._counts.nbytes

    def push(self, counts: Tensor) -> None:
        if self._steps[self._now] == self._lengths[self._now]:
            self._now = (self._now + 1) % len(self._steps)
            self.total -= self._counts[self._now]
            self._counts[self._now] = self._steps[self._now] = 0
        self._counts[self._now] += counts
        self._steps[self._now] += 1
        self.total += counts

    def state(self) -> State:
        return {"counts": self._counts.clone(), "steps": self._steps.clone(), "now": torch.tensor(self._now)}

    def load(self, state: State) -> None:
        self._counts = not_negative(like(state["counts"], self._counts))
        self._steps, self._now = not_negative(like(state["steps"], self._steps)), int(state["now"])
        if not 0 <= self._now < len(self._steps) or bool((self._steps > self._lengths).any()):
            raise ValueError(f"bucket {self._now} of {len(self._steps)}, with {self._steps.tolist()} steps")
        self.total = self._counts.sum(0)


class _Total:
    total: Tensor

    @property
    def memory_bytes(self) -> int:
        return self.total.nbytes

    def state(self) -> State:
        return {"total": self.total.clone()}


class ExponentialAverage(_Total):
    """Each step fades by 1 - 1 / `window`; 8 V bytes (float64)."""

    def __init__(self, vocab_size: int, window: int) -> None:
        self.total = torch.zeros(vocab_size, dtype=torch.float64)
        self.steps = 0.0
        self._decay = 1 - 1 / window

    def push(self, counts: Tensor) -> None:
        self.total.mul_(self._decay).add_(counts)
        self.steps = self.steps * self._decay + 1

    def state(self) -> State:
        return super().state() | {"steps": torch.tensor(self.steps, dtype=torch.float64)}

    def load(self, state: State) -> None:
        self.total = not_negative(like(state["total"], self.total))
        self.steps = float(not_negative(like(state["steps"], torch.tensor(0.0, dtype=torch.float64))))


class StaticCounts(_Total):
    """Counts of a corpus, made beforehand; 8 V bytes."""

    steps = 1.0

    def __init__(self, vocab_size: int, counts: Any) -> None:
        total = torch.from_numpy(as_floats(counts, "counts"))
        is_finite = total.shape == (vocab_size,) and bool(total.isfinite().all())
        if not is_finite or float(total.min()) < 0 or not 0 < float(total.sum()) < 2.0**53:
            got = f"got shape {tuple(total.shape)} with a sum of {float(total.sum()):g}: give one count per id"
            raise InputError(f"expected corpus counts of shape ({vocab_size},), none negative and not all 0, {got}")
        self.total = total if np.asarray(as_array(counts)).dtype.kind == "f" else total.long()

    def push(self, counts: Tensor) -> None:
        """A batch does not change the counts of a corpus."""

    def load(self, state: State) -> None:
        if not torch.equal(like(state["total"], self.total), self.total):
            raise InputError("expected the corpus counts of the saved state, got others: pass the same")


Counts = ExactWindow | BucketRing | ExponentialAverage | StaticCounts


def memory_of(memory: str, vocab_size: int, window: int | str, counts: Any, rule: Rule) -> Counts:
    if counts is not None:
        if rule.mode in ("paper", "official") or rule.alpha is not None:
            got = "got a rule that needs targets per step: a corpus has no steps"
            raise InputError(f"expected the modes 'relative' or 'hard' and no alpha with corpus counts, {got}")
        return StaticCounts(vocab_size, counts)
    window = window if isinstance(window, str) and window == "epoch" else positive("window", window)
    if not isinstance(memory, str) or memory not in ("exact", "ring", "average"):
        raise InputError(f"expected memory 'exact', 'ring' or 'average', got {shown(memory)}: choose one")
    if memory == "exact":
        return ExactWindow(vocab_size, None if isinstance(window, str) else window)
    if isinstance(window, str) or rule.mode == "official":
        got = f"got {memory!r}: it cannot drop single steps"
        raise InputError(f"expected memory 'exact' with window='epoch' and with mode='official', {got}")
    return BucketRing(vocab_size, window) if memory == "ring" else ExponentialAverage(vocab_size, window)


def positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise InputError(f"expected {name} as a number of at least 1, got {shown(value)}: pass an int")
    return value


def counts_of(labels: Tensor, ignored: int | None, tokens: int, rows: int) -> Tensor:
    """How often each of `rows` ids occurs in the labels (any shape); InputError for a label that is not a token."""
    labels = labels.reshape(-1)
    labels = (labels if ignored is None else labels[labels != ignored]).long()
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < tokens:
        wrong = labels[(labels < 0) | (labels >= tokens)]
        or_ignored = "" if ignored is None else f" or {ignored} (ignored)"
        got = f"got {int(wrong[0])}: make the gate for this vocabulary"
        raise InputError(f"expected labels from 0 to {tokens - 1}{or_ignored}, {got}")
    return torch.bincount(labels, minlength=rows)
