"""What a gate keeps over an interruption: its state in a file, its settings, and the size of its batches."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.rows.safetensors import read_tensors, to_bytes

_FORMAT = "uncone.gate/1"
LOOKED_AT = 4
"""Steps after a resume whose mean is compared."""


class Batch:
    """How large an optimiser step is, and whether a resumed run's is the same.

    A Trainer tells the size; else the mean number of targets of the first steps after a resume is compared with the mean
    before: of a single step it says little, as the last of an epoch is short.
    """

    def __init__(self) -> None:
        self._size: int | None = None
        self._sum = self._steps = 0
        self._before: float | None = None
        """Mean targets a step before the resume, until it was compared."""
        self._since = 0, 0
        self.per_step: float | None = None
        """The targets a step that counts a step are read at; None while the batch never changed."""

    def tell(self, size: int, *, rescale: bool) -> None:
        """A step has `size` sequences."""
        if self._steps and self._size is not None and size != self._size:
            self._changed(
                f"{self._size} sequences a step, as before the resume, got {size}",
                self._mean(),
                rescale=rescale,
            )
        self._size, self._before = size, None

    def check(self, targets: int, *, rescale: bool, factor: float) -> None:
        """Take note of a step with so many targets."""
        self._sum, self._steps = self._sum + targets, self._steps + 1
        if self._before is None:
            return
        self._since = self._since[0] + targets, self._since[1] + 1
        if self._since[1] < LOOKED_AT:
            return
        before, now = self._before, self._since[0] / self._since[1]
        self._before = None
        if not before / factor <= now <= before * factor:
            self._changed(
                f"about {before:.0f} targets a step, as before the resume, got {now:.0f}",
                before,
                rescale=rescale,
            )

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "size": self._size, "sum": self._sum, "steps": self._steps, "before": self._before, "since": list(self._since),
            "per_step": self.per_step,
        }  # fmt: skip

    @classmethod
    def resumed(cls, state: Mapping[str, Any]) -> "Batch":
        """Go on from a `state`, and look at the next steps."""
        found = cls()
        found._size, found.per_step = _optional(state["size"], int), _optional(state["per_step"], float)
        found._sum, found._steps = _count(state["sum"]), _count(state["steps"])
        found._before, found._since = (
            _optional(state["before"], float),
            (_count(state["since"][0]), _count(state["since"][1])),
        )
        if found._before is None and found._steps:
            found._before, found._since = found._mean(), (0, 0)
        return found

    def _mean(self) -> float:
        return self._sum / max(self._steps, 1)

    def _changed(self, seen: str, before: float, *, rescale: bool) -> None:
        if not rescale:
            raise InputError(
                f"expected {seen}: keep ranks x batch x accumulation as they were, or make the gate with on_batch_change='rescale'"
            )
        self.per_step = before if self.per_step is None else self.per_step
        warnings.warn(
            f"expected {seen}: counts a step are read at {self.per_step:.0f} targets from now on",
            stacklevel=4,
        )
        self._sum = self._steps = 0


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _optional(value: Any, kind: type) -> Any:
    """None, or a positive finite number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{value!r} is no size")
    return kind(value)


def like(value: Any, model: torch.Tensor) -> torch.Tensor:
    """A copy of `value` if it is a tensor of the shape and dtype of `model`."""
    if not isinstance(value, torch.Tensor) or value.shape != model.shape or value.dtype != model.dtype:
        got = (
            f"{value.dtype} of shape {tuple(value.shape)}"
            if isinstance(value, torch.Tensor)
            else repr(value)[:60]
        )
        raise ValueError(f"{model.dtype} of shape {tuple(model.shape)} was wanted, and {got} is there")
    return value.clone()


def not_negative(value: torch.Tensor) -> torch.Tensor:
    """`value` if it holds finite numbers from 0 up."""
    if not bool((torch.isfinite(value) & (value >= 0)).all()):
        raise ValueError("counts are negative or not finite")
    return value


@contextmanager
def refusing_what_is_no_state() -> Iterator[None]:
    """Turns whatever goes wrong while a state is read into one error."""
    try:
        yield
    except InputError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise InputError(
            f"expected a state that state_dict or save gave, got one that does not hold together ({type(error).__name__}: {error}): "
            "save it anew"
        ) from error


def check_settings(mine: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raises InputError naming the settings that differ."""
    differ = [f"{name} {saved.get(name)!r}" for name in mine if saved.get(name) != mine[name]]
    if differ:
        got = ", ".join(f"{name} {mine[name]!r}" for name in mine if saved.get(name) != mine[name])
        raise InputError(
            f"expected a gate with the settings of the state ({', '.join(differ)}), got {got}: make it with the same"
        )


def save(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state_dict, atomically: tensors as they are, the rest as JSON in the header."""
    tensors, plain = _split(state)
    atomic.write_bytes(path, to_bytes(tensors, {"format": _FORMAT, "state": json.dumps(plain)}))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote."""
    tensors, metadata = read_tensors(
        path, format=_FORMAT, what="the state of a gate", how="write it with save"
    )
    with refusing_what_is_no_state():
        return _joined(tensors, dict(json.loads(metadata["state"])))


def _split(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors: dict[str, torch.Tensor] = {}
    plain: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, dict) and any(isinstance(v, torch.Tensor) for v in value.values()):
            tensors |= {f"{name}.{key}": v for key, v in value.items()}
        else:
            plain[name] = value
    return tensors, plain


def _joined(tensors: Mapping[str, torch.Tensor], plain: dict[str, Any]) -> dict[str, Any]:
    state = dict(plain)
    for name, value in tensors.items():
        outer, _, inner = name.partition(".")
        if inner:
            state.setdefault(outer, {})[inner] = value
        else:
            state[name] = value
    return state
