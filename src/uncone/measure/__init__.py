"""How degenerate is it? Pure functions from `Moments` (or rows, for a second pass) to a `Measurement`, one question a file."""

from uncone.measure.cosine import mean_cosine, mean_shift
from uncone.measure.dimensions import dominant_dimension, outlier_dimensions, rogue_dimensions
from uncone.measure.false_discovery import benjamini_hochberg, robust_null
from uncone.measure.group_comparison import Membership, PairSums, compare_groups, frequency_membership
from uncone.measure.groups import GroupMoments, Reserved, by_group, cosine_between, reserved_rows
from uncone.measure.hubness import hubness
from uncone.measure.intrinsic_dimension import levina_bickel, local_dimensions, two_nn
from uncone.measure.isoscore import isoscore, isoscore_star, participation_ratio
from uncone.measure.isotropic import marchenko_pastur
from uncone.measure.neighbours import Neighbours, nearest_neighbours
from uncone.measure.norms import NormProfile
from uncone.measure.partition import gaussian_isotropy, partition_isotropy
from uncone.measure.permutation import permutation_test
from uncone.measure.spectrum import (
    anisotropy,
    condition_number,
    effective_rank,
    rankme,
    singular_entropy,
    stable_rank,
)
from uncone.measure.under_trained import under_trained_tokens
from uncone.measure.uniformity import uniformity, uniformity_exact

__all__ = [
    "GroupMoments",
    "Membership",
    "Neighbours",
    "NormProfile",
    "PairSums",
    "Reserved",
    "anisotropy",
    "benjamini_hochberg",
    "by_group",
    "compare_groups",
    "condition_number",
    "cosine_between",
    "dominant_dimension",
    "effective_rank",
    "frequency_membership",
    "gaussian_isotropy",
    "hubness",
    "isoscore",
    "isoscore_star",
    "levina_bickel",
    "local_dimensions",
    "marchenko_pastur",
    "mean_cosine",
    "mean_shift",
    "nearest_neighbours",
    "outlier_dimensions",
    "participation_ratio",
    "partition_isotropy",
    "permutation_test",
    "rankme",
    "reserved_rows",
    "robust_null",
    "rogue_dimensions",
    "singular_entropy",
    "stable_rank",
    "two_nn",
    "under_trained_tokens",
    "uniformity",
    "uniformity_exact",
]
