"""Transformations as safetensors files: tensors that any program can read, and in the header what they are and whose.

Of an affine one, `shift`, `weight` and `offset` are all that is needed: y = (x - shift) @ weight + offset, with what is absent
left out. Nothing in a file is trusted: sizes are checked against the file before anything is read, no code is run.
"""

import dataclasses
import inspect
import json
import math
import os
import types
import typing
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.records.rebuild import LARGEST_INTEGER, build_record, parsed
from uncone.rows.safetensors import read_tensors, to_bytes
from uncone.transforms.affine import Affine
from uncone.transforms.center import Center, RemoveMeanDirection, ScaledCenter
from uncone.transforms.clusters import ClusterCenter
from uncone.transforms.components import AllButTheTop
from uncone.transforms.fitted import Fitted
from uncone.transforms.fitting import Transformation
from uncone.transforms.standardize import Standardize
from uncone.transforms.whitening import Whiten
from uncone.version import __version__

Tensor = torch.Tensor
FORMAT = "uncone.repair/1"
_CLASSES: tuple[type[Transformation], ...] = (
    Center, ScaledCenter, RemoveMeanDirection, AllButTheTop, Whiten, Standardize, ClusterCenter,
)  # fmt: skip
_KINDS = {cls.__name__: cls for cls in _CLASSES}
_AFFINE = ("shift", "weight", "offset")
_COMMAND = "uncone repair SPEC OUT --save F"
_HOW = f"`{_COMMAND}`, or with save() of a transformation"
Repair = Affine | Transformation


def save(repair: Repair, path: str | os.PathLike[str]) -> None:
    """Write a fitted transformation to a safetensors file, atomically.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    affine = repair if isinstance(repair, Affine) else getattr(repair, "affine_", None)
    tensors = {name: getattr(affine, name) for name in _AFFINE if getattr(affine, name, None) is not None}
    header = {"format": FORMAT, "kind": type(repair).__name__, "uncone": __version__}
    fitted = repair.fitted if isinstance(repair, Affine) else repair.fitted_
    if fitted is not None:
        header["fitted"] = json.dumps(dataclasses.asdict(fitted))
    if isinstance(repair, Transformation):
        header["options"] = json.dumps(repair.options())
        header["warnings"] = json.dumps(repair.warnings_)
        tensors |= {name: getattr(repair, name) for name in repair.tensors}
    atomic.write_bytes(path, to_bytes(tensors, header))


def load(path: str | os.PathLike[str]) -> Repair:
    """Read what `save` of a transformation or of an `Affine` wrote.

    Returns:
        An object of the class that was saved, fitted, with its provenance.

    Raises:
        InputError: no such file, not one of these, cut, or a header that lies.
    """
    header, tensors = _read(path)
    kind = header.get("kind")
    fitted = _fitted(header, path)
    if kind == "Affine":
        return _affine(tensors, fitted, path)
    if kind not in _KINDS:
        known = ", ".join(["Affine", *_KINDS])
        raise InputError(
            f"expected one of {known} in {path}, got {str(kind)[:60]!r}: read it with the version that wrote it"
        )
    found = _options(_KINDS[kind], header, path)
    _set_tensors(found, tensors, path)
    if fitted is None:
        raise _lies(path, "it does not say what it was fitted on")
    found.fitted_ = fitted
    if found.affine:
        found.affine_ = _affine(tensors, fitted, path)
    if found.affine and found.affine_.d != fitted.d:
        raise _lies(path, f"rows of {found.affine_.d} features were fitted on rows of {fitted.d}")
    return found


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    tensors, header = read_tensors(path, format=FORMAT, what="a transformation", how=f"write it with {_HOW}")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float64 or 0 in tensor.shape or not bool(torch.isfinite(tensor).all()):
            raise _lies(path, f"tensor {name[:60]!r} is not of finite float64 numbers")
    return header, tensors


def _fitted(header: dict[str, str], path: str | os.PathLike[str]) -> Fitted | None:
    if "fitted" not in header:
        return None
    return build_record(
        Fitted, parsed(header["fitted"], what="record of what was fitted", how=_COMMAND), "fitted"
    )


def _affine(tensors: dict[str, Tensor], fitted: Fitted | None, path: str | os.PathLike[str]) -> Affine:
    if "shift" not in tensors:
        raise _lies(path, "it has no tensor 'shift'")
    return Affine(tensors["shift"], tensors.get("weight"), fitted, tensors.get("offset"))


def _options(
    cls: type[Transformation], header: dict[str, str], path: str | os.PathLike[str]
) -> Transformation:
    options: Any = parsed(header.get("options", ""), what="record of options", how=_COMMAND)
    if not isinstance(options, dict) or set(options) != set(inspect.signature(cls).parameters):
        raise _lies(path, f"its options are not those of {cls.__name__}")
    hints = typing.get_type_hints(cls.__init__)
    for name, value in options.items():
        if not _is(value, hints[name]):
            raise _lies(path, f"its option {name} is of another type")
    found = cls(**options)
    said: Any = parsed(header.get("warnings", "[]"), what="list of warnings", how=_COMMAND)
    if not isinstance(said, list) or not all(isinstance(text, str) for text in said):
        raise _lies(path, "its warnings are no list of sentences")
    found.warnings_ = tuple(said)
    return found


def _is(value: Any, hint: Any) -> bool:
    """Whether parsed JSON is of the annotated type of an option."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_is(value, choice) for choice in typing.get_args(hint))
    if type(value) is int and abs(value) >= LARGEST_INTEGER:
        return False
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def _set_tensors(found: Transformation, tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """The fitted tensors, each axis as long as those of the same letter."""
    sizes: dict[str, int] = {}
    for name, axes in found.tensors.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.ndim != len(axes):
            raise _lies(path, f"it has no tensor {name!r} of {len(axes)} axes")
        for axis, size in zip(axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise _lies(path, f"the shape of {name!r} does not fit the others")
        setattr(found, name, tensor)
    if sizes.get("K", 0) > sizes["D"]:
        raise _lies(path, f"it holds {sizes['K']} directions of {sizes['D']} features")
    if "shift" in tensors and sizes["D"] != len(tensors["shift"]):
        raise _lies(path, "the shape of 'shift' does not fit the others")


def _lies(path: str | os.PathLike[str], what: str) -> InputError:
    return InputError(
        f"expected a transformation in {path}, got a file that lies: {what}; write it anew with {_HOW}"
    )
