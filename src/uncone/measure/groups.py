"""Which rows are affected? Any measure by group of rows, and each group's cosine to the reserved rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError
from uncone.measure.reading import read
from uncone.moments import Moments, NotFiniteError
from uncone.records import Measurement
from uncone.records.wording import cut_label, plural
from uncone.rows import GRID, Rows, SelectedRows, as_rows, nonfinite_error

Tensor = torch.Tensor
LAST_IDS = 1000
"""Where no row is reserved by name, the last ids stand in: most vocabularies are sorted by frequency."""
FEWEST_RESERVED = 10
"""A mean direction of fewer rows than this is mostly their own."""
_RESERVED = re.compile(
    r"\[unused_?\d+\]|<unused_?\d+>|<\|?reserved[a-z_]*_?\d+\|?>|<\|dummy_\d+\|>|<\|extra_\d+\|>|madeupword\d+|\[PAD\d+\]",
    re.IGNORECASE,
)
_FIRST = ("[", "<", "madeup", "MADEUP", "Madeup")
"""What such a name begins with: a look at it spares most tokens the expression."""


@dataclass(frozen=True)
class Reserved:
    """The rows that no text ever used, or others in their place: row numbers (ascending), and which they
    are."""

    indices: Tensor
    description: str
    by_name: bool


def reserved_rows(labels: Sequence[str | None] | None, n: int) -> Reserved:
    """The rows whose token is reserved (`[unused12]`, `<|reserved_3|>`, ...); else the last 1,000 ids.

    Args:
        labels: the token of each row, or None where they are unknown.
        n: the number of rows.
    """
    if labels is not None:
        named = named_reserved(labels)
        if len(named) >= FEWEST_RESERVED:
            ends = f"{cut_label(labels[named[0]])} to {cut_label(labels[named[-1]])}"
            found = f"{len(named)} reserved tokens found in the tokenizer ({ends})"
            return Reserved(torch.tensor(named), found, True)
    count = min(LAST_IDS, max(1, n // 10))
    why = "no tokenizer was found" if labels is None else "the tokenizer names no reserved tokens"
    last = f"the last {plural(count, 'id', f'{count} ids')}, because {why}"
    return Reserved(torch.arange(n - count, n), last, False)


def named_reserved(labels: Sequence[str | None]) -> list[int]:
    """The numbers of the rows whose token is reserved by its name, however few."""
    begun = ((i, label) for i, label in enumerate(labels) if label is not None and label.startswith(_FIRST))
    return [i for i, label in begun if _RESERVED.fullmatch(label)]


class GroupMoments:
    """One `Moments` for each group of rows, all fed in one pass.

    Memory is that of `Moments` times the number of groups: leave out second-order sums (the default) where
    there are many.
    """

    def __init__(
        self, count: int, d: int, *, second: bool = False, unit_second: bool = False, device: str = "cpu"
    ) -> None:
        sums: dict[str, Any] = {"second": second, "unit_second": unit_second}
        self._moments = [Moments(d, device=device, **sums) for _ in range(count)]
        if self._moments:
            self.work_with(self._moments[0])

    def work_with(self, other: Moments) -> None:
        """Use the working memory of `other`, which is updated in turn with these and never at once."""
        for m in self._moments:
            m.work_with(other)

    def update(self, block: Tensor, groups: Tensor) -> None:
        """Add rows (n, D) with the group of each, int64 (n,) from 0 up, -1 for none."""
        for group, rows in _members(groups, block):
            self._moments[group].update(rows)

    def finish(self) -> list[Moments]:
        """The moments of the groups, in their order."""
        return [m.finish() for m in self._moments]


def by_group(
    rows: Any,
    measures: Iterable[Callable[[Moments], Measurement]],
    groups: Any = None,
    *,
    bin_size: int = 1000,
    row_measures: Iterable[Callable[[Rows, Moments], Measurement]] = (),
    second: bool = True,
    unit_second: bool = False,
    device: str = "cpu",
) -> list[tuple[Measurement, ...]]:
    """Every measure for every group of rows.

    Args:
        rows: Rows, or a tensor or array (N, D).
        measures: functions of `Moments`, for instance `measure.mean_cosine`, or a lambda that sets their options.
        groups: the group of each row from 0 up, -1 for none, (N,); by default bins of `bin_size` consecutive ids.
        row_measures: functions of a group's Rows and Moments, for instance `measure.partition_isotropy`: they
            read the group again.
        second, unit_second: as for `Moments`. With bins one group's sums are held at a time, with given groups all.

    Returns:
        One tuple of measurements for each group, in their order, those of `row_measures` last. A measure that
        is undefined on a group gives a `Measurement` with its reason.

    Raises:
        InputError: groups of another length, or rows that are not finite.
    """
    if bin_size < 1:
        raise InputError(f"expected bins of at least one row, got {bin_size}: 1,000 is customary")
    rows, measures, row_measures = as_rows(rows), tuple(measures), tuple(row_measures)
    kinds = {"second": second, "unit_second": unit_second, "device": device}
    if groups is None:
        sums = _bins(rows, bin_size, **kinds)
        members = iter(torch.split(torch.arange(rows.shape[0]), bin_size))
    else:
        groups = _checked(groups, rows.shape[0])
        sums = iter(_given(rows, groups, **kinds))
        members = ((groups == group).nonzero().flatten() for group in range(int(groups.max()) + 1))
    readings = []
    for m, indices in zip(sums, members, strict=True):
        group = SelectedRows(rows, indices)
        first = tuple(read(_name(measure), measure, m) for measure in measures)
        readings.append((*first, *(read(_name(measure), measure, group, m) for measure in row_measures)))
    return readings


def _name(measure: Callable[..., Measurement]) -> str:
    return getattr(measure, "__name__", "measure")


def _checked(given: Any, n: int) -> Tensor:
    groups: Tensor = torch.as_tensor(given)
    if groups.shape != (n,) or groups.dtype.is_floating_point or groups.dtype == torch.bool:
        raise InputError(
            f"expected integer groups of shape ({n},), got {groups.dtype} of shape {tuple(groups.shape)}: "
            "give one group a row"
        )
    if int(groups.min()) < -1:
        raise InputError(f"expected groups from -1 (none) up, got {int(groups.min())}: number them from 0")
    return groups.long()


def _members(groups: Tensor, block: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(group, its rows of the block); a run of equal groups is a view, not a copy."""
    values, counts = torch.unique_consecutive(groups, return_counts=True)
    if len(values) == len(torch.unique(values)):
        for value, rows in zip(values.tolist(), torch.split(block, counts.tolist()), strict=True):
            if value >= 0:
                yield value, rows
        return
    for value in torch.unique(groups).tolist():
        if value >= 0:
            yield value, block[groups == value]


def _given(rows: Rows, groups: Tensor, **sums: Any) -> list[Moments]:
    of_groups = GroupMoments(int(groups.max()) + 1, rows.shape[1], **sums)
    for block, part in zip(rows.blocks(), torch.split(groups, GRID), strict=True):
        try:
            of_groups.update(block, part)
        except NotFiniteError:
            raise nonfinite_error(rows) from None
        del block
    return of_groups.finish()


def _bins(rows: Rows, bin_size: int, **sums: Any) -> Iterator[Moments]:
    n, d = rows.shape
    for first in range(0, n, bin_size):
        m, last = Moments(d, **sums), min(first + bin_size, n)
        try:
            for start in range(first, last, GRID):
                m.update(rows.read(start, min(start + GRID, last)))
        except NotFiniteError:
            raise nonfinite_error(rows) from None
        yield m.finish()
