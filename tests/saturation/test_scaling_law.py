"""A scaling law, its intervals and the gap of runs, held to closed forms, planted constants and the note's numbers."""

import importlib
import inspect
import math
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.saturation.test_descent import TRUE, fit, simulated
from uncone import report
from uncone.errors import InputError
from uncone.report.plot import charts_of
from uncone.saturation.law.fit import CONSTANTS, Law, fitted, ln_loss, problem_of
from uncone.saturation.law.intervals import deviance, uncertainty

FIXED = {"B": 410.7, "beta": 0.28, "E": 1.69}
TOKENS = 143_000 * 2_097_152
NAMES = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
_TOTAL = "14067712 30494720 70426624 162322944 405334016 1011781632 1414647808 2775208960 6857302016 11846072320"
_OUTSIDE = "1189888 4739072 18915328 85056000 302311424 805736448 1208602624 2517652480 6444163072 11327027200"
_LOSSES = (4.363, 3.998, 3.635, 3.238, 2.836, 2.678, 2.603, 2.484, 2.396, 2.333)
FINAL = dict(zip(NAMES, zip(map(int, _TOTAL.split()), _LOSSES, strict=True), strict=True))
"""Total parameters and final losses of the Pythias, read from figure 1 of Godey et al. 2024."""
BEST = {"14m": (35, 4.358), "31m": (50, 3.932), "70m": (50, 3.585), "160m": (75, 3.177)}
OUTSIDE = dict(zip(NAMES, map(int, _OUTSIDE.split()), strict=True))
"""Their parameters outside the embeddings."""
DATA = (Path(__file__).parents[2] / "../shared/data/pythia/godey2024_digitised.csv").resolve()


def pythias(*, outside: bool = False) -> dict[str, list[object]]:
    n = [OUTSIDE[model] if outside else n for model, (n, _) in FINAL.items()]
    return {"model": [*FINAL], "n": n, "t": [TOKENS] * len(FINAL), "loss": [loss for _, loss in FINAL.values()]}


def test_two_constants_of_two_runs_in_closed_form() -> None:
    n, t, e = np.array([1e8, 4e9]), np.array([2e10, 2e10]), 1.7
    given = 410.7 / t**0.28 + e
    losses = np.array([3.3, 2.6])
    alpha = math.log((losses[0] - given[0]) / (losses[1] - given[1])) / math.log(40)
    law = fit(n, t, losses, fixed={"B": 410.7, "beta": 0.28, "E": e})
    assert law.alpha == pytest.approx(alpha, rel=1e-9)
    assert pytest.approx((losses[0] - given[0]) * 1e8**alpha, rel=1e-8) == law.A
    assert law.gap(n, t, losses) == pytest.approx(0, abs=1e-10)


def test_exact_losses_give_the_planted_constants_and_no_width() -> None:
    n, t, losses = simulated(20, 0.0, seed=0)
    law = fit(n, t, losses)
    assert [getattr(law, name) for name in CONSTANTS] == pytest.approx([getattr(TRUE, c) for c in CONSTANTS], rel=1e-4)
    for constant in uncone.fit_scaling_law({"n": n, "t": t, "loss": losses}, resamples=100).constants:
        low, high = constant.profile
        assert high - low < 1e-3 * constant.value


def test_the_notes_gaps_from_the_papers_constants() -> None:
    paper = Law(119.09, 0.246, **FIXED)
    small = list(BEST)
    n = [FINAL[model][0] for model in small]
    final = paper.gap(n, [TOKENS] * 4, [FINAL[model][1] for model in small])
    assert 100 * final == pytest.approx([8.6, 9.3, 8.9, 5.2], abs=0.05)
    assert 100 * final.mean() == pytest.approx(7.98, abs=0.005)
    best = paper.gap(n, [step * 2_097_152_000 for step, _ in BEST.values()], [loss for _, loss in BEST.values()])
    assert 100 * best == pytest.approx([5.3, 5.0, 4.7, 1.5], abs=0.06)
    assert 100 * best.mean() == pytest.approx(4.13, abs=0.01)


def test_the_gap_of_the_small_pythias_turns_its_sign_without_embeddings() -> None:
    record = uncone.fit_scaling_law(pythias(), smallest=4e8, fixed=FIXED, resamples=400)
    assert 100 * record.gap.value == pytest.approx(8.8, abs=0.1)
    assert 0.03 < record.gap.low < 0.06
    assert 0.11 < record.gap.high < 0.15
    assert record.verdict.startswith("The 4 runs below 400M are 8.9% (")
    assert record.verdict.endswith(
        "above the law of the 6 larger runs, and each run alone is off it. N counts all parameters."
    )
    assert max(abs(run.gap) for run in record.runs if run.fitted) == pytest.approx(0.0073, abs=5e-4)
    options = {"smallest": 3e8, "fixed": FIXED, "parameters": "non-embedding", "resamples": 400}
    other = uncone.fit_scaling_law(pythias(outside=True), **options)
    assert 100 * other.gap.value == pytest.approx(-3.6, abs=0.15)
    assert [round(100 * run.gap) for run in other.runs[:4]] == [-13, -5, 1, 3]
    said = "Together the 4 runs below 300M show no clear gap from the law of the 6 larger runs: -3.6% ("
    assert other.verdict.startswith(said)
    low, high = other.runs[0].interval
    assert high < 0 < other.runs[1].p_holm
    assert f". Alone, 1 of 4 is off it: 14m -13.4% ({low:+.1%} to {high:+.1%}). N" in other.verdict
    assert "N counts the parameters outside the embeddings" in other.verdict


def test_the_chance_of_a_gap_is_that_at_which_its_interval_reaches_0() -> None:
    """A slow count of the simulated errors of one run, and the interval at that level."""
    n, t, losses = simulated(20, 0.01, seed=5)
    problem = problem_of(n, t, losses)
    known = uncertainty(problem, fitted(problem), resamples=199)
    loss = known.law.predict(1e7, 1e11) * np.array([1.0, 1.02, 0.93])
    chances = known.chances(np.full(3, 1e7), np.full(3, 1e11), loss)
    assert chances[0] > 0.5
    assert chances[2] == pytest.approx(2 / 200)
    for chance, one in zip(chances, loss, strict=True):
        interval = known.mean_gap(np.array([1e7]), np.array([1e11]), np.array([one]))
        assert (interval[1] <= 0 <= interval[2]) == (chance > 0.05)


def test_a_run_alone_is_named_where_the_mean_hides_it() -> None:
    rows = pythias(outside=True)
    small = rows["loss"][:4]
    up, down = small[0] * 1.2, small[1] * 0.8
    rows["loss"][:4] = [up, down, *small[2:]]
    said = uncone.fit_scaling_law(rows, smallest=3e8, fixed=FIXED, parameters="non-embedding", resamples=400).verdict
    assert ". Alone, 1 of 4 is off it: 31m -" in said or ". Alone, 2 of 4 are off it: " in said
    few = uncone.fit_scaling_law(rows, smallest=3e8, fixed=FIXED, resamples=100)
    assert "No single run of 4 can be shown off the law: that takes 160 resamples." in few.notes


def test_each_of_the_larger_pythias_left_out() -> None:
    runs = [(n, loss) for n, loss in FINAL.values() if n >= 4e8]
    alphas, gaps = [], []
    for left in runs:
        n, losses = (np.array(of) for of in zip(*(run for run in runs if run != left), strict=True))
        law = fit(n, np.full(5, TOKENS), losses, fixed=FIXED)
        alphas.append(law.alpha)
        gaps.append(law.gap([FINAL[m][0] for m in BEST], [TOKENS] * 4, [FINAL[m][1] for m in BEST]).mean())
    assert [min(alphas), max(alphas)] == pytest.approx([0.240, 0.248], abs=1e-3)
    assert [min(gaps), max(gaps)] == pytest.approx([0.079, 0.093], abs=1e-3)


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not there")
def test_the_digitised_file_gives_the_notes_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "experiments"))
    study = importlib.import_module("saturation.scaling_law")
    names = ("FAMILY", "losses", "mean_gap", "parameters", "table")
    FAMILY, losses, mean_gap, parameters, table = (getattr(study, name) for name in names)
    assert {model: parameters(model, total=True) for model in FAMILY} == {model: n for model, (n, _) in FINAL.items()}
    assert {model: parameters(model, total=False) for model in FAMILY} == OUTSIDE
    final, best = losses(DATA)
    notes = {True: (113.2, 0.2441, 8.8, 4.9), False: (70.2, 0.223, -3.6, -6.8)}
    for total, (a, alpha, gap, gap_of_best) in notes.items():
        runs = table(final, best, total=total, at_best=False)
        smallest = parameters("410m", total=total)
        n, t, loss = (np.array(runs[name], float)[4:] for name in ("n", "t", "loss"))
        law = fit(n, t, loss, fixed=FIXED)
        assert pytest.approx(a, abs=0.1) == law.A
        assert law.alpha == pytest.approx(alpha, abs=5e-4)
        assert 100 * mean_gap(law, runs, smallest)[0] == pytest.approx(gap, abs=0.06)
        at_best = table(final, best, total=total, at_best=True)
        assert 100 * mean_gap(law, at_best, smallest)[0] == pytest.approx(gap_of_best, abs=0.06)


@pytest.mark.slow
@pytest.mark.long
def test_intervals_hold_planted_constants_as_often_as_they_say() -> None:
    """120 simulations of six runs: binomial limits at 99.9%. `experiments/saturation/coverage.py` has 1,000 a cell."""
    n = np.array([n for n, _ in FINAL.values() if n >= 4e8])
    true, t = Law(119.09, 0.246, **FIXED), np.full(6, TOKENS)
    hits = np.zeros(3)
    for seed in range(120):
        losses = true.predict(n, t) * np.exp(0.01 * np.random.default_rng(seed).standard_normal(6))
        problem = problem_of(n, t, losses, fixed=FIXED)
        known = uncertainty(problem, fitted(problem), resamples=199, seed=seed)
        bootstrap, (low, high) = known.constants()[1], known.profiles()[1]
        _, gap_low, gap_high = known.mean_gap(n[:2], t[:2], true.predict(n[:2], t[:2]))
        hits += [bootstrap[0] <= 0.246 <= bootstrap[1], low <= 0.246 <= high, gap_low <= 0 <= gap_high]
    assert (hits / 120 > 0.87).all()
    assert (hits[:2] < 120).all()


def test_the_profile_ends_where_the_deviance_meets_its_threshold() -> None:
    n, t, losses = simulated(20, 0.01, seed=5)
    problem = problem_of(n, t, losses)
    law = fitted(problem)
    known = uncertainty(problem, law, resamples=100)
    for place, name in ((0, "A"), (3, "beta")):
        for end in known.profiles()[place]:
            rise = np.array(fit(n, t, losses, fixed={name: end}).objective - law.objective)
            assert deviance(rise, np.array(known.noise), 1e-3) == pytest.approx(known.thresholds[place], rel=0.02)


def test_the_deviance_of_squares_is_the_sum_over_the_variance_and_of_sizes_twice_that_of_medians() -> None:
    """Within delta the rise is of half squares; far beyond, 2 rise E|psi'| / E psi^2 = 4 phi(0) rise / delta noise."""
    rise, noise = np.array([1.0, 2.0]), np.array([0.01, 0.02])
    assert deviance(rise, noise, 10.0) == pytest.approx(2 * rise / noise**2)
    expected = 4 * rise / (math.sqrt(2 * math.pi) * 1e-8 * noise)
    assert deviance(rise, noise, 1e-8) == pytest.approx(expected, rel=1e-5)
    assert deviance(rise, noise, 1.1e-5) == pytest.approx(expected * 1e-8 / 1.1e-5, rel=3e-3)


def test_a_band_holds_new_runs_and_widens_away_from_the_fitted_ones() -> None:
    n, t, losses = simulated(40, 0.01, seed=6)
    problem = problem_of(n, t, losses)
    known = uncertainty(problem, fitted(problem), resamples=300)
    low, high = known.band(np.array([1e6, 1e9, 1e13]), np.full(3, 1e11))
    middle = known.law.predict([1e6, 1e9, 1e13], 1e11)
    assert ((low < middle) & (middle < high)).all()
    width = np.log(high / low)
    assert width[1] == pytest.approx(4 * known.noise, rel=0.3)
    assert width[0] > 2 * width[1]
    generator = np.random.default_rng(7)
    new = ln_loss(TRUE.theta[None], np.log([[1e9], [1e11]]))[0, 0] + 0.01 * generator.standard_normal(1000)
    assert np.mean((np.log(low[1]) <= new) & (new <= np.log(high[1]))) > 0.88


def test_the_same_seed_gives_the_same_record() -> None:
    options = {"smallest": 4e8, "fixed": FIXED, "resamples": 100}
    first, second, other = (uncone.fit_scaling_law(pythias(), **options, seed=seed) for seed in (3, 3, 4))
    assert first.to_json() == second.to_json()
    assert other.constants[0].value == first.constants[0].value
    assert other.constants[0].bootstrap != first.constants[0].bootstrap


def test_a_record_is_drawn_and_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    options = {"smallest": 4e8, "fixed": FIXED, "resamples": 100}
    record = uncone.fit_scaling_law(pythias(), **options, progress=lambda *now: told.append(now))
    assert (told[0], told[-1]) == (("simulate", 0, 3), ("simulate", 3, 3))
    page = report.to_html(record)
    assert "Gap over N" in page
    assert "non-embedding" not in page
    law, gaps = charts_of(record.blocks()).values()
    fitted_runs, held = law.curves[1:]
    assert list(held.y) == pytest.approx([loss for n, loss in FINAL.values() if n < 4e8], rel=1e-9)
    assert list(gaps.curves[2].y) == pytest.approx([100 * run.gap for run in record.runs[:4]], rel=1e-9)
    assert len(fitted_runs.x) == 6
    rows = record.to_rows()
    assert (rows[0]["model"], rows[0]["gap_low"], rows[9]["gap_low"]) == ("14m", record.runs[0].interval[0], None)


def test_a_law_that_is_given_only_reads_gaps() -> None:
    given = {"A": 119.09, "alpha": 0.246, **FIXED}
    record = uncone.fit_scaling_law(pythias(), smallest=4e8, fixed=given, resamples=100)
    assert [c.value for c in record.constants] == pytest.approx([given[name] for name in CONSTANTS])
    assert all(c.given and c.profile is None and c.bootstrap is None for c in record.constants)
    assert 100 * record.gap.value == pytest.approx(7.98, abs=0.005)


def test_no_run_to_spare_leaves_intervals_out_and_says_so() -> None:
    record = uncone.fit_scaling_law({"n": [1e8, 1e9], "t": [3e11] * 2, "loss": [3.3, 2.7]}, fixed=FIXED)
    assert record.noise is None
    assert record.constants[0].profile is None
    assert record.resamples == 0
    assert "no more than constants" in report.to_markdown(record)


def test_columns_of_a_csv_file_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    rows = [f"{model},{n},{TOKENS},{loss}" for model, (n, loss) in FINAL.items()]
    file.write_text("\n".join(["name,params,tokens,nats", *rows]) + "\n")
    names = {"model": "name", "n": "params", "t": "tokens", "loss": "nats"}
    record = uncone.fit_scaling_law(file, columns=names, smallest=4e8, fixed=FIXED, resamples=100)
    assert record.name == f"{tmp_path.name}/runs.csv"
    assert [run.model for run in record.runs] == list(FINAL)
    have = r"got name, params, tokens, nats \(without n, t, loss\)"
    with pytest.raises(InputError, match=f"expected the columns model, n, t, loss, {have}"):
        uncone.fit_scaling_law(file)


RUNS = {"n": [1e8, 2e8, 4e8, 8e8, 1.6e9, 3e9], "t": [1e10, 3e10, 1e11, 2e10, 8e10, 5e10]}
RUNS |= {"loss": [3.9, 3.6, 3.3, 3.2, 3.0, 2.9]}


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"loss": [3.9, math.nan, 3.3, 3.2, 3.0, 2.9]}, {}, "expected losses above 0, got nan in run 2"),
        ({"n": [0, 2e8, 4e8, 8e8, 1.6e9, 3e9]}, {}, "expected parameters above 0, got 0.0 in run 1"),
        ({"t": [1e10]}, {}, "expected columns of one length"),
        ({"loss": ["a"] * 6}, {}, "expected a number for loss in run 1, got 'a'"),
        ({"n": [1e8] * 6}, {}, r"determine A, alpha, B, beta, E, got others \(all runs have N = 1e\+08\)"),
        ({"t": [1e10] * 6}, {}, r"all runs have T = 1e\+10"),
        ({"n": [1e8] * 6}, {"fixed": FIXED}, "determine A, alpha, got"),
        ({"n": [1e8, 1e9] * 3, "t": [1e10, 2e10] * 3}, {}, r"E, got others \(2 different pairs of N and T\)"),
        ({}, {"fixed": {"gamma": 1}}, "expected constants A, alpha, B, beta, E, got 'gamma'"),
        ({}, {"fixed": {"Alpha": 1}}, "did you mean 'alpha'"),
        ({}, {"fixed": {"E": 0}}, "expected a number above 0 for E, got 0"),
        ({}, {"fixed": {"alpha": math.inf}}, "expected a number for alpha, got inf"),
        ({}, {"smallest": 5e8}, "expected at least 5 runs to fit 5 constants, got 3"),
        ({}, {"smallest": 1e12}, "expected runs of at least 1e"),
        ({}, {"resamples": 10}, "expected at least 100 resamples, got 10"),
        ({}, {"delta": 0}, "expected delta above 0"),
        ({}, {"columns": {"size": "n"}}, "without size"),
        ({"model": ["a"]}, {}, "expected columns of one length"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changed: dict[str, object], options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        uncone.fit_scaling_law({**RUNS, **changed}, **options)  # type: ignore[arg-type]


def test_what_n_counts_is_one_of_two() -> None:
    unchecked = inspect.unwrap(uncone.fit_scaling_law)  # beartype would say it first
    with pytest.raises(InputError, match="expected parameters 'total' or 'non-embedding', got 'all'"):
        unchecked(RUNS, parameters="all")
