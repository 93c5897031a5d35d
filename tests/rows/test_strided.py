"""Rows that lie apart or across in a file: what numpy reads through the same strides, whatever they are."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.rows import strided
from uncone.rows.bytes import LocalFile
from uncone.rows.strided import StridedRows

DTYPES = {"float64": "f8", "float32": "f4", "float16": "f2"}


@settings(deadline=None, max_examples=150)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)), st.sampled_from(sorted(DTYPES)), st.booleans(), st.booleans(),
    st.tuples(st.integers(1, 3), st.integers(0, 3)), st.integers(1, 200), st.data(),
)  # fmt: skip
def test_rows_are_what_numpy_reads(
    tmp_path_factory: pytest.TempPathFactory,
    shape,
    dtype: str,
    across: bool,
    swapped: bool,
    gaps,
    at_once: int,
    data,
) -> None:
    (n, d), (gap, more) = shape, gaps
    inner = gap if not across else gap * n + more
    strides = (gap, inner) if across else (inner * d + more, inner)
    kind = np.dtype(DTYPES[dtype]).newbyteorder(">" if swapped else "<")
    flat = (
        np.random.default_rng(0)
        .standard_normal(5 + (n - 1) * strides[0] + (d - 1) * strides[1] + 1)
        .astype(kind)
    )
    path = tmp_path_factory.mktemp("strided") / "x"
    path.write_bytes(flat.tobytes())
    expected = np.lib.stride_tricks.as_strided(
        flat[5:], (n, d), tuple(stride * kind.itemsize for stride in strides)
    )
    wide = torch.from_numpy(expected.astype("f8" if dtype == "float64" else "f4"))
    source = LocalFile(path)
    rows = StridedRows(
        source, offset=5 * kind.itemsize, shape=shape, strides=strides, dtype=dtype, name="x", swapped=swapped
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strided, "_AT_ONCE", at_once)
        start = data.draw(st.integers(0, n))
        stop = data.draw(st.integers(start, n))
        assert torch.equal(rows.read(start, stop), wide[start:stop])
        out = torch.empty(stop - start, d, dtype=wide.dtype)
        assert torch.equal(rows.read(start, stop, out=out), wide[start:stop])
        assert torch.equal(torch.cat(list(rows.blocks())), wide)


@pytest.mark.parametrize("keep", [0, 200, 100_000])
def test_a_column_major_file_cut_while_it_is_open_is_an_error(tmp_path: Path, keep: int) -> None:
    """It was mapped: the process was ended by SIGBUS."""
    np.save(tmp_path / "x.npy", np.asfortranarray(np.ones((20_000, 3), np.float32)))
    rows = uncone.open_rows(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", keep)
    with pytest.raises(InputError, match="the file was cut, copy it again"):
        list(rows.blocks())
