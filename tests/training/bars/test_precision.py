"""The precision of torch's products is the process's, and threads share it."""

import threading
from collections.abc import Iterator
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
def test_the_last_of_two_threads_puts_back_what_the_first_found() -> None:
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    seen = dict[str, str]()

    def first() -> None:
        with full_precision():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second() -> None:
        first_in.wait(10)
        with full_precision():
            second_in.set()
            first_out.wait(10)
            seen["in the second"] = _precision()

    threads = [threading.Thread(target=work) for work in (first, second)]
    threads[0].start()
    threads[1].start()
    for thread in threads:
        thread.join()
    assert seen["in the second"] in ("ieee", "highest")
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.usefixtures("coarse")
def test_an_error_inside_puts_it_back() -> None:
    with pytest.raises(KeyError), full_precision():
        raise KeyError
    assert torch.get_float32_matmul_precision() == "medium"


def _precision() -> str:
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return str(matmul.fp32_precision) if hasattr(matmul, "fp32_precision") else torch.get_float32_matmul_precision()
