"""How degenerate is it? Functions from `Moments` (or rows) to a `Measurement`, one question a file."""

from uncone.measure.cosine import (
    COSINE_BETWEEN,
    MEAN_COSINE,
    MEAN_SHIFT,
    cosine_between,
    mean_cosine,
    mean_shift,
)
from uncone.measure.dimensions import (
    DOMINANT_DIMENSION,
    OUTLIER_DIMENSIONS,
    ROGUE_DIMENSIONS,
    dominant_dimension,
    outlier_dimensions,
    rogue_dimensions,
)
from uncone.measure.false_discovery import benjamini_hochberg, robust_null
from uncone.measure.group_comparison import Membership, PairSums, compare_groups, frequency_membership
from uncone.measure.groups import GroupMoments, Reserved, by_group, reserved_rows
from uncone.measure.hubness import HUBNESS, hubness
from uncone.measure.intrinsic_dimension import LEVINA_BICKEL, TWO_NN, levina_bickel, local_dimensions, two_nn
from uncone.measure.isoscore import (
    ISOSCORE,
    ISOSCORE_STAR,
    PARTICIPATION_RATIO,
    isoscore,
    isoscore_star,
    participation_ratio,
)
from uncone.measure.neighbours import Neighbours, nearest_neighbours
from uncone.measure.norms import NORM_ID_CORRELATION, NormProfile
from uncone.measure.partition import (
    GAUSSIAN_ISOTROPY,
    PARTITION_ISOTROPY,
    gaussian_isotropy,
    partition_isotropy,
)
from uncone.measure.permutation import PERMUTATION_TEST, permutation_test
from uncone.measure.spectrum import (
    ANISOTROPY,
    CONDITION_NUMBER,
    EFFECTIVE_RANK,
    RANKME,
    SINGULAR_ENTROPY,
    STABLE_RANK,
    anisotropy,
    condition_number,
    effective_rank,
    marchenko_pastur,
    rankme,
    singular_entropy,
    stable_rank,
)
from uncone.measure.under_trained import under_trained_tokens
from uncone.measure.uniformity import UNIFORMITY, UNIFORMITY_EXACT, uniformity, uniformity_exact
from uncone.records import MeasureDescription

DESCRIPTIONS: dict[str, tuple[MeasureDescription, ...]] = {
    "A common direction": (MEAN_COSINE, MEAN_SHIFT),
    "Evenly used dimensions": (PARTICIPATION_RATIO, ISOSCORE, ISOSCORE_STAR),
    "The spectrum": (EFFECTIVE_RANK, RANKME, STABLE_RANK, ANISOTROPY, SINGULAR_ENTROPY, CONDITION_NUMBER),
    "Single features": (ROGUE_DIMENSIONS, DOMINANT_DIMENSION, OUTLIER_DIMENSIONS),
    "The partition function": (PARTITION_ISOTROPY, GAUSSIAN_ISOTROPY),
    "Coverage of the sphere": (UNIFORMITY, UNIFORMITY_EXACT),
    "Nearest neighbours": (TWO_NN, LEVINA_BICKEL, HUBNESS),
    "Groups of rows": (COSINE_BETWEEN, PERMUTATION_TEST),
    "Norms": (NORM_ID_CORRELATION,),
}
"""All measures, by the question they answer."""

__all__ = [
    "DESCRIPTIONS",
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
