"""A matrix read block by block, and written: one file a format, behind one `Rows`."""

from uncone.rows.base import (
    GRID,
    ArrayRows,
    CenteredRows,
    DerivedRows,
    Rows,
    SelectedRows,
    as_rows,
    from_numpy,
    nonfinite_error,
    nonfinite_rows,
    without_nonfinite,
)
from uncone.rows.npy import open_npy
from uncone.rows.samples import as_samples, as_tensor

__all__ = [
    "GRID",
    "ArrayRows",
    "CenteredRows",
    "DerivedRows",
    "Rows",
    "SelectedRows",
    "as_rows",
    "as_samples",
    "as_tensor",
    "from_numpy",
    "nonfinite_error",
    "nonfinite_rows",
    "open_npy",
    "without_nonfinite",
]
