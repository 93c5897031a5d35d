import json
import lzma
import math
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from uncone.errors import InputError
from uncone.training.monitor.rows import Groups, RowsReader
from uncone.training.monitor.rules import RULES, THRESHOLD, Rules, Warning_

RUNS = Path(__file__).parents[3] / "experiments" / "monitor_rules" / "results" / "runs"
EVERY, PLANTED = 50, 1000


def warnings_of(name: str, values: list[float], every: int = EVERY, **beside: float) -> list[Warning_]:
    rules = Rules(every)
    return [one for i, value in enumerate(values) for one in rules.see(i * every, {name: value, **beside})]


def records_by_numpy(x: np.ndarray, effect: float) -> list[int]:
    """The first warned record of a batch's reading of which growth is bad, by the formulas of the module's docstring."""
    rates, total, row, left, start = np.diff(x), 0.0, 0, -1, 0
    for t in range(11, len(x)):
        end = t - 1 if left < 0 else left  # increments before the sum left 0
        past = rates[max(0, end - 40) : end]
        m = np.median(past)
        d = rates[:t] - m
        base = past - m
        far = 3 * 1.4826 * np.median(np.abs(base))
        cut = np.clip(base, -far, far)
        r = min(cut[1:] @ cut[:-1] / (cut @ cut), 0.9)
        first = max(0, end - 40)
        if r >= 0:
            e = d[first + 1 :] - r * d[first:-1]
        else:
            q = next(iter(sorted(root.real for root in np.roots([-r, -1, -r]) if abs(root.imag) < 1e-12)), 1.0)
            q, e = min(q, 0.9), [d[first]]
            for one in d[first + 1 :]:
                e.append(one + q * e[-1])
            e = np.array(e[1:])
        scale = max(1.4826 * np.median(np.abs(e[: len(past) - 1])) * (1 + 5 / len(past)), effect / 20)
        if total == 0:
            start = t - 1
        total = max(0.0, total + e[-1] / scale - 1)
        left = -1 if total == 0 else end
        moved = min(x[t] - x[start] - m * (t - start), x[t] - x[start])
        row = row + 1 if total > THRESHOLD and moved > effect else 0
        window = x[max(4, t - 22) : t + 1]  # 200 steps are not judged
        jumped = len(window) >= 13 and window[-3:].min() > window[:-3].max() + max(m, 0) * 3 + effect
        if row > 1 or jumped:
            return [t]
        if total and t - end == 20:
            total, left = 0.0, -1
    return []


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_is_its_formula(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = 4 - 0.01 * np.arange(120) + random.normal(0, 0.15, 120)
    x[80:] += np.minimum(np.arange(40) * random.uniform(0.05, 0.6), 2)
    assert [one.step // EVERY for one in warnings_of("loss.cross_entropy", x.tolist())][:1] == records_by_numpy(x, 0.3)


def test_the_formula_above_has_something_to_find() -> None:
    found = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        x = 4 - 0.01 * np.arange(120) + random.normal(0, 0.15, 120)
        x[80:] += np.minimum(np.arange(40) * random.uniform(0.05, 0.6), 2)
        found += len(records_by_numpy(x, 0.3))
    assert found > 5


@pytest.mark.parametrize(
    ("name", "before", "after", "rule"),
    [
        ("head.mean_cosine", 0.2, 0.6, "one_direction"),
        ("states.mean_cosine", 0.3, 0.9, "one_direction"),
        ("table.rare.mean_share", 0.1, 0.5, "one_direction"),
        ("head.norm_largest", 2.0, 20.0, "giant_rows"),
        ("table.dead", 0.0, 0.05, "dead_rows"),
        ("states.effective_rank", 60.0, 20.0, "rank"),
        ("head.sample_rank", 60.0, 30.0, "rank"),
        ("table.participation_ratio", 12.0, 8.0, "rank"),
        ("loss.largest_logsumexp", 15.0, 60.0, "logits"),
        ("loss.cross_entropy", 3.0, 5.0, "loss"),
    ],
)
@pytest.mark.parametrize("steps", [1, 100, 150])
def test_a_planted_change_is_found_within_200_steps(
    name: str, before: float, after: float, rule: str, steps: int
) -> None:
    random = np.random.default_rng(1)
    course = [before * (1 + 0.003 * random.normal()) for _ in range(30)]
    change = [before + (after - before) * min(1, (i + 1) * EVERY / steps) for i in range(6)]
    first, *_ = warnings_of(name, course + change)
    assert (first.rule, first.name) == (rule, name)
    assert 29 * EVERY < first.step <= 29 * EVERY + 200
    assert json.loads(json.dumps(asdict(first))) == asdict(first)
    assert f" {first.step:,}" in first.text


def test_a_warning_says_what_went_from_where_to_where() -> None:
    (first,) = warnings_of("head.rare.mean_cosine", [0.25] * 20 + [0.8] * 3)
    assert first.text.startswith(
        "The mean cosine of the head (rare) rose from 0.250 to 0.800 between steps 950 and 1,000"
    )


def test_giant_rows_are_rows_that_outgrow_the_median() -> None:
    growth = [1.1**i for i in range(60)]
    rules = Rules(EVERY)
    for i, g in enumerate(growth):
        assert not rules.see(i * EVERY, {"head.norm_largest": 2 * g, "head.norm_median": g})
    (found,) = rules.see(3000, {"head.norm_largest": 20 * growth[-1], "head.norm_median": growth[-1]})
    assert found.rule == "giant_rows"
    assert "from 2 to 20.0 times the median row" in found.text


def test_the_good_direction_is_silent() -> None:
    assert not warnings_of("head.mean_cosine", [0.6] * 30 + [0.1] * 10)
    assert not warnings_of("states.effective_rank", [20.0] * 30 + [60.0] * 10)
    assert not warnings_of("loss.cross_entropy", [5.0] * 30 + [3.0] * 10)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_jitter_and_smooth_trends_are_silent(phi: float) -> None:
    random = np.random.default_rng(5)
    found = 0
    for _ in range(20):
        noise = random.normal(0, 0.02, 200)
        for t in range(1, 200):
            noise[t] += phi * noise[t - 1]
        rise = 0.6 * (np.arange(200) / 200) ** 0.3
        found += len(warnings_of("states.mean_cosine", (noise + rise).tolist()))
    assert found == 0


def test_one_odd_batch_is_passed_over_and_two_are_not() -> None:
    assert not warnings_of("loss.cross_entropy", [3.0] * 20 + [6.0] + [3.0] * 10)
    assert len(warnings_of("loss.cross_entropy", [3.0] * 20 + [6.0] * 2 + [3.0] * 9)) == 1


def test_a_jump_of_a_noisy_reading_is_found_in_three_records() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        values = 1 - np.exp(-1.6 + 0.35 * random.normal(size=60))
        values[30:] = 1 - np.exp(-4.5 + 0.35 * random.normal(size=30))
        (found,) = warnings_of("states.mean_cosine", values.tolist())
        assert 30 * EVERY < found.step <= 32 * EVERY
        if found.step == 32 * EVERY:
            assert f"to {values[32]:.3f} between steps 1,450 and 1,600" in found.text


def test_a_reading_is_warned_of_once_until_it_has_a_new_past() -> None:
    values = [0.1] * 20 + [0.7] * 20 + [0.95] * 20
    assert [one.step for one in warnings_of("head.mean_cosine", values)] == [1000, 2000]


def test_a_collapse_that_several_readings_of_a_part_show_is_said_once() -> None:
    rules, found = Rules(EVERY), list[Warning_]()
    names = ("head.mean_cosine", "head.rare.mean_cosine", "head.mean_share", "states.mean_cosine")
    for i in range(40):
        found += rules.see(i * EVERY, dict.fromkeys(names, 0.1 if i < 20 else 0.8))
    assert [one.name for one in found] == ["head.mean_cosine", "states.mean_cosine"]


def test_a_collapse_of_the_rank_is_said_once_though_the_spectrum_comes_later() -> None:
    rules, found = Rules(EVERY), list[Warning_]()
    for i in range(200):
        left = 1 - 0.6 * min(max(i - 110, 0) / 5, 1)
        numbers = {"head.participation_ratio": 12 * left, "head.sample_rank": 50 * left}
        found += rules.see(i * EVERY, numbers | ({"head.effective_rank": 55 * left} if i % 10 == 0 else {}))
    assert [one.rule for one in found] == ["rank"]
    assert 110 * EVERY < found[0].step <= 113 * EVERY


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_table_that_is_the_head_is_one_part(is_tied: bool) -> None:
    rules, found = Rules(EVERY), list[Warning_]()
    for i in range(40):
        cosines = {"head.mean_cosine": 0.1 if i < 20 else 0.7, "table.mean_cosine": 0.2 if i < 22 else 0.8}
        shares = {"head.mean_share": 0.3, "table.mean_share": 0.3 if is_tied else 0.4}
        found += rules.see(i * EVERY, cosines | shares)
    assert [one.name for one in found] == ["head.mean_cosine", "table.mean_cosine"][: 2 - is_tied]


def test_a_group_that_is_cut_anew_has_no_past() -> None:
    for cut in (False, True):
        rules, found = Rules(EVERY), list[Warning_]()
        for i in range(45):
            later = i >= 30
            rows = {"head.rare.rows": 200.0 + 100 * (later and cut)}
            found += rules.see(i * EVERY, {"head.rare.mean_cosine": 0.7 if later else 0.2} | rows)
        assert bool(found) is not cut


@pytest.mark.parametrize("every", [1, 2, 5, 10])
def test_the_first_200_steps_are_not_judged(every: int) -> None:
    def course(turn: int, start: int) -> list[int]:
        rules, found = Rules(every), list[Warning_]()
        for step in range(start, start + 500, every):
            found += rules.see(step, {"states.mean_cosine": 0.1 if step - start < turn else 0.97})
        return [one.step - start for one in found]

    assert course(150, 0) == course(150, 5000) == []
    assert course(300, 0)[0] <= 300 + 10 * every


def test_vectors_of_one_direction_from_the_start_are_said_once_they_stay() -> None:
    (found,) = warnings_of("states.mean_cosine", [0.999] * 60)
    assert found.step == 19 * EVERY
    assert "stays at" in found.text
    assert not warnings_of("states.mean_cosine", [0.999] * 15 + [0.5] * 45)  # as in a healthy start


def test_a_gap_is_no_jump() -> None:
    rules, found = Rules(EVERY), list[Warning_]()
    for i in [*range(40), *range(100, 140)]:  # a reading that rises by 0.005 a record
        found += rules.see(i * EVERY, {"head.mean_cosine": 0.005 * i})
    assert not found


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped() -> None:
    random = np.random.default_rng(3)
    values = (0.2 + 0.01 * random.normal(size=80)).tolist()
    values[60:] = [value + 0.05 * i for i, value in enumerate(values[60:])]
    whole = warnings_of("head.mean_cosine", values)
    assert whole
    for stop in (5, 30, 61, 63):
        rules, found = Rules(EVERY), list[Warning_]()
        for i, value in enumerate(values):
            if i == stop:
                state = json.loads(json.dumps(rules.state_dict(), allow_nan=False))
                rules = Rules(EVERY)
                rules.load_state_dict(state)
            found += rules.see(i * EVERY, {"head.mean_cosine": value})
        assert found == whole


def test_numbers_that_are_not_finite_are_said_once_and_change_nothing() -> None:
    rules = Rules(EVERY)
    found = [one for i in range(5) for one in rules.see(i * EVERY, {"loss.cross_entropy": math.nan, "x": math.inf})]
    assert [(one.rule, one.name, one.step) for one in found] == [("not_finite", "loss.cross_entropy", 0)]
    values = [3.0] * 20
    values[10] = math.nan
    assert [one.rule for one in warnings_of("loss.cross_entropy", values)] == ["not_finite"]
    spoiled = {f"{part}.{group}norm_largest": math.nan for part in ("head", "table") for group in ("", "rare.")}
    assert [one.name for one in Rules(EVERY).see(0, spoiled)] == ["head.norm_largest", "table.norm_largest"]


def test_earlier_steps_other_names_and_logarithms_of_nothing_are_passed_over() -> None:
    rules = Rules(EVERY)
    for i in range(20):
        assert not rules.see(i * EVERY, {"head.mean_cosine": 0.1, "head.kappa": 1.0, "states.effective_rank": 0.0})
    assert not rules.see(100, {"head.mean_cosine": 0.9})
    assert not rules.see(950, {"head.mean_cosine": 0.9})
    assert not rules.see(1000, {"head.mean_cosine": 0.1})


@pytest.mark.parametrize("every", [0, -1])
def test_every_is_a_number_of_steps(every: int) -> None:
    with pytest.raises(InputError, match="every"):
        Rules(every)


@pytest.mark.parametrize(
    "state", [{}, {"every": 1}, {"every": 50, "threshold": 1, "said": [], "last": {}, "series": {"a": {"b": 1}}}]
)
def test_a_state_of_something_else_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InputError, match="state"):
        Rules(EVERY).load_state_dict(state)
    with pytest.raises(InputError, match="every"):
        Rules(EVERY).load_state_dict(Rules(10).state_dict())


@pytest.mark.parametrize(("v", "d"), [(300, 20), (40, 64), (5000, 24)])
def test_the_rank_of_a_sample_is_that_of_its_rows(v: int, d: int) -> None:
    x = np.random.default_rng(0).normal(size=(v, d)) * np.arange(1, d + 1) ** -0.5 + 3
    groups = Groups(torch.zeros(v, dtype=torch.int64), ("all",))
    given = {"counts": None, "is_head": True, "spectrum": False}
    numbers = RowsReader().read(torch.from_numpy(x), groups, **given)[0][True]  # type: ignore[arg-type]
    few = x[np.arange(min(v, 512)) * v // min(v, 512)]
    s = np.linalg.svd(few - few.mean(0), compute_uv=False)
    p = s[s > 1e-7] / s.sum()
    assert numbers["sample_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-5)


def test_rules_have_different_names_and_readings() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    readings = [reading for rule in RULES for reading in rule.readings]
    assert len(set(readings)) == len(readings)


@cache
def records(name: str, seed: int) -> list[dict[str, float]]:
    """Of a run that experiments/monitor_rules trained; up to its planted fault it is the healthy one."""
    text = lzma.decompress((RUNS / f"{name}-{seed}.jsonl.xz").read_bytes()).decode()
    lines = [json.loads(line) for line in text.splitlines()]
    if lines[0]["step"] == 1:
        return lines
    return [one for one in records(f"{name.partition('-')[0]}-healthy", seed) if one["step"] <= PLANTED] + lines


def warnings_of_a_run(name: str, seed: int, every: int) -> list[Warning_]:
    rules, found = Rules(every), list[Warning_]()
    for one in records(name, seed):
        if one["every"] == every:
            found += rules.see(int(one["step"]), one)
    return found


@pytest.mark.parametrize("every", [10, 20, 50])
@pytest.mark.parametrize("kind", ["gpt2", "encoder"])
@pytest.mark.parametrize("seed", range(5))
def test_healthy_trainings_are_silent(kind: str, seed: int, every: int) -> None:
    assert warnings_of_a_run(f"{kind}-healthy", seed, every) == []


@pytest.mark.parametrize("every", [10, 20, 50])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("gpt2-one_direction", "one_direction"),
        ("gpt2-giant_rows", "giant_rows"),
        ("gpt2-dead_rows", "dead_rows"),
        ("gpt2-rank", "rank"),
        ("encoder-no_negatives", "one_direction"),
    ],
)
def test_collapses_planted_in_trainings_are_found_within_200_steps(name: str, rule: str, seed: int, every: int) -> None:
    found = warnings_of_a_run(name, seed, every)
    first = next(one.step for one in found if one.rule == rule)
    assert PLANTED < found[0].step <= first <= PLANTED + 200


@pytest.mark.parametrize("every", [10, 20, 50])
def test_a_whole_monitor_is_wrong_less_than_once_in_10000_steps(every: int) -> None:
    """With 95% confidence, as simulated; docs/watch.md says so."""
    found = json.loads((RUNS.parent / "simulated.json").read_text())[f"whole {every}"]
    assert chi2.ppf(0.95, 2 * found["alarms"] + 2) / 2 / found["spans"] < 1
