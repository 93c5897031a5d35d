"""Which units of work take far longer than others."""

import time
import warnings

PATIENCE, SLOW = 30.0, 4.0  # seconds, and multiples of the longest unit before: a unit that takes longer is named


class Stragglers:
    """Warns once of a unit that takes far longer than any unit before it.

    The longest time counts, not the usual one, because it includes what a worker does before its first unit.
    """

    def __init__(self) -> None:
        self._began, self._longest, self._told = dict[int, float](), 0.0, set[int]()

    def begin(self, place: int) -> None:
        self._began[place] = time.monotonic()

    def end(self, place: int) -> None:
        self._longest = max(self._longest, time.monotonic() - self._began.pop(place))

    def look(self, place: int, name: str) -> None:
        """Called while the unit at `place` is awaited."""
        so_far = time.monotonic() - self._began[place]
        if self._longest and so_far > max(PATIENCE, SLOW * self._longest) and place not in self._told:
            self._told.add(place)
            warnings.warn(
                f"{name} has taken {so_far:.0f} s so far. The longest before it took {self._longest:.2g} s. "
                "uncone is waiting for it",
                stacklevel=2,
            )
