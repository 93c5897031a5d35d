"""Which rows are none of a cloud: zero rows, rows equal to others, rows far longer than all others."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uncone.arguments import whole_number
from uncone.measure.norms import NormProfile
from uncone.records import OddRows
from uncone.records.text import cut_label
from uncone.rows import Array, Rows
from uncone.threads import share_rows

GIANT = 10.0
"""In medians. The longest row of 33 published token tables without a remedy has at most 5.7 mean norms."""
MOST_KEYS = 2**19
"""So many rows have their hash kept; of more rows, a share by the value of the hash, equal rows together."""
_LISTED = 8
_SEED = 20221
_MOST_COLUMNS = 2**31


class OddRowFinder:
    """Finds them in rows that come block by block. Memory is bounded whatever the number of rows.

    Rows are equal when two sums of their 32-bit words agree, each with odd random factors and modulo 2^32:
    two different rows agree by chance once in about 2^60 runs. The upper half of each word is folded onto its
    lower half first, which is empty in rows that were stored in 16 bits.
    """

    def __init__(self, d: int) -> None:
        whole_number(d, "d", 1, _MOST_COLUMNS)
        factors = np.random.default_rng(_SEED).integers(0, 2**32, (2, 2 * d), dtype=np.uint32)
        self._factors = factors | np.uint32(1)
        self._keys, self._key_rows = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._every, self._zeros, self._reserved_zeros = 1, 0, 0
        self._zero_rows, self._longest = list[int](), list[tuple[float, int]]()

    def update(self, start: int, block: Array, norms: Array, zero: Array, reserved: Array) -> None:
        """Add the rows (n, D) from number `start` on, with their norms.

        `zero` and `reserved` (bool, (n,)) mark the zero rows and those reserved by name.
        """
        self._zeros += int((zero & ~reserved).sum())
        self._reserved_zeros += int((zero & reserved).sum())
        there = np.flatnonzero(zero & ~reserved) + start
        self._zero_rows += there[: _LISTED - len(self._zero_rows)].tolist()
        ordinary = np.flatnonzero(~zero & ~reserved)
        lengths = norms[ordinary]
        top = np.flatnonzero(lengths >= np.sort(lengths)[-_LISTED:][:1])
        self._longest += zip(lengths[top].tolist(), (ordinary[top] + start).tolist(), strict=True)
        self._longest = sorted(self._longest, key=lambda one: (-one[0], one[1]))[:_LISTED]
        keys = np.empty(len(block), np.uint64)
        share_rows(self._hash, np.ascontiguousarray(block).view(np.uint32), keys)
        self._keep(keys[ordinary], ordinary + start)

    def _hash(self, words: Array, keys: Array) -> None:
        words = words ^ (words >> np.uint32(16))
        first, second = (np.einsum("ij,j->i", words, of[: words.shape[1]]) for of in self._factors)
        np.bitwise_or(first.astype(np.uint64) << np.uint64(32), second, out=keys)

    def _keep(self, keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> None:
        """Those whose hash is a multiple of `_every`, which doubles whenever there are too many."""
        chosen = _chosen(keys, self._every)
        self._keys = np.concatenate([self._keys, keys[chosen]])
        self._key_rows = np.concatenate([self._key_rows, numbers[chosen]])
        while len(self._keys) > MOST_KEYS:
            self._every *= 2
            chosen = _chosen(self._keys, self._every)
            self._keys, self._key_rows = self._keys[chosen], self._key_rows[chosen]

    def find(self, rows: Rows, norms: NormProfile) -> tuple[OddRows, ...]:
        """What there is of each kind; `norms` are those of all rows, and `rows` knows ids and labels."""
        median, found = norms.quantile(0.5), list[OddRows]()

        def add(kind: Literal["zero", "equal", "giant"], n: int, first: list[int], **more: Any) -> None:
            labels, ids = rows.labels if first else None, rows.ids
            named = tuple(None if labels is None else cut_label(labels[i]) for i in first)
            given = tuple(first if ids is None else ids[first].tolist())
            found.append(OddRows(kind, n, ids=given, labels=named, **more))

        if self._zeros or self._reserved_zeros:
            add("zero", self._zeros, self._zero_rows, reserved=self._reserved_zeros)
        order = np.argsort(self._keys, kind="stable")
        keys = self._keys[order]
        again = keys[1:] == keys[:-1]
        if again.any():
            numbers = np.sort(self._key_rows[order[1:][again]])[:_LISTED].tolist()
            add("equal", int(again.sum()) * self._every, numbers, sampled=self._every)
        giant = [row for norm, row in self._longest if norm >= GIANT * median > 0]
        if giant:
            n = max(len(giant), norms.count_from(GIANT * median)) if len(giant) == _LISTED else len(giant)
            add("giant", n, giant, length=self._longest[0][0] / median)
        return tuple(found)


def _chosen(keys: npt.NDArray[np.uint64], every: int) -> npt.NDArray[np.bool_]:
    mixed = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)  # Murmur's finaliser, one round
    chosen: npt.NDArray[np.bool_] = (mixed >> np.uint64(40)) % np.uint64(every) == 0
    return chosen
