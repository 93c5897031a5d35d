"""The record of a language model's losses on a text, by the frequency of tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Any, ClassVar, Literal

from uncone.errors import expect
from uncone.records.blocks import Blocks, Bullets, Cell, Figure, Heading, Intervals, Row, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.record import Record
from uncone.records.text import count, number, optional, percent

NAMES = ("frequent", "medium", "rare", "never")  # of groups of ids
By = Literal["ids", "mass", "input"]
_TITLES: dict[By, str] = {
    "ids": "By how often the target occurs: shares of the ids",
    "mass": "By how often the target occurs: equal parts of the training text",
    "input": "By how often the token before the target occurs",
}
_COLUMNS = ("target", "ids", "targets", "perplexity", "log ratio", "predicted", "in text")
_LENGTHS = ("2", "4")  # of the n-grams that are shown
_REPETITION = (
    "Repeated: likeliest next tokens, or the text's own, that are among the 128 tokens before. Wrong: repeated and not "
    "the target. Distinct: different n-grams in continuations. Again: 4-grams that the continuation already had."
)


@part
class Ratio:
    """A value and its 95% interval, where there is one."""

    value: float  # of the text
    low: float | None = None  # lower limit
    high: float | None = None  # upper limit

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None:
            got = f"got {self.value} and {self.low} to {self.high}: the file was edited"
            expect(self.low <= self.value <= self.high, f"a value inside its interval, {got}")

    def written(self, of: Any = number) -> Cell:
        note = "" if self.low is None or self.high is None else f"{of(self.low)} to {of(self.high)}"
        return Cell(of(self.value), note)


@part
class TokenGroup:
    """Targets whose own id, or the id before it, is in a group of ids by their count in the training text."""

    # `ids`: the most frequent 29% of the ids that occur, the next 52%, the last 19% (Yu et al. 2022); `mass`: three
    # parts of equal mass in the training text; `input`: as `ids`, of the token before the target
    by: By
    name: str  # `frequent`, `medium`, `rare` or `never`: a count of 0
    ids: int  # ids of the group
    targets: int  # of the text
    loss: Ratio | None = None  # nats per target; `null` without targets
    predicted: float | None = None  # the mean probability that the model gives to these ids; not for `input`
    log_ratio: Ratio | None = None  # log of the predicted share over the share of targets; `null` without targets
    unique_predicted: int | None = None  # different ids of the group among the likeliest tokens
    unique_targets: int | None = None  # among the targets

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else _perplexity(self.loss.value)


@part
class Repetition:
    name: str  # `model` or `text`
    repeated: float  # share of the likeliest next tokens, or of the targets, that are among the 128 tokens before
    wrong: float | None  # likewise, only those that are not the target; `null` for the text
    unique: int  # different tokens among them
    distinct: Mapping[str, float] = field(default_factory=dict)  # of continuations, by n: different n-grams of all
    repeated_4: float | None = None  # of continuations: the share of a continuation's 4-grams that it already had


@part
class LastWords:
    """Passages whose last word a reader knows from the whole passage (LAMBADA)."""

    n: int  # passages
    loss: Ratio  # nats per word
    accuracy: Ratio  # share of the words whose every token was the likeliest


@dataclass(frozen=True)
class LanguageModelEvaluation(Record):
    """The result of `evaluate` with the task `lm`."""

    READING: ClassVar[str] = (
        "Losses depend on the tokenizer: compare only models with the same tokenizer. A log ratio above 0 means that a "
        "group gets a larger share of the probability than of the text."
    )

    verdict: str  # the result in one sentence
    name: str  # of the model
    text: str  # the file, or `texts`
    targets: int  # tokens that were predicted
    loss: Ratio  # nats per token
    groups: tuple[TokenGroup, ...] = ()  # by frequency, of three kinds; empty without counts
    repetition: tuple[Repetition, ...] = ()  # of the model and of the text
    last_words: LastWords | None = None  # where passages were given
    intervals: str = ""  # how the intervals were made
    notes: tuple[str, ...] = ()  # what was left out
    provenance: Mapping[str, Any] = field(default_factory=dict)  # versions, seed, digest of the text

    @property
    def perplexity(self) -> float:
        return _perplexity(self.loss.value)

    def blocks(self) -> Blocks:
        return shown(
            Heading(self.verdict, 1),
            Text(f"Loss {self.loss.value:.4f} nats per token, perplexity {number(self.perplexity)}", "lead"),
            (block for by, title in _TITLES.items() for block in section(title, *self._of(by))),
            section("Repetition", *self._repetition()),
            section("Last words of passages", *self._last_words()),
            Bullets(self.notes),
            Text(self.intervals, "quiet"),
        )

    def _of(self, by: By) -> Iterator[Any]:
        found = [group for group in self.groups if group.by == by]
        if by == "input":
            yield numbers(("token before", *_COLUMNS[1:4]), [_row(group)[:4] for group in found])
        else:
            yield numbers(_COLUMNS, map(_row, found))
        rows = [
            (group.name, group.log_ratio.value, group.log_ratio.low, group.log_ratio.high)
            for group in found
            if group.log_ratio is not None and group.log_ratio.low is not None and group.log_ratio.high is not None
        ]
        if by == "ids" and rows:
            title = "Predicted share over share of the text, log"
            yield Figure(title, (Intervals("log_ratio", title, "natural logarithm", tuple(rows)),))

    def _repetition(self) -> Iterator[Any]:
        columns = ("", "repeated", "wrong", "tokens", *(f"distinct {n}" for n in _LENGTHS), "again 4")
        rows = [
            (
                one.name,
                percent(one.repeated),
                optional(one.wrong, shown=percent),
                count(one.unique),
                *(optional(one.distinct.get(n), shown=percent) for n in _LENGTHS),
                optional(one.repeated_4, shown=percent),
            )
            for one in self.repetition
        ]
        if rows:
            yield numbers(columns, rows)
            yield Text(_REPETITION, "quiet")

    def _last_words(self) -> Iterator[Any]:
        if (of := self.last_words) is not None:
            yield numbers(
                ("passages", "loss per word", "right"), [(count(of.n), of.loss.written(), of.accuracy.written(percent))]
            )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"by": one.by, "group": one.name, "ids": one.ids, "targets": one.targets, "perplexity": one.perplexity}
            | _ends("loss", one.loss)
            | _ends("log_ratio", one.log_ratio)
            | {"unique_predicted": one.unique_predicted, "unique_targets": one.unique_targets}
            for one in self.groups
        ]


def _ends(name: str, of: Ratio | None) -> dict[str, float | None]:
    ends = (None, None, None) if of is None else (of.value, of.low, of.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def _row(group: TokenGroup) -> Row:
    loss, ratio = group.loss, group.log_ratio
    return (
        group.name,
        count(group.ids),
        count(group.targets),
        "-" if loss is None else loss.written(lambda x: number(_perplexity(x))),
        "-" if ratio is None else ratio.written(),
        optional(group.unique_predicted, shown=count),
        optional(group.unique_targets, shown=count),
    )


def _perplexity(loss: float) -> float:
    """inf beyond the largest float."""
    return exp(loss) if loss < 709 else float("inf")
