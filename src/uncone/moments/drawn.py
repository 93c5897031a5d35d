"""A sample of the rows, and how many rows each sampled row represents: intervals of readings come from it."""

from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np

from uncone.moments.cell import cuts
from uncone.rows import Array
from uncone.threads import share

FEWEST, MOST = 1024, 4096
WIDE = 8192  # columns; of wider rows fewer are kept
NUMBERS = 2**19  # in all kept rows; fewer columns leave room for more rows
_STRIP = 256  # rows that a core's cache holds


class DrawnRows:
    """At most 1,024 random rows (up to 4,096 with few columns, 256 with very many), drawn as they come: priority
    sampling (Duffield, Lund & Thorup 2007).

    Rows far from the mean of the first rows are drawn more often, by 1 + (|y|^2 / mean |y|^2)^2, because a few such
    rows may decide how certain a reading of squares is. The sum of weight f(x) over the drawn rows is an unbiased
    estimate of the sum of f(x) over all rows. Where there are few rows, all are drawn.
    """

    def __init__(self, d: int, seed: int = 0) -> None:
        self.most = max(FEWEST, min(MOST, NUMBERS // d)) if d <= WIDE else max(256, FEWEST * WIDE // d)
        self._random = np.random.default_rng(seed)
        self._scale = self._threshold = 0.0
        self._sizes, self._ranks = np.zeros(0), np.zeros(0)
        self._parts: list[Array] = []

    def add(self, squares: Array, take: Callable[[Array], Array]) -> None:
        """Draw from the next rows, with squared lengths (n,); `take` returns the rows (k, D) at given places (k,)."""
        if len(squares) == 0:
            return
        squares = np.minimum(squares, 1e100, dtype=np.float64)
        self._scale = self._scale or float(squares.mean()) or 1.0
        sizes = 1 + np.square(np.minimum(squares / self._scale, 1e15))
        ranks = sizes / (1 - self._random.random(len(squares)))
        self._join(sizes, ranks, take, self.most // 2)

    def merge(self, other: Self) -> Self:
        """The rows drawn from both."""
        merged = type(self)(1)
        merged.most, merged._scale = self.most, self._scale
        for one in (self, other):
            merged._threshold = max(merged._threshold, one._threshold)
        for one in (self, other):
            merged._join(one._sizes, one._ranks, lambda at, of=one: of._stored()[at], 0)  # type: ignore[misc]
        return merged

    @property
    def rows(self) -> Array:
        """The rows (k, D), float32 or float64."""
        self._thin(self._ranks, 0)
        return self._stored()

    @property
    def weights(self) -> Array:
        """How many rows each drawn row represents (k,), at least 1."""
        self._thin(self._ranks, 0)
        return np.maximum(1.0, self._threshold / self._sizes) if len(self._sizes) else self._sizes

    def _join(self, sizes: Array, ranks: Array, take: Callable[[Array], Array], spare: int) -> None:
        self._thin(np.concatenate([self._ranks, ranks]), spare)
        at = np.flatnonzero(ranks > self._threshold)
        if len(at):
            self._sizes, self._ranks = np.append(self._sizes, sizes[at]), np.append(self._ranks, ranks[at])
            self._parts.append(take(at))

    def _thin(self, ranks: Array, spare: int) -> None:
        """Keep the rows with the highest of `ranks` where there are more than the limit plus `spare`."""
        ranks = ranks[ranks > self._threshold]
        if len(ranks) > self.most + spare:
            # the highest rank that is left out shows how rare the others are
            self._threshold = float(np.partition(ranks, -self.most - 1)[-self.most - 1])
        kept = self._ranks > self._threshold
        if not kept.all():
            self._parts = [self._stored()[kept]]
            self._sizes, self._ranks = self._sizes[kept], self._ranks[kept]

    def _stored(self) -> Array:
        if len(self._parts) != 1:
            self._parts = [np.concatenate(self._parts)] if self._parts else [np.zeros((0, 0), np.float32)]
        return self._parts[0]


def squares_about(x: Array, shift: Array) -> Array:
    """|x - shift|^2 of rows (n, D), in their dtype (n,)."""
    near, found = shift.astype(x.dtype), np.empty(len(x), x.dtype)

    def work(cut: slice) -> None:
        with np.errstate(all="ignore"):  # for rows whose squares leave float32
            y = x[cut] - near
            np.einsum("ij,ij->i", y, y, out=found[cut])

    share(partial(work, cut) for cut in cuts(len(x), _STRIP))
    return found
