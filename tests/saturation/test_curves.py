"""The verdict on a curve: the measured table, planted declines, what never declines, and what cannot be judged."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.report.curves_example import make_curves, make_rows
from uncone import InputError
from uncone.report import to_markdown
from uncone.saturation.curves.decline import Curve, judge, verdict_of
from uncone.saturation.curves.record import CurveVerdicts
from uncone.statistics.holm import holm

PYTHIA = (Path(__file__).parents[2] / "../shared/data/pythia/pythia_evals_v1.csv").resolve()
STEPS = np.array([1000, 3000, *range(13000, 144000, 10000)], float)
TABLE = {
    # model: decline, its standard error, z
    "pythia-70m": (0.0689, 0.0081, 8.48),
    "pythia-160m": (0.0708, 0.0095, 7.49),
    "pythia-410m": (0.0062, 0.0098, 0.63),
    "pythia-1b-bf16": (0.0122, 0.0098, 1.25),
    "pythia-1.4b": (0.0000, 0.0096, 0.00),
    "pythia-2.8b": (0.0000, 0.0094, 0.00),
    "pythia-6.9b": (0.0049, 0.0092, 0.53),
    "pythia-12b": (0.0037, 0.0090, 0.41),
    "pythia-70m-deduped": (0.0691, 0.0082, 8.41),
    "pythia-160m-deduped": (0.0565, 0.0095, 5.95),
    "pythia-410m-deduped": (0.0072, 0.0098, 0.73),
    "pythia-1b-deduped": (0.0000, 0.0097, 0.00),
    "pythia-1.4b-deduped": (0.0017, 0.0096, 0.18),
    "pythia-2.8b-deduped": (0.0006, 0.0094, 0.06),
    "pythia-6.9b-deduped": (0.0000, 0.0091, 0.00),
    "pythia-12b-deduped": (0.0054, 0.0089, 0.61),
}
SMALL = {"pythia-70m", "pythia-70m-deduped", "pythia-160m", "pythia-160m-deduped"}


@pytest.fixture(scope="module")
def pythia() -> CurveVerdicts:
    if not PYTHIA.exists():
        pytest.skip("the evaluations of Pythia are not beside the project")
    return uncone.judge_curves(PYTHIA)


def test_of_lambada_only_a_small_model_declines_and_what_was_not_visible_is_said(pythia: CurveVerdicts) -> None:
    for shots in "05":
        family = {c.model: c for c in pythia.curves if c.family == ("lambada_openai", "acc", "v1", shots)}
        assert len(family) == 16
        assert {c.model for c in family.values() if c.declined_alone} == {"pythia-70m"}
        others = set(family) - SMALL
        assert max(family[name].p_holm for name in family) == 1
        assert min(family[name].p_alone for name in others) > 0.3
        for name in SMALL - {"pythia-70m"}:
            assert family[name].visible > family[name].decline  # it is not called absent


def test_a_verdict_alone_does_not_hang_on_the_neighbours(pythia: CurveVerdicts) -> None:
    rows = _lambada_rows()
    alone = {c.model: c.p_alone for c in uncone.judge_curves(rows).curves}
    for left_out in ("pythia-12b", "pythia-70m-deduped"):
        others = uncone.judge_curves([row for row in rows if row["model"] != left_out])
        assert {c.model: c.p_alone for c in others.curves} == {k: v for k, v in alone.items() if k != left_out}


def test_models_named_first_are_tested_at_the_whole_level_one_after_the_other() -> None:
    rows = _lambada_rows()
    usual = {c.model: c for c in uncone.judge_curves(rows).curves}
    order = ("pythia-70m", "pythia-70m-deduped", "pythia-410m")
    result = uncone.judge_curves(rows, first=order)
    found, largest = {c.model: c for c in result.curves}, 0.0
    for name in order:
        largest = max(largest, usual[name].p_alone)
        assert found[name].p_holm == largest
    assert [name for name in order if found[name].declined] == ["pythia-70m"]
    assert result.first == order
    assert f"each only if all before it declined: {', '.join(order[:2])} and {order[2]}." in to_markdown(result)
    rest = [name for name in found if name not in order]
    assert [found[name].p_holm for name in rest] == [max(largest, p) for p in holm([usual[n].p_family for n in rest])]


def test_after_a_curve_that_declined_first_the_others_follow() -> None:
    steps = np.arange(1.0, 31)
    noise = np.random.default_rng(0).standard_normal((4, 30))
    noise[[0, 2]] -= 20 * np.maximum(steps - 20, 0) / 10
    rows = [
        {"model": name, "step": step, "value": value}
        for name, values in zip("abcd", noise.tolist(), strict=True)
        for step, value in zip(steps.tolist(), values, strict=True)
    ]
    declined = {
        first: {c.model for c in uncone.judge_curves(rows, first=list(first), higher=["value"]).curves if c.declined}
        for first in ("", "a", "ac", "ba", "ab")
    }
    assert declined == {"": {"a", "c"}, "a": {"a", "c"}, "ac": {"a", "c"}, "ba": set(), "ab": {"a"}}


def test_a_model_named_first_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"expected models of this table in first \(--first\), got 'z': the result names"
    ):
        uncone.judge_curves([{"model": "a", "step": 1.0, "value": 1.0}], first=["z"])
    with pytest.raises(InputError, match="got 'pythia-70n': did you mean 'pythia-70m'"):
        uncone.judge_curves([{"model": "pythia-70m", "step": 1.0, "value": 1.0}], first="pythia-70n")


def _lambada_rows() -> list[dict[str, str]]:
    with PYTHIA.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [r for r in rows if (r["task"], r["metric"], r["shots"]) == ("lambada_openai", "acc", "0")]


def test_the_measured_table_is_reproduced(pythia: CurveVerdicts) -> None:
    found = {c.model: c for c in pythia.curves if c.family == ("lambada_openai", "acc", "v1", "0")}
    assert set(found) == set(TABLE)
    for model, row in TABLE.items():
        c = found[model]
        for number, expected, digits in zip((c.decline, c.decline_error, c.decline_z), row, (4, 4, 2), strict=True):
            assert number == pytest.approx(expected, abs=0.6 * 10**-digits, rel=0.004 if digits == 2 else 0)


def test_the_whole_table_is_keyed_and_oriented(pythia: CurveVerdicts) -> None:
    assert pythia.told_apart_by == ("model", "task", "metric", "shots")
    assert (len(pythia.curves), len(pythia.families)) == (576, 36)
    assert {c.metric for c in pythia.curves if c.lower} == {"ppl", "likelihood_difference", "pct_stereotype"}
    assert {c.metric for c in pythia.curves if c.logarithm} == {"ppl"}
    assert sum(c.declined_alone is True for c in pythia.curves) <= 0.05 * len(pythia.curves)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_monotone_and_at_least_what_it_corrects(p: list[float]) -> None:
    corrected = holm(p)
    assert all(a >= b for a, b in zip(corrected, p, strict=True))
    assert [c for _, c in sorted(zip(p, corrected, strict=True))] == sorted(corrected)


def _planted(size: float, *, n: int = 40, models: int = 6, errors: float | None = 1.0, seed: int = 0) -> list[Curve]:
    random, steps = np.random.default_rng(seed), np.linspace(1, n, n)
    u = steps / n
    rise = 10 * (1 - np.exp(-10 * u))
    falls = [rise - size * np.maximum(u - 0.5, 0) / 0.5 if i == 0 else rise for i in range(models)]
    error = None if errors is None else np.full(n, errors)
    return [Curve(str(i), "t", "acc", steps, y + random.standard_normal(n), error) for i, y in enumerate(falls)]


@pytest.mark.parametrize("errors", [1.0, None])
def test_a_planted_decline_is_found_and_its_family_is_not(errors: float | None) -> None:
    found = 0
    for seed in range(1, 6):
        verdicts, (family,) = judge(_planted(10.0, errors=errors, seed=seed))
        assert not any(v.declined for v in verdicts[1:])
        assert (family.curves, family.declined, family.undecided) == (6, verdicts[0].declined, 0)
        found += verdicts[0].declined is True
    assert found >= 4  # the chance of finding one of this size is 0.9 and more
    assert all((v.decline_error is None) == (errors is None) for v in verdicts)
    assert verdicts[0].change_low <= 24
    assert verdicts[0].change_high >= 16


def test_less_is_better_is_the_same_upside_down() -> None:
    up = judge(_planted(10.0))[0]
    down = judge([replace(curve, values=-curve.values, lower=True) for curve in _planted(10.0)])[0]
    for a, b in zip(up, down, strict=True):
        assert (a.declined, a.p_alone, a.p_family, a.decline) == (b.declined, b.p_alone, b.p_family, b.decline)
        assert (b.visible, b.peak) == (a.visible, -a.peak)


@given(st.floats(1e-6, 1e6), st.floats(-100, 100))
def test_the_unit_and_the_origin_do_not_matter(unit: float, origin: float) -> None:
    curves = _planted(4.0, n=20, models=2)
    moved = [replace(c, values=unit * (c.values + origin), errors=np.full(20, unit)) for c in curves]
    for a, b in zip(judge(curves)[0], judge(moved)[0], strict=True):
        assert a.p_family == pytest.approx(b.p_family, rel=1e-4)
        assert a.p_alone == pytest.approx(b.p_alone, rel=1e-4)


def test_many_curves_can_still_be_called_declined() -> None:
    """Holm over 400 curves multiplies by 400: counted draws would have to be 80,000 each."""
    verdicts, _ = judge(_planted(25.0, models=400, n=30))
    assert verdicts[0].declined
    assert sum(v.declined is True for v in verdicts) == 1
    assert (verdicts[0].p_family or 1.0) < 0.05 / 400


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("family", [1, 8])
def test_what_never_declines_is_rarely_called_declined(correlation: float, family: int) -> None:
    n, count = 16, 200 * family
    random = np.random.default_rng(7)
    root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))))
    y = random.standard_normal((count, n)) @ root.T
    verdicts, _ = judge([Curve(str(i), str(i // family), "acc", STEPS, row) for i, row in enumerate(y)])
    assert np.array([v.declined for v in verdicts]).reshape(-1, family).any(1).mean() <= 0.06


def test_a_curve_that_cannot_be_judged_says_why_and_the_others_go_on() -> None:
    good = _planted(10.0)
    steps, values = good[0].steps, good[0].values
    bad = {
        "1 checkpoint": replace(good[0], steps=steps[:1], values=values[:1], errors=None),
        "no checkpoint": replace(good[0], steps=steps[:0], values=values[:0], errors=None),
        "two values at step 8": replace(good[0], steps=np.r_[steps[:8], steps[7:-1]]),
        "is nan": replace(good[0], values=np.where(steps == 9, np.nan, values)),
        "the value at step 9 is inf": replace(good[0], values=np.where(steps == 9, np.inf, values)),
        "at least 10 are needed": replace(good[0], steps=steps[:6], values=values[:6], errors=None),
        "second half": replace(good[0], steps=np.r_[steps[:-1], 90.0]),
        "from 0 up": replace(good[0], steps=steps - 20),
        "a perplexity": replace(good[0], values=values - 1e3, logarithm=True, lower=True),
        "above 1e150": replace(good[0], values=values * 1e200),
    }
    verdicts, (family,) = judge([*bad.values(), *good])
    for reason, verdict in zip(bad, verdicts, strict=False):
        assert verdict.declined is None
        assert reason in verdict.reason
    assert [v.declined for v in verdicts[len(bad) :]] == [v.declined for v in judge(good)[0]]
    assert family.undecided == len(bad)


def test_missing_errors_leave_the_jitter_and_are_said() -> None:
    curves = _planted(10.0, models=2)
    verdict = judge([replace(curves[0], errors=np.r_[np.nan, np.ones(39)]), curves[1]])[0][0]
    assert verdict.decline_error is None
    assert "standard errors are missing" in verdict.notes[0]


def test_constant_and_smooth_curves_have_a_verdict() -> None:
    steps = np.arange(1.0, 31.0)
    flat = Curve("flat", "t", "acc", steps, np.full(30, 0.5))
    verdicts = judge([flat, Curve("smooth", "t2", "acc", steps, -((steps - 10) ** 2))])[0]
    assert [v.declined for v in verdicts] == [False, True]


def test_a_log_of_every_step_is_averaged() -> None:
    random, steps = np.random.default_rng(0), np.arange(1.0, 5001.0)
    loss = 3 + 2 * np.exp(-steps / 300) + np.maximum(steps - 2500, 0) * 1e-4 + 0.1 * random.standard_normal(5000)
    (verdict,), _ = judge([Curve("m", "train", "loss", steps, loss, lower=True)])
    assert verdict.declined
    assert "4,976 checkpoints were averaged to 128" in verdict.notes


def test_progress_ends_at_all_curves() -> None:
    seen = list[tuple[str, int, int]]()
    judge(_planted(3.0, models=30), progress=lambda *told: seen.append(told))
    assert seen[-1] == ("curves", 30, 30)


def test_one_bad_last_checkpoint_is_no_decline_and_is_said() -> None:
    curves = _planted(0.0, models=4)
    bad = [replace(curve, values=np.r_[curve.values[:-1], curve.values[-1] - 8]) for curve in curves]
    verdicts, _ = judge(bad)
    assert not any(v.declined or v.declined_alone for v in verdicts)
    assert all("one checkpoint cannot show a decline" in v.notes[-1] for v in verdicts)
    assert all(v.checkpoints == 39 for v in verdicts)
    assert all("one checkpoint" not in " ".join(v.notes) for v in judge(_planted(8.0))[0])


def test_others_of_white_jitter_show_what_one_curve_can_not() -> None:
    """Of 12 checkpoints one curve says little of its correlation, and three others more."""
    random, falls = np.random.default_rng(3), np.maximum(STEPS / STEPS[-1] - 0.4, 0) / 0.6
    ratios = []
    for _ in range(20):
        y = random.standard_normal((4, 16))
        y[0] -= 6 * falls
        verdict = judge([Curve(str(i), "t", "acc", STEPS, row) for i, row in enumerate(y)])[0][0]
        ratios.append((verdict.p_family or 0) / (verdict.p_alone or 1))
    assert np.median(ratios) < 0.6


def test_what_declines_alone_and_not_in_its_family_is_said() -> None:
    verdicts, families = judge(_planted(3.6, n=20, models=12, seed=1))
    mixed = [replace(v, declined=False, declined_alone=i == 0) for i, v in enumerate(verdicts)]
    assert verdict_of([replace(families[0], declined=0)], mixed).endswith(
        "in 12 curves of t acc. Judged alone, 1 declined: 0."
    )
    mixed = [replace(v, declined=i == 1, declined_alone=i < 2) for i, v in enumerate(verdicts)]
    assert verdict_of(families, mixed).endswith("declined late: 1. Judged alone, 1 more declined: 0.")


def test_the_record_says_its_verdict_and_has_its_settings() -> None:
    record = make_curves()
    assert record.verdict == "2 of 4 curves of lambada acc (v1, 0 shots) declined late: a, b. 1 curve is undecided."
    assert [c.declined for c in record.curves] == [True, True, False, None]
    assert record.to_rows()[0]["batch_size"] == "1024"
    first, _ = [chart for block in record.blocks() for chart in getattr(block, "charts", ())]
    assert first.curves[0].y[first.curves[0].marked[0]] == record.curves[0].peak


def test_none_declined_is_said() -> None:
    record = uncone.judge_curves([row for row in make_rows() if row["model"] == "c"])
    assert record.verdict == "No late decline was detected in 1 curve of lambada acc (v1, 0 shots)."
