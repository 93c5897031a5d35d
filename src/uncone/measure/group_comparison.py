"""Do rare tokens lie otherwise than frequent ones? Groups by frequency, their readings with intervals, and a permutation test."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.projections import UnitSums, project
from uncone.moments import Moments
from uncone.moments.norms import inverse
from uncone.records import Difference, Estimate, FrequencyGroup, FrequencyGroups
from uncone.records.wording import counted
from uncone.rows import as_rows
from uncone.threads import on_one_thread

Tensor = torch.Tensor
FREQUENT_SHARE, RARE_SHARE = 0.3, 0.2
"""Of all rows: the most frequent and the rarest ones (Yu et al. 2022)."""
FEWEST_ROWS = 10
"""With fewer rows than this in a group, a standard error means little and no interval is given."""
CONFIDENCE = 0.95
_ROUNDING = 1e-5  # of sums over pairs, which come from float32 products
NAMES = ("frequent", "medium", "rare", "reserved")
_PAIRS = ((1, 0), (2, 0), (2, 1), (3, 2))
_READINGS: tuple[Literal["mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common"], ...] = (
    "mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common",
)  # fmt: skip


@dataclass(frozen=True)
class Membership:
    """The group of each row, int64 (N,): 0 frequent, 1 medium, 2 rare, 3 reserved; and how they were cut."""

    groups: Tensor
    by: Literal["count", "id"]
    definition: str


def frequency_membership(n: int, reserved: Tensor | None = None, counts: Tensor | None = None) -> Membership:
    """Frequent rows (the first 30 %), medium (50 %) and rare ones (the last 20 %), ranked by count; reserved rows apart.

    The shares are those of Yu et al. 2022, of the rows that are not reserved. Among equal counts the lower id is taken for
    the more frequent one. Without counts rows are ranked by id, which is by frequency in many vocabularies, not in all.

    Args:
        n: the number of rows.
        reserved: the reserved rows, int64, in a group of their own; none where it is None.
        counts: (N,), how often the token of each row occurs.

    Raises:
        InputError: counts of another length, negative, or all zero.
    """
    if counts is not None and (
        n == 0 or counts.shape != (n,) or float(counts.min()) < 0 or not float(counts.max()) > 0
    ):
        raise InputError(
            f"expected {counted(n, 'count')} from 0 up, not all of them 0, got shape {tuple(counts.shape)}: count the tokens by id"
        )
    groups = torch.zeros(n, dtype=torch.int64)
    if reserved is not None:
        groups[reserved] = 3
    others = (groups == 0).nonzero().flatten()
    if counts is not None:
        others = others[counts[others].argsort(descending=True, stable=True)]
    frequent, rare = round(FREQUENT_SHARE * len(others)), round(RARE_SHARE * len(others))
    groups[others[frequent:]] = 1
    groups[others[len(others) - rare :]] = 2
    ranked = (
        "count"
        if counts is not None
        else "id, because no counts were given: low ids are taken for frequent tokens"
    )
    shares = f"the first {FREQUENT_SHARE:.0%} of the rows, the next {1 - FREQUENT_SHARE - RARE_SHARE:.0%}, and the last {RARE_SHARE:.0%}"
    apart = "" if reserved is None else "; reserved rows apart"
    return Membership(
        groups, "id" if counts is None else "count", f"{shares} (Yu et al. 2022), ranked by {ranked}{apart}"
    )


def compare_groups(
    rows: Any,
    membership: Membership,
    *,
    counts: Tensor | None = None,
    pairs: "PairSums | None" = None,
    confidence: float = CONFIDENCE,
) -> FrequencyGroups:
    """The readings of frequent, medium, rare and reserved rows with intervals, and their differences.

    For each group: the mean cosine over its pairs, its mean norm, its mean cosine to the reserved rows, and to the common
    direction (that of the sum of all unit rows). Nothing is sampled; the rows are read twice.

    **Intervals** are normal, at `confidence`, for the rows of a group as a random sample of such rows. The mean cosine is the
    U-statistic (|S|^2 - n) / (n (n - 1)); its standard error is the delete-one jackknife in closed form: with a_i = u_i . S,
    leaving row i out changes it by -2 (a_i - mean a) / ((n - 1)(n - 2)), so that
    SE^2 = (n - 1)/n (2 / ((n - 1)(n - 2)))^2 sum (a_i - mean a)^2. It is conservative: in a group without any common
    direction up to sqrt(2) too wide (Efron & Stein 1981). The cosine to the reserved rows varies with the rows of both groups,
    and differences of it share the reserved ones; this is in their intervals. The common direction is taken as given.

    Args:
        rows: Rows, or a tensor or array (N, D).
        membership: from `frequency_membership`.
        counts: (N,), for the occurrences in each group.
        pairs: sums over all pairs of rows (`PairSums.of(moments)`): with them each group has its `excess` and `chance`.
        confidence: of the intervals, between 0 and 1.

    Raises:
        InputError: membership or counts of other rows, a confidence outside (0, 1), rows that are not finite.
    """
    rows = as_rows(rows)
    if membership.groups.shape != (rows.shape[0],) or (
        counts is not None and counts.shape != (rows.shape[0],)
    ):
        raise InputError(
            f"expected a group for each of {counted(rows.shape[0], 'row')}, got {tuple(membership.groups.shape)}: cut these rows"
        )
    unit = UnitSums.of(rows, membership.groups, len(NAMES))
    products = project(rows, group_axes(unit))
    return compare_projected(unit, products, membership, counts=counts, pairs=pairs, confidence=confidence)


def group_axes(unit: UnitSums) -> Tensor:
    """The axes that rows are projected on, float64 (D, 5): the sum of unit rows of each group, and the common direction."""
    total = unit.sums.sum(0)
    length = float(total.norm())
    return torch.cat([unit.sums, total[None] / (length or 1.0)]).T


@on_one_thread
def compare_projected(
    unit: UnitSums, products: Tensor, membership: Membership, *, counts: Tensor | None = None,
    pairs: "PairSums | None" = None, confidence: float = CONFIDENCE,
) -> FrequencyGroups:  # fmt: skip
    """As `compare_groups`, from passes that were made: `products` (N, 5) are those of the rows with `group_axes(unit)`."""
    if not 0 < confidence < 1:
        raise InputError(f"expected a confidence between 0 and 1, got {confidence}: 0.95 is customary")
    z = math.sqrt(2) * float(torch.erfinv(torch.tensor(confidence, dtype=torch.float64)))
    sums = _Sums.of(unit, products, z)
    present = [g for g in range(len(NAMES)) if sums.rows[g] > 0]
    groups = tuple(_group(sums, g, membership, counts, pairs) for g in present)
    differences = tuple(
        Difference(NAMES[a], NAMES[b], which, estimate)
        for a, b in _PAIRS
        for which in _READINGS
        if a in present and b in present and (estimate := sums.difference(which, a, b)).value is not None
    )
    return FrequencyGroups(membership.by, membership.definition, confidence, groups, differences)


@dataclass(frozen=True)
class PairSums:
    """Sums over ordered pairs of distinct unit rows h_ij = u_i . u_j: of h, of h^2, and over rows of (sum_j h_ij)^2."""

    n: int
    total: float
    squares: float
    row_squares: float

    @classmethod
    @on_one_thread
    def of(cls, m: Moments) -> "PairSums":
        """From unweighted moments with `unit_second=True`; no pair is formed."""
        first, _ = m.unit_sums()
        if m.unit_second is None or m.weight != m.n:
            raise InputError(
                "expected unweighted moments with sums of u u', got others: sum with unit_second=True"
            )
        n, square = m.n - m.zero_rows, float(first @ first)
        along = float(first @ m.unit_second @ first)
        return cls(n, square - n, float(m.unit_second.square().sum()) - n, along - 2 * square + n)

    def null(self, size: int) -> tuple[float, float]:
        """Mean and standard deviation of the mean cosine of `size` rows drawn at random, without replacement.

        The mean is that of all rows. With p_k = size^(k) / N^(k) (falling powers), of the sum over the drawn pairs
        E T^2 = 2 p_2 Q + 4 p_3 (R - Q) + p_4 (H^2 - 2 Q - 4 (R - Q)), where H, Q and R are `total`, `squares` and `row_squares`:
        two ordered pairs share both rows in 2 ways, one row in 4, or none. The deviation is 0 where it is no more than the
        rounding of these sums, as where nearly all rows have one direction.

        Raises:
            UndefinedMeasure: fewer than two rows, or more than there are.
        """
        if not 2 <= size <= self.n:
            raise UndefinedMeasure(
                f"expected from 2 to {self.n} rows with a direction, got {size}: nothing to compare"
            )
        p, share = [1.0], 1.0
        for k in range(4):
            share *= (size - k) / (self.n - k) if self.n > k else 0.0
            p.append(share)
        one = self.row_squares - self.squares
        square = (
            2 * p[2] * self.squares + 4 * p[3] * one + p[4] * (self.total**2 - 2 * self.squares - 4 * one)
        )
        variance = square - (p[2] * self.total) ** 2
        rounding = _ROUNDING * (4 * p[3] * abs(self.row_squares) + 2 * p[2] * abs(self.squares))
        deviation = math.sqrt(variance) / (size * (size - 1)) if variance > rounding else 0.0
        return self.total / (self.n * (self.n - 1)), deviation


@dataclass(frozen=True)
class _Sums:
    """What two passes leave of K groups. `along[g]` and `products[g]` are the sums, over the rows of g, of a and of a a',
    a = (u . S_1, ..., u . S_K, u . c), S the groups' sums of unit rows and c the common direction."""

    rows: list[int]
    directed: list[int]
    norm_sum: list[float]
    norm_square: list[float]
    between: Tensor
    along: Tensor
    products: Tensor
    z: float

    @classmethod
    def of(cls, unit: UnitSums, products: Tensor, z: float) -> "_Sums":
        a = products * inverse(unit.norms)[:, None]
        members = [unit.groups == g for g in range(len(NAMES))]
        of_groups, norms = [a[member] for member in members], [unit.norms[member] for member in members]
        return cls(
            [len(n) for n in norms], [int((n > 0).sum()) for n in norms], [float(n.sum()) for n in norms],
            [float(n.square().sum()) for n in norms], unit.sums @ unit.sums.T,
            torch.stack([x.sum(0) for x in of_groups]), torch.stack([x.T @ x for x in of_groups]), z,
        )  # fmt: skip

    def estimate(self, which: str, g: int) -> Estimate:
        """One reading of one group, with its interval."""
        return self._estimate(*self._read(which, g))

    def difference(self, which: str, a: int, b: int) -> Estimate:
        """The reading of group a minus that of group b."""
        (first, of_first), (second, of_second) = self._read(which, a), self._read(which, b)
        if first is None or second is None:
            return Estimate(None)
        if of_first is None or of_second is None:
            return Estimate(first - second)
        shared = 0.0
        if (
            which == "cosine_to_reserved"
        ):  # the same reserved rows are in both: their part of the variance is that of a difference
            scale = self.directed[a] * self.directed[b] * self.directed[3]
            shared = 2 * self._covariance(3, a, b) / scale
        return self._estimate(first - second, of_first + of_second - shared)

    def _read(self, which: str, g: int) -> tuple[float | None, float | None]:
        """(value, variance)."""
        n, reserved = self.directed[g], self.directed[3]
        if which == "mean_norm":
            n = self.rows[g]
            mean = self.norm_sum[g] / n
            return mean, _variance_of_mean(self.norm_square[g] - n * mean**2, n)
        if which == "cosine_to_common" and n > 0:
            return float(self.along[g, -1]) / n, _variance_of_mean(self._covariance(g, -1, -1) * (n - 1), n)
        if which == "cosine_to_reserved" and n > 0 and reserved > 0 and g != 3:
            value = float(self.between[g, 3]) / (n * reserved)
            enough = min(n, reserved) >= FEWEST_ROWS
            of_rows = self._covariance(g, 3, 3) / (reserved**2 * n) if enough else 0.0
            return value, of_rows + self._covariance(3, g, g) / (n**2 * reserved) if enough else None
        if which == "mean_cosine" and n > 1:
            value = min(1.0, (float(self.between[g, g]) - n) / (n * (n - 1)))
            if n < FEWEST_ROWS:
                return value, None
            return value, self._covariance(g, g, g) * (n - 1) ** 2 / n * (2 / ((n - 1) * (n - 2))) ** 2
        return None, None

    def _covariance(self, g: int, i: int, j: int) -> float:
        """Of the i-th and j-th entries of a, over the rows of g that have a direction."""
        n = self.directed[g]
        if n < 2:
            return 0.0
        together = float(self.products[g, i, j]) - float(self.along[g, i]) * float(self.along[g, j]) / n
        return max(0.0, together) / (n - 1) if i == j else together / (n - 1)

    def _estimate(self, value: float | None, variance: float | None) -> Estimate:
        if value is None or variance is None:
            return Estimate(value)
        reach = self.z * math.sqrt(max(0.0, variance))
        return Estimate(value, (value - reach, value + reach))


def _variance_of_mean(squares: float, n: int) -> float | None:
    return max(0.0, squares) / (n * (n - 1)) if n >= FEWEST_ROWS else None


def _group(
    sums: _Sums, g: int, membership: Membership, counts: Tensor | None, pairs: PairSums | None
) -> FrequencyGroup:
    readings = {which: sums.estimate(which, g) for which in _READINGS}
    excess = chance = None
    cosine = readings["mean_cosine"].value
    if pairs is not None and cosine is not None and 2 <= sums.directed[g] < pairs.n:
        mean, deviation = pairs.null(sums.directed[g])
        if deviation > 0:
            excess = (cosine - mean) / deviation
            chance = 1 / (1 + excess**2) if excess > 0 else 1.0
    occurrences = (
        None if counts is None else int(counts[membership.groups == g].double().sum())
    )  # of int64 it may wrap
    return FrequencyGroup(NAMES[g], sums.rows[g], occurrences, **readings, excess=excess, chance=chance)
