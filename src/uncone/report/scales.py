"""What the rows of the picture can be coloured by, and what each colour means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uncone.records import Picture
from uncone.report.markup import shown, shown_count

_OUTER = 0.01  # norms are coloured from the 1st to the 99th percentile: a single long row would leave all others one colour
_STEPS = 16  # colours of a scale; 0 stands for no value on it


@dataclass(frozen=True)
class Scale:
    """Something that rows are coloured by: its name in the page, in the menu and in words, the values (None:
    no value), what the first and the last colour stand for, and how a value is printed (as markup)."""

    name: str
    title: str
    words: str
    values: Sequence[float | None]
    ends: tuple[float, float]
    text: Callable[[float], str]

    def shades(self) -> list[int]:
        """A colour from 1 to 16 for each row, 0 where it has no value."""
        low, width = self.ends[0], self.ends[1] - self.ends[0] or 1.0
        return [
            0 if value is None else 1 + round(min(1.0, max(0.0, (value - low) / width)) * (_STEPS - 1))
            for value in self.values
        ]


def colour_scales(picture: Picture) -> list[Scale]:
    """By id, and by norm and frequency where the record knows them and rows differ: nothing stands in for
    what is unknown."""
    ids = (min(picture.ids), max(picture.ids))
    scales = [
        Scale("id", "row id", "Row id, linear", picture.ids, ids, lambda value: shown_count(round(value)))
    ]
    norms = picture.lengths()
    if norms is not None and max(norms) > min(norms):
        words = "Norm of the row as stored, linear from the 1st to the 99th percentile; beyond, the colour of the end"
        scales.append(Scale("norm", "norm", words, norms, _percentiles(norms), shown))
    if picture.counts is not None and any(picture.counts):
        logarithms = [math.log(count) if count else None for count in picture.counts]
        seen = [value for value in logarithms if value is not None]
        words = "Occurrences, logarithmic" + ("; grey: none" if 0 in picture.counts else "")
        ends = (min(seen), max(seen))
        scales.append(
            Scale(
                "count",
                "frequency",
                words,
                logarithms,
                ends,
                lambda value: shown_count(round(math.exp(value))),
            )
        )
    return scales


def _percentiles(norms: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(norms)
    cut = int(_OUTER * (len(ordered) - 1))
    low, high = ordered[cut], ordered[-1 - cut]
    return (low, high) if high > low else (ordered[0], ordered[-1])
