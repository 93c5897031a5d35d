"""A repair of many files: each gets a file of its name, and together they are the repair of the whole."""

import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from uncone.engines.processes import Processes
from uncone.errors import InputError, UnconeError
from uncone.rows.parts import Task
from uncone.transforms import AllButTheTop

SIZES, D = [400, 380, 500, 7], 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for k, rows in enumerate(SIZES):
        np.save(tmp_path / f"in/{k}.npy", np.random.default_rng(k).normal(0.5, 1, (rows, D)).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize("workers", [None, 2])
def test_shards_are_repaired_as_one_matrix_is(folder: Path, workers: int | None) -> None:
    found = uncone.repair(f"{folder}/in/*.npy", folder / "out", method="all_but_the_top_2", workers=workers)
    whole = np.concatenate([np.load(folder / f"in/{k}.npy") for k in range(len(SIZES))])
    expected = AllButTheTop(n_components=2).fit(whole).transform(whole)
    written = [np.load(folder / f"out/{k}.npy") for k in range(len(SIZES))]
    assert [len(x) for x in written] == SIZES
    assert np.allclose(np.concatenate(written), expected, atol=1e-5)
    assert (found.n, found.d, found.k) == (len(whole), D, D)
    assert found.out == "out" or found.out.endswith("/out")


def test_workers_change_no_byte_of_what_is_written(folder: Path) -> None:
    for name, workers in (("one", None), ("two", 2)):
        uncone.repair(
            f"{folder}/in", folder / name, method="whiten", workers=workers, save=folder / f"{name}.safetensors"
        )
    for k in range(len(SIZES)):
        assert (folder / f"one/{k}.npy").read_bytes() == (folder / f"two/{k}.npy").read_bytes()
    assert (folder / "one.safetensors").read_bytes() == (folder / "two.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [None, 2])
def test_a_disk_that_fills_leaves_whole_shards(folder: Path, workers: int | None) -> None:
    """A limit on the size of a file, which processes inherit, stands for the disk: shards 0, 1 and 3 are below it."""
    np.save(folder / "in/2.npy", np.random.default_rng(2).normal(0.5, 1, (900, D)).astype(np.float32))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        with pytest.raises(UnconeError, match=r"2\.npy.*\d of 4 shards are written in .*out"):
            uncone.repair(f"{folder}/in/*.npy", folder / "out", method="center", workers=workers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = sorted(path.name for path in (folder / "out").iterdir())  # no worker writes any more
    assert "2.npy" not in left
    assert set(left) <= {"0.npy", "1.npy", "3.npy"}
    assert np.load(folder / "out/1.npy").shape == (SIZES[1], D)
    uncone.repair(f"{folder}/in/*.npy", folder / "out", method="center", workers=workers, overwrite=True)
    assert uncone.open_rows(folder / "out").shape == (400 + 380 + 900 + 7, D)


def test_parquet_keeps_its_other_columns(folder: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for k in range(len(SIZES)):
        x = np.load(folder / f"in/{k}.npy")
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), D)
        pq.write_table(pa.table({"v": column, "id": [f"{k}-{i}" for i in range(len(x))]}), folder / f"in/{k}.parquet")
    uncone.repair(f"{folder}/in/*.parquet", folder / "out", method="center")
    table = pq.read_table(folder / "out/2.parquet")
    assert table.column("id").to_pylist()[:2] == ["2-0", "2-1"]
    assert uncone.open_rows(folder / "out").shape == (sum(SIZES), D)


def test_files_that_are_there_and_folders_that_are_read_are_refused(folder: Path) -> None:
    spec = f"{folder}/in/*.npy"
    uncone.repair(spec, folder / "out", method="center")
    before = (folder / "out/0.npy").read_bytes()
    with pytest.raises(InputError, match=r"expected new files, got .*0\.npy and 3 more that exist"):
        uncone.repair(spec, folder / "out", method="whiten")
    assert (folder / "out/0.npy").read_bytes() == before
    uncone.repair(spec, folder / "out", method="whiten", overwrite=True)
    assert (folder / "out/0.npy").read_bytes() != before
    for out, told in (("in", "expected another"), ("in/0.npy", "expected")):
        with pytest.raises(InputError, match=told):
            uncone.repair(spec, folder / out, method="center", overwrite=True)
    (folder / "other").mkdir()
    np.save(folder / "other/0.npy", np.ones((3, D), np.float32))
    with pytest.raises(InputError, match=r"expected shards with different names .*, got 0\.npy twice"):
        uncone.repair(f"{folder}/[io][nt]*/*.npy", folder / "new", method="center")


def test_a_shard_is_not_taken_for_what_is_saved(folder: Path) -> None:
    before = (folder / "in/0.npy").read_bytes()
    with pytest.raises(InputError, match="expected"):
        uncone.repair(f"{folder}/in/*.npy", folder / "out", method="center", save=folder / "in/0.npy", overwrite=True)
    assert (folder / "in/0.npy").read_bytes() == before


def test_what_was_written_before_a_bad_shard_stays_and_is_counted(folder: Path) -> None:
    x = np.load(folder / "in/2.npy")
    uncone.repair(f"{folder}/in/*.npy", folder / "out", method="center", save=folder / "t.safetensors")
    x[5, 3] = np.nan
    np.save(folder / "in/2.npy", x)
    with pytest.raises(InputError, match=r"NaN or inf .*2 of 4 shards are written in .*new"):
        uncone.repair(f"{folder}/in/*.npy", folder / "new", load=folder / "t.safetensors")
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["0.npy", "1.npy"]


def test_an_error_comes_when_no_worker_is_at_work_any_more(folder: Path) -> None:
    """Shard 0 fails at once, while shard 1 is being written."""
    tasks = [
        Task(partial(_slow_or_bad, folder / "mark"), (part,), place)
        for place, part in enumerate(uncone.open_rows(f"{folder}/in/*.npy").parts[:2])
    ]
    engine = Processes(2)
    try:
        with pytest.raises(UnconeError, match="bad"):
            engine.fold(tasks, lambda one, _: one, lambda _: None)
        assert (folder / "mark").exists()
    finally:
        engine.close()


def _slow_or_bad(mark: Path, rows: Any, first: int) -> int:
    if first == 0:
        raise UnconeError("bad")
    time.sleep(2)
    mark.touch()
    return first
