"""Moments of a Parquet column, against pyarrow reading it plus the products on rows in memory."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from measured import Row, run

import uncone
from matrices import DATA
from uncone import Moments

N, D = 1_000_000, 384
ROW_GROUP = 100_000
BATCH = 8192
COLUMN = "vector"


@cache
def _file() -> Path:
    """Gaussian rows with a mean, as lists of one length; written first if it is not there."""
    file = DATA / f"{N}x{D}.parquet"
    if not file.exists():
        DATA.mkdir(exist_ok=True)
        partial, generator = file.with_suffix(".partial"), np.random.default_rng(0)
        mean = generator.normal(size=D).astype(np.float32)
        schema = pa.schema([(COLUMN, pa.list_(pa.float32()))])
        with pq.ParquetWriter(partial, schema) as writer:
            for start in range(0, N, ROW_GROUP):
                rows = min(ROW_GROUP, N - start)
                flat = (generator.standard_normal((rows, D), np.float32) + mean).reshape(-1)
                offsets = np.arange(0, rows * D + 1, D, dtype=np.int32)
                writer.write_table(pa.table([pa.ListArray.from_arrays(offsets, flat)], schema=schema))
        partial.rename(file)
    return file


def _batches():
    return pq.ParquetFile(_file()).iter_batches(batch_size=BATCH, columns=[COLUMN])


def _read_batches() -> object:
    def work() -> int:
        return sum(len(batch) for batch in _batches())

    return work


def _read_groups() -> object:
    def work() -> int:
        file = pq.ParquetFile(_file())
        return sum(file.read_row_group(i, columns=[COLUMN]).num_rows for i in range(file.num_row_groups))

    return work


@cache
def _matrix() -> torch.Tensor:
    """One copy for all rows of the table."""
    x, done = torch.empty(N, D), 0
    for batch in _batches():
        x[done : done + len(batch)] = torch.from_numpy(np.array(batch.column(0).flatten()).reshape(-1, D))
        done += len(batch)
    return x


def _in_memory() -> object:
    x = _matrix()
    return lambda: Moments.of(x)


def _one_after_the_other() -> object:
    x = _matrix()

    def work() -> object:
        for _ in _batches():
            pass
        return Moments.of(x)

    return work


def _ours() -> object:
    return lambda: Moments.of(uncone.open_rows(f"{_file()}#{COLUMN}"))


def _naive() -> object:
    """The whole column at once, stacked row by row."""

    def work() -> object:
        column = pq.read_table(_file(), columns=[COLUMN])[COLUMN]
        return Moments.of(np.stack([row for chunk in column.chunks for row in chunk.to_numpy(zero_copy_only=False)]))

    return work


ROWS = [
    Row("pyarrow reads it, batch after batch", _read_batches),
    Row("pyarrow reads it, row group after row group", _read_groups),
    Row("Moments.of the same rows in memory", _in_memory, memory=False),
    Row("pyarrow reads it, then Moments.of in memory", _one_after_the_other, memory=False),
    Row("uncone, Moments.of the column", _ours),
    Row("pyarrow's whole table, np.stack, Moments.of", _naive, repeats=2),
]

if __name__ == "__main__":
    title = f"A Parquet column of {N} lists of {D} float32, row groups of {ROW_GROUP}"
    run(__file__, title, ROWS, repeats=7, columns=[("read, then products", ROWS[3].name)])
