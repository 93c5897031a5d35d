"""The records of exact edits of a model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from uncone.records.blocks import Blocks, Bullets, Cell, Heading, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import moved, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import count, counted, listing, number, plural, shortened
from uncone.records.token_text import shown_token

GAUGE = (
    "One vector was subtracted from every row of the head (a gauge change). This changes no probability, so neither "
    "perplexity nor any choice. It can help whatever reads the head's numbers: quantisation, cosines between its rows, "
    "low precision. The effects measured here show whether it does."
)
_KINDS = {
    "int8_tensor": "int8, one scale",
    "int8_rows": "int8, one scale per row",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "logits_bfloat16": "logits in bfloat16",
}
MOST_LISTED = 200
Kind = Literal["int8_tensor", "int8_rows", "float16", "bfloat16", "logits_bfloat16"]
Way = Literal["sub_tokens", "mean", "covariance"]
_WAYS = {
    "sub_tokens": "the mean of its sub-tokens",
    "mean": "the mean of all trained rows",
    "covariance": "a draw around the mean",
}
_MOST_SHOWN = 10


@part
class HeadProof:
    """Log-probabilities of the original and the edited model on the same ids, in nats. The proof holds where
    `rounding_edited` is not above `allowed`."""

    text: str  # what the models ran on, in addition to random ids
    positions: int  # compared
    dtype: str  # of the head's product
    reference: str  # what served as the original without its rounding
    difference: float  # the largest change of a log-probability; never above `rounding` + `rounding_edited`
    rounding: float  # the original's largest error against the reference
    rounding_edited: float  # the edited model's largest error against the same reference
    # the limit for `rounding_edited`: 1.5 times `rounding`, plus the rounding of the largest logit
    allowed: float
    same_first: int  # positions where both models rank the same token first
    ties: int  # positions where they rank different tokens first, too close together for rounding to separate


@part
class RoundingError:
    # `int8_tensor`, `int8_rows`, `float16`, `bfloat16` (of the rows) or `logits_bfloat16`
    kind: Kind
    before: float  # error of the logits' differences, root mean square over their standard deviation
    after: float  # the same for the centred head


@part
class HeadRows:
    mean_norm: float  # mean length of a row
    norm_of_mean: float  # length of the mean row
    largest: float  # largest absolute value
    mean_cosine: float | None  # of two different rows; none where a row is zero


@dataclass(frozen=True)
class HeadEdit(Record):
    """The result of `center_head`, and the proof."""

    name: str  # of the model
    head: str  # the tensor whose rows are centred, by its name in the copy
    n: int  # rows
    d: int  # features
    dtype: str  # as stored
    way: Literal["untied", "folded", "parted"]  # `untied`, `folded` or `parted`
    folded_into: tuple[str, ...]  # the tensors that the mean was added to
    added: tuple[str, ...]  # the tensors that the original did not have
    before: HeadRows  # the rows of the original
    after: HeadRows  # the rows of the copy
    proof: HeadProof  # the proof that probabilities are the same
    effects: tuple[RoundingError, ...]  # what rounding does to the head, before and after
    unchanged: int  # other tensors that were compared and are the same to the bit
    warnings: tuple[str, ...] = ()  # settings that read raw logits
    notes: tuple[str, ...] = ()  # what users of raw logits or input vectors need to know
    left_out: tuple[str, ...] = ()  # files that hold the weights in another format and were not copied
    statement: str = GAUGE  # that this is a gauge change, and what that means

    def __post_init__(self) -> None:
        names = "the names that the mean was folded into in folded_into"
        expect(self.way != "folded" or bool(self.folded_into), f"{names}, got none: the file was cut or edited")

    def blocks(self) -> Blocks:
        p, before, after = self.proof, self.before, self.after
        proof = (
            ("largest error of the original", number(p.rounding)),
            ("largest error of the edited model", number(p.rounding_edited)),
            ("limit for the edited model", number(p.allowed)),
            ("largest difference between the two", number(p.difference)),
        )
        errors = [(_KINDS[e.kind], e.before, e.after) for e in self.effects]
        lengths = [
            ("mean norm", before.mean_norm, after.mean_norm),
            ("norm of the mean row", before.norm_of_mean, after.norm_of_mean),
            ("largest number", before.largest, after.largest),
        ]
        ratios = [(name, 1.0, b / a) for name, a, b in (*errors, *lengths) if a > 0]
        if before.mean_cosine is not None and after.mean_cosine is not None:
            lengths.append(("mean cosine of two rows", before.mean_cosine, after.mean_cosine))
        return shown(
            Heading(f"The head of {self.name} is centred. {self._agreement()}.", 1),
            Text(f"{self.head}: {count(self.n)} x {count(self.d)}, {self.dtype}. {self._way()}", "quiet"),
            _compared(self.unchanged),
            Table(("log-probabilities, in nats", "value"), proof, ("value",)),
            Text(f"{count(p.positions)} positions of {p.text}, in {p.dtype}. Exact: {p.reference}.", "quiet"),
            _sides("error of logits when rounded", errors),
            Text("Root mean square, as a share of the logits' standard deviation over the vocabulary.", "quiet"),
            _sides("rows of the head", lengths),
            moved("After the edit", "share of the value before", ratios, "Dashed: as before the edit.", 1.0),
            Text(self.statement),
            (Text(f"Warning: {warning}", "caution") for warning in self.warnings),
            _notes(self.notes, self.left_out),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [vars(effect) | {} for effect in self.effects]

    def _agreement(self) -> str:
        p = self.proof
        ties = f", except for {counted(p.ties, 'tie')} within rounding" if p.ties else ""
        return (
            f"On {count(p.positions)} positions its log-probabilities are within {number(p.rounding_edited)} nats of "
            f"exact ones (the original's: {number(p.rounding)}). The same token comes first everywhere{ties}"
        )

    def _way(self) -> str:
        if self.way == "folded":
            return f"It shares the token table's rows. The mean was added to {listing(self.folded_into)}."
        if self.way == "untied":
            return "It is a separate matrix."
        if self.added:
            return f"It shared the token table's rows and is separate now: {listing(self.added)}."
        return "It is separate now."


@part
class EditedToken:
    id: int  # its row
    token: str | None  # its token; as text for a byte-level vocabulary
    way: Way  # `sub_tokens`, `mean` or `covariance`
    sub_tokens: tuple[int, ...] = ()  # the new row is the mean of their rows
    # whether a draw with a tenth of the trained rows' spread was added, because the sub-tokens give no distinct row
    drawn: bool = False


@part
class EditedTensor:
    name: str  # in the file
    role: Literal["table", "head", "both"]  # `table`, `head` or `both`
    n: int  # rows
    d: int  # features
    dtype: str  # as stored
    rows_equal: int  # rows that were compared and are the same to the bit: all others
    mean_norm_others: float  # mean length of the trained rows
    mean_norm_before: float | None  # of the edited rows; none where an edited row was not finite
    mean_norm_after: float  # of the edited rows
    shrinkage: float | None = None  # share of the identity in the covariance that rows were drawn with


@part
class TextLoss:
    text: str  # the file's name
    kind: Literal["next_token", "masked_token"]  # `next_token` or `masked_token`
    targets: int  # tokens the model had to predict
    with_edited: int  # targets that are edited tokens
    before: float  # mean loss per token, in nats
    after: float  # the same for the copy


@dataclass(frozen=True)
class TokenEdit(Record):
    """The result of `repair_tokens`."""

    name: str  # of the model
    method: Way  # `sub_tokens`, `mean` or `covariance`
    edited: int  # tokens
    tokens: tuple[EditedToken, ...]  # the first 200
    tensors: tuple[EditedTensor, ...]  # the table, and a head that is a separate matrix
    unchanged: int  # other tensors that were compared and are the same to the bit
    seed: int  # of the draw
    loss: TextLoss | None = None  # on the given text
    no_loss: str = ""  # why there is no loss
    notes: tuple[str, ...] = ()  # tokens without parts, rows without a token
    left_out: tuple[str, ...] = ()  # files that hold the weights in another format and were not copied

    def blocks(self) -> Blocks:
        columns = ("matrix", "role", "rows kept", "norm before", "norm after", "norm, trained")
        listed, loss, effect = self.tokens[:_MOST_SHOWN], self.loss, self.no_loss and f"No loss: {self.no_loss}"
        more = self.edited - len(listed)
        if loss is not None:
            effect = (
                f"Mean loss on {loss.text}: {number(loss.before)} nats before, {number(loss.after)} after, "
                f"over {counted(loss.targets, 'target')} ({count(loss.with_edited)} of them edited tokens)."
            )
        edited = (
            f"{counted(self.edited, 'token')} of {self.name} {plural(self.edited, 'has a new row', 'have new rows')}"
        )
        norms = [
            (shortened(t.name), t.mean_norm_before / others, t.mean_norm_after / others)
            for t in self.tensors
            if t.mean_norm_before is not None and (others := t.mean_norm_others) > 0
        ]
        return shown(
            Heading(f"{edited}. Every other row is bit-for-bit the same.", 1),
            _compared(self.unchanged),
            Table(columns, tuple(map(_tensor, self.tensors)), columns[2:]),
            Table(("id", "token", "set to", "sub-tokens"), tuple(map(_token, listed)), ("id",)),
            Text(f"and {count(more)} more" if more > 0 else "", "quiet"),
            moved(
                "Norms of the edited rows",
                "mean norm, as a share of the other rows'",
                norms,
                "Dot: after the edit. Line: change since before. Dashed: as long as the other rows.",
                1.0,
            ),
            Text(effect),
            _notes(self.notes, self.left_out),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [vars(token) | {"sub_tokens": list(token.sub_tokens)} for token in self.tokens]


def _compared(tensors: int) -> Text:
    return Text(f"{counted(tensors, 'other tensor')} compared, all bit-for-bit the same.", "quiet")


def _notes(notes: tuple[str, ...], left_out: tuple[str, ...]) -> Bullets:
    return Bullets((*notes, f"Not copied: {listing(left_out)}.") if left_out else notes)


def _sides(heading: str, rows: Iterable[tuple[str, float, float]]) -> Table:
    cells = ((name, number(before), Cell(number(after), tone="strong")) for name, before, after in rows)
    return Table((heading, "before", "after"), tuple(cells), ("before", "after"))


def _tensor(t: EditedTensor) -> Row:
    before = "not finite" if t.mean_norm_before is None else number(t.mean_norm_before)
    after = Cell(number(t.mean_norm_after), tone="strong")
    return shortened(t.name), t.role, count(t.rows_equal), before, after, number(t.mean_norm_others)


def _token(token: EditedToken) -> Row:
    name = Cell(shown_token(token.token or ""), tone="token")
    return str(token.id), name, _WAYS[token.way] + ", plus a draw" * token.drawn, " ".join(map(str, token.sub_tokens))
