"""What 350 published runs say: statistics against scipy and planted runs, the kept results and the shipped table."""

import csv
import json
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Load = Callable[[str], Any]
stats = pytest.importorskip("scipy.stats")
FOLDER = Path(__file__).parents[2] / "experiments/known_runs"
SHIPPED = Path(__file__).parents[2] / "src/uncone/diagnosis/known/known_readings.csv"
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=9)
shared = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _lines() -> list[dict[str, str]]:
    with (FOLDER / "readings.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _kept() -> Any:
    return json.loads((FOLDER / "results/results.json").read_text())


@shared
@given(pairs)
def test_rank_correlations_with_ties_are_those_of_scipy(known: Load, drawn: list[tuple[int, int]]) -> None:
    correlations, (x, y) = known("correlations"), zip(*drawn, strict=True)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(correlations.tau_b(x, y))
        assert math.isnan(correlations.spearman(x, y))
        return
    assert correlations.tau_b(x, y) == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert correlations.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@shared
@given(st.permutations(range(6)))
def test_the_p_value_of_one_cell_is_exact(known: Load, order: list[int]) -> None:
    found = known("correlations").pool([(range(6), order)])
    assert found.p == pytest.approx(stats.kendalltau(range(6), order, method="exact").pvalue, abs=1e-12)


def test_a_resample_is_the_correlation_of_the_runs_drawn(known: Load) -> None:
    correlations, generator = known("correlations"), np.random.default_rng(1)
    x, y = generator.normal(size=7), generator.normal(size=7).round(1)
    weights = generator.multinomial(7, np.full(7, 1 / 7), size=20).astype(float)
    found = correlations._weighted(correlations.signs(x), correlations.signs(y), weights)
    for of, value in zip(weights.astype(int), found, strict=True):
        drawn = np.repeat(np.arange(7), of)
        assert value == pytest.approx(stats.kendalltau(x[drawn], y[drawn]).statistic, abs=1e-12)


def test_holm_as_in_a_worked_example(known: Load) -> None:
    assert known("correlations").holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert known("correlations").holm([0.6, 0.9]) == [1.0, 1.0]


@pytest.mark.parametrize(("x", "told"), [([0, 0, 0, 1], True), ([0, 0, 0, 0, 1], False), ([1, 2], True)])
def test_a_cell_with_more_than_half_of_its_pairs_tied_is_left_out(known: Load, x: list[int], told: bool) -> None:
    found = known("correlations").pool([(x, range(len(x))), (range(7), range(7))])
    assert (found.cells, found.left_out) == (2, 0) if told else (1, 1)
    assert known("correlations").pool([([0] * 7, range(7))]) is None


def test_planted_runs_are_found_and_noise_is_not(known: Load) -> None:
    pool, generator = known("correlations").pool, np.random.default_rng(3)
    noise = [(generator.normal(size=7), generator.normal(size=7)) for _ in range(5)]
    planted = [(x, x + 0.3 * y) for x, y in noise]
    assert pool(planted).low > 0.3
    assert pool(planted).p < 0.001
    assert pool(noise).low < 0 < pool(noise).high
    assert pool(noise).p > 0.05


def _runs(known: Load, loss: Callable[[float, int], float]) -> list[Any]:
    """Two sizes of ten remedies at seven learning rates; readings of chance."""
    chance, runs, found = random.Random(0), known("runs"), list[Any]()
    for size, r, rate in product((1, 2), range(10), range(7)):
        readings = dict.fromkeys(runs.READINGS, chance.random())
        found.append(runs.Run(size, (f"remedy {r}", ""), rate, loss(rate, r), readings, frozenset()))
    return found


def test_what_decides_the_loss_predicts_it_and_chance_does_not(known: Load) -> None:
    number = {"learning rate": lambda run: run.learning_rate, "chance": lambda run: run.readings["head isotropy"]}
    found = known("prediction").skills(_runs(known, lambda rate, r: abs(rate - 3.2) + 1e-3 * r), number)
    assert found["learning rate"].value > 0.95
    assert found["chance"].high < 0.1
    assert found["chance, rate given"].value > 0.9
    assert set(found["chance"].by_size) == {1, 2}


def test_the_table_has_350_runs_of_two_matrices(known: Load) -> None:
    runs = known("runs").read()
    assert len(runs) == 350
    assert len({(run.size, run.remedy, run.learning_rate) for run in runs}) == 350
    assert sum(bool(run.overflowed) for run in runs) == sum(line["isotropy"] == "nan" for line in _lines()) == 15
    baseline = [run for run in runs if (run.size, run.remedy[0]) == (16, "baseline")]
    (one,) = [run for run in baseline if run.learning_rate == pytest.approx(1e-3)]
    assert (one.loss, one.readings["head isotropy"], one.readings["input mean_shift"]) == (3.881, 0.124, 0.051)
    assert one.readings["head largest_over_mean"] == pytest.approx(4.758 / 2.435)


@pytest.mark.parametrize("fault", ["another loss", "a matrix twice", "one matrix"])
def test_a_run_whose_lines_contradict_is_refused(known: Load, tmp_path: Path, fault: str) -> None:
    lines = _lines()[:2]
    if fault == "another loss":
        lines[1]["test_loss_nats"] = "9"
    lines = {"a matrix twice": [lines[0], lines[0]], "one matrix": lines[:1]}.get(fault, lines)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    with pytest.raises(ValueError, match="expected"):
        known("runs").read(tmp_path / "t.csv")


def test_diverged_runs_lie_beyond_one_nat_of_the_best_of_their_size(known: Load) -> None:
    runs = _runs(known, lambda rate, r: 3.0 + (1.01 if (rate, r) == (6, 0) else 0.99 if rate == 6 else 0.0))
    assert [(run.size, run.remedy[0]) for run in known("runs").diverged(runs)] == [(1, "remedy 0"), (2, "remedy 0")]


COLUMN = {"isotropy": "isotropy", "mean_shift": "mean_shift", "largest_row": "max_norm"}


@pytest.mark.parametrize("matrix", ["input", "head"])
@pytest.mark.parametrize("measure", [*COLUMN, "largest_over_mean"])
@pytest.mark.parametrize("kind", ["over_learning_rates", "at_fixed_learning_rate"])
def test_kept_correlations_are_those_of_the_table(matrix: str, measure: str, kind: str) -> None:
    cells: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    kinds = {"over_learning_rates": ("remedy", "remedy_strength"), "at_fixed_learning_rate": ("learning_rate_label",)}
    for line in _lines():
        over_mean = float(line["max_norm"]) / float(line["mean_norm"])
        value = float(line[COLUMN[measure]]) if measure in COLUMN else over_mean
        if line["table"] == matrix:
            pair = (0.0 if math.isnan(value) else value, float(line["test_loss_nats"]))
            cells.setdefault((line["parameters"], *(line[name] for name in kinds[kind])), []).append(pair)
    taus = []
    for cell in cells.values():
        x = [value for value, _ in cell]
        n = len(x)
        if sum(x[i] == x[j] for i in range(n) for j in range(i)) <= n * (n - 1) / 4:
            taus.append(stats.kendalltau(*zip(*cell, strict=True)).statistic)
    kept = _kept()[kind]["all"][f"{matrix} {measure}"]
    assert (kept["cells"], kept["left_out"]) == (len(taus), len(cells) - len(taus))
    assert kept["tau"] == pytest.approx(np.mean(taus), abs=1e-5)
    assert kept["low"] <= kept["tau"] <= kept["high"]


@pytest.mark.parametrize("measure", [*COLUMN, "largest_over_mean"])
def test_kept_correlations_of_tied_runs_are_those_of_the_table(measure: str) -> None:
    cells: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    with (FOLDER / "tied.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            over_mean = float(line["max_norm"]) / float(line["mean_norm"])
            value = float(line[COLUMN[measure]]) if measure in COLUMN else over_mean
            cell = (line["parameters"], line["remedy"], line["remedy_strength"])
            cells.setdefault(cell, []).append((value, float(line["test_loss_nats"])))
    assert {len(cell) for cell in cells.values()} == {7}
    told = [cell for cell in cells.values() if sum(a == b for a, _ in cell for b, _ in cell) - 7 <= 21]
    taus = [stats.kendalltau(*zip(*cell, strict=True)).statistic for cell in told]
    kept = _kept()["tied"]["over_learning_rates"]["all"][f"tied {measure}"]
    assert (kept["cells"], kept["tau"]) == (len(taus), pytest.approx(np.mean(taus), abs=1e-5))


def test_kept_intervals_and_p_values_come_out_again(known: Load) -> None:
    run, kept = known("run"), _kept()["over_learning_rates"]["mu-centring"]
    cells = run.over_learning_rates(run.in_order(known("runs").read()))["mu-centring"]
    again = run.rounded(run.pooled({"mu-centring": cells})["mu-centring"])
    assert again["head mean_shift"] is kept["head mean_shift"] is None
    for name in ("head isotropy", "input largest_over_mean"):
        assert again[name] == pytest.approx({key: kept[name][key] for key in again[name]}, abs=1e-4)


def test_the_documents_say_what_was_kept(known: Load) -> None:
    kept, readme = _kept(), (FOLDER / "README.md").read_text()
    tables = (FOLDER / "results/tables.md").read_text()
    assert known("tables").all_tables(kept) == tables
    assert f"\n{known('tables').in_short(kept)}\n" in readme
    assert [number for number in re.findall(r"[+-]\d\.\d\d", readme) if number not in tables] == []
    runs = kept["runs"]
    none = runs["isotropy_0.000"]
    for said in (runs["diverged"], none["head"], none["input"], runs["isotropy_nan"]):
        assert f"{said} " in readme
    above = runs["their_losses_above_the_best"]
    assert f"only {sum(one > 1 for one in above)} of their runs" in readme.replace("\n  ", " ")
    assert f"and {sum(one < 0.15 for one in above)} within 0.15" in readme.replace("\n  ", " ")


def test_the_picture_names_every_reading(known: Load) -> None:
    pytest.importorskip("matplotlib")
    for text in ((FOLDER / "results/picture.svg").read_text(), known("picture").draw(_kept())):
        shown = "".join(ElementTree.fromstring(text).itertext())
        assert all(name in shown for name in known("tables").NAMES.values())


def test_the_shipped_table_is_made_from_the_sources(known: Load) -> None:
    make = known("make_table")
    with SHIPPED.open(newline="", encoding="utf-8") as file:
        shipped = list(csv.reader(file))
    runs = (line for table in (make.TABLE, make.TIED) for line in make.of_runs(table))
    published = [list(line) for line in (*runs, *make.of_paper(), *make.of_verified())]
    assert shipped[: 1 + len(published)] == [list(make.COLUMNS), *published]
    assert {line[-1] for line in shipped[1 + len(published) :]} == {make.OWN}


def test_tied_runs_have_one_matrix_and_three_of_those_without_a_remedy_diverged(known: Load) -> None:
    runs, make = known("runs"), known("make_table")
    tied = runs.read(runs.TIED)
    assert len(tied) == 175
    baseline = [run for run in tied if run.remedy[0] == "baseline"]
    gone = [run for run in runs.diverged(tied) if run in baseline]
    assert [(run.size, run.learning_rate) for run in gone] == [(size, pytest.approx(0.3)) for size in (57, 109, 221)]
    lines = list(make.of_runs(make.TIED))
    assert {line[2] for line in lines} == {"tied table"}
    assert len({line[0] for line in lines}) == 35
    assert sum(line[6] == "yes" for line in lines) == 3 * 5


def test_models_whose_verified_tokens_are_in_doubt_are_left_out(known: Load) -> None:
    """Versions that differ, and verification of nothing or of all that was tried."""
    shares = {line[0]: float(line[5]) for line in known("make_table").of_verified()}
    assert len(shares) == 86
    doubted = (
        "allenai/OLMo-2-1124-7B",
        "allenai/OLMo-2-1124-13B",
        "facebook/xglm-7.5B",
        "microsoft/Phi-3-mini-128k-instruct",
    )
    doubted += ("deepseek-ai/DeepSeek-R1", "baidu/ERNIE-4.5-21B-A3B-Thinking", "tiiuae/Falcon3-7B-Base")
    assert not shares.keys() & set(doubted)
    assert shares["openai-community/gpt2"] == pytest.approx(33 / 50257, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stories260K", "all-MiniLM-L6-v2"])
def test_our_lines_are_what_diagnose_reads(known: Load, name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue("stories" if name == "stories260K" else "minilm")
    with SHIPPED.open(newline="", encoding="utf-8") as file:
        kept = [line for line in csv.reader(file) if line[0] == name and line[-1] == "uncone"]
    found = [list(line) for line in known("make_table").of_model(name, model)]
    assert [line[:5] + line[6:] for line in found] == [line[:5] + line[6:] for line in kept]
    for one, other in zip(found, kept, strict=True):
        assert float(one[5]) == pytest.approx(float(other[5]), abs=2e-6)


def test_parameters_are_counted_in_the_files(known: Load, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros((3, 4), "f4"), "b": np.zeros(5, "f4")}, tmp_path / "model.safetensors")
    assert known("make_table").count(tmp_path) == 17
