"""`uncone repair`: what is written, what is said of it, and what is refused before anything is written."""

import gzip
import inspect
import json
import lzma
import math
import os
import re
import shlex
import shutil
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import uncone
from uncone import InputError, cli
from uncone.edits.repair_tokens import repair_tokens
from uncone.evaluation.record import Interval, Selection
from uncone.records.blocks import Table
from uncone.records.load import load_record
from uncone.repairs.encoder import narrow_dtype, told_of_rounding, told_of_split
from uncone.repairs.record import NOT_KNOWN, Lengths, Repaired, ways
from uncone.repairs.repair import kind_of, repair, with_whole_names
from uncone.repairs.sentences import Sentences, _drawn, read_sentences
from uncone.repairs.vectors import compare, gains
from uncone.report import to_html, to_markdown
from uncone.transforms import Affine, Center, load

from ..command import run_command
from ..matrices import gaussian
from ..planted import drifted, healthy, write_model
from ..planted_tokens import plant

refused = partial(pytest.raises, InputError)


@pytest.fixture
def cone(tmp_path: Path) -> Path:
    """2,000 x 16 rows with a common direction."""
    np.save(tmp_path / "cone.npy", (gaussian(2000, 16) + torch.linspace(0, 2, 16)).numpy())
    return tmp_path / "cone.npy"


def _run(*arguments: str | Path, verb: str = "repair") -> None:
    cli.main([verb, *map(str, arguments)])


def _fails(capsys: pytest.CaptureFixture[str], *arguments: str | Path, verb: str = "repair") -> str:
    status, _, error = run_command(verb, capsys, *arguments)
    assert (status, error[:8], error.count("\n")) == (1, "uncone: ", 1)
    return error


def _plain(argument: object) -> object:
    return Path(argument) if isinstance(argument, str | os.PathLike) and "/" in os.fspath(argument) else argument


def test_a_cone_is_centred_and_the_gain_is_said(cone: Path, tmp_path: Path) -> None:
    found = repair(cone, tmp_path / "y.npy", save=tmp_path / "t.safetensors", method="center")
    x, y = np.load(cone), np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(y, x - x.mean(0, dtype=np.float64), atol=1e-5)
    for side, rows in ((found.before, x), (found.after, y)):
        value = {m.name: m.value for m in side}
        assert list(value) == ["mean_cosine", "isoscore", "effective_rank", "partition_isotropy"]
        cosine, isotropy = uncone.measure.mean_cosine(uncone.Moments.of(rows)), uncone.measure.partition_isotropy(rows)
        assert value["mean_cosine"] == pytest.approx(float(cosine), abs=1e-6)
        assert value["partition_isotropy"] == pytest.approx(float(isotropy), rel=1e-5)
    assert found.gains is True
    assert found.verdict.startswith("Of these measures only the mean cosine shows ")
    assert "cone.npy to be rounder. " in found.verdict
    assert "center takes the mean cosine from 0.5" in found.verdict
    moved, whole = (np.linalg.norm(rows.astype(np.float64)) for rows in (y.astype(np.float64) - x, x))
    assert found.cost.relative_change == pytest.approx(moved / whole, rel=1e-6)
    assert (found.cost.rank_lost, found.n, found.d, found.k, found.dtype) == (0, 2000, 16, 16, "float32")
    assert found.fitted.n == 2000
    assert Repaired.from_json(found.to_json()) == found
    np.testing.assert_array_equal(load(tmp_path / "t.safetensors").transform(x), y)


def test_healthy_rows_get_no_rounder(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", gaussian(2000, 16).numpy())
    found = repair(tmp_path / "x.npy", tmp_path / "y.npy", method="center")
    assert found.gains is False
    assert "x.npy is not rounder (its mean cosine was near 0 already: " in found.verdict
    assert NOT_KNOWN in found.verdict


@pytest.mark.parametrize(("length", "is_told"), [(9.9, False), (10.2, True)])
def test_a_giant_row_that_the_fit_follows_is_told(tmp_path: Path, length: float, is_told: bool) -> None:
    x = torch.nn.functional.normalize(gaussian(2000, 16), dim=1)
    x[3] *= length
    np.save(tmp_path / "x.npy", x.numpy())
    found = repair(tmp_path / "x.npy", tmp_path / "y.npy", method="center")
    assert any("has a row 10.2 times as long as rows are on average" in note for note in found.notes) == is_told


@pytest.mark.parametrize("method", ["center", "whiten", "all_but_the_top_2"])
@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_without_a_task_nothing_is_better_or_worse(tmp_path: Path, method: str, shift: float) -> None:
    np.save(tmp_path / "x.npy", (gaussian(2000, 16) + shift).numpy())
    found = repair(tmp_path / "x.npy", tmp_path / "y.npy", method=method)
    assert NOT_KNOWN in found.verdict
    for text in (to_markdown(found), to_html(found).partition("<main")[2], found.verdict):
        assert not re.search(r"\b(better|worse|leave it|gain\w*|repair it)\b", text, re.IGNORECASE), text
    assert {getattr(block, "tone", "") for block in found.blocks()} <= {"note", "quiet", "caution", ""}


def test_the_next_command_starts_from_the_source_and_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    rows, y, saved = folder / "my rows.npy", folder / "y.npy", tmp_path / "t.safetensors"
    np.save(rows, gaussian(200, 16).numpy())
    found = repair(rows, y, method="center", save=saved)
    own = "uncone evaluate --task retrieval --queries {} --documents {} --qrels QRELS"
    assert found.next_step == own.format("QUERIES", "'a b/my rows.npy'") + " --method center"
    whole = with_whole_names(found, {"spec": str(rows), "out": str(y)})
    words = shlex.split(whole.next_step)
    assert words[words.index("--documents") + 1] == str(rows)
    assert f"`uncone calibrate '{y}'`" in whole.index[-1]
    queries = repair(rows, folder / "z.npy", method="center", fit_on=y)
    assert queries.next_step == own.format("'a b/my rows.npy'", "'a b/y.npy'") + " --method center"
    assert "`uncone calibrate REPAIRED_DOCUMENTS --queries 'a b/z.npy'` gives new ones" in queries.index[-1]
    same = repair(str(y), folder / "u.npy", method="center", fit_on=y)
    assert same.next_step == own.format("QUERIES", "'a b/y.npy'") + " --method center"
    assert "`uncone calibrate 'a b/u.npy'` gives new ones" in same.index[-1]
    loaded = repair(y, folder / "w.npy", load=saved)
    assert loaded.next_step == own.format("'a b/w.npy'", "REPAIRED_DOCUMENTS")  # both sides repaired
    assert "`uncone calibrate REPAIRED_DOCUMENTS --queries 'a b/w.npy'` gives new ones" in loaded.index[-1]
    assert "`uncone repair DOCUMENTS REPAIRED_DOCUMENTS --load " in loaded.index[1]
    model = write_model(tmp_path / "m", healthy())
    table = repair(f"{model}#input", tmp_path / "t.npy", method="center")
    assert table.next_step.endswith("#input' --task wordsim --data PAIRS --method center")
    assert len(table.index) == 1
    command, bound, _ = cli.program.app.parse_args(shlex.split(table.next_step)[1:], exit_on_error=False)
    assert (command.__name__, bound.arguments["method"]) == ("evaluate", ["center"])


def test_the_commands_of_a_record_run_as_they_are_pasted(
    cone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # a path is cut where a line of the terminal ends
    np.save("QUERIES.npy", gaussian(60, 16).numpy())
    _run(cone, "y.npy", "--method", "center", "--normalize", "--save", tmp_path / "t.safetensors")
    told = " ".join(capsys.readouterr().out.split())
    pasted = [shlex.split(command) for command in re.findall(r"`(uncone (?:repair|calibrate) [^`]*)`", told)]
    assert [words[1] for words in pasted] == ["repair", "calibrate"]
    for words in pasted:
        cli.main([re.sub("(?<=QUERIES)$", ".npy", word) for word in words[1:]])
    assert np.load("REPAIRED_QUERIES.npy").shape == (60, 16)
    (command,) = re.findall(r"uncone evaluate --task .* --method center", told)
    options = {word[2:] for word in shlex.split(command) if word.startswith("--")}
    known = set(inspect.signature(cli.program.app["evaluate"].default_command).parameters)
    if "qrels" in known:  # own vectors with own judgements
        assert options <= known


def _unit_cone(tmp_path: Path, n: int = 2000) -> Path:
    x = gaussian(n, 16, seed=n) + torch.linspace(0, 2, 16)
    np.save(tmp_path / f"unit{n}.npy", (x / x.norm(dim=1, keepdim=True)).numpy())
    return tmp_path / f"unit{n}.npy"


def test_rows_that_lose_their_unit_length_are_named_first(tmp_path: Path) -> None:
    found = repair(_unit_cone(tmp_path), tmp_path / "y.npy", method="center")
    norms = np.linalg.norm(np.load(tmp_path / "y.npy").astype(float), axis=1)
    lengths = found.lengths_after
    assert (found.lengths_before.is_unit, lengths.is_unit) == (True, False)
    assert (lengths.mean, lengths.smallest, lengths.largest) == pytest.approx((norms.mean(), norms.min(), norms.max()))
    assert f"The rows had length 1 and are {norms.mean():.3g} long on average now." in found.verdict
    caution = next(block for block in found.blocks() if getattr(block, "tone", "") == "caution")
    assert found.blocks().index(caution) == 2
    assert caution.text.startswith("The rows had length 1 and now have lengths of 0.")
    assert "--normalize" in caution.text
    assert "their inner product is no longer their cosine" in found.index[0]
    near = (Lengths(1.0, 0.9991, 1.0009), Lengths(1.0, 0.9989, 1.0), Lengths(1.0, 1.0, 1.0011))
    assert [one.is_unit for one in near] == [True, False, False]


def test_normalised_rows_have_length_one_and_queries_get_the_same(tmp_path: Path) -> None:
    documents, queries = _unit_cone(tmp_path), _unit_cone(tmp_path, 50)
    saved = tmp_path / "t.safetensors"
    found = repair(documents, tmp_path / "y.npy", method="center", normalize=True, save=saved)
    x, q = np.load(documents).astype(np.float64), np.load(queries).astype(np.float64)
    expected, asked = (rows - x.mean(0) for rows in (x, q))
    for rows in (expected, asked):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-6)
    again = repair(queries, tmp_path / "a.npy", load=saved)
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), asked, atol=1e-6)
    assert (found.normalized, again.normalized) == (True, True)
    assert (found.label, again.label) == ("center (normalised)", "Center (normalised)")
    assert found.index[0] == "The rows have length 1, so their inner product is their cosine."
    assert "--load repairs" not in found.index[1]
    assert "t.safetensors`" in found.index[1]
    assert not any(getattr(block, "tone", "") == "caution" for block in found.blocks())
    plain = tmp_path / "plain.safetensors"
    repair(documents, tmp_path / "z.npy", method="center", save=plain)
    divided = repair(queries, tmp_path / "b.npy", load=plain, normalize=True)
    assert "plain.safetensors --normalize`" in divided.index[1]
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_empty_texts_stay_zero_in_documents_and_in_queries(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32) + 1
    x[5:8] = 0
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "q.npy", x[7:20])
    saved = tmp_path / "t.safetensors"
    of = uncone.repair(tmp_path / "x.npy", tmp_path / "y.npy", method="center", normalize=True, save=saved)
    queries = uncone.repair(tmp_path / "q.npy", tmp_path / "p.npy", load=saved)
    assert of.notes[0] == "3 rows that are all zero stay zero: they have no direction to repair."
    assert queries.notes[0] == "1 row that is all zero stays zero: it has no direction to repair."
    y, p = np.load(tmp_path / "y.npy"), np.load(tmp_path / "p.npy")
    assert not y[5:8].any()
    assert (p == y[7:20]).all()


def test_a_threshold_by_cosine_holds_for_inner_products_of_normalised_rows_alone(tmp_path: Path) -> None:
    """The trap: by inner product a threshold for cosines lets next to nothing through."""
    source, shares = _unit_cone(tmp_path), dict[bool, float]()
    for normalize in (False, True):
        out = tmp_path / f"{normalize}.npy"
        repair(source, out, method="center", normalize=normalize)
        threshold = uncone.calibrate(out, rates=[1e-4]).thresholds[0].score
        y = np.load(out).astype(np.float64)
        shares[normalize] = float(((y * y).sum(1) >= threshold).mean())  # each row asked for itself
    assert shares[False] < 0.02
    assert shares[True] == 1


def test_a_whitening_says_its_power(cone: Path, tmp_path: Path) -> None:
    found = repair(cone, tmp_path / "y.npy", method="whiten", save=tmp_path / "t")
    assert "whiten (power 0.5) takes the mean cosine" in found.verdict
    assert any(block.text.startswith("whiten (power 0.5); fitted on") for block in found.blocks()[2:4])
    assert "Whiten (power 0.5) takes" in repair(cone, tmp_path / "z.npy", load=tmp_path / "t").verdict


def test_a_wider_cone_of_one_direction_is_no_gain() -> None:
    narrow = gaussian(2000, 8) + 10
    narrow[:, 0] *= 3
    worse = compare(narrow - narrow.mean(0), gaussian(2000, 8) + 3)
    assert worse.after[1].value - worse.before[1].value > 0.05
    assert gains(worse) is False


@pytest.mark.parametrize("factor", [0.01, 30.0])
def test_a_change_of_scale_alone_is_no_change(cone: Path, tmp_path: Path, factor: float) -> None:
    """I(W) follows the length of rows; the verdict, and how far rows moved, do not."""
    x = np.load(cone).astype(np.float64)
    same = compare(x, factor * x)
    assert (same.relative_change, same.scale) == (pytest.approx(0, abs=1e-12), pytest.approx(factor))
    assert gains(same) is False
    assert ways(same.before, same.after)[:2] == ([], [])
    assert same.after[3].value != pytest.approx(same.before[3].value, rel=0.5)
    y = np.random.default_rng(0).normal(size=x.shape) + x @ np.diag(np.linspace(0.5, 2, 16))
    plain, scaled = compare(x, y), compare(x, factor * y)
    assert scaled.relative_change == pytest.approx(plain.relative_change, rel=1e-9)
    assert scaled.scale == pytest.approx(factor * plain.scale)
    assert ways(scaled.before, scaled.after) == ways(plain.before, plain.after)
    best = np.linalg.lstsq(x.reshape(-1, 1), y.reshape(-1), rcond=None)
    assert plain.relative_change == pytest.approx(math.sqrt(best[1][0] / (y * y).sum()), rel=1e-6)
    assert compare(x, -x).relative_change == 1
    assert compare(x, 0 * x).relative_change == 1
    assert compare(x, x[:, :3]).relative_change is None
    Affine(np.zeros(16), factor * np.eye(16)).save(tmp_path / "t.safetensors")
    told = repair(cone, tmp_path / "y.npy", load=tmp_path / "t.safetensors").verdict
    assert "cone.npy is not rounder. " in told
    assert "I(W)" not in told
    assert f"moved by <0.001% of their length, leaving scale aside, and are {factor:g} times as long now" in told


def test_measures_that_disagree_are_named(cone: Path, tmp_path: Path) -> None:
    """The common direction goes, and one dimension grows until it alone counts."""
    weight = np.diag([10.0, *[1.0] * 15])
    Affine(np.load(cone).mean(0, dtype=np.float64), weight).save(tmp_path / "t.safetensors")
    found = repair(cone, tmp_path / "y.npy", load=tmp_path / "t.safetensors")
    assert found.gains is False
    assert "is rounder by the mean cosine and less round by IsoScore and the effective rank. Affine" in found.verdict
    assert to_markdown(found).startswith("# **MEASURES DISAGREE**")
    (table,) = (block for block in found.blocks() if isinstance(block, Table) and "rounder is" in block.columns)
    assert [row[-1] for row in table.rows][:4] == ["lower", "higher", "higher", "depends on length"]


def test_removed_directions_are_counted(cone: Path, tmp_path: Path) -> None:
    found = repair(cone, tmp_path / "y.npy", method="all_but_the_top_2")
    assert (found.cost.rank_lost, found.options) == (2, {"n_components": 2, "centered": True})
    assert "2 of 16 directions lost" in found.verdict


def test_queries_get_what_was_fitted_on_documents(cone: Path, tmp_path: Path) -> None:
    queries = (gaussian(50, 16, seed=3) + 1).numpy()
    np.save(tmp_path / "q.npy", queries)
    mean = np.load(cone).mean(0, dtype=np.float64)
    found = repair(tmp_path / "q.npy", tmp_path / "a.npy", fit_on=cone, save=tmp_path / "t", method="center")
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), queries - mean, atol=1e-5)
    assert any("Fitted on other rows: on" in note and "cone.npy" in note for note in found.notes)
    again = repair(tmp_path / "q.npy", tmp_path / "b.npy", load=tmp_path / "t")
    assert again.cost.fit_seconds is None
    assert again.method == "Center"
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_ids_next_to_the_vectors_go_with_them_and_replace_nothing(cone: Path, tmp_path: Path) -> None:
    n = len(np.load(cone))
    np.save(tmp_path / "d.npy", np.load(cone))
    (tmp_path / "d.ids").write_text("".join(f"id-{i}\n" for i in range(n)))
    found = repair(tmp_path / "d.npy", tmp_path / "r.npy", method="center")
    assert "d.ids, next to the vectors, was copied to r.ids." in found.notes
    assert (tmp_path / "r.ids").read_bytes() == (tmp_path / "d.ids").read_bytes()
    (tmp_path / "s.ids").write_text("mine")
    found = repair(tmp_path / "d.npy", tmp_path / "s.npy", method="center")
    assert "d.ids, next to the vectors, was not copied: s.ids exists." in found.notes
    assert (tmp_path / "s.ids").read_text() == "mine"
    found = repair(tmp_path / "d.npy", tmp_path / "s.npy", method="center", overwrite=True)
    assert "d.ids, next to the vectors, was not copied: s.ids exists." in found.notes
    assert (tmp_path / "s.ids").read_text() == "mine"
    found = repair(tmp_path / "d.npy", tmp_path / "r.npy", method="center", overwrite=True)
    assert not any("d.ids" in note for note in found.notes)


def test_counts_weigh_the_rows_that_are_fitted_on(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", drifted())
    table = uncone.open_rows(f"{model}#input")
    x = np.concatenate(list(table.blocks()))
    counts = np.arange(len(x)) % 5
    np.save(tmp_path / "counts.npy", counts)
    found = repair(f"{model}#input", tmp_path / "y.npy", counts=tmp_path / "counts.npy", method="center")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), x - np.average(x, 0, counts), atol=1e-4)
    assert found.method == "zipf_center"
    assert any("the measures count each row once" in note for note in found.notes)
    with refused(match="expected counts of tokens for zipf_center, got none"):
        repair(f"{model}#input", tmp_path / "z.npy", method="zipf_center")


def test_rows_that_are_not_finite_are_refused_or_left_out_as_asked(cone: Path, tmp_path: Path) -> None:
    x = np.load(cone)
    x[[7, 300], 3] = np.nan
    np.save(tmp_path / "x.npy", x)
    with refused(match=r"expected finite rows, got 2 rows of 2000 .*--skip-nonfinite"):
        repair(tmp_path / "x.npy", tmp_path / "y.npy", method="center")
    assert not (tmp_path / "y.npy").exists()
    found = repair(tmp_path / "x.npy", tmp_path / "y.npy", skip_nonfinite=True, method="center")
    kept = np.delete(x, [7, 300], axis=0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), kept - kept.mean(0, dtype=np.float64), atol=1e-5)
    words = "2 rows that are not finite were left out, the first at row 7. Later rows have new numbers now"
    assert any(note.startswith(words) for note in found.notes)
    counts = tmp_path / "counts.npy"
    np.save(counts, np.ones(2000))
    with refused(match="expected finite rows with --counts"):
        repair(tmp_path / "x.npy", tmp_path / "z.npy", skip_nonfinite=True, counts=counts, method="center")


def test_of_equal_rows_nothing_can_be_said(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((50, 4), np.float32))
    found = repair(tmp_path / "x.npy", tmp_path / "y.npy", method="center")
    assert (found.gains, found.lengths_after, found.index) == (None, None, ())
    assert (
        "uncone cannot say whether it is rounder: neither its mean cosine nor its IsoScore is defined before"
        in found.verdict
    )


def test_a_transformation_is_saved_over_nothing_that_is_read_or_written(cone: Path, tmp_path: Path) -> None:
    documents = tmp_path / "documents.npz"
    np.savez(documents, a=np.load(cone))
    before = {path: path.read_bytes() for path in (cone, documents)}
    targets = ((cone, "y.npy"), (documents, "y.npy"), (tmp_path / "y.npz", "y.npz#a"), (tmp_path / "y.npy", "y.npy"))
    for save, out in targets:
        with refused(match=r"expected an output file other than the input|expected two files to write"):
            repair(cone, tmp_path / out, method="center", fit_on=f"{documents}#a", save=save)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_saved_transformation_is_replaced_only_if_it_may_go(cone: Path, tmp_path: Path) -> None:
    kept, out = tmp_path / "t.safetensors", tmp_path / "y.npy"
    repair(cone, out, method="center", save=kept)
    before = kept.read_bytes()
    with refused(match=r"expected a new file for the transformation, got .*t.safetensors which exists: choose another"):
        repair(cone, tmp_path / "z.npy", method="standardize", save=kept)
    assert kept.read_bytes() == before
    assert not (tmp_path / "z.npy").exists()
    repair(cone, out, method="standardize", save=kept, overwrite=True)
    assert kept.read_bytes() != before


def test_few_rows_are_whitened_only_if_forced(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", gaussian(60, 16).numpy())
    with refused(match="expected at least 80 rows to whiten"):
        repair(tmp_path / "x.npy", tmp_path / "y.npy", method="whiten")
    assert not (tmp_path / "y.npy").exists()
    repair(tmp_path / "x.npy", tmp_path / "y.npy", method="whiten", force=True)


@pytest.mark.parametrize("out", ["y", "y.npz", "y.parquet#vectors", "y.safetensors#name"])
def test_what_was_written_is_measured_whatever_its_name_ends_in(cone: Path, tmp_path: Path, out: str) -> None:
    if "parquet" in out:
        pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    assert repair(cone, f"{tmp_path}/{out}", method="center").gains is True


def test_many_rows_are_measured_by_evenly_spaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uncone.repairs.vectors.MOST_ROWS", 100)
    x = gaussian(1001, 4) + 1
    found = compare(x, x - 1)
    assert found.measured == 100
    chosen = x[[i * 1000 // 99 for i in range(100)]]
    assert found.before[0].value == pytest.approx(float(uncone.measure.mean_cosine(uncone.Moments.of(chosen))))
    assert Center().fit(x).affine_.rank_lost() == 0


def test_kinds_of_specs(tmp_path: Path, cone: Path) -> None:
    model = write_model(tmp_path / "m", healthy())
    assert [kind_of(spec) for spec in (cone, f"{model}#input", model)] == ["vectors", "vectors", "model"]
    with refused(match="got the language model"):
        repair(model, tmp_path / "y.npy", method="center", text=cone)
    (model / "modules.json").write_text("[]")
    assert kind_of(model) == "encoder"


class TestTheCommand:
    def test_from_a_file_to_a_file(self, cone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        _run(cone, tmp_path / "y.npy", "--method", "center", "--json", tmp_path / "r.json")
        told = " ".join(capsys.readouterr().out.split())
        assert told.startswith("ROUNDER ")
        assert "not about a task" in told
        assert f"wrote {tmp_path / 'y.npy'}" in told
        assert isinstance(load_record(tmp_path / "r.json"), Repaired)
        assert str(tmp_path) not in (tmp_path / "r.json").read_text()  # records are passed on
        cli.main(["report", str(tmp_path / "r.json")])
        assert capsys.readouterr().out.startswith("ROUNDER")

    def test_what_is_refused(self, cone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        y, model, encoder, no = (tmp_path / name for name in ("y.npy", "m", "e", "no/y.npy"))
        write_model(model, healthy())
        encoder.mkdir()
        (encoder / "modules.json").write_text("[]")
        before = sorted(tmp_path.iterdir())
        center, data, text = ("--method", "center"), ("--data", tmp_path), ("--text", cone)
        weights = model / "model.safetensors"
        for arguments, message in (
            ((encoder, y, *data, *text, "--overwrite"), "expected no --overwrite with a model"),
            ((encoder, y, *data), "give --text F with one per line, --fit-on VECTORS"),
            ((cone, cone, *center, "--overwrite"), "expected an output file other than the input"),
            ((cone, y, "--json", cone), "it would be replaced"),
            ((cone, y, "--fit-on", f"{weights}#x", "--json", weights), "it would be replaced"),
            ((cone, y, "--json", y), "expected two files to write"),
            ((cone, y, "--method", "sorcery"), "expected one of center, scaled_center"),
            ((cone, y, "--method", "centre"), "got 'centre': did you mean 'center'?"),
            ((cone, y, "--method", "abtt"), "got 'abtt': did you mean 'all_but_the_top_d100'?"),
            ((encoder, y, *center, *text, "--normalize"), "expected no --normalize with a model"),
            ((cone, y, *center, "--load", cone), "expected either --load or --method, got both"),
            ((cone, y, "--load", cone), "expected a safetensors"),
            ((cone, y, *center, *text), "expected no --text with vectors"),
            ((cone, y), "expected a repair by its name"),
            ((cone, y, "--method", "whiten", *data), "expected --data with --method auto, got it with --method whiten"),
            ((cone, y, "--cache", tmp_path), "expected --cache with --method auto, got it with no method"),
            ((cone, y, *center, "--task", "sts"), "expected --task with --method auto, got it with --method center"),
            ((cone, y, "--method", "auto"), "expected --data DIR with --method auto"),
            ((cone, f"{tmp_path / 'y.npz'}#a", *center, "--json", tmp_path / "y.npz"), "expected two files to write"),
            ((model, y, *center), "got the language model"),
            ((cone, no, *center), "there is no folder"),
            ((cone, tmp_path / "y.xlsx", *center), "expected a name that ends in .npy"),
            ((cone, tmp_path / "y.npy#a", *center), "expected a file name without '#'"),
            ((cone, no, "--data", model), "there is no folder"),
            ((cone, cone, "--data", model), "expected an output file other than the input"),
            ((cone, y, *data, *text), "expected no --text with vectors"),
            ((encoder, encoder / "o", *data, *text), "expected a place outside the model"),
            ((encoder, encoder / "o", *center, *text), "expected a place outside the model"),
            ((tmp_path / "nothing.npy", y, *center), "no file or folder"),
            (("", y, *center), "no file or folder"),
        ):
            assert message in _fails(capsys, *arguments), arguments
        for verb, more, message in (
            ("center-head", (model, model / "o"), "expected a place outside the model"),
            ("center-head", (f"{model}#head", y), "expected a whole model to edit"),
            ("repair-tokens", (model, model / "o", "--tokens", "zero"), "expected a place outside the model"),
            ("repair-tokens", (model, y, "--tokens", "3", "--method", "center"), "sub_tokens"),
        ):
            assert message in _fails(capsys, *more, verb=verb), (verb, more)
        assert sorted(tmp_path.iterdir()) == before

    def test_edits_of_a_language_model_are_handed_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model, asked = write_model(tmp_path / "m", healthy()), list[tuple[object, ...]]()

        def stop(*arguments: object, **options: object) -> None:
            asked.append((*map(_plain, arguments), options["text"], options.get("untie", options.get("method"))))
            raise InputError("far enough")

        monkeypatch.setattr("uncone.edits.head.centred_copy", stop)
        monkeypatch.setattr("uncone.edits.tokens.reinitialise_tokens", stop)
        (tmp_path / "ids").write_text("4\n5\n")
        out, text = tmp_path / "out", tmp_path / "text"
        for verb, flags, wanted in (
            ("center-head", ("--untie",), (None, True)),
            ("center-head", ("--text", text), (text, False)),
            ("repair-tokens", ("--tokens", "zero"), ("zero", None, "sub_tokens")),
            ("repair-tokens", ("--tokens", "added"), ("added", None, "sub_tokens")),
            ("repair-tokens", ("--tokens", "3,17"), ([3, 17], None, "sub_tokens")),
            ("repair-tokens", ("--tokens", tmp_path / "ids", "--method", "covariance"), ([4, 5], None, "covariance")),
            ("repair-tokens", ("--tokens", "7,10-12,9"), ([7, 10, 11, 12, 9], None, "sub_tokens")),
        ):
            with pytest.raises(SystemExit):
                _run(model, out, *flags, verb=verb)
            assert asked.pop() == (model, out, *wanted)
        assert not asked

    def test_a_task_chooses_or_leaves_it(
        self, cone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        step, data = Interval(0.1, 0.05, 0.15), tmp_path / "sets"
        data.mkdir()

        def choose(spec: object, **options: object) -> Selection:
            assert (str(spec), options["task"], options["data"]) == (str(cone), "sts", data)
            numbers = (50.0, {"whiten": step}, 90, 51.0, step, 80)
            return Selection("Told.", "cone", "sts", "spearman_cosine", chosen, "whiten", *numbers)

        monkeypatch.setattr("uncone.evaluation.select_repair.select_repair", choose)
        asked = (cone, tmp_path / "y.npy", "--task", "sts", "--data", data, "--json", tmp_path / "r.json")
        chosen = "original"
        _run(*asked)
        assert not (tmp_path / "y.npy").exists()
        told = capsys.readouterr().out
        assert told.startswith("LEAVE IT  Told.")
        assert told.splitlines()[-1] == f"nothing was written to {tmp_path / 'y.npy'}"
        assert isinstance(load_record(tmp_path / "r.json"), Selection)
        chosen = "whiten"
        _run(*asked)
        told = " ".join(capsys.readouterr().out.split())
        assert told.startswith("REPAIR IT Told.")
        assert "The task sts chose the repair, by spearman_cosine." in told
        assert "whiten (power 0.5) takes the mean cosine from" in told
        assert "Only a task can show whether the repair helps" not in told
        repaired = load_record(tmp_path / "r.json")
        assert isinstance(repaired, Repaired)
        assert repaired.notes[-1].startswith("Chosen by sts on ")
        assert "For the choice it was fitted on the task's own training sentences." in repaired.notes[-1]
        assert (repaired.selection.chosen, repaired.selection.test) == ("whiten", step)
        cli.main(["report", str(tmp_path / "r.json")])
        shown = " ".join(capsys.readouterr().out.split())
        assert shown.startswith(told[told.index("ROUNDER") :][:60])
        evidence = shown[shown.index("How the repair was chosen Told.") :]
        assert "sts, spearman_cosine: 50 as it is, over 90 items" in evidence
        assert "whiten * +0.100 +0.0500 to +0.150" in evidence
        assert shown.count("Told.") == 1
        assert "exists" in _fails(capsys, *asked)


def test_ids_of_tokens_are_numbers_or_a_file_of_them(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", healthy())
    (tmp_path / "ids.txt").write_text("1\n2\nthree\n")
    for given in ("1,x", "-1", "", str(tmp_path / "ids.txt"), "9" * 12, "9-3", "1-", "0-100000", "0-99999,5"):
        with refused(match=r"expected ids (of tokens|or token strings of the model).*, got .*: give ids"):
            repair_tokens(model, tmp_path / "out", tokens=given)
    with refused(match=r"cannot find out which tokens of .* are untrained: .*; give ids or token strings such as 3,90"):
        repair_tokens(model, tmp_path / "out")
    with refused(match=r"expected --counts .counts=. only with tokens auto or unseen"):
        repair_tokens(model, tmp_path / "out", tokens="zero", counts=tmp_path / "ids.txt")
    with refused(match="expected a whole model to edit"):
        repair_tokens(f"{model}#input", tmp_path / "out", tokens="1")


def test_tokens_that_never_occur_are_set_anew_where_the_counts_of_training_say_so(tmp_path: Path) -> None:
    tokens = [f"[unused{i}]" if i < 20 else "<pad>" if i == 20 else f"token{i}" for i in range(8000)]
    model = write_model(tmp_path / "m", healthy(), tokens=tokens)
    counts = np.ones(8000, np.int64)
    counts[[3, 20, 77, 4000]] = 0  # reserved, special, and two tokens
    np.save(tmp_path / "counts.npy", counts)
    asked = {"tokens": "unseen", "method": "mean"}
    edit = repair_tokens(model, tmp_path / "out", counts=tmp_path / "counts.npy", **asked)
    assert [one.id for one in edit.tokens] == [77, 4000]
    with refused(match="expected --counts .counts=. with unseen tokens, got none"):
        repair_tokens(model, tmp_path / "again", **asked)
    np.save(tmp_path / "all.npy", np.ones(8000, np.int64))
    with refused(match=r"expected a token that never occurs in all.npy, got none: leave the rows as they are"):
        repair_tokens(model, tmp_path / "again", counts=tmp_path / "all.npy", **asked)


@pytest.mark.parametrize("known_by", ["name", "count"])
def test_all_untrained_tokens_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_by: str) -> None:
    one, asked = plant(planted=300), list[list[int]]()
    tokens = one.labels if known_by == "name" else [f"token{i}" for i in range(len(one.table))]
    model = write_model(tmp_path / "m", one.table, tokens=tokens)

    def stop(model: Path, out: Path, ids: list[int], **_: object) -> None:
        asked.append(ids)
        raise InputError("far enough")

    monkeypatch.setattr("uncone.edits.tokens.reinitialise_tokens", stop)
    counts = np.ones(len(one.table), np.int64)
    counts[one.unused] = 0
    np.save(tmp_path / "counts.npy", counts)
    flags = ("--counts", tmp_path / "counts.npy") if known_by == "count" else ()
    with pytest.raises(SystemExit):
        _run(model, tmp_path / "out", *flags, verb="repair-tokens")
    (ids,) = asked
    assert len(set(ids) & set(one.planted.tolist())) > 290
    assert len(set(ids) - set(one.planted.tolist()) - set(one.unused.tolist())) < 10
    assert (set(one.unused.tolist()) <= set(ids)) == (known_by == "count")


def test_sentences_are_the_different_lines(tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(30)]
    text = "\ufeff" + "\r\n".join([*lines, "", "line 3", "  line 30  "])
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(text.encode()))
    for name in ("a.txt", "a.txt.xz"):
        assert read_sentences(tmp_path / name) == Sentences((*lines, "line 30"), 31)
    for content, message in (
        (b"one\ntwo\n", "expected at least 20 different sentences .* got 2"),
        (b"", "got 0"),
        (b"x\n\xff\n", "expected UTF-8, got .*, whose line 2 is not"),
        (b"x" * (2**20 + 1), "got a longer line 1"),
    ):
        (tmp_path / "b.txt").write_bytes(content)
        with refused(match=message):
            read_sentences(tmp_path / "b.txt")
    (tmp_path / "c.xz").write_bytes(b"no archive")
    with refused(match="cannot read"):
        read_sentences(tmp_path / "c.xz")


def test_of_a_long_text_some_sentences_are_drawn_from_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "long.txt.gz"
    lines = [f"{'even' if i % 2 == 0 else 'odd'} {i}" for i in range(20_000)]
    path.write_bytes(gzip.compress("\n".join([*lines, *lines[:50]]).encode()))
    found = read_sentences(path, most=2000)
    assert (len(found.lines), len(set(found.lines)), found.lines) == (2000, 2000, read_sentences(path, most=2000).lines)
    numbers = [int(line.split()[1]) for line in found.lines[:-50]]  # the end may hold those that came twice
    assert numbers == sorted(numbers)
    assert max(abs(a - 10 * i) for i, a in enumerate(numbers)) < 1000  # five standard deviations of an even draw
    assert abs(sum(line.startswith("odd") for line in found.lines) - 1000) <= 110  # also of lines that alternate
    assert 20_000 <= found.n <= 20_050
    told = f"The text has {found.n:,} sentences: 2,000 of them were drawn at random from all of it."
    assert found.notes() == (told,)
    whole = read_sentences(path, most=20_000)
    assert (whole.lines, whole.n, whole.notes()) == (tuple(lines), 20_000, ())
    with refused(match="expected to keep at least 20 sentences, got 5"):
        read_sentences(path, most=5)


def test_a_long_text_takes_no_memory_but_for_what_is_kept(tmp_path: Path) -> None:
    tracemalloc.start()
    found = _drawn((f"{i} " + "x" * 200 for i in range(60_000)), 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n == 60_000
    assert peak < 2e6  # all lines would be 15 MB


def test_an_encoder_needs_something_to_fit_on_and_an_affine_repair(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "modules.json").write_text("[]")
    (tmp_path / "there").mkdir()
    with refused(match="expected sentences to fit on, got none"):
        repair(tmp_path / "m", tmp_path / "out", method="center")
    for method, out, message in (
        ("scaled_center", "out", "expected an affine transformation for a Sentence Transformers model"),
        ("zipf_center", "out", "expected a repair of sentences, got zipf_center"),
        ("center", "no/out", "there is no folder"),
        ("center", "there", "which exists"),
        ("center", "m", "an output file other than the input"),
        ("center", "m/out", "expected a place outside the model"),
        ("center", "m/../m/out", "expected a place outside the model"),
    ):
        with refused(match=message):  # said before anything is read, which is not there
            repair(tmp_path / "m", tmp_path / out, method=method, text=tmp_path / "t")


def test_an_encoder_in_16_bits_is_held_to_its_own_rounding() -> None:
    assert narrow_dtype(torch.nn.Linear(2, 2)) is None
    assert narrow_dtype(torch.nn.Linear(2, 2).bfloat16()) == torch.bfloat16
    expected = torch.nn.functional.normalize(gaussian(50, 32))
    told = told_of_rounding(expected.bfloat16().float(), expected, torch.bfloat16)
    assert told.startswith(
        "The model and its new layer run in bfloat16. Its vectors differ from the float32 vectors measured "
        "here by up to 0."
    )
    # 0.01 in 32 coordinates: 0.057 of the length
    for got in (expected + 0.01, expected * float("nan"), expected[:, :3]):
        with refused(match=r"up to the rounding of bfloat16, .* Save the model in float32 first"):
            told_of_rounding(got, expected, torch.bfloat16)


@pytest.mark.slow
def test_a_real_encoder_in_bfloat16_is_repaired(tmp_path: Path, minilm: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
    from safetensors.torch import load_file, save_file

    model = Path(shutil.copytree(minilm, tmp_path / "m"))
    stored = load_file(model / "model.safetensors")
    tensors = {name: x.bfloat16() if x.is_floating_point() else x for name, x in stored.items()}
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((model / "config.json").read_text()) | {"dtype": "bfloat16"}
    (model / "config.json").write_text(json.dumps(config))
    (tmp_path / "text").write_text("\n".join(f"Sentence {i} is about {i * i} things." for i in range(40)))
    found = repair(model, tmp_path / "out", text=tmp_path / "text", method="center")
    assert any("The model and its new layer run in bfloat16" in note for note in found.notes)


def test_a_record_of_before_selections_and_lengths_were_kept_still_loads(cone: Path, tmp_path: Path) -> None:
    found = repair(cone, tmp_path / "y.npy", method="center")
    data = json.loads(found.to_json())
    assert data.pop("selection") is None
    for name in ("normalized", "lengths_before", "lengths_after", "index", "next_step"):
        data.pop(name)
    data["cost"].pop("scale")
    old = replace(found, lengths_before=None, lengths_after=None, index=(), next_step="")
    old = replace(old, cost=replace(old.cost, scale=None))
    assert Repaired.from_json(json.dumps(data)) == old
    assert "How an index" not in to_markdown(old)


def test_few_measured_sentences_are_said_to_be_few() -> None:
    assert told_of_split(400, 100) == ("Fitted on 400 sentences, measured on 100 others of the same text.",)
    assert told_of_split(16, 4)[1].startswith("4 sentences are few, and others may give another verdict: ")


@pytest.mark.slow
def test_a_real_encoder_is_repaired_from_sentences(tmp_path: Path, minilm: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
    data = Path(__file__).parents[2] / "../shared/data/sts/STSBenchmark/stsb_dev.tsv.xz"
    if not data.is_file():
        pytest.skip("the shared data is not there")
    with lzma.open(data, "rt", encoding="utf-8") as file:
        lines = [line.split("\t")[0] for line in file][1:301]
    (tmp_path / "text").write_text("\n".join(lines), encoding="utf-8")
    out, saved = tmp_path / "out", tmp_path / "t.safetensors"
    found = repair(minilm, out, text=tmp_path / "text", save=saved, method="center")
    assert abs(found.after[0].value) < abs(found.before[0].value)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert found.fitted.n + found.measured == len(dict.fromkeys(lines))
    few = repair(minilm, tmp_path / "few", text=tmp_path / "text", method="center", most_sentences=40)
    assert few.measured == 8
    assert few.notes[0].startswith("The text has ")
    assert "40 of them were drawn at random" in few.notes[0]
    assert repair(minilm, tmp_path / "again", load=saved).gains is None
    layers = [(folder / "2_Dense" / "model.safetensors").read_bytes() for folder in (tmp_path / "again", out)]
    assert layers[0] == layers[1]
    with refused(match=r"expected a new folder, got .* which exists"):
        repair(minilm, out, load=saved)
