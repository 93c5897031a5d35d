"""What a gate keeps over an interruption: its state in a file, its settings, and the size of its batches."""

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError

_FORMAT = "uncone.gate/1"


class Targets:
    """The targets a step: how few and how many there were, and whether a resumed run has as many."""

    def __init__(self) -> None:
        self._least, self._most = 0, 0
        self._sum, self._steps = 0, 0
        self._resumed = False
        self.per_step: float | None = None
        """The batch size that counts a step are read at; None while it never changed."""

    def check(self, targets: int, *, rescale: bool, factor: float) -> None:
        """Take note of a step, and of a changed batch in the first step after a resume."""
        if self._resumed and self._steps and not self._least / factor <= targets <= self._most * factor:
            self._changed(targets, rescale=rescale)
        self._resumed = False
        self._least = targets if self._steps == 0 else min(self._least, targets)
        self._most = max(self._most, targets)
        self._sum += targets
        self._steps += 1

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"least": self._least, "most": self._most, "sum": self._sum, "steps": self._steps, "per_step": self.per_step}

    @classmethod
    def resumed(cls, state: Mapping[str, Any]) -> "Targets":
        """Go on from a `state`, and look at the next step."""
        found = cls()
        found._least, found._most, found._sum, found._steps = (int(state[k]) for k in ("least", "most", "sum", "steps"))
        found.per_step, found._resumed = state["per_step"], True
        return found

    def _changed(self, targets: int, *, rescale: bool) -> None:
        before = self._sum / self._steps
        seen = f"about {before:.0f} targets a step, as before the resume ({self._least} to {self._most}), got {targets}"
        if not rescale:
            raise InputError(
                f"expected {seen}: keep ranks x batch x accumulation as they were, or make the gate with on_batch_change='rescale'"
            )
        self.per_step = before if self.per_step is None else self.per_step
        warnings.warn(f"expected {seen}: counts a step are read at {self.per_step:.0f} targets from now on", stacklevel=4)
        self._least = self._most = targets


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
    from safetensors.torch import save as to_bytes

    tensors, plain = _split(state)
    with atomic.replacing(path) as handle:
        handle.write(to_bytes(tensors, metadata={"format": _FORMAT, "state": json.dumps(plain)}))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"expected the state of a gate, got {path} which cannot be read ({error}): write it with save"
        ) from error
    if metadata.get("format") != _FORMAT:
        raise InputError(
            f"expected a state of format {_FORMAT!r}, got {path} of format {metadata.get('format')!r}: write it with save"
        )
    return _joined(tensors, json.loads(metadata["state"]))


def _split(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors: dict[str, torch.Tensor] = {}
    plain: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value.contiguous()
        elif isinstance(value, dict) and any(isinstance(v, torch.Tensor) for v in value.values()):
            tensors |= {f"{name}.{key}": v.contiguous() for key, v in value.items()}
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
