from typing import Literal

from uncone.records.blocks import Blocks, Cell, Chart, Curve, Figure, Mark, Row, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section
from uncone.records.text import count, number, percent, signed
from uncone.records.tokens import Estimate

Kind = Literal["raw", "bias", "centred", "random"]
Cause = Literal["harmless drift", "information", "none"]
_DIRECTIONS: dict[Kind, str] = {"centred": "covariance", "random": "random directions", "raw": "second moment"}
_DIRECTIONS |= {"bias": "second moment, its constant kept"}
_STYLES = {"raw": "raw", "bias": "even", "centred": "centred", "random": "isotropic"}


@part
class Excised:
    directions: Kind  # `raw`, `bias` (raw directions, their constant kept), `centred` or `random`
    k: int  # how many were taken out
    energy: float  # share of the states' squared norms in these directions (about the mean for `centred` and `random`)
    change: Estimate  # of the loss, in nats per token, with a 95 % interval over windows of text
    alignment: float  # cosine of the second moments of states and head
    chance: float  # the alignment under a random rotation
    overlap: float  # mean squared cosine of the principal angles of leading directions
    overlap_chance: float  # the overlap of random directions


@part
class Excision:
    verdict: str
    cause: Cause  # `harmless drift`, `information` or `none`
    loss: float  # nats per token, with nothing taken out
    tokens: int
    dimensions: int  # columns of the states
    leading: int  # directions that the overlap compares
    rows: tuple[Excised, ...]
    bias: Estimate = Estimate(None)  # share of the rise without the first raw direction that its constant explains

    def blocks(self) -> Blocks:
        columns = ("directions", "taken out", "energy", "change of loss", "alignment", "overlap")
        drawn = tuple(curve for curve in map(self._curve, _DIRECTIONS) if len(curve.x) > 1)
        words, mark = ("excision", "Change of loss", "directions taken out", "nats per token"), (Mark(0.0, "y"),)
        chart = Chart(*words, drawn, marks=mark, log_x=True)
        return section(
            "States without their dominant directions",
            Text(self.verdict, "lead"),
            numbers(columns, map(_row, self.rows)),
            Figure("Change of loss by directions taken out", (chart,) if drawn else ()),
            Text(
                f"The loss is {number(self.loss)} nats per token on {count(self.tokens)} tokens. Alignment: the cosine "
                "of the second moments of states and centred head (of covariances, for centred and random directions), "
                "above the cosine for a random rotation. Overlap: the mean squared cosine of the principal angles "
                f"between the {self.leading} leading directions of both, above the value for random directions. "
                "Rows of random directions and their ends are means of several draws. The second moment holds the mean "
                "state, which gives every context the same logits: with its constant kept, directions are taken out "
                "about the mean.",
                "quiet",
            ),
            level=2,
        )

    def _curve(self, kind: Kind) -> Curve:
        rows = [row for row in self.rows if row.directions == kind and row.k]
        losses = tuple(row.change.value for row in rows)
        return Curve(_DIRECTIONS[kind], tuple(float(row.k) for row in rows), losses, _STYLES[kind], dots=True)


def _row(row: Excised) -> Row:
    change = Cell(signed(row.change.value or 0.0), " to ".join(map(signed, row.change.interval or ())))
    aligned = ((row.alignment, row.chance), (row.overlap, row.overlap_chance))
    cells = (Cell(number(value, limits=(0, 1)), f"chance {number(chance)}") for value, chance in aligned)
    return _DIRECTIONS[row.directions], count(row.k), percent(row.energy, precise=True), change, *cells
