import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Blocks, Bullets, Chart, Curve, Figure, Heading, Shade, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record, made_with
from uncone.records.text import counted, number, percent, signed

Parameters = Literal["total", "non-embedding"]
COUNTED: dict[str, str] = {"total": "N counts all parameters"}
COUNTED |= {"non-embedding": "N counts the parameters outside the embeddings"}
_INTERVAL = "95% interval"


@part
class LawConstant:
    """A constant has no interval if it was given or if there were no more runs than constants, and no bootstrap
    interval with fewer than three runs for each fitted constant."""

    name: str  # `A`, `alpha`, `B`, `beta` or `E`
    value: float  # fitted or given; 0 for A, B or E if the best fit has no such term
    given: bool = False  # it was not fitted
    # ends of the profile interval; `null` for an end that the runs do not bound
    profile: tuple[float | None, float | None] | None = None
    # ends of the bootstrap interval, `null` for an open end; none where the fit ended at a limit, such as E = 0
    bootstrap: tuple[float | None, float | None] | None = None


@part
class Gap:
    value: float  # mean of loss / predicted - 1
    low: float  # lower limit
    high: float  # upper limit


@part
class LawRun:
    model: str  # its name
    n: float  # parameters
    t: float  # tokens
    loss: float  # measured
    predicted: float  # by the law
    gap: float  # loss / predicted - 1
    fitted: bool  # the law was fitted to it
    interval: tuple[float, float] | None = None  # of the gap of a run held out
    p_holm: float | None = None  # chance of so large a gap if the law holds, after Holm over the runs held out

    def __post_init__(self) -> None:
        expect(min(self.n, self.t, self.loss) > 0, "runs above 0, got others: the file was edited")


@part
class LawLine:
    t: float  # tokens that most runs have
    n: tuple[float, ...]  # parameters
    loss: tuple[float, ...]  # by the law
    low: tuple[float, ...] = ()  # lower end of the range of 95% of new runs
    high: tuple[float, ...] = ()  # upper end

    def __post_init__(self) -> None:
        n, ends = len(self.n), (len(self.low), len(self.high))
        fits = len(self.loss) == n and ends in ((0, 0), (n, n))
        expect(fits, f"a loss of the law for each of {n} sizes, got another number: the file was cut or edited")
        expect(all(loss > 0 for loss in self.loss), "losses of the law above 0, got others: the file was edited")


@dataclass(frozen=True)
class ScalingLaw(Record):
    """The result of `fit_scaling_law`: L = A / N^alpha + B / T^beta + E."""

    READING: ClassVar[str] = (
        "Quote the profile interval. It holds the constant in about 95 of 100 simulations of a law of this form with "
        "log-normal noise of one size, and in more of them if few runs are noisy. The intervals do not cover laws of "
        "another form."
    )

    verdict: str  # the mean gap of the runs held out, or how fast loss falls, and what N counts
    name: str  # of the table
    parameters: Parameters  # what N counts: `total` or `non-embedding`
    constants: tuple[LawConstant, ...]  # A, alpha, B, beta, E
    runs: tuple[LawRun, ...]  # in the order of the table
    objective: float  # sum of Huber's losses of ln L at the fit
    delta: float  # where Huber's loss turns from squares to sizes
    # standard deviation of ln L about the law; none if no run is left beyond the constants
    noise: float | None = None
    gap: Gap | None = None  # mean over the runs held out
    line: LawLine | None = None  # the law over N, for the charts
    resamples: int = 0  # simulated fits; 0 where there are no intervals
    seed: int = 0  # of the simulated fits
    notes: tuple[str, ...] = ()  # what the numbers are based on
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions

    def __post_init__(self) -> None:
        names = ", ".join(constant.name for constant in self.constants)
        expect(names == "A, alpha, B, beta, E", f"the constants A, alpha, B, beta, E, got {names}: the file was edited")

    def blocks(self) -> Blocks:
        columns = ("constant", "value", f"{_INTERVAL}, profile", f"{_INTERVAL}, bootstrap")
        rows = tuple(
            (c.name, number(c.value, digits=4), "given" if c.given else ends(c.profile), ends(c.bootstrap))
            for c in self.constants
        )
        return shown(
            Heading(self.verdict, 1),
            Text(f"L = A / N^alpha + B / T^beta + E. {COUNTED[self.parameters]}; T counts tokens.", "quiet"),
            Text(self._noise(), "quiet"),
            numbers(columns, rows),
            self._figure(),
            Bullets(self.notes),
            section("Runs", self._runs(), level=2),
            Text(made_with(self.versions), "quiet"),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {name: getattr(run, name) for name in ("model", "n", "t", "loss", "predicted", "gap")}
            | dict(zip(("gap_low", "gap_high"), run.interval or (None, None), strict=True))
            | {"fitted": run.fitted}
            for run in self.runs
        ]

    def _noise(self) -> str:
        fitted = f"{counted(sum(run.fitted for run in self.runs), 'run')} fitted"
        if self.noise is None:
            return f"{fitted}, no more than constants, so there are no intervals."
        return f"{fitted}. They scatter about the law by {percent(self.noise, precise=True)}."

    def _runs(self) -> Table:
        columns = ("run", "N", "T", "loss", "law", "gap", _INTERVAL, "P, Holm")
        rows = list[tuple[str, ...]]()
        for run in sorted(self.runs, key=lambda run: (run.fitted, run.n, run.t)):
            losses = (number(loss, digits=4) for loss in (run.loss, run.predicted))
            interval = " to ".join(map(share, run.interval or ()))
            rows.append((run.model, short(run.n), short(run.t), *losses, share(run.gap), interval, _chance(run.p_holm)))
        held = sum(not run.fitted for run in self.runs)
        titles = (("held out", held), ("fitted", len(self.runs) - held))
        return Table(columns, tuple(rows), columns[1:], groups=tuple(title for title in titles if title[1]))

    def _figure(self) -> Figure:
        title, line = "The law and the runs", self.line
        if line is None:
            return Figure(title, ())
        law = self._chart(line, "law", "Loss over N", "loss", lambda gap, law: (1 + gap) * law)
        charts = (law, self._chart(line, "gaps", "Gap over N", "loss / law - 1, %", lambda gap, law: 100 * gap))
        shaded = "Shaded: the range of 95% of new runs if the law holds for them." if line.low else ""
        return Figure(title, charts, shaded, tuple((curve.style, curve.name) for curve in law.curves))

    def _chart(
        self, line: LawLine, name: str, title: str, y_label: str, height: Callable[[float, float], float]
    ) -> Chart:
        """A chart over N; `height` maps a gap and the law's loss there to a height."""

        def at(losses: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(height(loss / law - 1, law) for loss, law in zip(losses, line.loss, strict=True))

        a, alpha, b, beta, e = (constant.value for constant in self.constants)
        curves = [Curve("law", line.n, at(line.loss), "centred")]
        for called, style, is_fitted in (("fitted", "bins", True), ("held out", "raw", False)):
            runs = [run for run in self.runs if run.fitted is is_fitted]
            heights = tuple(height(run.gap, _law(a, run.n, alpha) + _law(b, line.t, beta) + e) for run in runs)
            if runs:
                sizes = tuple(run.n for run in runs)
                tips = tuple(f"{run.model}: {number(run.loss, digits=4)}, {share(run.gap)}" for run in runs)
                curves.append(Curve(called, sizes, heights, style, dots=True, tips=tips, line=False))
        others = any(run.t != line.t for run in self.runs)
        moved = " Runs with other token counts are drawn at their own gap from the law." if others else ""
        shades = (Shade(line.n, at(line.low), at(line.high)),) if line.low else ()
        axes, caption = (f"N, {self.parameters} parameters", y_label), f"The law at {short(line.t)} tokens.{moved}"
        return Chart(name, title, *axes, tuple(curves), log_x=True, shades=shades, caption=caption)


def _chance(p: float | None) -> str:
    return "" if p is None else number(p, digits=2, most=2)


def _law(constant: float, size: float, exponent: float) -> float:
    """NaN outside the range of a float, so that a chart leaves the run out."""
    try:
        return constant / math.pow(size, exponent)
    except (OverflowError, ValueError, ZeroDivisionError):
        return math.nan


def short(n: float) -> str:
    """As in the names of models: 410M, 1.4B."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= unit:
            return f"{n / unit:.3g}{letter}"
    return f"{n:.3g}"


def share(gap: float) -> str:
    return f"{gap:+.1%}" if abs(gap) < 1e6 else f"{signed(gap)} times"  # digits of a per cent are useless there


def ends(interval: tuple[float | None, float | None] | None, digits: int = 4) -> str:
    if interval is None:
        return ""
    low, high = (None if end is None else number(end, digits=digits) for end in interval)
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "not bounded"
