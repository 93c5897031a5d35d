"""Is there a common direction? The mean cosine between rows, and how far the mean row lies from the origin."""

import math

from uncone.errors import UndefinedMeasure
from uncone.measure.reading import cosine_warnings, reading
from uncone.moments import Moments, row_norms
from uncone.records import Measurement

_LEAST_WEIGHT = 100.0
"""In roundings of a row: where all rows but one weigh less, hardly a digit of their cosines is left."""


def mean_cosine(m: Moments) -> Measurement:
    """The mean cosine over all pairs of distinct rows: what two random rows have in common.

    With unit rows u_i and S = sum u_i it is (|S|^2 - N) / (N (N - 1)), exactly and without a pair being formed (the
    quantity sampled by Ethayarajh 2019; Bis et al. 2021, eq. 12-14, whose N belongs inside the bracket). Under weights
    the mean is over pairs with weight w_i w_j. Needs first-order moments only.

    Returns:
        A value in [-1/(N - 1), 1], N being Kish's number under weights; lower is better; an isotropic cloud has 0. All-zero
        rows are left out and counted.

    Raises:
        UndefinedMeasure: fewer than two rows with a direction, or one with all the weight but for rounding.

    Reads badly when one feature is much larger than the others (see `rogue_dimensions`), and it cannot see anisotropy
    that is symmetric about the origin.

    Example:
        >>> import torch, uncone
        >>> float(uncone.measure.mean_cosine(uncone.Moments.of(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]))))
        0.3333333333333333
    """
    pairs = pair_weight(m)
    first, _ = m.unit_sums()
    value = (float(first @ first) - m.unit_weight_square) / pairs
    return reading(
        "mean_cosine", value, m,
        range=(max(-1.0, -m.unit_weight_square / pairs), 1.0), better="lower", reference=0.0, centered=False,
        details={"zero_rows": m.zero_rows}, warnings=cosine_warnings(m),
        definition="mean cosine over all pairs of distinct rows, exact (Ethayarajh 2019)",
    )  # fmt: skip


def mean_shift(m: Moments) -> Measurement:
    """How much of a row's length is shared by all rows: |mean row| / mean |row| (Bis et al. 2021, Table 1).

    Returns:
        A value in [0, 1]; lower is better; an isotropic cloud of N rows has about N^(-1/2).

    Raises:
        UndefinedMeasure: every row is zero.
    """
    if m.mean_norm() == 0:
        raise UndefinedMeasure(
            "expected a row that is not zero, got none: there is no length to compare with"
        )
    length = float(row_norms(m.mean()[None]))
    return reading(
        "mean_shift", length / m.mean_norm(), m,
        range=(0.0, 1.0), better="lower", reference=1 / math.sqrt(m.effective_n), centered=False,
        details={"mean_row_norm": length, "mean_norm": m.mean_norm()},
        definition="norm of the mean row divided by the mean norm of the rows (Bis et al. 2021, Table 1)",
    )  # fmt: skip


def pair_weight(m: Moments) -> float:
    """The sum of w_i w_j over all pairs i != j of rows with a direction.

    Raises:
        UndefinedMeasure: fewer than two such rows, or one with all the weight but for rounding.
    """
    pairs = m.unit_weight**2 - m.unit_weight_square
    if m.n - m.zero_rows < 2 or pairs <= 0:
        raise UndefinedMeasure(
            f"expected at least two rows with a direction, got {m.n - m.zero_rows} of {m.n}: pass more rows"
        )
    if pairs <= _LEAST_WEIGHT * m.epsilon * m.unit_weight**2:
        raise UndefinedMeasure(
            f"pairs of different rows have {pairs / m.unit_weight**2:.1g} of the weight, within rounding of none: "
            "one row has all of it; pass weights that more rows share"
        )
    return pairs
