"""Columns in little memory hold the cells that were put in, however many are different."""

import math
import os
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone.errors import InputError
from uncone.saturation.tables import cells
from uncone.saturation.tables.cells import Cells, is_empty, number_of, text_of

_WORDS = st.sampled_from(["", " ", "a", "1", "1.0", "1e3", "n/a"])
_CELL = st.one_of(st.integers(-3, 3), st.floats(-2, 2), st.booleans(), st.none(), _WORDS)


@pytest.mark.parametrize("most", [0, 3, 1000])
@settings(max_examples=25)
@given(given_cells=st.lists(_CELL, max_size=25))
def test_cells_are_those_of_a_list(most: int, given_cells: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "MOST_AS_GIVEN", most)
        column = Cells(given_cells)
    assert len(column) == len(given_cells)
    if most == 1000:
        assert [(type(cell), cell) for cell in column] == [(type(cell), cell) for cell in given_cells]
    numbers, empty, wrong = column.numbers()
    for i, cell in enumerate(given_cells):
        number = number_of(cell)
        assert (bool(empty[i]), bool(wrong[i])) == (is_empty(cell), number is None)
        assert numbers[i] == pytest.approx(math.nan if number is None else number, nan_ok=True, rel=0, abs=0)
    codes = column.codes()
    if most == 1000:
        pairs = product(zip(codes, map(text_of, given_cells), strict=True), repeat=2)
        assert all((i == j) == (a == b) for (i, a), (j, b) in pairs)


def test_texts_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MOST_AS_GIVEN", 2)
    monkeypatch.setattr(cells, "MOST_TEXTS", 3)
    assert list(Cells(["a", "b", "c", "d", "1.5", "a", "e"])) == ["a", "b", "c", None, 1.5, "a", None]


def test_many_different_numbers_take_twelve_bytes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MOST_AS_GIVEN", 16)
    tracemalloc.start()
    column = Cells(str(i / 7) for i in range(50_000))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 15 * len(column)  # arrays grow by an eighth


def test_a_table_beyond_memory_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,value\n")
    os.truncate(path, 2**30)
    monkeypatch.setenv("UNCONE_MEMORY_GB", "4")
    with pytest.raises(InputError, match=r"fits into memory, got a table of 1\.1 GB, which would take 8\.6 GB"):
        uncone.judge_curves(path)
