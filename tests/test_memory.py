import pytest
import torch

from uncone.memory import uninitialised, zeros


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
