"""Which measures a diagnosis takes of a matrix."""

from collections.abc import Callable
from functools import partial

from uncone import measure
from uncone.moments import Moments
from uncone.records import Measurement

Measure = Callable[[Moments], Measurement]

MEASURES: tuple[tuple[str, Measure], ...] = (
    ("mean_cosine", measure.mean_cosine),
    ("mean_shift", measure.mean_shift),
    ("isoscore", measure.isoscore),
    ("isoscore_debiased", partial(measure.isoscore, debiased=True)),
    ("isoscore_star", measure.isoscore_star),
    ("participation_ratio", measure.participation_ratio),
    ("participation_ratio_debiased", partial(measure.participation_ratio, debiased=True)),
    ("effective_rank", measure.effective_rank),
    ("rankme", measure.rankme),
    ("stable_rank", measure.stable_rank),
    ("stable_rank_centered", partial(measure.stable_rank, centered=True)),
    ("anisotropy_1", measure.anisotropy),
    ("anisotropy_1_raw", partial(measure.anisotropy, centered=False)),
    ("singular_entropy", measure.singular_entropy),
    ("singular_entropy_raw", partial(measure.singular_entropy, centered=False)),
    ("condition_number", measure.condition_number),
    ("rogue_dimensions", measure.rogue_dimensions),
    ("dominant_dimension", measure.dominant_dimension),
    ("outlier_dimensions", measure.outlier_dimensions),
    ("gaussian_isotropy", measure.gaussian_isotropy),
    ("uniformity", measure.uniformity),
)
_OF_A_MEAN = {
    "mean_shift", "stable_rank_centered", "anisotropy_1_raw", "singular_entropy_raw", "outlier_dimensions",
}  # fmt: skip
OF_A_HEAD = tuple(one for one in MEASURES if one[0] not in _OF_A_MEAN)
"""A head is read with its mean removed: no means are left, and raw and centred are the same."""
_OF_THE_GAUGE = {
    "mean_cosine", "mean_shift", "stable_rank", "anisotropy_1_raw", "outlier_dimensions", "gaussian_isotropy",
}  # fmt: skip
OF_THE_GAUGE = tuple(one for one in MEASURES if one[0] in _OF_THE_GAUGE)
"""Raw readings of a head. Subtracting a vector from all rows changes them, and no probability."""
OF_NEIGHBOURS = measure.intrinsic_dimension.NEIGHBOURS
"""One search serves both intrinsic dimensions."""
