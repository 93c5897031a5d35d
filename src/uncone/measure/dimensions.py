"""Is it a few features? Dimensions that carry the mean cosine, or whose mean stands out."""

import math

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.cosine import mean_cosine
from uncone.measure.reading import cosine_warnings, largest_share, reading
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.records.wording import counted

_NAMED = 8
_NOISE_SIGMAS = 4.0


def rogue_dimensions(m: Moments) -> Measurement:
    """The share of the mean cosine that one dimension carries (Timkey & van Schijndel 2021, eq. 2-4).

    The contribution of dimension i is CC_i = mean over pairs of u_i v_i = (S_i^2 - sum u_i^2) / (N (N - 1)), and the
    contributions add up to the mean cosine. The value is the largest share; `details` names the leading dimensions.

    Returns:
        A share from 1/D up (above 1 where other dimensions pull the cosine down); lower is better; an even spread has 1/D.

    Raises:
        UndefinedMeasure: the mean cosine is indistinguishable from 0, so that shares of it mean nothing.
    """
    total = float(mean_cosine(m))
    pairs = m.unit_weight**2 - m.unit_weight_square
    # The mean cosine of n isotropic rows scatters by sqrt(2 / D) / n about 0.
    n = m.unit_weight**2 / m.unit_weight_square
    noise = _NOISE_SIGMAS * math.sqrt(2 / m.d) / n
    if total <= noise:
        raise UndefinedMeasure(
            f"the mean cosine is {total:.2g}, indistinguishable from 0 with N = {m.n}: no dimension carries it"
        )
    first, square = m.unit_sums()
    contributions = (first.square() - square) / pairs
    leading = torch.topk(contributions, min(_NAMED, m.d))
    return reading(
        "rogue_dimensions", float(leading.values[0]) / total, m,
        range=(1 / m.d, None), better="lower", reference=1 / m.d, centered=False,
        details={
            "dimensions": leading.indices.tolist(),
            "shares": [value / total for value in leading.values.tolist()],
            "mean_cosine": total,
        },
        warnings=cosine_warnings(m),
        definition="largest share of the mean cosine carried by one dimension (Timkey & van Schijndel 2021)",
    )  # fmt: skip


def dominant_dimension(m: Moments, *, centered: bool = True) -> Measurement:
    """The largest share of the variance that one dimension carries (of the raw second moment when not centred).

    Returns:
        A share in [1/D, 1]; lower is better; an even spread has 1/D. `details` names the dimension.

    Raises:
        UndefinedMeasure: rows that are all equal (all zero when not centred).
    """
    share, dimension = largest_share(m, centered=centered)
    if share == 0:
        raise UndefinedMeasure("expected rows that differ, got rows that are all equal: no dimension varies")
    return reading(
        "dominant_dimension" if centered else "dominant_dimension_raw", share, m,
        range=(1 / m.d, 1.0), better="lower", reference=1 / m.d, centered=centered, details={"dimension": dimension},
        definition=f"largest share of the {'variance' if centered else 'second moment'} carried by one dimension",
    )  # fmt: skip


def outlier_dimensions(m: Moments, *, sigmas: float = 3.0) -> Measurement:
    """How many dimensions have a mean that stands out among the dimensions' means (Kovaleva et al. 2021; Luo et al. 2021).

    A dimension counts when its mean lies more than `sigmas` standard deviations from the average of all D means.

    Returns:
        A count; lower is better; D normal means have D P(|z| > sigmas), 0.27 % of D for 3.

    Raises:
        InputError: sigmas not above 0. UndefinedMeasure: fewer than three features, or means that are all equal but for rounding.
    """
    if not sigmas > 0:
        raise InputError(f"expected sigmas above 0, got {sigmas}: 3 and 5 are customary")
    means = m.mean()
    spread = float(means.std()) if m.d > 2 else 0.0
    rounding = 10 * m.epsilon * math.sqrt(m.norm_square_sum / m.weight / m.d)
    if spread <= rounding:
        raise UndefinedMeasure(
            f"the means of {counted(m.d, 'feature')} differ by no more than rounding: none can stand out"
        )
    z = (means - means.mean()) / spread
    found = (z.abs() > sigmas).nonzero().flatten()
    order = found[z[found].abs().argsort(descending=True)][:_NAMED]
    return reading(
        "outlier_dimensions", float(len(found)), m,
        range=(0.0, float(m.d)), better="lower", reference=m.d * math.erfc(sigmas / math.sqrt(2)), centered=False,
        details={"dimensions": order.tolist(), "sigmas": z[order].tolist(), "threshold": sigmas},
        definition=f"dimensions whose mean lies over {sigmas:g} standard deviations from the average mean (Kovaleva et al. 2021)",
    )  # fmt: skip
