"""Which rows are affected? Any measure by group of rows, and reserved rows."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from uncone.arguments import shown, whole_number
from uncone.errors import InputError
from uncone.measure.reading import flat_array, read
from uncone.moments import Moments
from uncone.moments.cell import counting_nonfinite
from uncone.records.parts import Measurement
from uncone.records.text import cut_label, plural
from uncone.rows import GRID, Array, Rows, SelectedRows, as_samples

MOST_GROUPS = 10**6
FEWEST_RESERVED = 10  # A mean direction of fewer rows is mostly their own
_RESERVED = re.compile(
    r"\[unused_?\d+\]|<unused_?\d+>|<\|?reserved[a-z_]*_?\d+\|?>|<\|dummy_\d+\|>|<\|extra_\d+\|>|madeupword\d+|\[PAD\d+\]",
    re.IGNORECASE,
)
_SPECIAL = re.compile(
    r"</?s>|<(?:unk|pad|mask|bos|eos|cls|sep)>|\[(?:UNK|PAD|CLS|SEP|MASK)\]|<extra_id_\d+>|<\|[^|<>]{1,60}\|>",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reserved:
    """The rows of reserved tokens, which no text ever used, or rows that stand in for them."""

    indices: Array  # row numbers, ascending
    description: str
    kind: Literal["reserved", "special", "last"]

    @property
    def by_name(self) -> bool:
        """Whether the tokenizer names these tokens."""
        return self.kind != "last"


def reserved_rows(labels: Sequence[str | None] | None, n: int) -> Reserved:
    """The rows whose token, in `labels`, is reserved (`[unused12]`, `<|reserved_3|>`, ...), if there are 10 or more.
    Otherwise the rows of 10 or more special tokens (`special_rows`), some of which may be trained. Otherwise the last
    1,000 of n ids, which are not reserved but stand in for rare tokens."""
    whole_number(n, "n", 0)
    if labels is not None and not are_labels(labels):
        raise InputError(f"expected a text or None for each row, got {shown(labels)}: pass a list of tokens")
    if labels is not None and len(named := named_reserved(labels)) >= FEWEST_RESERVED:
        return _named(labels, named, "reserved")
    if labels is not None and len(named := special_rows(labels)) >= FEWEST_RESERVED:
        return _named(labels, named, "special")
    count = min(1000, max(1, n // 10))  # most vocabularies are sorted by frequency
    why = "the rows have no names" if labels is None else "the tokenizer names no reserved tokens"
    last = f"the last {plural(count, 'id', f'{count} ids')}, because {why}"
    return Reserved(np.arange(n - count, n), last, "last")


def _named(labels: Sequence[str | None], rows: list[int], kind: Literal["reserved", "special"]) -> Reserved:
    ends = f"{cut_label(labels[rows[0]])} to {cut_label(labels[rows[-1]])}"
    return Reserved(np.array(rows), f"{len(rows)} {kind} tokens found in the tokenizer ({ends})", kind)


def are_labels(labels: Any, least: int = 0) -> bool:
    """Whether `labels` is a list of texts and None, with `least` entries or more."""
    if isinstance(labels, str | bytes | dict) or not hasattr(labels, "__len__"):
        return False
    try:
        return len(labels) >= least and all(one is None or isinstance(one, str) for one in labels)
    except TypeError:  # an array without axes, which has no length
        return False


def named_reserved(labels: Sequence[str | None]) -> list[int]:
    """The rows whose token is reserved by its name, however few."""
    return [i for i, label in _begun(labels) if _RESERVED.fullmatch(label)]


def special_rows(labels: Sequence[str | None]) -> list[int]:
    """The rows of special tokens, trained or not: those the tokenizer marks (`Tokens.special`), and `<pad>`, `[CLS]`,
    `<|im_start|>` and the like by name."""
    marked = getattr(labels, "special", frozenset[int]())
    named = {i for i, label in _begun(labels) if _SPECIAL.fullmatch(label) and not _RESERVED.fullmatch(label)}
    return sorted(named | (marked - set(named_reserved(labels))))


def _begun(labels: Sequence[str | None]) -> list[tuple[int, str]]:
    """The labels that the expressions may match, with their places. Most labels begin otherwise, which saves time."""
    return [(i, label) for i, label in enumerate(labels) if label and label[0] in "[<mM"]


class GroupMoments:
    """One `Moments` for each group, filled in one pass. Takes the memory of one `Moments` times the groups."""

    def __init__(self, count: int, d: int, *, second: bool = False, unit_second: bool = False) -> None:
        whole_number(count, "count", 0, MOST_GROUPS)
        self._moments = [Moments(d, second=second, unit_second=unit_second) for _ in range(count)]
        if self._moments:
            self.work_with(self._moments[0])

    def work_with(self, other: Moments) -> None:
        """As `Moments.work_with`."""
        for m in self._moments:
            m.work_with(other)

    def update(self, block: Array, groups: Array) -> None:
        """Add rows (n, D) with the group of each, int64 (n,) from 0 up, -1 for none."""
        starts = np.flatnonzero(np.diff(groups, prepend=-2))
        values, different = groups[starts], np.unique(groups)
        parts: Iterable[Array] = np.split(block, starts[1:])  # views of runs
        if len(values) > len(different):
            values, parts = different, (block[groups == group] for group in different)
        for group, part in zip(values.tolist(), parts, strict=True):
            if group >= 0:
                self._moments[group].update(part)

    def absorb(self, other: "GroupMoments") -> "GroupMoments":
        """The moments of both, in the memory of this object."""
        for k, m in enumerate(other._moments):
            if m.n:
                self._moments[k] = self._moments[k].absorb(m) if self._moments[k].n else m
        return self

    def finish(self) -> list[Moments]:
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
) -> list[tuple[Measurement, ...]]:
    """Every measure for every group of rows.

    Args:
        measures: functions of `Moments`.
        groups: the group of each row from 0 up, -1 for none, (N,); by default bins of `bin_size` consecutive ids.
        row_measures: functions of a group's Rows and Moments, such as `measure.partition_isotropy`, which read the rows
            again.
        second, unit_second: as for `Moments`. Bins keep one group's sums in memory at a time, given groups keep all.
    Returns a tuple of readings for each group, `row_measures` last.
    """
    if whole_number(bin_size, "bin_size") < 1:
        raise InputError(f"expected bins of at least one row, got {bin_size}: 1,000 is customary")
    rows, measures, row_measures = as_samples(rows), _functions(measures), _functions(row_measures)
    kinds, readings, (n, d) = {"second": second, "unit_second": unit_second}, [], rows.shape
    with counting_nonfinite(rows):
        if groups is None:
            members = iter(np.split(np.arange(n), range(bin_size, n, bin_size)))
            starts = range(0, n, bin_size)
            sums: Iterable[Moments] = (_bin(rows, i, min(i + bin_size, n), Moments(d, **kinds)) for i in starts)
        else:
            groups = _checked(groups, n)
            of_groups = GroupMoments(int(groups.max()) + 1, d, **kinds)
            for block, part in zip(rows.blocks(), np.split(groups, range(GRID, len(groups), GRID)), strict=True):
                of_groups.update(block, part)
                del block
            sums = of_groups.finish()
            members = (np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1))
        for m, indices in zip(sums, members, strict=True):
            of_both = ((measures, (m,)), (row_measures, (SelectedRows(rows, indices), m)))
            pairs = [(function, of) for functions, of in of_both for function in functions]
            readings.append(tuple(read(getattr(one, "__name__", "measure"), one, *of) for one, of in pairs))
    return readings


def _functions(given: Iterable[Callable[..., Measurement]]) -> tuple[Callable[..., Measurement], ...]:
    functions = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(map(callable, functions)):
        raise InputError(f"expected a list of measures, got {shown(given)}: pass for instance [measure.mean_cosine]")
    return functions


def _checked(given: Any, n: int) -> Array:
    groups = flat_array(given)
    if groups.shape != (n,) or groups.dtype.kind not in "iu":
        got = f"{groups.dtype} of shape {groups.shape}"
        raise InputError(f"expected integer groups of shape ({n},), got {got}: give one group per row")
    if groups.min() < -1 or groups.max() >= MOST_GROUPS:
        got = f"{groups.min()} to {groups.max()}: number them from 0"
        raise InputError(f"expected groups from -1 (none) up to {MOST_GROUPS:,}, got {got}")
    return groups.astype(np.int64)


def _bin(rows: Rows, first: int, last: int, m: Moments) -> Moments:
    for start in range(first, last, GRID):
        m.update(rows.read(start, min(start + GRID, last)))
    return m.finish()
