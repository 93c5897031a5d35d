"""`Affine`: a fitted transformation as one record, y = (x - shift) @ weight."""

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from uncone.errors import InputError
from uncone.records.fitted import Fitted
from uncone.threads import on_one_thread
from uncone.transforms.state import State
from uncone.transforms.transformed import X, apply

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Affine:
    """y = (x - shift) @ weight + offset for rows x (N, D).

    Attributes:
        shift: float64 (D,) on the CPU.
        weight: float64 (D, K) on the CPU, or None for the identity.
        fitted: what it was fitted on, where that is known.
        offset: float64 (K,), or None for zero, as nearly always. Some maps cannot do without it: the original
            All-but-the-Top has a weight that is not invertible, and a mean outside of what it reaches.

    Raises:
        InputError: shapes that do not fit, or numbers that are not finite.

    Example:
        >>> import torch
        >>> double = Affine(torch.tensor([1.0, 0.0]), 2 * torch.eye(2))
        >>> double.transform(torch.tensor([[1.0, 3.0]])).tolist()
        [[0.0, 6.0]]
    """

    shift: Tensor
    weight: Tensor | None = None
    fitted: Fitted | None = None
    offset: Tensor | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # the record is frozen for everybody else
        set_(self, "shift", _numbers(self.shift, "shift", 1))
        if self.weight is not None:
            set_(self, "weight", _numbers(self.weight, "weight", 2))
            if len(self.weight) != self.d:
                raise InputError(
                    f"expected a weight of shape ({self.d}, K), got {tuple(self.weight.shape)}: give one row "
                    "a feature"
                )
        if self.offset is not None:
            set_(self, "offset", _numbers(self.offset, "offset", 1))
            if len(self.offset) != self.k:
                raise InputError(
                    f"expected an offset of shape ({self.k},), got {tuple(self.offset.shape)}: give one "
                    "number a column"
                )
            if self.weight is None or not bool(self.offset.any()):
                set_(self, "shift", self.shift - self.offset if self.weight is None else self.shift)
                set_(self, "offset", None)

    def __repr__(self) -> str:
        parts = [f"shift ({self.d},)", "identity" if self.weight is None else f"weight ({self.d}, {self.k})"]
        parts += [] if self.offset is None else [f"offset ({self.k},)"]
        return f"Affine({', '.join(parts)}, fitted={self.fitted!r})"

    @property
    def d(self) -> int:
        """Features of the rows that come in."""
        return len(self.shift)

    @property
    def k(self) -> int:
        """Features of the rows that go out."""
        return self.d if self.weight is None else self.weight.shape[1]

    def transform(self, x: X) -> X:
        """The transformed rows: a tensor or array (..., D) gives one (..., K); `Rows` are lazy.

        dtype and device come back; float16 and bfloat16 are computed in float32.

        Raises:
            InputError: another width, no floats, numbers that are not finite, or a result that its dtype
                cannot hold.
        """
        casts: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor | None, Tensor | None]] = {}

        def move(rows: Tensor) -> Tensor:
            key = (rows.dtype, rows.device)
            if key not in casts:
                weight, offset = (None if t is None else t.to(rows) for t in (self.weight, self.offset))
                casts[key] = self.shift.to(rows), weight, offset
            shift, weight, offset = casts[key]
            moved = rows - shift
            if weight is None:
                return moved
            return moved @ weight if offset is None else torch.addmm(offset, moved, weight)

        return apply(x, move, d=self.d, k=self.k)

    @on_one_thread
    def compose(self, after: "Affine") -> "Affine":
        """One transformation that does this one first, then `after`. It keeps what this one was fitted on.

        Raises:
            InputError: `after` takes rows of another width.
        """
        if after.d != self.k:
            raise InputError(
                f"expected a transformation of rows of {self.k} features, got one of {after.d}: fit it on these"
            )
        if self.weight is None:
            return replace(after, shift=self.shift + after.shift, fitted=self.fitted)
        carried = -after.shift if self.offset is None else self.offset - after.shift
        if after.weight is None:
            return replace(self, offset=carried)
        offset = carried @ after.weight
        offset = offset if after.offset is None else offset + after.offset
        return replace(self, weight=self.weight @ after.weight, offset=offset)

    @on_one_thread
    def rank_lost(self) -> int:
        """How many directions of the rows nothing is left of, up to the rounding of float64."""
        if self.weight is None:
            return 0
        values = torch.linalg.svdvals(self.weight)
        kept = int((values > self.d * torch.finfo(torch.float64).eps * float(values[0])).sum())
        return self.d - kept

    @on_one_thread
    def inverse(self) -> "Affine":
        """The transformation that undoes this one.

        Raises:
            InputError: there is none: the weight is not square, or singular to float64 (directions were
                removed).
        """
        if self.weight is None:
            return Affine(-self.shift)
        if self.d != self.k:
            raise InputError(
                f"expected a square weight to invert, got shape ({self.d}, {self.k}): what was cut off is "
                "lost"
            )
        if lost := self.rank_lost():
            raise InputError(
                f"expected an invertible weight, got one without {lost} of {self.d} directions: what was "
                "removed is lost"
            )
        start = torch.zeros(self.k, dtype=torch.float64) if self.offset is None else self.offset
        return Affine(start, torch.linalg.inv(self.weight), offset=self.shift)

    def inverse_transform(self, y: X) -> X:
        """The rows that `transform` made `y` of.

        Raises:
            InputError: as `inverse` and `transform` do.
        """
        return self.inverse().transform(y)

    @on_one_thread
    def as_linear(self) -> tuple[Tensor, Tensor]:
        """(matrix (D, K), bias (K,)), float64: y = x @ matrix + bias, for a linear layer or an index."""
        matrix = torch.eye(self.d, dtype=torch.float64) if self.weight is None else self.weight
        bias = -self.shift @ matrix
        return matrix, bias if self.offset is None else bias + self.offset

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `shift`, `weight`, `offset` and what it was fitted on to a safetensors file, atomically.

        Raises:
            InputError: the folder does not exist or cannot be written.
        """
        self.state().save(path)

    def state(self) -> State:
        """What is saved of it."""
        tensors = {"shift": self.shift, "weight": self.weight, "offset": self.offset}
        return State("Affine", {name: x for name, x in tensors.items() if x is not None}, self.fitted)

    @classmethod
    def from_state(cls, state: State) -> "Affine":
        """The affine map in the state of an `Affine` or of an affine transformation.

        Raises:
            InputError: it has none, or shapes that do not fit.
        """
        tensors = state.tensors
        if "shift" not in tensors:
            raise state.lies("it has no tensor 'shift'")
        return cls(tensors["shift"], tensors.get("weight"), state.fitted, tensors.get("offset"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Affine":
        """Read what `save` wrote, or the `affine_` of any saved transformation that has one.

        Raises:
            InputError: no such file, not one of these, cut or lying, or a transformation that is not affine.
        """
        state = State.load(path)
        if "shift" not in state.tensors:
            raise InputError(
                f"expected an affine transformation, got {path} with one that is not: read it with "
                "uncone.transforms.load"
            )
        return cls.from_state(state)


def _numbers(value: Any, name: str, rank: int) -> Tensor:
    x = torch.as_tensor(value).detach().to("cpu", torch.float64).contiguous()
    if x.ndim != rank or 0 in x.shape:
        what = "(D,)" if rank == 1 else "(D, K)"
        raise InputError(
            f"expected a {name} of shape {what}, got {tuple(x.shape)}: give one number a feature"
        )
    if not bool(torch.isfinite(x).all()):
        raise InputError(f"expected finite numbers in {name}, got NaN or inf: fit on finite rows")
    return x
