"""Results of runs: one JSON file each, written whole or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plan import FOLDER_OVER_STEPS, FORMAT

from uncone.atomic import write_text
from uncone.errors import InputError


class Kept:
    """The results of one model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def found(self, name: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """The result of this name, or None where there is none, or one that was asked for otherwise."""
        one = _read(self.folder / f"{name}.json")
        return one if one is not None and one["asked"] == asked else None

    def save(self, name: str, asked: dict[str, Any], found: dict[str, Any]) -> None:
        file = self.folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"format": FORMAT, "asked": asked, **found}) + "\n")

    def runs(self) -> list[dict[str, Any]]:
        """All training runs, in the order of their names; not those of the pilot."""
        return [one for one in self._all() if "arm" in one["asked"]]

    def before(self, task: str) -> dict[str, Any] | None:
        """What was said of the states of a task before training."""
        return _read(self.folder / f"{task}_before.json")

    @property
    def over_steps(self) -> "Kept":
        """The runs that judge all held-out items at each probe: the same cells as others here, so in a folder of their own."""
        return Kept(self.folder / FOLDER_OVER_STEPS)

    def cpu_seconds(self) -> float:
        """Of everything kept: the runs, the states before them, the pilot, and the runs judged over the steps."""
        kept = [*self._all(), *Kept(self.folder / "pilot")._all(), *self.over_steps._all()]
        return sum(float(one["cpu_seconds"]["whole"]) for one in kept)

    def _all(self) -> Iterator[dict[str, Any]]:
        for file in sorted(self.folder.glob("*.json")):
            one = _read(file)
            if one is not None:
                yield one


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        one: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"expected a result in {file.name}, got no JSON: delete the file, and the run is done again"
        ) from error
    return one if isinstance(one, dict) and one.get("format") == FORMAT and "asked" in one else None
