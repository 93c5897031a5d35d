from pathlib import Path

import pytest
import torch

from uncone.memory import Bench, uninitialised, zeros


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 7), (3, 1000, 1000)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_memory_is_writable_and_begins_on_a_cache_line(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = [uninitialised(shape, dtype) for _ in range(3)]
    for i, memory in enumerate(found):
        assert (memory.shape, memory.dtype, memory.is_contiguous()) == (shape, dtype, True)
        assert memory.numel() == 0 or memory.data_ptr() % 64 == 0
        memory.fill_(i)
    assert all(bool((memory == i).all()) for i, memory in enumerate(found))
    assert bool((zeros(shape, dtype) == 0).all())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident memory of Linux")
def test_large_memory_goes_back_to_the_system_when_it_is_freed() -> None:
    def resident() -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    size = 64 * 2**20
    before = resident()
    memory = uninitialised((size,), torch.uint8).fill_(1)
    part = memory[: size // 2]
    assert resident() - before > 0.9 * size
    del memory
    assert bool((part == 1).all()), "a view keeps the memory"
    del part
    assert resident() - before < 0.1 * size


def test_large_memory_is_zero_though_memory_before_it_was_not() -> None:
    for size in (1000, 5 * 2**20 + 3):
        memory = uninitialised((size,), torch.uint8).fill_(1)
        del memory
        assert not bool(zeros((size,), torch.uint8).any())


def test_a_bench_lends_the_same_memory_again_and_never_twice_at_once() -> None:
    bench = Bench()
    first = bench.borrow("a", 100, torch.float32, "cpu")
    second = bench.borrow("a", 50, torch.float32, "cpu")
    assert first.data_ptr() != second.data_ptr()
    bench.give_back("a", second)
    bench.give_back("a", first)
    assert bench.borrow("a", 80, torch.float32, "cpu").data_ptr() == first.data_ptr()
    bench.give_back("a", first)
    assert len(bench.borrow("a", 101, torch.float32, "cpu")) == 101
    assert bench.borrow("b", 10, torch.float32, "cpu").data_ptr() != first.data_ptr()
    bench.give_back("a", first)
    bench.clear()
    assert len(bench.borrow("a", 3, torch.float32, "cpu")) == 3
