"""The part of a record on a direction that all states avoid."""

from uncone.records.blocks import Block, Cell, Folded, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section, shown
from uncone.records.text import count, number, optional, percent


@part
class AvoidedCloud:
    """Whether a direction v has <v, h> < 0 for all `n` points h of a cloud, and its margin as a share of their mean
    norm.

    `exists` is True with the proven `margin`, False where none has a margin of epsilon, as `bound` says, and None where
    neither is proven. `exact` says that 0 lies inside of a simplex of points beyond all rounding: no margin at all.
    """

    name: str  # which states
    n: int  # states
    exists: bool | None  # whether all avoid a direction
    margin: float | None  # proven, of the mean norm
    bound: float | None  # no direction has more
    exact: bool = False  # proven with no margin at all
    remark: str = ""  # what to know of it


@part
class NormDirection:
    """The direction that every output of the final LayerNorm avoids, by its gain and bias alone, for any text.

    `margin` is a length, `share` its share of the mean norm of states. Of the states that were given `violations` do
    not avoid it, and `deviation` is how far a state's height lies from minus the margin at most, as a share of the mean
    norm.
    """

    margin: float  # of every state, in closed form
    share: float  # of the mean norm
    least_gain: float  # smallest absolute gain
    states: int = 0  # states that it was checked on
    violations: int = 0  # of those, on the wrong side
    deviation: float | None = None  # of the states from the closed form


@part
class NegativeDirection:
    """Is there a direction v that all states avoid, <v, h> < 0 (Gao et al. 2019, theorems 1 and 2)?

    `exists` is True where it was proven for `n` states, or by the norm for all, and no held-out state violates it;
    False where no direction has a margin of `epsilon` times the mean norm; None where that is undecided, or where the
    direction of the searched states fails on held-out ones. Margins are shares of `mean_norm`. `chance` is how likely
    random points of this number have such a direction (Cover 1965). `cosine_to_mean` is between v and minus the mean
    state, and `mean_violations` the share of states that minus the mean state is no such direction for.
    """

    verdict: str  # one sentence
    exists: bool | None  # whether all states avoid a direction; `null` where undecided
    epsilon: float  # the margin that counts, of the mean norm
    n: int  # states that were searched
    dimensions: int  # columns
    mean_norm: float  # mean norm of the states
    margin: float | None  # proven, of the mean norm
    bound: float | None  # no direction has more, of the mean norm
    exact: bool  # false is proven with no margin at all
    held_out: int  # states that were held out
    violations: int  # of those, on the wrong side
    held_out_margin: float | None  # margin on held-out states
    effective_rank: float | None  # of the states
    chance: float  # Cover's probability that random points have one
    cosine_to_mean: float | None  # of the direction and minus the mean state
    mean_violations: float | None  # share of states that minus the mean state is no such direction for
    clouds: tuple[AvoidedCloud, ...]  # the same question on other clouds
    norm: NormDirection | None  # of the last LayerNorm, in closed form
    direction: tuple[float, ...]  # (D,), of unit length, where D is modest
    definition: str = ""  # what was asked, in words

    @property
    def points_per_dimension(self) -> float:
        return self.n / self.dimensions

    def blocks(self) -> tuple[Block, ...]:
        columns = ("states", "number", "a direction", "margin", "at most")
        rows = tuple(
            (
                Cell(one.name, one.remark),
                count(one.n),
                _answer(one),
                optional(one.margin if one.exists else None),
                optional(one.bound),
            )
            for one in self.clouds
        )
        return section(
            "A direction that all states avoid",
            Text(self.verdict, "lead"),
            Table(columns, rows, columns[1:]),
            Folded("What the answer rests on", shown(Table(("number", "value"), self._numbers(), ("value",)))),
            Text(self.definition, "quiet"),
        )

    def _numbers(self) -> tuple[tuple[str, str], ...]:
        found = [("states per dimension", number(self.points_per_dimension))] if self.n else []
        if self.effective_rank is not None:
            found.append(("effective rank of the states", number(self.effective_rank)))
        if self.n:
            found.append(("chance that as many random points have one (Cover)", number(self.chance, limits=(0, 1))))
        if self.held_out:
            share = percent(self.violations / self.held_out, precise=True)
            found.append(
                ("held-out states that violate it", f"{count(self.violations)} of {count(self.held_out)} ({share})")
            )
        if self.cosine_to_mean is not None:
            found.append(("cosine to minus the mean state", number(self.cosine_to_mean, limits=(-1, 1))))
        if self.mean_violations is not None:
            found.append(
                (
                    "states that minus the mean state does not lead away from",
                    percent(self.mean_violations, precise=True),
                )
            )
        if self.norm is not None:
            found.append(("margin of the norm's own direction", f"{number(self.norm.share)} of the mean norm"))
            if self.norm.states:
                found.append(
                    (
                        "states that violate the norm's own",
                        f"{count(self.norm.violations)} of {count(self.norm.states)}",
                    )
                )
        return tuple(found)


def _answer(cloud: AvoidedCloud) -> str:
    said = {True: "yes", False: "none", None: "undecided"}[cloud.exists]
    return f"{said}, exactly" if cloud.exact else said
