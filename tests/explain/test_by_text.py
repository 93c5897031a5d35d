"""A diagnosis with a text: each part is there or says why not, and the head is judged by its logits."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import uncone
from tests.command import run_command
from tests.edits.language_models import TEXT, add_tokenizer, drifted
from uncone import InputError, report
from uncone.explain import findings
from uncone.records import Explanation, LogitSpectrum, load_record

LONG = TEXT * 20


def _model(path: Path, name: str = "GPT2LMHeadModel") -> Path:
    drifted(name).save_pretrained(path)
    add_tokenizer(path)
    (path.parent / "a.txt").write_text(LONG)
    return path


def _explained(d: uncone.Diagnosis) -> Explanation:
    assert d.explanation is not None
    return d.explanation


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, uncone.Diagnosis]:
    path = _model(tmp_path_factory.mktemp("causal") / "m")
    return path, uncone.diagnose(path, text=path.parent / "a.txt")


def test_a_causal_model_has_every_part(causal: tuple[Path, uncone.Diagnosis], tmp_path: Path) -> None:
    _, d = causal
    why = _explained(d)
    assert why.frequencies is not None
    assert why.layers is not None
    assert why.direction is not None
    assert why.gradients is not None
    assert why.margins is not None
    assert why.margins.holds
    assert why.unreachable is not None
    assert why.settable is not None
    assert why.notes == ()
    shaped = [s.by_count.verdict for s in d.subjects if s.by_count is not None]
    assert why.clauses[: len(shaped)] == tuple(
        f"Rows of {s.name}: {told}" for s, told in zip(d.subjects, shaped, strict=True)
    )
    assert len(why.clauses) == len(shaped) + 6
    d.save(tmp_path / "d.json")
    assert load_record(tmp_path / "d.json") == d
    page, printed = report.to_html(d), report.to_markdown(d)
    for title in ("Why", "Frequency of tokens", "Hidden states, layer by layer", "Where the push comes from"):
        assert f">{title}" in page
        assert f" {title}\n" in printed


def test_counts_are_those_of_the_text_or_those_given(causal: tuple[Path, uncone.Diagnosis]) -> None:
    path, d = causal
    groups = d.subjects[0].frequency_groups
    assert groups is not None
    assert groups.by == "count"
    assert _explained(d).frequencies is not None
    n = d.subjects[0].n
    counts = np.zeros(n, np.int64)
    counts[: n // 2] = 5
    given = uncone.diagnose(path, text=path.parent / "a.txt", counts=counts, tokens=200)
    groups = given.subjects[0].frequency_groups
    assert groups is not None
    assert sum(g.occurrences or 0 for g in groups.groups) == 5 * (n // 2)


def test_a_head_is_judged_by_its_logits(causal: tuple[Path, uncone.Diagnosis]) -> None:
    _, d = causal
    layers = _explained(d).layers
    assert layers is not None
    logits = layers.logits
    assert logits is not None
    assert float(d["head.logit_effective_rank"]) == logits.effective_rank
    causes = {finding.cause for finding in d.subjects[-1].findings}
    assert not causes & {
        "rogue_dimensions",
        "low_effective_rank",
        "dominant_direction",
        "less_even_than_noise",
    }
    assert ("low_logit_rank" in causes) is (logits.level != "healthy")


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.19, "severe"), (0.21, "warning"), (0.49, "warning"), (0.51, "healthy")],
)
def test_the_bars_of_logits_from_both_sides(
    causal: tuple[Path, uncone.Diagnosis], share: float, level: Any
) -> None:
    from uncone.explain.logits import judge, rank_of_logits

    _, d = causal
    layers, head = _explained(d).layers, d.subjects[-1]
    assert layers is not None
    logits = layers.logits
    assert isinstance(logits, LogitSpectrum)
    assert judge(share) == level
    logits = replace(logits, effective_rank=share * logits.reference, level=judge(share))
    kept = (m for m in head.measurements[:-1] if m.name != "participation_ratio")  # else the rows look random
    measurements = (*kept, rank_of_logits(logits))
    found = findings.find(measurements, head.groups, head=True, logits=logits)
    assert [f.level for f in found if f.cause == "low_logit_rank"] == [level] * (level != "healthy")
    evidence = " ".join(line for f in found for line in f.evidence)
    assert f"effective rank of {logits.effective_rank:.1f} of {logits.most}" in evidence


def test_an_encoder_has_no_questions_of_a_head(tmp_path: Path) -> None:
    path = _model(tmp_path / "m", "BertForMaskedLM")
    why = _explained(uncone.diagnose(path, text=tmp_path / "a.txt"))
    assert why.layers is not None
    assert why.layers.logits is not None
    assert why.direction is not None
    assert why.unreachable is not None
    assert why.gradients is None
    assert any("does not predict the next token" in note for note in why.notes)


def test_without_torch_only_frequencies_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from uncone.explain import by_text

    def find_spec(name: str) -> Any:
        return None if name == "torch" else importlib.util.find_spec(name)

    monkeypatch.setattr(by_text, "find_spec", find_spec)
    path = _model(tmp_path / "m")
    why = _explained(uncone.diagnose(path, text=tmp_path / "a.txt"))
    assert why.frequencies is not None
    assert (why.layers, why.direction, why.gradients, why.unreachable, why.settable) == (None,) * 5
    assert why.notes == (f"Only frequencies were read: {by_text.NEEDS}.",)


@pytest.mark.parametrize(
    ("spec", "text", "message"),
    [
        (lambda path: np.ones((40, 4), "f4"), b"x", "expected a whole model with a text"),
        (lambda path: f"{path}#input", b"x", "expected a whole model with a text"),
        (lambda path: path, b"", "expected a text, got nothing in b.txt"),
        (lambda path: path, b"abc \xff", "byte 0xff at position 4"),
    ],
)
def test_bad_input_is_told_before_any_work(
    tmp_path: Path, spec: Callable[[Path], Any], text: bytes, message: str
) -> None:
    path = _model(tmp_path / "m")
    (tmp_path / "b.txt").write_bytes(text)
    with pytest.raises(InputError, match=message):
        uncone.diagnose(spec(path), text=[tmp_path / "b.txt"])


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    path = _model(tmp_path / "m")
    state = tmp_path / "layers.npz"
    first = uncone.diagnose(path, text=tmp_path / "a.txt", resume=state)
    assert state.exists()
    again = uncone.diagnose(path, text=tmp_path / "a.txt", resume=state)
    assert again == first


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _model(tmp_path / "m")
    rows = [json.dumps({"body": line}) for line in LONG.splitlines() if line]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    capsys.readouterr()
    status, out, error = run_command(
        "diagnose",
        capsys,
        path,
        "--text",
        tmp_path / "a.txt",
        f"{tmp_path / 'a.jsonl'}#body",
        "--tokens",
        "500",
    )
    assert (status, error) == (0, "")
    assert "Counted: a.txt, a.jsonl#body." in out
    status, _, error = run_command("diagnose", capsys, path, "--text", tmp_path / "none.txt")
    assert status == 1
    assert "none.txt: no such file" in error
