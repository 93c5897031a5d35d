"""The record of the picture: a sample of the rows on their first singular directions, and what they are
coloured by."""

import array
import base64
import math
import sys
from dataclasses import dataclass

from uncone.errors import InputError
from uncone.records.wording import counted, plural

_LARGEST_SCALE = 1e290
_LARGEST_INTEGER = 2**53  # beyond, a page's script would read another number


@dataclass(frozen=True)
class Picture:
    """Where the rows lie along the first three singular directions, raw and centred.

    `raw` and `centered` are base64 of little-endian int16 of shape (len(ids), 3), row-major; multiply by
    `raw_scale` or `centered_scale` to get coordinates. `group_names[groups[i]]` is the group of row `ids[i]`.
    `labels[i]` is its token, None where there is none. `total` counts the rows there are, of which `ids` is a
    sample when smaller. `norms` is base64 of little-endian uint16, one a row; multiply by `norm_scale` to get
    the Euclidean length of the row as stored. `counts[i]` says how often the token of row `ids[i]` occurs in
    a text. Either is None where unknown.
    """

    total: int
    ids: tuple[int, ...]
    labels: tuple[str | None, ...]
    groups: tuple[int, ...]
    group_names: tuple[str, ...]
    raw: str
    raw_scale: float
    centered: str
    centered_scale: float
    norms: str | None = None
    norm_scale: float = 1.0
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(self.labels) != count or len(self.groups) != count:
            raise InputError(
                f"expected {counted(count, 'label')} and {plural(count, 'group')} in the picture, got {len(self.labels)} and {len(self.groups)}"
            )
        if any(not 0 <= i < _LARGEST_INTEGER for i in (self.total, *self.ids)):
            raise InputError(
                "expected ids and a total of at least 0 and below 2^53 in the picture, got others: the file was edited"
            )
        if any(not 0 <= group < len(self.group_names) for group in self.groups):
            raise InputError(
                f"expected groups below {len(self.group_names)} in the picture, got {max(self.groups)}"
            )
        scales = (self.raw_scale, self.centered_scale, self.norm_scale)
        if not all(0 < scale < _LARGEST_SCALE for scale in scales):
            raise InputError(
                f"expected scales of the picture above 0 and below {_LARGEST_SCALE:g}, got {', '.join(map(str, scales))}"
            )
        for name in ("raw", "centered"):
            if len(_decode(getattr(self, name), name)) != 6 * count:
                raise InputError(
                    f"expected {counted(count, 'row')} of three int16 in the picture's {name!r} coordinates, got another length"
                )
        if self.norms is not None and len(_decode(self.norms, "norms")) != 2 * count:
            raise InputError(
                f"expected {counted(count, 'norm')} of one uint16 in the picture, got another length"
            )
        self._check_counts()

    def _check_counts(self) -> None:
        if self.counts is None:
            return
        count = len(self.ids)
        if len(self.counts) != count or any(not 0 <= often < _LARGEST_INTEGER for often in self.counts):
            raise InputError(
                f"expected {counted(count, 'count')} of at least 0 and below 2^53 in the picture, got {len(self.counts)}"
                f"{', some beyond' if len(self.counts) == count else ''}"
            )

    def coordinates(self, *, centered: bool) -> list[tuple[float, float, float]]:
        """The coordinates as floats, one (x, y, z) per row of `ids`."""
        scale = self.centered_scale if centered else self.raw_scale
        flat = [
            value * scale for value in _integers(self.centered if centered else self.raw, "h", "coordinates")
        ]
        return list(zip(flat[0::3], flat[1::3], flat[2::3], strict=True))

    def outermost(self, most: int) -> list[tuple[str, list[str]]]:
        """For each group with named rows, the tokens farthest from the centre of the centred cloud, farthest
        first."""
        points = self.coordinates(centered=True)
        named = [
            (math.hypot(*points[i]), self.groups[i], label)
            for i, label in enumerate(self.labels)
            if label is not None
        ]
        named.sort(key=lambda one: -one[0])  # stable: ties stay in the order of the ids
        by_group = [
            (name, [label for _, of, label in named if of == group])
            for group, name in enumerate(self.group_names)
        ]
        return [(name, labels[:most]) for name, labels in by_group if labels]

    def lengths(self) -> list[float] | None:
        """The Euclidean length of each row of `ids`, to within half of `norm_scale`; None where it is
        unknown."""
        if self.norms is None:
            return None
        return [value * self.norm_scale for value in _integers(self.norms, "H", "norms")]


def _integers(text: str, kind: str, name: str) -> list[int]:
    values = array.array(kind, _decode(text, name))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(
            f"expected base64 in the picture's {name!r}, got text that does not decode: the file was cut or edited"
        ) from error
