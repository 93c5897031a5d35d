"""How degenerate is it? Pure functions from `Moments` (or rows, for a second pass) to a `Measurement`, one question a file."""

from uncone.measure.cosine import mean_cosine, mean_shift
from uncone.measure.dimensions import dominant_dimension, outlier_dimensions, rogue_dimensions
from uncone.measure.groups import GroupMoments, Reserved, by_group, cosine_between, reserved_rows
from uncone.measure.isoscore import isoscore, isoscore_star, participation_ratio
from uncone.measure.isotropic import marchenko_pastur
from uncone.measure.norms import NormProfile
from uncone.measure.partition import gaussian_isotropy, partition_isotropy
from uncone.measure.spectrum import anisotropy, condition_number, effective_rank, rankme, singular_entropy, stable_rank
from uncone.measure.uniformity import uniformity

__all__ = [
    "GroupMoments",
    "NormProfile",
    "Reserved",
    "anisotropy",
    "by_group",
    "condition_number",
    "cosine_between",
    "dominant_dimension",
    "effective_rank",
    "gaussian_isotropy",
    "isoscore",
    "isoscore_star",
    "marchenko_pastur",
    "mean_cosine",
    "mean_shift",
    "outlier_dimensions",
    "participation_ratio",
    "partition_isotropy",
    "rankme",
    "reserved_rows",
    "rogue_dimensions",
    "singular_entropy",
    "stable_rank",
    "uniformity",
]
