"""The part of a diagnosis about the gradient of a head's rows: what pulls and pushes them, and where."""

from collections.abc import Sequence
from functools import partial

from uncone.records.blocks import Blocks, Cell, Chart, Curve, Figure, Folded, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.text import count, number, optional, percent
from uncone.records.tokens import Estimate

_COSINES = (-1.0, 1.0)
_DRIFT = ("mean drift under", "of a step's norm", "cosine with minus mean state", "cosine with mean row")


@part
class RowGradients:
    """Gradients of the rows of one bin, in nats per embedding unit. The interval of `net` is the 95% interval around 0
    for text that the model drew itself, moved to the value. A step against a gradient `toward` the mean state moves the
    row away from it."""

    name: str  # the group, or the counts of the bin
    rows: int  # rows in it
    targets: int  # targets that are ids of these rows
    norm: float  # mean norm of a row's gradient, of the mean loss
    pull_norm: float  # of the part from own targets (a)
    frequent_norm: float  # of the part from other frequent targets (b)
    rare_norm: float  # of the part from other rare targets (c)
    pulled: float  # sum of 1 - p at own targets, per target
    pushed_by_frequent: float  # sum of p at other frequent targets, per target
    pushed_by_rare: float  # sum of p at other rare targets, per target
    net: Estimate  # pulled less pushed; its interval is as wide as chance if the model draws the targets
    cosine: float | None  # mean over pairs of rows, between gradients; null below two rows
    push_cosine: float | None  # the same between pushes alone
    along: float | None  # share of the squared norm in the direction of the mean state
    toward: float | None  # mean cosine of a row's gradient with the mean state
    sgd: float  # mean step along the mean state, at a learning rate of 1
    adam: float  # the same under Adam
    coupled_adam: float  # the same under coupled Adam

    @property
    def pushed(self) -> float:
        return self.pushed_by_frequent + self.pushed_by_rare


@part
class MeanDrift:
    """The mean step of all rows, with its cosines if the step is not 0."""

    optimiser: str  # its name
    share: float  # norm of the mean step over the mean norm of a step
    to_mean_state: float | None  # cosine of the mean step and the mean state; null if the mean step is rounding
    to_mean_row: float | None  # cosine of the mean step and the mean row


@part
class GradientLedger:
    """The gradient of output rows, split by the targets that it comes from."""

    # which part is largest on rare rows, whether they are in balance, and whether pushes have one direction
    verdict: str
    tokens: int  # targets that were read
    vocabulary: int  # rows of the head
    dimensions: int  # its columns
    micro_batches: int  # runs of targets that stand for an optimiser's steps
    definition: str  # how rows were cut by count
    nats: float  # mean cross-entropy
    rare_targets: int  # targets that are rare
    # `all`, then `frequent`, `medium`, `rare` and `never`, if there are such rows
    groups: tuple[RowGradients, ...]
    bins: tuple[RowGradients, ...]  # by powers of ten of the count
    drifts: tuple[MeanDrift, ...]  # under SGD, Adam and coupled Adam
    zero_sum: float  # norm of the sum of all rows' gradients, over the sum of the norms of their parts
    is_zero_sum: bool  # whether this is rounding; false if logits are capped
    mean_state_share: float  # norm of the mean state over the mean norm of states
    mean_row_share: float  # norm of the mean row over the mean norm of rows
    state_to_minus_row: float | None  # cosine of the mean state and minus the mean row; null if either is 0
    logit_of_mean_row: float  # mean absolute product of a state and the mean row, scaled as logits are
    notes: tuple[str, ...] = ()  # remarks on the counts

    def group(self, name: str) -> RowGradients | None:
        return next((group for group in self.groups if group.name == name), None)

    def blocks(self) -> Blocks:
        return section(
            "Where the push comes from",
            Text(self.verdict, "lead"),
            (Text(note, "caution") for note in self.notes),
            _norms(self.groups),
            _budgets(self.groups),
            Figure("Gradients by frequency", _charts(self.bins)),
            Text(self._means()),
            Text(self._identity()),
            numbers(_DRIFT, map(_drift, self.drifts)),
            Folded("Directions and steps of each group", shown(_directions(self.groups))),
            Folded("By count", shown(_norms(self.bins), _budgets(self.bins), _directions(self.bins))),
            Text(self._reading(), "quiet"),
        )

    def _means(self) -> str:
        cosine = self.state_to_minus_row
        opposite = (
            ""
            if cosine is None
            else f" The mean state has a cosine of {optional(cosine, _COSINES)} with minus the mean row."
        )
        return (
            f"The mean state is {percent(self.mean_state_share, precise=True)} as long as an average state, and the "
            f"mean row {percent(self.mean_row_share, precise=True)} as long as an average row.{opposite} The mean row "
            f"adds {number(self.logit_of_mean_row)} to every logit of a state (mean absolute value)."
        )

    def _identity(self) -> str:
        rest = ", not to 0, because the logits are capped and the cap's slope differs from row to row."
        if self.is_zero_sum:
            rest = ". This is 0 but for rounding, so SGD on the head never moves the mean row."
        return f"The gradients of all rows sum to {number(self.zero_sum, digits=2)} of the norms of their parts{rest}"

    def _reading(self) -> str:
        return (
            f"{count(self.tokens)} targets in {count(self.micro_batches)} micro-batches, {count(self.rare_targets)} of "
            f"them rare; loss {number(self.nats)} nats. {self.definition} Norms are mean norms of a row's gradient of "
            "the mean loss: the whole, the pull of its own targets, and the push of frequent and of rare targets. "
            "Budgets are probabilities per target, in per cent: own targets pull by 1 - p, other targets push by p. "
            "Net: pulled less pushed, ± its variation if the model had drawn the targets. Adam's moments are means "
            "over the micro-batches, for the model as it is."
        )


def _norms(groups: Sequence[RowGradients]) -> Table:
    rows = (
        (g.name, count(g.rows), count(g.targets), *map(_small, (g.norm, g.pull_norm, g.frequent_norm, g.rare_norm)))
        for g in groups
    )
    return numbers(("rows of", "rows", "targets", "norm", "pull", "by frequent", "by rare"), rows)


def _budgets(groups: Sequence[RowGradients]) -> Table:
    def row(g: RowGradients) -> Row:
        by_rare = percent(g.pushed_by_rare / g.pushed, precise=True) if g.pushed else "-"
        low, high = g.net.interval or (None, None)
        reach = "" if low is None or high is None else f"± {_small(50 * (high - low))}"
        net = "-" if g.net.value is None else Cell(number(100 * g.net.value), reach)
        return g.name, number(100 * g.pulled), number(100 * g.pushed), by_rare, net

    columns = ("rows of", "pulled, %", "pushed, %", "share by rare", "net, %")
    return numbers(columns, map(row, groups))


def _directions(groups: Sequence[RowGradients]) -> Table:
    def row(g: RowGradients) -> tuple[str, ...]:
        *cosines, toward = (optional(value, _COSINES) for value in (g.cosine, g.push_cosine, g.toward))
        along = optional(g.along, shown=partial(percent, precise=True))
        return g.name, *cosines, along, toward, *map(_small, (g.sgd, g.adam, g.coupled_adam))

    columns = ("rows of", "cosine", "of pushes", "along mean state", "cosine with it", "SGD", "Adam", "coupled Adam")
    return numbers(columns, map(row, groups))


def _drift(of: MeanDrift) -> tuple[str, ...]:
    away = None if of.to_mean_state is None else -of.to_mean_state
    return of.optimiser, _small(of.share), optional(away, _COSINES), optional(of.to_mean_row, _COSINES)


def _small(value: float) -> str:
    return number(value, digits=2)


def _charts(bins: Sequence[RowGradients]) -> tuple[Chart, ...]:
    kept = [one for one in bins if one.targets > 0]
    if len(kept) < 2:
        return ()
    x, targets = tuple(one.targets / one.rows for one in kept), "targets per row in this text"

    def curve(name: str, style: str, field: str) -> Curve:
        values = (getattr(one, field) for one in kept)
        is_norm = field.endswith("norm")
        return Curve(name, x, tuple(None if is_norm and value <= 0 else value for value in values), style, dots=True)

    norms = (
        curve("pull", "raw", "pull_norm"),
        curve("push of frequent targets", "centred", "frequent_norm"),
        curve("push of rare targets", "even", "rare_norm"),
    )
    cosines = curve("gradients", "raw", "cosine"), curve("pushes", "centred", "push_cosine")
    parts = "Pull, push of frequent targets, push of rare targets."
    within = "Mean cosine between rows of a bin: whole gradients, and pushes alone."
    first = ("gradient norms", "Parts of the gradient", targets, "mean norm", norms)
    second = ("gradient cosines", "Directions of the gradient", targets, "mean cosine", cosines)
    return (
        Chart(*first, log_x=True, log_y=True, caption=parts, spark="pull"),
        Chart(*second, log_x=True, caption=within, spark="gradients"),
    )
