"""Rows that are not finite: counted and named, and left out on request."""

from collections.abc import Callable

import torch

from uncone.errors import InputError
from uncone.rows.base import Rows
from uncone.rows.selected import SelectedRows

_NAMED = 5


def nonfinite_rows(rows: Rows, progress: Callable[[int], None] | None = None) -> torch.Tensor:
    """Row numbers (int64, ascending) of the rows that hold a NaN or an infinity. Reads every row; `progress` gets how many."""
    found, start = [], 0
    for block in rows.blocks():
        bad = ~torch.isfinite(block).all(dim=1)
        found.append(bad.nonzero().flatten() + start)
        start += len(block)
        del block
        if progress is not None:
            progress(start)
    return torch.cat(found)


def nonfinite_error(rows: Rows) -> InputError:
    """The error to raise once a row that is not finite has been met: how many there are, and the first of them."""
    bad = nonfinite_rows(rows)
    first = ", ".join(str(i) for i in bad[:_NAMED].tolist())
    more = ", ..." if len(bad) > _NAMED else ""
    plural = "rows" if len(bad) != 1 else "row"
    return InputError(
        f"expected finite rows, got {len(bad)} {plural} of {rows.shape[0]} with NaN or inf in {rows.name} "
        f"({plural} {first}{more}): mend them, or go on without them with --skip-nonfinite (skip_nonfinite=True)"
    )


def without_nonfinite(rows: Rows, progress: Callable[[int], None] | None = None) -> Rows:
    """`rows` without those that are not finite; `left_out` of the result names them. Reads every row once."""
    bad = nonfinite_rows(rows, progress)
    if len(bad) == 0:
        return rows
    if len(bad) == rows.shape[0]:
        raise InputError(
            f"expected some finite rows, got none of {rows.shape[0]} in {rows.name}: there is nothing to measure"
        )
    keep = torch.ones(rows.shape[0], dtype=torch.bool)
    keep[bad] = False
    return SelectedRows(rows, keep.nonzero().flatten(), left_out=tuple(bad.tolist()))
