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
_DIMENSIONS = {"shift": 1, "first": 1, "second": 2, "unit_first": 1, "unit_square": 1, "unit_second": 2}


def write(path: str | os.PathLike[str], sums: Sums) -> None:
    """Write the sums, atomically. Reading them back gives the same bytes."""
    tensors = {name: getattr(sums, name) for name in _DIMENSIONS if getattr(sums, name) is not None}
    tensors["scalars"] = torch.tensor([float(getattr(sums, name)) for name in SCALARS], dtype=torch.float64)
    atomic.write_bytes(path, to_bytes(tensors, {"format": _FORMAT}))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The tensors and the scalars of a file by their names, checked against each other.

    Raises:
        InputError: no such file, or not one that `write` wrote.
    """
    content, _ = read_tensors(path, format=_FORMAT, what="moments", how="write it with Moments.save")
    tensors = {name: tensor for name, tensor in content.items() if name in {"scalars", *_DIMENSIONS}}
    scalars, wrong = dict[str, float](), _wrong_tensor(tensors)
    if wrong is None:
        scalars = dict(zip(SCALARS, tensors.pop("scalars").tolist(), strict=True))
        wrong = _wrong_number(tensors, scalars)
    if wrong is not None:
        raise InputError(
            f"expected finite sums of a whole number of rows, got {path} with another {wrong} or none: "
            "write it anew with Moments.save"
        )
    return tensors, scalars | {name: int(scalars[name]) for name in ("n", "zero_rows")}


def _wrong_tensor(tensors: dict[str, Tensor]) -> str | None:
    """The name of a tensor that is missing, or of another dtype or shape."""
    units = {"unit_first", "unit_square"}
    needed = {"scalars", "first"} | (units if any(name.startswith("unit") for name in tensors) else set())
    if not needed <= set(tensors):
        return min(needed - set(tensors))
    d = tensors["first"].numel()
    for name, tensor in tensors.items():
        shape = (len(SCALARS),) if name == "scalars" else (d,) * _DIMENSIONS[name]
        if tensor.dtype != torch.float64 or tensor.shape != shape:
            return name
    return None


def _wrong_number(tensors: dict[str, Tensor], scalars: dict[str, float]) -> str | None:
    """The name of a sum that no rows have."""
    n, zero_rows = scalars["n"], scalars["zero_rows"]
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            return name
    for name, value in scalars.items():
        if not 0 <= value < math.inf and (n or name != "norm_min"):  # of no rows it is infinite
            return name
    if not (n.is_integer() and zero_rows.is_integer() and zero_rows <= n <= _MOST_ROWS):
        return "n"
    for name in ("weight", "unit_weight"):
        most, square = scalars[name] * scalars[name], scalars[f"{name}_square"]
        if not (0 < square <= most * (1 + 1e-9) < math.inf or square == most == 0):
            return f"{name}_square"
    return "shift" if n and "shift" not in tensors else None
