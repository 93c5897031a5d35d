"""The rows on either side of a pair, mean and variance of scores, and labelled pairs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uncone.calibration.scores.counting import Floats, Ints, Rows32
from uncone.errors import InputError
from uncone.measure.odd_rows import hash_factors, hash_rows
from uncone.memory import uninitialised
from uncone.model.open import open_at_hand
from uncone.moments import Moments, cuts, row_norms
from uncone.records.parts import Fitted
from uncone.regular import number_in, table_lines
from uncone.roles import Path_, Progress
from uncone.rows import GRID, Rows
from uncone.rows.parts import Engine
from uncone.threads import on_one_thread
from uncone.transforms.fitting import DigestedRows, fitted_on

Prints = npt.NDArray[np.uint64]
Metric = Literal["cosine", "inner_product"]
METRICS = ("cosine", "inner_product")
_MOST_BYTES = 2**30  # of rows of one side that are held in memory
_FORM = "tab-separated columns: id of the query or first row, id of the row, and a label (without labels, all match)"
_NAMES = {"query-id", "query_id", "corpus-id", "corpus_id", "query", "document", "id1", "id2", "sentence1", "sentence2"}


@dataclass(frozen=True)
class Side:
    """All rows of one side, and their sums: of unit rows for the cosine."""

    rows: DigestedRows
    moments: Moments
    metric: Metric

    @property
    def fitted(self) -> Fitted:
        return fitted_on(self.rows)

    @property
    def n(self) -> int:
        """Rows that have a score: for the cosine, not zero."""
        return self.moments.n - (self.moments.zero_rows if self.metric == "cosine" else 0)

    def sums(self) -> tuple[Floats, Floats]:
        """Sum of v, (D,), and of v v', (D, D), over the rows v that are compared."""
        m = self.moments
        first, second = (m.unit_first, m.unit_second) if self.metric == "cosine" else (m.first, m.second)
        assert first is not None
        assert second is not None
        return first, second

    def take(self, numbers: Ints) -> Rows32:
        """The rows at `numbers` (int64, in any order) as compared: float32, of length 1 for the cosine."""
        out = uninitialised((len(numbers), self.rows.shape[1]), np.float32)
        places = np.argsort(numbers)
        for cut in cuts(len(numbers), GRID):
            here = places[cut]
            wanted, repeats = np.unique(numbers[here], return_inverse=True)
            x = self.rows.take(wanted)
            with np.errstate(over="ignore"):  # of what float32 does not hold
                if self.metric == "cosine":
                    norms = row_norms(x)
                    x /= np.where(norms == 0, 1.0, norms).astype(x.dtype)[:, None]
                out[here] = x[repeats]
        return out


def open_side(
    spec: Any, metric: Metric, what: str, skip_nonfinite: bool, progress: Progress | None, engine: Engine | None = None
) -> Side:
    rows = DigestedRows(open_at_hand(spec, what, skip_nonfinite=skip_nonfinite, progress=progress, engine=engine))
    n, d = rows.shape
    tick = None if progress is None else lambda done: progress(f"summing {what}", done, n)
    of_metric: Any = {"second": False, "unit_second": True}
    if metric != "cosine":
        of_metric = {"unit_first": False, "shift": np.zeros(d)}
    side = Side(rows, Moments.of(rows, progress=tick, **of_metric), metric)
    if side.n < 2:
        got = f"{side.n} of {n} in {rows.name} (rows that are all zero have no cosine)"
        raise InputError(f"expected at least two {what} with a score, got {got}: thousands are best")
    return side


@dataclass(frozen=True)
class Labels:
    """Pairs (query or first row, row) by place, int64 (K,) each; which of them match; and their scores."""

    source: str
    first: Ints
    second: Ints
    matches: npt.NDArray[np.bool_]
    scores: Floats = field(default_factory=lambda: np.empty(0))
    dropped: int = 0

    def matching(self) -> tuple[Ints, Ints]:
        return self.first[self.matches], self.second[self.matches]


@dataclass(frozen=True)
class Sides:
    """Without queries rows are paired with each other."""

    rows: Side
    queries: Side | None
    labels: Labels | None = None

    def scored(self, labels: Labels) -> Labels:
        """The pairs that have a score, with their scores; at least one must match."""
        parts = []
        for cut in cuts(len(labels.first), GRID):
            a, b = (self.queries or self.rows).take(labels.first[cut]), self.rows.take(labels.second[cut])
            scores = np.einsum("ij,ij->i", a, b, dtype=np.float64)
            if self.rows.metric == "cosine":
                scores[~(a.any(axis=1) & b.any(axis=1))] = np.nan
            parts.append(scores)
        values = np.concatenate(parts)
        kept = ~np.isnan(values)
        if not (labels.matches & kept).any():
            got = f"{labels.source}, got none: all are zero"
            raise InputError(f"expected a match of two rows with a direction in {got}")
        first, second, matches = labels.first[kept], labels.second[kept], labels.matches[kept]
        return Labels(labels.source, first, second, matches, values[kept], int((~kept).sum()))


def draw(side: Side, most: int, seed: int) -> tuple[Rows32, Ints]:
    """At most `most` rows (n, D) in random order, as they are compared, and their row numbers (n,)."""
    n = side.rows.shape[0]
    numbers = np.random.default_rng(seed).choice(n, min(n, most), replace=False)
    x = side.take(numbers)
    if side.n < side.moments.n:
        has_score = x.any(axis=1)
        x, numbers = x[has_score], numbers[has_score]
    if len(x) < 2:
        raise InputError("expected two rows with a direction among the rows drawn, got fewer: drop zero rows")
    return x, numbers


def how_many(n: int, queries: int | None, most_pairs: int, d: int) -> tuple[int, int | None]:
    """Rows and queries that make at most `most_pairs` pairs, and `_MOST_BYTES` on either side."""
    most_rows = max(2, _MOST_BYTES // (4 * d))
    n = min(n, most_rows)
    if queries is None:
        return min(n, (1 + math.isqrt(1 + 8 * most_pairs)) // 2), None
    queries = min(queries, most_rows)
    if n * queries <= most_pairs:
        return n, queries
    queries = min(queries, max(math.isqrt(most_pairs), most_pairs // n))
    return max(2, min(n, most_pairs // queries)), max(2, queries)


@dataclass(frozen=True)
class Floor:
    pairs: int
    mean: float
    variance: float


@on_one_thread
def floor_of(sides: Sides) -> Floor:
    """Mean and variance of the score over all pairs except labelled matches, in closed form.

    With S = sum v and G = sum v v' over the rows v, within one set of n rows:
        E[s] = (|S|^2 - sum |v|^2) / (n (n - 1)), E[s^2] = (|G|_F^2 - sum |v|^4) / (n (n - 1)).
    Between m queries and n rows:
        E[s] = S_q . S / (m n), E[s^2] = <G_q, G>_F / (m n).
    """
    side, queries = sides.rows, sides.queries
    first, second = side.sums()
    if queries is None:
        n = side.n
        squares = fourths = float(n) * (side.metric == "cosine")  # of unit rows
        if not squares:
            for _, block in side.rows.numbered():
                lengths = np.einsum("ij,ij->i", block, block, dtype=np.float64)
                squares += float(lengths.sum())
                fourths += float(np.square(lengths).sum())
                del block
        pairs = n * (n - 1) // 2
        total = (float(first @ first) - squares) / 2
        total_square = (float(np.vdot(second, second)) - fourths) / 2
    else:
        other_first, other_second = queries.sums()
        pairs = side.n * queries.n
        total, total_square = float(first @ other_first), float(np.vdot(second, other_second))
    if sides.labels is not None:
        matching = sides.labels.scores[sides.labels.matches]
        pairs -= len(matching)
        total -= float(matching.sum())
        total_square -= float(np.square(matching).sum())
    check_pairs(pairs)
    mean = total / pairs
    return Floor(pairs, mean, max(0.0, total_square / pairs - mean**2))


def check_pairs(pairs: int) -> None:
    if pairs < 1:
        raise InputError("expected random pairs as well as labelled matches, got none: give the whole collection")


@on_one_thread
def alignment(side: Side, queries: Side) -> float:
    """How far rows and queries share directions: the cosine of G_q / tr G_q - I/D and G / tr G - I/D, 1 for equal
    second moments, about 0 for two unrelated models."""
    shapes = []
    for one in (side, queries):
        second = one.sums()[1]
        trace = float(second.diagonal().sum())
        excess = second / (trace or 1.0)
        excess.flat[:: len(second) + 1] -= 1 / len(second)
        shapes.append(excess)
    norms = math.prod(map(float, map(np.linalg.norm, shapes)))
    return float(np.vdot(*shapes)) / norms if norms else 0.0


def _fingerprints(rows: Rows) -> Prints:
    factors = hash_factors(rows.shape[1])
    return np.concatenate([hash_rows(block + 0.0, factors) for block in rows.blocks()])  # -0.0 becomes 0.0


def equal_pairs(sides: Sides) -> int:
    """How many random pairs are of two rows that are equal to the bit."""
    mine = _fingerprints(sides.rows.rows)
    others = mine if sides.queries is None else _fingerprints(sides.queries.rows)
    kinds, counts = _kinds(mine, sides.rows.metric)
    if sides.queries is None:
        equal = counts * (counts - 1) // 2
    else:
        other_kinds, times = _kinds(others, sides.rows.metric)
        _, here, there = np.intersect1d(kinds, other_kinds, assume_unique=True, return_indices=True)
        equal = counts[here] * times[there]
    if sides.labels is not None:
        first, second = sides.labels.matching()
        return int(equal.sum()) - int((others[first] == mine[second]).sum())
    return int(equal.sum())


def _kinds(prints: Prints, metric: Metric) -> tuple[Prints, npt.NDArray[np.int64]]:
    """The different fingerprints and their counts; for the cosine without rows of zeros, whose fingerprint is 0."""
    kinds, counts = np.unique(prints, return_counts=True)
    return (kinds[kinds != 0], counts[kinds != 0]) if metric == "cosine" else (kinds, counts)


def read_labels(
    path: Path_, first: Mapping[str, int], second: Mapping[str, int] | None, *, match_at: float | None
) -> Labels:
    """Read a table of pairs: two ids and, if not every pair matches, a label (a match from `match_at` on, or above 0).
    `first` and `second` give the place of each id; without `second`, pairs are within one set, in either order."""
    matches, known = dict[tuple[int, int], bool](), (first, first if second is None else second)
    for where, fields in _lines(path):
        unknown = [name for name, places in zip(fields, known, strict=False) if name not in places]
        if unknown:
            ids = "ids are rows' own labels or numbers from 0, or the lines of a file given with --ids and --query-ids"
            raise InputError(f"expected the id of a row in {where}, got {unknown[0][:60]!r}: {ids}")
        a, b = (places[name] for name, places in zip(fields, known, strict=False))
        if second is None and a == b:
            raise InputError(f"expected a pair of different rows in {where}, got a row with itself: drop it")
        pair = (a, b) if second is not None else (min(a, b), max(a, b))
        value = number_in(fields[2]) if len(fields) == 3 else 1.0
        if value is None or not math.isfinite(value):
            raise InputError(f"expected a numeric label in {where}, got {fields[2][:60]!r}: above 0 matches")
        match = value > 0 if match_at is None else value >= match_at
        if matches.setdefault(pair, match) != match:
            raise InputError(f"expected one label per pair, got another in {where}: decide if the pair matches")
    if not any(matches.values()):
        bar = "above 0" if match_at is None else f"of at least {match_at:g}"
        raise InputError(f"expected pairs that match in {path}, got {len(matches)} pairs and none with a label {bar}")
    places_a, places_b = np.array(list(matches), np.int64).T.copy()
    return Labels(Path(path).name, places_a, places_b, np.array(list(matches.values())))


def _lines(path: Path_) -> Iterator[tuple[str, list[str]]]:
    """The place and the fields of each line that is not empty, without a line of names."""
    width = 0
    for number, line in enumerate(table_lines(path, how=f"give a table of {_FORM}"), start=1):
        fields = [field.strip() for field in line.split("\t")]
        # a line of names has a label that is not a number, or usual names for both ids
        has_names = number_in(fields[2]) is None if len(fields) == 3 else {f.lower() for f in fields} <= _NAMES
        if (number == 1 and has_names) or not any(fields):
            continue
        where = f"line {number} of {path}"
        if len(fields) not in (2, 3) or (width and len(fields) != width):
            raise InputError(f"expected {width or '2 or 3'} columns in {where}, got {len(fields)}: {_FORM}")
        width = len(fields)
        yield where, fields
