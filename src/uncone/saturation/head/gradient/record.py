"""The part of a head's record on the gradient that it passes back."""

from uncone.records.blocks import Block, Cell, Figure, Intervals, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section
from uncone.records.text import count, number, percent
from uncone.records.tokens import Estimate


@part
class KeptShare:
    """The shares of the gradients of `tokens` targets that are kept, of one group of targets by frequency.

    Of `norms` the share is ||P g|| / ||g||, of `squares` its square. `mean_*` is the mean over tokens of the
    ratio, `sum_*` the ratio of the sums. So `sum_squares` is that of the whole batch, by Frobenius norms.
    """

    name: str  # `all`, `frequent`, `medium` or `rare`
    tokens: int  # targets
    ids: int  # different ones
    mean_norms: Estimate  # mean over tokens of the ratio of norms
    sum_norms: Estimate  # sum of kept norms over the sum of norms
    mean_squares: Estimate  # mean over tokens of the ratio of squared norms
    sum_squares: Estimate  # of the whole batch: the ratio of squared Frobenius norms


@part
class GradientShare:
    """What a head of `vocabulary` rows and `dimensions` columns passes back of the gradient by its logits.

    `chance_*` is what a random subspace of `rank` dimensions keeps, in expectation. `centred` says that the
    head's mean row was taken out, as the gradient sums to 0; not so with capped logits. `groups` begin with
    all targets.
    """

    verdict: str  # whether what is lost is counting of dimensions
    vocabulary: int  # rows of the head
    dimensions: int  # its columns
    rank: int  # directions that pass anything back
    centred: bool  # the mean row was taken out
    chance_squares: float  # what a random subspace keeps of a squared norm
    chance_norms: float  # and of a norm
    groups: tuple[KeptShare, ...]  # all targets first
    definition: str = ""  # how targets were grouped

    @property
    def times_chance(self) -> float | None:
        """The share of squared norms of the whole batch, over the chance."""
        value = self.groups[0].sum_squares.value if self.groups else None
        return None if value is None else value / self.chance_squares

    def blocks(self) -> tuple[Block, ...]:
        if not self.groups:
            return ()
        columns = (
            "targets",
            "tokens",
            "squares, batch",
            "times chance",
            "squares, tokens",
            "norms, batch",
            "norms, tokens",
        )
        chance, whole = percent(self.chance_squares, precise=True), self.chance_norms
        norms = percent(whole, precise=True)
        random = (Cell("A random subspace"), "", chance, "1", chance, norms, norms)
        rows = tuple(
            (
                f"{group.name} ({count(group.ids)} ids)",
                count(group.tokens),
                _cell(group.sum_squares),
                self._times(group),
                _cell(group.mean_squares),
                _cell(group.sum_norms),
                _cell(group.mean_norms),
            )
            for group in self.groups
        )
        space = "centred head" if self.centred else "head as stored, as its logits are capped"
        drawn = tuple(
            (group.name, value / self.chance_squares, ends[0] / self.chance_squares, ends[1] / self.chance_squares)
            for group in self.groups
            if self.chance_squares
            and (value := group.sum_squares.value) is not None
            and (ends := group.sum_squares.interval) is not None
        )
        chart = Intervals("gradient share", "Kept share of the gradient", "times a random subspace", drawn, 1.0)
        return section(
            "What the head passes back",
            Text(self.verdict, "lead"),
            Table(columns, (*rows, random), columns[1:]),
            Figure("Kept share, of squared norms", (chart,) if drawn else ()),
            Text(
                f"Of g = softmax - one-hot at each token the part P g in the {self.rank} directions of the {space}. "
                "Squares: ||P g||^2 / ||g||^2; norms: ||P g|| / ||g||. Batch: sums over tokens, then the ratio; "
                "tokens: "
                f"the mean ratio. A line reaches over the 95% interval over windows of text. {self.definition}",
                "quiet",
            ),
            level=2,
        )

    def _times(self, group: KeptShare) -> str:
        value = group.sum_squares.value
        return "-" if value is None or not self.chance_squares else number(value / self.chance_squares)


def _cell(estimate: Estimate) -> str | Cell:
    if estimate.value is None:
        return "-"
    ends = "" if estimate.interval is None else " to ".join(percent(end, precise=True) for end in estimate.interval)
    return Cell(percent(estimate.value, precise=True), ends)
