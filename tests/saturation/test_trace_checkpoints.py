"""Checkpoints read, kept and ordered: planted families, kills, and input that is bad in the ways it is."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.command import run_command
from tests.edited import edited
from tests.rows.reading import refuses
from tests.saturation.families import D, N, V, head_at, losses, table_of, write_checkpoint, write_family
from uncone import report, trace_checkpoints
from uncone.errors import InputError
from uncone.records.blocks import Folded
from uncone.records.load import load_record
from uncone.saturation.checkpoints import trace as checkpoints
from uncone.saturation.checkpoints.order import find_turns, phases, sentence
from uncone.saturation.checkpoints.record import CheckpointTrace


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("family")
    write_family(folder, 10)
    return folder


@pytest.fixture(scope="module")
def trace(family: Path) -> CheckpointTrace:
    return trace_checkpoints(family, losses=losses(17))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three checkpoints."""
    for place in range(3):
        write_checkpoint(tmp_path / f"runs/step{place}", head_at(place, 1))
    return tmp_path / "runs"


@pytest.mark.parametrize(("turn", "order"), [(17, "before"), (5, "after"), (10, "not apart")])
def test_a_planted_order_is_found(family: Path, turn: int, order: str) -> None:
    found = trace_checkpoints(family, losses=losses(turn, noise=0.03))
    said = {"before": "Geometry turned before the loss.", "after": "Geometry turned after the loss."}
    assert found.verdict.startswith(said.get(order, "We cannot tell which turned first."))
    assert found.verdict.endswith("An order in time does not show a cause.")
    rows = {row.name: row for row in found.turns}
    geometry, loss = rows["head_entropy_centered"], rows["loss"]
    assert geometry.order == order
    assert geometry.low <= 1000 <= geometry.high
    assert loss.low <= 100 * turn <= loss.high
    assert not rows["table_rankme"].turned


def test_a_loss_that_never_turns_is_said_to(family: Path) -> None:
    found = trace_checkpoints(family, losses=[(step, 3 / math.sqrt(1 + step / 100)) for step, _ in losses(10)])
    assert re.search(
        r"\. No turn was detected in the loss \(80% of changes of [\d.e-]+ over the last third would be found\)\.$",
        found.verdict,
    )
    assert all(row.order == "" for row in found.turns)


def test_the_numbers_of_a_checkpoint(trace: CheckpointTrace) -> None:
    one = trace.checkpoints[3]
    head = head_at(3, 10).astype(np.float32).astype(np.float64)
    raw, centered = (np.linalg.svd(w, compute_uv=False) for w in (head, head - head.mean(axis=0)))
    for name, values, s in (("", one.singular_values, raw), ("_centered", one.centered, centered)):
        p = s**2 / (s**2).sum()
        assert one.values[f"head_entropy{name}"] == pytest.approx(math.log(D) + (p * np.log(p)).sum(), abs=1e-5)
        np.testing.assert_allclose(values, s, rtol=1e-4)
    p = raw / raw.sum()
    assert one.values["head_rankme"] == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-4)
    assert (one.step, one.shape) == (300, (V, D))
    assert one.values["loss"] == pytest.approx(losses(17)[3][1])


def test_the_trace_has_every_view(trace: CheckpointTrace, tmp_path: Path) -> None:
    page = report.to_html(trace)
    assert "Where each series turned" in page
    assert page.count('class="column"') == N
    assert len(page) < 150_000
    assert "turned at" in report.to_markdown(trace)
    assert len(trace.to_rows()) == N
    trace.save(tmp_path / "a.json")
    again = load_record(tmp_path / "a.json")
    assert again.to_json() == trace.to_json()
    assert report.to_html(again) == page


def test_steps_on_a_wide_scale_have_a_logarithmic_axis(tmp_path: Path) -> None:
    for step in (1, 4, 16, 64, 256, 1024):
        write_checkpoint(tmp_path / f"step{step}", head_at(step, 6))
    found = trace_checkpoints(tmp_path)
    assert found._is_log
    assert "Too few checkpoints to look for a turn: 6 of at least 10." in found.verdict
    report.to_html(found)


def test_an_interrupted_run_goes_on(family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, read, places = tmp_path / "kept.jsonl", list[int](), checkpoints.places_of([family])
    own = checkpoints.read_checkpoint

    def counted(place: checkpoints.Place, text: None = None) -> checkpoints.Checkpoint:
        if place.step == 900 and len(read) < 10:
            raise KeyboardInterrupt
        read.append(place.step)
        return own(place, text)

    monkeypatch.setattr(checkpoints, "read_checkpoint", counted)
    with pytest.raises(KeyboardInterrupt):
        trace_checkpoints(family, out=out)
    assert read == list(range(0, 900, 100))
    lines = out.read_text().splitlines()
    assert len(lines) == 9
    out.write_text("\n".join(lines)[:-40])  # as a writer without whole writes would leave it
    read += [0] * 2
    whole = checkpoints.read_checkpoints(places, out=out)
    assert read[11:] == list(range(800, 2400, 100))
    assert whole == checkpoints.read_checkpoints(places, out=out)
    assert len(read) == 27
    assert len(out.read_text().splitlines()) == N
    monkeypatch.undo()
    assert whole == checkpoints.read_checkpoints(places)


def test_a_changed_checkpoint_is_read_anew_and_a_bad_one_again(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept.jsonl"
    (runs / "step1" / "model.safetensors").write_bytes(b"no tensors")
    first = trace_checkpoints(runs, out=out)
    assert [bool(one.failed) for one in first.checkpoints] == [False, True, False]
    assert "1 of 3 checkpoints could not be read." in first.notes
    assert first.checkpoints[1].failed in report.to_html(first)
    shutil.rmtree(runs / "step1")
    write_checkpoint(runs / "step1", head_at(1, 1))
    again = trace_checkpoints(runs, out=out)
    assert not any(one.failed for one in again.checkpoints)
    assert again.checkpoints[0] == first.checkpoints[0]


def test_no_checkpoint_that_could_be_read_is_an_error_with_the_reasons(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(runs / "step0")
    for place in (1, 2):
        (runs / f"step{place}" / "model.safetensors").write_bytes(b"no tensors")
    status, out, err = run_command("saturation", capsys, "checkpoints", runs, "--json", tmp_path / "t.json")
    assert (status, out) == (1, "")
    said = r"got 2 that cannot: runs/step1 at step 1: .*model.safetensors.* \(and 1 other reason\)"
    assert re.search(f"expected a checkpoint that can be read, {said}", " ".join(err.split()))
    assert not (tmp_path / "t.json").exists()


def test_a_file_of_others_is_not_written_over(family: Path, tmp_path: Path) -> None:
    """Not a line of it: one that is not of this tool is refused with its number, wherever it stands."""
    out = tmp_path / "kept.jsonl"
    checkpoints.read_checkpoints(checkpoints.places_of([family]), out=out)
    own = out.read_text().splitlines(keepends=True)
    for lines, number, got in (
        (["dear diary\n"], 1, "'dear diary"),
        (["dear diary"], 1, "'dear diary"),
        (['{"key": "mine", "loss": 2.5}\n', '{"key": "yours"}\n'], 1, '\'{"key": "mine"'),
        (['{"key": "0123", "checkpoint": {"name": "a", "step": 1}}\n'], 1, '\'{"key": "0123"'),
        ([*own, "note to self\n"], N + 1, "'note to self"),
        ([*own, "note to self"], N + 1, "'note to self"),
        ([*own[:3], "\n", *own[3:]], 4, "'\\\\n'"),
        ([*own[:2], own[2].replace('"step": ', '"step": 1'), *own[3:]], 3, "a changed record"),
        ([*own[:-1], own[-1].replace('"step": ', '"step": 1')], N, "a changed record"),
        ([*own[:2], own[2][:-9], "\n", *own[3:]], 3, "a changed record"),
        (["{"], 1, "'{'"),
    ):
        out.write_text("".join(lines))
        message = rf"expected a checkpoint as this version .* in line {number} of .*kept.jsonl, got {got}"
        refuses(message, trace_checkpoints, family, out=out)
        assert out.read_text() == "".join(lines)
    with pytest.raises(InputError):
        trace_checkpoints(family, out=family / "step0" / "model.safetensors")


@pytest.mark.parametrize("cut", [1, 2, 20, 300, 10**6])
def test_a_last_line_that_was_cut_is_read_again(runs: Path, tmp_path: Path, cut: int) -> None:
    shutil.rmtree(runs / "step2")
    out = tmp_path / "kept.jsonl"
    whole = trace_checkpoints(runs, out=out)
    own = out.read_bytes()
    first = own.index(b"\n") + 1
    for rest in (own[max(first + 1, len(own) - cut) :], own[max(first - 1, len(own) - cut) :]):
        out.write_bytes(own.removesuffix(rest))
        assert trace_checkpoints(runs, out=out) == whole
        assert out.read_bytes().removesuffix(b"\n") == own.removesuffix(b"\n")


def test_no_edited_line_is_believed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, places = tmp_path / "kept.jsonl", checkpoints.places_of([runs])
    whole, refused = checkpoints.read_checkpoints(places, out=out), 0
    own, read = out.read_bytes(), {one.step: one for one in whole}
    monkeypatch.setattr(checkpoints, "read_checkpoint", lambda place, text: read[place.step])
    for content in edited(out, 320):
        out.write_bytes(content)
        try:
            assert checkpoints.read_checkpoints(places, out=out) == whole
        except InputError as error:
            refused += str(out) in str(error) and "name a new file" in str(error)
            assert out.read_bytes() == content
        out.write_bytes(own)
    assert refused > 200


def test_one_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-500", head_at(0, 0))
    found = trace_checkpoints([tmp_path / "checkpoint-500"])
    few = "Too few checkpoints to look for a turn: 1 of at least 10."
    assert found.verdict == f"{few} See the numbers of each checkpoint."
    assert found.checkpoints[0].step == 500
    report.to_html(found)


def test_no_head_and_a_tied_head(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "step1", None)
    tied = trace_checkpoints([tmp_path / "step1"]).checkpoints[0]
    assert "head_entropy_centered" in tied.values
    assert "table_cosine" not in tied.values
    config = tmp_path / "step1" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": ["LlamaModel"]}))
    none = trace_checkpoints([tmp_path / "step1"])
    assert none.verdict == "1 checkpoint without a head: only the token table was read."
    assert set(none.checkpoints[0].values) == {"table_cosine", "table_isoscore", "table_rankme"}
    assert any(note.startswith("It has no head.") for note in none.notes)


def test_heads_that_change_shape_are_compared_as_shares(tmp_path: Path) -> None:
    for place in range(16):
        d = D if place < 8 else 2 * D
        table = np.random.default_rng(0).standard_normal((V, d))
        write_checkpoint(tmp_path / f"step{place}", head_at(place, 6, d), table=table)
    found = trace_checkpoints(tmp_path)
    (note,) = (note for note in found.notes if "shape" in note)
    shapes = f"{V} x {D} from step 0, {V} x {2 * D} from step 8"
    assert note == f"The head changes shape: {shapes}. So entropies are shares of ln d, and RankMe is a share of d."
    (rankme,) = (row for row in found.turns if row.name == "table_rankme")  # of noise: nearly d, and then nearly 2 d
    assert rankme.turned is False


def test_what_has_no_step_is_named_and_a_folder_of_two_is_read(tmp_path: Path) -> None:
    for name in ("checkpoint-100", "checkpoint-200", "final"):
        write_checkpoint(tmp_path / name, head_at(0, 0))
    shutil.copytree(tmp_path / "final", tmp_path, dirs_exist_ok=True)
    found = trace_checkpoints(tmp_path)
    assert [one.step for one in found.checkpoints] == [100, 200]
    assert f"Not read, because the name has no step: {tmp_path.name[:40]}, final." in found.notes
    (tmp_path / "none").mkdir()
    refuses("got no folder that names a step", trace_checkpoints, tmp_path / "none")


def test_equal_series_have_equal_turns_and_few_show_their_numbers(tmp_path: Path) -> None:
    for place in range(12):
        head = head_at(place, 5)
        write_checkpoint(tmp_path / f"step{place}", head, table=head[::-1].copy())
    rows = {row.name: row for row in trace_checkpoints(tmp_path).turns}
    assert rows["head_rankme"].p == rows["table_rankme"].p
    some = trace_checkpoints([tmp_path / f"step{place}" for place in range(3)])
    (numbers,) = (block for block in some.blocks() if isinstance(block, Folded))
    assert numbers.in_terminal


def test_few_late_points_are_not_called_few() -> None:
    early = [(float(2**i), 1.0 / (i + 1)) for i in range(14)]
    many = [(float(i), abs(i - 20) + 0.1 * (i % 3)) for i in range(40)]
    turns, _ = find_turns({"head_entropy": early})
    assert sentence(turns, 14).startswith("Too few checkpoints to look for a turn: 14, too few of them late")
    turns, _ = find_turns({"head_entropy": many, "loss": early})
    assert sentence(turns, 40).endswith(
        "The loss has too few points to look for a turn: 14, too few of them late in the training."
    )


def test_steps_come_from_names_trainers_or_the_caller(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "checkpoint-200", tmp_path / "run_7b_step_300"]
    for path in paths:
        write_checkpoint(path, head_at(0, 0))

    def steps(given: list[Path], of: list[int] | None = None) -> list[int]:
        return [place.step for place in checkpoints.places_of(given, of)]

    refuses(r"expected a step in the name of .*/a, such as step1000", trace_checkpoints, paths)
    (paths[0] / "trainer_state.json").write_text('{"global_step": 100, "log_history": []}')
    assert steps(paths) == [100, 200, 300]
    assert [one.step for one in trace_checkpoints(paths, steps=[3, 2, 1]).checkpoints] == [1, 2, 3]
    for given, of, message in (
        (paths, [5, 5, 6], r"expected one checkpoint per step, got .*/a and .*checkpoint-200 at step 5"),
        (paths, [5], "expected a step for each of 3 checkpoints, got 1"),
        ([tmp_path / "nothing"], None, r"no checkpoint .*nothing"),
        ([], None, "expected directories of checkpoints, got none"),
    ):
        refuses(message, steps, given, of)


def test_losses_from_a_table_a_trainer_or_the_caller(family: Path, tmp_path: Path) -> None:
    places = checkpoints.places_of([family])
    pairs = losses(10)
    assert checkpoints.losses_of(dict(pairs), places) == (pairs, [])
    assert checkpoints.losses_of(table_of(pairs, tmp_path / "a.csv"), places)[0] == pairs
    state = {"log_history": [{"step": 1, "loss": 9.0}, {"step": 2, "eval_loss": 3.0}, {"step": 4, "eval_loss": 2.5}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert checkpoints.losses_of(tmp_path / "trainer_state.json", places)[0] == [(2.0, 3.0), (4.0, 2.5)]
    assert checkpoints.losses_of(None, places) == ([], [])
    kept, notes = checkpoints.losses_of([(1, 2.0), (2, math.nan), (1, 2.5)], places)
    assert kept == [(1.0, 2.5)]
    assert notes == [
        "1 of 3 losses are not finite and were left out.",
        "1 of 3 losses repeat a step: the last loss of a step counts.",
    ]
    for name, content, message in (
        ("b.csv", "step\tvalue\n1\t2\n", r"the columns step and loss in .*b\.csv, got step, value, without loss"),
        ("c.csv", "step,loss\n1,2\nx,3\n", r"a step in row 2 of .*c\.csv, got 'x'"),
        ("d.json", "[", r"JSON, got .*d\.json"),
        ("e.csv", "task,metric,step,value\nlambada,acc,100,0.5\n", "the columns step and loss in .*, without loss"),
    ):
        (tmp_path / name).write_text(content)
        refuses(f"expected {message}", checkpoints.losses_of, tmp_path / name, places)


def test_a_gap_is_named() -> None:
    notes = [
        checkpoints.notes_on([checkpoints.Checkpoint("a", step) for step in steps])
        for steps in ((100, 200, 300, 900, 1000, 1100), [2**k for k in range(12)])
    ]
    gap = "No checkpoint is between steps 300 and 900, a wide gap compared with its neighbours."
    assert notes == [[gap], []]


def test_a_text_adds_states_and_logits(stories: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 6)
    (one,) = trace_checkpoints([stories], text=text, steps=[1]).checkpoints
    assert not one.failed
    from uncone.model.last_states import states_of

    states = states_of(stories, text)
    h, w = states.states.double().numpy(), states.head.double().numpy()
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    cosine = (np.square(u.sum(0)).sum() - len(u)) / (len(u) ** 2 - len(u))
    assert one.values["states_anisotropy"] == pytest.approx(cosine, abs=1e-6)
    logits = h @ w.T
    centered = logits - logits.mean(axis=1, keepdims=True)
    expected = np.linalg.svd(centered, compute_uv=False)[: len(one.logits)] / np.sqrt(len(h))
    np.testing.assert_allclose(one.logits, expected, rtol=1e-3)
    shifted = logits - logits.max(axis=1, keepdims=True)
    loss = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(h)), states.labels.numpy()]
    assert one.values["text_loss"] == pytest.approx(loss.mean(), abs=1e-5)


def _phases(values: list[float]) -> str:
    series = {"states_rankme": [(100.0 * place, value) for place, value in enumerate(values)]}
    return phases(series, find_turns(series, draws=200)[1])


def test_only_phases_of_rankme_that_a_test_shows_are_named() -> None:
    x, jitter = np.arange(30.0), 0.3 * np.random.default_rng(0).standard_normal(30)
    rising = np.r_[43.7, np.linspace(11.3, 26.7, 29)]
    found = re.search(r": collapse until step 100 \((\d+) to (\d+)\), then expansion\.$", _phases([*rising]))
    assert found
    assert int(found[1]) <= 100 <= int(found[2])
    peak = np.where(x < 20, 10 + x, 30 - 2 * (x - 20)) + jitter
    found = re.search(r": expansion until step [\d,]+ \(([\d,]+) to ([\d,]+)\), then compression\.$", _phases([*peak]))
    assert found
    assert int(found[1].replace(",", "")) <= 2000 <= int(found[2].replace(",", ""))
    both = peak + 20 * np.maximum(4 - x, 0) / 4
    assert re.search(r": collapse until .*, then expansion until .*, then compression\.$", _phases([*both]))
    for none in (np.full(30, 5.0), 5 + jitter, x + jitter, -x + jitter):
        assert _phases([*none]).endswith(": no phase was detected.")
    assert _phases([1.0, 2.0, 3.0]) == ""
