"""With which settings a cell is trained: from a file of `schedules/`, or any other of its form."""

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plan import Cell

from uncone.errors import InputError

FOLDER = Path(__file__).resolve().parent / "schedules"
_SHARED: dict[str, type] = {
    "batch": int,
    "epochs": int,
    "warm_up": float,
    "longest": int,
    "precision": str,
    "last": float,
}
_OF_TASK: dict[str, type] = {"rate": float, "decay": float}
PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class Settings:
    """How a cell is trained; part of its file, and a cell of other settings is another cell."""

    rate: float
    decay: float
    steps: int
    batch: int = 64
    warm_up: float = 0.1
    """Share of the steps, linear; then a cosine down to 0."""
    longest: int = 128
    precision: str = "bf16"
    """Of the encoder's products ("bf16" is autocast). The head, the loss and the penalty are float32 always."""
    last: float = 0.3
    """Share of the steps at the end over which anisotropy scores and task metrics are averaged."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Schedule:
    """What a file of `schedules/` holds: numbers for all tasks, and tables of each task."""

    name: str
    shared: dict[str, Any]
    tasks: dict[str, dict[str, Any]]

    def settings(self, cell: Cell, items: int, *, steps: int | None = None, precision: str | None = None) -> Settings:
        """The settings of a cell.

        Args:
            items: training items of the task; a cell of all of them, for which the schedule has no steps, gets epochs of their whole batches.
            steps: other than the schedule's.
            precision: other than the schedule's.
        """
        if cell.task not in self.tasks:
            raise InputError(f"expected a table [{cell.task}] in the schedule {self.name}, got none")
        of_task, how = self.tasks[cell.task], dict(self.shared)
        examples, epochs = cell.examples or items, how.pop("epochs")
        usual = of_task.get("steps", {}).get(cell.size) or epochs * (examples // how["batch"])
        how |= {"precision": precision or how["precision"]}
        return Settings(of_task["rate"], of_task["decay"], steps or usual, **how)


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def schedule(name: str) -> Schedule:
    """A schedule by its name in `schedules/`, or of a TOML file.

    Raises:
        InputError: no such name or file, or one that lacks a number, or has something else in its place.
    """
    file = FOLDER / f"{name}.toml" if name in names() else Path(name)
    if not file.is_file():
        raise InputError(f"expected a schedule of {', '.join(names())}, or a TOML file like theirs, got {name!r}")
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"expected TOML in {file.name}: {error}") from error
    tasks = {task: table for task, table in given.items() if isinstance(table, dict)}
    shared = {key: value for key, value in given.items() if key not in tasks}
    _check(file.name, shared, _SHARED)
    for task, table in tasks.items():
        numbers, steps = {key: value for key, value in table.items() if key != "steps"}, table.get("steps", {})
        _check(f"[{task}] of {file.name}", numbers, _OF_TASK)
        _check(f"the steps of [{task}] of {file.name}", steps, dict.fromkeys(steps, int))
    if shared["precision"] not in PRECISIONS or not 0 < shared["last"] <= 1 or not 0 <= shared["warm_up"] < 1:
        raise InputError(
            f"expected a precision of {', '.join(PRECISIONS)}, 0 < last <= 1 and 0 <= warm_up < 1 in {file.name}"
        )
    return Schedule(name, shared, tasks)


def _check(where: str, given: dict[str, Any], kinds: dict[str, type]) -> None:
    if given.keys() != kinds.keys():
        raise InputError(f"expected {', '.join(kinds)} in {where}, got {', '.join(given) or 'nothing'}")
    for key, kind in kinds.items():
        value = given[key]
        right = type(value) is kind or (kind is float and type(value) is int)
        if not right or (kind is int and value < 1) or (kind is float and not 0 <= value < float("inf")):
            raise InputError(
                f"expected {key} in {where} to be a {'number' if kind is float else kind.__name__}, got {value!r}"
            )
