"""The record of how often the tokens and the words of a text occur."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Blocks, Bullets, Cell, Chart, Curve, Figure, Folded, Heading, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import count, counted, number, optional, percent, plural
from uncone.records.token_text import shown_token
from uncone.records.tokens import Estimate

_DIGITS = 4
_STYLES = {"tokens": "raw", "words": "centred"}


@part
class Rival:
    """A law that Zipf's law is compared with, by the counts of the ranks that were fitted."""

    name: str  # `a log-normal` or `a power law with a cut`
    gain: float  # its log-likelihood less that of Zipf's law, in nats
    p: float  # chance of such a gain under Zipf's law, after Holm over the rivals


@part
class ZipfLaw:
    exponent: Estimate  # s in p(r) ~ r^-s; the interval is over stretches of the text
    ranks: int  # how many of the most frequent were fitted
    least: int  # the least count that may be fitted
    gap: float | None  # the largest difference of the cumulative share from the law's
    reason: str = ""  # why there is no exponent, or no interval
    # the exponent of greatest likelihood, before the jackknife takes out the bias of ranking
    likely: float | None = None
    # what was shown: tokens follow the law `closely` or `roughly`, or `no`; `undecided` if neither was shown
    follows: Literal["closely", "roughly", "no", "undecided"] = "undecided"
    rivals: tuple[Rival, ...] = ()  # laws that it was compared with, the better first
    named: str = ""  # the rival that fits best, or both if they cannot be separated
    # the share by which the exponent differs between the ends of the ranks, to first order, with its 95% interval
    bend: Estimate = Estimate(None)


@part
class Coverage:
    share: float  # of the text
    tokens: int  # how many of the most frequent make up this share


@part
class RankFrequency:
    unit: Literal["tokens", "words"]  # `tokens` or `words`
    total: int  # how many were counted
    different: int  # how many different tokens or words
    law: ZipfLaw  # the fitted exponent
    coverage: tuple[Coverage, ...]  # how many make up 30, 50, 90 and 98% of the text
    ranks: tuple[int, ...]  # the ranks that are drawn
    counts: tuple[int, ...]  # at each rank

    def __post_init__(self) -> None:
        counts, ranks = len(self.counts), len(self.ranks)
        expect(ranks == counts, f"a count for each rank, got {counts} for {ranks}: the file was cut")


@part
class CountedToken:
    id: int
    token: str | None
    count: int


@dataclass(frozen=True)
class TokenFrequencies(Record):
    """The result of `count`: how often each token occurs, which law they follow, and which tokens never occur."""

    KIND: ClassVar[str] = "counts of tokens"
    READING: ClassVar[str] = (
        "Zipf's law: the token of rank r makes up a share of the text that falls as 1 / r^s, with the exponent s. It "
        "is fitted by maximum likelihood to tokens that occur often enough for their rank to mean something. The gap "
        "is the most by which the law misses the share of the text up to some rank. Tokens do not follow the law if a "
        "log-normal or a power law with a cut fits the counts better (likelihood ratio, 2%, Holm). They follow it if "
        "neither does, the gap is small and the exponent is shown to be nearly the same at both ends of the ranks."
    )

    verdict: str  # one sentence
    name: str  # the model or tokenizer
    sources: tuple[str, ...]  # the files that were counted
    characters: int  # of the texts; 0 of counts made before
    vocabulary: int  # rows of the model's table
    never_seen: int  # tokens that do not occur
    reserved: int  # never-seen rows that are reserved by name or special, or that have no token
    tokens: RankFrequency  # tokens by rank
    words: RankFrequency | None  # words by rank, if they were counted
    frequent: tuple[CountedToken, ...]  # the most frequent tokens
    unseen: tuple[CountedToken, ...]  # the first by id that never occur and are not reserved
    word: str = ""  # what counts as a word
    notes: tuple[str, ...] = ()  # other remarks

    def blocks(self) -> Blocks:
        kinds = self._kinds()
        size = f"{counted(self.characters, 'character')} of text, " * bool(self.characters)
        size += f"{count(self.tokens.total)} tokens; vocabulary of {self.name}, {counted(self.vocabulary, 'row')}"
        return shown(
            Heading(self.verdict, 1),
            Text(size, "quiet"),
            Text(f"Counted: {', '.join(self.sources)}.", "quiet"),
            section(
                "Coverage",
                Text("How many of the most frequent make up a share of the text.", "lead"),
                self._coverage(kinds),
            ),
            section("Zipf's law", _laws(kinds), _rivals(kinds), self._figure(kinds), Text(self.word, "quiet")),
            section(
                "Tokens by name",
                Bullets(self._named()),
                Folded(f"The {counted(len(self.frequent), 'most frequent token')}", (_tokens(self.frequent),)),
            ),
            section("Notes", Bullets(self.notes), level=2),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"unit": kind.unit, "rank": rank, "count": times}
            for kind in self._kinds()
            for rank, times in zip(kind.ranks, kind.counts, strict=True)
        ]

    def _kinds(self) -> list[RankFrequency]:
        return [self.tokens, self.words] if self.words else [self.tokens]

    def _coverage(self, kinds: list[RankFrequency]) -> Table:
        columns = ("share of the text", *(kind.unit for kind in kinds))
        of_all = {"tokens": self.vocabulary, "words": self.words.different if self.words else 0}
        shares = (one.share for one in self.tokens.coverage)
        rows = ((percent(of), *(_covering(kind, of, of_all[kind.unit]) for kind in kinds)) for of in shares)
        return numbers(columns, rows)

    def _figure(self, kinds: list[RankFrequency]) -> Figure:
        curves = tuple(
            Curve(one.unit, tuple(map(float, one.ranks)), tuple(n / one.total for n in one.counts), _STYLES[one.unit])
            for one in kinds
            if len(one.ranks) > 1 and one.total
        )
        names, caption = ("Frequency by rank", "rank", "share of the text"), "A straight line is Zipf's law."
        spark = "share of the text by rank"
        chart = Chart("rank frequency", *names, curves, log_x=True, log_y=True, caption=caption, spark=spark)
        legend = tuple((_STYLES[curve.name], curve.name) for curve in curves if len(kinds) > 1)
        return Figure("Frequency by rank", (chart,) if curves else (), legend=legend)

    def _named(self) -> tuple[str, ...]:
        others, different = self.never_seen - self.reserved, self.tokens.different
        never = f"{count(self.never_seen)} never {plural(self.never_seen, 'does', 'do')}"
        seen = f"{counted(different, 'token occurs', 'tokens occur')}, {never}"
        seen += f". Of the latter, {count(self.reserved)} {plural(self.reserved, 'is', 'are')} reserved or special."
        if not others:
            return (seen,)
        first = ", ".join(f"{shown_token(one.token or '-', 24)!r} ({count(one.id)})" for one in self.unseen)
        return seen, f"Never seen, though not reserved: {count(others)}. The first by id: {first}."


def _covering(kind: RankFrequency, share: float, different: int) -> Cell | str:
    tokens = next((one.tokens for one in kind.coverage if one.share == share), None)
    if tokens is None:
        return "-"
    return Cell(count(tokens), f"{percent(tokens / different)} of all" if different else "")


def _laws(kinds: list[RankFrequency]) -> Table:
    def row(kind: RankFrequency) -> Row:
        gap = optional(kind.law.gap, shown=partial(percent, precise=True))
        likely = optional(kind.law.likely, shown=partial(number, digits=_DIGITS))
        counts = map(count, (kind.law.ranks, kind.law.least, kind.different, kind.total))
        return kind.unit, _exponent(kind.law), likely, gap, *counts

    columns = ("exponent", "most likely", "gap", "ranks", "least count", "different", "total")
    return numbers(("of", *columns), map(row, kinds))


def _rivals(kinds: list[RankFrequency]) -> Blocks:
    rows = [
        (f"{kind.unit}: {rival.name}", number(rival.gain), number(rival.p, digits=2, most=2))
        for kind in kinds
        for rival in kind.law.rivals
    ]
    return (numbers(("instead of Zipf's law", "log-likelihood gained", "P"), rows),) if rows else ()


def _exponent(law: ZipfLaw) -> Cell:
    value = law.exponent.value
    if value is None:
        return Cell("-", law.reason)
    ends = " to ".join(number(end, digits=_DIGITS) for end in law.exponent.interval or ())
    return Cell(number(value, digits=_DIGITS), ends or law.reason)


def _tokens(tokens: tuple[CountedToken, ...]) -> Table:
    named = ((Cell(shown_token(one.token or "-", 24), tone="token"), one) for one in tokens)
    return numbers(("token", "id", "count"), ((name, count(one.id), count(one.count)) for name, one in named))
