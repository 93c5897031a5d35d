"""Whatever works on shards, with however many workers and whatever dies on the way: the same bytes."""

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.edits.language_models import TEXT, add_tokenizer, drifted
from tests.engines.works import (
    asked,
    die,
    digest,
    fail,
    fail_otherwise,
    killed_once,
    killed_while_it_answers,
    layers_digest,
    layers_of,
    mark_at_the_end,
    number_of,
    pair_sum,
    pairs,
    tasks,
)
from uncone.engines import stragglers
from uncone.engines.processes import TRIES, Processes
from uncone.errors import InputError, UnconeError
from uncone.rows.parts import RUN, Fold, InThisProcess, JoinedRows, Part, Task, worked

D = 16
SIZES = [500, 331, 1, 700, 320, 9, 640, 321, 322, 323, 400]


def shard(k: int, rows: int) -> np.ndarray:
    x = np.random.default_rng(k).normal(0.4, 1, (rows, D)).astype(np.float32)
    x[: rows // 100] = 0  # zero rows, which are equal too
    return x


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shards")
    for k, rows in enumerate(SIZES):
        np.save(path / f"{k:02}.npy", shard(k, rows))
    drifted("GPT2LMHeadModel").save_pretrained(path / "model")
    add_tokenizer(path / "model")
    (path / "text.txt").write_text(TEXT * 60)
    return path


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    return np.concatenate([shard(k, rows) for k, rows in enumerate(SIZES)])


@pytest.fixture(scope="module")
def on_ray(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `on_ray.py` found, in a process of its own: where Ray is imported the command line parses otherwise."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    out = tmp_path_factory.mktemp("ray")
    run = [sys.executable, "-m", "tests.engines.on_ray", str(folder), str(out / "mark"), str(out / "found.json")]
    done = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((out / "found.json").read_text())
    return found


def test_processes_change_no_byte(folder: Path) -> None:
    here = asked(folder)
    assert asked(folder, workers=1) == here
    assert asked(folder, workers=2) == here
    assert asked(folder, workers=3, engine="processes") == here


@pytest.mark.slow
def test_ray_changes_no_byte(folder: Path, on_ray: dict[str, Any]) -> None:
    here = digest(asked(folder))
    assert on_ray["all units"] == here
    assert on_ray["one unit"] == here


def test_shards_say_what_the_whole_says(folder: Path, whole: np.ndarray) -> None:
    ours, theirs = uncone.diagnose(f"{folder}/*.npy").subjects[0], uncone.diagnose(whole).subjects[0]
    assert (ours.n, ours.d) == (theirs.n, theirs.d) == whole.shape
    for one, other in zip(ours.measurements, theirs.measurements, strict=True):
        assert one.name == other.name
        assert one.value == pytest.approx(other.value, rel=1e-5, abs=1e-7)
    assert [(odd.kind, odd.n, odd.ids) for odd in ours.odd_rows] == [
        (odd.kind, odd.n, odd.ids) for odd in theirs.odd_rows
    ]
    assert ours.norms.counts == theirs.norms.counts
    assert ours.picture.ids == theirs.picture.ids
    assert [group.n for group in ours.groups.bins] == [group.n for group in theirs.groups.bins]


@given(st.data())
def test_joined_rows_are_read_as_one_matrix(folder: Path, whole: np.ndarray, data: st.DataObject) -> None:
    rows = uncone.open_rows(folder)
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start, len(whole)))
    assert np.array_equal(rows.read(start, stop), whole[start:stop])
    chosen = np.unique(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20))).astype(np.int64)
    if len(chosen):
        assert np.array_equal(rows.take(chosen), whole[chosen])


@given(st.integers(1, 70))
def test_results_are_merged_in_order_in_a_shape_of_their_number(n: int) -> None:
    fold, plain = Fold[str](lambda one, other: f"({one}{other})"), Fold[list[int]](lambda one, other: one + other)
    for i in range(n):
        fold.add("x")
        plain.add([i])
    assert plain.result() == list(range(n))
    told = fold.result()
    assert told.count("x") == n
    if n <= RUN:  # a run adds one after the other
        assert told.startswith("(" * (n - 1))


def test_small_shards_are_worked_on_together(folder: Path) -> None:
    found: list[tuple[int, int]] = worked(uncone.open_rows(folder).parts, pairs, lambda one, other: one + other)
    assert sum(rows for _, rows in found) == sum(SIZES)
    assert all(rows >= 20 * D for _, rows in found[:-1])
    assert [first for first, _ in found] == np.cumsum([0, *(rows for _, rows in found)])[:-1].tolist()


@pytest.mark.parametrize("killed", [killed_once, killed_while_it_answers])
def test_a_process_that_is_killed_costs_its_shard_once_more(
    folder: Path, tmp_path: Path, killed: Callable[..., list[int]]
) -> None:
    told, engine = list[int](), Processes(2)
    work = partial(killed, str(tmp_path / "mark"), 4)
    try:
        found = engine.fold(tasks(folder, work), lambda one, other: one + other, told.append)
    finally:
        engine.close()
    assert found == list(range(len(SIZES)))
    assert told == np.cumsum(SIZES).tolist()


def test_a_process_may_end_while_the_caller_has_a_result_in_hand(folder: Path) -> None:
    engine, told = Processes(2), list[int]()

    def kill_one(rows: int) -> None:
        told.append(rows)
        if len(told) in {2, 5}:
            process = engine._processes[0].process
            process.kill()
            process.join()

    try:
        found = engine.fold(tasks(folder, partial(number_of, 0.05)), pair_sum, kill_one)
    finally:
        engine.close()
    assert found == list(range(len(SIZES)))
    assert told == np.cumsum(SIZES).tolist()


def test_a_process_that_always_dies_is_named(folder: Path) -> None:
    engine = Processes(2)
    expected = rf"expected a process to read .*05\.npy, but the process ended {TRIES} times.*5 units of work before it were done"
    try:
        with pytest.raises(UnconeError, match=expected):
            engine.fold(tasks(folder, partial(die, 5)), lambda one, other: one + other, lambda _: None)
    finally:
        engine.close()


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_costs_its_shard_once_more(on_ray: dict[str, Any]) -> None:
    assert on_ray["killed once"] == list(range(len(SIZES)))


@pytest.mark.slow
def test_errors_of_ray_name_the_shard(on_ray: dict[str, Any]) -> None:
    assert "nothing in 5" in on_ray["failed"]
    assert "05.npy, but it ended 4 times" in on_ray["killed always"]


def test_an_error_in_a_process_is_that_of_the_shard(folder: Path) -> None:
    engine = Processes(2)
    try:
        with pytest.raises(InputError, match="nothing in 5"):
            engine.fold(tasks(folder, partial(fail, 5)), pair_sum, lambda _: None)
    finally:
        engine.close()


def test_an_error_that_does_not_travel_is_still_said(folder: Path) -> None:
    engine = Processes(2)
    try:
        for _ in range(2):  # and the processes go on
            with pytest.raises(UnconeError, match=r"^TwoError: this and that\n.*Traceback"):
                engine.fold(tasks(folder, fail_otherwise)[:2], pair_sum, lambda _: None)
        assert engine.fold(tasks(folder, partial(number_of, 0)), pair_sum, lambda _: None) == list(range(len(SIZES)))
    finally:
        engine.close()


def test_shards_that_differ_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    for name, other in {"b": np.ones((3, 5), np.float32), "c": np.ones((3, 4))}.items():
        np.save(tmp_path / f"{name}.npy", other)
        told = rf"got 4 columns of float32 in .*a\.npy and {other.shape[1]} columns of {other.dtype} in .*{name}\.npy"
        with pytest.raises(InputError, match=told):
            uncone.open_rows(f"{tmp_path}/*.npy")
        (tmp_path / f"{name}.npy").unlink()


def test_a_glob_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected files that '.*' matches, got none: check the folder, and quote"):
        uncone.open_rows(f"{tmp_path}/*.npy")
    with pytest.raises(InputError, match="expected a store that lists files"):
        uncone.open_rows("https://host/x/*.npy")


@pytest.mark.parametrize("workers", [None, 2])
def test_a_damaged_shard_is_left_out_where_that_is_asked_for(tmp_path: Path, workers: int | None) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for k in range(4):
        table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(shard(k, 400).ravel()), D)})
        pq.write_table(
            table, tmp_path / f"{k}.parquet", compression="none", use_dictionary=False, write_page_checksum=True
        )
    content = bytearray((tmp_path / "2.parquet").read_bytes())
    content[4:60] = bytes(56)  # the header of a page: the footer is as it was
    (tmp_path / "2.parquet").write_bytes(content)
    (tmp_path / "1.parquet").write_bytes(b"PAR1")
    spec = f"{tmp_path}/*.parquet"
    with pytest.raises(InputError, match=r"1\.parquet"):
        uncone.diagnose(spec, workers=workers)
    found = uncone.diagnose(spec, workers=workers, skip_damaged=True)
    assert found.subjects[0].n == 800
    (note,) = (note for note in found.notes if "left out" in note)
    assert note.startswith("2 of 4 shards were left out because they cannot be read: ")
    assert "1.parquet" in note
    assert "2.parquet" in note
    with pytest.raises(InputError, match=r"expected a readable shard of .*, got none of 1"):
        uncone.diagnose(f"{tmp_path}/1*.parquet", skip_damaged=True)


def test_rows_that_are_not_finite_are_left_out_of_shards(folder: Path, whole: np.ndarray, tmp_path: Path) -> None:
    bad, n, x = {0: [3, 499], 3: [0], 5: list(range(9)), 7: [100, 320]}, 0, whole.copy()
    for k, rows in enumerate(SIZES):
        own = shard(k, rows)
        own[bad.get(k, [])] = np.nan
        np.save(tmp_path / f"{k:02}.npy", own)
        x[n : n + rows] = own
        n += rows
    kept = np.flatnonzero(np.isfinite(x).all(1))
    rows = uncone.open_rows(f"{tmp_path}/*.npy", skip_nonfinite=True)
    assert np.array_equal(rows.ids, kept)
    assert rows.left_out == tuple(np.setdiff1d(np.arange(len(x)), kept).tolist())
    assert np.array_equal(rows.read(0, len(kept)), x[kept])
    assert np.array_equal(rows.take(np.array([2, 3, 700])), x[kept][[2, 3, 700]])
    one, two = (
        uncone.diagnose(f"{tmp_path}/*.npy", skip_nonfinite=True, workers=workers).to_json() for workers in (None, 2)
    )
    assert one == two
    theirs = uncone.diagnose(x, skip_nonfinite=True).subjects[0]
    ours = uncone.diagnose(f"{tmp_path}/*.npy", skip_nonfinite=True).subjects[0]
    assert (ours.n, ours.left_out) == (theirs.n, theirs.left_out) == (len(kept), 14)
    assert [(odd.kind, odd.n, odd.ids) for odd in ours.odd_rows] == [(o.kind, o.n, o.ids) for o in theirs.odd_rows]
    assert [group.n for group in ours.groups.bins] == [group.n for group in theirs.groups.bins]
    assert ours.picture.ids == theirs.picture.ids
    with pytest.raises(InputError, match="got 1 shards without finite rows"):
        uncone.repair(f"{tmp_path}/*.npy", tmp_path / "out", method="center", skip_nonfinite=True, workers=2)
    (tmp_path / "05.npy").unlink()
    uncone.repair(f"{tmp_path}/*.npy", tmp_path / "out", method="center", skip_nonfinite=True, workers=2)
    again = uncone.open_rows(tmp_path / "out")
    assert again.shape[0] == len(kept)
    centered = np.where(x[kept].any(1, keepdims=True), x[kept] - x[kept].mean(0, dtype=np.float64), 0)
    np.testing.assert_allclose(again.read(0, len(kept)), centered, atol=1e-6)


def test_a_lance_dataset_is_read_by_fragments(tmp_path: Path, whole: np.ndarray) -> None:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    for k, rows in enumerate(SIZES):
        table = pa.table(
            {"v": pa.FixedSizeListArray.from_arrays(pa.array(shard(k, rows).ravel()), D), "n": range(rows)}
        )
        lance.write_dataset(table, tmp_path / "x.lance", mode="append" if k else "create")
    rows = uncone.open_rows(f"{tmp_path}/x.lance#v")
    assert np.array_equal(rows.read(0, len(whole)), whole)
    assert len(rows.parts) == len(SIZES)
    assert np.array_equal(rows.parts[3].open().read(5, 9), shard(3, SIZES[3])[5:9])
    one, two = (uncone.diagnose(f"{tmp_path}/x.lance", workers=workers).to_json() for workers in (None, 2))
    assert one == two
    lance.dataset(tmp_path / "x.lance").delete("n < 2")
    assert uncone.open_rows(f"{tmp_path}/x.lance#v").shape == (len(whole) - 2 * len(SIZES) + 1, D)
    for spec, told in {"x.lance#n": "expected fixed-size lists", "x.lance#w": "no column 'w'"}.items():
        with pytest.raises(InputError, match=told):
            uncone.open_rows(f"{tmp_path}/{spec}")


@pytest.mark.parametrize(
    ("options", "told"),
    [({"workers": 0}, "expected workers"), ({"address": "ray://x"}, "expected --engine ray with --address")],
)
def test_options_that_cannot_be_are_refused(folder: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        uncone.diagnose(f"{folder}/*.npy", **options)


def test_shards_are_compared_by_workers(folder: Path, tmp_path: Path) -> None:
    spec = f"{folder}/*.npy"
    uncone.diagnose(spec).save(tmp_path / "saved.json")
    for other in (spec, tmp_path / "saved.json"):
        one, two = (uncone.compare([spec, other], workers=workers).to_json() for workers in (None, 2))
        assert one == two
    with pytest.raises(InputError, match="expected shards with --workers or --engine"):
        uncone.compare([spec, folder / "00.npy"], workers=2)


def test_one_file_has_no_shards(folder: Path) -> None:
    with pytest.raises(InputError, match=r"expected shards with --workers or --engine, got .*00\.npy"):
        uncone.diagnose(folder / "00.npy", workers=2)
    with pytest.raises(InputError, match="expected shards with --skip-damaged"):
        uncone.diagnose(folder / "00.npy", skip_damaged=True)


def test_moments_come_back_from_bytes(folder: Path) -> None:
    made = uncone.Moments.of(uncone.open_rows(folder))
    again = uncone.Moments.from_bytes(made.to_bytes())
    assert again.to_bytes() == made.to_bytes()
    for content in (made.to_bytes()[:-1], b"", made.to_bytes().replace(b"moments/2", b"moments/9")):
        with pytest.raises(InputError, match="expected moments"):
            uncone.Moments.from_bytes(content)


def test_a_text_is_read_by_processes_as_by_one(folder: Path, tmp_path: Path) -> None:
    model, text = folder / "model", folder / "text.txt"
    one, plain = layers_of(model, text, InThisProcess()), layers_of(model, text, None)
    assert (one.tokens, one.sequences) == (plain.tokens, plain.sequences)
    assert one.tokens > 3 * 20 * max(m.d for m in one.moments)  # of several units
    for a, b in zip(one.moments, plain.moments, strict=True):
        np.testing.assert_allclose(a.mean(), b.mean(), atol=1e-6)
        np.testing.assert_allclose(a.covariance(), b.covariance(), atol=1e-6)
    for a, b in zip(one.sample.layers, plain.sample.layers, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(one.sample.segments, plain.sample.segments)
    np.testing.assert_allclose(one.intervals, plain.intervals, atol=1e-6)

    engine, stopped = Processes(2), list[int]()

    def kill_one(step: str, done: int, of: int) -> None:
        if not stopped:
            engine._processes[0].process.kill()
            stopped.append(done)
        elif len(stopped) < 3:
            stopped.append(done)
        else:
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            layers_of(model, text, engine, progress=kill_one, resume=tmp_path / "sums")
        assert (tmp_path / "sums").exists()
        resumed = layers_of(model, text, engine, resume=tmp_path / "sums")
    finally:
        engine.close()
    assert layers_digest(resumed) == layers_digest(one)


@pytest.mark.slow
def test_a_text_is_read_by_actors_of_ray_as_by_one_process(folder: Path, on_ray: dict[str, Any]) -> None:
    one = layers_digest(layers_of(folder / "model", folder / "text.txt", InThisProcess()))
    assert on_ray["text, one killed"] == on_ray["text, node lost"] == one


@pytest.mark.slow
def test_a_node_that_is_lost_costs_time_alone(on_ray: dict[str, Any]) -> None:
    assert on_ray["node lost"] == list(range(len(SIZES)))


@pytest.mark.slow
def test_an_actor_has_a_gpu_of_its_own(on_ray: dict[str, Any]) -> None:
    assert sorted(on_ray["gpus"]) == ["0", "0", "1", "1"]


def test_a_gpu_is_for_one_process(folder: Path) -> None:
    with pytest.raises(InputError, match="expected --engine ray with --device cuda"):
        next(Processes(2).each(lambda: len, [], on_gpu=True))


def test_a_straggler_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stragglers, "PATIENCE", 0.1)
    slow = [
        Task(partial(number_of, 3.0 if k == 1 else 0.01), (part,), k)
        for k, part in enumerate(uncone.open_rows(folder).parts[:3])
    ]
    engine = Processes(2)
    try:
        engine.fold(slow[::2], pair_sum, lambda _: None)  # the start of processes counts
        with pytest.warns(
            UserWarning,
            match=r"01\.npy has taken [123] s so far\. The longest before it took \d\.\d+ s\. uncone is waiting for it",
        ):
            assert engine.fold(slow, pair_sum, lambda _: None) == [0, 1, 2]
    finally:
        engine.close()


def test_a_long_run_is_interrupted_at_once(folder: Path, tmp_path: Path) -> None:
    """A signal ends the wait for processes, and they put away what they had begun."""

    def later(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, later)
    engine = Processes(2)
    try:
        engine.fold(tasks(folder, partial(number_of, 0))[:2], pair_sum, lambda _: None)  # so that both have begun
        processes = [one.process for one in engine._processes]
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            engine.fold(tasks(folder, partial(mark_at_the_end, str(tmp_path))), pair_sum, lambda _: None)
    finally:
        signal.signal(signal.SIGALRM, before)
        engine.close()
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0 begun", "0 ended", "1 begun", "1 ended"]


def test_a_part_is_opened_where_it_is_worked_on(folder: Path) -> None:
    part = Part(partial(np.zeros, 3), "never", (7, D), "float32")
    rows = JoinedRows([part, part], "joined", InThisProcess())
    assert rows.shape == (14, D)
