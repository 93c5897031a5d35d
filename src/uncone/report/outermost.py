"""Which tokens lie outermost: the words behind the dots of the cone picture."""

import math

from uncone.records import Picture

_TOKENS = 8


def outermost(picture: Picture) -> list[tuple[str, list[str]]]:
    """For each group with named rows, the tokens farthest from the centre of the centred cloud, farthest first."""
    points = picture.coordinates(centered=True)
    return [
        (name, labels)
        for group, name in enumerate(picture.group_names)
        if (labels := _farthest(picture, points, group))
    ]


def _farthest(picture: Picture, points: list[tuple[float, float, float]], group: int) -> list[str]:
    members = [
        (i, label)
        for i, label in enumerate(picture.labels)
        if label is not None and picture.groups[i] == group
    ]
    members.sort(
        key=lambda member: -math.hypot(*points[member[0]])
    )  # stable: ties stay in the order of the ids
    return [label for _, label in members[:_TOKENS]]
