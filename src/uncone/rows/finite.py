"""Rows that are not finite: counted and named, and left out on request."""

from collections.abc import Callable, Sequence

import torch

from uncone.errors import InputError
from uncone.rows.base import Rows

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
        raise InputError(f"expected some finite rows, got none of {rows.shape[0]} in {rows.name}: there is nothing to measure")
    return _KeptRows(rows, bad)


class _KeptRows(Rows):
    def __init__(self, rows: Rows, bad: torch.Tensor) -> None:
        keep = torch.ones(rows.shape[0], dtype=torch.bool)
        keep[bad] = False
        self._rows, self._kept = rows, keep.nonzero().flatten()
        self.shape, self.dtype, self.name = (len(self._kept), rows.shape[1]), rows.dtype, rows.name
        self.left_out = tuple(bad.tolist())

    @property
    def ids(self) -> torch.Tensor | None:
        return self._kept if self._rows.ids is None else self._rows.ids[self._kept]

    @property
    def labels(self) -> Sequence[str | None] | None:
        labels = self._rows.labels
        return None if labels is None else [labels[i] for i in self._kept.tolist()]

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        block = self._rows.take(self._kept[start:stop])  # cell by cell: the gaps between kept rows may be long
        return block if out is None else out.copy_(block)
