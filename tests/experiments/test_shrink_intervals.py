"""The claims in words and as a picture: which lines it holds, where they lie and how they are coloured."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

Load = Callable[[str], Any]
SVG = "{http://www.w3.org/2000/svg}"


def _group(shrink: Load, low: float | None, high: float | None) -> Any:
    """A task in which every difference of two arms is the same."""
    scoring = shrink("scoring")
    value = 0.25 if low is None or high is None else (low + high) / 2
    found = scoring.Paired(value, low, high, 5)
    metric = scoring.Difference(value, low, high, 0.1, 5)
    of_metrics = {"accuracy": metric, "matthews": metric}
    return SimpleNamespace(task="mrpc", size="all", paired=lambda *_: found, compared=lambda *_: of_metrics)


@pytest.mark.parametrize("metric", [True, False])
def test_each_claim_is_a_line_in_the_colour_of_its_verdict(shrink: Load, metric: bool) -> None:
    claims, group = shrink("claims"), _group(shrink, -0.3, -0.1)
    tree = ElementTree.fromstring(shrink("intervals").intervals([group], metric=metric))
    shown = [claim for claim in claims.CLAIMS if (claim.path is None) == metric and "all" in claim.sizes]
    spans = [path for path in tree.iter(f"{SVG}path") if path.get("class") == "span"]
    texts = [text.text for text in tree.iter(f"{SVG}text") if text.text and "5 seeds" in text.text]
    assert texts == [f"{claim.text} (mrpc, all; 5 seeds)" for claim in shown]
    assert [span.get("stroke") for span in spans] == ["#0f766e" if claim.sign < 0 else "#c2410c" for claim in shown]


@pytest.mark.parametrize(("metric", "scale"), [(True, 100), (False, 1)])
def test_a_line_lies_where_the_numbers_below_it_say(shrink: Load, metric: bool, scale: int) -> None:
    tree = ElementTree.fromstring(shrink("intervals").intervals([_group(shrink, -0.31, 0.17)], metric=metric))
    texts = (text for text in tree.iter(f"{SVG}text") if text.get("class") == "tick")
    ticks = {float(text.text or ""): float(text.get("x", "")) for text in texts}
    (low, left), (high, right) = min(ticks.items()), max(ticks.items())
    span = next(path for path in tree.iter(f"{SVG}path") if path.get("class") == "span")
    ends = [float(number) for number in re.findall(r"M(\S+) \S+H(\S+)", span.get("d", ""))[0]]
    read = [low + (end - left) / (right - left) * (high - low) for end in ends]
    assert read == pytest.approx([-0.31 * scale, 0.17 * scale], abs=0.002 * scale)


def test_in_short_each_claim_stands_where_its_verdict_is(shrink: Load) -> None:
    claims = shrink("claims")
    text = claims.in_short([_group(shrink, 0.1, 0.3)])
    shown = [claim for claim in claims.CLAIMS if "all" in claim.sizes]
    raised = sum(claim.sign > 0 for claim in shown)
    counts = f"claim holds {raised}, contradicted {len(shown) - raised}, undecided 0"
    assert text.startswith(f"Of {len(shown)} comparisons: {counts}.")
    held, _, contradicted = text.partition("Contradicted:")
    assert all((f"- {claim.text} (mrpc)" in held) == (claim.sign > 0) for claim in shown)
    assert all((f"- {claim.text} (mrpc)" in contradicted) == (claim.sign < 0) for claim in shown)


def test_one_seed_says_nothing_and_is_not_drawn(shrink: Load) -> None:
    group = [_group(shrink, None, None)]
    assert shrink("claims").in_short(group).startswith("No claim can be judged yet")
    assert shrink("intervals").intervals(group, metric=True) is None


def test_names_are_escaped(shrink: Load) -> None:
    group = _group(shrink, -0.3, -0.1)
    group.task = "<script>"
    shrink("claims").MAIN_METRIC["<script>"] = "accuracy"
    assert "<script>" not in shrink("intervals").intervals([group], metric=True)
