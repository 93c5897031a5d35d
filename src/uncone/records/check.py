"""The record of a check: numbers of a diagnosis against bars."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Literal

from uncone import atomic
from uncone.records.rebuild import from_json, read_text

CHECK_SCHEMA = "uncone.check/1"
_HOW = "uncone check D.json --max NAME=VALUE --json F"


@dataclass(frozen=True)
class Bar:
    """One number and its bar. A number equal to its bar is within it."""

    name: str
    value: float
    kind: Literal["max", "min"]
    bar: float
    ok: bool


@dataclass(frozen=True)
class Check:
    """What `check` found: `ok` where no number is beyond its bar."""

    name: str
    ok: bool
    bars: tuple[Bar, ...]
    schema: str = CHECK_SCHEMA

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
    def from_json(cls, text: str) -> "Check":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=CHECK_SCHEMA, what="check", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Check":
        """Read a check from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
