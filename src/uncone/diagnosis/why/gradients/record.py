"""The part of a diagnosis on the gradient of a head's rows: what pulls them, what pushes them, and where to."""

from collections.abc import Sequence
from functools import partial

from uncone.records.blocks import Block, Cell, Chart, Curve, Figure, Folded, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section, shown
from uncone.records.text import count, number, optional, percent
from uncone.records.tokens import Estimate

_COSINES = (-1.0, 1.0)


@part
class RowGradients:
    """The gradients of the `rows` of one bin of ids, which `targets` of the text are.

    Norms are means over rows, in nats by embedding unit. `pulled` and `pushed_*` are probabilities a target: 1 - p of
    own targets, p of other frequent and other rare ones. `net` is pulled less pushed, with the 95% interval that it has
    around 0 for text which the model drew itself, put around the value. `cosine` is the mean over pairs of rows, of
    whole gradients and of pushes alone. `along` is the share of the squared norm in the direction of the mean state,
    `toward` the mean cosine
    with it: a step against a gradient toward the mean state moves the row away. `sgd`, `adam` and
    `coupled_adam` are mean steps along the mean state, at a learning rate of 1.
    """

    name: str  # of the group, or the counts of the bin
    rows: int  # rows in it
    targets: int  # targets that are its ids
    norm: float  # mean norm of a row's gradient, of the mean loss
    pull_norm: float  # of the part from own targets (a)
    frequent_norm: float  # of the part from other frequent targets (b)
    rare_norm: float  # of the part from other rare targets (c)
    pulled: float  # sum of 1 - p at own targets, a target
    pushed_by_frequent: float  # sum of p at other frequent targets, a target
    pushed_by_rare: float  # sum of p at other rare targets, a target
    net: Estimate  # pulled less pushed; its interval is as wide as chance in targets that the model draws
    cosine: float | None  # mean over pairs of rows, of gradients; null below two rows
    push_cosine: float | None  # the same of pushes alone
    along: float | None  # share of the squared norm in the direction of the mean state
    toward: float | None  # mean cosine of a row's gradient with the mean state
    sgd: float  # mean step along the mean state, at a learning rate of 1
    adam: float  # the same under Adam
    coupled_adam: float  # the same under coupled Adam

    @property
    def pushed(self) -> float:
        """Probability a target that the rows get from targets of other rows."""
        return self.pushed_by_frequent + self.pushed_by_rare


@part
class MeanDrift:
    """The mean step of all rows: its norm over the mean norm of a step, and its cosines where it is not 0."""

    optimiser: str  # its name
    share: float  # norm of the mean step over the mean norm of a step
    to_mean_state: float | None  # cosine of the mean step and the mean state; null where the mean step is rounding
    to_mean_row: float | None  # cosine of the mean step and the mean row


@part
class GradientLedger:
    """The gradient of the mean cross-entropy of `tokens` targets by the output rows, split by whose targets it comes
    from.

    `groups` begin with all rows; `bins` are by count. `zero_sum` is |sum of the rows' gradients| over the sum of the
    norms of their parts; `is_zero_sum` says that this is rounding. A cap of the logits breaks the identity.
    `logit_of_mean_row` is the mean of |h . mean row|, scaled as logits are.
    """

    # which part is largest on rare rows, whether they are in balance, and whether pushes have one direction
    verdict: str
    tokens: int  # targets that were read
    vocabulary: int  # rows of the head
    dimensions: int  # its columns
    micro_batches: int  # runs of targets that stand for an optimiser's steps
    definition: str  # how rows were cut by count
    nats: float  # mean cross-entropy
    rare_targets: int  # targets that are rare
    # `all`, then `frequent`, `medium`, `rare` and `never`, as far as there are such rows
    groups: tuple[RowGradients, ...]
    bins: tuple[RowGradients, ...]  # by powers of ten of the count
    drifts: tuple[MeanDrift, ...]  # under SGD, Adam and coupled Adam
    zero_sum: float  # norm of the sum of all rows' gradients, over the sum of the norms of their parts
    is_zero_sum: bool  # that this is rounding; false where logits are capped
    mean_state_share: float  # norm of the mean state over the mean norm of states
    mean_row_share: float  # norm of the mean row over the mean norm of rows
    state_to_minus_row: float | None  # cosine of the mean state and minus the mean row; null where one is 0
    logit_of_mean_row: float  # mean absolute product of a state and the mean row, scaled as logits are
    notes: tuple[str, ...] = ()  # what is to be said about the counts

    def group(self, name: str) -> RowGradients | None:
        """The group of this name, if there are such rows."""
        return next((group for group in self.groups if group.name == name), None)

    def blocks(self) -> tuple[Block, ...]:
        return section(
            "Where the push comes from",
            Text(self.verdict, "lead"),
            (Text(note, "caution") for note in self.notes),
            _norms(self.groups),
            _budgets(self.groups),
            Figure("Gradients by frequency", _charts(self.bins)),
            Text(self._means()),
            Text(self._identity()),
            _drifts(self.drifts),
            Folded("Directions and steps of each group", shown(_directions(self.groups))),
            Folded("By count", shown(_norms(self.bins), _budgets(self.bins), _directions(self.bins))),
            Text(self._reading(), "quiet"),
        )

    def _means(self) -> str:
        cosine = self.state_to_minus_row
        opposite = (
            "" if cosine is None else f" Its cosine with minus the mean row is {number(cosine, limits=_COSINES)}."
        )
        return (
            f"The mean state has {percent(self.mean_state_share, precise=True)} of the mean norm of states, the mean "
            f"row {percent(self.mean_row_share, precise=True)} of that of rows.{opposite} The mean row adds "
            f"{number(self.logit_of_mean_row)} to every logit of a state, in the mean of absolute values."
        )

    def _identity(self) -> str:
        told = f"The gradients of all rows sum to {number(self.zero_sum, digits=2)} of the norms of their parts"
        if self.is_zero_sum:
            return f"{told}: 0 but for rounding, so that SGD on the head never moves the mean row."
        return f"{told}, and not to 0, as the logits are capped: the cap's slope differs from row to row."

    def _reading(self) -> str:
        return (
            f"{count(self.tokens)} targets in {count(self.micro_batches)} micro-batches, {count(self.rare_targets)} of "
            f"them rare; loss {number(self.nats)} nats. {self.definition} Norms are mean norms of a row's gradient, of "
            "the mean loss: whole, the pull of own targets, the push of frequent and of rare ones. Budgets are "
            "probability a target, in per cent: pulled 1 - p of own targets, pushed p of other targets. Net: pulled "
            "less pushed, ± what it would vary by if the model had drawn the targets. Adam's moments are means over "
            "the micro-batches, at the model as it is."
        )


def _norms(groups: Sequence[RowGradients]) -> Table:
    columns = ("rows of", "rows", "targets", "norm", "pull", "by frequent", "by rare")
    rows = tuple(
        (
            group.name,
            count(group.rows),
            count(group.targets),
            *map(_small, (group.norm, group.pull_norm, group.frequent_norm, group.rare_norm)),
        )
        for group in groups
    )
    return Table(columns, rows, columns[1:])


def _budgets(groups: Sequence[RowGradients]) -> Table:
    columns = ("rows of", "pulled, %", "pushed, %", "of it by rare", "net, %")
    rows = tuple(
        (
            group.name,
            _budget(group.pulled),
            _budget(group.pushed),
            percent(group.pushed_by_rare / group.pushed, precise=True) if group.pushed else "-",
            _net(group.net),
        )
        for group in groups
    )
    return Table(columns, rows, columns[1:])


def _directions(groups: Sequence[RowGradients]) -> Table:
    columns = ("rows of", "cosine", "of pushes", "along mean state", "cosine with it", "SGD", "Adam", "coupled Adam")
    rows = tuple(
        (
            group.name,
            optional(group.cosine, _COSINES),
            optional(group.push_cosine, _COSINES),
            optional(group.along, shown=partial(percent, precise=True)),
            optional(group.toward, _COSINES),
            *map(_small, (group.sgd, group.adam, group.coupled_adam)),
        )
        for group in groups
    )
    return Table(columns, rows, columns[1:])


def _drifts(drifts: Sequence[MeanDrift]) -> Table:
    columns = ("mean drift under", "of a step's norm", "cosine with minus mean state", "cosine with mean row")
    rows = tuple(
        (
            drift.optimiser,
            _small(drift.share),
            optional(None if drift.to_mean_state is None else -drift.to_mean_state, _COSINES),
            optional(drift.to_mean_row, _COSINES),
        )
        for drift in drifts
    )
    return Table(columns, rows, columns[1:])


def _small(value: float) -> str:
    return number(value, digits=2)


def _budget(value: float) -> str:
    return number(100 * value)


def _net(net: Estimate) -> Cell | str:
    if net.value is None:
        return "-"
    reach = "" if net.interval is None else f"± {number(50 * (net.interval[1] - net.interval[0]), digits=2)}"
    return Cell(_budget(net.value), reach)


def _charts(bins: Sequence[RowGradients]) -> tuple[Chart, ...]:
    """Norms of the parts and cosines by the mean number of targets of a row, where there are two bins at least."""
    kept = [group for group in bins if group.targets > 0]
    if len(kept) < 2:
        return ()
    x = tuple(group.targets / group.rows for group in kept)
    norms = tuple(
        Curve(name, x, tuple(value if value > 0 else None for value in values), style, dots=True)
        for name, style, values in (
            ("pull", "raw", [group.pull_norm for group in kept]),
            ("push of frequent targets", "centred", [group.frequent_norm for group in kept]),
            ("push of rare targets", "even", [group.rare_norm for group in kept]),
        )
    )
    pushed = Curve("pushes", x, tuple(group.push_cosine for group in kept), "centred", dots=True)
    whole = Curve("gradients", x, tuple(group.cosine for group in kept), "raw", dots=True)
    targets = "targets a row in this text"
    return (
        Chart(
            "gradient norms",
            "Parts of the gradient",
            targets,
            "mean norm",
            norms,
            log_x=True,
            log_y=True,
            caption="Pull, push of frequent targets, push of rare targets.",
            spark="pull",
        ),
        Chart(
            "gradient cosines",
            "Directions of the gradient",
            targets,
            "mean cosine",
            (whole, pushed),
            log_x=True,
            caption="Mean cosine between rows of a bin: of gradients and of pushes alone.",
            spark="gradients",
        ),
    )
