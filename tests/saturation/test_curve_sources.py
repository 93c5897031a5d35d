"""What curves are read from: every format, the columns and what tells curves apart, and damaged or hostile files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uncone
from tests.report.curves_example import make_rows
from tests.rows.reading import refuses
from tests.saturation.test_tensorboard import events
from uncone.errors import InputError
from uncone.saturation.curves.columns import curves_of
from uncone.saturation.curves.direction import is_lower_better
from uncone.saturation.curves.record import CurveVerdicts
from uncone.saturation.tables.sources import open_table
from uncone.saturation.tables.tables import of_memory

ROWS = make_rows()
NAMES = list(ROWS[0])


def _verdicts(record: CurveVerdicts) -> list[tuple[str, bool | None]]:
    return [(curve.model, curve.declined) for curve in record.curves]


EXPECTED = _verdicts(uncone.judge_curves(ROWS))


def _text(separator: str) -> str:
    lines = [separator.join(NAMES)] + [separator.join(str(row[name]) for name in NAMES) for row in ROWS]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.jsonl", "t.json", "t.parquet", "t.csv.gz"])
def test_every_table_gives_the_same_verdicts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq = pytest.importorskip("pyarrow.parquet")
        import pyarrow

        pq.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif name.endswith(".gz"):
        import gzip

        path.write_bytes(gzip.compress(_text(",").encode()))
    elif name == "t.json":
        path.write_text(json.dumps(ROWS))
    elif name == "t.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in reversed(ROWS)))
    else:
        path.write_text(_text({"t.csv": ",", "t.tsv": "\t", "t.txt": ";"}[name]))
    record = uncone.judge_curves(path)
    assert sorted(_verdicts(record), key=str) == sorted(EXPECTED, key=str)
    assert record.told_apart_by == ("model",)
    assert record.curves[0].settings == {"batch_size": "1024"}


def test_a_frame_of_pandas_and_columns_are_read() -> None:
    assert _verdicts(uncone.judge_curves(pytest.importorskip("pandas").DataFrame(ROWS))) == EXPECTED
    assert _verdicts(uncone.judge_curves({name: [row[name] for row in ROWS] for name in NAMES})) == EXPECTED


def test_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = _text(",").replace("step", "seen", 1).replace("value", "lambada_acc", 1).replace("batch_size", "bs", 1)
    path.write_text(text)
    for columns, message in (
        (None, r"a column for the step in .*got columns model, task, .*seen, lambada_acc.*--columns step="),
        ({"step": "sen", "value": "lambada_acc"}, r"a column 'sen' for the step.*did you mean 'seen'"),
        ({"stepp": "seen"}, r"one of the roles step, value.*'stepp': did you mean 'step'"),
    ):
        refuses(message, uncone.judge_curves, path, columns=columns)
    record = uncone.judge_curves(path, columns={"step": "seen", "value": "lambada_acc", "batch_size": "bs"})
    assert _verdicts(record) == EXPECTED
    assert record.curves[0].settings == {"bs": "1024"}


def test_a_named_column_of_values_is_the_metric() -> None:
    falling = [{"step": s, "eval_loss": 1 - 0.01 * s + 1e-3 * (s % 3), "other": math.inf} for s in range(1, 31)]
    (curve,) = uncone.judge_curves(falling, columns={"value": "eval_loss"}).curves
    assert (curve.metric, curve.lower, curve.declined) == ("eval_loss", True, False)
    (curve,) = uncone.judge_curves(falling, columns={"value": "eval_loss"}, higher=["eval_loss"]).curves
    assert curve.declined


def _rows(**extra: list[Any]) -> list[dict[str, Any]]:
    """As many curves as `extra` has values, which are their only difference."""
    (name, values), *_ = extra.items()
    points = [(i, value, s) for i, value in enumerate(values) for s in range(1, 21)]
    return [{"step": s, "value": 0.1 * i + 1e-3 * s, name: value, "date": f"{i} {s}"} for i, value, s in points]


def test_a_further_column_tells_curves_apart_where_steps_repeat() -> None:
    curves, apart, _ = curves_of(of_memory(_rows(deduped=[0, 1])))
    assert apart == ("deduped",)
    assert [curve.model for curve in curves] == ["deduped 0", "deduped 1"]
    curves, apart, _ = curves_of(of_memory(_rows(seed=[5])))
    assert (len(curves), apart) == (1, ()), "a time of day tells no curves apart"
    curves, apart, _ = curves_of(of_memory(_rows(weight_decay=[0.1, 0.2, 0.3])))
    assert apart == ("weight_decay",)
    assert [curve.settings for curve in curves] == [{"weight_decay": value} for value in ("0.1", "0.2", "0.3")]


def test_rows_that_repeat_and_steps_with_two_values() -> None:
    row = {"model": "m", "value": 0.5}
    twice = [row | {"step": s} for s in (*range(1, 21), 7)]
    (curve,), _, _ = curves_of(of_memory(twice))
    assert (len(curve.steps), curve.notes) == (20, ("1 row given twice",))
    record = uncone.judge_curves([*twice, row | {"step": 9, "value": 0.6}])
    assert record.curves[0].reason.startswith("two values at step 9")
    assert record.verdict.endswith("1 curve is undecided.")


LOWER = """
    loss eval_loss val/loss loss/val evalLoss ppl perp word_perplexity bits_per_byte bits_per_byte,none BPB bpc error
    err top1_error error_rate pct_stereotype likelihood_diff nll ce CE cross_entropy crossEntropy wer cer fid kid mse
    rmse mae brier ece toxicity toxicity_score reward_loss neg_log_likelihood minus_acc -acc 1-acc one_minus_f1"""
HIGHER = """
    acc acc_norm acc,none f1 em exact_match,strict-match bleu rougeL chrf ndcg@10 mrr recall pass@1 neg_loss -loss
    minus_loss val/neg_loss neg_mean_squared_error non_toxicity loss_improvement log_likelihood loss/acc"""
UNKNOWN = "answer lossless errorless power score 1-shot nonzero negative_recall"


@pytest.mark.parametrize(("metrics", "lower"), [(LOWER, True), (HIGHER, False), (UNKNOWN, None)])
def test_where_less_is_better_follows_from_the_words_of_a_name(metrics: str, lower: bool | None) -> None:
    assert {name: is_lower_better(name) for name in metrics.split()} == dict.fromkeys(metrics.split(), lower)


def test_a_tag_that_names_only_a_split_has_the_direction_of_its_task() -> None:
    assert is_lower_better("val", "loss")
    assert is_lower_better("", "wikitext_ppl")
    assert is_lower_better("score", "toxicity") is None


def _falling(**names: str) -> list[dict[str, Any]]:
    return [{"step": s, **names, "value": 1 - 0.01 * s + 1e-3 * (s % 3)} for s in range(1, 31)]


def test_a_direction_that_nobody_said_is_in_the_verdict() -> None:
    record = uncone.judge_curves([*_falling(metric="glory"), *_falling(metric="acc")])
    taken = "We assumed that higher is better for 'glory', whose direction is not known (lower=, --lower)."
    assert record.verdict.endswith(f"declined late: 1 of glory, 1 of acc. {taken}")
    record = uncone.judge_curves([*_falling(metric="glory"), *_falling(metric="acc")], lower=["glory"])
    assert [curve.declined for curve in record.curves] == [False, True]
    assert "taken" not in record.verdict
    assert "for 'value', whose" in uncone.judge_curves(_falling()).verdict
    (curve,) = uncone.judge_curves(_falling(), lower=["value"]).curves
    assert (curve.lower, curve.declined) == (True, False)
    refuses("which has 'value', got 'valu': did you mean 'value'", uncone.judge_curves, _falling(), lower=["valu"])


def test_the_direction_can_be_said() -> None:
    falling = _falling(metric="acc")
    assert uncone.judge_curves(falling).curves[0].declined
    assert not uncone.judge_curves(falling, lower=["acc"]).curves[0].declined
    loss = [row | {"metric": "loss"} for row in falling]
    assert not uncone.judge_curves(loss).curves[0].declined
    assert uncone.judge_curves(loss, higher=["loss"]).curves[0].declined
    refuses(r"which has 'acc', got 'ac': did you mean 'acc'", uncone.judge_curves, falling, lower=["ac"])


def test_cells_that_are_no_numbers_leave_a_curve_undecided() -> None:
    bad = [{"model": "bad", "step": s, "value": "n/a" if s == 4 else 0.5} for s in range(1, 21)]
    early = [{"model": "early", "step": f"step{s}", "value": 0.5} for s in range(1, 21)]
    gaps = [{"model": "gaps", "step": s, "value": "" if s in (3, 9) else s / 20} for s in range(1, 21)]
    record = uncone.judge_curves([*bad, *early, *gaps])
    reasons = ["a value that is not a number: 'n/a'", "a step that is not a number: 'step1'", ""]
    assert [curve.reason for curve in record.curves] == reasons
    assert record.curves[2].notes == ("2 checkpoints without a value",)
    beside = [{**row, "stderr": 0.1} for row in (*bad, *gaps)]
    (family,) = uncone.judge_curves(beside).families
    (alone,) = uncone.judge_curves([row for row in beside if row["model"] == "gaps"]).families
    assert family.correlation == alone.correlation


def test_a_curve_that_is_judged_later_may_begin_with_anything() -> None:
    rows = [{"step": s, "metric": "loss", "value": 1 - 1e-3 * s + 1e-3 * (s % 3)} for s in range(0, 401, 4)]
    (sound,) = uncone.judge_curves(rows[1:]).curves
    for value in (math.inf, math.nan, "n/a", -math.inf):
        (curve,) = uncone.judge_curves([rows[0] | {"value": value}, *rows[1:]]).curves
        assert curve.notes == ("1 value before step 4 is not a number: values this early are not judged",)
        assert (curve.declined, curve.p_alone, curve.reason) == (sound.declined, sound.p_alone, "")
    (curve,) = uncone.judge_curves([*rows[:9], rows[9] | {"value": "n/a"}, *rows[10:]]).curves
    assert curve.reason == "a value that is not a number: 'n/a'"


_CELLS = st.sampled_from(["", None, math.nan, math.inf, -1.0, 0, 3, 1e308, 1e-320, "n/a", "7", True, "step 5"])


@settings(max_examples=15)
@given(st.lists(st.tuples(_CELLS, _CELLS, _CELLS), min_size=1, max_size=30))
def test_one_bad_curve_does_not_undo_the_others(cells: list[tuple[Any, Any, Any]]) -> None:
    bad = [{"task": "bad", "step": step, "value": value, "stderr": error} for step, value, error in cells]
    good = [row | {"task": "good", "stderr": 0.01} for row in _falling(metric="acc")]
    record = uncone.judge_curves([*bad, *good])
    (alone,) = uncone.judge_curves(good).curves
    assert record.curves[-1] == alone
    assert CurveVerdicts.from_json(record.to_json()) == record


def test_curves_without_any_value_one_point_or_steps_in_words() -> None:
    steps = range(1, 31)
    made = {
        "no checkpoint has a value": [(s, "") for s in steps],
        "the value at step 1 is nan:": [(s, math.nan) for s in steps],
        "1 checkpoint: a curve needs m": [(5, 0.5)],
        "two values at step 5: give": [(5, 0.1 * s) for s in steps],
        "a step that is not a number: '": [(f"step {s}", 0.1 * s) for s in steps],
    }
    rows = [{"task": reason, "step": s, "value": v} for reason, points in made.items() for s, v in points]
    record = uncone.judge_curves([*rows, *({"task": "", **row} for row in _falling())])
    assert [curve.reason[: len(curve.task)] for curve in record.curves] == [*made, ""]


@pytest.mark.parametrize(
    ("values", "errors", "said"),
    [(1, 0.7, "are they percents"), (1, 0.007, ""), (100, 0.007, "are they fractions"), (100, 0.7, ""), (1, 0.1, "")],
)
def test_standard_errors_in_another_unit_are_noted(values: float, errors: float, said: str) -> None:
    y = 0.4 - 0.3 * np.exp(-np.arange(30) / 3) + 0.007 * np.random.default_rng(0).standard_normal(30)
    rows = [{"metric": "acc", "step": s + 1, "value": values * v, "stderr": errors} for s, v in enumerate(y)]
    (curve,) = uncone.judge_curves(rows).curves
    assert (said in "".join(curve.notes)) if said else curve.notes == ()


NO_TABLES = [("", "a header"), ("step,value\n", "expected rows"), ("step,step\n1,2\n", "different names")]
NO_TABLES += [("step,value\n1,2,3\n", "2 columns in row 1"), ("[1, 2]", "one JSON object per line")]
NO_TABLES += [(text, "does not parse") for text in ('step,value\n1,"2\n', '{"step": 1\n', "[" * 9000)]


@pytest.mark.parametrize(("text", "said"), NO_TABLES)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    refuses(said, uncone.judge_curves, path)


def test_what_is_not_there_or_no_source(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("step,value\n")
    for source, options, message in (
        (tmp_path / "curve.csv", {}, r"did you mean 'curves.csv'"),
        (tmp_path, {}, r"results\*.json of lm-evaluation-harness, event files"),
        (3, {}, "got int"),
        ({"step": [1], "value": [1, 2]}, {}, "one length"),
        (ROWS, {"alpha": 5}, "alpha between 0 and 1, got 5"),
    ):
        refuses(message, uncone.judge_curves, source, **options)


# lm-evaluation-harness


def _harness(model: str, step: int, value: float, **more: Any) -> dict[str, Any]:
    acc = {"acc,none": value, "acc_stderr,none": 0.005}
    perplexity = {"perplexity,none": 1 / value, "perplexity_stderr,none": "N/A"}
    return {
        "results": {"lambada_openai": {"alias": "lambada_openai", **acc, **perplexity}},
        "n-shot": {"lambada_openai": 0},
        "higher_is_better": {"lambada_openai": {"acc": True, "perplexity": False}},
        "config": {"model": "hf", "model_args": f"pretrained={model},revision=step{step}"},
    } | more


def _write_results(folder: Path) -> None:
    for row in ROWS:
        path = folder / f"{row['model']}-{row['step']}" / "results_2024-01-01T00-00-00.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(_harness(f"lab/{row['model']}", int(str(row["step"])), float(str(row["value"])))))


def test_results_of_the_harness_are_curves(tmp_path: Path) -> None:
    _write_results(tmp_path)
    (tmp_path / "results_other.json").write_text("[]")
    record = uncone.judge_curves(tmp_path)
    acc = {curve.model: curve for curve in record.curves if curve.metric == "acc"}
    assert {name: curve.declined for name, curve in acc.items()} == dict(EXPECTED)
    assert (acc["a"].shots, acc["a"].decline_error is None, acc["a"].lower) == ("0", False, False)
    perplexity = [curve for curve in record.curves if curve.metric == "perplexity"]
    assert all(curve.lower and curve.logarithm for curve in perplexity)
    assert any("results_other.json has no results" in note for note in record.notes)


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ("pretrained=lab/m,revision=step40", "x"),
        ({"pretrained": "lab/m", "revision": "stage1-step40-tokens1B"}, "x"),
        ("pretrained=out/m/checkpoint-40", "x"),
        ("pretrained=lab/m", "step_40"),
        ("pretrained=lab/m", "iter40/lab__m"),
    ],
)
def test_the_step_is_that_of_the_revision_the_path_or_the_folder(tmp_path: Path, arguments: Any, folder: str) -> None:
    path = tmp_path / folder / "results.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(_harness("", 0, 0.5, config={"model_args": arguments, "num_fewshot": 5})))
    table = open_table(tmp_path)
    assert set(table.columns["step"]) == {40}
    assert set(table.columns["model"]) == {"m"}


def test_results_of_the_old_form_and_without_steps(tmp_path: Path) -> None:
    config = {"model_args": "pretrained=m,revision=step9", "num_fewshot": 5}
    old = {"results": {"piqa": {"acc": 0.6, "acc_stderr": 0.01}}, "config": config}
    (tmp_path / "results.json").write_text(json.dumps(old))
    columns = open_table(tmp_path / "results.json").columns
    row = {"model": "m", "step": 9, "task": "piqa", "metric": "acc", "value": 0.6, "stderr": 0.01, "shots": "5"}
    assert {name: list(cells) for name, cells in columns.items()} == {name: [cell] for name, cell in row.items()}
    (tmp_path / "results.json").write_text(json.dumps(_harness("m", 1, 0.5, config={})))
    refuses("names no step", open_table, tmp_path)


# trainer_state.json


def test_the_losses_of_a_trainer_are_curves(tmp_path: Path) -> None:
    steps, beside = range(1, 41), {"learning_rate": 1e-3, "grad_norm": 1.0}
    history = [{"epoch": s / 100, "step": s, "loss": 3 - s / 100, **beside} for s in steps]
    beside = {"eval_runtime": 2.0, "eval_samples_per_second": 9.0}
    history += [{"step": s, "eval_loss": 3 + 0.01 * s, **beside} for s in steps]
    for upto in (20, 80):
        folder = tmp_path / f"checkpoint-{upto}"
        folder.mkdir()
        state = {"global_step": upto, "train_batch_size": 8, "log_history": history[:upto]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    record = uncone.judge_curves(tmp_path)
    found = [(c.task, c.metric, c.checkpoints, c.declined) for c in record.curves]
    assert found == [("train", "loss", 40, False), ("eval", "loss", 40, True)]
    assert record.curves[0].settings == {"batch_size": "8"}
    assert record.curves[0].model == tmp_path.name
    assert uncone.judge_curves(folder / "trainer_state.json").curves[0].declined is not None
    (folder / "trainer_state.json").write_text('{"log_history": [{"step": 1}]}')
    refuses("expected losses", uncone.judge_curves, folder)


QUALITY = ("train/loss", "eval/loss", "eval/accuracy")
"""What a Trainer logs: those are measures of quality, and the others fall at the end as schedules and gauges do."""
LOGGED = ("train/learning_rate", "train/epoch", "train/loss_scale", "eval/runtime", "eval/samples_per_second")
LOGGED += ("train/uncone/isoscore", "train/uncone/cross_entropy", "eval/tokens")


def _logged(tmp_path: Path, kind: str) -> Path:
    """Every series rises and then falls by 100 times its jitter; the sum at the end has one value."""
    fall = {s: 1 - 0.5 * max(0, s - 20) / 20 - math.exp(-s / 3) + 5e-3 * (s % 3) for s in range(1, 41)}
    if kind == "events":
        from tests.saturation.test_tensorboard import _event

        each = [_event(tag, s, value) for tag in (*QUALITY, *LOGGED) for s, value in fall.items()]
        (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(each) + _event("train/train_loss", 40, 2.0))
        return tmp_path
    names = {tag: tag.replace("eval/", "eval_").removeprefix("train/") for tag in (*QUALITY, *LOGGED)}
    history = [{"step": s} | dict.fromkeys(names.values(), value) for s, value in fall.items()]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [*history, {"step": 40, "train_loss": 2.0}]}))
    return path


@pytest.mark.parametrize("kind", ["events", "trainer"])
def test_only_measures_of_quality_are_judged_of_what_a_training_logged(tmp_path: Path, kind: str) -> None:
    source = _logged(tmp_path, kind)
    record = uncone.judge_curves(source)
    assert {f"{curve.task}/{curve.metric}" for curve in record.curves} == set(QUALITY)
    assert [curve.metric for curve in record.curves if curve.declined] == ["accuracy"]
    assert "We assumed" not in record.verdict
    (note,) = [note for note in record.notes if note.startswith("Not judged")]
    assert set(note.partition("): ")[2][:-1].split(", ")) == {*LOGGED, "train/train_loss"}
    (curve,) = uncone.judge_curves(source, metric=["train/learning_rate"]).curves
    assert (curve.declined, curve.metric.rpartition("/")[2]) == (True, "learning_rate")
    (curve,) = uncone.judge_curves(source, metric=["loss", "tokens"], lower=["tokens"], higher=["eval/loss"]).curves[
        1:2
    ]
    assert (curve.task, curve.lower, curve.declined) == ("eval", False, True)
    refuses("did you mean 'eval/accuracy'", uncone.judge_curves, source, metric=["eval/acuracy"])


def test_a_log_without_any_measure_of_quality_is_refused_with_its_names(tmp_path: Path) -> None:
    history = [{"step": s, "learning_rate": 1 / s} for s in range(1, 30)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history}))
    refuses(r"measures of quality in .*, got train/learning_rate: name a metric", uncone.judge_curves, path)


def test_metrics_of_a_table_are_chosen() -> None:
    rows = [*_falling(metric="acc", task="a"), *_falling(metric="glory", task="b")]
    assert [curve.metric for curve in uncone.judge_curves(rows).curves] == ["acc", "glory"]
    for name in ("glory", "b", "b/glory"):
        record = uncone.judge_curves(rows, metric=[name])
        assert [curve.metric for curve in record.curves] == ["glory"]
        assert "Not judged, because no chosen metric names them: a/acc." in record.notes


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1))
def test_damaged_files_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    originals = {
        "events.out.tfevents.1": events(("simple", "packed", "raw")[seed % 3])[-700:],
        "t.jsonl": json.dumps(ROWS[0]).encode() * 3,
        "results.json": json.dumps(_harness("m", 1, 0.5)).encode(),
        "trainer_state.json": b'{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]}',
        "t.csv": _text(",").encode()[:600],
    }
    name = list(originals)[seed % len(originals)]
    content = bytearray(originals[name])
    for _ in range(random.integers(1, 6)):
        content[random.integers(len(content))] = random.integers(256)
    path = tmp_path / name
    path.write_bytes(content[: random.integers(1, len(content) + 1)])
    try:
        record = uncone.judge_curves(path)
    except InputError:
        return
    assert CurveVerdicts.from_json(record.to_json()) == record
