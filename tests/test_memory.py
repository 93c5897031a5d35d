from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.command import run_command
from uncone import InputError, Moments, tensors
from uncone.memory import (
    RECYCLED_BYTES,
    _freed,
    check_memory,
    clear_recycled,
    free_bytes,
    recycled,
    uninitialised,
    zeros,
)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 7), (3, 1000, 1000)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint16])
def test_memory_is_writable_and_begins_on_a_cache_line(shape: tuple[int, ...], dtype: type) -> None:
    found = [uninitialised(shape, dtype) for _ in range(3)]
    for i, memory in enumerate(found):
        assert (memory.shape, memory.dtype, memory.flags.c_contiguous) == (shape, dtype, True)
        assert memory.size == 0 or memory.ctypes.data % 64 == 0
        memory.fill(i)
    assert all((memory == i).all() for i, memory in enumerate(found))
    assert not zeros(shape, dtype).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_a_tensor_takes_the_same_memory(dtype: torch.dtype) -> None:
    for shape in ((0, 3), (), (5, 7), (1000, 3000)):
        memory = tensors.empty(shape, dtype)
        assert (memory.shape, memory.dtype, memory.is_contiguous()) == (shape, dtype, True)
        assert not tensors.zeros(shape, dtype).any()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident memory of Linux")
def test_large_memory_goes_back_to_the_system_when_it_is_freed() -> None:
    def resident() -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    size = 64 * 2**20
    before = resident()
    memory = uninitialised((size,), np.uint8)
    memory.fill(1)
    part = memory[: size // 2]
    assert resident() - before > 0.9 * size
    del memory
    assert bool((part == 1).all()), "a view keeps the memory"
    del part
    assert resident() - before < 0.1 * size


def test_large_memory_is_zero_though_memory_before_it_was_not() -> None:
    for size in (1000, 5 * 2**20 + 3):
        memory = uninitialised((size,), np.uint8)
        memory.fill(1)
        del memory
        assert not zeros((size,), np.uint8).any()


def test_freed_memory_is_used_again_and_never_twice_at_once() -> None:
    clear_recycled()
    size = 5 * 2**20
    first, second = recycled((size,), np.uint8), recycled((size,), np.uint8)
    first.fill(1)
    second.fill(2)
    places = {first.ctypes.data, second.ctypes.data}
    assert len(places) == 2
    view = first[10:].reshape(-1, 2)
    del first, second
    third = recycled((size - 7,), np.uint8)
    assert third.ctypes.data in places - {view.ctypes.data - 10}, "a view keeps the memory"
    assert bool((view == 1).all())
    del view, third
    assert recycled((size // 4,), np.float32).ctypes.data in places
    clear_recycled()
    assert bool((recycled((size,), np.uint8) == 0).all()), "fresh"


def test_no_more_is_kept_than_is_said() -> None:
    clear_recycled()
    memory = [recycled((5 * 2**20,), np.uint8) for _ in range(9)]
    del memory
    large = recycled((RECYCLED_BYTES + 1,), np.uint8)
    del large
    assert len(_freed.kept) <= 8
    assert sum(len(m) for m in _freed.kept) <= RECYCLED_BYTES


def test_memory_is_recycled_from_many_threads() -> None:
    def work(mark: int) -> bool:
        for _ in range(20):
            memory = recycled((5 * 2**20,), np.uint8)
            memory[:64] = memory[-64:] = mark
            if not bool((memory[:64] == mark).all() & (memory[-64:] == mark).all()):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))


class TestWhatWorkMayTake:
    """20,000 columns ask for 16 GB: said beforehand, and refused where they are not free."""

    def test_more_than_is_free_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uncone.memory.free_bytes", lambda: 8 * 10**9)
        told = r"the products of 20,000 columns .* 16.0 GB of the 8.0 GB that are free: .*UNCONE_MEMORY_GB=16$"
        with pytest.raises(InputError, match=told):
            Moments.of(np.broadcast_to(np.float32(1), (10_001, 20_000)))
        Moments(20_000, second=False)
        Moments(4000)

    def test_who_says_so_may_take_more_or_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uncone.memory.free_bytes", lambda: 8 * 10**9)
        monkeypatch.setenv("UNCONE_MEMORY_GB", "16")
        check_memory(16 * 10**9, "work", "make it smaller")
        monkeypatch.setenv("UNCONE_MEMORY_GB", "0.6")
        told = "which would take 0.7 GB of the 0.6 GB that are allowed: make it smaller"
        with pytest.raises(InputError, match=f"{told}. To allow more, set UNCONE_MEMORY_GB=1$"):
            check_memory(7 * 10**8, "work", "make it smaller")
        for told in ("lots", "nan", "inf"):
            monkeypatch.setenv("UNCONE_MEMORY_GB", told)
            with pytest.raises(InputError, match=rf"expected a number of GB in UNCONE_MEMORY_GB, got '{told}'"):
                check_memory(7 * 10**8, "work", "make it smaller")
        monkeypatch.setenv("UNCONE_MEMORY_GB", "")
        monkeypatch.setattr("uncone.memory.free_bytes", lambda: None)
        check_memory(10**18, "work of a system that says nothing", "make it smaller")

    @pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads the memory of Linux")
    def test_free_memory_is_within_the_limits_of_a_group(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = free_bytes()
        assert found is not None
        assert 10**7 < found < 10**14
        for name, content in (("max", "5000"), ("now", "3000"), ("memory.stat", "anon 1\ninactive_file 500\n")):
            (tmp_path / name).write_text(content)
        monkeypatch.setattr("uncone.memory._CGROUPS", ((tmp_path, "max", "now"),))
        assert free_bytes() == 2500
        (tmp_path / "max").write_text("max")
        assert free_bytes() > 10**6

    def test_a_command_says_it_before_it_reads_the_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("uncone.memory.free_bytes", lambda: 10**9)
        np.lib.format.open_memmap(tmp_path / "wide.npy", "w+", np.float16, (10_001, 20_000))  # empty blocks
        for verb, rest in (("diagnose", ()), ("repair", (tmp_path / "y.npy", "--method", "whiten", "--force"))):
            status, _, error = run_command(verb, capsys, tmp_path / "wide.npy", *rest)
            assert status == 1
            assert "16.0 GB of the 1.0 GB that are free" in error
        assert not (tmp_path / "y.npy").exists()
