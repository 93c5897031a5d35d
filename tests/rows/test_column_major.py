"""`.npy` and `.npz` of either order of axes: the rows that numpy reads, whatever their dtype and byte order."""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.matrices import equal

from .reading import all_rows, refuses

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from(["f8", "f4", "f2"]), st.sampled_from(["<F", ">F", "<C", ">C"]), st.data())
def test_rows_are_what_numpy_reads(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], kind: str, order: str, data: st.DataObject
) -> None:
    n, d = shape
    x = np.asarray(np.random.default_rng(0).standard_normal(shape).astype(order[0] + kind), order=order[1])
    folder = tmp_path_factory.mktemp("columns")
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x)
    wide = np.ascontiguousarray(x.astype("f8" if kind == "f8" else "f4"))
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    for name in ("x.npy", "x.npz"):
        rows = uncone.open_rows(folder / name)
        assert rows.dtype == {"f8": "float64", "f4": "float32", "f2": "float16"}[kind]
        assert equal(rows.read(start, stop), wide[start:stop])
        assert equal(rows.read(start, stop, out=np.empty((stop - start, d), wide.dtype)), wide[start:stop])
        assert equal(all_rows(rows), wide)


@pytest.mark.parametrize("keep", [0, 200, 100_000])
@pytest.mark.parametrize("axes", ["C", "F"])
def test_a_file_cut_while_it_is_open_is_an_error(tmp_path: Path, axes: Literal["C", "F"], keep: int) -> None:
    """It was mapped: the process was ended by SIGBUS."""
    np.save(tmp_path / "x.npy", np.ones((20_000, 3), np.float32, order=axes))
    rows = uncone.open_rows(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", keep)
    refuses("the file was cut, copy it again", lambda: list(rows.blocks()))
