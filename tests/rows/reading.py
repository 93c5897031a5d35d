"""What tests of readers share: all rows of a source, what is refused, damaged files, memory while a file is read."""

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import uncone
from uncone import InputError

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
"""Places and what is written there, for `mutated`."""


def all_rows(rows: Any) -> torch.Tensor:
    """All rows, which are kept while the next are read, of `Rows` or of a source."""
    rows = rows if isinstance(rows, uncone.Rows) else uncone.open_rows(rows)
    return torch.from_numpy(np.concatenate(list(rows.blocks())))


def refuses(message: str, call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The call raises InputError with this message, which comes back whole."""
    with pytest.raises(InputError, match=message) as caught:
        call(*arguments, **options)
    return str(caught.value)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def text_of(x: torch.Tensor, *, form: str = "%.5f", end: str = "\n", header: bool = False) -> bytes:
    """Word vectors in text: w0, w1, ..."""
    lines = [f"{len(x)} {x.shape[1]}{end}"] if header else []
    lines += [f"w{i} " + " ".join(form % value for value in row) + end for i, row in enumerate(x.tolist())]
    return "".join(lines).encode()


def binary_of(x: torch.Tensor, *, newline: bytes = b"\n", words: list[bytes] | None = None) -> bytes:
    """word2vec binary."""
    names = [f"w{i}".encode() for i in range(len(x))] if words is None else words
    rows = [name + b" " + row.numpy().tobytes() + newline for name, row in zip(names, x, strict=True)]
    return f"{x.shape[0]} {x.shape[1]}\n".encode() + b"".join(rows)


def mutated(content: bytes, changes: list[tuple[int, int]], stop: int | None = None) -> bytes:
    """`content` with other bytes at some places, cut before one of them."""
    changed = bytearray(content)
    for at, value in changes:
        changed[at % len(changed)] = value
    return bytes(changed if stop is None else changed[: stop % (len(changed) + 1)])


def refused_or_read(spec: Any, read: Callable[[Any], uncone.Rows] = uncone.open_rows, most: int = 2**60) -> None:
    """A damaged file does nothing else: the rows and labels that it promises, at most so many numbers, are there."""
    try:
        rows = read(spec)
        assert rows.shape[0] * rows.shape[1] <= most
        assert all_rows(rows).shape == rows.shape
        assert rows.labels is None or len(rows.labels) == rows.shape[0]
    except uncone.UnconeError:
        pass


_GROWTH = """
import sys, torch, uncone
torch.set_num_threads(2)
def held(): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
def read(path):
    peak = 0
    for block in uncone.open_rows(path).blocks():
        del block
        peak = max(peak, held())
    return peak
read(sys.argv[1])
before = held()
print(read(sys.argv[2]) - before)
"""


def printed(code: str, *arguments: object) -> float:
    """The number that a program prints, in a process of its own."""
    run = [sys.executable, "-c", code, *map(str, arguments)]
    return float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


def growth(small: Path | str, large: Path | str) -> float:
    """MiB of anonymous memory while `large` is read, beyond those held after `small` was."""
    return printed(_GROWTH, small, large)
