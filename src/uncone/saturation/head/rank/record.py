from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from uncone.records.blocks import Blocks, Bullets, Cell, Chart, Curve, Figure, Folded, Heading, Mark, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.text import count, counted, listing, number, percent, signed
from uncone.records.tokens import Estimate

Method = Literal["plain", "data_aware", "refit", "random_start"]
NAMES: dict[Method, str] = {
    "plain": "plain truncation",
    "data_aware": "data-aware truncation",
    "refit": "refit, best of its starts",
    "random_start": "refit from a random A B",
}
_STYLES: dict[Method, str] = {"plain": "d1", "data_aware": "d2", "refit": "d3", "random_start": "d4"}
_ABOUT = (
    "Plain: the singular value decomposition of the head, cut off. Data-aware: the cut that changes the logits of this "
    "text least. Refit: a head A B trained on frozen states; its loss is an upper bound of what the rank can reach, "
    "because the problem is not convex. From a random A B: trained as in Godey et al. (2024)."
)


@part
class SmallestRank:
    """The margin counts from the full head's loss, or for a refit from its own loss at full rank, if that is lower."""

    rank: int | None  # from this rank on no loss is above the margin; `null`: not even at the full rank
    low: int | None  # lower end of its 95% interval, which all heads share
    high: int | None  # upper end


@part
class Kink:
    """A kink in the curve of excess loss against rank, both logarithmic."""

    found: bool  # whether there is a kink
    reason: str  # in words
    rank: float | None = None  # of the best broken curve, found or not
    low: float | None = None  # lower end of its 95% interval
    high: float | None = None  # upper end
    turn: float | None = None  # by how much the slope changes there
    smooth: float | None = None  # root mean square residual of the best smooth curve, in log excess
    broken: float | None = None  # the same for the best broken curve


@part
class CutBounds:
    """The most nats per token by which the loss on the held-out states x changes: sqrt(2) times each product.

    `spectral`: E||x|| ||W - W'||_2. `frobenius`: E||x|| ||W - W'||_F. `on_states`: the root mean square of ||(W - W')
    x||, which is ||(W - W') S^(1/2)||_F with the second moment S.
    """

    spectral: float  # the most nats per token that the cut can cost on the held-out tokens, by its spectral norm
    frobenius: float  # by its Frobenius norm
    on_states: float  # by the root mean square of its logits over the held-out states


@part
class Start:
    name: str  # where the refit began
    objective: float  # after the trial; at full rank after the training


@part
class RankLine:
    method: Method  # `plain`, `data_aware`, `refit` or `random_start`
    losses: tuple[float, ...]  # at each rank, on the held-out part
    excess: tuple[float, ...]  # over the full head on the same tokens
    errors: tuple[float, ...]  # standard errors of the excess
    smallest: SmallestRank  # the answer
    kink: Kink  # whether the curve has a kink
    whole: tuple[float, ...] = ()  # of truncations: losses on the whole text
    bounds: tuple[CutBounds, ...] = ()  # of truncations: on the held-out part
    starts: tuple[tuple[Start, ...], ...] = ()  # of refits


@part
class Refitting:
    tokens: int  # trained on
    teacher: float  # share of the target that is the full head's own probability
    evaluations: int  # gradients that each start may take
    objective: float  # of the refit of full rank
    gradient: float  # norm of its gradient
    gap: float | None = None  # how much higher a start from zeros ended, which older versions trained
    spent: int = 0  # gradients that the refit of full rank took
    moved: float | None = None  # change of its held-out loss over the last half of `spent`
    converged: bool | None = None  # that change is at most a tenth of the margin; `null` in older files


@part
class Remedy:
    experts: int  # softmaxes of the mixture
    width: int  # columns of the wider head
    mixture_parameters: int  # of the mixture
    wider_parameters: int  # of the wider head
    steps: int  # of training, for each
    mixture: tuple[float, ...]  # its held-out loss for each seed
    wider: tuple[float, ...]  # the wider head's held-out loss for each seed
    difference: float  # mixture less wider, mean over seeds
    low: float  # lower end of its 95% interval
    high: float  # upper end


@part
class TextFit:
    """How well the model fits the text, on held-out tokens. Finding no misfit does not prove a fit."""

    misfit: bool  # token frequencies beat the full head, or another head that was read does by more than the margin
    unigram: float  # loss of the token frequencies of the other blocks, each count plus one half
    refit: float | None  # loss of the refit of full rank; `null` without refits, or where it did not converge
    over_unigram: Estimate  # the unigram's loss less the full head's
    gain: Estimate  # the full head's loss less the loss of the best cut or refit of full rank; 0 if none is better


@part
class RankCurve:
    verdict: str  # how small the head may be
    v: int  # rows of the head
    d: int  # columns of the head
    tokens: int  # of the text
    held_out: int  # on which losses are read
    block: int  # consecutive tokens that are resampled together
    ranks: tuple[int, ...]  # ascending, the full one last
    full_loss: float  # of the full head, nats per token
    full_error: float  # its standard error by blocks
    margin_nats: float  # how far a loss may be above the full head's
    lines: tuple[RankLine, ...]  # one for each method
    refitting: Refitting | None = None  # how refits were trained
    remedy: Remedy | None = None  # a mixture of softmaxes compared with a wider head
    notes: tuple[str, ...] = ()  # what the numbers are based on
    fit: TextFit | None = None  # of the model and the text; `null` in older files

    def __post_init__(self) -> None:
        expect(min(self.v, self.d) > 0 and bool(self.lines and self.ranks), "a head, ranks and a line, got none of one")
        for line in self.lines:
            rank, n, lengths = line.smallest.rank, len(self.ranks), [*map(len, (line.losses, line.excess, line.errors))]
            expect(rank in (None, *self.ranks), f"a smallest rank among the ranks, got {rank}: the file was edited")
            came = f"{listing([*map(str, lengths)])} of {line.method}: the file was cut or edited"
            fits = lengths == [n] * 3 and len(line.bounds) in (0, n) and len(line.whole) >= len(line.bounds)
            expect(fits, f"a loss for each of {n} ranks, got {came}")

    @property
    def answer(self) -> tuple[int, Method] | None:
        """The smallest rank at which a head stays within the margin with its whole interval, and that head's method;
        None if there is none."""
        kept = [(line.smallest.high, line.method) for line in self.lines if line.smallest.high is not None]
        return min(kept, default=None, key=lambda one: one[0])

    def saved(self, rank: int) -> float:
        """The share of the head's parameters that a factored head saves; below 0 it has more."""
        return 1 - rank * (self.v + self.d) / (self.v * self.d)

    def blocks(self) -> Blocks:
        read = f"Losses are read on {counted(self.held_out, 'held-out token')} of {count(self.tokens)}"
        full = f"The full head, {count(self.v)} x {self.d}, has a loss of {number(self.full_loss)} nats per token"
        about = f"{full}. {read}."
        kinks = tuple(f"{NAMES[line.method]}: {line.kink.reason}" for line in self.lines)
        return shown(
            Heading("How small the head may be", 2, about=about),
            Text(self.verdict, "lead"),
            self._figure(),
            self._answers() if any(line.smallest.rank for line in self.lines) else (),
            Text(_ABOUT, "quiet"),
            Folded("Loss of every rank", (self._losses(), *self._wholes()), in_terminal=True),
            section("Kinks", Bullets(kinks)),
            section("Remedy", self._remedies()),
            section("What the losses are based on", Bullets((*self._trained(), *self.notes))),
        )

    def _figure(self) -> Figure:
        drawn = list(map(self._curve, self.lines))
        top = 1.5 * max(loss for line in self.lines for loss in line.losses)  # no bound is drawn far above every loss
        for line in self.lines:
            heights = (self.full_loss + one.on_states for one in line.bounds if line.method == "data_aware")
            if any(kept := tuple(y if y <= top else None for y in heights)):
                drawn.append(Curve("bound of the data-aware cut", drawn[0].x, kept, "even"))
        upper = Mark(self.full_loss + self.margin_nats, "y")
        marks = (Mark(self.full_loss, "y", f"full head {number(self.full_loss)}"), upper)
        axes = ("rank", "Loss against rank", "rank of the head", "loss (nats per token, held out)")
        chart = Chart(*axes, tuple(drawn), marks=marks, log_x=len(self.ranks) > 1, spark="loss by rank")
        chart = replace(chart, caption=f"Upper dashed line: {number(self.margin_nats)} nats above the full head.")
        return Figure("Loss against rank", (chart,), legend=tuple((c.style, c.name) for c in drawn))

    def _curve(self, line: RankLine) -> Curve:
        errors = zip(self.ranks, line.losses, line.excess, line.errors, strict=True)
        tips = tuple(f"rank {r}: {number(y)} ({signed(e)} ± {number(se)})" for r, y, e, se in errors)
        return Curve(NAMES[line.method], tuple(map(float, self.ranks)), line.losses, _STYLES[line.method], True, tips)

    def _answers(self) -> Table:
        rows = list[Row]()
        for line in self.lines:
            rank, low, high = line.smallest.rank, line.smallest.low, line.smallest.high
            interval = "" if low == high else " to ".join(count(end) if end else "none" for end in (low, high))
            answer: Row = (Cell("none", interval), "", "")
            if rank is not None:
                excess = signed(line.excess[self.ranks.index(rank)])
                answer = (Cell(count(rank), interval, "strong"), self._saved(rank), excess)
            rows.append((NAMES[line.method], *answer))
        smallest = f"smallest rank within {number(self.margin_nats)} nats"
        columns = ("method", smallest, "parameters saved", "loss above the full head's")
        return numbers(columns, rows)

    def _saved(self, rank: int) -> str:
        return percent(saved) if (saved := self.saved(rank)) > 0 else "none"

    def _losses(self) -> Table:
        columns = ("rank", *(NAMES[line.method] for line in self.lines), "parameters saved")
        rows = list[Row]()
        for i, rank in enumerate(self.ranks):
            losses = (Cell(signed(line.excess[i]), f"± {number(line.errors[i])}") for line in self.lines)
            rows.append((count(rank), *losses, self._saved(rank)))
        title = "Loss above the full head's, nats per token, with its standard error by blocks"
        return Table(columns, tuple(rows), columns, title)

    def _wholes(self) -> Iterator[Table]:
        bounds = ("bound on states", "bound, spectral", "bound, Frobenius")
        columns = ("rank", "loss, whole text", "change, whole text", "change, held out", *bounds)
        for line in self.lines:
            rows = list[tuple[str, ...]]()
            for rank, loss, excess, bound in zip(self.ranks, line.whole, line.excess, line.bounds, strict=False):
                sizes = map(number, (bound.on_states, bound.spectral, bound.frobenius))
                rows.append((count(rank), number(loss), signed(loss - line.whole[-1]), signed(excess), *sizes))
            title = f"{NAMES[line.method].capitalize()}: its loss, and the most that it can cost on held-out tokens"
            if rows:
                yield Table(columns, tuple(rows), columns, title)

    def _trained(self) -> tuple[str, ...]:
        if (one := self.refitting) is None:
            return ()
        return (
            f"Refits are trained on {counted(one.tokens, 'token')}, with up to {one.evaluations} gradients per start. "
            f"Their target is {percent(one.teacher)} the full head's probabilities and for the rest the next token.",
            f"The refit of full rank is convex: its gradient's norm is {number(one.gradient)} at an objective of "
            f"{number(one.objective)}{self._ended(one)}.",
        )

    def _ended(self, one: Refitting) -> str:
        if one.moved is None:
            return ""
        spent = f", after {counted(one.spent, 'gradient')}. Its held-out loss changed by {number(one.moved)} nats"
        return f"{spent} over the last half of them: it {'has' if one.converged else 'has not'} converged"

    def _remedies(self) -> Blocks:
        if (one := self.remedy) is None:
            return ()
        side = "is better than" if one.high < 0 else "is worse than" if one.low > 0 else "cannot be distinguished from"
        verdict = (
            f"A mixture of {one.experts} softmaxes {side} one softmax on {one.width} columns with as many parameters: "
            f"{signed(one.difference)} nats per token ({signed(one.low)} to {signed(one.high)})."
        )
        rows = (
            ("mixture of softmaxes", count(one.mixture_parameters), ", ".join(map(number, one.mixture))),
            ("one wider softmax", count(one.wider_parameters), ", ".join(map(number, one.wider))),
        )
        steps = f"{counted(one.steps, 'step')} each on the same batches"
        columns = ("head on frozen states", "parameters", "loss (nats per token)")
        title = f"Held-out loss for each of {len(one.mixture)} seeds, {steps}"
        return Text(verdict), Table(columns, rows, columns[1:], title)
