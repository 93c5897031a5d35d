"""The record of new values for the rows of some tokens: which, how, and that nothing else changed."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Literal

from uncone import atomic
from uncone.records.rebuild import from_json, read_text

TOKEN_EDIT_SCHEMA = "uncone.token_edit/1"
MOST_LISTED = 200
Way = Literal["sub_tokens", "mean", "covariance"]
_HOW = "uncone repair-tokens MODEL OUT --json F"


@dataclass(frozen=True)
class EditedToken:
    """One token whose rows were set anew. `sub_tokens` are the ids whose mean they are, where they are one."""

    id: int
    token: str | None
    way: Way
    sub_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class EditedTensor:
    """One matrix whose rows were set, and its other rows, which were compared with the original's and are the same to the bit."""

    name: str
    role: Literal["table", "head", "both"]
    n: int
    d: int
    dtype: str
    rows_equal: int
    mean_norm_others: float
    mean_norm_before: float | None
    """Of the edited rows; None where one was not finite."""
    mean_norm_after: float
    shrinkage: float | None = None
    """Share of the identity in the covariance that rows were drawn with."""


@dataclass(frozen=True)
class TextLoss:
    """Mean loss in nats of a token, on the same text before and after. `with_edited` counts targets that are edited tokens."""

    text: str
    kind: Literal["next_token", "masked_token"]
    targets: int
    with_edited: int
    before: float
    after: float


@dataclass(frozen=True)
class TokenEdit:
    """What `reinitialise_tokens` wrote."""

    name: str
    method: Way
    edited: int
    tokens: tuple[EditedToken, ...]
    """The first 200."""
    tensors: tuple[EditedTensor, ...]
    unchanged: int
    """How many other tensors were compared and are the same to the bit."""
    seed: int
    loss: TextLoss | None = None
    no_loss: str = ""
    """Why there is no loss."""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    schema: str = TOKEN_EDIT_SCHEMA

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
    def from_json(cls, text: str) -> "TokenEdit":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=TOKEN_EDIT_SCHEMA, what="token edit", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TokenEdit":
        """Read the record in the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
