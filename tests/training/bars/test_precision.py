"""The precision of torch's products is the process's, and threads share it."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from uncone.training.bars.trees import full_precision


@pytest.fixture
def coarse() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("coarse")
def test_the_last_of_two_puts_back_what_the_first_found() -> None:
    """As two threads enter and leave it: the first to enter is the first to leave."""
    first, second, before = ExitStack(), ExitStack(), _precision()
    for stack in (first, second):
        stack.enter_context(full_precision())
    first.close()
    assert _precision() in ("ieee", "highest")
    second.close()
    assert (_precision(), torch.get_float32_matmul_precision()) == (before, "medium")


@pytest.mark.usefixtures("coarse")
def test_an_error_inside_puts_it_back() -> None:
    before = _precision()
    with pytest.raises(KeyError), full_precision():
        raise KeyError
    assert (_precision(), torch.get_float32_matmul_precision()) == (before, "medium")


def _precision() -> str:
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return str(matmul.fp32_precision) if hasattr(matmul, "fp32_precision") else torch.get_float32_matmul_precision()
