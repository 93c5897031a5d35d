from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.saturation.tables.harness import read_json
from uncone.saturation.tables.tables import Table, of_rows

NAME = "trainer_state.json"


def read_states(files: list[Path], source: Path) -> Table:
    """Every number of the longest history of each run: a later checkpoint repeats the earlier history."""
    runs = dict[Path, Mapping[str, Any]]()
    for file in files:
        state = read_json(file)
        if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
            raise InputError(f"expected a log_history in {file}, got none: give a {NAME} that transformers wrote")
        run = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
        if run not in runs or len(runs[run]["log_history"]) < len(state["log_history"]):
            runs[run] = state
    rows = [row for run, state in runs.items() for row in _rows(state, run.resolve().name)]
    if not rows:
        how = "train with logging_steps or eval_steps"
        raise InputError(f"expected losses in the log_history of {source}, got none: {how}")
    return of_rows(rows, str(source), logged=True)


def _rows(state: Mapping[str, Any], model: str) -> Iterator[dict[str, Any]]:
    batch = state.get("train_batch_size")
    settings = {"batch_size": str(batch)} if isinstance(batch, int) else {}
    for entry in state["log_history"]:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                task, metric = ("eval" if key.startswith("eval_") else "train"), key.removeprefix("eval_")
                row = {"model": model, "task": task, "metric": metric, "step": entry.get("step"), "value": value}
                yield row | settings
