"""Whether judged pairs fit their vectors where row numbers, counted from 0, are the ids."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from uncone.records.text import listing, number
from uncone.rows import Array, Rows

_MOST_PAIRS = 4096
_SURE = 4.0  # standard errors: noise reaches it in fewer than one of 10,000 data sets


@dataclass(frozen=True)
class PairedRows:
    """One side of judged pairs, with the row of each pair and the option for its ids."""

    name: str
    rows: Rows
    at: Array
    option: str
    is_numbered: bool  # whether row numbers are the ids: neither the source nor the user names others

    def numbers(self) -> Array:
        ids = self.rows.ids
        return np.arange(self.rows.shape[0]) if ids is None else np.asarray(ids, np.int64)

    def shifted(self, by: int) -> tuple[Array, Array]:
        """The rows of the ids plus `by`, and which of them are there."""
        numbers = self.numbers()
        wanted = numbers[self.at] + by
        place = np.searchsorted(numbers, wanted).clip(max=len(numbers) - 1)
        return place, numbers[place] == wanted


def remarks_on_numbers(sides: Iterable[PairedRows], judged: str) -> tuple[str, str]:
    """A note that row numbers are the ids, and a caution where they do not look counted from 0; "" for none.

    The caution has two reasons. Ids shifted by one raise the cosine of matching pairs by four standard errors, with
    pairs that share a row on either side counted as one, and by a quarter of a standard deviation. Or the number 0
    never occurs, and the rows do not show that the numbers fit.

    `sides` are the two of the matching pairs, or one whose rows are paired with each other, with both ends in `at`,
    (P, 2). `judged` names the judgements."""
    given = tuple(sides)
    numbered = [side for side in given if side.is_numbered]
    if not numbered:
        return "", ""
    names, options = (listing([getattr(side, what) for side in numbered]) for what in ("name", "option"))
    note = f"The ids of the {names} in {judged} are read as row numbers, counted from 0. Use {options} for other ids."
    shift, fits = _best_shift(given)
    if shift:
        way = f"give the ids with {options}, or correct its numbers."
        return note, f"{shift} Row numbers are counted from 0, so {judged} looks shifted: {way}"
    without = [side.name for side in numbered if (side.numbers()[side.at] != 0).all()]
    if fits or not without:
        return note, ""
    never = f"The number 0 never occurs among the ids of the {listing(without)} in the matching pairs of {judged}."
    doubt = "Row numbers are counted from 0, so if these ids are counted from 1, every score is wrong."
    return note, f"{never} {doubt} Give the ids with {options}."


def _best_shift(sides: tuple[PairedRows, ...]) -> tuple[str, bool]:
    """The shift by one that fits better beyond noise, in words, else ""; and whether every shift fits worse."""
    n = len(sides[0].at)
    kept = np.arange(n) if n <= _MOST_PAIRS else np.arange(_MOST_PAIRS) * (n - 1) // (_MOST_PAIRS - 1)
    sides = tuple(replace(side, at=side.at[kept]) for side in sides)
    as_given = _cosines(sides, (0,) * len(sides))
    rises, best = [], ("", 0.0)
    for way in product(*((0, -1, 1) if side.is_numbered else (0,) for side in sides)):
        if not any(way):
            continue
        cosines = _cosines(sides, way)
        there = ~np.isnan(cosines) & ~np.isnan(as_given)
        rise = _standard_errors(np.where(there, cosines - as_given, 0.0), sides)
        rises.append(rise)
        before, after = as_given[there], cosines[there]
        if rise > max(_SURE, best[1]) and after.mean() - before.mean() > after.std() / 4:
            ways = [(side.name, "raised" if by > 0 else "lowered") for side, by in zip(sides, way, strict=True) if by]
            shifts = [f"the numbers of {name} {how} by 1" for name, how in ways]
            was, now = (number(float(x.mean()), limits=(-1, 1), digits=2) for x in (before, after))
            best = f"Matching pairs have a mean cosine of {was} as numbered, and {now} with {listing(shifts)}.", rise
    return best[0], all(rise < -_SURE for rise in rises)


def _cosines(sides: tuple[PairedRows, ...], way: tuple[int, ...]) -> Array:
    """The cosine of each pair with its ids shifted; NaN where a row is missing or zero."""
    n = len(sides[0].at)
    rows, there = [], np.ones(n, np.bool_)
    for side, by in zip(sides, way, strict=True):
        at, known = side.shifted(by)
        there &= known.reshape(n, -1).all(axis=1)
        rows += [_units(side.rows, end) for end in at.reshape(n, -1).T]
    cosines: Array = np.einsum("ij,ij->i", *rows, dtype=np.float64)
    cosines[~there] = np.nan
    return cosines


def _units(rows: Rows, at: Array) -> Array:
    wanted, places = np.unique(at, return_inverse=True)
    x = rows.take(wanted).astype(np.float64)
    with np.errstate(all="ignore"):
        x /= np.abs(x).max(axis=1, keepdims=True)  # so that no square overflows
        units: Array = (x / np.linalg.norm(x, axis=1, keepdims=True))[places]
    return units


def _standard_errors(change: Array, sides: tuple[PairedRows, ...]) -> float:
    """The sum of changes over its standard error under a mean of 0; the least over groups by either side."""
    found = []
    for end in (end for side in sides for end in side.at.reshape(len(change), -1).T):
        sums = np.bincount(np.unique(end, return_inverse=True)[1], weights=change)
        spread = float(np.sqrt(np.square(sums).sum()))
        found.append(float(sums.sum()) / spread if spread else 0.0)
    return min(found, key=abs)
