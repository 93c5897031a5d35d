"""Saved records that were cut or edited by hand: each loads, prints and draws, or is refused with a message."""

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import run_command
from tests.every_part import KINDS
from tests.fuzz.records import examples, use_record
from tests.fuzz.trees import PATH, SPIKES, changed, get, mutant, nested, paths, resized
from tests.report.every_record import Maker
from uncone import UnconeError, calibrate
from uncone.calibration.scores.record import edge_of
from uncone.errors import InputError
from uncone.records import rebuild
from uncone.records.record import Record
from uncone.report import to_html

SMALL = ("check", "evaluation", "selection", "repair", "head edit", "token edit")


def _use(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with suppress(UnconeError):
        use_record(path)


def _fields(tree: Any) -> Iterator[PATH]:
    """One way to each field; of the items of a list the first."""
    found: dict[tuple[str, ...], PATH] = {}
    for path in paths(tree):
        found.setdefault(tuple("#" if isinstance(key, int) else key for key in path), path)
    yield from found.values()


@pytest.mark.parametrize("kind", SMALL)
def test_any_list_and_object_of_a_small_record_may_be_cut_or_grow(kind: str, tmp_path: Path) -> None:
    tree = json.loads(examples()[kind])
    ways = [damaged for path in _fields(tree) for damaged in resized(tree, path)]
    for damaged in random.Random(kind).sample(ways, min(len(ways), 120)):
        _use(json.dumps(damaged), tmp_path / "r.json")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_list_of_every_part_may_lack_its_last_item(kind: type[Record]) -> None:
    tree = json.loads(Maker((0.5, 0.25, 0.75), length=2).make(kind).to_json())
    lists = [path for path in _fields(tree) if isinstance(get(tree, path), list) and get(tree, path)]
    assert lists
    for path in lists:
        with suppress(InputError):
            record = kind.from_json(json.dumps(changed(tree, path, get(tree, path)[:-1])))
            assert str(record)
            assert record.to_rows() is not None


@pytest.mark.parametrize("kind", list(examples()))
def test_values_of_any_kind_at_any_place(kind: str, tmp_path: Path) -> None:
    tree, rng = json.loads(examples()[kind]), random.Random(kind)
    for path, spike in rng.sample([(path, spike) for path in _fields(tree) for spike in SPIKES], 40):
        _use(json.dumps(changed(tree, path, spike)), tmp_path / "r.json")
    for _ in range(10):
        _use(json.dumps(mutant(tree, rng, times=3)), tmp_path / "r.json")


@pytest.mark.parametrize("kind", list(examples()))
def test_values_nested_deeply_and_integers_of_many_digits(kind: str, tmp_path: Path) -> None:
    text = examples()[kind]
    for path in list(_fields(json.loads(text)))[1:4]:
        marked = json.dumps(changed(json.loads(text), path, "HERE"))
        deep = '{"a":' * 10_000 + "1" + "}" * 10_000
        for value in (nested(), "9" * 10_000, "-" + "9" * 400, "1e999", "NaN", "-Infinity", deep):
            _use(marked.replace('"HERE"', value), tmp_path / "r.json")


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("repair", ("before",), [], "expected the same measures before and after, got 0 before and 1 after"),
        ("repair", ("after", 0, "name"), "isoscore", "expected the same measures before and after"),
        ("head edit", ("folded_into",), [], "in folded_into, got none"),
        ("calibration", ("variance",), -1.0, "expected a variance of at least 0, got -1"),
        ("calibration", ("histogram", "low"), 2.0**63, "expected bins of rising, finite scores"),
        ("calibration", ("histogram", "width"), 1e308, "expected bins of rising, finite scores"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_record_is_loaded(
    kind: str, path: PATH, value: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_text(json.dumps(changed(json.loads(examples()[kind]), path, value)))
    with pytest.raises(InputError, match=message):
        use_record(tmp_path / "r.json")


@pytest.mark.parametrize("scale", [1e-8, 1e-5, 1.0, 1e12])
def test_bins_of_scores_of_any_size_rise(scale: float) -> None:
    x = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32) * np.float32(scale)
    found = calibrate(x, metric="inner_product")
    bins = found.histogram
    edges = [bins.edge(number) for number in range(len(bins.counts) + 1)]
    assert edges == sorted(set(edges))
    assert edges[7] == pytest.approx(bins.low + 7 * bins.width, abs=bins.width / 1000)
    assert to_html(found)
    scores = (x.astype(np.float64) @ x.T.astype(np.float64))[np.triu_indices(len(x), 1)]
    assert float((scores >= found.threshold(0.1)).mean()) == pytest.approx(0.1, abs=0.01)


def test_bins_in_any_order_are_drawn_and_edges_have_no_digits_of_the_addition(tmp_path: Path) -> None:
    assert (edge_of(-1.0, 0.001, 1234), edge_of(0.1, 0.1, 2)) == (0.234, 0.3)
    tree, path = json.loads(examples()["diagnosis"]), ("subjects", 0, "groups", "bins")
    (tmp_path / "r.json").write_text(json.dumps(changed(tree, path, get(tree, path)[::-1])))
    use_record(tmp_path / "r.json")


def test_a_record_larger_than_any_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(examples()["check"])
    monkeypatch.setattr(rebuild, "LARGEST_RECORD", 100)
    with pytest.raises(InputError, match=r"expected a record of at most 100 bytes, got \d+ in"):
        use_record(tmp_path / "r.json")


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "loop", "folder", "missing"])
@pytest.mark.parametrize(
    "command", ["report {0}", "check {0} --max x=1", "compare {0} {0}", "calibrate {1} --against {0}"]
)
def test_what_is_no_regular_file_is_refused_at_once(
    command: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    verb, *rest = (part.format(tmp_path / place, tmp_path / "x.npy") for part in command.split())
    written = ("--html", str(tmp_path / "o.html")) if verb == "report" else ("--json", str(tmp_path / "out.json"))
    for more in ((), written):
        status, _, err = run_command(verb, capsys, *rest, *more)
        assert (status, err.count("\n")) == (1, 1)
        if verb == "compare":  # it takes models and rows too, and so names what it takes
            assert err.startswith(("uncone: expected a model directory", "uncone: no file or folder"))
        else:
            assert "cannot read" in err or "leads to no file" in err
        assert "defect" not in err
