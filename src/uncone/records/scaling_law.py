"""The record of a scaling law: its constants with their intervals, and how far each run lies from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Block, Bullets, Chart, Curve, Figure, Heading, Shade, Table, Text
from uncone.records.layout import section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record, made_with
from uncone.records.text import count, number, percent, plural

Parameters = Literal["total", "non-embedding"]
COUNTED: dict[str, str] = {
    "total": "N counts all parameters",
    "non-embedding": "N counts the parameters outside the embeddings",
}
"""What N is, in words."""
_INTERVAL = "95% interval"


@dataclass(frozen=True)
class LawConstant:
    """A constant of the law. `profile` is its interval by the likelihood, with None for an end that the runs do not
    bound, and `bootstrap` its interval by simulated runs; both are None of a constant that was `given`, and where there
    were no more runs than constants."""

    name: str
    value: float
    given: bool = False
    profile: tuple[float | None, float | None] | None = None
    bootstrap: tuple[float, float] | None = None


@dataclass(frozen=True)
class Gap:
    """loss / prediction - 1, and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class LawRun:
    """A run: `n` parameters, `t` tokens, its loss and what the law says. `fitted` runs made the law; of the others the
    gap has an interval, of the law's error and the noise of one run."""

    model: str
    n: float
    t: float
    loss: float
    predicted: float
    gap: float
    fitted: bool
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        expect(min(self.n, self.t, self.loss) > 0, "runs above 0, got others: the file was edited")


@dataclass(frozen=True)
class LawLine:
    """The law over `n` at `t` tokens, and where 95% of new runs lie."""

    t: float
    n: tuple[float, ...]
    loss: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class ScalingLaw(Record):
    """The result of `fit_scaling_law`: L = A / N^alpha + B / T^beta + E.

    `parameters` says what N counts. `gap` is the mean over the runs that were held out, None where there are none. `noise`
    is the standard deviation of the log losses of the fitted runs about the law, None where they are no more than the
    constants. `objective` is the sum of Huber's losses of the log losses, which turn linear at `delta`.
    """

    KIND: ClassVar[str] = "scaling law"
    SCHEMA: ClassVar[str] = "uncone.scaling_law/1"
    HOW: ClassVar[str] = "uncone.fit_scaling_law(SOURCE).save(F)"
    READING: ClassVar[str] = (
        "The intervals hold the constant in 95 of 100 simulations where the law is right and the noise is log-normal, of one "
        "size for all runs. They say nothing of a law of another form. The profile interval is the one to quote."
    )

    verdict: str
    name: str
    parameters: Parameters
    constants: tuple[LawConstant, ...]
    runs: tuple[LawRun, ...]
    objective: float
    delta: float
    noise: float | None = None
    gap: Gap | None = None
    line: LawLine | None = None
    resamples: int = 0
    seed: int = 0
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = SCHEMA

    def blocks(self) -> tuple[Block, ...]:
        columns = ("constant", "value", f"{_INTERVAL}, profile", f"{_INTERVAL}, bootstrap")
        rows = tuple(
            (c.name, number(c.value), *(("given", "") if c.given else (_ends(c.profile), _ends(c.bootstrap))))
            for c in self.constants
        )
        return shown(
            Heading(self.verdict, 1),
            Text(f"L = A / N^alpha + B / T^beta + E. {COUNTED[self.parameters]}; T counts tokens.", "quiet"),
            Text(self._noise(), "quiet"),
            Table(columns, rows, columns[1:]),
            self._figure(),
            Bullets(self.notes),
            section("Runs", self._runs(), level=2),
            Text(made_with(self.versions), "quiet"),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each run."""
        return [
            {
                "model": run.model, "n": run.n, "t": run.t, "loss": run.loss, "predicted": run.predicted,
                "gap": run.gap, "gap_low": run.interval and run.interval[0], "gap_high": run.interval and run.interval[1],
                "fitted": run.fitted,
            }
            for run in self.runs
        ]  # fmt: skip

    def _noise(self) -> str:
        fitted = sum(run.fitted for run in self.runs)
        told = f"{count(fitted)} {plural(fitted, 'run')} fitted"
        if self.noise is None:
            return f"{told}: no more than constants, so that there are no intervals."
        return f"{told}; they scatter about the law by {percent(self.noise, precise=True)}."

    def _runs(self) -> Table:
        columns = ("run", "N", "T", "loss", "law", "gap", _INTERVAL)
        ordered = sorted(self.runs, key=lambda run: (run.fitted, run.n, run.t))
        rows = tuple(
            (
                run.model, f"{run.n:.4g}", f"{run.t:.4g}", number(run.loss, digits=4), number(run.predicted, digits=4),
                share(run.gap), "" if run.interval is None else between(*run.interval),
            )
            for run in ordered
        )  # fmt: skip
        held = sum(not run.fitted for run in self.runs)
        titles = (("held out", held), ("fitted", len(self.runs) - held))
        return Table(columns, rows, columns[1:], groups=tuple(title for title in titles if title[1]))

    def _figure(self) -> Figure:
        line = self.line
        if line is None:
            return Figure("", ())
        by_side = [("fitted runs", "bins", True), ("runs held out", "raw", False)]
        curves = [
            _dots(name, style, line.t, [run for run in self.runs if run.fitted is side], dict(self._values()))
            for name, style, side in by_side
        ]
        moved = " Runs of other lengths stand as far from the law as at their own." * any(run.t != line.t for run in self.runs)
        chart = Chart(
            "law", "Loss over N", f"N, {self.parameters} parameters", "loss",
            (Curve("law", line.n, line.loss, "centred"), *(curve for curve in curves if curve.x)),
            shades=(Shade(line.n, line.low, line.high),) if line.low else (), log_x=True,
            caption=f"The law at {line.t:.3g} tokens.{moved}", spark="loss over N",
        )  # fmt: skip
        legend = tuple((curve.style, curve.name) for curve in chart.curves)
        shaded = "Shaded: where 95% of new runs lie if the law holds for them." if line.low else ""
        return Figure("The law and the runs", (chart,), shaded, legend, spark="The law:")

    def _values(self) -> list[tuple[str, float]]:
        return [(constant.name, constant.value) for constant in self.constants]


def _dots(name: str, style: str, t: float, runs: list[LawRun], values: Mapping[str, float]) -> Curve:
    """The runs at one `t`: each as far above the law, in per cent, as it is at its own."""
    law = [
        values["A"] / run.n ** values["alpha"] + values["B"] / t ** values["beta"] + values["E"]
        for run in runs
    ]
    heights = tuple((1 + run.gap) * at for run, at in zip(runs, law, strict=True))
    tips = tuple(f"{run.model}: {number(run.loss, digits=4)}, {share(run.gap)}" for run in runs)
    return Curve(name, tuple(run.n for run in runs), heights, style, dots=True, tips=tips, line=False)


def share(gap: float) -> str:
    """A gap with its sign, to a tenth of a per cent."""
    return f"{gap:+.1%}"


def between(low: float, high: float) -> str:
    """An interval of gaps."""
    return f"{low:+.1%} to {high:+.1%}"


def _ends(interval: tuple[float | None, float | None] | None) -> str:
    if interval is None:
        return ""
    low, high = (None if end is None else number(end) for end in interval)
    if low is None or high is None:
        return "not bounded" if low == high else f"at most {high}" if low is None else f"at least {low}"
    return f"{low} to {high}"
