from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from uncone.errors import InputError
from uncone.records.text import count, counted, listing, number, plural, shortened
from uncone.roles import Path_, Role
from uncone.version import versions
from uncone.watching.reading import is_run as is_run
from uncone.watching.reading import read_run
from uncone.watching.record import JUDGED, MOST_WATCHED, Run, Watch


def watch(runs: Annotated[Path_ | Sequence[Path_], Role.READ], *, names: Sequence[str] | None = None) -> Watch:
    """Show how a training run's geometry and loss develop, which rules warned, and how long before the loss rose.

    Nothing is measured here: `uncone.Monitor` wrote the readings and the warnings while the model trained.

    Args:
        runs: one to six runs. Each is a file that `uncone.Monitor` wrote, a `trainer_state.json`, or a folder with one
            or both.
        names: of the runs; by default the names of their files or folders.

    Returns:
        A `Watch`.

    Raises:
        InputError: a file that is not a run, a folder without runs, or more than six runs. Lines that cannot be read
            are counted in the run's notes.
    """
    paths = [runs] if isinstance(runs, str) or not isinstance(runs, Sequence) else list(runs)
    found = [run for path in paths for run in read_run(Path(path))]
    if not 1 <= len(found) <= MOST_WATCHED:
        raise InputError(f"expected one to {MOST_WATCHED} runs, got {len(found)}: name the files")
    given = _names(found) if names is None else [name.strip() for name in names]
    if not (len(given) == len(found) == len(set(given)) and all(given)):
        raise InputError(f"expected {len(found)} different names, one for each run, got {', '.join(map(repr, given))}")
    named = tuple(replace(run, name=name) for run, name in zip(found, given, strict=True))
    last = [run.last_step for run in named if run.last_step is not None]
    common = min(last) if len(named) > 1 and len(last) == len(named) else None
    return Watch(_verdict(named, common), named, common, versions())


def _names(runs: Sequence[Run]) -> list[str]:
    """The runs' own names, numbered if they are equal."""
    names = list[str]()
    for run in runs:
        numbered = (run.name if n == 1 else f"{run.name} ({n})" for n in range(1, len(runs) + 1))
        names.append(next(name for name in numbered if name not in names))
    return names


def _verdict(runs: Sequence[Run], common: int | None) -> str:
    if len(runs) == 1:
        return _of_one(runs[0])
    warned = [run for run in runs if run.warnings]
    if warned:
        first = [(run.name, run.warnings[0]) for run in warned]
        named = [f"{shortened(name)} ({one.rule.replace('_', ' ')}, step {one.step:,})" for name, one in first]
        said = f"{len(warned)} of {len(runs)} runs {plural(len(warned), 'has', 'have')} warnings: {listing(named)}."
    else:
        said = f"No rule warned in {counted(len(runs), 'run')}."
        if not any(run.is_judged for run in runs):
            said = f"No run has what the rules need: geometry in {JUDGED[0]} records over {JUDGED[1]} steps."
    if len(models := dict.fromkeys(shortened(run.model) for run in runs if run.model)) > 1:
        said += f" The runs train different models ({listing(list(models))})."
    if common is not None and len({run.readings for run in runs}) == 1:
        return f"{said} The readings of the runs are the same up to step {common:,}."
    losses = [(run.loss.at(common), run.name) for run in runs if run.loss and common is not None]
    known = sorted((value, name) for value, name in losses if value is not None)
    if common is None or len(known) < 2:
        return said
    (low, best), (high, worst) = known[0], known[-1]
    if number(low) == number(high):
        return (
            f"{said} At step {common:,} the loss is {number(low)} in {plural(len(known) - 1, 'both', 'all of them')}."
        )
    lowest, highest = f"lowest in {shortened(best)} ({number(low)})", f"highest in {shortened(worst)} ({number(high)})"
    return f"{said} At step {common:,} the loss is {lowest} and {highest}."


def _of_one(run: Run) -> str:
    name, geometry, loss = shortened(run.name), run.warned(loss=False), run.warned(loss=True)
    if geometry is not None:
        later = ""
        if loss is not None and loss.step > geometry.step:
            later = f" The loss rose {counted(loss.step - geometry.step, 'step')} later."
        elif loss is None and run.loss is not None:
            later = " No rule has warned about the loss."
        return f"A rule warned about {name} at step {geometry.step:,}. {geometry.event}{later}"
    if loss is not None:
        return f"The loss of {name} rose at step {loss.step:,}. No rule for the geometry warned."
    course = _course(run)
    if run.last_step is None:
        return f"{name} has no record yet."
    if not run.has_geometry:
        return f"{name} holds no geometry, so no rule judged it.{course}"
    if not run.is_judged:
        so_far = f"{counted(run.records, 'record')} up to step {count(run.last_step)}"
        return f"{name} has {so_far}: rules judge from the {JUDGED[0]}th on, after {JUDGED[1]} steps.{course}"
    return f"No rule warned in {counted(run.records, 'record')} of {name}, up to step {count(run.last_step)}.{course}"


def _course(run: Run) -> str:
    if run.loss is None or len(run.loss.values) < 2:
        return ""
    first, last = run.loss.values[0], run.loss.values[-1]
    return f" The loss {'fell' if last < first else 'rose'} from {number(first)} to {number(last)}."
