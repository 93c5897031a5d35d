"""Is there a common direction? Cosines between rows, and the length of the mean row."""

import math
from typing import Any

import numpy as np

from uncone.arguments import whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.influence import along, norms
from uncone.measure.reading import cosine_warnings, moments_of, reading
from uncone.moments import Moments, are_safe, inverse, row_norms
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement, RandomScores
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

REACHED = 0.01  # the share of pairs that reach the reported score: users meet such scores in every search
MOST_SCORED = 2048  # rows: their 2,096,128 pairs take a second; from more rows, this many are drawn

MEAN_COSINE = MeasureDescription(
    "mean_cosine", range=("-1/(N - 1)", 1.0), better="lower", centered=False,
    says="How alike two random rows are.",
    definition="mean cosine over all pairs of distinct rows, exact (Ethayarajh 2019)",
    formula="""\
(|S|^2 - N) / (N (N - 1)),  S = sum_i u_i
    = mean over i != j of u_i . u_j; no pair is formed
    under weights: (|S|^2 - sum_i w_i^2) / sum_{i != j} w_i w_j,  S = sum_i w_i u_i""",
    isotropic="0",
    reads_badly="one feature is much larger than the others (see `rogue_dimensions`), or when the anisotropy is "
    "symmetric about the origin, which the mean cosine cannot see. With weights, N in the range is Kish's number.",
    source="Ethayarajh 2019 samples pairs. Bis et al. 2021 give the sum (eq. 12-14), but its N belongs inside the "
    "bracket.",
)  # fmt: skip
MEAN_SHIFT = MeasureDescription(
    "mean_shift", range=(0.0, 1.0), better="lower", centered=False,
    says="How much of a row's length all rows share.",
    definition="norm of the mean row divided by the mean norm of the rows (Bis et al. 2021, Table 1)",
    formula="|mu| / mean_i |x_i|", isotropic="N^(-1/2)",
    reads_badly="a few rows are far longer than the others, because these rows decide the mean row.",
    source="Bis et al. 2021, Table 1.",
)  # fmt: skip
COSINE_BETWEEN = MeasureDescription(
    "cosine_between", range=(-1.0, 1.0), better="lower", centered=False,
    says="How close the rows of one group are to another group, for instance to the reserved rows.",
    definition="mean cosine over the pairs of a row of one group and another row of the other",
    formula="""\
(S_a . S_b - shared) / (N_a N_b - shared),  S the sums of unit rows
    shared rows are in both groups; none is compared with itself""",
    isotropic="0",
    reads_badly="a group has few rows, because their mean direction is mostly their own.",
    source="The sum of `mean_cosine`, over two groups.",
    interval="none: `compare_groups` gives intervals for groups of rows.",
)  # fmt: skip


def mean_cosine(x: Any, *, mask: Any = None) -> Measurement:
    """`MEAN_COSINE` of `x`, rows or first-order moments. All-zero rows are left out and counted.

    Undefined: fewer than two rows with a direction, or one row with all the weight.
    >>> x = [[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]  # cosines 0, 1 and 0
    >>> float(mean_cosine(x))
    0.3333333333333333
    """
    m = moments_of(x, mask, second=False)
    pairs, square = pair_weight(m), float(np.square(m.unit_sums()[0]).sum())
    value, lowest = (square - m.unit_weight_square) / pairs, max(-1.0, -m.unit_weight_square / pairs)
    rest = {"details": {"zero_rows": m.zero_rows}, "warnings": cosine_warnings(m)}
    sure = {"influence": lambda: on_mean_cosine(m, value), "least_error": least_cosine_error(m)}
    return reading(MEAN_COSINE, value, m, reference=0.0, lowest=lowest, **sure, **rest)


def on_mean_cosine(m: Moments, value: float) -> Array:
    """The influences on the mean cosine: (2 u . S - 2) / (N - 1) - 2 mean cosine, 0 for rows without a direction."""
    lengths = norms(m)
    n, cosines = m.n - m.zero_rows, along(m, m.unit_sums()[0][:, None])[:, 0] * inverse(lengths)
    return np.where(lengths > 0, 2 * (cosines - 1) / (n - 1) - 2 * value, 0.0)


def least_cosine_error(m: Moments) -> float:
    """The standard error of the mean cosine where the rows have no common direction: sqrt(2 E c^2) / N, with the mean
    over pairs of drawn rows. There the influences of single rows do not show this error."""
    if m.drawn is None or len(m.drawn.rows) < 2:
        return 0.0
    rows, scale, half = m.drawn.rows, inverse(norms(m)), len(m.drawn.rows) // 2
    with np.errstate(over="ignore"):
        if not are_safe(norms(m).astype(rows.dtype)):  # products of such rows may leave their dtype
            rows, scale = rows * scale[:, None], np.ones(len(rows))
    ends = (slice(half), slice(half, 2 * half))
    cosines = np.einsum("ij,ij->i", *(rows[end] for end in ends)) * np.multiply(*(scale[end] for end in ends))
    pairs = np.multiply(*(m.drawn.weights[end] for end in ends))
    return math.sqrt(2 * float(pairs @ np.square(cosines)) / float(pairs.sum())) / m.n


def mean_shift(x: Any, *, mask: Any = None) -> Measurement:
    """`MEAN_SHIFT` of `x`, rows or first-order moments; undefined for rows that are all zero.
    >>> x = [[3.0, 4.0], [3.0, -4.0]]  # rows of length 5 about a mean row of length 3
    >>> float(mean_shift(x))
    0.6
    """
    m = moments_of(x, mask, second=False)
    if m.mean_norm() == 0:
        raise UndefinedMeasure("expected a row that is not zero, got none: no length to compare with")
    length = float(row_norms(m.mean()[None])[0])
    details = {"mean_row_norm": length, "mean_norm": m.mean_norm()}
    shift = length / m.mean_norm()

    def influence() -> Array:
        parts = along(m, m.mean()[:, None] / length)[:, 0] if length else norms(m)
        return (parts - shift * norms(m)) / m.mean_norm()

    rest = {"details": details, "influence": influence}
    return reading(MEAN_SHIFT, shift, m, reference=1 / math.sqrt(m.effective_n), **rest)


def cosine_between(a: Any, b: Any, *, shared: int = 0) -> Measurement:
    """`COSINE_BETWEEN` groups `a` and `b`, each rows or unweighted first-order moments. `n` is the number of rows in b;
    `shared` is how many rows that are not zero are in both groups. Undefined: a group has no row with a direction.
    >>> a, b = [[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]  # cosines 0 and 1
    >>> float(cosine_between(a, b))
    0.5
    """
    a, b = moments_of(a, second=False), moments_of(b, second=False)
    if a.d != b.d:
        got = f"{a.d} and {b.d} features"
        raise InputError(f"expected two groups of rows of the same width, got {got}: compare rows of one matrix")
    n_a, n_b = a.n - a.zero_rows, b.n - b.zero_rows
    pairs = n_a * n_b - whole_number(shared, "shared", 0, min(n_a, n_b))
    if pairs <= 0:
        got = f"{n_a} and {n_b}: nothing to compare"
        raise UndefinedMeasure(f"expected rows with a direction in both groups, got {got}")
    value = (float((a.unit_sums()[0] * b.unit_sums()[0]).sum()) - shared) / pairs
    return reading(COSINE_BETWEEN, value, b, reference=0.0, warnings=cosine_warnings(b))


@on_one_thread
def random_scores(rows: Rows, mean: float, *, seed: int = 0) -> RandomScores | None:
    """The cosine that a share `REACHED` of all pairs of rows reaches. From more than `MOST_SCORED` rows, that many are
    drawn with `seed`. `mean` is the mean cosine of all pairs. None where fewer than two of these rows are not zero."""
    n = rows.shape[0]
    drawn = n > MOST_SCORED
    numbers = np.random.default_rng(seed).choice(n, MOST_SCORED, replace=False) if drawn else np.arange(n)
    x = rows.take(np.sort(numbers)).astype(np.float64)
    norms = row_norms(x)
    x = x[norms > 0] / norms[norms > 0, None]
    scores = (x @ x.T)[np.tri(len(x), k=-1, dtype=np.bool_)]
    if len(scores) == 0:
        return None
    place = len(scores) - math.ceil(REACHED * len(scores))
    reached = min(1.0, max(-1.0, float(np.partition(scores, place)[place])))
    return RandomScores(mean, reached, len(scores), len(x), seed if drawn else None)


def pair_weight(m: Moments) -> float:
    """The sum of w_i w_j over all pairs i != j of rows with a direction."""
    pairs = m.unit_weight**2 - m.unit_weight_square
    if m.n - m.zero_rows < 2 or pairs <= 0:
        got = f"{m.n - m.zero_rows} of {m.n}: pass more rows"
        raise UndefinedMeasure(f"expected at least two rows with a direction, got {got}")
    share = pairs / m.unit_weight**2
    if share <= 100 * m.epsilon:  # hardly a digit of their cosines is left
        little = f"pairs of different rows have {share:.1g} of it, within rounding of none"
        raise UndefinedMeasure(f"one row has all the weight ({little}): pass weights that more rows share")
    return pairs
