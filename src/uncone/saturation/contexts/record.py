from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Blocks, Cell, Chart, Curve, Figure, Heading, Mark, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import count, number, optional, percent, signed
from uncone.records.tokens import Estimate

Kind = Literal["all", "seen", "weighted"]
_KINDS = {"all": "all contexts", "seen": "contexts seen {seen} times or more"}
_KINDS |= {"weighted": "rows times the root of their count"}
_STYLES = {"text": "raw", "shuffled": "isotropic", "next shuffled": "centred"}


@part
class ContextCurve:
    kind: Kind  # `all`, `seen` or `weighted` rows
    source: str  # `text`, `shuffled` or `next shuffled`
    contexts: int  # rows of the matrix
    single: int  # contexts with one follower
    dimensions: tuple[int, ...]  # from 0 on, at most 121 of them
    errors: tuple[float, ...]  # W-error at each
    half: Estimate  # the least dimension with a W-error of at most one half; no value beyond the computed dimensions

    def __post_init__(self) -> None:
        came = f"{len(self.errors)} for {len(self.dimensions)}: the file was cut"
        expect(len(self.dimensions) == len(self.errors) > 0, f"an error for each dimension, got {came}")


@part
class ContextDifference:
    kind: Kind  # as of `ContextCurve`
    source: str  # the null
    dimension: int  # where the null is at one half, and the last one
    text: float  # W-error of the text
    null: float  # W-error of the null
    difference: Estimate  # text less null, with a 99% interval over blocks of the stream
    half: int | None  # the text's dimension of one half
    half_null: int | None  # the null's


@dataclass(frozen=True)
class ContextRank(Record):
    """The result of `context_rank`."""

    READING: ClassVar[str] = (
        "W-error(d) is the least relative error of a matrix of rank d for the distributions of the next token. It is 1 "
        "at 0 dimensions. A context seen once has one token with probability 1. Such rows need as many dimensions as "
        "there are frequent tokens, in shuffled tokens too, so only the difference from shuffled tokens reflects "
        'language. "next shuffled" keeps the contexts and shuffles the tokens after them.'
    )

    verdict: str  # based on the differences from the nulls
    name: str  # of the file, empty for ids and texts
    tokenizer: str  # what split the text, in words
    tokens: int  # of the stream
    vocabulary: int  # different tokens in it
    order: int  # length of the n-grams: a context and the token after it
    dimensions: int  # singular values requested
    seen: int  # occurrences from which on a context counts as seen often
    seed: int  # of the nulls
    curves: tuple[ContextCurve, ...]  # three matrices of the text and of each null
    differences: tuple[ContextDifference, ...]  # the text less each null

    def blocks(self) -> Blocks:
        size = f"{count(self.tokens)} tokens, {count(self.vocabulary)} of them different; n-grams of {self.order}"
        columns = ("rows", "contexts", "with one follower", "half at", f"W-error at {count(self.dimensions)}")
        wide = ("rows", "null", "dimensions", "text", "null's", "difference")
        charts = tuple(chart for kind in _KINDS if (chart := self._chart(kind)) is not None)
        return shown(
            Heading(self.verdict, 1),
            Text(f"{size}; {self.tokenizer}" if self.tokenizer else size, "quiet"),
            section(
                "Difference from shuffled tokens",
                Table(wide, tuple(map(self._difference, self.differences)), wide[2:]),
                Text(
                    "The last line of a cell is the interval over blocks of the stream: 95%, or 99% for a difference.",
                    "quiet",
                ),
            ),
            Figure("W-error by dimensions", charts, legend=tuple((style, name) for name, style in _STYLES.items())),
            section("Matrices", numbers(columns, map(self._row, self.curves))),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"kind": curve.kind, "source": curve.source, "dimension": d, "error": error}
            for curve in self.curves
            for d, error in zip(curve.dimensions, curve.errors, strict=True)
        ]

    def _row(self, curve: ContextCurve) -> Row:
        half, last = curve.half.value, curve.dimensions[-1]
        reach = " to ".join(count(round(end)) for end in curve.half.interval or ())
        half_at = Cell(f"> {count(last)}" if half is None else count(round(half)), reach)
        single = percent(curve.single / curve.contexts) if curve.contexts else "-"
        error = Cell(number(curve.errors[-1], limits=(0, 1)), "" if last == self.dimensions else f"at {count(last)}")
        return f"{self._kind(curve.kind)}, {curve.source}", count(curve.contexts), single, half_at, error

    def _difference(self, one: ContextDifference) -> Row:
        reach = " to ".join(map(signed, one.difference.interval or ()))
        difference = Cell(optional(one.difference.value, shown=signed), reach, "strong")
        errors = (number(error, limits=(0, 1)) for error in (one.text, one.null))
        return self._kind(one.kind), one.source, count(one.dimension), *errors, difference

    def _kind(self, kind: str) -> str:
        return _KINDS[kind].format(seen=self.seen)

    def _chart(self, kind: str) -> Chart | None:
        curves = tuple(
            Curve(one.source, tuple(map(float, one.dimensions[1:])), one.errors[1:], _STYLES.get(one.source, "raw"))
            for one in self.curves
            if one.kind == kind and len(one.dimensions) > 2
        )
        if not curves:
            return None
        axes, marks = (self._kind(kind).capitalize(), "dimensions", "W-error"), (Mark(0.5, "y", "half"),)
        return Chart(f"context rank {kind}", *axes, curves, marks=marks, log_x=True)
