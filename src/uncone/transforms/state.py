"""A saved transformation as plain data: tensors that any program can read, and a header that names them.

Of an affine one, `shift`, `weight` and `offset` are all that is needed: y = (x - shift) @ weight + offset,
with what is absent left out. A `State` knows no class: each class gives its state and is made from one.
Nothing in a file is trusted: sizes are checked against the file before anything is read, no code is run.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.records.fitted import Fitted
from uncone.records.rebuild import build_record, parsed
from uncone.rows.safetensors import read_tensors, to_bytes
from uncone.version import __version__

Tensor = torch.Tensor
T = TypeVar("T")
Path_ = str | os.PathLike[str]
FORMAT = "uncone.repair/1"
_COMMAND = "uncone repair SPEC OUT --save F"
_HOW = f"`{_COMMAND}`, or with save() of a transformation"


@dataclass(frozen=True)
class State:
    """What is saved: the name of the class, its tensors, what it was fitted on, its options and warnings."""

    kind: str
    tensors: Mapping[str, Tensor]
    fitted: Fitted | None = None
    options: Mapping[str, Any] | None = None
    """Of plain values; those that were read from a file are still to be checked."""
    warnings: tuple[str, ...] = ()
    path: Path_ = ""

    def save(self, path: Path_) -> None:
        """Write it to a safetensors file, atomically.

        Raises:
            InputError: the folder does not exist or cannot be written.
        """
        header = {"format": FORMAT, "kind": self.kind, "uncone": __version__}
        if self.fitted is not None:
            header["fitted"] = json.dumps(dataclasses.asdict(self.fitted))
        if self.options is not None:
            header |= {"options": json.dumps(self.options), "warnings": json.dumps(self.warnings)}
        atomic.write_bytes(path, to_bytes(self.tensors, header))

    @classmethod
    def load(cls, path: Path_) -> "State":
        """Read what `save` wrote.

        Raises:
            InputError: no such file, not one of these, cut, a header that lies, or numbers that are not
                finite float64.
        """
        tensors, header = read_tensors(
            path, format=FORMAT, what="a transformation", how=f"write it with {_HOW}"
        )
        state = cls(header.get("kind", ""), tensors, path=path)
        for name, tensor in tensors.items():
            if tensor.dtype != torch.float64 or 0 in tensor.shape or not bool(torch.isfinite(tensor).all()):
                raise state.lies(f"tensor {name[:60]!r} is not of finite float64 numbers")
        said = {
            key: parsed(header[key], what=f"record of {key}", how=_COMMAND)
            for key in ("fitted", "options", "warnings")
            if key in header
        }
        return dataclasses.replace(state, **vars(state.checked(_Header, said, "header")))

    def checked(self, cls: type[T], data: Any, where: str) -> T:
        """The record of class `cls` from parsed JSON of the file.

        Raises:
            InputError: a field that is missing, unknown or of another type.
        """
        try:
            return build_record(cls, data, where)
        except InputError as error:
            raise self.lies(str(error)) from error

    def lies(self, what: str) -> InputError:
        """The error for a file whose parts contradict each other, or are not those of its class."""
        return InputError(
            f"expected a transformation in {self.path}, got a file that lies: {what}; write it anew with "
            f"{_HOW}"
        )


@dataclass(frozen=True)
class _Header:
    """The texts of the header that hold JSON."""

    fitted: Fitted | None = None
    options: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
