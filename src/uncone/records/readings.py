"""Measurements in one table by question, with their warnings and the meaning of their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncone.records.blocks import Blocks, Cell, Folded, Row, Table, Text
from uncone.records.layout import section, shown
from uncone.records.measures import by_question
from uncone.records.parts import Measurement
from uncone.records.text import better, count, listing, number, optional, shortened, span, title

_MOST_ITEMS, _LONGEST = 12, 200


def is_centered(measurement: Measurement, fixed: bool) -> bool | None:
    return True if fixed and measurement.centered is not None else measurement.centered


def readings_blocks(
    heading: str, why: str, measurements: Sequence[Measurement], *, fixed: bool = False, of: str = ""
) -> Blocks:
    if not measurements:
        return ()
    said, meanings, details = list[Text](), list[Row](), list[tuple[str, ...]]()
    warned = dict[str, list[str]]()
    for m in measurements:
        name, limits = title(m.name), f"{span(m.range)}, {better(m.better)}"
        if m.value is None:
            said.append(Text(f"{name} is undefined: {m.reason}", "caution"))
        for warning in m.warnings:
            warned.setdefault(warning, []).append(name)
        meanings.append((name, Cell(m.name, tone="code"), m.definition, limits, m.reads_badly))
        details += [(name, title(str(detail)), _plain(value)) for detail, value in m.details.items()]
    said += [Text(f"{listing(names)}: {warning}", "caution") for warning, names in warned.items()]
    grouped = [(of, measurements)] if of else by_question(measurements)
    rows = tuple(_cells(m, fixed) for _, group in grouped for m in group)
    runs = tuple((question, len(group)) for question, group in grouped)
    meant = Table(("measure", "name in files", "definition", "range", "reads badly when"), tuple(meanings))
    folded = shown(meant, Table(("measure", "detail", "value"), tuple(details)))
    columns = ("measure", "value", "isotropic", "better", "rows")
    table = Table(columns, rows, ("value", "isotropic", "rows"), groups=runs, grouped_by="question")
    more = Folded("What these measures are, and their details", folded)
    return section(heading, Text(why, "lead"), table, said, more)


def _cells(m: Measurement, fixed: bool) -> Row:
    name, used = title(m.name), {True: "centred", False: "raw", None: ""}[is_centered(m, fixed)]
    value = "undefined" if m.value is None else number(m.value, limits=m.range)
    ends = [[number(end, limits=m.range, digits=digits) for end in m.interval or ()] for digits in range(3, 7)]
    interval = " to ".join(next((two for two in ends if len({*two}) == 2), ends[0]))  # enough digits to differ
    name = name if name.endswith(used) else f"{name}, {used}"
    direction = "" if m.better == "neither" else m.better
    return name, Cell(value, interval, "strong"), optional(m.reference, m.range), direction, count(m.n)


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping):
        return _listed([f"{key}: {_plain(item)}" for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _listed([_plain(item) for item in value])
    return shortened(str(value), _LONGEST)


def _listed(items: Sequence[str]) -> str:
    more = len(items) - _MOST_ITEMS
    return ", ".join(items[:_MOST_ITEMS]) + (f", … ({more} more)" if more > 0 else "")
