"""Parts of results: readings, findings, bins, spectra, norms, the picture, and the rows of a fit."""

import array
import base64
import heapq
import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal

from uncone.errors import InputError, UndefinedMeasure, expect
from uncone.records.brief import part
from uncone.records.text import counted, headline, plural

Level = Literal["severe", "warning", "note", "healthy", "structure", "no_effect"]
"""Defects (a note is a small defect), no defect, what all trained tables have, and what changes no probability."""
DEFECTS: tuple[Level, ...] = ("severe", "warning")
_LARGEST_SCALE = 1e290
_LARGEST_INTEGER = 2**53  # beyond this, JavaScript reads a different number


@part
class Measurement:
    """One number with its meaning."""

    name: str  # see [measures](measures.md)
    value: float | None  # `null` exactly when the measure is undefined here
    reason: str = ""  # why it is undefined, else empty
    range: tuple[float | None, float | None] = (None, None)  # lowest and highest, `null` where unbounded
    better: Literal["higher", "lower", "neither"] = "neither"  # `higher`, `lower` or `neither`
    reference: float | None = None  # what an isotropic cloud of the same size gives
    interval: tuple[float, float] | None = None  # an interval around the value, where a measure has one
    n: int = 0  # rows it was measured on
    d: int = 0  # columns
    centered: bool | None = None  # whether the mean row was subtracted; `null` where this does not apply
    details: Mapping[str, Any] = field(default_factory=dict)  # whatever else the measure reports
    warnings: tuple[str, ...] = ()  # why the value may mislead here
    definition: str = ""  # the meaning of the number in one sentence
    reads_badly: str = ""  # ends the sentence "reads badly when ...": when the value misleads, on any rows

    @property
    def distance(self) -> float | None:
        """The value minus the reference, or None where either is unknown."""
        return None if self.value is None or self.reference is None else self.value - self.reference

    def __float__(self) -> float:
        if self.value is None:
            raise UndefinedMeasure(f"{self.name} is undefined: {self.reason}")
        return self.value

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self), digits)

    def __format__(self, spec: str) -> str:
        """The sentence, or only the value with a `spec` such as ".3f"."""
        return format(float(self), spec) if spec else str(self)

    def __str__(self) -> str:
        return headline(self.name, self.value, self.reason, self.reference, self.range)

    def to_row(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        row = {"measure": self.name, "value": self.value, "reference": self.reference, "better": self.better}
        return row | {"low": low, "high": high, "n": self.n, "d": self.d, "reason": self.reason}


@part
class Finding:
    """A cause in the user's words, the evidence for it, and what to do about it."""

    cause: str  # one of the causes above, `no_defect`, or `not_measured`; `healthy` in older files
    level: Level  # `severe`, `warning`, `note`, `healthy`, `structure` or `no_effect`
    summary: str  # the cause in words
    evidence: tuple[str, ...] = ()  # the numbers it rests on
    repair: str = ""  # what to do; empty where there is nothing to do
    # the repair as a line to paste into a shell, or into Python for rows in memory; empty where there is none
    command: str = ""
    measures: tuple[str, ...] = ()  # the readings it rests on
    # the size of a defect, from 0 up: a cosine, or a share of rows, of variance or of lost dimensions
    extent: float | None = None

    @property
    def is_defect(self) -> bool:
        return self.level in DEFECTS


@part
class OddRows:
    """Rows that are zero, equal to an earlier one, or at least ten times as long as the median row."""

    kind: Literal["zero", "equal", "giant"]  # `zero`, `equal` (to an earlier row) or `giant`
    n: int  # such rows, not counting rows that are reserved by name
    reserved: int = 0  # zero rows among the reserved ones
    ids: tuple[int, ...] = ()  # the first few rows, or the longest giant rows
    labels: tuple[str | None, ...] = ()  # their tokens
    length: float | None = None  # length of the longest row, in median lengths
    sampled: int = 1  # above 1, `n` is estimated from one row in this many, and a note of the subject says so
    twins: tuple[int, ...] = ()  # for equal rows, the first row that each of `ids` equals
    twin_labels: tuple[str | None, ...] = ()  # the tokens of `twins`
    most: tuple[int, int] | None = None  # of equal rows: the most common row (its first copy), and its count
    most_label: str | None = None  # the token of that row


@part
class RandomScores:
    """The score of two random rows of a collection: their cosine."""

    mean: float  # the mean score of all pairs of different rows, exact
    reached: float  # the score that 1 in 100 of `pairs` reaches
    pairs: int  # the number of pairs behind `reached`
    rows: int  # the rows of these pairs: all rows that are not zero, or a random sample
    seed: int | None = None  # seed of the sample; `null` where all rows were used


@part
class NearDuplicates:
    """Rows whose cosine to a row that is not equal to them is at least `bar`."""

    n: int  # rows with a near-duplicate
    asked: int  # rows whose nearest neighbours were searched
    bar: float  # the cosine from which rows count as near-duplicates
    usual: float  # the median cosine of a row to its tenth nearest row
    share: float  # the distance at the bar, as a share of the distance at `usual`
    ids: tuple[int, ...] = ()  # the later row of each of the closest pairs, the closest first
    labels: tuple[str | None, ...] = ()  # the names of `ids`
    twins: tuple[int, ...] = ()  # the earlier row of each pair
    twin_labels: tuple[str | None, ...] = ()  # the names of `twins`
    cosines: tuple[float, ...] = ()  # the cosine of each pair
    largest: tuple[int, int] | None = None  # the first row of the largest group that such pairs link, and its size
    largest_label: str | None = None  # the name of that row


@part
class Group:
    """Readings of a bin of ids, or of the reserved rows. Undefined readings are None."""

    name: str  # a name to show
    start: int  # first id
    stop: int  # one after the last id; 0 for the reserved rows, which form no span
    n: int  # rows
    zero_rows: int  # rows that are all zero
    norm_mean: float | None  # mean row length
    norm_std: float | None  # its standard deviation
    mean_cosine: float | None  # among the rows of the group
    cosine_to_reserved: float | None  # mean cosine to the reserved rows
    reserved_rows: int = 0  # how many of the rows are reserved


@part
class Groups:
    """Rows in bins of ids, and the reserved rows that each bin is compared with."""

    bin_size: int  # ids in a bin
    reserved: str  # which rows are the reserved ones
    reserved_group: Group | None  # the readings of the reserved rows
    bins: tuple[Group, ...]  # bins in the order of ids, empty ones left out
    reserved_by_name: bool = True  # whether the tokenizer names them; if not, the last ids are used instead
    # what the tokenizer names: `reserved` tokens, which no text uses, or `special` tokens, which may be trained
    named: Literal["reserved", "special"] = "reserved"

    @property
    def called(self) -> str:
        """The rows that bins are compared with."""
        return (
            {"reserved": "reserved rows", "special": "special tokens"}[self.named]
            if self.reserved_by_name
            else "the last ids"
        )

    def __post_init__(self) -> None:
        for bin in self.bins:
            expect(0 <= bin.start < bin.stop, f"bins from a start to a later stop, got {bin.start} to {bin.stop}")


@part
class Spectrum:
    """Eigenvalues of the rows, and of an isotropic cloud (Marchenko-Pastur quantiles)."""

    raw: tuple[float, ...]  # eigenvalues of the second moment, largest first
    centered: tuple[float, ...]  # eigenvalues of the covariance
    isotropic: tuple[float, ...]  # eigenvalues of an isotropic cloud with the same trace, rows and columns


@part
class Norms:
    """The Euclidean norms of the rows: `counts[i]` of them are in [edges[i], edges[i + 1])."""

    smallest: float  # length of the shortest row
    mean: float  # mean length
    largest: float  # length of the longest row
    edges: tuple[float, ...]  # edges of the histogram, one more than counts
    counts: tuple[int, ...]  # rows in each bar

    def __post_init__(self) -> None:
        edges = len(self.counts) + 1 if self.counts else 0
        rise = len(self.edges) == edges and all(a <= b for a, b in itertools.pairwise(self.edges))
        needed = f"{counted(edges, 'rising edge')} for {counted(len(self.counts), 'count')} of norms"
        expect(rise, f"{needed}, got {len(self.edges)}")


@part
class Fitted:
    """The rows of a fit. The same numbers have the same digest in any file format."""

    name: str  # the name under which the rows were given
    n: int  # rows
    d: int  # columns
    # digest of the rows as little-endian float32 (float64 if they are); `null` where only their sums were seen
    sha256: str | None = None
    # digest of their weights; `null` where every row counted once, `in the moments` where only weighted sums were
    # seen
    weights: str | None = None


@part
class Picture:
    """The rows along the first three singular directions, raw and centred. Arrays are row-major."""

    total: int  # number of rows in the matrix
    ids: tuple[int, ...]  # the rows pictured, all or a sample
    labels: tuple[str | None, ...]  # the token of each pictured row
    groups: tuple[int, ...]  # the group of each pictured row, an index into `group_names`
    group_names: tuple[str, ...]  # names to show
    raw: str  # base64 of little-endian int16, three per row: coordinates along the first three singular directions
    raw_scale: float  # multiply `raw` by it
    centered: str  # the same with the mean row subtracted, along the centred rows' own directions
    centered_scale: float  # multiply `centered` by it
    norms: str | None = None  # base64 of little-endian uint16, one per row: the Euclidean length of the row as stored
    norm_scale: float = 1.0  # multiply `norms` by it
    counts: tuple[int, ...] | None = None  # how often the token of each row occurs in the text that was counted

    def __post_init__(self) -> None:
        n, names, small = len(self.ids), len(self.group_names), "of at least 0 and below 2^53 in the picture"
        labels, groups = len(self.labels), len(self.groups)
        sides = f"{counted(n, 'label')} and {plural(n, 'group')} in the picture, got {labels} and {groups}"
        expect(labels == groups == n, sides)
        whole = all(0 <= i < _LARGEST_INTEGER for i in (self.total, *self.ids))
        expect(whole, f"ids and a total {small}, got others: the file was edited")
        named = all(0 <= group < names for group in self.groups)
        expect(named, f"groups below {names} in the picture, got {max(self.groups, default=0)}")
        scales = (self.raw_scale, self.centered_scale, self.norm_scale)
        ends = f"scales of the picture above 0 and below {_LARGEST_SCALE:g}"
        expect(all(0 < s < _LARGEST_SCALE for s in scales), f"{ends}, got {', '.join(map(str, scales))}")
        for name in ("raw", "centered"):
            rows = f"{counted(n, 'row')} of three int16 in the picture's {name!r} coordinates"
            expect(len(_decode(getattr(self, name), name)) == 6 * n, f"{rows}, got another length")
        of_norms = 2 * n if self.norms is None else len(_decode(self.norms, "norms"))
        expect(of_norms == 2 * n, f"{counted(n, 'norm')} of one uint16 in the picture, got another length")
        if self.counts is not None:
            there = len(self.counts)
            beyond = ", some out of range" if there == n else ""
            fit = there == n and all(0 <= often < _LARGEST_INTEGER for often in self.counts)
            expect(fit, f"{counted(n, 'count')} {small}, got {there}{beyond}")

    def coordinates(self, *, centered: bool) -> list[tuple[float, float, float]]:
        return _points(*((self.centered, self.centered_scale) if centered else (self.raw, self.raw_scale)))

    def outermost(self, most: int) -> list[tuple[str, list[str]]]:
        """The tokens of each group with any tokens, farthest from the mean row first."""
        away = [math.hypot(*point) for point in self.coordinates(centered=True)]
        named: list[list[int]] = [[] for _ in self.group_names]
        for i, group in enumerate(self.groups):
            if self.labels[i] is not None:
                named[group].append(i)
        farthest = [heapq.nlargest(most, of, key=away.__getitem__) for of in named]  # ties in the order of the ids
        of_group = zip(self.group_names, farthest, strict=True)
        return [(name, [self.labels[i] or "" for i in of]) for name, of in of_group if of]

    def lengths(self) -> list[float] | None:
        """The lengths of the rows, to within half of `norm_scale`; None where unknown."""
        if self.norms is None:
            return None
        return [value * self.norm_scale for value in _integers(self.norms, "H", "norms")]


@lru_cache(maxsize=2)  # a page needs them several times, and again for a table that is tied to its head
def _points(text: str, scale: float) -> list[tuple[float, float, float]]:
    flat = [value * scale for value in _integers(text, "h", "coordinates")]
    return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _integers(text: str, kind: str, name: str) -> list[int]:
    values = array.array(kind, _decode(text, name))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        got = "got text that does not decode: cut or edited?"
        raise InputError(f"expected base64 in the picture's {name!r}, {got}") from error
