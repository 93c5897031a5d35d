"""The matrices of the benchmarks, made once and kept on disk: Gaussian rows with a decaying spectrum and a mean."""

import json
import struct
from functools import cache
from pathlib import Path

import numpy as np
import torch

DATA = Path(__file__).parent / ".data"
SHAPES = {"A": (50257, 768), "B": (128256, 2048), "C": (262144, 2048), "D": (131072, 4096), "E": (1_000_000, 384)}
_MEAN_NORM, _NORM = 2.05, 3.97
_BLOCK = 8192


def path(name: str, suffix: str = "npy") -> Path:
    """The file of a matrix, written first if it is not there."""
    file = DATA / f"{name}.{suffix}"
    if not file.exists():
        DATA.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial")
        with open(partial, "wb") as handle:
            handle.write(_npy_header(*SHAPES[name]) if suffix == "npy" else _safetensors_header(*SHAPES[name]))
            for block in _blocks(*SHAPES[name]):
                handle.write(block.numpy().tobytes())
        partial.rename(file)
    return file


def wide() -> Path:
    """A safetensors file of 128256 x 4096 bfloat16, written first if it is not there."""
    file = DATA / "wide.safetensors"
    if not file.exists():
        from safetensors.torch import save_file

        DATA.mkdir(exist_ok=True)
        x = torch.cat([block.bfloat16() for block in _blocks(128256, 4096)])
        save_file({"w": x}, file)
    return file


def few_rows(n: int, d: int) -> Path:
    """A .npy of n x d float32 with n far below d, written first if it is not there."""
    file = DATA / f"few_{n}_{d}.npy"
    if not file.exists():
        DATA.mkdir(exist_ok=True)
        np.save(file, np.random.default_rng(0).standard_normal((n, d), np.float32) + 0.5)
    return file


def curves_table() -> Path:
    """A CSV of 1,000 curves at 5,000 checkpoints each, written first if it is not there."""
    file = DATA / "curves.csv"
    if not file.exists():
        DATA.mkdir(exist_ok=True)
        generator, partial = np.random.default_rng(0), file.with_suffix(".partial")
        with open(partial, "w") as handle:
            handle.write("model,metric,step,value\n")
            for curve in range(1000):
                values = 3 + 5 / np.sqrt(1 + np.arange(5000)) + 0.01 * generator.standard_normal(5000)
                handle.writelines(f"m{curve},loss,{step},{value:.5f}\n" for step, value in enumerate(values))
        partial.rename(file)
    return file


@cache
def matrix(name: str) -> np.ndarray:
    """One copy for all rows of a table: the system takes idle memory away, and gives it back page by page."""
    return np.load(path(name))


def on_array(work):
    """The preparation of a row whose `work` takes matrix A as an array."""
    x = matrix("A")
    return lambda: work(x)


def on_tensor(work):
    """The same as a tensor, in the same memory."""
    x = torch.from_numpy(matrix("A"))
    return lambda: work(x)


def _blocks(n: int, d: int):
    generator = torch.Generator().manual_seed(0)
    spread = torch.arange(1, d + 1, dtype=torch.float64) ** -0.35
    spread *= (_NORM**2 - _MEAN_NORM**2) ** 0.5 / float(spread.norm())
    mean = torch.randn(d, generator=generator, dtype=torch.float64)
    mean *= _MEAN_NORM / float(mean.norm())
    turn, _ = torch.linalg.qr(torch.randn(d, d, generator=generator))
    turn = (spread[:, None] * turn.double()).float()
    for start in range(0, n, _BLOCK):
        rows = torch.randn(min(_BLOCK, n - start), d, generator=generator)
        yield rows @ turn + mean.float()


def _npy_header(n: int, d: int) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {d}), }}".encode()
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11 + 0) + b"\n"
    return np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text


def _safetensors_header(n: int, d: int) -> bytes:
    text = json.dumps({"weight": {"dtype": "F32", "shape": [n, d], "data_offsets": [0, 4 * n * d]}}).encode()
    return struct.pack("<Q", len(text)) + text
