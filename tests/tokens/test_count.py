"""`uncone count`: the record, the file of counts that other commands take, and the command itself."""

import json
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.command import run_command
from tests.model.test_token_counts import _text, _tokenizer
from tests.planted import healthy, write_model
from uncone.errors import InputError
from uncone.report import to_html
from uncone.tokens.record import TokenFrequencies


@pytest.fixture
def model(tmp_path: Path) -> Path:
    words = [*(f"[unused{i}]" for i in range(20)), "[UNK]", *(f"w{i}" for i in range(379))]
    return _tokenizer(write_model(tmp_path / "model", healthy(v=400), tokens=words), words)


def test_counts_are_what_diagnose_takes(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(_text(200_000))
    steps = list[str]()
    out = tmp_path / "counts.npy"
    found = uncone.count(model, tmp_path / "a.txt", save=out, progress=lambda what, *_: steps.append(what))
    counts = np.load(out)
    assert (counts.shape, counts.dtype, int(counts.sum())) == ((400,), np.int64, 200_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "counts.npy", "model"]
    assert steps[-1] == "counting tokens"
    assert found.tokens.total == 200_000
    assert found.never_seen == int((counts == 0).sum())
    assert found.reserved == 20
    assert [one.token for one in found.unseen[:2]] == ["[UNK]", "w0"]
    assert found.frequent[0].token == "w1"
    assert found.words is not None
    assert found.words.different == 250
    assert found.tokens.law.exponent.value == pytest.approx(1.5, abs=0.1)
    assert TokenFrequencies.from_json(found.to_json()) == found
    assert "Zipf" in to_html(found)
    groups = uncone.diagnose(str(model), counts=tmp_path / "counts.npy").subjects[0].frequency_groups
    assert groups is not None
    assert groups.by == "count"


def test_parts_are_added(model: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(_text(10_000, seed=ord(name)))
        uncone.count(model, tmp_path / f"{name}.txt", save=tmp_path / f"{name}.npy")
    both = uncone.count(model, [tmp_path / "a.txt", tmp_path / "b.txt"], save=tmp_path / "both.npy")
    merged = uncone.count(model, [tmp_path / "a.npy", tmp_path / "b.npy"], save=tmp_path / "merged.npy")
    assert np.array_equal(np.load(tmp_path / "both.npy"), np.load(tmp_path / "merged.npy"))
    assert (merged.tokens.coverage, merged.never_seen) == (both.tokens.coverage, both.never_seen)
    assert (merged.words, merged.characters, merged.tokens.law.exponent.interval) == (None, 0, None)
    with pytest.raises(InputError, match="expected an output file other than the input"):
        uncone.count(model, [tmp_path / "a.npy"], save=tmp_path / "a.npy")


def test_no_file_is_replaced_or_read_as_state(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(_text(2_000))
    out, part, far = tmp_path / "x.npy", tmp_path / "x.npy.part", tmp_path / "far.npy"
    far.write_bytes(b"vectors")
    arguments = (model, tmp_path / "a.txt", "--save", out)

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    exists = f"expected a new file, got {out} which exists"
    state = "the state of an earlier count by this version of uncone"
    for file, make, message in (
        (out, lambda: out.write_bytes(b"vectors"), exists),
        (out, lambda: out.symlink_to(far), exists),
        (out, lambda: out.symlink_to(tmp_path / "nowhere"), exists),
        (part, lambda: part.write_bytes(b"a download"), f"{state}, got {part}"),
        (part, lambda: part.symlink_to(far), f"got {part} which cannot be read"),
    ):
        make()
        before = files()
        status, _, error = run_command("count", capsys, *arguments)
        assert (status, message in error, "--overwrite" in error) == (1, True, True), error
        assert files() == before
        assert run_command("count", capsys, *arguments, "--overwrite")[0] == 0
        assert int(np.load(out).sum()) == 2_000
        assert not part.exists()
        for path in (out, file):
            path.unlink(missing_ok=True)
    part.mkdir()
    assert "got the folder" in run_command("count", capsys, *arguments)[2]
    status, _, error = run_command("count", capsys, *arguments[:2], "--overwrite")
    assert (status, "expected a file to save with overwrite" in error) == (1, True)


def test_a_file_that_appears_meanwhile_is_kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state stays, so that nothing is counted again."""
    (tmp_path / "a.txt").write_text(_text(2_000))
    out = tmp_path / "x.npy"

    def late(what: str, *_: int) -> None:
        out.write_bytes(b"of another program")

    with pytest.raises(InputError, match="which exists"):
        uncone.count(model, tmp_path / "a.txt", save=out, progress=late)
    assert out.read_bytes() == b"of another program"
    out.unlink()
    monkeypatch.setattr("uncone.model.token_counts.encoded", None)
    uncone.count(model, tmp_path / "a.txt", save=out)
    assert int(np.load(out).sum()) == 2_000


def test_a_foreign_part_stays_where_no_state_is_needed(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(400))
    (tmp_path / "x.npy.part").write_bytes(b"a download")
    uncone.count(model, tmp_path / "a.npy", save=tmp_path / "x.npy")
    assert (tmp_path / "x.npy.part").read_bytes() == b"a download"


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(_text(20_000))
    lines = (json.dumps({"body": line}) for line in _text(20_000, seed=1).splitlines())
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    out, record, texts = tmp_path / "counts.npy", tmp_path / "r.json", (tmp_path / "a.txt", f"{tmp_path}/b.jsonl#body")
    status, told, _ = run_command("count", capsys, model, *texts, "--save", out, "--json", record, "--no-words")
    assert (status, "up 30% of the text" in " ".join(told.split())) == (0, True)
    assert int(np.load(out).sum()) == 40_000
    assert TokenFrequencies.load(record).words is None
    status, _, error = run_command("count", capsys, model, texts[0], "--save", tmp_path / "counts.txt")
    assert (status, "ends in .npy" in error) == (1, True)
