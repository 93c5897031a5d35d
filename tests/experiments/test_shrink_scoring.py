"""The statistics of the experiment, on cases done by hand and against other implementations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Load = Callable[[str], Any]


def test_metrics_by_hand(shrink: Load) -> None:
    found = shrink("scoring").metrics({"tp": 6, "fp": 2, "fn": 3, "tn": 9})
    assert found["accuracy"] == 15 / 20
    assert found["f1"] == pytest.approx(2 * (6 / 8) * (6 / 9) / (6 / 8 + 6 / 9))
    assert found["matthews"] == pytest.approx((54 - 6) / math.sqrt(8 * 9 * 11 * 12))


def test_metrics_of_one_answer_for_all(shrink: Load) -> None:
    """F1 and Matthews are 0 where their quotient is undefined, without a warning."""
    found = shrink("scoring").metrics({"tp": 0, "fp": 0, "fn": 4, "tn": 6})
    assert found == {"accuracy": 0.6, "f1": 0.0, "matthews": 0.0}


def test_differences_are_those_of_sklearn(shrink: Load) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    gold = generator.random(200) < 0.6
    a, b = (generator.random((3, 200)) < share for share in (0.7, 0.8))
    found = shrink("scoring").compare(a, b, gold)
    answers = [[np.where(correct, gold, ~gold) for correct in arm] for arm in (a, b)]
    scores = {"accuracy": sklearn.accuracy_score, "f1": sklearn.f1_score, "matthews": sklearn.matthews_corrcoef}
    for name, score in scores.items():
        before, after = (np.mean([score(gold, answer) for answer in arm]) for arm in answers)
        assert found[name].value == pytest.approx(after - before)
        assert found[name].low < found[name].value < found[name].high
        assert found[name].seeds == 3


def test_the_bootstrap_of_items_has_the_textbook_error(shrink: Load) -> None:
    """Seeds that agree add nothing: the standard error is that of a mean of paired differences."""
    generator = np.random.default_rng(1)
    gold = np.ones(900, bool)
    a, b = (np.tile(generator.random(900) < share, (4, 1)) for share in (0.7, 0.75))
    found = shrink("scoring").compare(a, b, gold)["accuracy"]
    error = (b[0].astype(float) - a[0]).std(ddof=1) / math.sqrt(900)
    assert found.detectable == pytest.approx((1.96 + 0.8416) * error, rel=0.05)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.06)


def test_the_bootstrap_of_seeds_has_the_textbook_error(shrink: Load) -> None:
    """Each seed is right on all items or on none: only seeds vary, and their error is that of a mean of few."""
    right = np.array([0, 0, 1, 1, 1, 0, 1, 1], bool)
    a, b = np.zeros((8, 50), bool), np.repeat(right[:, None], 50, axis=1)
    found = shrink("scoring").compare(a, b, np.ones(50, bool))["accuracy"]
    assert found.value == pytest.approx(5 / 8)
    error, t = right.std(ddof=1) / math.sqrt(8), pytest.importorskip("scipy.stats").t(7)
    assert found.detectable == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * error, rel=0.05)
    assert found.high - found.low == pytest.approx(2 * t.ppf(0.975) * error, rel=0.05), "Student's"


def test_an_interval_of_three_seeds_is_right_as_often_as_it_says(shrink: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """No arm is better; seeds move both, and items are drawn anew. Percentiles of three seeds miss twice as often."""
    random, scoring, missed = np.random.default_rng(3), shrink("scoring"), 0
    monkeypatch.setattr(scoring, "RESAMPLES", 500)
    for seed in range(150):
        a, b = (random.random((3, 150)) < 0.7 + random.normal(0, 0.1, (3, 1)) for _ in range(2))
        found = scoring.compare(a, b, np.ones(150, bool), seed=seed)["accuracy"]
        missed += not found.low <= 0 <= found.high
    assert missed <= 10


def test_equal_arms_differ_by_nothing(shrink: Load) -> None:
    correct = np.random.default_rng(2).random((3, 40)) < 0.5
    for found in shrink("scoring").compare(correct, correct, correct[0]).values():
        assert (found.value, found.low, found.high, found.detectable) == (0, 0, 0, 0)


def test_one_seed_has_no_interval(shrink: Load) -> None:
    scoring = shrink("scoring")
    found = scoring.compare(np.zeros((1, 4), bool), np.ones((1, 4), bool), np.ones(4, bool))["accuracy"]
    assert (found.value, found.low, found.high, found.detectable, found.seeds) == (1, None, None, None, 1)
    assert scoring.paired([0.25], [0.5]).low is None
    assert scoring.spread([0.25]).deviation is None


def test_paired_is_students_interval(shrink: Load) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = [0.1, 0.4, 0.2, 0.3], [0.2, 0.45, 0.4, 0.3]
    found = shrink("scoring").paired(a, b)
    expected = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.value == pytest.approx(0.0875)


@pytest.mark.parametrize(
    ("low", "high", "sign", "expected"),
    [(0.1, 0.2, 1, "holds"), (0.1, 0.2, -1, "contradicted"), (-0.2, -0.1, -1, "holds")]
    + [(low, 0.1, 1, "undecided") for low in (-0.1, 0.0)]
    + [(None, None, -1, "one seed: not judged")],
)
def test_verdicts(shrink: Load, low: float | None, high: float | None, sign: int, expected: str) -> None:
    paired = shrink("scoring").Paired(-0.3, low, high, 1 if low is None else 5)
    assert shrink("claims").verdict(paired, sign) == expected


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_flags_come_back_from_hexadecimal(shrink: Load, flags: list[bool]) -> None:
    training = shrink("training")
    text = training.bits(torch.tensor(flags))
    assert len(text) == -(-len(flags) // 4)
    assert training.unpacked(text, len(flags)).tolist() == flags
