"""The part of a head's record on states without their dominant directions."""

from typing import Literal

from uncone.records.blocks import Block, Cell, Chart, Curve, Figure, Mark, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section
from uncone.records.text import count, number, percent, signed
from uncone.records.tokens import Estimate

_DIRECTIONS = {"raw": "second moment", "centred": "covariance", "random": "random directions"}
_STYLES = {"raw": "raw", "centred": "centred", "random": "isotropic"}


@part
class Excised:
    """The states without `k` directions: those of the raw second moment, of the centred covariance, or random ones.

    `energy` is the share of the states' squared norms that was in them (about the mean for centred ones). `change` is
    of the loss, in nats a token. `alignment` is the cosine of the states' second moment (or covariance) with the
    head's, and `chance` what a random rotation would leave of it. `overlap` is the mean squared cosine of the
    principal angles between the leading directions of both, `overlap_chance` that of random ones.
    """

    directions: Literal["raw", "centred", "random"]  # `raw`, `centred` or `random`
    k: int  # how many were taken out
    energy: float  # share of the states' squared norms in them (about the mean for `centred`)
    change: Estimate  # of the loss, in nats a token, with a 95 % interval over windows of text
    alignment: float  # cosine of the second moments of states and head
    chance: float  # of it under a random rotation
    overlap: float  # mean squared cosine of the principal angles of leading directions
    overlap_chance: float  # of random ones


@part
class Excision:
    """The loss and the alignment with the head as dominant directions are taken out of the states.

    `cause` is "harmless drift" where a few directions hide the alignment and the loss does without them, "information"
    where it rises more than without random ones, and "none" where neither is shown.
    """

    verdict: str
    cause: Literal["harmless drift", "information", "none"]  # `harmless drift`, `information` or `none`
    loss: float  # nats a token, nothing taken out
    tokens: int
    dimensions: int  # columns of the states
    leading: int  # directions that the overlap compares
    rows: tuple[Excised, ...]

    def blocks(self) -> tuple[Block, ...]:
        columns = ("directions", "taken out", "energy", "change of loss", "alignment", "overlap")
        curves = tuple(self._curve(kind) for kind in _DIRECTIONS)
        drawn = tuple(curve for curve in curves if len(curve.x) > 1)
        chart = Chart(
            "excision",
            "Change of loss",
            "directions taken out",
            "nats a token",
            drawn,
            marks=(Mark(0.0, "y"),),
            log_x=True,
        )
        return section(
            "States without their dominant directions",
            Text(self.verdict, "lead"),
            Table(columns, tuple(map(self._row, self.rows)), columns[1:]),
            Figure("Change of loss by directions taken out", (chart,) if drawn else ()),
            Text(
                f"Loss {number(self.loss)} nats a token on {count(self.tokens)} tokens. Alignment: the cosine of the "
                "second moments (of the covariances, for centred directions) of states and of the centred head, "
                "below it "
                f"that of a random rotation. Overlap: of the {self.leading} leading directions of both, the mean "
                "squared "
                "cosine of the principal angles, below it that of random ones. Random directions: means of several "
                "draws, as are their ends.",
                "quiet",
            ),
            level=2,
        )

    def _row(self, row: Excised) -> tuple[str | Cell, ...]:
        change, ends = row.change.value or 0.0, row.change.interval
        reach = "" if ends is None else f"{signed(ends[0])} to {signed(ends[1])}"
        return (
            _DIRECTIONS[row.directions],
            count(row.k),
            percent(row.energy, precise=True),
            Cell(signed(change), reach),
            Cell(number(row.alignment, limits=(0, 1)), f"chance {number(row.chance)}"),
            Cell(number(row.overlap, limits=(0, 1)), f"chance {number(row.overlap_chance)}"),
        )

    def _curve(self, kind: str) -> Curve:
        rows = [row for row in self.rows if row.directions == kind and row.k]
        losses = tuple(row.change.value for row in rows)
        return Curve(_DIRECTIONS[kind], tuple(float(row.k) for row in rows), losses, _STYLES[kind], dots=True)
