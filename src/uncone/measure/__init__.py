"""How degenerate is it? Functions from rows, or their `Moments`, to a `Measurement`, one question per file."""

from uncone.lazy import open_room
from uncone.measure import cosine, dimensions, intrinsic_dimension, norms, partition, permutation, spectrum
from uncone.measure import hubness as _hubness
from uncone.measure import isoscore as _isoscore
from uncone.measure import uniformity as _uniformity
from uncone.measure.cosine import cosine_between, mean_cosine, mean_shift
from uncone.measure.dimensions import dominant_dimension, outlier_dimensions, rogue_dimensions
from uncone.measure.discovery import benjamini_hochberg, robust_null
from uncone.measure.everything import all as all
from uncone.measure.group_comparison import Membership, PairSums, compare_groups, frequency_membership
from uncone.measure.groups import GroupMoments, Reserved, by_group, reserved_rows
from uncone.measure.hubness import hubness
from uncone.measure.intrinsic_dimension import levina_bickel, local_dimensions, two_nn
from uncone.measure.isoscore import isoscore, isoscore_star, participation_ratio
from uncone.measure.neighbours import Neighbours, nearest_neighbours
from uncone.measure.norms import NormProfile
from uncone.measure.odd_rows import OddRowFinder
from uncone.measure.partition import gaussian_isotropy, partition_isotropy
from uncone.measure.permutation import permutation_test
from uncone.measure.reading import moments_of
from uncone.measure.spectrum import (
    anisotropy,
    condition_number,
    effective_rank,
    marchenko_pastur,
    rankme,
    singular_entropy,
    stable_rank,
)
from uncone.measure.under_trained import under_trained_tokens
from uncone.measure.uniformity import uniformity, uniformity_exact
from uncone.records.measures import QUESTIONS, MeasureDescription

_MODULES = (cosine, dimensions, intrinsic_dimension, norms, partition, permutation, spectrum)
_PARTS = [part for module in (*_MODULES, _hubness, _isoscore, _uniformity) for part in vars(module).values()]
_NAMED = {part.name: part for part in _PARTS if isinstance(part, MeasureDescription)}
DESCRIPTIONS = {question: tuple(_NAMED[name] for name in names) for question, names in QUESTIONS.items()}
"""All measures, by the question they answer."""

__all__ = [
    "DESCRIPTIONS", "GroupMoments", "Membership", "Neighbours", "NormProfile", "OddRowFinder", "PairSums", "Reserved",
    "anisotropy", "benjamini_hochberg", "by_group", "compare_groups", "condition_number",
    "cosine_between", "dominant_dimension", "effective_rank", "frequency_membership",
    "gaussian_isotropy", "hubness", "isoscore", "isoscore_star", "levina_bickel", "local_dimensions",
    "marchenko_pastur", "mean_cosine", "mean_shift", "moments_of", "nearest_neighbours", "outlier_dimensions",
    "participation_ratio", "partition_isotropy", "permutation_test", "rankme", "reserved_rows",
    "robust_null", "rogue_dimensions", "singular_entropy", "stable_rank", "two_nn",
    "under_trained_tokens", "uniformity", "uniformity_exact",
]  # fmt: skip
# `all` is public too, but not listed: `from uncone.measure import *` would hide Python's own.

open_room(__name__)
