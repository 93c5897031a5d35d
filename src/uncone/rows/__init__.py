"""A matrix read block by block, and written: one file a format, behind one `Rows`."""

from uncone.lazy import open_room
from uncone.rows.base import (
    GRID,
    ArrayRows,
    CenteredRows,
    DerivedRows,
    Rows,
    SelectedRows,
    Tokens,
    as_rows,
    nonfinite_error,
    nonfinite_rows,
    without_nonfinite,
)
from uncone.rows.floats import Array, as_array
from uncone.rows.npy import open_npy
from uncone.rows.samples import as_numbers, as_samples

__all__ = [
    "GRID",
    "Array",
    "ArrayRows",
    "CenteredRows",
    "DerivedRows",
    "Rows",
    "SelectedRows",
    "Tokens",
    "as_array",
    "as_numbers",
    "as_rows",
    "as_samples",
    "nonfinite_error",
    "nonfinite_rows",
    "open_npy",
    "without_nonfinite",
]

open_room(__name__)
