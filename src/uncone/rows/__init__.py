"""A matrix read block by block: one reader a format, behind one `Rows`."""

from uncone.rows.array import ArrayRows, as_rows, from_numpy
from uncone.rows.base import GRID, Rows
from uncone.rows.centered import CenteredRows
from uncone.rows.finite import nonfinite_error, nonfinite_rows, without_nonfinite
from uncone.rows.npy import open_npy
from uncone.rows.selected import SelectedRows

__all__ = [
    "GRID",
    "ArrayRows",
    "CenteredRows",
    "Rows",
    "SelectedRows",
    "as_rows",
    "from_numpy",
    "nonfinite_error",
    "nonfinite_rows",
    "open_npy",
    "without_nonfinite",
]
