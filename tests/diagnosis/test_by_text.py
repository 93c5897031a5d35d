"""A diagnosis with a text: each part is there or says why not, and the head is judged by its logits."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

import uncone
from tests.command import run_command
from tests.edits.language_models import TEXT, add_tokenizer, drifted
from uncone import InputError, report
from uncone.diagnosis import findings
from uncone.diagnosis.why.record import Explanation
from uncone.records.load import load_record

LONG = TEXT * 20


Causal = tuple[Path, uncone.Diagnosis]


def _model(path: Path, name: str = "GPT2LMHeadModel") -> Path:
    drifted(name).save_pretrained(path)
    add_tokenizer(path)
    (path.parent / "a.txt").write_text(LONG)
    return path


def _explained(d: uncone.Diagnosis) -> Explanation:
    assert d.explanation is not None
    return d.explanation


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Causal:
    """A model beside the text a.txt, and its diagnosis with that."""
    path = _model(tmp_path_factory.mktemp("causal") / "m")
    return path, uncone.diagnose(path, text=path.parent / "a.txt", reach=True)


def test_a_causal_model_has_every_part(causal: Causal, tmp_path: Path) -> None:
    _, d = causal
    why = _explained(d)
    assert None not in (why.frequencies, why.layers, why.direction, why.gradients, why.unreachable, why.settable)
    assert why.margins.holds
    assert why.notes == ()
    shaped = [f"Rows of {s.name}: {s.by_count.verdict}" for s in d.subjects]
    assert list(why.clauses[: len(shaped)]) == shaped
    assert len(why.clauses) == len(shaped) + 6
    d.save(tmp_path / "d.json")
    assert load_record(tmp_path / "d.json") == d
    page, printed = report.to_html(d), report.to_markdown(d)
    for title in ("Why", "Frequency of tokens", "Hidden states, layer by layer", "Where the push comes from"):
        assert f">{title}" in page
        assert f" {title}\n" in printed


def test_counts_device_and_dtype_are_those_that_are_given(causal: Causal, monkeypatch: pytest.MonkeyPatch) -> None:
    from uncone.model import hidden_states

    given, run = list[dict[str, Any]](), hidden_states.hidden_states_of

    def noted(*args: Any, **options: Any) -> Any:
        given.append(options)
        return run(*args, **options)

    monkeypatch.setattr(hidden_states, "hidden_states_of", noted)
    path, whole = causal
    assert whole.subjects[0].frequency_groups.by == "count"
    n = whole.subjects[0].n
    how = {"counts": np.repeat([5, 0], [n // 2, n - n // 2]), "dtype": "bfloat16", "device": "cpu"}
    narrow = uncone.diagnose(path, text=path.parent / "a.txt", **how)
    assert sum(g.occurrences or 0 for g in narrow.subjects[0].frequency_groups.groups) == 5 * (n // 2)
    assert [(one["dtype"], one["device"]) for one in given] == [("bfloat16", "cpu")]
    assert 0 < abs(_explained(whole).gradients.nats - _explained(narrow).gradients.nats) < 0.1


def test_a_head_is_judged_by_its_logits(causal: Causal) -> None:
    _, d = causal
    logits = _explained(d).layers.logits
    assert float(d["head.logit_effective_rank"]) == logits.effective_rank
    causes = {finding.cause for finding in d.subjects[-1].findings}
    assert not causes & {"rogue_dimensions", "low_effective_rank", "dominant_direction"}
    assert ("low_logit_rank" in causes) is (logits.level != "healthy")


@pytest.mark.parametrize(
    ("share", "level"), [(0.19, "severe"), (0.21, "warning"), (0.49, "warning"), (0.51, "healthy")]
)
def test_the_bars_of_logits_from_both_sides(causal: Causal, share: float, level: Any) -> None:
    from uncone.diagnosis.why.layers.logits import judge, rank_of_logits

    _, d = causal
    logits, head = _explained(d).layers.logits, d.subjects[-1]
    assert judge(share) == level
    logits = replace(logits, effective_rank=share * logits.reference, level=judge(share))
    kept = (m for m in head.measurements[:-1] if m.name != "participation_ratio")  # else the rows look random
    found = findings.find((*kept, rank_of_logits(logits)), head.groups, head=True, logits=logits)
    assert [f.level for f in found if f.cause == "low_logit_rank"] == [level] * (level != "healthy")
    evidence = " ".join(line for f in found for line in f.evidence)
    assert f"effective rank of {logits.effective_rank:.1f} of {logits.most}" in evidence


def test_an_encoder_has_no_questions_of_a_head(tmp_path: Path) -> None:
    why = _explained(uncone.diagnose(_model(tmp_path / "m", "BertForMaskedLM"), text=tmp_path / "a.txt", reach=True))
    assert None not in (why.layers.logits, why.direction, why.unreachable)
    assert why.gradients is None
    assert any("does not predict the next token" in note for note in why.notes)


def test_one_run_serves_all_and_goes_on_after(causal: Causal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is loaded once; what costs more than its run is only searched where that is asked for."""
    from uncone.model import last_states, layered_model
    from uncone.model.layer_reader import LayerReader

    path, loads = causal[0], list[object]()
    for module in (layered_model, last_states):
        load = partial(lambda load, *of, **how: (loads.append(of), load(*of, **how))[1], module.load_model)
        monkeypatch.setattr(module, "load_model", load)
    how = {"text": path.parent / "a.txt", "resume": tmp_path / "layers.npz"}
    first = uncone.diagnose(path, **how)
    why = _explained(first)
    assert (len(loads), why.unreachable, why.settable) == (1, None, None)
    assert why.gradients is not None
    (note,) = why.notes
    assert "--reach (reach=True) does so with up to 7 trillion multiplications" in note
    assert how["resume"].exists()

    def nothing(*_: Any) -> None:
        raise AssertionError("what was read is read again")

    monkeypatch.setattr(LayerReader, "_add", nothing)
    assert uncone.diagnose(path, **how) == first


def test_the_states_of_the_run_give_the_logits_of_the_model(causal: Causal) -> None:
    from transformers import AutoModelForCausalLM

    from uncone.model.hidden_states import hidden_states_of
    from uncone.model.last_states import States
    from uncone.model.text_sources import open_texts

    path, _ = causal
    layers = hidden_states_of(path, open_texts((path.parent / "a.txt",)), most=300, last=True, batch=64)
    last, model = layers.last, AutoModelForCausalLM.from_pretrained(path).eval()
    assert isinstance(last, States)
    assert int(last.windows.max()) > 1
    for window in last.windows.unique():
        ids = last.labels[last.windows == window]
        logits = last.logits(last.states[last.windows == window])
        with torch.no_grad():  # what stands first is no label: any id that gives these logits is it
            own = [model(torch.cat([torch.tensor([first]), ids])[None]).logits[0, :-1] for first in range(97)]
        assert min(float((one - logits).abs().max()) for one in own) <= 1e-4 * float(logits.abs().max())


def test_without_torch_only_frequencies_are_read(causal: Causal, monkeypatch: pytest.MonkeyPatch) -> None:
    from uncone.diagnosis.why import by_text

    find = importlib.util.find_spec
    monkeypatch.setattr(by_text, "find_spec", lambda name: None if name == "torch" else find(name))
    why = _explained(uncone.diagnose(causal[0], text=causal[0].parent / "a.txt"))
    assert why.frequencies is not None
    assert (why.layers, why.direction, why.gradients, why.unreachable, why.settable) == (None,) * 5
    assert why.notes == (f"Only frequencies were read: {by_text.NEEDS}.",)


@pytest.mark.parametrize(
    ("spec", "text", "message"),
    [
        (lambda path: np.ones((40, 4), "f4"), b"x", "expected a whole model with a text"),
        (lambda path: f"{path}#input", b"x", "expected a whole model with a text"),
        (lambda path: path, b"", "expected a text, got nothing in b.txt"),
        (lambda path: path, Path("c.tsv"), "got the counts c.tsv: pass them as counts"),
        (lambda path: path, b"abc \xff", "byte 0xff at position 4"),
    ],
)
def test_bad_input_is_told_before_any_work(
    causal: Causal, tmp_path: Path, spec: Callable[[Path], Any], text: bytes | Path, message: str
) -> None:
    named = tmp_path / (text if isinstance(text, Path) else "b.txt")
    named.write_bytes(b"id\tcount\n0\t5\n" if isinstance(text, Path) else text)
    with pytest.raises(InputError, match=message):
        uncone.diagnose(spec(causal[0]), text=[named])


def test_the_command(causal: Causal, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lines, text = causal[0], tmp_path / "a.jsonl", causal[0].parent / "a.txt"
    lines.write_text("\n".join(json.dumps({"body": line}) for line in LONG.splitlines() if line))
    status, out, error = run_command("diagnose", capsys, path, "--text", text, f"{lines}#body", "--tokens", "500")
    assert (status, error) == (0, "")
    assert "Counted: a.txt, a.jsonl#body." in out
    status, _, error = run_command("diagnose", capsys, path, "--text", tmp_path / "none.txt")
    assert status == 1
    assert "none.txt: no such file" in error


def _damaged(path: Path) -> Path:
    """NaN in one number of the second layer."""
    model = drifted("GPT2LMHeadModel")
    with torch.no_grad():
        model.transformer.h[1].mlp.c_proj.bias[0] = torch.nan
    model.save_pretrained(path)
    add_tokenizer(path)
    (path.parent / "a.txt").write_text(LONG)
    return path


@pytest.mark.parametrize(
    ("make", "text", "note"),
    [
        (_damaged, LONG, "got NaN or inf in layer 2: the model is damaged"),
        (_model, "the cat", "The layers could not be read: expected at least two tokens that are not"),
    ],
)
def test_a_part_that_fails_is_a_note_and_the_others_are_there(
    tmp_path: Path, make: Callable[[Path], Path], text: str, note: str
) -> None:
    path = make(tmp_path / "m")
    (tmp_path / "a.txt").write_text(text)
    d = uncone.diagnose(path, text=tmp_path / "a.txt")
    why = _explained(d)
    assert d.subjects
    assert why.frequencies is not None
    assert any(note in one for one in why.notes)


def test_of_an_encoder_and_a_decoder_it_says_what_was_read(tmp_path: Path) -> None:
    why = _explained(uncone.diagnose(_model(tmp_path / "m", "T5ForConditionalGeneration"), text=tmp_path / "a.txt"))
    assert "only the encoder of this encoder-decoder was read" in why.layers.no_logits
    assert any("only the encoder of this encoder-decoder was read" in note for note in why.notes)


def test_gradients_of_some_targets_are_told(causal: Causal, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = causal
    monkeypatch.setattr("uncone.diagnosis.why.by_text.MOST_TARGETS", 50)
    why = _explained(uncone.diagnose(path, text=path.parent / "a.txt"))
    assert why.gradients.tokens == 50 < _explained(whole).gradients.tokens
    assert any(note.startswith("The gradients cover 50 of") for note in why.notes)
