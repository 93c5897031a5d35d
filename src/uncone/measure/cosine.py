"""Is there a common direction? Cosines between rows, and the length of the mean row."""

import math
from typing import Any

import numpy as np

from uncone.arguments import whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.reading import cosine_warnings, moments_of, reading
from uncone.moments import Moments, row_norms
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement, RandomScores
from uncone.rows import Rows
from uncone.threads import on_one_thread

REACHED = 0.01  # the share of pairs that reach a score which users meet in every search
MOST_SCORED = 2048  # rows, whose 2,096,128 pairs take a second; of more rows so many are drawn

MEAN_COSINE = MeasureDescription(
    "mean_cosine", range=("-1/(N - 1)", 1.0), better="lower", centered=False,
    says="What two random rows have in common.",
    definition="mean cosine over all pairs of distinct rows, exact (Ethayarajh 2019)",
    formula="""\
(|S|^2 - N) / (N (N - 1)),  S = sum_i u_i
    = mean over i != j of u_i . u_j; no pair is formed
    under weights: (|S|^2 - sum_i w_i^2) / sum_{i != j} w_i w_j,  S = sum_i w_i u_i""",
    isotropic="0",
    reads_badly="one feature is much larger than the others (see `rogue_dimensions`), and when the anisotropy is "
    "symmetric about the origin, which it cannot see. Under weights the N of the range is Kish's number.",
    source="Ethayarajh 2019 samples pairs. Bis et al. 2021, eq. 12-14, give the sum; its N belongs inside the bracket.",
)  # fmt: skip
MEAN_SHIFT = MeasureDescription(
    "mean_shift", range=(0.0, 1.0), better="lower", centered=False,
    says="How much of a row's length is shared by all rows.",
    definition="norm of the mean row divided by the mean norm of the rows (Bis et al. 2021, Table 1)",
    formula="|mu| / mean_i |x_i|", isotropic="N^(-1/2)",
    reads_badly="a few rows are far longer than the others: they decide the mean row.",
    source="Bis et al. 2021, Table 1.",
)  # fmt: skip
COSINE_BETWEEN = MeasureDescription(
    "cosine_between", range=(-1.0, 1.0), better="lower", centered=False,
    says="How near the rows of one group lie to those of another, for instance to the reserved rows.",
    definition="mean cosine over the pairs of a row of one group and another row of the other",
    formula="""\
(S_a . S_b - shared) / (N_a N_b - shared),  S the sums of unit rows
    shared rows are in both groups; none is compared with itself""",
    isotropic="0",
    reads_badly="a group has few rows: their mean direction is mostly their own.",
    source="The sum of `mean_cosine`, over two groups.",
)  # fmt: skip


def mean_cosine(x: Any, *, mask: Any = None) -> Measurement:
    """`MEAN_COSINE` of `x`, rows or first-order moments. All-zero rows are left out and counted.

    Undefined: fewer than two rows with a direction, or one with all the weight.
    >>> x = [[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]  # cosines 0, 1 and 0
    >>> float(mean_cosine(x))
    0.3333333333333333
    """
    m = moments_of(x, mask, second=False)
    pairs, square = pair_weight(m), float(np.square(m.unit_sums()[0]).sum())
    value, lowest = (square - m.unit_weight_square) / pairs, max(-1.0, -m.unit_weight_square / pairs)
    rest = {"details": {"zero_rows": m.zero_rows}, "warnings": cosine_warnings(m)}
    return reading(MEAN_COSINE, value, m, reference=0.0, lowest=lowest, **rest)


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
    return reading(MEAN_SHIFT, length / m.mean_norm(), m, reference=1 / math.sqrt(m.effective_n), details=details)


def cosine_between(a: Any, b: Any, *, shared: int = 0) -> Measurement:
    """`COSINE_BETWEEN` groups `a` and `b`, each rows or unweighted first-order moments; `n` is the number of rows of b,
    and `shared` rows that are not zero are in both. Undefined: a group without rows that have a
    direction.
    >>> a, b = [[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]  # cosines 0 and 1
    >>> float(cosine_between(a, b))
    0.5
    """
    a, b = moments_of(a, second=False), moments_of(b, second=False)
    if a.d != b.d:
        got = f"{a.d} and {b.d} features"
        raise InputError(f"expected two groups of rows of one width, got {got}: compare rows of one matrix")
    n_a, n_b = a.n - a.zero_rows, b.n - b.zero_rows
    pairs = n_a * n_b - whole_number(shared, "shared", 0, min(n_a, n_b))
    if pairs <= 0:
        got = f"{n_a} and {n_b}: nothing to compare"
        raise UndefinedMeasure(f"expected rows with a direction in both groups, got {got}")
    value = (float((a.unit_sums()[0] * b.unit_sums()[0]).sum()) - shared) / pairs
    return reading(COSINE_BETWEEN, value, b, reference=0.0, warnings=cosine_warnings(b))


@on_one_thread
def random_scores(rows: Rows, mean: float, *, seed: int = 0) -> RandomScores | None:
    """The cosine that `REACHED` of all pairs of rows reach; of more than `MOST_SCORED` rows, of all pairs of so many
    rows drawn with `seed`. `mean` is that of all pairs. None where fewer than two of these rows are not zero."""
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
        little = f"{share:.1g} of the weight, within rounding of none: one row has all of it"
        raise UndefinedMeasure(f"pairs of different rows have {little}; pass weights that more rows share")
    return pairs
