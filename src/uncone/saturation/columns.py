"""From a table to curves: which column is the step, which the value, which tell curves apart; where less is better."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uncone.errors import InputError, nearest
from uncone.records.text import counted, cut_label, listing, plural
from uncone.saturation.curves import Curve
from uncone.saturation.tables import Table

ROLES: dict[str, tuple[str, ...]] = {
    "step": ("step", "steps", "global_step", "iteration", "iter", "checkpoint", "tokens"),
    "value": ("value", "score"),
    "stderr": ("stderr", "standard_error", "std_err", "se"),
    "model": ("model", "model_name", "run"),
    "task": ("task", "dataset", "benchmark"),
    "metric": ("metric", "measure"),
    "suite": ("suite",),
    "shots": ("shots", "n_shot", "num_fewshot", "few_shot"),
    "batch_size": ("batch_size", "train_batch_size", "global_batch_size"),
    "weight_decay": ("weight_decay", "wd"),
}
"""What a column may be for, and the names that are known for it."""
_OF_FAMILY = ("task", "metric", "suite", "shots")
_SETTINGS = ("batch_size", "weight_decay")
_LOWER = re.compile(
    r"(?:^|[\W_])(?:loss|nll|ppl|perplexity|bpb|bpc|bits|cross_entropy|error|err|wer|cer|ter|mse|rmse|mae|brier|ece|stereotype|"
    r"likelihood_diff(?:erence)?)(?:$|[\W_])"
)
_PERPLEXITY = re.compile(r"ppl|perplexity")
_ROWS_A_CURVE = 3
"""A further column tells curves apart only where they keep so many rows each: a time of day would make each row a curve."""


def roles_of(table: Table, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each role: the `wanted` one, else the first of its known names that is there.

    Raises:
        InputError: no column for the step or the value, or a role or column that does not exist; the columns are listed.
    """
    wanted = dict(wanted or {})
    have = ", ".join(name[:40] for name in list(table.columns)[:30]) or "none"
    for role, name in wanted.items():
        if role not in ROLES:
            raise InputError(
                f"expected roles out of {', '.join(ROLES)}, got {role!r}: {nearest(role, ROLES, 'choose among these')}"
            )
        if name not in table.columns:
            advice = nearest(name, table.columns, "name one of these")
            raise InputError(
                f"expected a column {name!r} for the {role} in {table.name}, got columns {have}: {advice}"
            )
    folded = {
        name.strip().casefold(): name for name in reversed(list(table.columns)) if name not in wanted.values()
    }
    found = {
        role: next((folded[name] for name in names if name in folded), "") for role, names in ROLES.items()
    } | wanted
    for role in ("step", "value"):
        if not found[role]:
            raise InputError(
                f"expected a column for the {role} in {table.name}, got columns {have}: name it (columns={{{role!r}: ...}}, --columns {role}=...)"
            )
    return {role: name for role, name in found.items() if name}


def is_lower_better(metric: str, task: str = "") -> bool:
    """Whether less is better, by the metric's name (or the task's, where the metric has none)."""
    return bool(_LOWER.search((metric or task).casefold()))


def curves_of(
    table: Table, columns: Mapping[str, str] | None = None, lower: Sequence[str] | None = None, higher: Sequence[str] = ()
) -> tuple[list[Curve], tuple[str, ...], tuple[str, ...]]:  # fmt: skip
    """The curves in a table, the columns that tell them apart, and notes.

    Args:
        columns: the column of a role, where it has another name than those of `ROLES`.
        lower, higher: metrics of which less, or more, is better; others are judged by the source or by their name.
    """
    if not len(table):
        raise InputError(f"expected rows in {table.name}, got none: give a table with at least one curve")
    roles = roles_of(table, columns)
    if "metric" not in roles and roles["value"].casefold() not in ROLES["value"]:
        # a column of values called eval_loss says what they are
        named = replace(table, columns={**table.columns, "": [roles["value"]] * len(table)})
        table, roles = named, roles | {"metric": ""}
    _check_metrics(table, roles, [*(lower or ()), *higher])
    cells = {role: table.columns[name] for role, name in roles.items()}
    extra = [name for name in table.columns if name not in roles.values()]
    settings = [roles[role] for role in _SETTINGS if role in roles]
    apart = _told_apart(table, roles, [*settings, *extra])
    grouped = dict[tuple[str, ...], list[int]]()
    for i, key in enumerate(_keys(table, apart)):
        grouped.setdefault(key, []).append(i)
    extras = [name for name in apart if name in extra]
    curves = []
    for rows in grouped.values():
        texts = {role: _text(cells[role][rows[0]]) for role in ("model", *_OF_FAMILY) if role in cells}
        more = [f"{name} {_text(table.columns[name][rows[0]])}" for name in extras]
        model = ", ".join(filter(None, [texts.pop("model", ""), *more])) or table.name.rpartition("/")[2]
        beside = {
            name: ", ".join(dict.fromkeys(_text(table.columns[name][i]) for i in rows[:1000]))
            for name in settings
        }
        curves.append(_curve(model, texts, beside, [[cells[role][i] for i in rows] if role in cells else [] for role in ("step", "value", "stderr")],
                             _lower(texts, table.lower, lower or (), higher)))  # fmt: skip
    return curves, tuple(apart), (*table.notes, *_notes(curves))


def _check_metrics(table: Table, roles: Mapping[str, str], named: Sequence[str]) -> None:
    known = {
        _text(cell) for role in ("metric", "task") if role in roles for cell in table.columns[roles[role]]
    }
    for name in named:
        if name not in known:
            have = listing([repr(one[:40]) for one in sorted(known)[:20]] or ["none"])
            raise InputError(
                f"expected metrics of {table.name}, which has {have}, got {name!r}: {nearest(name, known, 'name one of these')}"
            )


def _lower(
    texts: Mapping[str, str],
    told: Mapping[tuple[str, str], bool],
    lower: Iterable[str],
    higher: Iterable[str],
) -> bool:
    task, metric = texts.get("task", ""), texts.get("metric", "")
    if {task, metric} & {*higher}:
        return False
    if {task, metric} & {*lower}:
        return True
    return told.get((task, metric), is_lower_better(metric, task))


def _keys(table: Table, names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    if not names:
        return [()] * len(table)
    return zip(*(list(map(_text, table.columns[name])) for name in names), strict=True)


def _told_apart(table: Table, roles: Mapping[str, str], others: Sequence[str]) -> list[str]:
    """The columns of model and family, and of the others those that leave fewer rows of the same step, the best first."""
    kept = [roles[role] for role in ("model", *_OF_FAMILY) if role in roles]
    left, steps = list(others), list(map(_text, table.columns[roles["step"]]))

    def again(names: Sequence[str]) -> tuple[int, int]:
        keys = list(_keys(table, names))
        return len(steps) - len(set(zip(keys, steps, strict=True))), len(set(keys))

    now, curves = again(kept)
    while now and left:
        (fewer, curves), best = min(
            ((again([*kept, name]), name) for name in left),
            key=lambda found: (found[0], left.index(found[1])),
        )
        if fewer >= now or curves * _ROWS_A_CURVE > len(steps):
            break
        kept.append(best)
        left.remove(best)
        now = fewer
    return [name for name in kept if len(set(map(_text, table.columns[name]))) > 1]


def _text(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return cut_label(str(cell).strip()) or ""


def number_of(cell: Any) -> float | None:
    """None where the cell holds no number; NaN where it is empty."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _curve(
    model: str,
    texts: Mapping[str, str],
    settings: Mapping[str, str],
    cells: Sequence[Sequence[Any]],
    lower: bool,
) -> Curve:
    """The curve of its cells of step, value and standard error; what cannot be read is its fault."""
    named: dict[str, Any] = {
        "suite": texts.get("suite", ""),
        "shots": texts.get("shots", ""),
        "settings": settings,
        "lower": lower,
    }
    task, metric = texts.get("task", ""), texts.get("metric", "")
    named["logarithm"] = lower and bool(_PERPLEXITY.search(metric.casefold()))
    read = [list(map(number_of, column)) for column in cells]
    for what, column, numbers in zip(("step", "value"), cells, read, strict=False):
        wrong = next((cell for cell, number in zip(column, numbers, strict=True) if number is None), None)
        if wrong is not None:
            return Curve(
                model,
                task,
                metric,
                np.empty(0),
                np.empty(0),
                **named,
                fault=f"a {what} that is no number: {str(wrong)[:40]!r}",
            )
    steps, values = np.array(read[0], float), np.array(read[1], float)
    errors = np.array([math.nan if one is None else one for one in read[2]], float) if read[2] else None
    empty = np.array([cell is None or (isinstance(cell, str) and not cell.strip()) for cell in cells[1]])
    notes = [f"{counted(int(empty.sum()), 'checkpoint')} without a value"] if empty.any() else []
    order = np.flatnonzero(~empty)[np.argsort(steps[~empty], kind="stable")]
    same = np.r_[False, (np.diff(steps[order]) == 0) & (np.diff(values[order]) == 0)]
    if same.any():
        notes.append(f"{counted(int(same.sum()), 'row')} given twice")
    order = order[~same]
    errors = None if errors is None else errors[order]
    if errors is not None and not np.isfinite(errors).any():
        errors = None
    return Curve(model, task, metric, steps[order], values[order], errors, **named, notes=tuple(notes))


def _notes(curves: Sequence[Curve]) -> list[str]:
    """What is missing, over all curves."""
    without = sum(curve.errors is None and not curve.fault for curve in curves)
    if not without:
        return []
    whose = (
        "No curve has"
        if without == len(curves)
        else f"{counted(without, 'curve')} {plural(without, 'has', 'have')} no"
    )
    return [
        f"{whose} standard errors: the jitter between checkpoints alone is their noise, which finds less."
    ]
