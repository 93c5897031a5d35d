"""Which units of work take far longer than others."""

import bisect
import time
import warnings

PATIENCE, SLOW = 30.0, 4.0  # seconds, and times the median: a unit that takes longer is named


class Stragglers:
    """Warns once of a unit that takes far longer than those before it took."""

    def __init__(self) -> None:
        self._began, self._took, self._told = dict[int, float](), list[float](), set[int]()

    def begin(self, place: int) -> None:
        self._began[place] = time.monotonic()

    def end(self, place: int) -> None:
        bisect.insort(self._took, time.monotonic() - self._began.pop(place))

    def look(self, place: int, name: str) -> None:
        """`place` is waited for."""
        so_far, usual = time.monotonic() - self._began[place], self._took[len(self._took) // 2] if self._took else 0.0
        if self._took and so_far > max(PATIENCE, SLOW * usual) and place not in self._told:
            self._told.add(place)
            warnings.warn(
                f"{name} has taken {so_far:.0f} s so far; other parts take {usual:.2g} s. uncone waits for it",
                stacklevel=2,
            )
