"""The record of new values for the rows of some tokens: which, how, and that nothing else changed."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Block, Bullets, Cell, Heading, Table, Text
from uncone.records.record import Record
from uncone.records.text import count, number, shortened
from uncone.records.wording import counted, listing

MOST_LISTED = 200
Way = Literal["sub_tokens", "mean", "covariance"]
_WAYS = {
    "sub_tokens": "the mean of its sub-tokens",
    "mean": "the mean of all trained rows",
    "covariance": "a draw around the mean",
}
_SHOWN = 10


@dataclass(frozen=True)
class EditedToken:
    """One token whose rows were set anew. `sub_tokens` are the ids whose mean they are, where they are
    one."""

    id: int
    token: str | None
    way: Way
    sub_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class EditedTensor:
    """One matrix whose rows were set, and its other rows, which were compared with the original's and are the
    same to the bit."""

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
    """Mean loss in nats of a token, on the same text before and after. `with_edited` counts targets that are
    edited tokens."""

    text: str
    kind: Literal["next_token", "masked_token"]
    targets: int
    with_edited: int
    before: float
    after: float


@dataclass(frozen=True)
class TokenEdit(Record):
    """The result of `repair_tokens`."""

    KIND: ClassVar[str] = "token edit"
    SCHEMA: ClassVar[str] = "uncone.token_edit/1"
    HOW: ClassVar[str] = "uncone repair-tokens MODEL OUT --json F"

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
    schema: str = SCHEMA

    def blocks(self) -> tuple[Block, ...]:
        """The matrices that were changed, the first tokens, and the loss on a text."""
        columns = ("matrix", "role", "rows kept", "norm before", "norm after", "norm, trained")
        shown = self.tokens[:_SHOWN]
        blocks: list[Block] = [
            Heading(
                f"{counted(self.edited, 'token')} of {self.name} set anew; every other row is the same to the bit.",
                1,
            ),
            Text(f"{counted(self.unchanged, 'other tensor')} compared, all the same to the bit.", "quiet"),
            Table(columns, tuple(map(_tensor, self.tensors)), columns[2:]),
            Table(("id", "token", "set to", "sub-tokens"), tuple(map(_token, shown)), ("id",)),
        ]
        if self.edited > len(shown):
            blocks.append(Text(f"and {count(self.edited - len(shown))} more", "quiet"))
        if self.loss is not None:
            loss = self.loss
            blocks.append(Text(
                f"Mean loss on {loss.text}: {number(loss.before)} nats before, {number(loss.after)} after, over "
                f"{counted(loss.targets, 'target')} ({count(loss.with_edited)} of them edited tokens)."
            ))  # fmt: skip
        elif self.no_loss:
            blocks.append(Text(f"No loss: {self.no_loss}"))
        notes = (*self.notes, *([f"Not copied: {listing(self.left_out)}."] if self.left_out else []))
        return (*blocks, Bullets(notes)) if notes else tuple(blocks)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each token that is listed."""
        return [vars(token) | {"sub_tokens": list(token.sub_tokens)} for token in self.tokens]


def _tensor(tensor: EditedTensor) -> tuple[str | Cell, ...]:
    before = "not finite" if tensor.mean_norm_before is None else number(tensor.mean_norm_before)
    after = Cell(number(tensor.mean_norm_after), tone="strong")
    return (
        shortened(tensor.name),
        tensor.role,
        count(tensor.rows_equal),
        before,
        after,
        number(tensor.mean_norm_others),
    )


def _token(token: EditedToken) -> tuple[str | Cell, ...]:
    name = Cell(shortened(token.token or ""), tone="token")
    return str(token.id), name, _WAYS[token.way], " ".join(map(str, token.sub_tokens))
