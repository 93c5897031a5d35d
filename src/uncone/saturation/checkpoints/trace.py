"""Checkpoints of one training: each read without building its model, kept line by line, and ordered in time."""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from uncone.atomic import write_text
from uncone.errors import InputError, UnconeError, without_package
from uncone.model.open import Opened, open_spec, open_subjects
from uncone.moments import Moments
from uncone.records.rebuild import build_record
from uncone.records.text import counted
from uncone.roles import Path_, Progress
from uncone.saturation.checkpoints.record import Checkpoint
from uncone.saturation.checkpoints.spectra import of_head, of_rows, of_states
from uncone.saturation.curves.columns import number_of
from uncone.saturation.tables.harness import read_json
from uncone.saturation.tables.sources import open_table
from uncone.saturation.tables.trainer_state import NAME
from uncone.sealed import sealed_line, sealed_records

Losses = Path_ | Mapping[float, float] | Iterable[tuple[float, float]]
MOST_TOKENS = 16_384
"""Of a text, that each checkpoint is run on."""
_FORM = "uncone.checkpoint/2"
"""Goes into the keys of kept checkpoints, so that those read in another way are read anew."""
_STEP = re.compile(r"(?:step|checkpoint|iter|iteration)[-_=]?(\d+)|(\d+)$", re.IGNORECASE)
_FAR = 3.0
"""Neighbours this many times as far apart as the checkpoints on both sides are a gap."""


@dataclass(frozen=True)
class Place:
    """A checkpoint to read: its directory and its step."""

    path: Path
    step: int


def places_of(directories: Sequence[Path_], steps: Sequence[int] | None = None) -> list[Place]:
    """The checkpoints by step; of one directory the folders in it that name a step, if it is no model or they are
    several.

    Raises:
        InputError: no checkpoint, one that is not there, one without a step, or two of one step.
    """
    paths = [Path(directory) for directory in directories]
    if len(paths) == 1 and paths[0].is_dir():
        inner = sorted(path for path in paths[0].iterdir() if path.is_dir() and _STEP.search(path.name))
        is_model = (paths[0] / "config.json").exists()
        if not (inner or is_model):
            raise InputError(
                f"expected checkpoints in {paths[0]}, got no folder that names a step, such as step1000: give their "
                "directories"
            )
        paths = paths if is_model and len(inner) < 2 else inner
    if not paths:
        raise InputError("expected directories of checkpoints, got none: give one for each step")
    if steps is not None and len(steps) != len(paths):
        raise InputError(f"expected a step for each of {len(paths)} checkpoints, got {len(steps)}: give as many")
    for path in paths:
        if not path.exists():
            raise InputError(f"no checkpoint {path}: give directories that exist")
    found = [Place(path, _step_of(path) if steps is None else int(steps[i])) for i, path in enumerate(paths)]
    found.sort(key=lambda place: place.step)
    for first, second in pairwise(found):
        if first.step == second.step:
            raise InputError(
                f"expected one checkpoint a step, got {first.path} and {second.path} at step {first.step}: leave one "
                "out, "
                "or name the steps (steps=, --steps)"
            )
    return found


def left_out(directories: Sequence[Path_], places: Sequence[Place]) -> list[str]:
    """A note on the models of the one directory given that are not read, since their names have no step."""
    root, read = Path(directories[0]), {place.path for place in places}
    if len(directories) > 1 or root in read:
        return []
    others = [path for path in (root, *sorted(root.iterdir())) if path not in read and (path / "config.json").is_file()]
    return [f"Not read, as no step is in the name: {', '.join(path.name[:40] for path in others)}."] if others else []


def _step_of(path: Path) -> int:
    """The step in a directory's name (step1000, checkpoint-1000), or in its trainer_state.json."""
    named = list(_STEP.finditer(path.resolve().name))
    if named:
        return int(named[-1][1] or named[-1][2])
    state = read_json(path / NAME) if (path / NAME).is_file() else {}
    step = state.get("global_step") if isinstance(state, dict) else None
    if type(step) is int and step >= 0:
        return step
    raise InputError(
        f"expected a step in the name of {path}, such as step1000, or a global_step in its {NAME}, got neither: "
        "name the steps (steps=, --steps)"
    )


def losses_of(losses: Losses | None, places: Sequence[Place]) -> tuple[list[tuple[float, float]], list[str]]:
    """(step, loss) by step, and notes on those left out.

    From a table with the columns step and loss, from a trainer_state.json, or given; without any from the
    trainer_state.json of the last checkpoint that has one.
    """
    notes = list[str]()
    if losses is None:
        states = [place.path / NAME for place in reversed(places) if (place.path / NAME).is_file()]
        try:
            pairs = _read_losses(states[0]) if states else []
        except InputError as error:  # nobody asked for it
            pairs, notes = [], [f"No losses were taken from {states[0].parent.name}/{NAME}: {error}"]
    elif isinstance(losses, str | os.PathLike):
        pairs = _read_losses(losses)
    else:
        given = losses.items() if isinstance(losses, Mapping) else losses
        pairs = [(float(step), float(loss)) for step, loss in given]
    kept: dict[float, float] = {}
    unusable, twice = 0, 0
    for step, loss in pairs:
        if not (math.isfinite(step) and math.isfinite(loss)):
            unusable += 1
        else:
            twice += step in kept
            kept[step] = loss
    if unusable:
        notes.append(f"{unusable} of {len(pairs)} losses are not finite and were left out.")
    if twice:
        notes.append(f"{twice} of {len(pairs)} losses stand at a step that has another: the last one counts.")
    return sorted(kept.items()), notes


def _read_losses(path: Path_) -> list[tuple[float, float]]:
    """Of a table with the columns step and loss, or of the losses that a trainer logged: its evaluations', else its
    training's."""
    table = open_table(Path(path))
    columns, pairs = {name.strip().casefold(): cells for name, cells in table.columns.items()}, []
    if {"task", "metric", "step", "value"} <= set(columns):
        rows = list(zip(*(columns[name] for name in ("task", "metric", "step", "value")), strict=True))
        kinds = [
            [(x, y) for task, metric, x, y in rows if (task, metric) == (kind, "loss")] for kind in ("eval", "train")
        ]
        pairs = next(filter(None, kinds), [])
    if not pairs:
        if missing := [name for name in ("step", "loss") if name not in columns]:
            have = ", ".join(table.columns)[:200]
            raise InputError(
                f"expected the columns step and loss in {path}, got {have}, without {missing[0]}: name them so, or "
                f"give a {NAME}"
            )
        pairs = list(zip(columns["step"], columns["loss"], strict=True))
    steps, losses = ([number_of(cell) for cell in column] for column in zip(*pairs, strict=True)) if pairs else ([], [])
    if None in steps:
        row = steps.index(None)
        raise InputError(f"expected a step in row {row + 1} of {path}, got {str(pairs[row][0])[:60]!r}: mend that row")
    return [
        (step, math.nan if loss is None else loss) for step, loss in zip(steps, losses, strict=True) if step is not None
    ]


def read_checkpoints(
    places: Sequence[Place], *, text: Path_ | None = None, out: Path_ | None = None, progress: Progress | None = None
) -> list[Checkpoint]:
    """Each checkpoint, read once: `out` keeps a line of JSON for each, and those of unchanged files are taken from it.

    A checkpoint that cannot be read has the reason in `failed`; it is tried again the next time.

    Raises:
        InputError: a line in `out` that this function did not write, or that was changed since.
    """
    kept = _kept(out) if out is not None and os.path.lexists(out) else {}
    lines, read = dict[str, str](), list[Checkpoint]()
    for done, place in enumerate(places):
        if progress is not None:
            progress("reading checkpoints", done, len(places))
        key = _key(place, text)
        checkpoint = kept.get(key)
        if checkpoint is None or checkpoint.failed:
            checkpoint = read_checkpoint(place, text)
        read.append(checkpoint)
        lines[key] = _line(key, checkpoint)
        if out is not None and kept.get(key) != checkpoint:  # what else the file holds is kept after them
            others = (_line(k, one) for k, one in kept.items() if k not in lines)
            write_text(out, "".join(f"{line}\n" for line in (*lines.values(), *others)))
    if progress is not None:
        progress("reading checkpoints", len(places), len(places))
    return read


def _line(key: str, checkpoint: Checkpoint) -> str:
    return sealed_line(_FORM, {"key": key, "checkpoint": asdict(checkpoint)})


def check_any_was_read(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise where no checkpoint could be read: there is no number to answer with."""
    if any(not one.failed for one in checkpoints):
        return
    reasons = dict.fromkeys(one.failed for one in checkpoints)
    first = next(iter(reasons))
    more = len(reasons) - 1
    others = f" (and {counted(more, 'other reason')})" if more else ""
    raise InputError(
        f"expected a checkpoint that can be read, got {len(checkpoints)} that cannot: "
        f"{checkpoints[0].name} at step {checkpoints[0].step:,}: {first}{others}"
    )


def _kept(out: Path_) -> dict[str, Checkpoint]:
    """The checkpoints of a file that `read_checkpoints` wrote."""
    how = "name a new file, in which the checkpoints are read again"
    return {
        entry["key"]: build_record(Checkpoint, entry["checkpoint"], "checkpoint")
        for entry in sealed_records(out, _FORM, what="a checkpoint", how=how)
    }


def _key(place: Place, text: Path_ | None) -> str:
    """sha256 of what a checkpoint's numbers depend on: its step, and names, sizes and times of its files and the
    text."""
    digest = hashlib.sha256(f"{_FORM}\0{place.step}\0{place.path.name}\0{text is not None}".encode())
    files = sorted(place.path.rglob("*")) if place.path.is_dir() else [place.path]
    for file in (*files, *([Path(text)] if text is not None else ())):
        if file.is_file():
            known = file.stat()
            name = file.relative_to(place.path) if file in files else file.name
            digest.update(f"{name}\0{known.st_size}\0{known.st_mtime_ns}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_checkpoint(place: Place, text: Path_ | None = None) -> Checkpoint:
    """The numbers of one checkpoint; the reason where there are none."""
    opened = open_spec(place.path)
    name = opened.name
    try:
        if not opened.is_model:
            raise InputError(f"expected the directory of a model, got {place.path.name}: give directories")
        subjects = open_subjects(opened)
        rows = dict(subjects.rows)
        head, table = rows.get("head"), rows.get("input")
        values, notes, shape = dict[str, float](), list[str](), tuple[int, ...]()
        raw, centered, logits = tuple[float, ...](), tuple[float, ...](), tuple[float, ...]()
        m = None if head is None else Moments.of(head)
        if head is None or m is None:
            notes.append(f"It has no head. {' '.join(subjects.notes)}".strip())
        else:
            shape = tuple(head.shape)
            values, raw, centered = of_head(m)
        if table is not None and (head is None or table.name != head.name):
            values |= of_rows(Moments.of(table), "table")
        if text is not None and m is not None:
            more, logits = _with_text(opened, text, m)
            values |= more
    except UnconeError as error:
        return Checkpoint(name, place.step, failed=str(error))
    return Checkpoint(name, place.step, values, raw, centered, logits, shape, tuple(notes))


def _with_text(model: Opened, text: Path_, head: Moments) -> tuple[dict[str, float], tuple[float, ...]]:
    try:
        from uncone.model.last_states import states_of
    except ModuleNotFoundError as error:
        raise without_package(error, "running a checkpoint on a text") or error from error
    return of_states(states_of(model, text, most=MOST_TOKENS), head)


def notes_on(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """What to know before any number is read: heads that change shape, no head, gaps."""
    notes, read = [], [one for one in checkpoints if not one.failed]
    if len(read) < len(checkpoints):
        notes.append(f"{len(checkpoints) - len(read)} of {len(checkpoints)} checkpoints could not be read.")
    shapes = {one.shape: one for one in read if one.shape}
    if len(shapes) > 1:
        told = ", ".join(f"{v:,} x {d:,} from step {one.step:,}" for (v, d), one in _firsts(read))
        notes.append(f"The head changes its shape: {told}. Entropies are shares of ln d, RankMe of d.")
    notes += dict.fromkeys(note for one in read for note in one.notes)
    steps = [one.step for one in read]
    for a, b, c, d in zip(steps, steps[1:], steps[2:], steps[3:], strict=False):
        if c - b > _FAR * max(b - a, d - c):
            notes.append(f"No checkpoint lies between steps {b:,} and {c:,}, far apart beside their neighbours.")
    return notes


def _firsts(read: Sequence[Checkpoint]) -> list[tuple[tuple[int, ...], Checkpoint]]:
    """The first checkpoint of each shape that a head changes to."""
    firsts: list[tuple[tuple[int, ...], Checkpoint]] = []
    for one in read:
        if one.shape and (not firsts or firsts[-1][0] != one.shape):
            firsts.append((one.shape, one))
    return firsts
