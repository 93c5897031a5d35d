"""The part of a record about a direction that all states avoid."""

from collections.abc import Iterator

from uncone.records.blocks import Blocks, Cell, Folded, Row, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.text import count, number, optional, percent


@part
class AvoidedCloud:
    """Whether a direction v has <v, h> < 0 for all `n` points h; None if neither answer is proven."""

    name: str  # which states
    n: int  # states
    exists: bool | None  # whether all these states avoid a direction
    margin: float | None  # proven, of the mean norm
    bound: float | None  # no direction has a larger margin
    exact: bool = False  # proven that no direction has any margin
    remark: str = ""  # a remark on the cloud


@part
class NormDirection:
    """The direction that every output of the final LayerNorm avoids, by its gain and bias."""

    margin: float  # of every state, in closed form
    share: float  # of the mean norm
    least_gain: float  # smallest absolute gain
    states: int = 0  # states that it was checked on
    violations: int = 0  # states on the wrong side
    deviation: float | None = None  # of the states from the closed form


@part
class NegativeDirection:
    """Is there a direction v that all states avoid, <v, h> < 0 (Gao et al. 2019, theorems 1 and 2)?

    `exists` is True if this was proven for `n` states, or by the norm for all, and no held-out state violates it;
    False if no direction has a margin of `epsilon`; None otherwise. Margins are shares of `mean_norm`.
    """

    verdict: str  # what was found
    exists: bool | None  # whether all states avoid a direction; `null` if undecided
    epsilon: float  # the margin that counts, of the mean norm
    n: int  # states that were searched
    dimensions: int  # columns
    mean_norm: float  # mean norm of the states
    margin: float | None = None  # proven, of the mean norm
    bound: float | None = None  # no direction has a larger margin, of the mean norm
    exact: bool = False  # proven that no direction has any margin
    held_out: int = 0  # states that were held out
    violations: int = 0  # held-out states on the wrong side
    held_out_margin: float | None = None  # margin on held-out states
    effective_rank: float | None = None  # of the states
    chance: float = 1.0  # Cover's probability that as many random points avoid a direction
    cosine_to_mean: float | None = None  # between the direction and minus the mean state
    mean_violations: float | None = None  # share of states that do not point toward the mean state
    clouds: tuple[AvoidedCloud, ...] = ()  # the same question on other clouds
    norm: NormDirection | None = None  # of the last LayerNorm, in closed form
    direction: tuple[float, ...] = ()  # (D,), of unit length, where D is modest
    definition: str = ""  # the question, in words
    given: int = 0  # states in all; the searched states are drawn at random

    @property
    def points_per_dimension(self) -> float:
        return self.n / self.dimensions

    def blocks(self) -> Blocks:
        return section(
            "A direction that all states avoid",
            Text(self.verdict, "lead"),
            numbers(("states", "number", "a direction", "margin", "at most"), map(_row, self.clouds)),
            Folded("What the answer rests on", shown(numbers(("number", "value"), self._numbers()))),
            Text(self.definition, "quiet"),
        )

    def _numbers(self) -> Iterator[tuple[str, str]]:
        if self.n:
            yield "states per dimension", number(self.points_per_dimension)
        if self.given > self.n:
            yield "states searched", f"{count(self.n)} of {count(self.given)}, at random"
        if self.effective_rank is not None:
            yield "effective rank of the states", number(self.effective_rank)
        if self.n:
            yield "chance that as many random points avoid a direction (Cover)", number(self.chance, limits=(0, 1))
        if self.held_out:
            share = percent(self.violations / self.held_out, precise=True)
            yield "held-out states that violate it", f"{count(self.violations)} of {count(self.held_out)} ({share})"
        if self.cosine_to_mean is not None:
            yield "cosine to minus the mean state", number(self.cosine_to_mean, limits=(-1, 1))
        if self.mean_violations is not None:
            away = "states that do not point toward the mean state"
            yield away, percent(self.mean_violations, precise=True)
        if norm := self.norm:
            yield "margin of the norm's own direction", f"{number(norm.share)} of the mean norm"
            if norm.states:
                yield (
                    "states that violate the norm's own direction",
                    f"{count(norm.violations)} of {count(norm.states)}",
                )


def _row(one: AvoidedCloud) -> Row:
    answer = {True: "yes", False: "none", None: "undecided"}[one.exists] + ", exactly" * one.exact
    margin, bound = optional(one.margin if one.exists else None), optional(one.bound)
    return Cell(one.name, one.remark), count(one.n), answer, margin, bound
