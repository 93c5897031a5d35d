from uncone.records.blocks import Blocks, Cell, Figure, Intervals, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section
from uncone.records.text import count, optional, percent
from uncone.records.tokens import Estimate


@part
class KeptShare:
    name: str  # `all`, `frequent`, `medium` or `rare`
    tokens: int  # targets
    ids: int  # different targets
    mean_norms: Estimate  # mean over tokens of the ratio of norms
    sum_norms: Estimate  # sum of kept norms over the sum of norms
    mean_squares: Estimate  # mean over tokens of the ratio of squared norms
    sum_squares: Estimate  # of the whole batch: the ratio of squared Frobenius norms


@part
class GradientShare:
    verdict: str  # whether the number of dimensions explains what is lost
    vocabulary: int  # rows of the head
    dimensions: int  # columns of the head
    rank: int  # directions that pass anything back
    centred: bool  # the mean row was subtracted
    chance_squares: float  # what a random subspace keeps of a squared norm
    chance_norms: float  # what a random subspace keeps of a norm
    groups: tuple[KeptShare, ...]  # all targets first
    definition: str = ""  # how targets were grouped

    @property
    def times_chance(self) -> float | None:
        """The share of squared norms of the whole batch, over the chance."""
        value = self.groups[0].sum_squares.value if self.groups else None
        return None if value is None or self.chance_squares <= 0 else value / self.chance_squares

    @property
    def times_chance_of_norms(self) -> float | None:
        """The ratio of norms, a mean over tokens, over the chance: about the root of `times_chance`."""
        value = self.groups[0].mean_norms.value if self.groups else None
        return None if value is None or self.chance_norms <= 0 else value / self.chance_norms

    def blocks(self) -> Blocks:
        if not self.groups:
            return ()
        numbers = ("tokens", "squares, batch", "times chance", "squares, tokens", "norms, batch", "norms, tokens")
        chance, norms = (percent(value, precise=True) for value in (self.chance_squares, self.chance_norms))
        random = (Cell("A random subspace"), "", chance, "1", chance, norms, norms)
        space = "centred head" if self.centred else "head as stored (its logits are capped)"
        rows, drawn = list[Row](), list[tuple[str, float, float, float]]()
        for group in self.groups:
            value, ends, by = group.sum_squares.value, group.sum_squares.interval, self.chance_squares
            times = None if value is None or by <= 0 else value / by
            if times is not None and ends is not None:
                drawn.append((group.name, times, ends[0] / by, ends[1] / by))
            squares, *others = map(_cell, (group.sum_squares, group.mean_squares, group.sum_norms, group.mean_norms))
            name = f"{group.name} ({count(group.ids)} ids)"
            rows.append((name, count(group.tokens), squares, optional(times), *others))
        words = ("gradient share", "Kept share of the gradient", "times a random subspace")
        return section(
            "What the head passes back",
            Text(self.verdict, "lead"),
            Table(("targets", *numbers), (*rows, random), numbers),
            Figure("Kept share, of squared norms", (Intervals(*words, tuple(drawn), 1.0),) if drawn else ()),
            Text(
                f"At each token P g is the part of g = softmax - one-hot in the {self.rank} directions of the {space}. "
                "Squares: ||P g||^2 / ||g||^2. Norms: ||P g|| / ||g||. Batch: sums over tokens, then the ratio. "
                "Tokens: the mean ratio. A line is the 95% interval over windows of text. "
                f"{self.definition}",
                "quiet",
            ),
            level=2,
        )


def _cell(estimate: Estimate) -> str | Cell:
    if estimate.value is None:
        return "-"
    value, *ends = (percent(one, precise=True) for one in (estimate.value, *(estimate.interval or ())))
    return Cell(value, " to ".join(ends))
