"""The example that trains a sentence encoder runs, and its table agrees with its sentences."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import load_script

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_sentence_encoder.py"
TINY = ["--tiny", "--steps", "3", "--batch", "8"]


@pytest.fixture
def main() -> Callable[[list[str]], None]:
    pytest.importorskip("torch")
    return load_script(EXAMPLE).main


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """Pairs of made-up sentences that share words where they score high."""
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghij", k=4)) for _ in range(60)]
    for split in ("train", "test"):
        lines = ["sentence1\tsentence2\tscore"]
        for i in range(60):
            first, score = dice.sample(words, 6), i % 6
            second = first[:score] + dice.sample(words, 6 - score)
            lines.append(f"{' '.join(first)}\t{' '.join(second)}\t{score}")
        (tmp_path / f"stsb_{split}.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.slow
def test_it_prints_all(main: Callable[[list[str]], None], made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(made_up), *TINY, "--seeds", "0", "1", "--output", str(made_up / "kept.txt")])
    printed = capsys.readouterr().out
    assert (made_up / "kept.txt").read_text() in printed
    assert printed.count("step 3 of 3") == 4
    changes = [float(x) for x in re.findall(r"Spearman changes by ([-+\d.]+)", printed)]
    assert len(changes) == 2
    found = re.findall(r"^(\S.+?)  +((?:-|[\d.]+)(?: +[\d.]+){2})$", printed, re.MULTILINE)
    rows = {name: cells.split() for name, cells in found}
    assert len(rows) == 5
    _, plain, other = (float(cell) for cell in rows["Spearman x 100, STS-B test"])
    assert other - plain == pytest.approx(sum(changes) / 2, abs=0.02)
    assert all(0 < float(cell) <= 1 for cell in rows["A_1 centred, test sentences"])


def test_the_document_quotes_what_was_printed_and_says_no_more() -> None:
    document = (EXAMPLE.parent.parent / "docs/persistent_entropy.md").read_text(encoding="utf-8")
    page = document.partition("## An example")[2]
    kept = (EXAMPLE.parent / "results/train_sentence_encoder.txt").read_text(encoding="utf-8")
    assert re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) == [kept]
    changes = [float(x) for x in re.findall(r"Spearman changes by ([-+\d.]+)", kept)]
    assert max(abs(change) for change in changes) <= 0.02
    assert sum(change < 0 for change in changes) == 2, "down on two seeds"
    assert sum(change > 0 for change in changes) == 1, "up on one"
    rows = re.findall(r"^A_1 .*?([\d.]+) +([\d.]+)$", kept, re.MULTILINE)
    assert len(rows) == 3
    assert all(float(other) >= float(plain) for plain, other in rows), "A_1 did not fall"
    assert "the penalty kept 2 to 6;" in kept


def test_what_is_missing_is_named(main: Callable[[list[str]], None], made_up: Path) -> None:
    told = r"expected 500 pairs of different sentences scored 4.0 or more, got \d+: give a smaller"
    with pytest.raises(SystemExit, match=told):
        main(["--data", str(made_up), "--tiny", "--batch", "500"])
    (made_up / "stsb_train.tsv").unlink()
    with pytest.raises(SystemExit, match="expected the training pairs of the STS Benchmark"):
        main(["--data", str(made_up), *TINY])
