from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

from uncone.records.blocks import (
    Blocks,
    Bullets,
    Chart,
    Curve,
    Figure,
    Folded,
    Heading,
    HeatMap,
    Mark,
    Row,
    Table,
    Text,
)
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record, made_with
from uncone.records.text import count, counted, number, optional

Order = Literal["before", "after", "not apart", ""]
_DRAWN_RANKS = 24


class Series(NamedTuple):
    """One number per checkpoint. `peak`: in good training it rises first, so it turns at a peak."""

    name: str
    title: str
    unit: str
    peak: bool = False


SERIES = (
    Series("loss", "Loss", "nats per token"),
    Series("text_loss", "Loss on the text", "nats per token"),
    Series("head_entropy_centered", "Centred singular entropy of the head", "KL to uniform (nats)"),
    Series("head_entropy", "Singular entropy of the head", "KL to uniform (nats)"),
    Series("logit_entropy", "Singular entropy of the logits", "KL to uniform (nats)"),
    Series("states_anisotropy", "Anisotropy of the last states", "mean cosine"),
    Series("head_cosine", "Mean cosine of the head", "mean cosine"),
    Series("head_isoscore", "IsoScore of the head", "IsoScore", peak=True),
    Series("head_rankme", "RankMe of the head", "dimensions", peak=True),
    Series("head_alpha", "Decay of the head's eigenvalues", "alpha"),
    Series("states_rankme", "RankMe of the last states", "dimensions", peak=True),
    Series("states_alpha", "Decay of the last states' eigenvalues", "alpha"),
    Series("table_cosine", "Mean cosine of the token table", "mean cosine"),
    Series("table_isoscore", "IsoScore of the token table", "IsoScore", peak=True),
    Series("table_rankme", "RankMe of the token table", "dimensions", peak=True),
)
NAMED = {series.name: series for series in SERIES}


@part
class Checkpoint:
    name: str  # its directory, the last two parts
    step: int  # of the training
    # by the name of the series; undefined values are left out
    values: Mapping[str, float] = field(default_factory=dict)
    singular_values: tuple[float, ...] = ()  # of the head as stored, the first hundred
    centered: tuple[float, ...] = ()  # of the head less its mean row
    logits: tuple[float, ...] = ()  # of the centred logits over the states of a text, root mean square
    shape: tuple[int, ...] = ()  # of the head, tokens and columns; empty without a head
    notes: tuple[str, ...] = ()  # such as a missing head
    failed: str = ""  # why it could not be read; empty where it was


@part
class SeriesTurn:
    """`p` is corrected over losses, entropies and anisotropy, or over all other series."""

    name: str  # of the series
    n: int  # points
    turned: bool | None  # null with fewer than 10 points after the first fifth of the steps
    at: float | None = None  # the step where it turned, or would have
    low: float | None = None  # lower end of its 95 % interval
    high: float | None = None  # upper end
    p: float | None = None  # how often a series that never turns would look like this, corrected by Holm
    correlation: float | None = None  # of the noise of neighbouring points
    visible: float | None = None  # the change over the last third that is found in 80% of such series, in white noise
    start: int | None = None  # the first step that was used: before it the series went the other way
    before_loss: float | None = None  # how likely it turned before the loss
    order: Order = ""  # `before`, `after`, `not apart`, or empty where either shows no turn

    @property
    def ends(self) -> tuple[float, float, float] | None:
        """`at`, `low` and `high` of a series that turned."""
        if not self.turned or self.at is None or self.low is None or self.high is None:
            return None
        return self.at, self.low, self.high


@dataclass(frozen=True)
class CheckpointTrace(Record):
    """The result of `trace_checkpoints`."""

    KIND: ClassVar[str] = "trace of checkpoints"
    READING: ClassVar[str] = (
        "The singular entropy is the KL divergence from the normalised squared singular values to the uniform "
        "distribution: 0 if all directions weigh the same, ln d if one direction holds everything. Adding a row to all "
        "rows of a head changes no probability, so we judge the centred entropy. The centred logits also stay the same "
        "if the head is multiplied by a matrix and the states by its inverse."
    )

    name: str  # the folder of the checkpoints
    verdict: str  # whether the geometry turned before the loss
    checkpoints: tuple[Checkpoint, ...]  # by step
    turns: tuple[SeriesTurn, ...] = ()  # one per known series
    losses: tuple[tuple[float, float], ...] = ()  # step and loss, as given
    # phases of RankMe (Li et al. 2025) whose ends a test detects, with intervals; empty with too few checkpoints
    phases: str = ""
    notes: tuple[str, ...] = ()  # heads that change shape, gaps, losses left out
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions

    def __post_init__(self) -> None:
        steps = [checkpoint.step for checkpoint in self.checkpoints]
        expect(steps == sorted(set(steps)), "checkpoints in order of steps, got another order: the file was edited")
        names = {turn.name for turn in self.turns}.union(*(one.values for one in self.checkpoints))
        unknown = sorted(names - NAMED.keys())[:1]
        expect(not unknown, f"series that this version knows, got {unknown}: written by another version")

    def blocks(self) -> Blocks:
        failed = tuple(f"{one.name}: {one.failed}" for one in self.checkpoints if one.failed)
        columns = ("series", "turned at", "interval", "p", "before the loss", "order")
        few = all(turn.turned is None for turn in self.turns)
        turns = () if few else tuple(map(_turn_row, self.turns))
        profiles = self._profiles()
        charts = tuple(chart for group in _GROUPS[bool(profiles) :] if (chart := self._chart(*group)) is not None)
        pages = (
            Figure("Series over training", charts[at : at + 3], spark="" if at else "Over training:")
            for at in range(0, len(charts), 3)
        )
        return shown(
            Heading(self.verdict, 1),
            Text(self.phases),
            Bullets(self.notes),
            section("Where each series turned", Table(columns, turns, columns[1:5])),
            section("Over training", profiles, pages),
            section("Not read", Bullets(failed)),
            Folded("Every checkpoint", (self._numbers(),), in_terminal=few),
            Text(made_with(self.versions), "quiet"),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"step": one.step, "checkpoint": one.name, "failed": one.failed or None}
            | {series.name: one.values.get(series.name) for series in self._known()}
            for one in self.checkpoints
        ]

    def _known(self) -> list[Series]:
        return [series for series in SERIES if any(series.name in one.values for one in self.checkpoints)]

    @property
    def _is_log(self) -> bool:
        """The last step is a hundred times the first, and most steps are early."""
        steps = [one.step for one in self.checkpoints]
        if len(steps) < 3 or steps[0] < 1:
            return False
        return steps[-1] > 100 * steps[0] and steps[len(steps) // 2] < 0.2 * steps[-1]

    def _profiles(self) -> Blocks:
        kept = [one for one in self.checkpoints if len(one.centered) > 1 and one.centered[0] > 0]
        if not kept:
            return ()
        last = min(len(one.centered) for one in kept)
        ranks = sorted({round(last ** (part / (_DRAWN_RANKS - 1))) for part in range(_DRAWN_RANKS)})
        values = tuple(tuple(one.centered[rank - 1] / one.centered[0] for one in kept) for rank in ranks)
        places = tuple(float(one.step) for one in kept), tuple(map(float, ranks))
        words = ("profiles", "Singular values of the head", "step", "rank", "share of the first")
        caption = "Centred over the vocabulary. Dark at every rank: all directions weigh the same."
        drawn = HeatMap(*words, *places, values, self._is_log, True, caption, "spectrum, rank")
        loss = self._chart(*_GROUPS[0])
        title = "Profiles of the head's spectrum, with the loss"
        return (Figure(title, (drawn, loss) if loss else (drawn,), spark="The head's spectrum over training:"),)

    def _chart(self, name: str, title: str, members: tuple[str, ...]) -> Chart | None:
        curves, marks, bands = list[Curve](), list[Mark](), list[tuple[float, float]]()
        turns = {turn.name: turn.ends for turn in self.turns}
        for member, style in zip(members, ("raw", "isotropic"), strict=False):
            if points := self._points(member):
                x, y = zip(*points, strict=True)
                curves.append(Curve(NAMED[member].title, x, y, style, dots=len(x) < 40))
                if ends := turns.get(member):
                    marks.append(Mark(ends[0], label="" if marks else "turns"))
                    bands.append(ends[1:])
        if not curves:
            return None
        first, others = NAMED[members[0]], [f"Dashed: {curve.name}." for curve in curves[1:]]
        title = title or first.title
        drawn = Chart(name, title, "step", first.unit, tuple(curves), marks=tuple(marks), bands=tuple(bands))
        return replace(drawn, log_x=self._is_log, caption="".join(others), spark="" if others else title.lower())

    def _points(self, name: str) -> list[tuple[float, float]]:
        given = [(float(one.step), one.values[name]) for one in self.checkpoints if name in one.values]
        known = self.losses if name == "loss" and self.losses else given
        return [point for point in known if point[0] >= 1 or not self._is_log]

    def _numbers(self) -> Table:
        known = self._known()
        columns = ("step", *(series.title for series in known))
        rows = tuple(
            (count(one.step), *(optional(one.values.get(series.name)) for series in known))
            for one in self.checkpoints
            if not one.failed
        )
        return numbers(columns, rows)


# name, title (empty: the title of the series) and series
_GROUPS = (
    ("loss", "Loss", ("loss", "text_loss")),
    ("entropy", "Singular entropy of the head", ("head_entropy", "head_entropy_centered")),
    ("logits", "", ("logit_entropy",)),
    ("anisotropy", "", ("states_anisotropy",)),
    ("cosine", "Mean cosine", ("head_cosine", "table_cosine")),
    ("isoscore", "IsoScore", ("head_isoscore", "table_isoscore")),
    ("rankme", "", ("head_rankme",)),
    ("alpha", "", ("head_alpha",)),
    ("states rankme", "", ("states_rankme",)),
    ("states alpha", "", ("states_alpha",)),
)


def _turn_row(turn: SeriesTurn) -> Row:
    title, p = NAMED[turn.name].title, optional(turn.p)
    if turn.turned is None:
        return title, f"too few: {counted(turn.n, 'checkpoint')}", "", "-", "-", ""
    if turn.ends is None:
        return title, "no turn was detected", f"seen from {optional(turn.visible)}", p, "-", ""
    at, low, high = (number(round(end)) for end in turn.ends)
    return title, at, f"{low} to {high}", p, optional(turn.before_loss), turn.order
