"""The experiment from files to a report, on a tiny random encoder and made-up sentences."""

import json
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from uncone.errors import InputError

pytest.importorskip("transformers")
pytest.importorskip("sklearn")
Load = Callable[[str], Any]
WORDS = [f"word{place}" for place in range(40)]
DATA = (Path(__file__).parents[2] / "../shared/data/glue").resolve()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place = tmp_path_factory.mktemp("encoder")
    (place / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(WORDS) + 5, max_position_embeddings=32, **sizes)).save_pretrained(place)
    return place


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences with word0 are of class 1; some have quotation marks, and MRPC begins with a byte order mark."""
    place, draw = tmp_path_factory.mktemp("glue"), random.Random(0)

    def sentence(label: int) -> str:
        words = draw.choices(WORDS[1:], k=draw.randint(2, 9))
        return " ".join([*words, "word0"] if label else ['"', *words])

    def lines(n: int, form: str) -> str:
        labels = [draw.random() < 0.6 for _ in range(n)]
        return "".join(form.format(y=int(y), a=sentence(y), b=sentence(y)) for y in labels)

    (place / "CoLA").mkdir()
    (place / "MRPC").mkdir()
    for name, n in (("in_domain_train", 1000), ("in_domain_dev", 50), ("out_of_domain_dev", 40)):
        (place / f"CoLA/{name}.tsv").write_text(lines(n, "gj04\t{y}\t\t{a}\n"))
    for name, n in (("train.tsv", 130), ("dev.tsv", 20), ("msr_paraphrase_test.txt", 70)):
        head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        (place / f"MRPC/{name}").write_text(head + lines(n, "{y}\t1\t2\t{a}\t{b}\n"), encoding="utf-8")
    return place


def _arguments(encoder: Path, data: Path, out: Path, *words: str) -> list[str]:
    return [*words, "--model", f"tiny={encoder}", "--data", str(data), "--out", str(out), "--precision", "fp32"]


def _run(shrink: Load, encoder: Path, data: Path, out: Path, arm: str, seed: int, steps: int = 4) -> dict[str, Any]:
    words = ["run", "--task", "cola", "--arm", arm, "--seed", str(seed), "--examples", "128", "--steps", str(steps)]
    shrink("run").main(_arguments(encoder, data, out, *words))
    found: dict[str, Any] = json.loads((out / f"tiny/cola_128_{arm}_{seed:02d}.json").read_text())
    return found


def test_a_report(shrink: Load, encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [("none", 0), ("none", 1), ("selected", 0), ("selected", 1), ("length", 0)]
    found = {(arm, seed): _run(shrink, encoder, data, tmp_path, arm, seed) for arm, seed in asked}
    plain, penalised = found["none", 0], found["selected", 0]
    assert plain["training"]["loss"][0] == penalised["training"]["loss"][0]  # one seed: same head, examples and dropout
    assert plain["training"]["loss"] != penalised["training"]["loss"]
    assert plain["training"]["penalty"] == [0.0] * 4
    assert all(value < 0 for value in penalised["training"]["penalty"])
    assert plain["items"] == 90
    assert sum(plain["confusion"].values()) == 90
    right = shrink("training").unpacked(plain["correct"], 90).sum()
    assert int(right) == plain["confusion"]["tp"] + plain["confusion"]["tn"]
    capsys.readouterr()
    shrink("run").main(_arguments(encoder, data, tmp_path, "report"))
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "tiny/results.md").read_text() + "\n"
    assert "cola, 128 training examples, 90 items" in printed
    assert "| length | 1 |" in printed
    ElementTree.fromstring((tmp_path / "tiny/a1_cola_128.svg").read_text())
    assert "](claims_metric.svg)" not in printed  # no claim is about 128 examples


def test_a_kept_run_is_done_again_only_when_asked(shrink: Load, encoder: Path, data: Path, tmp_path: Path) -> None:
    first = _run(shrink, encoder, data, tmp_path, "all", 0)
    file = tmp_path / "tiny/cola_128_all_00.json"
    written = file.stat().st_mtime_ns
    _run(shrink, encoder, data, tmp_path, "all", 0)
    assert file.stat().st_mtime_ns == written
    assert len(_run(shrink, encoder, data, tmp_path, "all", 0, steps=5)["training"]["loss"]) == 5
    again = _run(shrink, encoder, data, tmp_path, "all", 0)
    for one in (first, again):
        del one["cpu_seconds"], one["made_by"]
    assert again == first  # the same numbers to the bit


def test_what_is_judged_over_the_steps_changes_no_training(
    shrink: Load, encoder: Path, data: Path, tmp_path: Path
) -> None:
    usual = _run(shrink, encoder, data, tmp_path, "selected", 0)
    words = ["run", "--task", "cola", "--arm", "selected", "--examples", "128", "--steps", "4", "--over-steps"]
    shrink("run").main(_arguments(encoder, data, tmp_path, *words))
    found = json.loads((tmp_path / "tiny/over_steps/cola_128_selected_00.json").read_text())
    assert found["asked"] == usual["asked"]
    judged = [one.pop("judged") for one in found["training"]["probes"]]
    assert [one["step"] for one in found["training"]["probes"]] == [1, 2, 3, 4]
    assert found["training"]["loss"] == usual["training"]["loss"]
    assert {name: found[name] for name in judged[-1]} == judged[-1], "the last probe is the end"
    assert {name: usual[name] for name in judged[-1]} == judged[-1]
    assert judged[0] != judged[-1]
    for probe, other in zip(found["training"]["probes"], usual["training"]["probes"], strict=True):
        assert probe["raw"] == pytest.approx(other["raw"], abs=1e-4), "the same 64 items, in other chunks"
    kept = shrink("kept").Kept(tmp_path / "tiny")
    assert (len(kept.runs()), len(kept.over_steps.runs())) == (1, 1)
    before = kept.before("cola")
    assert before is not None
    each = (usual, found, before)
    assert kept.cpu_seconds() == pytest.approx(sum(one["cpu_seconds"]["whole"] for one in each))
    words[words.index("selected")] = "none"
    shrink("run").main(_arguments(encoder, data, tmp_path, *words))
    shrink("run").main(_arguments(encoder, data, tmp_path, "report"))
    report = (tmp_path / "tiny/results.md").read_text()
    assert "| cola, 128 examples | matthews | selected minus none | 1 of 5 | none " in report
    assert "| cola | matthews | selected minus none | 0 of 5 | not run | not run | not run | not run |" in report
    ElementTree.fromstring((tmp_path / "tiny/metric_cola_128.svg").read_text())


def test_all_stops_at_its_hours(
    shrink: Load, encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shrink("run").main(_arguments(encoder, data, tmp_path, "all", "--cpu-hours", "0"))
    limit = "the kept runs took 0.00 CPU hours, the limit is 0.0"
    assert f"stopped before mrpc_all_none_00: {limit}" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "tiny").iterdir()] == ["results.md"]


def test_hours_that_are_spent_stop_no_run_that_is_kept(
    shrink: Load, encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    plan = shrink("plan")
    planned = [plan.Cell("cola", "none", seed, 128) for seed in range(2)]
    shrink("run").main(_arguments(encoder, data, tmp_path, "run", "--task", "cola", "--examples", "128"))
    arguments = _arguments(encoder, data, tmp_path, "all", "--cpu-hours", "0")
    for cells, told in ((planned, "stopped before cola_128_none_01: the kept"), (planned[:1], "")):
        monkeypatch.setattr(plan, "cells", lambda cells=cells: iter(cells))
        capsys.readouterr()
        shrink("run").main(arguments)
        said = capsys.readouterr().err
        assert told in said
        assert ("stopped" in said) == bool(told)


def test_a_pilot(shrink: Load, encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shrink("run").main(_arguments(encoder, data, tmp_path, "pilot", "--task", "mrpc", "--steps", "2", "--rate", "1e-3"))
    assert "rate 0.001, 2 steps" in capsys.readouterr().err
    found = json.loads((tmp_path / "tiny/pilot/mrpc_all_none_00_0.001_2_fp32.json").read_text())
    assert found["items"] == 20
    kept = shrink("kept").Kept(tmp_path / "tiny")
    assert kept.runs() == []
    assert kept.cpu_seconds() == found["cpu_seconds"]["whole"]


def test_states_are_those_of_each_item_alone(shrink: Load, encoder: Path, data: Path) -> None:
    model = shrink("encoder").Encoder(str(encoder), precision="fp32", seed=0).eval()
    tokens = model.tokens(shrink("glue").load("mrpc", data).evaluation.texts[:40], 24)
    assert max(len(one["input_ids"]) for one in tokens) <= 24
    with torch.inference_mode():
        alone = torch.cat([model.states([one]) for one in tokens])
        torch.testing.assert_close(model.states(tokens), alone, rtol=1e-4, atol=1e-5)


def test_an_encoder_of_another_kind(shrink: Load, encoder: Path, data: Path, tmp_path: Path) -> None:
    """DistilBERT has no token types, no pooler, and other names in its configuration."""
    from transformers import DistilBertConfig, DistilBertModel, DistilBertTokenizerFast

    DistilBertTokenizerFast(str(encoder / "vocab.txt")).save_pretrained(tmp_path)
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 32}
    config = DistilBertConfig(vocab_size=len(WORDS) + 5, seq_classif_dropout=0.3, **sizes)
    DistilBertModel(config).save_pretrained(tmp_path)
    model = shrink("encoder").Encoder(str(tmp_path), precision="bf16", seed=0)
    states = model.states(model.tokens(shrink("glue").load("mrpc", data).evaluation.texts[:20], 24))
    assert (states.shape, states.dtype, model.dropout.p) == ((20, 16), torch.float32, 0.3)
    model.logits(states).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_reading_keeps_quotation_marks_and_no_byte_order_mark(shrink: Load, data: Path) -> None:
    task = shrink("glue").load("mrpc", data)
    assert (len(task.train), len(task.evaluation)) == (130, 70)
    assert all(len(pair) == 2 for pair in task.train.texts)
    assert any('"' in pair[0] for pair in task.train.texts)


def test_the_pilot_is_judged_by_other_items(shrink: Load, data: Path) -> None:
    glue = shrink("glue")
    usual, pilot = (glue.load("cola", data, pilot=flag) for flag in (False, True))
    assert len(pilot.evaluation) == 855
    assert Counter(pilot.train.texts + pilot.evaluation.texts) == Counter(usual.train.texts)


def test_what_cannot_be_read_is_said(shrink: Load, encoder: Path, data: Path, tmp_path: Path) -> None:
    glue, run = shrink("glue"), shrink("run")
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA/in_domain_train.tsv").write_text("gj04\t1\t\tgood\ngj04\t7\t\tbad\n")
    few = _arguments(encoder, data, tmp_path / "out", "run", "--task", "mrpc", "--examples", "5000", "--steps", "1")
    for read, message in (
        (lambda: glue.load("mrpc", tmp_path), r"train\.tsv of GLUE in MRPC/.*--data"),
        (lambda: glue.load("rte", data), "task of mrpc, cola"),
        (lambda: glue.load("cola", tmp_path), r"another line 2 of in_domain_train\.tsv"),
        (lambda: shrink("encoder").Encoder(str(tmp_path), precision="fp32", seed=0), "without config"),
        (lambda: run.main(["run", "--task", "cola", "--model", "../up=x"]), "NAME=DIR"),
        (lambda: run.main(["run", "--task", "cola", "--examples", "10"]), "from 64 up"),
        (lambda: run.main(few), "at most 130 examples"),
    ):
        with pytest.raises(InputError, match=message):
            read()


def test_a_broken_result_is_named(shrink: Load, tmp_path: Path) -> None:
    (tmp_path / "cola_all_none_00.json").write_text('{"form')
    with pytest.raises(InputError, match="delete the file"):
        shrink("kept").Kept(tmp_path).runs()


def test_every_start_of_the_plan_is_balanced(shrink: Load) -> None:
    planned = list(shrink("plan").cells())
    starts = 2 * ((3 * 10 + 3) + 2 * (3 * 3))  # tasks, seeds of arms, sizes of few examples
    assert len(set(planned)) == len(planned) == starts + 2 * 5 * 3
    assert len({cell.name for cell in planned}) == len(planned)
    assert [cell.over_steps for cell in planned] == [False] * starts + [True] * (2 * 5 * 3)
    first, last = planned[starts : starts + 20], planned[starts + 20 :]
    assert [(c.seed, c.task, c.arm) for c in first[:3]] == [
        (0, "mrpc", "none"),
        (0, "mrpc", "selected"),
        (0, "cola", "none"),
    ]
    assert Counter(cell.arm for cell in first) == {"none": 10, "selected": 10}
    assert Counter((cell.task, cell.arm) for cell in last) == {("mrpc", "all"): 5, ("cola", "all"): 5}
    counts: Counter[tuple[str, str, str]] = Counter()
    for cell in planned[:starts]:
        counts[cell.task, cell.size, cell.arm] += 1
        for task in ("mrpc", "cola"):
            for size in ("all", "300", "1000"):
                done = [counts[task, size, arm] for arm in ("none", "selected", "all")]
                assert max(done) - min(done) <= 1


def test_the_report_of_nothing(shrink: Load, tmp_path: Path, data: Path) -> None:
    text, pictures = shrink("tables").report(shrink("kept").Kept(tmp_path), data)
    assert "No runs yet" in text
    assert pictures == {}


def test_clusters_of_four_points(shrink: Load) -> None:
    points = torch.tensor([[0.0, 0], [1, 0], [0, 3], [1, 3]])
    found = shrink("clouds").clusters(points, torch.tensor([0, 0, 1, 1]))
    between = (3 + 10**0.5) / 2
    assert found["within"] == pytest.approx(1)
    assert found["between"] == pytest.approx(between)
    assert found["silhouette"] == pytest.approx(1 - 1 / between)
    assert shrink("clouds").clusters(points, torch.zeros(4, dtype=torch.int64))["silhouette"] is None


@pytest.mark.skipif(not DATA.is_dir(), reason="the files of GLUE are not here")
def test_the_real_files_have_the_known_sizes(shrink: Load) -> None:
    glue = shrink("glue")
    found = {task: glue.load(task, DATA) for task in ("mrpc", "cola")}
    sizes = {task: (len(one.train), len(one.evaluation)) for task, one in found.items()}
    assert sizes == {"mrpc": (3668, 1725), "cola": (8551, 1043)}
    assert len(glue.load("mrpc", DATA, pilot=True).evaluation) == 408
