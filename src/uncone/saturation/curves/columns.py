from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError, nearest
from uncone.records.text import counted, listing
from uncone.rows import Array
from uncone.saturation.curves.decline import START, Curve
from uncone.saturation.curves.direction import is_lower_better, is_quality
from uncone.saturation.tables.cells import Cells, text_of
from uncone.saturation.tables.tables import Table

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
"""What a column may be for, and its known names."""
Codes = npt.NDArray[Any]  # (n,): whole numbers that are equal where the rows' names are
_OF_FAMILY = ("task", "metric", "suite", "shots")
_MOST_LEFT = 20  # names of metrics that are not judged
_ROWS_A_CURVE = 3
"""A further column separates curves only if each keeps so many rows: otherwise a time makes each row a curve."""


def roles_of(table: Table, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    wanted = dict(wanted or {})
    have = f"in {table.name}, got columns {', '.join(name[:40] for name in list(table.columns)[:30]) or 'none'}"
    for role, name in wanted.items():
        if role not in ROLES:
            advice = nearest(role, ROLES, "choose among these")
            raise InputError(f"expected one of the roles {', '.join(ROLES)}, got {role!r}: {advice}")
        if name not in table.columns:
            advice = nearest(name, table.columns, "name one of these")
            raise InputError(f"expected a column {name!r} for the {role} {have}: {advice}")
    folded = {name.strip().casefold(): name for name in reversed(list(table.columns)) if name not in wanted.values()}
    known = {role: next((folded[one] for one in names if one in folded), "") for role, names in ROLES.items()}
    found = known | wanted
    for role in ("step", "value"):
        if not found[role]:
            how = f"name it (columns={{{role!r}: ...}}, --columns {role}=...)"
            raise InputError(f"expected a column for the {role} {have}: {how}")
    return {role: name for role, name in found.items() if name}


def curves_of(
    table: Table,
    columns: Mapping[str, str] | None = None,
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
    chosen: Sequence[str] = (),
) -> tuple[list[Curve], tuple[str, ...], tuple[str, ...]]:
    """The curves in a table, the columns that separate them, and notes.

    Lower is better for the metrics `lower`, higher for `higher`; for others the source or their name decides. Only
    curves of the metrics `chosen` are kept. Without any, a training log keeps its measures of quality, and a note names
    the other metrics.
    """
    if not len(table):
        raise InputError(f"expected rows in {table.name}, got none: give a table with at least one curve")
    roles = roles_of(table, columns)
    if "metric" not in roles and roles["value"].casefold() not in ROLES["value"]:
        # such as eval_loss
        table = replace(table, columns={**table.columns, "": Cells(repeat(roles["value"], len(table)))})
        roles["metric"] = ""
    _check_metrics(table, roles, [*lower, *higher, *chosen])
    cells = {name: column if isinstance(column, Cells) else Cells(column) for name, column in table.columns.items()}
    extra = [name for name in table.columns if name not in roles.values()]
    settings = [roles[role] for role in ("batch_size", "weight_decay") if role in roles]
    apart, key = _separated(cells, roles, [*settings, *extra])
    numbers = {role: cells[roles[role]].numbers() for role in ("step", "value", "stderr") if role in roles}
    curves, left = list[Curve](), dict[str, None]()
    for rows in _rows_of(key):
        first = {name: text_of(cells[name][rows[0]]) for name in {*roles.values(), *apart}}
        of: dict[str, Any] = {role: first[roles[role]] if role in roles else "" for role in ("model", *_OF_FAMILY)}
        more = [f"{name} {first[name]}" for name in apart if name in extra]
        model = ", ".join(filter(None, [of.pop("model"), *more])) or table.name.rpartition("/")[2]
        own = {name: ", ".join(dict.fromkeys(text_of(cells[name][i]) for i in rows[:1000])) for name in settings}
        unread = {role: numbers[role][2][rows] for role in ("step", "value")}
        wrong = {role: cells[roles[role]][rows[of.argmax()]] for role, of in unread.items() if of.any()}
        metric, task = of["metric"], of["task"]
        names = list(filter(None, (metric, task))) or [roles["value"]]
        called = {*names, "/".join(reversed(names))}
        is_named = not called.isdisjoint(chosen or (*lower, *higher))
        if not is_named and (chosen or (table.logged and not (len(rows) > 1 and is_quality(metric, task)))):
            left["/".join(reversed(names))] = None
            continue
        less = table.lower.get((task, metric))
        if not called.isdisjoint((*lower, *higher)):
            less = called.isdisjoint(higher)
        if less is None:
            less = is_lower_better(metric, task)
        of["logarithm"] = bool(less) and any(one in metric.casefold() for one in ("ppl", "perp"))
        curve = _curve([[part[rows] for part in numbers[role]] for role in numbers], wrong)
        guessed = names[0] if less is None else ""
        curves.append(replace(curve, model=model, **of, lower=bool(less), guessed=guessed, settings=own))
    left_out = _left_out(table, list(left), curves, chosen)
    return curves, tuple(apart), (*table.notes, *left_out)


def _left_out(table: Table, names: Sequence[str], curves: Sequence[Curve], chosen: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown = [name[:40] for name in names[:_MOST_LEFT]]
    listed = ", ".join(shown) + f" and {len(names) - _MOST_LEFT} more" * (len(names) > _MOST_LEFT)
    if not curves:
        how = "name a metric (metric=, --metric)"
        raise InputError(f"expected measures of quality in {table.name}, got {listed}: {how}")
    if chosen:
        return [f"Not judged, because no chosen metric names them: {listed}."]
    return [f"Not judged, because they are not known measures of quality (choose: metric=, --metric): {listed}."]


def _check_metrics(table: Table, roles: Mapping[str, str], named: Sequence[str]) -> None:
    if not named:
        return
    columns = [table.columns[roles[role]] for role in ("metric", "task") if role in roles]
    texts = [list(map(text_of, column)) for column in columns]
    known = set().union(*texts) - {""} or {roles["value"]}
    known |= {"/".join(filter(None, pair[::-1])) for pair in zip(*texts, strict=True)} - {""}
    for name in named:
        if name not in known:
            have = listing([repr(one[:40]) for one in sorted(known)[:20]])
            advice = nearest(name, known, "name one of these")
            raise InputError(f"expected metrics of {table.name}, which has {have}, got {name!r}: {advice}")


def _separated(cells: Mapping[str, Cells], roles: Mapping[str, str], others: Sequence[str]) -> tuple[list[str], Codes]:
    """The columns of model and family, the other columns that leave fewer rows of the same step, and the number of each
    row's curve."""
    steps = cells[roles["step"]].codes()

    def again(key: Codes) -> tuple[int, int]:
        return len(steps) - 1 - int(_joined(key, steps).max()), int(key.max()) + 1  # codes are numbers from 0 on

    key, left = np.zeros(len(steps), np.int64), list(others)
    kept = [roles[role] for role in ("model", *_OF_FAMILY) if role in roles]
    for name in kept:
        key = _joined(key, cells[name].codes())
    now, _ = again(key)
    while now and left:
        tried = [again(_joined(key, cells[name].codes())) for name in left]
        (fewer, curves), best = min(zip(tried, left, strict=True), key=lambda found: found[0])
        if fewer >= now or curves * _ROWS_A_CURVE > len(steps):
            break
        kept.append(best)
        left.remove(best)
        now, key = fewer, _joined(key, cells[best].codes())
    return [name for name in kept if cells[name].codes().any()], key


def _joined(key: Codes, more: Codes) -> Codes:
    """A number for each pair, from 0 on: small enough to be joined again."""
    pairs = key * (int(more.max()) + 1) + more
    return np.unique(pairs, return_inverse=True)[1].astype(np.int64, copy=False)


def _rows_of(key: Codes) -> list[Codes]:
    """The rows of each curve, in the order in which curves begin."""
    firsts = np.unique(key, return_index=True)[1]
    order = np.argsort(np.argsort(np.argsort(firsts))[key], kind="stable")
    return np.split(order, np.cumsum(np.bincount(key)[np.argsort(firsts)])[:-1])


def _curve(read: Sequence[Sequence[Array]], wrong: Mapping[str, Any]) -> Curve:
    """A curve from the numbers of each column, which cells are empty and which are not numbers; `wrong` has the first
    step or value that is not a number."""
    (steps, _, _), (values, empty, unread), *errors = read
    with np.errstate(invalid="ignore"):
        judged = ~(steps < START * steps.max())
    for role, is_wrong in (("step", "step" in wrong), ("value", (unread & judged).any())):
        if is_wrong:
            fault = f"a {role} that is not a number: {str(wrong[role])[:40]!r}"
            return Curve("", "", "", np.empty(0), np.empty(0), fault=fault)
    notes = [f"{counted(int(empty.sum()), 'checkpoint')} without a value"] if empty.any() else []
    order = np.flatnonzero(~empty)[np.argsort(steps[~empty], kind="stable")]
    same = np.zeros(len(order), bool)
    same[1:] = (np.diff(steps[order]) == 0) & (np.diff(values[order]) == 0)
    if same.any():
        notes.append(f"{counted(int(same.sum()), 'row')} given twice")
    order = order[~same]
    error = errors[0][0][order] if errors and np.isfinite(errors[0][0][order]).any() else None
    return Curve("", "", "", steps[order], values[order], error, notes=tuple(notes))
