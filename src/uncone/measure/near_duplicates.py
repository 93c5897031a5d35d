"""Which rows nearly equal another row? Pairs that are far nearer than neighbours usually are in this collection."""

import math

import numpy as np

from uncone.measure.neighbours import Neighbours
from uncone.records.parts import NearDuplicates
from uncone.records.text import cut_label
from uncone.rows import Array, Rows

NEAR = 0.25  # of the usual distance to the tenth nearest row: a text and its copy with small edits are about this near
EQUAL = 1e-12  # a distance within the rounding of unit rows in float64
BY_CHANCE = 0.05  # rows that chance may bring within the bar
_LISTED = 8


def near_duplicates(rows: Rows, near: Neighbours) -> NearDuplicates | None:
    """The rows with a neighbour that is no farther than the bar and not equal; `near` holds 10 neighbours by cosine,
    with copies. None where half of the rows or more are copies, so that there is no usual distance.

    The bar is a distance of unit rows: `NEAR` of the median distance to the tenth nearest row, or less in few
    dimensions, where chance brings rows together. An evenly surrounded row has 10 t^m rows within t of that distance,
    so chance brings `BY_CHANCE` of Q rows within the bar where 10 Q t^m = `BY_CHANCE`. The dimension m comes from the
    median growth from the fifth to the tenth neighbour, 2 = (r_10 / r_5)^m: a few copies of a row do not change it.
    """
    assert near.metric == "cosine"
    far, asked = near.distances, len(near.queries)
    spread = far[far[:, 4] > EQUAL]
    if 2 * len(spread) <= asked:
        return None
    growth = float(np.median(np.log(spread[:, 9] / spread[:, 4])))
    chance = (BY_CHANCE / (10 * asked)) ** (growth / math.log(2))
    share, usual = min(NEAR, chance), float(np.median(far[:, 9]))
    row, place = np.nonzero((far > EQUAL) & (far <= share * usual))
    if len(row) == 0:
        return NearDuplicates(0, asked, _cosine(share * usual), _cosine(usual), share)
    pairs = np.sort(np.stack([near.queries[row], near.indices[row, place]], 1), 1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    distances = far[row, place][first]
    closest = np.argsort(distances, kind="stable")[:_LISTED]
    group = _largest_group(pairs)

    def named(numbers: Array) -> tuple[tuple[int, ...], tuple[str | None, ...]]:
        labels = rows.labels
        ids = numbers if rows.ids is None else rows.ids[numbers]
        return tuple(ids.tolist()), tuple(None if labels is None else cut_label(labels[i]) for i in numbers.tolist())

    (twins, twin_labels), (ids, labels) = map(named, pairs[closest].T)
    (head,), (head_label,) = named(group[:1])
    cosines = tuple(_cosine(distance) for distance in distances[closest].tolist())
    found = (len(np.unique(row)), asked, _cosine(share * usual), _cosine(usual), share)
    return NearDuplicates(*found, ids, labels, twins, twin_labels, cosines, (head, len(group)), head_label)


def _cosine(distance: float) -> float:
    return 1 - distance**2 / 2


def _largest_group(pairs: Array) -> Array:
    """The largest set of numbers that `pairs` (K, 2) connect, ascending; of several, the set with the lowest number."""
    numbers, places = np.unique(pairs, return_inverse=True)
    a, b = places.reshape(pairs.shape).T
    group = np.arange(len(numbers))  # the lowest place that is known to be connected
    while True:
        lowest = np.minimum(group[a], group[b])
        before = group.copy()
        np.minimum.at(group, a, lowest)
        np.minimum.at(group, b, lowest)
        group = group[group]
        if (group == before).all():
            members: Array = numbers[group == np.bincount(group).argmax()]
            return members
