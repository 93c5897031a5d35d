"""A sample of the rows, and how many rows each sampled row represents: intervals of readings come from it."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import numpy as np

from uncone.memory import uninitialised
from uncone.moments.cell import cuts
from uncone.rows import Array

FEWEST, MOST = 1024, 4096
WIDE = 8192  # columns; of wider rows fewer are kept
NUMBERS = 2**19  # in all kept rows; fewer columns leave room for more rows
_FORESEEN = 2**20  # rows whose draws are looked at beforehand: a fraction of a second
_STRIP = 64  # rows that are moved at once
_NONE = np.zeros(0)


class DrawnRows:
    """At most 1,024 random rows (up to 4,096 with few columns, 256 with very many), drawn as they come: priority
    sampling (Duffield, Lund & Thorup 2007).

    Rows y far from the shift that they are summed about are drawn more often, by 1 + (|y|^2 / mean |y|^2)^2, because a
    few such rows may decide how certain a reading of squares is. The sum of weight f(x) over the drawn rows is an
    unbiased estimate of the sum of f(x) over all rows. Where there are few rows, all are drawn.
    """

    def __init__(self, d: int, seed: int = 0) -> None:
        self.most = max(FEWEST, min(MOST, NUMBERS // d)) if d <= WIDE else max(256, FEWEST * WIDE // d)
        self._random = np.random.default_rng(seed)
        self._scale = self._threshold = 0.0
        self._places(self.most + self.most // 2)

    def _places(self, count: int) -> None:
        self._rows: Array | None = None
        self._used, (self._sizes, self._ranks) = 0, np.zeros((2, count))

    def expect(self, n: int) -> None:
        """Leave out at once, of at least `n` rows to come, what cannot be kept whatever the lengths are."""
        n = min(n, _FORESEEN)
        if n <= self.most:
            return
        random, lowest = deepcopy(self._random), _NONE
        for cut in cuts(n, 2**16):
            draws = np.concatenate([lowest, 1 - random.random(cut.stop - cut.start)])
            lowest = np.partition(draws, self.most)[: self.most + 1]
        self._threshold = max(self._threshold, 1 / float(lowest[-1]))

    def add(self, squares: Array, take: Callable[[Array], Array]) -> None:
        """Draw from the next rows, with squared lengths (n,); `take` returns the rows (k, D) at given places (k,)."""
        if len(squares) == 0:
            return
        squares = np.minimum(squares, 1e100, dtype=np.float64)
        self._scale = self._scale or float(squares.mean()) or 1.0
        sizes = 1 + np.square(np.minimum(squares / self._scale, 1e15))
        ranks = sizes / (1 - self._random.random(len(squares)))
        self._join(sizes, ranks, take)

    def merge(self, other: Self) -> Self:
        """The rows drawn from both."""
        merged = type(self)(1)
        merged.most, merged._scale = self.most, self._scale
        merged._places(self.most + self.most // 2)
        merged._threshold = max(self._threshold, other._threshold)
        for one in (self, other):
            rows = one.rows
            merged._join(one._sizes[: one._used], one._ranks[: one._used], rows.__getitem__)
        return merged

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: no free places."""
        self._thin()
        held = {name: value[: self._used] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return vars(self) | held

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        rows, sizes, ranks = self._rows, self._sizes, self._ranks
        self._places(self.most + self.most // 2)
        if rows is not None:
            self._join(sizes, ranks, rows.__getitem__)

    @property
    def rows(self) -> Array:
        """The rows (k, D) in their order, float32 or float64."""
        self._thin()
        return np.zeros((0, 0), np.float32) if self._rows is None else self._rows[: self._used]

    @property
    def weights(self) -> Array:
        """How many rows each drawn row represents (k,), at least 1."""
        self._thin()
        return np.maximum(1.0, self._threshold / self._sizes[: self._used])

    def _join(self, sizes: Array, ranks: Array, take: Callable[[Array], Array]) -> None:
        at = np.flatnonzero(ranks > self._threshold)
        if self._used + len(at) > len(self._ranks):
            self._thin(ranks[at])
            at = at[ranks[at] > self._threshold]
        if len(at) == 0:
            return
        found, into = take(at), slice(self._used, self._used + len(at))
        if self._rows is None:
            self._rows = uninitialised((len(self._ranks), found.shape[1]), found.dtype)
        self._rows = self._rows.astype(np.promote_types(self._rows.dtype, found.dtype), copy=False)
        self._rows[into], self._sizes[into], self._ranks[into] = found, sizes[at], ranks[at]
        self._used = into.stop

    def _thin(self, others: Array = _NONE) -> None:
        """Keep the rows whose ranks are among the highest of theirs and those of `others`, in their order."""
        ranks = np.concatenate([self._ranks[: self._used], others])
        if len(ranks) <= self.most:
            return
        # the highest rank that is left out shows how rare the others are
        self._threshold = max(self._threshold, float(np.partition(ranks, -self.most - 1)[-self.most - 1]))
        kept = np.flatnonzero(self._ranks[: self._used] > self._threshold)
        for of in (self._rows, self._sizes, self._ranks):
            for cut in cuts(len(kept), _STRIP):  # kept rows only move forwards
                of[cut] = of[kept[cut]]  # type: ignore[index]
        self._used = len(kept)
