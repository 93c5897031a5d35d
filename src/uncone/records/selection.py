"""The record of a selection: which repair a development split chose, and what the test split said of it."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uncone import atomic
from uncone.records.evaluation import ORIGINAL, Interval
from uncone.records.rebuild import from_json, read_text

SELECTION_SCHEMA = "uncone.selection/1"
_HOW = "uncone repair SPEC OUT --method auto --json F"


@dataclass(frozen=True)
class Selection:
    """What `select_repair` decided. `chosen` is "original" where the vectors are better left as they are.

    `development` holds for each repair its difference to the original, in the unit of `measure`, with an interval at a level
    raised for their number (Bonferroni); `test` that of the one candidate, at 95 %, None where there was none.
    """

    verdict: str
    name: str
    task: str
    measure: str
    chosen: str
    candidate: str | None
    development_original: float
    development: Mapping[str, Interval]
    development_n: int
    test_original: float | None = None
    test: Interval | None = None
    test_n: int = 0
    splits: str = ""
    """Which items each split holds, and what the repairs were fitted on."""
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SELECTION_SCHEMA

    @property
    def leaves_it(self) -> bool:
        """Whether no repair is recommended."""
        return self.chosen == ORIGINAL

    def to_json(self) -> str:
        """This record as JSON text (strict: no NaN, no Infinity)."""
        return (
            json.dumps(dataclasses.asdict(self), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
            + "\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to `path`, atomically."""
        atomic.write_text(path, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "Selection":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=SELECTION_SCHEMA, what="selection", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Selection":
        """Read a selection from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
