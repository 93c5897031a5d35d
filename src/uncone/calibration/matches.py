"""What pairs with a label say of thresholds."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from uncone.calibration.intervals import clustered
from uncone.calibration.labels import Labels
from uncone.calibration.sides import Side
from uncone.records import LabelledPairs, ScoreHistogram, ScoreThreshold, Share

Floats = npt.NDArray[np.float64]
_BLOCK = 8192


def pair_scores(side: Side, queries: Side | None, labels: Labels) -> Floats:
    """The score of each pair, (K,), in float64; NaN where a row is all zero and has no cosine."""
    parts = []
    for start in range(0, len(labels.first), _BLOCK):
        cut = slice(start, start + _BLOCK)
        a, b = (side if queries is None else queries).take(labels.first[cut]), side.take(labels.second[cut])
        scores = (a.double() * b.double()).sum(dim=1)
        if side.metric == "cosine":
            scores[~(a.any(dim=1) & b.any(dim=1))] = torch.nan
        parts.append(scores)
    found: Floats = torch.cat(parts).numpy()
    return found


def labelled(labels: Labels, scores: Floats, histogram: ScoreHistogram, prior: float) -> LabelledPairs:
    """How well scores tell matches from random pairs and from pairs that are labelled as no match."""
    groups, is_match = labels.first.numpy(), labels.matches
    matching, others = scores[is_match], scores[~is_match]
    below = np.array(
        [1 - (histogram.reached(s) + histogram.reached(s + histogram.width)) / 2 for s in matching.tolist()]
    )
    area_others = None
    if len(others):
        ordered = np.sort(others)
        left, right = (
            np.searchsorted(ordered, matching, side="left"),
            np.searchsorted(ordered, matching, side="right"),
        )
        area_others = clustered((left + right) / 2 / len(others), groups[is_match])
    return LabelledPairs(
        labels.source, len(matching), len(others), len(np.unique(groups)), float(matching.mean()),
        clustered(below.clip(0, 1), groups[is_match]), area_others, prior,
    )  # fmt: skip


def with_labels(threshold: ScoreThreshold, labels: Labels, scores: Floats, prior: float) -> ScoreThreshold:
    """The threshold with the shares of matches and of labelled non-matches that reach it, and its precision at the prior."""
    if threshold.score is None or threshold.false_match_rate is None:
        return threshold
    groups, is_match = labels.first.numpy(), labels.matches
    reaches = (scores >= threshold.score).astype(np.float64)
    true = clustered(reaches[is_match], groups[is_match])
    others = clustered(reaches[~is_match], groups[~is_match]) if not is_match.all() else None
    return replace(
        threshold, true_match_rate=true, non_match_rate=others,
        precision=precision_at(prior, true, threshold.false_match_rate),
    )  # fmt: skip


def precision_at(prior: float, true: Share, false: Share) -> float | None:
    """The share of true matches among the pairs that reach a threshold, where the share `prior` of all pairs compared matches."""
    reaching = prior * true.value + (1 - prior) * false.value
    return prior * true.value / reaching if reaching > 0 else None
