"""A record of how anisotropic a cloud is while a model trains, readable while it runs."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.prevent.anisotropy import anisotropy_scores, check_k
from uncone.regular import open_regular

Tensor = torch.Tensor


class AnisotropyTrack:
    """`anisotropy_scores` of the states of one training batch every so many optimiser steps; see `attach_states(track=...)`.

    Each record is a dictionary of the fields of `AnisotropyScores` and the `step`, the number of optimiser steps done before it. `records`
    is their list. With a path, each is a line of JSON there as soon as it is taken; an existing file is only gone on with by a Trainer
    that resumes.

    Args:
        every: optimiser steps from one record to the next.
        path: of a JSONL file.
        k: how many scores.
    """

    def __init__(self, every: int = 50, path: str | os.PathLike[str] | None = None, *, k: int = 3) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise InputError(f"expected every to be a whole number of steps from 1 up, got {every!r}")
        check_k(k)
        self.every, self.k = every, k
        self.path = None if path is None else Path(path)
        self.records: list[dict[str, Any]] = []
        self._begun = False

    def due(self, step: int) -> bool:
        """Whether a record is to be taken after `step` steps."""
        return step % self.every == 0 and not (self.records and self.records[-1]["step"] >= step)

    def take(self, step: int, points: Tensor, labels: Tensor | None = None, **more: Any) -> dict[str, Any]:
        """Take a record now, of any points (N, D); `more` is kept with it, for instance what the points are."""
        record = {"step": step, **asdict(anisotropy_scores(points, labels, k=self.k)), **more}
        self.records.append(record)
        if self.path is not None:
            self._write(json.dumps(record))
        return record

    def resume(self, step: int) -> None:
        """Go on after `step` steps: what the file says of later ones was lost with the run that wrote it."""
        if self.path is not None and self.path.exists():
            self.records = [record for record in _read(self.path) if record["step"] < step]
            atomic.write_text(self.path, "".join(f"{json.dumps(record)}\n" for record in self.records))
            self._begun = True

    def _write(self, line: str) -> None:
        assert self.path is not None
        if not self._begun and self.path.exists():
            raise InputError(
                f"expected no file {self.path.name} yet, got one: give another path, or remove it (a Trainer that resumes goes on with it)"
            )
        self._begun = True
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _read(path: Path) -> list[dict[str, Any]]:
    with open_regular(path) as file:
        *lines, _torn = (
            file.read().decode("utf-8", "replace").split("\n")
        )  # a kill may leave half a line at the end
    found = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            step = record["step"]
        except (ValueError, KeyError, TypeError):
            step = None
        if not isinstance(step, int):
            raise InputError(
                f"expected lines of JSON with a step in {path.name}, got something else in line {number}: remove it"
            )
        found.append(record)
    return found
