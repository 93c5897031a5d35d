"""JSON to records, every value checked against the type of its field."""

import dataclasses
import json
import math
import os
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

from uncone.errors import InputError
from uncone.errors import expect as expect
from uncone.regular import open_regular
from uncone.roles import Path_

LARGEST_RECORD = 256 * 2**20  # bytes; a diagnosis with a picture of all its points takes a few million
_DEEPEST = 20
_LARGEST_INTEGER = 2**63  # beyond this, an integer may not fit a float
_hints = cache(typing.get_type_hints)
T = TypeVar("T")


def read_text(path: Path_, how: str) -> str:
    way = f"give a file written by `{how}`"
    with open_regular(path, how=way) as file:
        size = os.fstat(file.fileno()).st_size
        expect(size <= LARGEST_RECORD, f"a record of at most {LARGEST_RECORD} bytes, got {size} in {path}: {way}")
        content = file.read(size)  # no more, even if the file grows meanwhile
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"expected JSON in UTF-8, got {path} which is not: {way}") from error


def parsed(text: str, *, what: str, how: str) -> Any:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        way = f"write one with `{how}`"
        raise InputError(f"expected a {what} in JSON, got text that does not parse ({error}): {way}") from error


def schema_of(data: Any) -> str | None:
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, str) else None


def build_record(cls: type[T], data: Any, where: str) -> T:
    """The record from parsed JSON; `where` names it in errors."""
    _checked(isinstance(data, dict), data, where, "an object")
    if (schema := getattr(cls, "SCHEMA", None)) is not None:
        _checked(data.get("schema") == schema, data.get("schema"), f"{where}.schema", repr(schema))
        data = {name: value for name, value in data.items() if name != "schema"}
    hints = _hints(cls)  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(hints)):
        raise InputError(f"unknown field {unknown[0]!r} in {where}: written by another version or by hand")
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
    if missing := sorted(required - set(data)):
        raise InputError(f"missing field {missing[0]!r} in {where}: the file was cut or edited")
    return cls(**{key: _build(hints[key], value, f"{where}.{key}") for key, value in data.items()})


def _build(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        missed = _missed(data)
        return _checked(not missed, data, where, missed)
    if dataclasses.is_dataclass(kind):
        return build_record(typing.cast(type, kind), data, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and types.NoneType in arguments:
            return None
        first = next(kind for kind in arguments if kind is not types.NoneType)
        return _build(str if isinstance(data, str) and str in arguments else first, data, where)
    if origin is Literal:
        return _checked(data in arguments, data, where, f"one of {', '.join(map(repr, arguments))}")
    if origin is tuple:
        _checked(isinstance(data, list), data, where, "a list")
        kinds = arguments[:1] * len(data) if arguments[-1] is Ellipsis else arguments
        _checked(len(data) == len(kinds), data, where, f"a list of {len(kinds)}")
        return tuple(_build(of, item, f"{where}[{i}]") for i, (of, item) in enumerate(zip(kinds, data, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        _checked(isinstance(data, dict), data, where, "an object")
        return {key: _build(arguments[1], value, f"{where}.{key}") for key, value in data.items()}
    if kind is float:
        is_number = type(data) in (int, float) and abs(data) <= sys.float_info.max
        return float(_checked(is_number, data, where, "a finite number"))
    if kind is int:
        _checked(type(data) is int, data, where, "an integer")
        _checked(data >= 0, data, where, "a whole number from 0 up")
        return _checked(data < _LARGEST_INTEGER, data, where, "an integer below 2^63")
    return _checked(isinstance(data, kind), data, where, kind.__name__)


def _missed(data: Any, depth: int = 0) -> str:
    """What a value of any kind should have been, or "" if it is valid. 1e999 is read as infinite."""
    if depth == _DEEPEST:
        return f"at most {_DEEPEST} levels"
    if isinstance(data, (dict, list)):
        inner = data.values() if isinstance(data, dict) else data
        return next(filter(None, (_missed(value, depth + 1) for value in inner)), "")
    largest = _LARGEST_INTEGER if isinstance(data, int) else math.inf
    return "" if not isinstance(data, (int, float)) or abs(data) < largest else "finite numbers and integers below 2^63"


def _checked(holds: bool, data: T, where: str, what: str) -> T:
    if not holds:
        raise InputError(f"expected {what} at {where}, got {repr(data)[:60]}: the file was cut or edited")
    return data
