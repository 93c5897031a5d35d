"""The `repr` of records: their fields on one screen, with hidden characters escaped."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, dataclass_transform

from uncone.records.text import shortened

Made = TypeVar("Made")
WIDTH, LINES = 100, 25  # characters and lines at most
_LEAST = 12  # characters: less room shows nothing useful


def brief(record: Any) -> str:
    """The fields that differ from their defaults, each cut to one line."""
    names = [field.name for field in dataclasses.fields(record) if not _is_usual(record, field)]
    parts = [f"{name}={_value(getattr(record, name), WIDTH - len(name) - 6)}" for name in names]
    name = type(record).__name__
    line = f"{name}({', '.join(parts)})"
    if len(line) <= WIDTH:
        return line
    if len(parts) > LINES - 2:
        parts[LINES - 3 :] = [f"… {len(parts) - (LINES - 3)} more fields"]
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), ")"])


@dataclass_transform(frozen_default=True)
def part(cls: type[Made]) -> type[Made]:
    """A frozen dataclass whose `repr` is brief: a part of a record, or a block."""
    made = dataclasses.dataclass(frozen=True)(cls)
    made.__repr__ = brief  # type: ignore[method-assign]
    return made


def folded(parts: Iterable[str], *, ends: tuple[str, str], room: int, total: int) -> str:
    """The `parts` that fit into `room` characters, and the total number if some do not fit."""
    shown, used, rest = list[str](), 0, f"… {total:,} in all"
    for part in parts:
        shown.append(part)
        used += len(part) + 2
        if used > room:
            while shown and used + len(rest) + 2 > room:
                used -= len(shown.pop()) + 2
            shown.append(rest)
            break
    return ends[0] + ", ".join(shown) + ends[1]


def _is_usual(record: Any, field: "dataclasses.Field[Any]") -> bool:
    usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return usual is not dataclasses.MISSING and getattr(record, field.name) == usual


def _value(value: Any, room: int) -> str:
    if room < _LEAST:
        return "…"
    if isinstance(value, str):
        text = shortened(value, room - 2)
        return f'"{text}"' if "'" in text else f"'{text}'"
    if dataclasses.is_dataclass(value):
        inner = brief(value)
        return inner if len(inner) <= room and "\n" not in inner else shortened(f"{type(value).__name__}(…)", room)
    if isinstance(value, Mapping):
        parts = (f"{_value(key, room // 3)}: {_value(item, room // 2)}" for key, item in value.items())
        return folded(parts, ends=("{", "}"), room=room, total=len(value))
    if isinstance(value, list | tuple):
        are_parts = bool(value) and all(map(dataclasses.is_dataclass, value))
        if are_parts and not any(map(_label, value)):
            return f"({len(value):,} {type(value[0]).__name__})"
        parts = (_label(item) if are_parts else _value(item, room // 2) for item in value)
        ends = ("[", "]") if are_parts else ("(", ",)" if len(value) == 1 else ")")
        return folded(parts, ends=ends, room=room, total=len(value))
    try:
        return shortened(repr(value), room)
    except ValueError:  # an integer with more digits than Python prints
        return f"<{type(value).__name__}>"


def _label(part: Any) -> str:
    return shortened(str(getattr(part, "name", "") or getattr(part, "cause", "")))
