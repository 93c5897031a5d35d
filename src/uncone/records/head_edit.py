"""The record of an exact edit of an output head: what was subtracted, the proof that nothing changed, what it
is good for."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from uncone.errors import InputError
from uncone.records.blocks import Block, Bullets, Cell, Heading, Table, Text
from uncone.records.record import Record
from uncone.records.text import count, number
from uncone.records.wording import counted, listing

GAUGE = (
    "A gauge change: one vector was subtracted from every row of the head, which changes no probability, so neither perplexity nor any "
    "choice of the model. What it can help is what reads the head's numbers: quantisation, cosines between its rows, low "
    "precision. The effects measured here say whether it does."
)
_KINDS = {
    "int8_tensor": "int8, one scale",
    "int8_rows": "int8, one scale a row",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "logits_bfloat16": "logits in bfloat16",
}


@dataclass(frozen=True)
class HeadProof:
    """Original and edited model run on the same ids, their log-probabilities compared. All figures are in
    nats.

    `rounding` is the original's largest error against the `reference`, which is the original without its
    rounding; `rounding_edited` is that of the edited model against the same reference; `difference` is the
    largest change of a log-probability, which is never above the sum of the two. The proof holds where
    `rounding_edited` is not above `allowed`: one and a half times `rounding`, and what it takes to write the
    largest logit of either in the dtype. `ties` counts positions where another token came first because the
    two best ones were nearer to each other than rounding tells apart: than twice the sum of `rounding` and of
    what it takes to write that logit.
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
    """The error of the logits' differences, root of its mean square over their standard deviation, in one
    kind of rounding."""

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
class HeadEdit(Record):
    """The result of `center_head`, and the proof."""

    KIND: ClassVar[str] = "head edit"
    SCHEMA: ClassVar[str] = "uncone.head_edit/1"
    HOW: ClassVar[str] = "uncone center-head MODEL OUT --json F"

    name: str
    head: str
    n: int
    d: int
    dtype: str
    way: Literal["untied", "folded", "parted"]
    """The head was a matrix of its own; tied, the mean went into `folded_into`; tied, it now stands apart as
    `added`."""
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
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if self.way == "folded" and not self.folded_into:
            raise InputError(
                "expected the names that the mean was folded into in folded_into, got none: the file was cut or edited"
            )

    def blocks(self) -> tuple[Block, ...]:
        """The proof, the effects of rounding, the rows of the head, and what the edit is good for."""
        p = self.proof
        proof = (
            ("largest error of the original", number(p.rounding)),
            ("largest error of the edited model", number(p.rounding_edited)),
            ("allowed to it", number(p.allowed)),
            ("largest difference between the two", number(p.difference)),
        )
        effects = tuple((_KINDS[e.kind], number(e.before), _after(e.after)) for e in self.effects)
        blocks: list[Block] = [
            Heading(f"The head of {self.name} is centred: {self._agreement()}.", 1),
            Text(f"{self.head}: {count(self.n)} x {count(self.d)}, {self.dtype}. {self._way()}", "quiet"),
            Text(f"{counted(self.unchanged, 'other tensor')} compared, all the same to the bit.", "quiet"),
            Table(("log-probabilities, in nats", "value"), proof, ("value",)),
            Text(
                f"on {count(p.positions)} positions of {p.text}, in {p.dtype}; exact is {p.reference}",
                "quiet",
            ),
            Table(("error of logits when rounded", "before", "after"), effects, ("before", "after")),
            Text("root mean square, as a share of the logits' deviation over the vocabulary", "quiet"),
            Table(
                ("rows of the head", "before", "after"),
                _rows_of(self.before, self.after),
                ("before", "after"),
            ),
            Text(self.statement),
        ]
        blocks += [Text(f"Warning: {warning}", "caution") for warning in self.warnings]
        notes = (*self.notes, *([f"Not copied: {listing(self.left_out)}."] if self.left_out else []))
        return (*blocks, Bullets(notes)) if notes else tuple(blocks)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each kind of rounding."""
        return [
            {"kind": effect.kind, "before": effect.before, "after": effect.after} for effect in self.effects
        ]

    def _agreement(self) -> str:
        p = self.proof
        ties = f", but for {counted(p.ties, 'tie')} within rounding" if p.ties else ""
        return (
            f"on {count(p.positions)} positions its log-probabilities are within {number(p.rounding_edited)} nats of "
            f"exact ones, the original's within {number(p.rounding)}, and the same token comes first everywhere{ties}"
        )

    def _way(self) -> str:
        if self.way == "folded":
            return f"Its rows are the token table's; the mean went into {listing(self.folded_into)}."
        if self.way == "parted" and self.added:
            return f"It shared the token table's rows and stands apart now: {listing(self.added)}."
        return "It stands apart now." if self.way == "parted" else "It is a matrix of its own."


def _after(value: float) -> Cell:
    return Cell(number(value), tone="strong")


def _rows_of(before: HeadRows, after: HeadRows) -> tuple[tuple[str | Cell, ...], ...]:
    sides = [
        ("mean norm", before.mean_norm, after.mean_norm),
        ("norm of the mean row", before.norm_of_mean, after.norm_of_mean),
        ("largest number", before.largest, after.largest),
    ]
    if before.mean_cosine is not None and after.mean_cosine is not None:
        sides.append(("mean cosine of two rows", before.mean_cosine, after.mean_cosine))
    return tuple((name, number(one), _after(other)) for name, one, other in sides)
