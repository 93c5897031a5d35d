"""The records of the bottleneck have every view from their blocks, and hostile names stay text."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.report.printed import printed
from tests.report.records_example import HOSTILE
from tests.report.test_html import _assert_harmless
from uncone import report
from uncone.errors import InputError
from uncone.records.blocks import Block, Heading
from uncone.records.record import Record
from uncone.records.tokens import Estimate
from uncone.saturation.contexts.record import ContextCurve, ContextDifference, ContextRank
from uncone.saturation.head.excision.record import Excised, Excision
from uncone.saturation.head.gradient.record import GradientShare, KeptShare


@dataclass(frozen=True)
class Parts(Record):
    """Both parts under one heading, as a record of the head has them."""

    KIND: ClassVar[str] = "parts"
    name: str
    share: GradientShare
    excision: Excision

    def blocks(self) -> tuple[Block, ...]:
        return (Heading("The head.", 1), *self.share.blocks(), *self.excision.blocks())


def _contexts(name: str = "text.txt") -> ContextRank:
    curve = ContextCurve("all", "text", 90, 80, (0, 1, 5, 10), (1.0, 0.8, 0.5, 0.25), Estimate(5.0, (4.0, 7.0)))
    null = ContextCurve("all", "shuffled", 95, 95, (0, 1, 5, 10), (1.0, 0.9, 0.6, 0.3), Estimate(None))
    apart = ContextDifference("all", "shuffled", 10, 0.25, 0.3, Estimate(-0.05, (-0.06, -0.04)), 5, None)
    return ContextRank(f"Contexts of {name}.", name, name, 100, 20, 5, 10, 5, 0, (curve, null), (apart,))


def _parts() -> Parts:
    of = [Estimate(0.5, (0.4, 0.6)), Estimate(0.45), Estimate(0.3, (0.2, 0.4)), Estimate(0.25, (0.2, 0.3))]
    share = GradientShare(
        "It keeps twice chance.",
        512,
        64,
        64,
        True,
        64 / 511,
        0.35,
        (KeptShare("all", 1000, 90, *of), KeptShare("rare", 0, 0, *(Estimate(None),) * 4)),
        "Groups by count.",
    )
    rows = tuple(
        Excised(kind, k, k / 4, Estimate(0.1 * k, (0.0, 0.3)), 0.3, 0.1, 0.2, 0.125)
        for kind in ("raw", "centred", "random")
        for k in (0, 1, 2)
    )
    return Parts("m", share, Excision("They carry it.", "information", 1.2, 1000, 64, 8, rows))


def test_the_rank_of_contexts_has_every_view() -> None:
    record = _contexts()
    shown = printed(record, 200)
    assert "Contexts of text.txt." in shown
    assert "> 10" in shown, "a half that is not reached"
    assert "-0.05" in shown.replace("−", "-")
    page = report.to_html(record)
    ET.fromstring(page)
    assert "all contexts, text" in report.to_markdown(record)
    assert ContextRank.from_json(record.to_json()) == record


def test_the_parts_have_every_view() -> None:
    parts = _parts()
    shown = printed(parts, 200)
    for words in ("It keeps twice chance.", "They carry it.", "A random subspace", "rare (0 ids)", "second moment"):
        assert words in shown
    ET.fromstring(report.to_html(parts))
    assert parts.share.times_chance == pytest.approx(0.25 / (64 / 511))


def test_charts_are_drawn() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    for record, name in ((_contexts(), "context rank all"), (_parts(), "excision"), (_parts(), "gradient share")):
        figure, _ = record.plot(name)
        figure.clear()


@pytest.mark.parametrize("words", HOSTILE, ids=ascii)
def test_hostile_names_are_text(words: str) -> None:
    _assert_harmless(report.to_html(_contexts(words)))
    assert not {"\x1b", "\u202e", "\x07"} & set(printed(_contexts(words), 400))


def test_a_curve_that_was_cut_is_refused() -> None:
    with pytest.raises(InputError, match="an error for each dimension"):
        ContextCurve("all", "text", 1, 1, (0, 1), (1.0,), Estimate(None))
