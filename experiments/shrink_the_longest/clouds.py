"""What is said of a cloud of [CLS] states: anisotropy scores, and how far apart the classes lie."""

from typing import Any

import torch

from uncone.errors import InputError
from uncone.training.cloud import anisotropy_scores

Tensor = torch.Tensor
KINDS = ("raw", "centred", "within_class")
CLOUD = 64
"""Points of a small cloud: a score depends on the number of points, and the paper's are of 64."""


def scores(points: Tensor, labels: Tensor) -> dict[str, Any]:
    """A_1 to A_3 of one cloud, raw, centred, and centred within each class, with the isotropic floor beside them."""
    found = anisotropy_scores(points, labels, k=3)
    named: dict[str, Any] = {kind: _listed(getattr(found, kind)) for kind in KINDS}
    return named | {
        "floor": {kind: _listed(getattr(found, f"{kind}_floor")) for kind in KINDS},
        "n": found.n,
        "d": found.d,
    }


def mean_scores(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of the scores of several clouds of one size."""
    if not each:
        raise InputError("expected at least one cloud, got none")
    found: dict[str, Any] = {"clouds": len(each), "n": each[0]["n"], "d": each[0]["d"], "floor": each[0]["floor"]}
    for kind in KINDS:
        defined = [one[kind] for one in each if one[kind] is not None]
        found[kind] = (
            [round(sum(column) / len(column), 6) for column in zip(*defined, strict=True)] if defined else None
        )
    return found


def of_small_clouds(points: Tensor, labels: Tensor) -> dict[str, Any]:
    """The mean scores of disjoint clouds of 64 points, shuffled alike for all runs (files are sorted by source); what is left over is left out."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    rows = [order[at : at + CLOUD] for at in range(0, len(order) - CLOUD + 1, CLOUD)]
    return mean_scores([scores(points[one], labels[one]) for one in rows])


def clusters(points: Tensor, labels: Tensor) -> dict[str, float | None]:
    """How well the classes are apart: silhouette, and mean distances between points of one class and of two.

    All are None where there is one class only, or where all points coincide.
    """
    from sklearn.metrics import silhouette_score

    x = points.double()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") if len(x) <= 4096 else torch.cdist(x, x)
    same = labels[:, None] == labels[None]
    pair = torch.ones_like(same).triu(1)
    within, between = distances[same & pair], distances[~same & pair]
    if len(between) == 0 or len(within) == 0 or not float(within.mean()) > 0:
        return {"silhouette": None, "within": None, "between": None, "ratio": None}
    distances.fill_diagonal_(0)
    silhouette = float(silhouette_score(distances.numpy(), labels.numpy(), metric="precomputed"))
    inside, outside = float(within.mean()), float(between.mean())
    return {"silhouette": silhouette, "within": inside, "between": outside, "ratio": outside / inside}


def whole(points: Tensor, labels: Tensor) -> dict[str, Any]:
    """Everything about the states of all held-out items."""
    return {
        "whole": scores(points, labels),
        "clouds_of_64": of_small_clouds(points, labels) if len(points) >= CLOUD else None,
        "clusters": clusters(points, labels),
    }


def _listed(values: Any) -> list[float] | None:
    return None if values is None else [round(float(value), 6) for value in values]
