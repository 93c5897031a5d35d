"""A kill while writing leaves the old file or the new one."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rows.reading import refuses
from uncone import InputError, atomic


def _write_half(target: Path) -> None:
    with atomic.replacing(target) as handle:
        handle.write(b"new" * 1000)
        handle.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def _write_half_a_folder(target: Path) -> None:
    with atomic.new_directory(target) as folder:
        (folder / "a").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_the_middle(write: Callable[[Path], None], target: Path) -> None:
    """Let a fork of this process write, which a kill ends."""
    if not (child := os.fork()):
        try:
            write(target)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


KILLED = """
import os, signal, sys, time
import torch
import uncone.report.html, uncone.diagnosis.diagnose
from uncone.cli import main
torch.set_num_threads(1)  # a fork has none of its parent's other threads

def diagnose():
    if pid := os.fork():
        return pid
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        main(["diagnose", sys.argv[1], "--json", sys.argv[2], "--html", sys.argv[3]])
        os._exit(0)
    finally:
        os._exit(1)

def files():
    return [open(name).read() for name in sys.argv[2:]]

for _ in range(2):  # the first may compile modules
    began = time.monotonic()
    assert os.waitpid(diagnose(), 0)[1] == 0
whole, old, killed = time.monotonic() - began, files(), 0
for i in range(20):
    pid = diagnose()
    time.sleep(whole * (0.5 + 0.03 * i))
    os.kill(pid, signal.SIGKILL)
    was_killed = os.waitpid(pid, 0)[1] == signal.SIGKILL
    killed += was_killed
    whole *= 1 if was_killed else 0.9  # it had ended: the machine was busier before
    assert files() == old
print(killed)
"""


@pytest.mark.slow
def test_kill_9_at_any_time_of_a_diagnosis_leaves_whole_files(tmp_path: Path) -> None:
    """The command is killed at many times around its writing; each file is whole afterwards, or as it was."""
    import numpy as np

    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((20_000, 64), dtype=np.float32))
    command = [sys.executable, "-c", KILLED, *(str(tmp_path / name) for name in ("x.npy", "d.json", "d.html"))]
    assert int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) > 5


def test_an_error_while_writing_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "d.json"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.replacing(target) as handle:
        handle.write(b"new" * (1 // 0))
    assert target.read_text() == "old"
    with pytest.raises(ZeroDivisionError), atomic.new_directory(tmp_path / "out") as folder:
        (folder / str(1 // 0)).touch()
    assert [p.name for p in tmp_path.iterdir()] == ["d.json"]


def test_a_full_disk_is_said_with_the_file_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    told = r"cannot write .*x.json: File too large: nothing was written; free some space"
    try:
        refuses(told, atomic.write_text, tmp_path / "x.json", "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_what_is_written_is_there(tmp_path: Path) -> None:
    for name in ("a", "n" * 250):
        atomic.write_text(tmp_path / name, "ä")
        assert (tmp_path / name).read_bytes() == "ä".encode()
    (tmp_path / "a").chmod(0o600)
    atomic.write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    with atomic.new_directory(tmp_path / "out") as folder:
        (folder / "x").write_text("1")
    assert (tmp_path / "out" / "x").read_text() == "1"


def test_targets_that_cannot_be(tmp_path: Path) -> None:
    refuses("expected a file to write, got the folder", atomic.write_text, tmp_path, "x")
    refuses(r"cannot write .*: give a folder that exists", atomic.write_text, tmp_path / "no" / "x", "x")
    with pytest.raises(InputError, match="expected a new folder, got"), atomic.new_directory(tmp_path):
        pass
    with pytest.raises(InputError, match="cannot create"), atomic.new_directory(tmp_path / "no" / "x"):
        pass


def test_links_lead_to_the_file_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        refuses("a device or a pipe", atomic.write_text, path, "x")


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "link").symlink_to(model)
    for out, message in (
        (model, "which exists"),
        (model / "o", "expected a place outside the model"),
        (tmp_path / "no" / "o", "there is no folder"),
        (tmp_path / "link" / "o", "expected a place outside the model"),
    ):
        refuses(message, atomic.creatable, out, outside=model)
    assert atomic.creatable(tmp_path / "m2", outside=model) == tmp_path / "m2"
    monkeypatch.setattr(
        "os.access", lambda *_: False
    )  # as on a file system that is read-only; root may write elsewhere
    for verb, check in (("create", atomic.creatable), ("write", atomic.writable)):
        refuses(rf"cannot {verb} .*o: the folder .* is read-only: give a writable folder", check, tmp_path / "o")


def test_kill_9_leaves_the_old_and_the_next_writer_removes_the_rest(tmp_path: Path) -> None:
    target, folder = tmp_path / "d.json", tmp_path / "out"
    target.write_text("old")
    _kill_in_the_middle(_write_half, target)
    _kill_in_the_middle(_write_half_a_folder, folder)
    assert target.read_text() == "old"
    assert not folder.exists()
    assert len(list(tmp_path.iterdir())) == 3
    atomic.write_text(target, "new")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".tmp"]  # the folder's is not this target's
    with atomic.new_directory(folder):
        pass
    assert sorted(tmp_path.iterdir()) == [target, folder]


def test_what_another_writer_of_the_same_target_is_writing_stays(tmp_path: Path) -> None:
    target = tmp_path / "d.json"
    with atomic.replacing(target) as slow:
        slow.write(b"slow")
        atomic.write_text(target, "quick")
        assert target.read_text() == "quick"
    assert target.read_text() == "slow"
    with atomic.new_directory(tmp_path / "out") as folder:
        (folder / "a").touch()
        atomic.write_text(tmp_path / "o", "other")
        with pytest.raises(ZeroDivisionError), atomic.new_directory(tmp_path / "out"):
            raise ZeroDivisionError
        assert (folder / "a").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.json", "o", "out"]


def test_without_locks_files_are_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "fcntl", None)
    _kill_in_the_middle(_write_half, tmp_path / "d.json")
    atomic.write_text(tmp_path / "d.json", "new")
    assert (tmp_path / "d.json").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_many_writers_of_one_target_get_in_nobodys_way(tmp_path: Path) -> None:
    """Threads that write the same file at once: each ends, and the file is one of theirs."""
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(atomic.write_text, tmp_path / "x", str(i) * 1000) for i in range(200)]:
            done.result()
    assert len(set((tmp_path / "x").read_text())) <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
