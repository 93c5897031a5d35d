"""`uncone evaluate` as it is called."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from tests.command import run_command
from tests.evaluation.planted_texts import write_sts, write_word_vectors
from tests.evaluation.test_own_vectors import planted
from uncone.cli import main
from uncone.errors import InputError
from uncone.evaluation.pairs import read_sts
from uncone.evaluation.record import Evaluation, Selection
from uncone.records.load import load_record
from uncone.repairs.record import Repaired

DATA = Path(__file__).parents[2] / "../shared/data"


def test_a_task_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, sts = write_word_vectors(tmp_path / "words.vec", spoiled=True), write_sts(tmp_path / "sts")
    given = ["--method", "center", "all_but_the_top_2", "--cache", str(tmp_path / "cache")]
    main(["evaluate", str(words), "--task", "sts", "--data", str(sts), *given, "--json", str(tmp_path / "e.json")])
    printed = capsys.readouterr().out
    assert "all_but_the_top_2 does best" in " ".join(printed.split())
    assert "wrote" in printed
    data = json.loads((tmp_path / "e.json").read_text())
    assert list(data["results"]["sts"]["stsb"]) == ["original", "center", "all_but_the_top_2"]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    main(["report", str(tmp_path / "e.json")])
    assert capsys.readouterr().out == printed.partition("wrote ")[0]


def test_a_table_of_pairs_and_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, sts = write_word_vectors(tmp_path / "words.vec", spoiled=True), write_sts(tmp_path / "sts")
    rows = "".join(f"1,{line}\n".replace("\t", ",") for line in (sts / "stsb_test.tsv").read_text().splitlines()[1:])
    (tmp_path / "own.csv").write_text(f"n,left,right,gold\n{rows}")
    asked = ["evaluate", str(words), "--task", "sts", "--method", "center", "--json", str(tmp_path / "e.json")]
    main([*asked, "--data", str(sts)])
    named = Evaluation.load(tmp_path / "e.json")
    for columns in (["left", "right", "gold"], ["2", "3", "4"]):
        main([*asked, "--data", str(tmp_path / "own.csv"), "--columns", *columns])
        assert "own" in capsys.readouterr().out
        own = Evaluation.load(tmp_path / "e.json")
        assert own.results["sts"]["own"] == named.results["sts"]["stsb"]
        assert own.differences["sts"]["own"] == named.differences["sts"]["stsb"]


@pytest.mark.parametrize(("spoiled", "chosen"), [(True, "all_but_the_top_2"), (False, "original")])
def test_a_choice_of_no_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str], spoiled: bool, chosen: str) -> None:
    words, sts = write_word_vectors(tmp_path / "words.vec", spoiled=spoiled), write_sts(tmp_path / "sts")
    given = ["--method", "auto", "center", "all_but_the_top_2", "--json", str(tmp_path / "s.json")]
    main(["evaluate", str(words), "--task", "sts", "--data", str(sts), *given])
    printed = " ".join(capsys.readouterr().out.split())
    assert ("words.vec with all_but_the_top_2: on the test split" in printed) == spoiled
    assert ("words.vec as it is" in printed) != spoiled
    found = Selection.load(tmp_path / "s.json")
    assert (found.chosen, list(found.development)) == (chosen, ["center", "all_but_the_top_2"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "sts", "words.vec"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task sts", "expected a directory or a table of data for the task sts, got none"),
        ("--task sts --data .", "expected sts12"),
        ("--task sts --data . --method centre", "expected repairs out of"),
        (
            "--task sts --data . --protocol paper",
            "expected the protocol 'paper' with the task wordsim, got it with sts",
        ),
        ("--task mt", "Invalid value"),
        ("--task sts --data . --seed -1", "expected a seed from 0 to 2,000,000,000, got -1"),
        ("--task retrieval --data nowhere", "expected a directory in BEIR's layout"),
        ("--task wordsim --data . --cache c", "expected no cache with the task wordsim, got one (--cache, cache=)"),
        ("--task wordsim --data . --method auto", "auto with the task sts or retrieval, got it with wordsim"),
        ("--task sts --method auto", "expected a directory or a table of data for the task sts, got none"),
        ("--task sts --data . --method auto --protocol paper", "expected the protocol 'paper' with"),
        ("--task sts --data . --method auto centre", "expected repairs out of center, "),
        ("--task sts --data words.vec --columns 1 2", "expected 3 columns"),
        ("--task sts --data words.vec", "expected at least 3 columns in line 1 of words.vec"),
        ("--task sts --data . --columns 1 2 3", "with a table as data of wordsim or sts"),
        ("--task sts --data x.tsv --columns 1 2 3 --method auto", "expected --columns without --method auto"),
        ("", "expected a spec and a task out of wordsim, sts, retrieval, ann, lm, or own vectors (--queries, "),
        ("--method auto", "expected --method auto with the task sts or retrieval, got it with None"),
        ("--qrels q.tsv", "expected --queries, --documents and --qrels together, got --qrels without --queries"),
        ("--queries words.vec --qrels q.tsv --data .", "expected either --queries and --qrels or --data, got both"),
        ("--queries words.vec --qrels q.tsv --protocol paper", "with the task wordsim, got it with retrieval"),
        ("--queries words.vec --qrels none.tsv", "cannot read none.tsv"),
        ("--task ann --cache c", "expected no cache with the task ann of stored vectors, got one (--cache, cache=)"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = write_word_vectors(tmp_path / "words.vec", spoiled=False)
    status, _, error = run_command("evaluate", capsys, words, *arguments.split())
    assert (status, error[:8], error.count("\n")) == (1, "uncone: ", 1)
    assert message in error


def test_own_vectors_with_own_judgements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    documents, queries, judged = planted(spoiled=True)
    np.save(tmp_path / "d.npy", documents)
    np.save(tmp_path / "q.npy", queries)
    lines = [f"query{q} 0 doc{d} {rank}\n" for q, of in judged.items() for d, rank in of.items()]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    (tmp_path / "d.ids").write_text("".join(f"doc{at}\n" for at in range(len(documents))))
    (tmp_path / "q.ids").write_text("".join(f"query{at}\n" for at in range(len(queries))))
    options = {"queries": "q.npy", "documents": "d.npy", "qrels": "qrels.txt", "ids": "d.ids", "query-ids": "q.ids"}
    own = [word for name, file in options.items() for word in (f"--{name}", str(tmp_path / file))]
    main(["evaluate", *own, "--method", "center", "all_but_the_top_2", "--json", str(tmp_path / "e.json")])
    assert "all_but_the_top_2 does best" in " ".join(capsys.readouterr().out.split())
    found = Evaluation.load(tmp_path / "e.json")
    assert found.results["retrieval"]["d"]["original"]["n"] == len(queries)
    assert found.name == f"{tmp_path.name}/d.npy"
    main(["evaluate", *own, "--method", "auto", "all_but_the_top_2", "--json", str(tmp_path / "s.json")])
    assert Selection.load(tmp_path / "s.json").chosen == "all_but_the_top_2"
    capsys.readouterr()
    healthy = planted(spoiled=False)
    np.save(tmp_path / "healthy.npy", healthy[0])
    for name, written in (("d.npy", True), ("healthy.npy", False)):
        np.save(tmp_path / "q.npy", queries if written else healthy[1])
        own[3] = str(tmp_path / name)
        main(["repair", own[3], str(tmp_path / "y.npy"), *own, "--json", str(tmp_path / "r.json"), "--overwrite"])
        printed = capsys.readouterr().out
        assert printed.count("REPAIR IT") == (1 if written else 0)
        assert ("wrote" in printed.partition("r.json")[2]) == written
        assert (tmp_path / "y.npy").exists() == written
        assert isinstance(load_record(tmp_path / "r.json"), Repaired if written else Selection)
        (tmp_path / "y.npy").unlink(missing_ok=True)


def test_what_was_found_is_printed_though_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise InputError("cannot write e.json: No space left on device")

    monkeypatch.setattr(Evaluation, "save", full)
    words, sts = write_word_vectors(tmp_path / "words.vec", spoiled=True), write_sts(tmp_path / "sts")
    given = ("--task", "sts", "--data", sts, "--method", "center", "--json", tmp_path / "e.json")
    status, out, error = run_command("evaluate", capsys, words, *given)
    assert status == 1
    assert "Spearman x 100 of the cosine" in out
    assert "wrote" not in out
    assert error == "uncone: cannot write e.json: No space left on device\n"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not there")
def test_the_real_encoder_scores_as_sentence_transformers_has_it(minilm: Path, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    (tmp_path / "sts").mkdir()
    with lzma.open(DATA / "sts/STSBenchmark/stsb_test.tsv.xz", "rt", encoding="utf-8") as whole:
        lines = [next(whole) for _ in range(301)]
    (tmp_path / "sts" / "stsb_test.tsv").write_text("".join(lines), encoding="utf-8")
    given = ["--data", str(tmp_path / "sts"), "--method", "center", "--method", "whiten"]
    main(["evaluate", str(minilm), "--task", "sts", *given, "--json", str(tmp_path / "e.json")])
    numbers = Evaluation.load(tmp_path / "e.json").results["sts"]["stsb"]["original"]
    (one,) = read_sts(tmp_path / "sts")
    model = sentence_transformers.SentenceTransformer(str(minilm), device="cpu")
    left, right = (model.encode(list(side), show_progress_bar=False) for side in zip(*one.pairs, strict=True))
    expected = 100 * scipy.stats.spearmanr((left * right).sum(1), one.gold)[0]
    assert [numbers[f"spearman_{way}"] for way in ("cosine", "inner")] == pytest.approx([expected] * 2, abs=0.01)
