"""A file is closed when its rows are let go, and not when the garbage collector comes by."""

import gc
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import uncone
from uncone.rows import GRID, word_vectors
from uncone.rows.word2vec import Word2VecRows

from ..matrices import gaussian
from .reading import binary_of, refuses, text_of

N, D = GRID + 500, 3


def _parquet(path: Path, x: torch.Tensor) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    import pyarrow.parquet as pq

    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.numpy().reshape(-1)), D)
    pq.write_table(pa.table({"v": lists, "word": [str(i) for i in range(N)]}), path, row_group_size=1000)


WRITERS: dict[str, Callable[[Path, torch.Tensor], object]] = {
    "x.parquet": _parquet,
    "x.txt": lambda path, x: path.write_bytes(text_of(x)),
    "x.txt.gz": lambda path, x: path.write_bytes(gzip.compress(text_of(x))),
    "x.bin": lambda path, x: path.write_bytes(binary_of(x, newline=b"")),
    "x.npz": lambda path, x: np.savez_compressed(path, x=x.numpy()),
    "x.npy": lambda path, x: np.save(path, x.numpy()),
    "x.pt": lambda path, x: torch.save(x.T.contiguous().T, path),
}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _open_files(path: Path) -> int:
    links = [f"/proc/self/fd/{entry}" for entry in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counting open files takes Linux's /proc")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", WRITERS)
def test_rows_let_go_close_their_file(tmp_path: Path, name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "available", lambda: threads)
    path = tmp_path / name
    WRITERS[name](path, gaussian(N, D))
    rows = uncone.open_rows(path)
    rows.read(3, 9)  # leaves a cursor behind
    rows.read(GRID - 2, GRID + 2)
    _ = rows.labels
    blocks = rows.blocks()
    next(blocks)  # and a pass that is not finished
    assert _open_files(path) > 0 or name == "x.parquet"
    del rows, blocks
    assert _open_files(path) == 0


def test_an_error_on_the_way_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(binary_of(torch.ones(N, D)))
    rows = Word2VecRows(path)
    path.write_bytes(path.read_bytes()[:-50])
    refuses("the file was cut", rows.read, N - 3, N)
    del rows
    gc.collect()  # a traceback holds its frames
    assert _open_files(path) == 0
