"""Do a few features dominate? Dimensions that carry the mean cosine, or whose mean stands out."""

import math
from typing import Any

import numpy as np

from uncone.arguments import finite_number, flag
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.cosine import mean_cosine, on_mean_cosine
from uncone.measure.influence import NoIntervalError, drawn_rows, norms, squared_lengths
from uncone.measure.reading import cosine_warnings, largest_share, moments_of, reading
from uncone.moments import inverse
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import counted
from uncone.rows import Array

_NAMED = 8

ROGUE_DIMENSIONS = MeasureDescription(
    "rogue_dimensions", range=("1/D", None), better="lower", centered=False,
    says="The share of the mean cosine that one dimension carries; `details` names the leading dimensions.",
    definition="largest share of the mean cosine carried by one dimension (Timkey & van Schijndel 2021)",
    formula="""\
max_i CC_i / sum_i CC_i
CC_i = mean over a != b of u_ai u_bi = (S_i^2 - sum_a u_ai^2) / (N (N - 1)), which sum to the mean cosine""",
    isotropic="1/D",
    reads_badly="the mean cosine is small. The measure is undefined where the mean cosine cannot be distinguished from "
    "0. The share is above 1 where other dimensions pull the cosine down.",
    source="Timkey & van Schijndel 2021, eq. 2-4.",
)  # fmt: skip
DOMINANT_DIMENSION = MeasureDescription(
    "dominant_dimension", range=("1/D", 1.0), better="lower", centered=True,
    says="The share of the variance that one dimension carries; `details` names it.",
    definition="largest share of the {total} carried by one dimension",
    formula="max_i C_ii / tr C;  raw: of the second moment", isotropic="1/D",
    reads_badly="the large direction is not an axis: a rotation hides it. `anisotropy` finds it in any direction.",
    source="The definition itself.",
    variants=(("dominant_dimension_raw", "`centered=False`: of the raw second moment"),),
)  # fmt: skip
OUTLIER_DIMENSIONS = MeasureDescription(
    "outlier_dimensions", range=(0.0, "D"), better="lower", centered=False,
    says="How many dimensions have a mean that stands out among the dimensions' means.",
    definition="dimensions whose mean lies over {sigmas:g} standard deviations from the average mean (Kovaleva et al. 2021)",
    formula="number of i with |mu_i - mean mu| > sigmas * std mu,  sigmas = 3 unless given",
    isotropic="D P(|z| > sigmas), 0.27% of D for 3",
    reads_badly="D is small, or when the outliers are so large that they widen the standard deviation used to find "
    "them.",
    source="Kovaleva et al. 2021; Luo et al. 2021.", interval="none: a count moves in steps.",
)  # fmt: skip


def rogue_dimensions(x: Any, *, mask: Any = None) -> Measurement:
    """`ROGUE_DIMENSIONS` of `x`, rows or first-order moments.

    Undefined: the mean cosine cannot be distinguished from 0.
    >>> x = [[3.0, 4.0]] * 8  # unit rows (0.6, 0.8): of a cosine of 1, 0.36 and 0.64
    >>> round(rogue_dimensions(x), 6)
    0.64
    """
    m = moments_of(x, mask, second=False)
    whole = mean_cosine(m)
    total = float(whole)
    pairs = m.unit_weight**2 - m.unit_weight_square
    # The mean cosine of n isotropic rows scatters by sqrt(2 / D) / n about 0.
    n = m.unit_weight**2 / m.unit_weight_square
    if total <= 4 * math.sqrt(2 / m.d) / n:
        near = f"{total:.2g}, indistinguishable from 0 with N = {m.n}"
        raise UndefinedMeasure(f"the mean cosine is {near}: no dimension carries it")
    first, square = m.unit_sums()
    parts = (np.square(first) - square) / pairs / total
    leading = np.argsort(-parts, kind="stable")[:_NAMED]
    details = {"dimensions": leading.tolist(), "shares": parts[leading].tolist(), "mean_cosine": total}
    rest = {"details": details, "warnings": cosine_warnings(m)}
    carrier, share = int(leading[0]), float(parts[leading[0]])

    def influence() -> Array:
        low, high = whole.interval or (0.0, 0.0)
        if total < 2 * max(high - total, total - low):
            near = "the mean cosine is less than two half-widths of its interval from 0"
            raise NoIntervalError(f"{near}, so a share of it could be anything")
        u = drawn_rows(m)[:, carrier] * inverse(norms(m))
        on_part = 2 * (u * first[carrier] - np.square(u)) / (m.n - m.zero_rows - 1)
        return np.asarray((on_part - share * on_mean_cosine(m, total)) / total)

    of = {"lowest": 1 / m.d, "reference": 1 / m.d, "influence": influence}
    return reading(ROGUE_DIMENSIONS, share, m, **of, **rest)


def dominant_dimension(x: Any, *, centered: bool = True, mask: Any = None) -> Measurement:
    """`DOMINANT_DIMENSION` of `x`, rows or moments; undefined for rows that are all equal (all zero when not centred).
    >>> x = [[1.0, 0.0], [-1.0, 0.0]] * 3 + [[0.0, 1.0], [0.0, -1.0]]  # variances as 3 to 1
    >>> float(dominant_dimension(x))
    0.75
    """
    m = moments_of(x, mask)
    share, dimension = largest_share(m, centered=flag(centered, "centered"))
    if share == 0:
        raise UndefinedMeasure("expected rows that differ, got rows that are all equal: no dimension varies")
    asked = {"total": "variance" if centered else "second moment"}
    rest = {"centered": centered, "asked": asked, "details": {"dimension": dimension}}

    def influence() -> Array:
        of_dimension = drawn_rows(m)[:, dimension] - (m.mean()[dimension] if centered else 0.0)
        lengths = squared_lengths(m, centered=centered)
        return np.asarray((np.square(of_dimension) - share * lengths) / m.variances(centered=centered).sum())

    of = {"lowest": 1 / m.d, "reference": 1 / m.d, "influence": influence}
    return reading(DOMINANT_DIMENSION, share, m, **of, **rest)


def outlier_dimensions(x: Any, *, sigmas: float = 3.0, mask: Any = None) -> Measurement:
    """`OUTLIER_DIMENSIONS` of `x`, rows or first-order moments; `details` names them.

    Undefined: fewer than three features, or means that are equal to within rounding.
    >>> row = np.eye(12)[:1]  # one mean of 1, eleven of 0: 11/12 off the average, 3.2 standard deviations of 0.29
    >>> float(outlier_dimensions(row))
    1.0
    """
    m = moments_of(x, mask, second=False)
    if not finite_number(sigmas, "sigmas") > 0:
        raise InputError(f"expected sigmas above 0, got {sigmas}: 3 and 5 are customary")
    means = m.mean()
    spread = float(means.std(ddof=1)) if m.d > 2 else 0.0
    if spread <= 10 * m.epsilon * math.sqrt(m.norm_square_sum / m.weight / m.d):
        of = counted(m.d, "feature")
        raise UndefinedMeasure(f"the means of {of} differ by no more than rounding: none can stand out")
    z = (means - means.mean()) / spread
    outliers = np.flatnonzero(np.abs(z) > sigmas)
    order = outliers[np.argsort(-np.abs(z[outliers]), kind="stable")][:_NAMED]
    details = {"dimensions": order.tolist(), "sigmas": z[order].tolist(), "threshold": sigmas}
    rest = {"asked": {"sigmas": sigmas}, "details": details, "reference": m.d * math.erfc(sigmas / math.sqrt(2))}
    return reading(OUTLIER_DIMENSIONS, float(len(outliers)), m, highest=float(m.d), **rest)
