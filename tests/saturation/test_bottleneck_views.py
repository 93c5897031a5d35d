"""The records of the bottleneck: what their blocks say, beyond what every record is tested for."""

import pytest

from tests.report.printed import printed
from uncone.errors import InputError
from uncone.records.blocks import Cell, Table
from uncone.records.tokens import Estimate
from uncone.saturation.contexts.record import ContextCurve, ContextDifference, ContextRank
from uncone.saturation.head.excision.record import Excised, Excision
from uncone.saturation.head.gradient.record import GradientShare, KeptShare


def test_the_rank_of_contexts() -> None:
    curve = ContextCurve("all", "text", 90, 80, (0, 1, 5, 10), (1.0, 0.8, 0.5, 0.25), Estimate(5.0, (4.0, 7.0)))
    null = ContextCurve("all", "shuffled", 95, 95, (0, 1, 5, 10), (1.0, 0.9, 0.6, 0.3), Estimate(None))
    apart = ContextDifference("all", "shuffled", 10, 0.25, 0.3, Estimate(-0.05, (-0.06, -0.04)), 5, None)
    shown = printed(ContextRank("Verdict.", "t", "t", 100, 20, 5, 10, 5, 0, (curve, null), (apart,)), 200)
    assert "> 10" in shown, "a half that is not reached"
    assert "-0.05" in shown.replace("−", "-")
    assert "all contexts, text" in shown
    with pytest.raises(InputError, match="an error for each dimension"):
        ContextCurve("all", "text", 1, 1, (0, 1), (1.0,), Estimate(None))


def _tables(part: GradientShare | Excision) -> list[str]:
    """The texts of the cells of a part's table."""
    (table,) = (block for block in part.blocks() if isinstance(block, Table))
    return [cell.text if isinstance(cell, Cell) else cell for row in table.rows for cell in row]


def test_the_parts_of_a_head() -> None:
    of = [Estimate(0.5, (0.4, 0.6)), Estimate(0.45), Estimate(0.3, (0.2, 0.4)), Estimate(0.25, (0.2, 0.3))]
    groups = KeptShare("all", 1000, 90, *of), KeptShare("rare", 0, 0, *(Estimate(None),) * 4)
    share = GradientShare("It keeps twice chance.", 512, 64, 64, True, 64 / 511, 0.35, groups, "Groups by count.")
    assert share.times_chance == pytest.approx(0.25 / (64 / 511))
    assert {"A random subspace", "rare (0 ids)", "25%", "2.00", "30%", "45%", "50%"} <= {*_tables(share)}
    change = Estimate(0.1, (0.0, 0.3))
    rows = tuple(Excised("raw", k, k / 4, change, 0.3, 0.1, 0.2, 0.125) for k in (0, 1, 2))
    cells = _tables(Excision("", "none", 1.2, 10, 8, 1, rows))
    assert cells[6:12] == ["second moment", "1", "25%", "+0.100", "0.300", "0.200"]
