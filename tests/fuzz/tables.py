"""Tables of numbers: curves, results, logs, runs, judgements, pairs; each read again by the standard library."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.report.curves_example import make_rows
from tests.saturation.test_tensorboard import events
from uncone import judge_curves, report
from uncone.evaluation.pairs import read_pairs
from uncone.saturation.checkpoints.trace import Place, losses_of
from uncone.saturation.law.fit_scaling_law import _runs
from uncone.saturation.tables.cells import number_of
from uncone.saturation.tables.sources import open_table
from uncone.saturation.tables.trainer_state import NAME

Add = Callable[..., None]
Compare = Callable[[], None]


class TableError(Exception):
    """A table was read as another than it is."""


def add_tables(add: Add) -> None:
    rows = [row for row in make_rows() if row["model"] == make_rows()[0]["model"]][:16]
    names = list(rows[0])
    for name, mark in (("c.csv", ","), ("c.tsv", "\t"), ("d.csv", ";")):
        lines = [mark.join(names), *(mark.join(str(row[key]) for key in names) for row in rows)]
        add("table", name, lambda path, lines=lines: path.write_text("\n".join(lines) + "\n"))
    lines = [json.dumps(row) for row in rows]
    add("table", "c.jsonl", lambda path: path.write_text("\n".join(lines) + "\n"))
    add("table", "c.json", lambda path: path.write_text(json.dumps(rows)))
    add("table", "c.parquet", lambda path: _parquet(path, rows))
    add("results", "", _results)
    history = [{"step": 10 * i, "loss": 3.0 + 1 / (i + 1), "eval_loss": 3.5 + i / 99} for i in range(14)]
    state = {"global_step": 140, "train_batch_size": 8, "log_history": history}
    add("trainer state", NAME, lambda path: path.write_text(json.dumps(state)))
    for form in ("simple", "packed", "double"):
        add("events", "events.out.tfevents.1", lambda path, form=form: path.write_bytes(events(form)[:1500]))
    runs = [(f"m{i}", 10**8 * 2**i, 10**9 * 3**j, 2 + 1 / (i + j + 1)) for i in range(3) for j in range(3)]
    text = "".join(",".join(map(str, run)) + "\n" for run in [("model", "n", "t", "loss"), *runs])
    add("runs", "runs.csv", lambda path: path.write_text(text))
    losses = "step,loss\n" + "".join(f"{100 * i},{3 + 1 / (i + 1)}\n" for i in range(12))
    add("losses", "loss.csv", lambda path: path.write_text(losses))
    words = [("a cat", "the dog", 3.5), ("x", "y", 0.0), ("one", "two, three", 4.25), ("left", "right", 1.0)]
    pairs = "".join("\t".join(map(str, one)) + "\n" for one in [("sentence1", "sentence2", "score"), *words])
    add("text pairs", "p.tsv", lambda path: path.write_text(pairs))


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def _results(folder: Path) -> None:
    for step in range(6):
        at = folder / f"step{100 * step}"
        at.mkdir()
        found = {"alias": "t", "acc,none": 0.3 + step / 50, "acc_stderr,none": 0.005, "ppl,none": 9.0 - step}
        content = {"results": {"t": found}, "n-shot": {"t": 0}, "higher_is_better": {"t": {"acc": True, "ppl": False}}}
        content["config"] = {"model_args": f"pretrained=lab/m,revision=step{100 * step}"}
        (at / "results_1.json").write_text(json.dumps(content))


def use_curves(path: Path) -> Compare:
    """Read, judged, and drawn; the cells are those of the standard library's reader."""
    table = open_table(path)
    record = judge_curves(path)
    type(record).from_json(record.to_json())
    report.to_html(record)
    report.to_markdown(record)

    def compare() -> None:
        expected = _cells(path)
        if expected is None:
            return
        for name, cells in table.columns.items():
            found = [number_of(cell) for cell in cells]
            if not np.array_equal(_numbers(found), _numbers(map(_number, expected[name])), equal_nan=True):
                raise TableError(f"the column {name[:40]!r} is another")

    return compare


def _number(cell: Any) -> float | None:
    if cell is None:
        return None
    try:
        return float(cell)
    except OverflowError:  # a whole number of hundreds of digits, which is out of range as 1e400 is
        return float("inf") if cell > 0 else float("-inf")
    except (TypeError, ValueError):
        return None


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    return np.array([float("nan") if one is None else one for one in values], np.float64)


def _cells(path: Path) -> dict[str, list[Any]] | None:
    if path.suffix in (".jsonl", ".json"):
        text = path.read_text(encoding="utf-8-sig")
        texts = [text] if path.suffix == ".json" else [line for line in text.split("\n") if line.strip()]
        rows = [json.loads(one) for one in texts]
        rows = rows[0] if path.suffix == ".json" else rows
        if not isinstance(rows, list):  # a log of a trainer
            return None
        return {name: [row.get(name) for row in rows] for row in rows for name in row}
    if path.suffix not in (".csv", ".tsv"):
        return None
    with open(path, encoding="utf-8-sig", newline="") as file:
        text = file.read()
    mark = max(",", "\t", ";", key=text.split("\n", 1)[0].count)
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row]
    return {name.strip(): [row[i] for row in rows] for i, name in enumerate(header)}


def use_runs(path: Path) -> None:
    _, models, *numbers = _runs(path, None)
    if any(len(one) != len(models) or not (np.isfinite(one).all() and (one > 0).all()) for one in numbers):
        raise TableError("runs whose numbers are not above 0")


def use_losses(path: Path) -> None:
    pairs, _ = losses_of(path, [Place(path.parent, 0)])
    if pairs != sorted(pairs) or not np.isfinite(np.array(pairs)).all():
        raise TableError("losses that are not finite, or out of order")


def use_pairs(path: Path) -> None:
    found = read_pairs(path)
    if len(found.pairs) != len(found.gold) or not np.isfinite(found.gold).all():
        raise TableError("pairs without two texts and a finite score")
