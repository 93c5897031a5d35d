"""How a run continues: a gate's state in a file, its settings and batch size."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from uncone import atomic
from uncone.errors import InputError
from uncone.roles import Path_
from uncone.rows.safetensors import read_tensors, sealed_bytes
from uncone.tensors import of_array

_FORMAT = "uncone.gate/1"
LOOKED_AT = 4  # number of steps after a resume whose mean is compared


@dataclass
class Batch:
    """How large an optimiser step is, and whether a resumed run keeps the size: from a Trainer's report, or else from
    the mean number of targets in the first steps after the resume and in the steps before."""

    size: int | None = None  # sequences in a step
    sum: int = 0  # targets in all `steps` of one batch size
    steps: int = 0
    before: float | None = None  # mean targets per step before the resume, until it was compared
    since: list[int] = field(default_factory=lambda: [0, 0])  # targets and steps since the resume
    per_step: float | None = None  # batch size, in targets, for counts per step; None while the batch never changed

    @classmethod
    def resumed(cls, state: Mapping[str, Any]) -> "Batch":
        batch = cls(**{name: state[name] for name in asdict(cls())})
        counts, sizes = (batch.sum, batch.steps, *batch.since), (batch.size, batch.before, batch.per_step)
        if len(batch.since) != 2 or not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError(f"{batch} has wrong counts")
        if not all(n is None or (type(n) in (int, float) and 0 < n < math.inf) for n in sizes):
            raise ValueError(f"{batch} has no size")
        if batch.before is None and batch.steps:
            batch.before, batch.since = batch.sum / batch.steps, [0, 0]
        return batch

    def tell(self, size: int, *, rescale: bool) -> None:
        if self.steps and self.size is not None and size != self.size:
            seen = f"{self.size} sequences per step, as before the resume, got {size}"
            self._changed(seen, self.sum / self.steps, rescale=rescale)
        self.size, self.before = size, None

    def check(self, targets: int, *, rescale: bool, factor: float) -> None:
        self.sum, self.steps = self.sum + targets, self.steps + 1
        if self.before is None:
            return
        self.since = [self.since[0] + targets, self.since[1] + 1]
        if self.since[1] < LOOKED_AT:
            return
        before, now, self.before = self.before, self.since[0] / self.since[1], None
        if not before / factor <= now <= before * factor:
            seen = f"about {before:.0f} targets per step, as before the resume, got {now:.0f}"
            self._changed(seen, before, rescale=rescale)

    def _changed(self, seen: str, before: float, *, rescale: bool) -> None:
        if not rescale:
            raise InputError(f"expected {seen}: keep ranks x batch x accumulation, or use on_batch_change='rescale'")
        self.per_step = before if self.per_step is None else self.per_step
        how = f"counts per step are now scaled to {self.per_step:.0f} targets"
        warnings.warn(f"expected {seen}: {how}", stacklevel=4)
        self.sum = self.steps = 0


def like(value: Any, model: Tensor) -> Tensor:
    """A copy of `value` if it is a tensor of the shape and dtype of `model`."""
    if not isinstance(value, Tensor):
        raise ValueError(f"expected a tensor, got {value!r:.60}")
    if value.shape != model.shape or value.dtype != model.dtype:
        wanted, got = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (model, value))
        raise ValueError(f"expected {wanted}, got {got}")
    return value.clone()


def not_negative(value: Tensor) -> Tensor:
    if not bool((torch.isfinite(value) & (value >= 0)).all()):
        raise ValueError("counts are negative or not finite")
    return value


@contextmanager
def refusing_damaged_state() -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        got = f"got a damaged one ({type(error).__name__}: {error}): save it again"
        raise InputError(f"expected a state from state_dict or save, {got}") from error


def check_settings(mine: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    if differ := [name for name in mine if saved.get(name) != mine[name]]:
        theirs, ours = (", ".join(f"{name} {of.get(name)!r}" for name in differ) for of in (saved, mine))
        raise InputError(f"expected the settings of the state ({theirs}), got {ours}: make a gate with these")


def save(state: Mapping[str, Any], path: Path_, *, format: str = _FORMAT) -> None:
    tensors, plain = dict[str, Tensor](), dict[str, Any]()
    for name, value in state.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, dict) and any(isinstance(v, Tensor) for v in value.values()):
            tensors |= {f"{name}.{key}": v for key, v in value.items()}
        else:
            plain[name] = value
    atomic.write_bytes(path, sealed_bytes(tensors, {"format": format, "state": json.dumps(plain)}))


def load(path: Path_, *, format: str = _FORMAT, what: str = "the state of a gate") -> dict[str, Any]:
    tensors, metadata = read_tensors(path, format=format, what=what, how="write it with save")
    with refusing_damaged_state():
        state = dict(json.loads(metadata["state"]))
        for name, array in tensors.items():
            outer, _, inner = name.partition(".")
            (state.setdefault(outer, {}) if inner else state)[inner or name] = of_array(array)
        return state
