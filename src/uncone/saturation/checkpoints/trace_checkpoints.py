from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np

from uncone.model.targets import check_targets_apart
from uncone.roles import Paths, Progress, Read, Role, Write
from uncone.saturation.checkpoints import trace
from uncone.saturation.checkpoints.order import LOSSES, find_turns, phases, sentence, series_of
from uncone.saturation.checkpoints.record import CheckpointTrace
from uncone.version import versions


def trace_checkpoints(
    directories: Paths,
    *,
    text: Read = None,
    losses: Annotated[trace.Losses | None, Role.READ] = None,
    steps: Sequence[int] | None = None,
    out: Write = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CheckpointTrace:
    """Follow the spectrum of the output head over checkpoints, and show whether it turned before the loss.

    Args:
        directories: a directory for each checkpoint, or one that holds them all. Without `text` no model is built.
        text: a file in UTF-8. Every checkpoint runs on its first 16,384 tokens, for the anisotropy of the last states,
            the spectrum of the logits and the loss. Needs the extras [torch] and [hf].
        losses: (step, loss) pairs, or a file: a table with these columns (CSV, TSV, JSON lines, Parquet), or a
            trainer_state.json. By default from the trainer_state.json of the last checkpoint.
        steps: the step of each directory. By default from its name, such as step1000, or its trainer_state.json.
        out: a file that keeps a line of JSON for each checkpoint, so that an interrupted run can go on.
        seed: for the bootstrap.
        progress: called with (the step, checkpoints done, checkpoints in all).

    Raises:
        InputError: no checkpoints, steps that are missing or repeated, losses that cannot be read, or no checkpoint
            that can be read. A single checkpoint that cannot be read stays in the record, with the reason.
    """
    given = [directories] if isinstance(directories, str) or not isinstance(directories, Sequence) else directories
    places = trace.places_of(given, steps)
    read = [text, losses if isinstance(losses, str | Path) else None]
    check_targets_apart([out], [place.path for place in places], read)
    table, notes = trace.losses_of(losses, places)
    checkpoints = trace.read_checkpoints(places, text=text, out=out, progress=progress)
    trace.check_any_was_read(checkpoints)
    if table:
        x, y = np.array(table).T
        for i, one in enumerate(checkpoints):
            if not one.failed and x[0] <= one.step <= x[-1]:
                checkpoints[i] = replace(one, values={"loss": float(np.interp(one.step, x, y)), **one.values})
    if progress is not None:
        progress("finding turns", 0, 0)
    series = series_of(checkpoints, table)
    turns, found = find_turns(series, seed=seed)
    if not any(name in series for name in LOSSES):
        notes.append("No loss was given: name a table (losses=, --losses) or a text (text=, --text).")
    name = places[0].path.resolve().parent.name or places[0].path.name
    verdict = sentence(turns, sum(not one.failed for one in checkpoints))
    known = (*trace.left_out(given, places), *trace.notes_on(checkpoints), *notes)
    numbers = (tuple(checkpoints), tuple(turns), tuple(table), phases(series, found, seed=seed))
    return CheckpointTrace(name, verdict, *numbers, known, versions("numpy"))
