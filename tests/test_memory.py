from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from uncone.memory import _MOST_MAPPINGS, RECYCLED_BYTES, _freed, clear_recycled, recycled, uninitialised, zeros


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


def test_freed_memory_is_used_again_and_never_twice_at_once() -> None:
    clear_recycled()
    size = 5 * 2**20
    first = recycled((size,), torch.uint8).fill_(1)
    second = recycled((size,), torch.uint8).fill_(2)
    places = {first.data_ptr(), second.data_ptr()}
    assert len(places) == 2
    view = first[10:].view(-1, 2)
    del first, second
    third = recycled((size - 7,), torch.uint8)
    assert third.data_ptr() in places - {view.data_ptr() - 10}, "a view keeps the memory"
    assert bool((view == 1).all())
    del view, third
    assert recycled((size // 4,), torch.float32).data_ptr() in places
    clear_recycled()
    assert bool((recycled((size,), torch.uint8) == 0).all()), "fresh"


def test_no_more_is_kept_than_is_said() -> None:
    clear_recycled()
    memory = [recycled((5 * 2**20,), torch.uint8) for _ in range(9)]
    del memory
    large = recycled((RECYCLED_BYTES + 1,), torch.uint8)
    del large
    assert len(_freed._kept) <= _MOST_MAPPINGS
    assert sum(len(m) for m in _freed._kept) <= RECYCLED_BYTES


def test_memory_is_recycled_from_many_threads() -> None:
    def work(mark: int) -> bool:
        for _ in range(20):
            memory = recycled((5 * 2**20,), torch.uint8)
            memory[:64] = memory[-64:] = mark
            if not bool((memory[:64] == mark).all() & (memory[-64:] == mark).all()):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))
