"""The record of an exact edit of an output head: what was subtracted, the proof that nothing changed, what it is good for."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Literal

from uncone import atomic
from uncone.errors import InputError
from uncone.records.rebuild import from_json, read_text

HEAD_EDIT_SCHEMA = "uncone.head_edit/1"
GAUGE = (
    "A gauge change: one vector was subtracted from every row of the head, which changes no probability, so neither perplexity nor any "
    "choice of the model. What it can help is what reads the head's numbers: quantisation, cosines between its rows, low "
    "precision. The effects measured here say whether it does."
)
_HOW = "uncone center-head MODEL OUT --json F"


@dataclass(frozen=True)
class HeadProof:
    """Original and edited model run on the same ids, their log-probabilities compared. All figures are in nats.

    `rounding` is the original's largest error against the `reference`, which is the original without its rounding; `rounding_edited` is that of the edited
    model against the same reference; `difference` is the largest change of a log-probability, which is never above the sum of the two. The proof holds where
    `rounding_edited` is not above `allowed`: one and a half times `rounding`, and what it takes to write the largest logit of either in the dtype.
    `ties` counts positions where another token came first because the two best ones were nearer to each other than rounding tells apart: than twice
    the sum of `rounding` and of what it takes to write that logit.
    """

    text: str
    positions: int
    dtype: str
    reference: str
    difference: float
    rounding: float
    rounding_edited: float
    allowed: float
    same_first: int
    ties: int


@dataclass(frozen=True)
class RoundingError:
    """The error of the logits' differences, root of its mean square over their standard deviation, in one kind of rounding."""

    kind: Literal["int8_tensor", "int8_rows", "float16", "bfloat16", "logits_bfloat16"]
    before: float
    after: float


@dataclass(frozen=True)
class HeadRows:
    """The rows of the head, before or after."""

    mean_norm: float
    norm_of_mean: float
    largest: float
    """The largest absolute value."""
    mean_cosine: float | None


@dataclass(frozen=True)
class HeadEdit:
    """What `center_head` wrote, and the proof."""

    name: str
    head: str
    n: int
    d: int
    dtype: str
    way: Literal["untied", "folded", "parted"]
    """The head was a matrix of its own; tied, the mean went into `folded_into`; tied, it now stands apart as `added`."""
    folded_into: tuple[str, ...]
    added: tuple[str, ...]
    before: HeadRows
    after: HeadRows
    proof: HeadProof
    effects: tuple[RoundingError, ...]
    unchanged: int
    """How many other tensors were compared and are the same to the bit."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    statement: str = GAUGE
    schema: str = HEAD_EDIT_SCHEMA

    def __post_init__(self) -> None:
        if self.way == "folded" and not self.folded_into:
            raise InputError(
                "expected the names that the mean was folded into in folded_into, got none: the file was cut or edited"
            )

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
    def from_json(cls, text: str) -> "HeadEdit":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=HEAD_EDIT_SCHEMA, what="head edit", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "HeadEdit":
        """Read the record in the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
