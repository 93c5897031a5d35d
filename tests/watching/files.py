"""Files of runs as a monitor and a Trainer write them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
HEADER: Line = {"schema": "uncone.run/1", "model": "GPT2LMHeadModel", "every": 10, "groups": {"rare": 100}}


def lines_of(steps: Iterable[int], **readings: Any) -> list[Line]:
    """A record a step; a reading may be a function of the step."""
    return [
        {"step": step, "time": 1e9 + step / 4}
        | {name.replace("__", "."): of(step) if callable(of) else of for name, of in readings.items()}
        for step in steps
    ]


def write(path: Path, lines: Iterable[Line], header: Line = HEADER) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
    return path


def warning(step: int, rule: str = "rank", name: str = "head.effective_rank", text: str = "") -> Line:
    text = text or "The effective rank of the head fell from 60.0 to 20.0 between steps 80 and 100. It is low. Look."
    return {"step": step, "warning": {"rule": rule, "name": name, "text": text}}


def write_state(folder: Path, history: list[Line], name: str = "trainer_state.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({"log_history": history, "global_step": 100}))
    return path
