"""The results: small frozen records, to and from versioned JSON. Standard library only, so reports need no tensors."""

import array
import base64
import dataclasses
import itertools
import json
import os
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from uncone import atomic
from uncone.errors import InputError, UndefinedMeasure

SCHEMA = "uncone.diagnosis/1"
_LARGEST_SCALE = 1e290
_DEEPEST = 20

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """One number with its meaning.

    `value` is None exactly when the measure is undefined here, and `reason` says why. `range` is (lowest, highest),
    None where unbounded. `reference` is what an isotropic cloud of the same number of rows and columns gives.
    `centered` says whether the mean row was subtracted (None: the question does not arise).
    """

    name: str
    value: float | None
    reason: str = ""
    range: tuple[float | None, float | None] = (None, None)
    better: Literal["higher", "lower", "neither"] = "neither"
    reference: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    d: int = 0
    centered: bool | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    definition: str = ""

    def __float__(self) -> float:
        if self.value is None:
            raise UndefinedMeasure(f"{self.name} is undefined: {self.reason}")
        return self.value


@dataclass(frozen=True)
class Finding:
    """A cause in the user's words, the evidence for it, and what to do about it."""

    cause: str
    level: Literal["healthy", "note", "warning", "severe"]
    summary: str
    evidence: tuple[str, ...] = ()
    repair: str = ""


@dataclass(frozen=True)
class Group:
    """Readings of one group of rows: a bin of ids, or the reserved rows. Undefined readings are None."""

    name: str
    start: int
    stop: int
    n: int
    zero_rows: int
    norm_mean: float | None
    norm_std: float | None
    mean_cosine: float | None
    cosine_to_reserved: float | None
    reserved_rows: int = 0


@dataclass(frozen=True)
class Groups:
    """Rows cut into bins of ids, and the reserved rows that each bin is compared to."""

    bin_size: int
    reserved: str
    reserved_group: Group | None
    bins: tuple[Group, ...]
    reserved_by_name: bool = True
    """Whether the tokenizer names the reserved rows; else they are the last ids, which stand in for rare tokens."""

    def __post_init__(self) -> None:
        for group in self.bins:
            if not 0 <= group.start < group.stop:
                raise InputError(f"expected bins from a start to a later stop, got {group.start} to {group.stop}")


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, largest first, of the second moment (raw), of the covariance (centred), and of an isotropic cloud
    with the covariance's trace and the same number of rows and columns (Marchenko-Pastur quantiles)."""

    raw: tuple[float, ...]
    centered: tuple[float, ...]
    isotropic: tuple[float, ...]


@dataclass(frozen=True)
class Norms:
    """The distribution of the rows' Euclidean norms: `counts[i]` rows lie in [edges[i], edges[i + 1])."""

    smallest: float
    mean: float
    largest: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        expected = len(self.counts) + 1 if self.counts else 0
        if len(self.edges) != expected or any(b < a for a, b in itertools.pairwise(self.edges)):
            raise InputError(f"expected {expected} rising edges for {len(self.counts)} counts of norms, got {len(self.edges)}")


@dataclass(frozen=True)
class Picture:
    """Where the rows lie along the first three singular directions, raw and centred.

    `raw` and `centered` are base64 of little-endian int16 of shape (len(ids), 3), row-major; multiply by `raw_scale`
    or `centered_scale` to get coordinates. `group_names[groups[i]]` is the group of row `ids[i]`. `labels[i]` is its
    token, None where there is none. `total` counts the rows there are, of which `ids` is a sample when smaller.
    """

    total: int
    ids: tuple[int, ...]
    labels: tuple[str | None, ...]
    groups: tuple[int, ...]
    group_names: tuple[str, ...]
    raw: str
    raw_scale: float
    centered: str
    centered_scale: float

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(self.labels) != count or len(self.groups) != count:
            raise InputError(
                f"expected {count} labels and groups in the picture, got {len(self.labels)} and {len(self.groups)}"
            )
        if any(not 0 <= group < len(self.group_names) for group in self.groups):
            raise InputError(f"expected groups below {len(self.group_names)} in the picture, got {max(self.groups)}")
        if not (0 < self.raw_scale < _LARGEST_SCALE and 0 < self.centered_scale < _LARGEST_SCALE):
            raise InputError(
                f"expected scales of the picture above 0 and below {_LARGEST_SCALE:g}, got {self.raw_scale}, {self.centered_scale}"
            )
        for name in ("raw", "centered"):
            if len(_decode(getattr(self, name), name)) != 6 * count:
                raise InputError(
                    f"expected {count} rows of three int16 in the picture's {name!r} coordinates, got another length"
                )

    def coordinates(self, *, centered: bool) -> list[tuple[float, float, float]]:
        """The coordinates as floats, one (x, y, z) per row of `ids`."""
        values = array.array("h", _decode(self.centered if centered else self.raw, "coordinates"))
        if sys.byteorder == "big":
            values.byteswap()
        scale = self.centered_scale if centered else self.raw_scale
        flat = [value * scale for value in values]
        return list(zip(flat[0::3], flat[1::3], flat[2::3], strict=True))


@dataclass(frozen=True)
class Subject:
    """One matrix of a model (`input`, `head`) or a plain collection (`rows`), and all that was read from it."""

    name: str
    source: str
    n: int
    d: int
    dtype: str
    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...]
    groups: Groups | None
    spectrum: Spectrum | None
    norms: Norms | None
    picture: Picture | None
    without_effect: tuple[Measurement, ...] = ()
    """Raw readings of a head that no probability depends on (a vector added to all rows changes none)."""
    left_out: int = 0
    """Rows that are not finite and were left out on request."""
    notes: tuple[str, ...] = ()

    def measurement(self, name: str) -> Measurement:
        """The measurement called `name`; KeyError where it was not taken."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found: a verdict in one sentence, and the subjects with the evidence."""

    name: str
    verdict: str
    subjects: tuple[Subject, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = SCHEMA

    def to_json(self) -> str:
        """This record as JSON text (strict: no NaN, no Infinity)."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to `path`, atomically."""
        atomic.write_text(path, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "Diagnosis":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"expected a diagnosis in JSON, got text that does not parse ({error}): write one with `uncone diagnose SPEC --json F`"
            ) from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise InputError(
                f"expected a diagnosis of schema {SCHEMA!r}, got {schema!r}: write it anew with `uncone diagnose SPEC --json F`"
            )
        return _build_record(cls, data, "diagnosis")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Diagnosis":
        """Read a diagnosis from the file that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}: give a file written by `uncone diagnose SPEC --json F`"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"expected JSON in UTF-8, got {path} which is not: give a file written by `uncone diagnose SPEC --json F`"
            ) from error
        return cls.from_json(text)


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(
            f"expected base64 in the picture's {name!r}, got text that does not decode: the file was cut or edited"
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _build(kind: Any, data: Any, where: str) -> Any:
    """Rebuild a value of the annotated type `kind` from parsed JSON, or say which field is wrong."""
    if kind is Any:
        return _expect(_depth(data) <= _DEEPEST, data, where, f"at most {_DEEPEST} levels")
    if dataclasses.is_dataclass(kind):
        return _build_record(typing.cast(type, kind), data, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _build_optional(arguments, data, where)
    if origin is Literal:
        return _expect(data in arguments, data, where, f"one of {', '.join(map(repr, arguments))}")
    if origin is tuple:
        return _build_tuple(arguments, data, where)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), data, where, "an object")
        return {key: _build(arguments[1], value, f"{where}.{key}") for key, value in data.items()}
    if kind is float:
        is_number = isinstance(data, (int, float)) and not isinstance(data, bool) and abs(data) <= sys.float_info.max
        return float(_expect(is_number, data, where, "a finite number"))
    if kind is int:
        return _expect(isinstance(data, int) and not isinstance(data, bool), data, where, "an integer")
    return _expect(isinstance(data, kind), data, where, kind.__name__)


_known: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _known:
        _known[cls] = typing.get_type_hints(cls)
    return _known[cls]


def _depth(data: Any) -> int:
    """Levels of nesting, counted no further than one beyond the deepest allowed."""
    level, depth = [data], 0
    while level and depth <= _DEEPEST:
        inner = [list(item.values()) if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level, depth = [value for items in inner for value in items], depth + 1
    return depth


def _build_record(cls: type[T], data: Any, where: str) -> T:
    _expect(isinstance(data, dict), data, where, "an object")
    hints = _hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r} in {where}: the file was written by another version or by hand")
    required = {f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING}  # type: ignore[arg-type]
    missing = sorted(required - set(data))
    if missing:
        raise InputError(f"missing field {missing[0]!r} in {where}: the file was cut or edited")
    return cls(**{key: _build(hints[key], value, f"{where}.{key}") for key, value in data.items()})


def _build_optional(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and types.NoneType in arguments:
        return None
    (kind,) = [argument for argument in arguments if argument is not types.NoneType]
    return _build(kind, data, where)


def _build_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), data, where, "a list")
    if arguments[-1] is Ellipsis:
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    _expect(len(data) == len(arguments), data, where, f"a list of {len(arguments)}")
    return tuple(_build(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(arguments, data, strict=True)))


def _expect(condition: bool, data: T, where: str, what: str) -> T:
    if not condition:
        raise InputError(f"expected {what} at {where}, got {repr(data)[:60]}: the file was cut or edited")
    return data
