"""The experiment: its oracle, its planted matrices, and a run from words to tables."""

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from uncone.evaluation.pairs import read_word_sets
from uncone.moments import Moments

HERE = Path(__file__).parents[2] / "experiments/too_much_in_common"
DATA = (Path(__file__).parents[2] / "../shared/data/wordsim").resolve()
pytest.importorskip("sklearn")


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports the experiment's files by name, as run.py does, and forgets them afterwards."""
    monkeypatch.syspath_prepend(str(HERE))
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(HERE)):
            del sys.modules[name]


def test_the_oracle_against_the_definition_row_by_row(experiment: Any) -> None:
    authors = experiment("authors")
    x = np.random.default_rng(0).normal(0.4, 1.0, (40, 5)).astype(np.float32)
    c = np.linalg.eig(x.T @ x)[1]
    z = [sum(math.exp(float(row @ c[:, k])) for row in x) for k in range(5)]
    assert authors.isotropy(x, authors.eigenvectors(x)) == pytest.approx(min(z) / max(z), rel=1e-5)
    removed = authors.without_top(x, 1)
    u = np.linalg.svd(x - x.mean(0))[2][0]
    assert np.allclose(removed @ u, 0, atol=1e-5)
    assert np.allclose(authors.without_top(x, 1, of_centred=False) - removed, -(x.mean(0) @ u) * u, atol=1e-5)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    assert np.allclose((authors.scaled_centred(x) / norms).mean(0), 0, atol=1e-6)


def test_one_sign_is_the_authors_own_where_the_signs_are_theirs(experiment: Any) -> None:
    geometry = experiment("geometry")
    rows = uncone.open_rows(torch.randn(500, 12, generator=torch.Generator().manual_seed(1)) + 0.3)
    found = geometry.table_1(rows, Moments.of(rows))
    for name in ("raw", "centred", "removed"):
        one = found[name]
        assert one["same_signs_as_the_authors"] == pytest.approx(one["authors"], rel=1e-4)
        assert one["low"] <= one["same_signs_as_the_authors"] * (1 + 1e-6)
        assert one["same_signs_as_the_authors"] <= one["high"] * (1 + 1e-6)
        assert one["both_signs"] <= one["low"] * (1 + 1e-6)
    assert found["ratio"] == pytest.approx(found["norm_of_mean"] / found["mean_norm"])
    assert 0.99 < found["cosine_of_top_eigenvector_to_mean"] <= 1


def test_planted_rows_have_the_paper_s_norms_and_follow_the_law(experiment: Any) -> None:
    planted, paper = experiment("planted"), experiment("paper")
    row = paper.table_1_row("gpt2-medium")
    run = planted.measured(row, n=4000, d=128, seeds=(0,))["runs"][0]
    assert run["norm_of_mean"] == pytest.approx(2.04, abs=1e-4)
    assert run["mean_norm"] == pytest.approx(3.68, rel=0.02)
    assert run["both_signs"] < run["low"] <= run["authors"] * (1 + 1e-4)
    assert math.log(run["both_signs"]) / math.log(run["toward_the_mean"]) == pytest.approx(2, abs=0.25)
    wide = planted.measured(row, n=4000, d=128, seeds=(0,), along_mean=2.8)["runs"][0]
    assert wide["away_from_the_mean"] > 5 * wide["toward_the_mean"]  # here the sign alone makes the difference
    assert wide["both_signs"] == pytest.approx(math.exp(-2 * 2.04), rel=0.2)


def _words(tmp_path: Path) -> tuple[Path, Path]:
    words = [f"w{k}" for k in range(200)]
    x = np.random.default_rng(3).normal(0.2, 1.0, (200, 30)).astype(np.float32)
    vectors = tmp_path / "words.vec"
    lines = (f"{w} {' '.join(f'{v:.5f}' for v in r)}\n" for w, r in zip(words, x, strict=True))
    vectors.write_text("200 30\n" + "".join(lines))
    data = tmp_path / "sets"
    data.mkdir()
    pairs = "".join(f"{words[k]}\t{words[k + 1]}\t{k % 7}\n" for k in range(60))
    for file in ("men3000.tsv", "rw2034.tsv", "simlex999.tsv", "ws353_sim.tsv", "ws353_rel.tsv"):
        (data / file).write_text(f"word1\tword2\tscore\n{pairs}")
    return vectors, data


def test_a_run_prints_the_tables_keeps_its_numbers_and_takes_them_up(
    experiment: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, data = _words(tmp_path)
    monkeypatch.setattr(experiment("words"), "RESAMPLES", 100)
    run = experiment("run")
    asked = ["--models", f"gpt2-medium={vectors}", "--data", str(data), "--out", str(tmp_path / "out")]
    run.main(asked)
    printed = capsys.readouterr().out
    for heading in ("### Table 1", "### Beside Table 1", "### Table 2", "### Table 3", "### The usual protocol"):
        assert heading in printed
    lines = printed.splitlines()
    ours = next(k for k, line in enumerate(lines) if line.startswith("| gpt2-medium | "))
    # the paper's row stands under the model of its name
    assert lines[ours + 1].startswith("| paper: gpt2-medium | 0.52 | 0.95 | 0.981 |")
    table_2 = [line for line in lines if line.startswith("| gpt2-medium | scaled_center | ")]
    assert sum(" | 68.22 | 67.95 | " in line for line in table_2) == 1
    for start in (
        "roberta-large | center | – | – | 63.78 | 64.09 |",
        "gpt2-medium | original | 65.01 / 71.55 | ",
        "gpt2 | all_but_the_top_d100 | 76.00 / 75.34 | ",
    ):
        assert any(line.startswith(f"| paper: {start}") for line in lines)
    kept = tmp_path / "out/gpt2-medium.json"
    numbers = json.loads(kept.read_text())
    assert numbers["words"]["paper"]["results"]["men"]["original"]["n"] == 60
    numbers["table_1"]["mean_norm"] = 123.0
    kept.write_text(json.dumps(numbers))
    run.main(asked)
    assert "| 123 |" in capsys.readouterr().out  # taken from the file, since the table is the same
    run.main([*asked, "--again"])
    assert "| 123 |" not in capsys.readouterr().out
    kept.write_text(json.dumps(numbers))
    (data / "men3000.tsv").write_text("\n".join((data / "men3000.tsv").read_text().splitlines()[:51]) + "\n")
    run.main(asked)  # the set is another one
    assert "| 123 |" not in capsys.readouterr().out
    assert json.loads(kept.read_text())["words"]["paper"]["results"]["men"]["original"]["n"] == 50


def test_the_halves_of_wordsim_are_not_taken_as_independent(experiment: Any) -> None:
    tables = experiment("tables")

    def known(low: float, high: float) -> dict[str, dict[str, float]]:
        return {"center": {"difference": 1.0, "low": 1.0 - low, "high": 1.0 + high}}

    sets = {name: known(3.0, 4.0) for name in ("men", "rw", "simlex999")}
    found = tables.mean_differences(sets | {"wordsim_sim": known(1.0, 3.0), "wordsim_rel": known(2.0, 1.0)})["center"]
    assert found["difference"] == 1.0
    assert found["low"] == pytest.approx(1 - math.sqrt(3 * 3.0**2 + (1.0 + 2.0) ** 2) / 5)
    assert found["high"] == pytest.approx(1 + math.sqrt(3 * 4.0**2 + (3.0 + 1.0) ** 2) / 5)
    assert tables.mean_differences(sets | {"wordsim_sim": {}}) == {}


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared word sets are not there")
def test_the_halves_of_wordsim_share_pairs() -> None:
    halves = read_word_sets(DATA, sets=("wordsim_sim", "wordsim_rel"))
    first, second = ({frozenset(pair) for pair in half.pairs} for half in halves)
    assert len(first & second) == 103


def test_nothing_to_do_and_bad_names_are_refused(experiment: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = experiment("run")
    with pytest.raises(SystemExit, match="2"):
        run.main([])
    assert "name models with --models" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"expected NAME=DIR"):
        run.main(["--models", "../x=somewhere"])


def test_the_readme_holds_the_tables_of_the_kept_results(experiment: Any) -> None:
    kept = [json.loads(file.read_text()) for file in sorted((HERE / "results").glob("*.json"))]
    (planted,) = [one["rows"] for one in kept if "rows" in one]
    text = experiment("tables").all_tables([one for one in kept if "name" in one], planted)
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    run = experiment("run")
    assert readme.partition(run.BEGIN)[2].partition(run.END)[0].strip() == text.strip()
    shown = [line.partition("(pictures/")[2].rstrip(")") for line in readme.splitlines() if line.startswith("![")]
    assert sorted(shown) == sorted(file.name for file in (HERE / "pictures").glob("*.png"))


def test_the_readme_holds_the_kept_starts_of_k_means() -> None:
    changes = json.loads((HERE / "results/clusters.json").read_text())["changes"]
    told = " ".join((HERE / "README.md").read_text(encoding="utf-8").split())
    said = {"package": "five starts give", "scikit-learn": "k-means and PCA of scikit-learn alone"}
    said["scikit-learn, no directions"] = "their means alone removed, the change is"
    for name, words in said.items():
        assert f"{words} {min(changes[name]):.2f} to {max(changes[name]):.2f}" in told
    by_set = json.loads((HERE / "results/all-MiniLM-L6-v2.json").read_text())["words"]["field"]["differences"]
    first = np.mean([by_repair["cluster_center"]["difference"] for by_repair in by_set.values()])
    assert changes["package"][0] == pytest.approx(first, abs=1e-6)


def test_rows_without_the_directions_of_their_cluster(experiment: Any) -> None:
    """Three flat clusters far apart: without means the rows are flat, and without two directions nothing is left."""
    clusters, generator = experiment("clusters"), np.random.default_rng(0)
    clusters.CLUSTERS = 3
    flat = generator.normal(size=(3, 40, 2)) @ np.linalg.qr(generator.normal(size=(3, 6, 2)))[0].transpose(0, 2, 1)
    x = (flat - flat.mean(axis=1, keepdims=True) + 100 * np.eye(3, 6)[:, None]).astype(np.float32)
    centred = clusters.moved_by_scikit_learn(x.reshape(-1, 6), seed=0, directions=0)
    assert centred.reshape(x.shape) == pytest.approx(flat - flat.mean(axis=1, keepdims=True), abs=1e-4)
    assert clusters.moved_by_scikit_learn(x.reshape(-1, 6), seed=0, directions=2) == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared word sets are not there")
def test_minilm_as_the_authors_program_has_it(
    experiment: Any, minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table 1 to four digits, Tables 2 and 3 to two, by an implementation with scikit-learn, SciPy and transformers."""
    pearsonr = pytest.importorskip("scipy.stats").pearsonr
    transformers = pytest.importorskip("transformers")
    experiment("words").RESAMPLES = 100
    run, authors = experiment("run"), experiment("authors")
    run.main(["--models", f"minilm={minilm}", "--data", str(DATA), "--out", str(tmp_path)])
    capsys.readouterr()
    found = json.loads((tmp_path / "minilm.json").read_text())
    for name, bar in (("raw", 0.8854), ("centred", 0.9884), ("removed", 0.9937)):
        row = found["table_1"][name]
        assert row["authors"] == pytest.approx(row["same_signs_as_the_authors"], abs=5e-5)
        # Their program takes the sign of each eigenvector that the LAPACK gave, which differs between processors.
        assert row["low"] - 5e-5 <= bar <= row["high"] + 5e-5
        assert row["low"] - 5e-5 <= row["authors"] <= row["high"] + 5e-5
    rows = uncone.open_rows(f"{minilm}#input")
    w = experiment("geometry").whole(rows)
    made = {
        "original": w,
        "center": authors.centred(w),
        "scaled_center": authors.scaled_centred(w),
        "all_but_the_top_2": authors.without_top(w, 2),
        "all_but_the_top_d100": authors.without_top(w, 4),
        "all_but_the_top_original_2": authors.without_top(w, 2, of_centred=False),
    }
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    for one in read_word_sets(DATA):
        ids = [[tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word)) for word in pair] for pair in one.pairs]
        unknown = [tokenizer.unk_token_id]
        kept = [k for k, two in enumerate(ids) if all(len(each) == 1 and each != unknown for each in two)]
        gold = [one.gold[k] for k in kept]
        for method, x in made.items():
            left, right = (x[[ids[k][side][0] for k in kept]] for side in (0, 1))
            inner = (left * right).sum(1)
            cosine = inner / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
            numbers = found["words"]["paper"]["results"][one.name][method]
            assert numbers["n"] == len(kept)
            assert numbers["pearson_inner"] == pytest.approx(100 * pearsonr(inner, gold)[0], abs=0.005)
            assert numbers["pearson_cosine"] == pytest.approx(100 * pearsonr(cosine, gold)[0], abs=0.005)


def test_the_paper_s_tables_agree_with_each_other(experiment: Any) -> None:
    paper, tables = experiment("paper"), experiment("tables")
    assert set(paper.TABLE_2) == set(paper.TABLE_3) < {row.label for row in paper.TABLE_1}
    for name, methods in paper.TABLE_3.items():
        for method, pairs in methods.items():
            assert np.mean(pairs, axis=0) == pytest.approx(paper.TABLE_2[name][method], abs=0.0101)
    for row in paper.TABLE_1:
        assert row.norm_of_mean / row.mean_norm == pytest.approx(row.ratio, abs=0.0101)
    assert "-0.62 for the mean norm (the paper states -0.61), -0.77 for the norm of the mean" in tables._across([])


def test_norms_are_drawn_before_and_after_centring(experiment: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("scipy")
    pictures = experiment("pictures")
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)) + 3
    rows, centred = (uncone.open_rows(one) for one in (x, x - x.mean(0)))
    norms = pictures.norm_densities(rows, centred)
    at = np.array(norms["at"])
    for name, one in (("original", x), ("centred", x - x.mean(0))):
        density = np.array(norms[name])
        assert np.trapezoid(density, at) == pytest.approx(1, abs=0.05)
        assert np.trapezoid(density * at, at) == pytest.approx(float(one.norm(dim=1).mean()), rel=0.05)
    models = [{"name": name, "norms": norms} for name in ("one", "two")]
    assert pictures.draw_norms(models, tmp_path) == ["figure_5.png", "figure_6.png"]
    assert all((tmp_path / f"figure_{number}.png").read_bytes().startswith(b"\x89PNG") for number in (5, 6))


@pytest.mark.slow
def test_pictures_are_drawn(experiment: Any, minilm: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = experiment("pictures")
    rows = uncone.open_rows(f"{minilm}#input")
    moments = Moments.of(rows)
    drawn = pictures.draw("minilm", rows, moments, tmp_path)
    assert drawn == ["minilm_figure_1.png", "minilm_figure_3.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)
    centred = uncone.transforms.repair_named("center", d=384).fit(moments).transform(rows)
    bins = pictures.cosines_to_unused(rows, centred)
    assert bins["unused"] == 994
    assert bins["original"][3] == pytest.approx(-0.046, abs=1e-3)
    assert bins["original"][-1] == pytest.approx(0.713, abs=1e-3)
    assert bins["original_of_paper"][3] == pytest.approx(bins["original"][3], abs=1e-3)


def test_norms_and_isotropy_are_correlated_from_three_models_on(experiment: Any) -> None:
    tables = experiment("tables")
    norms, isotropy = [0.2, 0.9, 0.4, 1.5, 1.1, 0.3, 0.8, 0.6], [0.9, 0.3, 0.5, 0.2, 0.35, 0.6, 0.4, 0.45]
    models = [
        {"table_1": {"norm_of_mean": m, "mean_norm": 2 * m + i % 2, "raw": {"both_signs": one}}}
        for i, (m, one) in enumerate(zip(norms, isotropy, strict=True))
    ]
    assert "models here" not in tables._across(models[:2])
    for n in (3, 7, 8):
        told = tables._across(models[:n])
        expected = np.corrcoef(norms[:n], isotropy[:n])[0, 1]
        assert f"Over the {n} models here, I(W) with both signs: {expected:.2f} for the norm of the mean, " in told
        assert told.endswith("So few models say little.") == (n < 8)
    assert "nan for the norm of the mean" in tables._across(models[:1] * 3)
