"""JSON to records: every value checked against the annotated type of its field."""

import dataclasses
import json
import math
import os
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from uncone.errors import InputError
from uncone.regular import open_regular

LARGEST_RECORD = 256 * 2**20
"""Bytes. A diagnosis with a picture of all its points takes some millions."""
_DEEPEST = 20
LARGEST_INTEGER = 2**63
"""Beyond, an integer counts nothing and may not fit a float."""

T = TypeVar("T")


def read_text(path: str | os.PathLike[str], how: str) -> str:
    """The text of a file written by the command `how`, or why it cannot be read."""
    with open_regular(path, how=f"give a file written by `{how}`") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_RECORD:
            raise InputError(
                f"expected a record of at most {LARGEST_RECORD} bytes, got {size} in {path}: give a file written by `{how}`"
            )
        content = file.read(size)  # no more, whatever is added to the file meanwhile
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected JSON in UTF-8, got {path} which is not: give a file written by `{how}`"
        ) from error


def from_json(cls: type[T], text: str, *, schema: str, what: str, how: str) -> T:
    """The record of class `cls` in `text`, `what` in words, as the command `how` writes it.

    Raises:
        InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
    """
    data = parsed(text, what=what, how=how)
    found = schema_of(data)
    if found != schema:
        raise InputError(f"expected a {what} of schema {schema!r}, got {found!r}: write it anew with `{how}`")
    return build_record(cls, data, what)


def parsed(text: str, *, what: str, how: str) -> Any:
    """What the JSON in `text` says.

    Raises:
        InputError: it is not strict JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"expected a {what} in JSON, got text that does not parse ({error}): write one with `{how}`"
        ) from error


def schema_of(data: Any) -> str | None:
    """The schema that parsed JSON claims; None where it claims none."""
    found = data.get("schema") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _build(kind: Any, data: Any, where: str) -> Any:
    """Rebuild a value of the annotated type `kind` from parsed JSON, or say which field is wrong."""
    if kind is Any:
        _expect(_depth(data) <= _DEEPEST, data, where, f"at most {_DEEPEST} levels")
        return _expect(_numbers_fit(data), data, where, "finite numbers and integers below 2^63")
    if dataclasses.is_dataclass(kind):
        return build_record(typing.cast(type, kind), data, where)
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
        is_number = (
            isinstance(data, (int, float)) and not isinstance(data, bool) and abs(data) <= sys.float_info.max
        )
        return float(_expect(is_number, data, where, "a finite number"))
    if kind is int:
        _expect(isinstance(data, int) and not isinstance(data, bool), data, where, "an integer")
        _expect(
            data >= 0, data, where, "a whole number from 0 up"
        )  # a record's integers count rows or name one
        return _expect(_numbers_fit(data), data, where, "an integer below 2^63")
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
        inner = [
            list(item.values()) if isinstance(item, dict) else item
            for item in level
            if isinstance(item, (dict, list))
        ]
        level, depth = [value for items in inner for value in items], depth + 1
    return depth


def _numbers_fit(data: Any) -> bool:
    """Whether all integers in `data` are small enough, and floats finite: 1e999 is read as infinite."""
    if isinstance(data, (dict, list)):
        return all(map(_numbers_fit, data.values() if isinstance(data, dict) else data))
    return (
        abs(data) < (LARGEST_INTEGER if isinstance(data, int) else math.inf)
        if isinstance(data, (int, float))
        else True
    )


def build_record(cls: type[T], data: Any, where: str) -> T:
    """The record of class `cls` from parsed JSON; `where` names it in errors."""
    _expect(isinstance(data, dict), data, where, "an object")
    hints = _hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise InputError(
            f"unknown field {unknown[0]!r} in {where}: the file was written by another version or by hand"
        )
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
    missing = sorted(required - set(data))
    if missing:
        raise InputError(f"missing field {missing[0]!r} in {where}: the file was cut or edited")
    return cls(**{key: _build(hints[key], value, f"{where}.{key}") for key, value in data.items()})


def _build_optional(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and types.NoneType in arguments:
        return None
    kinds = [argument for argument in arguments if argument is not types.NoneType]
    return _build(str if isinstance(data, str) and str in kinds else kinds[0], data, where)


def _build_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), data, where, "a list")
    if arguments[-1] is Ellipsis:
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    _expect(len(data) == len(arguments), data, where, f"a list of {len(arguments)}")
    return tuple(
        _build(kind, item, f"{where}[{i}]")
        for i, (kind, item) in enumerate(zip(arguments, data, strict=True))
    )


def _expect(condition: bool, data: T, where: str, what: str) -> T:
    if not condition:
        raise InputError(f"expected {what} at {where}, got {repr(data)[:60]}: the file was cut or edited")
    return data
