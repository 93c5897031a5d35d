"""Do rare tokens differ from frequent tokens? Readings of groups by frequency, with intervals."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from uncone.arguments import finite_number, shown, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.projections import UnitSums, project
from uncone.measure.reading import counts_for, flat_array
from uncone.moments import Moments, inverse, row_norms
from uncone.records.text import counted
from uncone.records.tokens import Difference, Estimate, FrequencyGroup, FrequencyGroups
from uncone.roles import are_ranks
from uncone.rows import Array, as_samples
from uncone.threads import on_one_thread

FREQUENT_SHARE, RARE_SHARE = 0.3, 0.2  # Of all rows, or of the tokens that occur (Yu et al. 2022)
FEWEST_ROWS = 10  # With fewer rows in a group a standard error means little, and no interval is given
CONFIDENCE = 0.95
_ROUNDING = 1e-5  # of sums over pairs, which come from float32 products
NAMES = ("frequent", "medium", "rare", "reserved", "never_seen")
_SHOWN = (0, 1, 2, 4, 3)  # the order of the groups in a result
_PAIRS = ((1, 0), (2, 0), (2, 1), (4, 2), (3, 2), (3, 4))
_Reading = Literal["mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common"]
_READINGS: tuple[_Reading, ...] = get_args(_Reading)


@dataclass(frozen=True)
class Membership:
    groups: Array  # of each row, int64 (N,): 0 frequent, 1 medium, 2 rare, 3 reserved, 4 never seen (with counts)
    by: Literal["count", "id", "rank"]
    definition: str


def frequency_membership(
    n: int, reserved: Any = None, counts: Any = None, *, shares: tuple[float, float] = (FREQUENT_SHARE, RARE_SHARE)
) -> Membership:
    """Group rows by count: frequent (the first 30%), medium, rare (the last 20%) (Yu et al. 2022); reserved rows apart.

    With `counts` (N,) the shares are of the tokens that occur, and tokens that never occur form a group of their own.
    Equal counts stay in one group: the rare group ends where its size is nearest to 20%, the frequent group begins
    where its size is nearest to 30%. With two counts or more neither is empty: where most tokens occur once, these
    tokens are the rare group, and the medium group may be empty. With one count all tokens are medium.

    Without counts rows are ranked by id. With "ranks" the ids are in order of frequency. `reserved` holds row numbers
    or a mask, `shares` the shares of frequent and of rare rows. Raises InputError: counts of another length, negative,
    or all zero.
    """
    whole_number(n, "n", 0)
    reserved = flat_array(np.zeros(0, np.int64) if reserved is None else reserved)
    are_numbers = reserved.ndim == 1 and reserved.dtype.kind in "iu" and bool(((reserved >= 0) & (reserved < n)).all())
    if reserved.size and not are_numbers and not (reserved.dtype == np.bool_ and reserved.shape == (n,)):
        expected = f"row numbers from 0 to {n - 1} or a mask ({n},)"
        raise InputError(f"expected {expected}, got {shown(reserved)}: name the rows")
    by: Literal["count", "id", "rank"] = "id" if counts is None else "rank" if are_ranks(counts) else "count"
    counts = flat_array(counts) if by == "count" else None
    fits = counts is None or (n > 0 and counts.dtype.kind in "iuf" and counts.shape == (n,))
    if not fits or (counts is not None and not (float(counts.min()) >= 0 and 0 < float(counts.max()) < math.inf)):
        got = f"shape {tuple(counts.shape)}: count the tokens by id"
        raise InputError(f"expected {counted(n, 'count')} from 0 up, not all of them 0, got {got}")
    groups = np.zeros(n, np.int64)
    if counts is not None:
        groups[counts == 0] = 4
    if reserved.size:
        groups[reserved] = 3
    others = np.flatnonzero(groups == 0)
    if counts is None:
        rare, frequent = round(shares[1] * len(others)), round(shares[0] * len(others))
        groups[others[frequent:]] = 1
        groups[others[len(others) - rare :]] = 2
    else:
        groups[others] = _cut_between(counts[others], *shares)
    return Membership(groups, by, _definition(by, *shares) + "; reserved rows apart" * bool(reserved.size))


def _cut_between(counts: Array, frequent_share: float, rare_share: float) -> Array:
    """The group of each token that occurs; equal counts share a group."""
    values, place, sizes = np.unique(counts, return_inverse=True, return_counts=True)
    rarer, n = sizes.cumsum()[:-1], len(counts)  # how many are at or below each cut between two counts
    if not len(rarer):
        return np.ones(n, np.int64)
    rare = int(np.abs(rarer - rare_share * n).argmin())
    frequent = rare + int(np.abs(n - rarer[rare:] - frequent_share * n).argmin())
    return np.select([np.arange(len(values)) <= rare, np.arange(len(values)) > frequent], [2, 0], 1)[place.reshape(-1)]


def _definition(by: Literal["count", "id", "rank"], frequent: float, rare: float) -> str:
    first, between, last = f"{frequent:.0%}", f"{1 - frequent - rare:.0%}", f"{rare:.0%}"
    if by == "count":
        of = f"about the first {first} of the tokens that occur, the next {between}, and the last {last}"
        return f"{of} (Yu et al. 2022), ranked by count and cut where counts differ"
    how = {
        "id": "id, because no counts were given (low ids are assumed to be frequent tokens)",
        "rank": "row number, because the rows were declared to be in order of frequency",
    }
    of = f"the first {first} of the rows, the next {between}, and the last {last}"
    return f"{of} (Yu et al. 2022), ranked by {how[by]}"


def compare_groups(
    rows: Any,
    membership: Membership,
    *,
    counts: Any = None,
    pairs: "PairSums | None" = None,
    confidence: float = CONFIDENCE,
) -> FrequencyGroups:
    """Measure frequent, medium, rare, never seen and reserved rows, and their differences, with normal intervals.

    Each group gets its mean cosine, its mean norm, and its mean cosines to the reserved rows and to the common
    direction (the direction of the sum of all unit rows). The rows are read twice. The standard error of the mean
    cosine is the delete-one jackknife in closed form (Efron & Stein 1981), with a_i = u_i . S:

        SE^2 = (n - 1)/n (2 / ((n - 1)(n - 2)))^2 sum_i (a_i - mean a)^2

    In a group without any common direction this error is up to sqrt(2) times too large. Intervals of the cosine to the
    reserved rows account for the rows of both groups; they treat the common direction as known.

    Args:
        membership: from `frequency_membership`.
        counts: (N,), for the occurrences and the range of counts in each group.
        pairs: `PairSums.of(moments)`, which give each group its `excess` and `chance`.
    """
    rows = as_samples(rows)
    n, counts = rows.shape[0], counts_for(counts, rows.shape[0])
    if not isinstance(membership, Membership):
        raise InputError(f"expected a membership from frequency_membership, got {shown(membership)}: group these rows")
    if membership.groups.shape != (n,):
        got = f"{tuple(membership.groups.shape)}: group these rows"
        raise InputError(f"expected a group for each of {counted(n, 'row')}, got {got}")
    unit = UnitSums(membership.groups, len(NAMES), rows.shape[1])
    for block in rows.blocks():
        unit.update(block, row_norms(block))
        del block
    products = project(rows, group_axes(unit))
    return compare_projected(unit, products, membership, counts=counts, pairs=pairs, confidence=confidence)


def group_axes(unit: UnitSums) -> Array:
    """The sum of unit rows of each group, and the common direction, (D, 6)."""
    total = unit.sums.sum(0)
    length = math.sqrt(np.square(total).sum())
    return np.concatenate([unit.sums, total[None] / (length or 1.0)]).T


@on_one_thread
def compare_projected(
    unit: UnitSums,
    products: Array,
    membership: Membership,
    *,
    counts: Any = None,
    pairs: "PairSums | None" = None,
    confidence: float = CONFIDENCE,
) -> FrequencyGroups:
    """As `compare_groups`, from the products (N, 6) of the rows with `group_axes(unit)`."""
    if not 0 < finite_number(confidence, "confidence") < 1:
        raise InputError(f"expected a confidence between 0 and 1, got {confidence}: 0.95 is customary")
    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    readings = _Readings(unit, products, z)
    present = [g for g in _SHOWN if len(readings.norms[g])]
    groups = []
    for g in present:
        estimates = {which: readings.estimate(*readings.read(which, g)) for which in _READINGS}
        excess, chance = _against_chance(estimates["mean_cosine"].value, readings.n[g], pairs)
        occurrences, between, n = None, None, len(readings.norms[g])
        if counts is not None:
            own = counts[membership.groups == g]
            occurrences = int(own.sum(dtype=np.float64))  # a sum of int64 may wrap
            between = int(own.min()), int(own.max())
        of = FrequencyGroup(NAMES[g], n, occurrences, **estimates, excess=excess, chance=chance, counts=between)
        groups.append(of)
    differences = tuple(
        Difference(NAMES[a], NAMES[b], which, estimate)
        for a, b in _PAIRS
        for which in _READINGS
        if a in present and b in present and (estimate := readings.difference(which, a, b)).value is not None
    )
    return FrequencyGroups(membership.by, membership.definition, confidence, tuple(groups), differences)


def _against_chance(cosine: float | None, n: int, pairs: "PairSums | None") -> tuple[float | None, float | None]:
    """By how many deviations a group exceeds random groups of n rows, and Cantelli's bound on the chance of that."""
    if pairs is not None and cosine is not None and 2 <= n < pairs.n:
        mean, deviation = pairs.null(n)
        if deviation:
            excess = (cosine - mean) / deviation
            return excess, 1 / (1 + max(0.0, excess) ** 2)
    return None, None


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs i != j of unit rows, h_ij = u_i . u_j: of h, of h^2, and over i of (sum_j h_ij)^2."""

    n: int
    total: float
    squares: float
    row_squares: float

    @classmethod
    @on_one_thread
    def of(cls, m: Moments) -> "PairSums":
        """From unweighted moments with `unit_second=True`."""
        first, _ = m.unit_sums()
        if not m.has("unit_second") or m.weight != m.n:
            raise InputError("expected unweighted sums of u u', got other moments: sum with unit_second=True")
        n, square = m.n - m.zero_rows, float(first @ first)
        squares, along = m.unit_squares()
        return cls(n, square - n, squares - n, along - 2 * square + n)

    def null(self, size: int) -> tuple[float, float]:
        """Mean and standard deviation of the mean cosine of `size` rows drawn at random, without replacement.

        With p_k = size^(k) / N^(k) (falling powers), the sum T over the drawn pairs has E T^2 = 2 p_2 Q + 4 p_3 (R - Q)
        + p_4 (H^2 - 2 Q - 4 (R - Q)), where H, Q and R are `total`, `squares` and `row_squares`: two ordered pairs
        share both rows in 2 ways, one row in 4, or no row. The deviation is 0 where it is no more than rounding.
        """
        if not 2 <= size <= self.n:
            raise UndefinedMeasure(f"expected from 2 to {self.n} rows with a direction, got {size}: nothing to compare")
        p, share = [1.0], 1.0
        for k in range(4):
            share *= (size - k) / (self.n - k) if self.n > k else 0.0
            p.append(share)
        one = self.row_squares - self.squares
        none = self.total**2 - 2 * self.squares - 4 * one
        square = 2 * p[2] * self.squares + 4 * p[3] * one + p[4] * none
        variance = square - (p[2] * self.total) ** 2
        rounding = _ROUNDING * (4 * p[3] * abs(self.row_squares) + 2 * p[2] * abs(self.squares))
        deviation = math.sqrt(variance) / (size * (size - 1)) if variance > rounding else 0.0
        return self.total / (self.n * (self.n - 1)), deviation


class _Readings:
    """Readings of groups from a = (u . S_1, ..., u . S_K, u . c) of every unit row u, with S the groups' sums of unit
    rows and c the common direction."""

    def __init__(self, unit: UnitSums, products: Array, z: float) -> None:
        a, members = products * inverse(unit.norms)[:, None], [unit.groups == g for g in range(len(NAMES))]
        self.norms, self._z = [unit.norms[member] for member in members], z
        of_groups = [a[member & (unit.norms > 0)] for member in members]
        self.n = [len(x) for x in of_groups]  # Rows that have a direction
        self._between = unit.sums @ unit.sums.T
        self._to_common = [float(x[:, -1].sum()) for x in of_groups]
        none = np.zeros((a.shape[1], a.shape[1]))
        self._covariance = [np.cov(x.T) if len(x) > 1 else none for x in of_groups]

    def read(self, which: _Reading, g: int) -> tuple[float | None, float | None]:
        n, reserved, spread = self.n[g], self.n[3], self._covariance[g].diagonal()
        value, variance, fewest = None, 0.0, n
        if which == "mean_norm":
            norms, fewest = self.norms[g], len(self.norms[g])
            value, variance = float(norms.mean()), float(norms.var(ddof=1)) / fewest if fewest > 1 else 0.0
        elif which == "cosine_to_common" and n > 0:
            value, variance = self._to_common[g] / n, float(spread[-1]) / n
        elif which == "cosine_to_reserved" and n > 0 and reserved > 0 and g != 3:
            of_reserved = float(self._covariance[3][g, g]) / (n**2 * reserved)
            value = float(self._between[g, 3]) / (n * reserved)
            variance, fewest = float(spread[3]) / (reserved**2 * n) + of_reserved, min(n, reserved)
        elif which == "mean_cosine" and n > 1:
            value = min(1.0, (float(self._between[g, g]) - n) / (n * (n - 1)))
            variance = float(spread[g]) * 4 / (n * max(1, n - 2) ** 2)
        return value, variance if fewest >= FEWEST_ROWS else None

    def difference(self, which: _Reading, a: int, b: int) -> Estimate:
        (first, of_first), (second, of_second) = self.read(which, a), self.read(which, b)
        if first is None or second is None:
            return Estimate(None)
        variance = None if of_first is None or of_second is None else of_first + of_second
        if variance is not None and which == "cosine_to_reserved":  # the same reserved rows are in both
            variance -= 2 * float(self._covariance[3][a, b]) / (self.n[a] * self.n[b] * self.n[3])
        return self.estimate(first - second, variance)

    def estimate(self, value: float | None, variance: float | None) -> Estimate:
        if value is None or variance is None:
            return Estimate(value)
        reach = self._z * math.sqrt(max(0.0, variance))
        return Estimate(value, (value - reach, value + reach))
