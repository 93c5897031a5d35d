"""Column-major arrays: the rows that numpy reads, whatever their dtype and byte order."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.matrices import equal
from uncone import InputError


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["f8", "f4", "f2"]),
    st.sampled_from("<>"),
    st.data(),
)
def test_rows_are_what_numpy_reads(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], kind: str, order: str, data: st.DataObject
) -> None:
    n, d = shape
    x = np.asfortranarray(np.random.default_rng(0).standard_normal(shape).astype(order + kind))
    folder = tmp_path_factory.mktemp("columns")
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x)
    wide = torch.from_numpy(np.ascontiguousarray(x.astype("f8" if kind == "f8" else "f4")))
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    for name in ("x.npy", "x.npz"):
        rows = uncone.open_rows(folder / name)
        assert rows.dtype == {"f8": "float64", "f4": "float32", "f2": "float16"}[kind]
        assert equal(rows.read(start, stop), wide[start:stop])
        out = np.empty((stop - start, d), wide.numpy().dtype)
        assert equal(rows.read(start, stop, out=out), wide[start:stop])
        assert equal(np.concatenate(list(rows.blocks())), wide)


@pytest.mark.parametrize("keep", [0, 200, 100_000])
def test_a_column_major_file_cut_while_it_is_open_is_an_error(tmp_path: Path, keep: int) -> None:
    """It was mapped: the process was ended by SIGBUS."""
    np.save(tmp_path / "x.npy", np.asfortranarray(np.ones((20_000, 3), np.float32)))
    rows = uncone.open_rows(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", keep)
    with pytest.raises(InputError, match="the file was cut, copy it again"):
        list(rows.blocks())
