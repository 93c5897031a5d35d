"""Products of float32 numbers in float32, where a user lets torch round them to bfloat16 or TF32."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_lock = threading.Lock()
_inside = 0
_before = ""


@contextmanager
def full_precision() -> Iterator[None]:
    """Ask torch for whole products on the CPU. The setting is the process's: the last of several threads puts back what the first one found."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = _change(None)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _change(_before)


def _change(to: str | None) -> str:
    """Set the precision, by default the full one, and give the one before."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if hasattr(matmul, "fp32_precision"):
        before = str(matmul.fp32_precision)
        matmul.fp32_precision = "ieee" if to is None else to
        return before
    before = torch.get_float32_matmul_precision()  # before torch 2.9
    torch.set_float32_matmul_precision("highest" if to is None else to)
    return before
