"""`Affine`, a fitted transformation as one record, and the file of any transformation, in which nothing is trusted."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from uncone import atomic
from uncone.errors import InputError, expect
from uncone.records.parts import Fitted
from uncone.records.rebuild import build_record, parsed
from uncone.roles import Path_
from uncone.rows.safetensors import read_tensors, to_bytes
from uncone.rows.samples import as_floats
from uncone.threads import on_one_thread
from uncone.transforms.transformed import Array, Map, X, apply, library, like
from uncone.version import __version__

T = TypeVar("T")
FORMAT, NORMALIZED = "uncone.repair/1", "uncone.repair/2"
"""The second format also divides each row by its norm. Versions without this step refuse it."""
_COMMAND = "uncone repair SPEC OUT --save F"
_HOW = f"`{_COMMAND}`, or with save() of a transformation"


@dataclass(frozen=True, eq=False, repr=False)
class Affine:
    """y = (x - shift) @ weight + offset for rows x (N, D).

    Arrays, tensors and lists become float64 arrays; InputError where shapes do not fit or numbers are not finite.

    Attributes:
        shift: (D,).
        weight: (D, K), or None for the identity.
        fitted: what it was fitted on, if known.
        offset: (K,), or None for zero. The original All-but-the-Top needs an offset: its weight is not invertible, so
            no shift gives the rows its mean.

    Example:
        >>> double = Affine(np.array([1.0, 0.0]), 2 * np.eye(2))
        >>> double.transform(np.array([[1.0, 3.0]])).tolist()
        [[0.0, 6.0]]
    """

    shift: Any
    weight: Any = None
    fitted: Fitted | None = None
    offset: Any = None

    def __post_init__(self) -> None:
        shift, weight, offset = _numbers(self.shift, "shift", 1), self.weight, self.offset
        if weight is not None:
            weight = _numbers(weight, "weight", 2)
            got = f"got {weight.shape}: give one row per feature"
            expect(len(weight) == len(shift), f"a weight of shape ({len(shift)}, K), {got}")
        if offset is not None:
            offset, k = _numbers(offset, "offset", 1), len(shift) if weight is None else weight.shape[1]
            expect(len(offset) == k, f"an offset of shape ({k},), got {offset.shape}: give one number per column")
            if weight is None:
                shift, offset = shift - offset, None
            elif not offset.any():
                offset = None
        self.__dict__.update(shift=shift, weight=weight, offset=offset)  # frozen for everybody else

    def __repr__(self) -> str:
        parts = [f"shift ({self.d},)", "identity" if self.weight is None else f"weight ({self.d}, {self.k})"]
        parts += [] if self.offset is None else [f"offset ({self.k},)"]
        return f"Affine({', '.join(parts)}, fitted={self.fitted!r})"

    @property
    def d(self) -> int:
        return len(self.shift)

    @property
    def k(self) -> int:
        return self.d if self.weight is None else self.weight.shape[1]

    def transform(self, x: X) -> X:
        """The transformed rows: a tensor or array (..., D) gives one (..., K), `Rows` give lazy ones.

        dtype and device stay; float16 and bfloat16 are computed in float32. InputError: another width, no floats,
        numbers that are not finite, or a result that its dtype cannot hold."""
        return apply(x, self.map())

    def map(self) -> Map:
        casts = dict[Any, tuple[Any, ...]]()

        def move(rows: Any, out: Array | None = None) -> Any:
            kind = rows.dtype, getattr(rows, "device", None)
            if kind not in casts:
                parts = self.shift, self.weight, self.offset
                casts[kind] = tuple(None if part is None else like(part, rows) for part in parts)
            (shift, weight, offset), xp = casts[kind], library(rows)
            if weight is None:
                return xp.subtract(rows, shift, out=out)
            y = xp.matmul(rows - shift, weight, out=out)
            return y if offset is None else xp.add(y, offset, out=out)

        return Map(move, self.d, self.k)

    @on_one_thread
    def compose(self, after: "Affine") -> "Affine":
        """This transformation, then `after` (InputError if of another width), as one that keeps this `fitted`."""
        got = f"got one of {after.d}: fit it on these rows"
        expect(after.d == self.k, f"a transformation of rows of {self.k} features, {got}")
        if self.weight is None:
            return replace(after, shift=self.shift + after.shift, fitted=self.fitted)
        carried = -after.shift if self.offset is None else self.offset - after.shift
        if after.weight is None:
            return replace(self, offset=carried)
        offset = carried @ after.weight + (0 if after.offset is None else after.offset)
        return replace(self, weight=self.weight @ after.weight, offset=offset)

    @on_one_thread
    def rank_lost(self) -> int:
        """How many directions are lost, up to the rounding of float64."""
        if self.weight is None:
            return 0
        values = np.linalg.svd(self.weight, compute_uv=False)
        return self.d - int((values > self.d * np.finfo(np.float64).eps * values[0]).sum())

    @on_one_thread
    def inverse(self) -> "Affine":
        """The transformation that undoes this one; InputError where directions were removed."""
        if self.weight is None:
            return Affine(-self.shift)
        got = f"got shape ({self.d}, {self.k}): the features cut off are lost"
        expect(self.d == self.k, f"a square weight to invert, {got}")
        lost = self.rank_lost()
        got = f"got one without {lost} of {self.d} directions: the removed directions are lost"
        expect(not lost, f"an invertible weight, {got}")
        start = np.zeros(self.k) if self.offset is None else self.offset
        return Affine(start, np.linalg.inv(self.weight), offset=self.shift)

    def inverse_transform(self, y: X) -> X:
        return self.inverse().transform(y)

    @on_one_thread
    def as_linear(self) -> tuple[Array, Array]:
        """Matrix (D, K) and bias (K,), float64, of y = x @ matrix + bias."""
        matrix = np.eye(self.d) if self.weight is None else self.weight
        bias = -self.shift @ matrix
        return matrix, bias if self.offset is None else bias + self.offset

    def tensors(self) -> dict[str, Array]:
        tensors = {"shift": self.shift, "weight": self.weight, "offset": self.offset}
        return {name: x for name, x in tensors.items() if x is not None}

    def save(self, path: Path_) -> None:
        """Write it to a safetensors file, atomically, or InputError."""
        self.state().save(path)

    def state(self) -> "State":
        return State(self.fitted, kind="Affine", tensors=self.tensors())

    @classmethod
    def load(cls, path: Path_) -> "Affine":
        """Read what `save` wrote, or the `affine_` of any saved transformation.

        InputError: no such file, not a saved transformation, a damaged file, or not affine."""
        state = State.load(path)
        got = f"got {path} with another kind: read it with uncone.transforms.load"
        expect("shift" in state.tensors and not state.normalize, f"an affine transformation, {got}")
        return state.affine()


def _numbers(value: Any, name: str, rank: int) -> Array:
    x = np.ascontiguousarray(as_floats(value, name))
    what = "(D,)" if rank == 1 else "(D, K)"
    expect(x.ndim == rank and 0 not in x.shape, f"a {name} of shape {what}, got {x.shape}: give one number per feature")
    expect(bool(np.isfinite(x).all()), f"finite numbers in {name}, got NaN or inf: fit on finite rows")
    return x


@dataclass(frozen=True)
class _Header:
    """The parts of a file's header in JSON. The options still have to be checked."""

    fitted: Fitted | None = None
    options: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class State(_Header):
    kind: str = ""
    tensors: Mapping[str, Array] = field(default_factory=dict)
    path: Path_ = ""
    normalize: bool = False

    def save(self, path: Path_) -> None:
        header = {"format": NORMALIZED if self.normalize else FORMAT, "kind": self.kind, "uncone": __version__}
        header |= {} if self.fitted is None else {"fitted": json.dumps(asdict(self.fitted))}
        if self.options is not None:
            header |= {"options": json.dumps(self.options), "warnings": json.dumps(self.warnings)}
        atomic.write_bytes(path, to_bytes(self.tensors, header))

    @classmethod
    def load(cls, path: Path_) -> "State":
        how = f"write it with {_HOW}"
        tensors, header = read_tensors(path, format=(FORMAT, NORMALIZED), what="a transformation", how=how)
        state = cls(kind=header.get("kind", ""), tensors=tensors, path=path, normalize=header["format"] == NORMALIZED)
        for name, tensor in tensors.items():
            holds = tensor.dtype == np.float64 and 0 not in tensor.shape and bool(np.isfinite(tensor).all())
            state.expect(holds, f"tensor {name[:60]!r} does not hold finite float64 numbers")
        keys = [key for key in ("fitted", "options", "warnings") if key in header]
        said = {key: parsed(header[key], what=f"record of {key}", how=_COMMAND) for key in keys}
        return replace(state, **vars(state.checked(_Header, said, "header")))

    def affine(self) -> Affine:
        x = self.tensors
        self.expect("shift" in x, "it has no tensor 'shift'")
        return Affine(x["shift"], x.get("weight"), self.fitted, x.get("offset"))

    def checked(self, cls: type[T], data: Any, where: str) -> T:
        try:
            return build_record(cls, data, where)
        except InputError as error:
            raise self.lies(str(error)) from error

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise self.lies(otherwise)

    def lies(self, what: str) -> InputError:
        got = f"got a damaged file: {what}; write it again with {_HOW}"
        return InputError(f"expected a transformation in {self.path}, {got}")
