"""Which rows do not belong to the cloud? Zero, equal and giant rows."""

from copy import deepcopy
from typing import Any, Literal

import numpy as np

from uncone.arguments import whole_number
from uncone.measure.norms import NormProfile
from uncone.measure.points import runs
from uncone.moments import cuts
from uncone.records.parts import OddRows
from uncone.records.text import cut_label
from uncone.rows import Array, Rows
from uncone.threads import share_rows

GIANT = 10.0  # in medians; the longest row of 33 published token tables without a remedy has 5.7 mean norms
MOST_KEYS = 2**20  # hashes kept; from more rows, a share chosen by the hash, which keeps equal rows together
_LISTED = 8


class OddRowFinder:
    """Finds odd rows among n rows that come block by block. Takes 16 bytes per row, up to `MOST_KEYS` rows.

    Rows are equal when their hashes agree.
    """

    def __init__(self, d: int, n: int) -> None:
        whole_number(d, "d", 1, 2**31)
        whole_number(n, "n", 0)
        self._factors = hash_factors(d)
        self._keys = np.empty(min(n, MOST_KEYS), np.uint64)
        self._key_rows = np.empty(len(self._keys), np.uint32 if n <= 2**32 else np.int64)
        self._times = np.empty_like(self._key_rows)  # how many rows have the hash
        self._filled = self._zeros = self._reserved_zeros = self._equal = 0
        self._zero_rows, self._longest = list[int](), list[tuple[float, int]]()
        self._equal_rows = list[tuple[int, int]]()  # with the first row that each equals
        self.every = 1  # one row in this many was compared with the others

    def add_rows(self, start: int, block: Array, zero: Array, reserved: Array) -> None:
        """Add the rows (n, D) from number `start` on, as they are stored: centred rows may be equal only by rounding.
        `zero` and `reserved` (bool, (n,)) mark rows."""
        there = np.flatnonzero(zero & ~reserved) + start
        self._zeros += len(there)
        self._reserved_zeros += int((zero & reserved).sum())
        self._zero_rows += there[: _LISTED - len(self._zero_rows)].tolist()
        ordinary = np.flatnonzero(~zero & ~reserved)
        self._keep(hash_rows(block, self._factors)[ordinary], ordinary + start, np.ones_like(ordinary))

    def add_norms(self, start: int, norms: Array, odd: Array) -> None:
        """Add the norms (n,) of rows from `start` on; rows that are `odd` (bool, (n,)) do not count as giants."""
        ordinary = np.flatnonzero(~odd)
        lengths = norms[ordinary]
        top = np.flatnonzero(lengths >= np.sort(lengths)[-_LISTED:][:1])
        self._longest += zip(lengths[top].tolist(), (ordinary[top] + start).tolist(), strict=True)
        self._longest = _longest(self._longest)

    def without_norms(self) -> "OddRowFinder":
        """A copy that forgets the longest rows."""
        other = deepcopy(self)
        other._longest = []
        return other

    def absorb(self, other: "OddRowFinder") -> "OddRowFinder":
        """The rows of both; the other's rows come later."""
        self._zeros, self._reserved_zeros = self._zeros + other._zeros, self._reserved_zeros + other._reserved_zeros
        self._zero_rows = [*self._zero_rows, *other._zero_rows][:_LISTED]
        self._longest = _longest([*self._longest, *other._longest])
        while self.every < other.every:
            self._halve()
        self._equal += other._equal
        self._equal_rows = sorted([*self._equal_rows, *other._equal_rows])[:_LISTED]
        self._keep(*other._kept())
        return self

    def _halve(self) -> None:
        self.every *= 2
        self._fill(0, *self._chosen(*self._kept()))

    def _keep(self, keys: Array, numbers: Array, times: Array) -> None:
        """Drops half of the hashes whenever there are too many different rows."""
        room = len(self._keys)
        keys, numbers, times = self._chosen(keys, numbers, times)
        while self._filled + len(keys) > room:
            self._count_equal()
            if self._filled > room // 2 or len(keys) > room // 2:
                self._halve()
                keys, numbers, times = self._chosen(keys, numbers, times)
        self._fill(self._filled, keys, numbers, times)

    def _kept(self) -> tuple[Array, Array, Array]:
        return self._keys[: self._filled], self._key_rows[: self._filled], self._times[: self._filled]

    def _fill(self, start: int, *new: Array) -> None:
        self._filled = start + len(new[0])
        for kept, part in zip(self._kept(), new, strict=True):
            kept[start:] = part

    def _chosen(self, keys: Array, *of_keys: Array) -> tuple[Array, ...]:
        if self.every == 1:
            return keys, *of_keys
        chosen = keys < np.uint64(2**64 // self.every)
        return tuple(one[chosen] for one in (keys, *of_keys))

    def _count_equal(self, named: Array | None = None) -> None:
        """Counts equal rows and keeps only the first of each."""
        keys, numbers, times = self._kept()
        if len(keys) == 0:
            return
        order = np.argsort(keys, kind="stable")
        starts, run, place = runs(keys[order])
        later = place > 0 if named is None else (place > 0) & ~named[numbers[order]]
        again, firsts = order[later], order[starts]
        pairs = np.stack([numbers[again], numbers[firsts[run[later]]]], 1)
        listed = pairs[np.argsort(pairs[:, 0])[:_LISTED]].tolist()
        self._equal += len(again) * self.every
        self._equal_rows = sorted([*self._equal_rows, *map(tuple, listed)])[:_LISTED]
        times[firsts] = np.add.reduceat(times[order], starts)
        firsts = np.sort(firsts)
        self._fill(0, keys[firsts], numbers[firsts], times[firsts])

    @property
    def notes(self) -> tuple[str, ...]:
        compared = f"1 row in {self.every:,}, chosen by its numbers, was compared with the others"
        many = f"because there are more than {MOST_KEYS:,} rows. The number of equal rows is an estimate."
        return (f"{compared}, {many}",) if self.every > 1 else ()

    def find(self, rows: Rows, norms: NormProfile, named: Array | None = None) -> tuple[OddRows, ...]:
        """`norms` holds the norms of all rows, and `rows` their ids and labels. Rows that are `named` (bool, (N,))
        elsewhere do not count as equal rows."""
        median, found = norms.quantile(0.5), list[OddRows]()

        def ids_of(numbers: list[int]) -> tuple[int, ...]:
            return tuple(numbers if rows.ids is None else rows.ids[numbers].tolist())

        def labels_of(numbers: list[int]) -> tuple[str | None, ...]:
            labels = rows.labels if numbers else None
            return tuple(None if labels is None else cut_label(labels[i]) for i in numbers)

        def add(kind: Literal["zero", "equal", "giant"], n: int, first: list[int], **more: Any) -> None:
            found.append(OddRows(kind, n, ids=ids_of(first), labels=labels_of(first), **more))

        if self._zeros or self._reserved_zeros:
            add("zero", self._zeros, self._zero_rows, reserved=self._reserved_zeros)
        self._count_equal(named)
        if self._equal:
            again, twins = map(list, zip(*self._equal_rows, strict=True))
            _, numbers, times = self._kept()
            most = int(
                (times if named is None else np.where(named[numbers], 0, times)).argmax()
            )  # the first of several
            (first,), (label,) = (of([int(self._key_rows[most])]) for of in (ids_of, labels_of))
            more = {"twins": ids_of(twins), "twin_labels": labels_of(twins), "most_label": label}
            add("equal", self._equal, again, sampled=self.every, most=(first, int(self._times[most])), **more)
        giant = [row for norm, row in self._longest if norm >= GIANT * median > 0]
        if giant:
            n = max(len(giant), norms.count_from(GIANT * median)) if len(giant) == _LISTED else len(giant)
            add("giant", n, giant, length=self._longest[0][0] / median)
        return tuple(found)


def _longest(rows: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(rows, key=lambda one: (-one[0], one[1]))[:_LISTED]


def hash_factors(d: int) -> Array:
    return np.random.default_rng(20221).integers(0, 2**64, (2, 2 * d), dtype=np.uint64)


def hash_rows(block: Array, factors: Array) -> Array:
    """Two hashes of 32 bits of each row, uint64 (n,): the upper halves of sums of its 32-bit words times random numbers
    of 64 bits, equal for different rows with chance 2^-64 (Dietzfelbinger 1996, multiply and shift). Zeros give 0."""
    half, keys = np.uint64(32), np.empty(len(block), np.uint64)

    def work(words: Array, keys: Array) -> None:
        for at in cuts(len(words), max(1, 2**17 // words.shape[1])):
            wide = words[at].astype(np.uint64)
            first, second = (np.einsum("ij,j->i", wide, of[: wide.shape[1]]) for of in factors)
            np.bitwise_or(first >> half << half, second >> half, out=keys[at])

    share_rows(work, np.ascontiguousarray(block).view(np.uint32), keys)
    return keys
