"""Table 1 and what the paper says beside it, measured with uncone: streamed, both signs, and the interval over all signs."""

import math
from typing import Any

import authors
import numpy as np

from uncone.evaluation.bootstrap import correlation
from uncone.measure import mean_cosine, partition_isotropy
from uncone.measure.partition import log_partition
from uncone.moments import Moments, row_norms
from uncone.rows import Rows
from uncone.transforms import repair_named

VARIANTS = {"raw": None, "centred": "center", "removed": "all_but_the_top_d100"}
"""Columns of Table 1, and the repair that makes each."""


def table_1(rows: Rows, moments: Moments, *, oracle: bool = True) -> dict[str, Any]:
    """All six columns, by both programs, and the rest. Without the oracle the rows are only streamed, and one sign is not told."""
    theirs = authors.table_1(whole(rows)) if oracle else {}
    found: dict[str, Any] = {
        name: _isotropy(rows, moments, repair, theirs.get(name)) for name, repair in VARIANTS.items()
    }
    mean = moments.mean()
    top = moments.directions()[:, 0]
    norms = np.concatenate([row_norms(block) for block in rows.blocks()])
    return found | {
        "mean_norm": moments.mean_norm(),
        "norm_of_mean": float(np.linalg.norm(mean)),
        "ratio": float(np.linalg.norm(mean)) / moments.mean_norm(),
        "variance_along_mean": float(mean @ moments.covariance() @ mean) / float(mean @ mean),
        "directions_removed": math.ceil(rows.shape[1] / 100),
        "mean_cosine": float(mean_cosine(moments)),
        "cosine_of_top_eigenvector_to_mean": abs(float(top @ mean)) / float(np.linalg.norm(mean)),
        "spearman_of_norm_and_id": correlation(norms, np.arange(len(norms), dtype=np.float64), kind="spearman"),
    }


def _isotropy(rows: Rows, moments: Moments, repair: str | None, theirs: tuple[float, Any] | None) -> dict[str, float]:
    """`theirs` is the authors' value and the eigenvectors they took: only along these can one sign be compared to the digit."""
    if repair is not None:
        rows = repair_named(repair, d=rows.shape[1]).fit(moments).transform(rows)
        moments = Moments.of(rows, unit_first=False)
    both = partition_isotropy(rows, moments)
    found = {
        "both_signs": float(both),
        "toward_the_mean": both.details["one_sign"],
        "low": both.details["low"],
        "high": both.details["high"],
    }
    if theirs is not None:
        plus, _ = log_partition(rows, theirs[1].astype(np.float64), longest=moments.norm_max)
        found |= {"authors": theirs[0], "same_signs_as_the_authors": math.exp(float(plus.min() - plus.max()))}
    return found


def whole(rows: Rows) -> Any:
    """All rows at once, as the authors' program holds them."""
    return np.concatenate([block.astype(np.float32) for block in rows.blocks()])
