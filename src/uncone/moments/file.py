"""The file of `Moments`: safetensors of float64 sums."""

import math
import os

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.moments.sums import SCALARS, Sums
from uncone.rows.safetensors import read_tensors, to_bytes

Tensor = torch.Tensor
_FORMAT = "uncone.moments/1"
_MOST_ROWS = 2**53
_SHAPES = {"shift": 1, "first": 1, "second": 2, "unit_first": 1, "unit_square": 1, "unit_second": 2}


def write(path: str | os.PathLike[str], sums: Sums) -> None:
    """Write the sums, atomically. Reading them back gives the same bytes."""
    tensors = {name: getattr(sums, name) for name in _SHAPES if getattr(sums, name) is not None}
    tensors["scalars"] = torch.tensor([float(getattr(sums, name)) for name in SCALARS], dtype=torch.float64)
    atomic.write_bytes(path, to_bytes(tensors, {"format": _FORMAT}))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The tensors and the scalars of a file by their names, checked against each other.

    Raises:
        InputError: no such file, or not one that `write` wrote.
    """
    tensors = _tensors(path)
    d, scalars = len(tensors["first"]), tensors.pop("scalars").tolist()
    for name, tensor in tensors.items():
        shape = (d,) * _SHAPES[name]
        if tensor.shape != shape:
            raise InputError(
                f"expected {name} of shape {shape} in {path}, got {tuple(tensor.shape)}: write it anew"
            )
    named = dict(zip(SCALARS, scalars, strict=True))
    _check_numbers(path, tensors, named)
    return tensors, named | {name: int(named[name]) for name in ("n", "zero_rows")}


def _check_numbers(
    path: str | os.PathLike[str], tensors: dict[str, Tensor], scalars: dict[str, float]
) -> None:
    n, zero_rows = scalars["n"], scalars["zero_rows"]
    finite = {
        name: value for name, value in scalars.items() if n or name != "norm_min"
    }  # of no rows it is infinite
    wrong = next((name for name, t in tensors.items() if not bool(torch.isfinite(t).all())), None)
    wrong = wrong or next((name for name, value in finite.items() if not 0 <= value < math.inf), None)
    if wrong is None and not (n.is_integer() and zero_rows.is_integer() and zero_rows <= n <= _MOST_ROWS):
        wrong = "n"
    for name in ("weight", "unit_weight"):
        most, square = scalars[name] * scalars[name], scalars[f"{name}_square"]
        if wrong is None and not (0 < square <= most * (1 + 1e-9) < math.inf or square == most == 0):
            wrong = f"{name}_square"
    if wrong is not None:
        raise InputError(
            f"expected finite sums of a whole number of rows, got {path} with another {wrong}: write it anew with Moments.save"
        )


def _tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    content, _ = read_tensors(path, format=_FORMAT, what="moments", how="write it with Moments.save")
    tensors = {name: tensor for name, tensor in content.items() if name in {"scalars", *_SHAPES}}
    if not {"scalars", "first"} <= set(tensors) or ("unit_first" in tensors) != ("unit_square" in tensors):
        raise InputError(f"expected moments, got {path} without some of the sums: write it with Moments.save")
    if (
        len(tensors["scalars"]) != len(SCALARS)
        or not float(tensors["scalars"][0]) >= 0
        or tensors["first"].ndim != 1
    ):
        raise InputError(
            f"expected the sums of some rows, got {path} with others: write it with Moments.save"
        )
    if any(t.dtype != torch.float64 for t in tensors.values()) or (
        "shift" not in tensors and float(tensors["scalars"][0]) > 0
    ):
        raise InputError(
            f"expected float64 sums about a shift, got {path} with others: write it with Moments.save"
        )
    return tensors
