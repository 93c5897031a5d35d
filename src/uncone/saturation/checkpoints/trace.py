import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from uncone.atomic import write_text
from uncone.errors import InputError, UnconeError, without_package
from uncone.model.open import Opened, open_spec, open_subjects
from uncone.moments import Moments
from uncone.records.rebuild import build_record
from uncone.records.text import counted
from uncone.roles import Path_, Progress
from uncone.saturation.checkpoints.record import Checkpoint
from uncone.saturation.checkpoints.spectra import of_head, of_rows, of_states
from uncone.saturation.tables.cells import number_of
from uncone.saturation.tables.harness import read_json
from uncone.saturation.tables.sources import open_table
from uncone.saturation.tables.trainer_state import NAME
from uncone.sealed import sealed_line, sealed_records

Losses = Path_ | Mapping[float, float] | Iterable[tuple[float, float]]
MOST_TOKENS = 16_384  # of the text on which each checkpoint runs
_FORM = "uncone.checkpoint/2"  # part of each key: a checkpoint that was read in another way is read again
_STEP = re.compile(r"(?:step|checkpoint|iter|iteration)[-_=]?(\d+)|(\d+)$", re.IGNORECASE)
_FAR = 3.0  # a gap is this many times as wide as its neighbours
_NAME_STEPS = "name the steps (steps=, --steps)"


class Place(NamedTuple):
    path: Path
    step: int


def places_of(directories: Sequence[Path_], steps: Sequence[int] | None = None) -> list[Place]:
    """The checkpoints by step. One directory means its folders that name a step, unless it is a model with at most one
    such folder."""
    paths = [Path(directory) for directory in directories]
    if len(paths) == 1 and paths[0].is_dir():
        inner = sorted(path for path in paths[0].iterdir() if path.is_dir() and _STEP.search(path.name))
        is_model = (paths[0] / "config.json").exists()
        if not (inner or is_model):
            how = "such as step1000: give their directories"
            raise InputError(f"expected checkpoints in {paths[0]}, got no folder that names a step, {how}")
        paths = paths if is_model and len(inner) < 2 else inner
    if not paths:
        raise InputError("expected directories of checkpoints, got none: give one for each step")
    if steps is not None and len(steps) != len(paths):
        raise InputError(f"expected a step for each of {len(paths)} checkpoints, got {len(steps)}: give as many")
    for path in paths:
        if not path.exists():
            raise InputError(f"no checkpoint {path}: give directories that exist")
    numbers = map(_step_of, paths) if steps is None else map(int, steps)
    found = sorted(map(Place, paths, numbers), key=lambda place: place.step)
    for first, second in pairwise(found):
        if first.step == second.step:
            came = f"got {first.path} and {second.path} at step {first.step}: leave one out, or {_NAME_STEPS}"
            raise InputError(f"expected one checkpoint per step, {came}")
    return found


def left_out(directories: Sequence[Path_], places: Sequence[Place]) -> list[str]:
    """A note on models in the only directory given whose names have no step."""
    root, read = Path(directories[0]), {place.path for place in places}
    if len(directories) > 1 or root in read:
        return []
    others = (path for path in (root, *sorted(root.iterdir())) if path not in read and (path / "config.json").is_file())
    names = ", ".join(path.name[:40] for path in others)
    return [f"Not read, because the name has no step: {names}."] if names else []


def _step_of(path: Path) -> int:
    named = list(_STEP.finditer(path.resolve().name))
    if named:
        return int(named[-1][1] or named[-1][2])
    state = read_json(path / NAME) if (path / NAME).is_file() else {}
    step = state.get("global_step") if isinstance(state, dict) else None
    if type(step) is int and step >= 0:
        return step
    what = f"a step in the name of {path}, such as step1000, or a global_step in its {NAME}"
    raise InputError(f"expected {what}, got neither: {_NAME_STEPS}")


def losses_of(losses: Losses | None, places: Sequence[Place]) -> tuple[list[tuple[float, float]], list[str]]:
    """(step, loss) by step, and notes. By default from the last trainer_state.json."""
    notes, pairs = list[str](), list[tuple[float, float]]()
    if losses is None:
        states = [place.path / NAME for place in reversed(places) if (place.path / NAME).is_file()]
        try:
            pairs = _read_losses(states[0]) if states else []
        except InputError as error:  # the caller did not request it
            notes.append(f"No losses were read from {states[0].parent.name}/{NAME}: {error}")
    elif isinstance(losses, str | os.PathLike):
        pairs = _read_losses(losses)
    else:
        given = losses.items() if isinstance(losses, Mapping) else losses
        pairs = [(float(step), float(loss)) for step, loss in given]
    finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
    kept = dict(finite)
    if unusable := len(pairs) - len(finite):
        notes.append(f"{unusable} of {len(pairs)} losses are not finite and were left out.")
    if twice := len(finite) - len(kept):
        notes.append(f"{twice} of {len(pairs)} losses repeat a step: the last loss of a step counts.")
    return sorted(kept.items()), notes


def _read_losses(path: Path_) -> list[tuple[float, float]]:
    """The losses of a table with the columns step and loss, or of a trainer's evaluations, else of its training."""
    table = open_table(Path(path))
    columns = {name.strip().casefold(): cells for name, cells in table.columns.items()}
    names = ("task", "metric", "step", "value")
    rows = list(zip(*(columns[name] for name in names), strict=True)) if {*names} <= {*columns} else []
    of_eval, of_train = ([row[2:] for row in rows if row[:2] == (kind, "loss")] for kind in ("eval", "train"))
    pairs = of_eval or of_train
    if not pairs:
        if missing := [name for name in ("step", "loss") if name not in columns]:
            have = f"got {', '.join(table.columns)[:200]}, without {missing[0]}: rename them, or give a {NAME}"
            raise InputError(f"expected the columns step and loss in {path}, {have}")
        pairs = list(zip(columns["step"], columns["loss"], strict=True))
    read = list[tuple[float, float]]()
    for row, (cell, loss) in enumerate(pairs, 1):
        step, value = number_of(cell), number_of(loss)
        if step is None:
            raise InputError(f"expected a step in row {row} of {path}, got {str(cell)[:60]!r}: correct that row")
        read.append((step, math.nan if value is None else value))
    return read


def read_checkpoints(
    places: Sequence[Place], *, text: Path_ | None = None, out: Path_ | None = None, progress: Progress | None = None
) -> list[Checkpoint]:
    """`out` keeps a line of JSON per checkpoint; a checkpoint whose files are unchanged is taken from it. If one cannot
    be read, `failed` holds the reason, and the next call tries it again."""
    notify, kept = progress or (lambda *_: None), dict[str, Checkpoint]()
    if out is not None and os.path.lexists(out):
        how = "name a new file, and the checkpoints are read again"
        for entry in sealed_records(out, _FORM, what="a checkpoint", how=how):
            kept[entry["key"]] = build_record(Checkpoint, entry["checkpoint"], "checkpoint")
    lines, read = dict[str, str](), list[Checkpoint]()
    for done, place in enumerate(places):
        notify("reading checkpoints", done, len(places))
        key = _key(place, text)
        checkpoint = kept.get(key)
        if checkpoint is None or checkpoint.failed:
            checkpoint = read_checkpoint(place, text)
        read.append(checkpoint)
        lines[key] = _line(key, checkpoint)
        if out is not None and kept.get(key) != checkpoint:  # other lines of the file are kept
            others = (_line(k, one) for k, one in kept.items() if k not in lines)
            write_text(out, "".join(f"{line}\n" for line in (*lines.values(), *others)))
    notify("reading checkpoints", len(places), len(places))
    return read


def _line(key: str, checkpoint: Checkpoint) -> str:
    return sealed_line(_FORM, {"key": key, "checkpoint": asdict(checkpoint)})


def check_any_was_read(checkpoints: Sequence[Checkpoint]) -> None:
    reasons = list(dict.fromkeys(one.failed for one in checkpoints))
    if "" in reasons:
        return
    others = f" (and {counted(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    first = f"{checkpoints[0].name} at step {checkpoints[0].step:,}: {reasons[0]}{others}"
    raise InputError(f"expected a checkpoint that can be read, got {len(checkpoints)} that cannot: {first}")


def _key(place: Place, text: Path_ | None) -> str:
    """sha256 of what the numbers depend on: the step, and the names, sizes and times of the files and the text."""
    digest = hashlib.sha256(f"{_FORM}\0{place.step}\0{place.path.name}\0{text is not None}".encode())
    files = sorted(place.path.rglob("*")) if place.path.is_dir() else [place.path]
    for file in (*files, *([Path(text)] if text is not None else ())):
        if file.is_file():
            known = file.stat()
            name = file.relative_to(place.path) if file in files else file.name
            digest.update(f"{name}\0{known.st_size}\0{known.st_mtime_ns}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_checkpoint(place: Place, text: Path_ | None = None) -> Checkpoint:
    opened = open_spec(place.path)
    empty = Checkpoint(opened.name, place.step)
    try:
        if not opened.is_model:
            raise InputError(f"expected the directory of a model, got {place.path.name}: give directories")
        subjects = open_subjects(opened)
        rows = dict(subjects.rows)
        head, table = rows.get("head"), rows.get("input")
        if head is None:
            of_table = {} if table is None else of_rows(Moments.of(table), "table")
            return replace(empty, values=of_table, notes=(f"It has no head. {' '.join(subjects.notes)}".strip(),))
        m, logits = Moments.of(head), tuple[float, ...]()
        values, raw, centered = of_head(m)
        if table is not None and table.name != head.name:
            values |= of_rows(Moments.of(table), "table")
        if text is not None:
            more, logits = of_states(_states(opened, text), m)
            values |= more
    except UnconeError as error:
        return replace(empty, failed=str(error))
    return Checkpoint(opened.name, place.step, values, raw, centered, logits, tuple(head.shape))


def _states(model: Opened, text: Path_) -> Any:
    try:
        from uncone.model.last_states import states_of
    except ModuleNotFoundError as error:
        raise without_package(error, "running a checkpoint on a text") or error from error
    return states_of(model, text, most=MOST_TOKENS)


def notes_on(checkpoints: Sequence[Checkpoint]) -> list[str]:
    notes, read = [], [one for one in checkpoints if not one.failed]
    if len(read) < len(checkpoints):
        notes.append(f"{len(checkpoints) - len(read)} of {len(checkpoints)} checkpoints could not be read.")
    changed = [next(of) for _, of in groupby((one for one in read if one.shape), lambda one: one.shape)]
    if len(changed) > 1:
        shapes = ", ".join("{:,} x {:,} from step {:,}".format(*one.shape, one.step) for one in changed)
        notes.append(f"The head changes shape: {shapes}. So entropies are shares of ln d, and RankMe is a share of d.")
    notes += dict.fromkeys(note for one in read for note in one.notes)
    steps = [one.step for one in read]
    for a, b, c, d in zip(steps, steps[1:], steps[2:], steps[3:], strict=False):
        if c - b > _FAR * max(b - a, d - c):
            notes.append(f"No checkpoint is between steps {b:,} and {c:,}, a wide gap compared with its neighbours.")
    return notes
