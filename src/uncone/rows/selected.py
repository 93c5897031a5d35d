"""Some rows of others."""

from collections.abc import Sequence

import torch

from uncone.rows.base import Rows


class SelectedRows(Rows):
    """The rows of `rows` at `kept` (int64, ascending), under the ids that they have there."""

    def __init__(self, rows: Rows, kept: torch.Tensor, *, left_out: tuple[int, ...] = ()) -> None:
        self._rows, self._kept = rows, kept
        self.shape, self.dtype, self.name = (len(kept), rows.shape[1]), rows.dtype, rows.name
        self.left_out = left_out

    @property
    def ids(self) -> torch.Tensor | None:
        return self._kept if self._rows.ids is None else self._rows.ids[self._kept]

    @property
    def labels(self) -> Sequence[str | None] | None:
        labels = self._rows.labels
        return None if labels is None else [labels[i] for i in self._kept.tolist()]

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        block = self._rows.take(
            self._kept[start:stop]
        )  # cell by cell: the gaps between kept rows may be long
        return block if out is None else out.copy_(block)
