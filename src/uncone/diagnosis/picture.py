"""The picture: rows along the first singular directions, raw and centred."""

import base64
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.measure.groups import Reserved
from uncone.moments import Moments, row_norms
from uncone.records.parts import Picture
from uncone.records.text import counted
from uncone.records.token_text import token_texts
from uncone.roles import Ticks
from uncone.rows import Array, Rows, as_array
from uncone.threads import on_one_thread, share_rows

MOST_POINTS = 32768  # more points make no visible difference, and 40,000 take a megabyte
_AXES, _LEVELS, _NORM_LEVELS = 3, 32767, 65535
_EDGE = 10  # the first and last tenth of the ids, frequent and rare, are groups


@on_one_thread
def draw_picture(
    rows: Rows, moments: Moments, reserved: Reserved | None, progress: Ticks = None, *, counts: Any = None
) -> Picture:
    """At most 32,768 raw rows along three singular directions, raw and centred. Rows are evenly spaced, with all
    `reserved` rows if these are at most half. `counts` (N,) are how often the tokens of rows occur."""
    n = rows.shape[0]
    if counts is not None:
        counts = as_array(counts)
        if counts.shape != (n,) or counts.dtype.kind not in "biu":
            came = f"{counts.dtype} of shape {tuple(counts.shape)}"
            raise InputError(
                f"expected counts as integers of shape ({n},), one per row, got {came}: count the tokens by id"
            )
        if n and int(counts.min()) < 0:
            raise InputError(f"expected counts of at least 0, got {int(counts.min())}: count tokens by id")
    indices, mean = _sample(n, reserved), moments.mean()
    axes = np.concatenate([_axes(moments, centered=centered, toward=mean) for centered in (False, True)], axis=1)
    coordinates, norms = _coordinates(rows, indices, axes, progress)
    raw = _quantise(coordinates[:, :_AXES], _LEVELS, np.int16)
    centered = _quantise(coordinates[:, _AXES:] - mean @ axes[:, _AXES:], _LEVELS, np.int16)
    lengths = _quantise(norms, _NORM_LEVELS, np.uint16)
    (names, groups), listed = _groups(indices, n, reserved), indices.tolist()
    ids = tuple(listed if rows.ids is None else rows.ids[indices].tolist())
    often = None if counts is None else tuple(counts[indices].tolist())
    labels = tuple(token_texts(rows.labels, listed))
    return Picture(n, ids, labels, tuple(groups.tolist()), names, *raw, *centered, *lengths, often)


def _coordinates(rows: Rows, indices: Array, axes: Array, progress: Ticks) -> tuple[Array, Array]:
    """The rows at `indices` (ascending) along `axes` (D, K), and their norms."""
    work = partial(_coordinates_of, indices, axes, progress=None if rows.parts else progress)
    return rows.over_parts(work, _joined, progress)


def _joined(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _coordinates_of(
    indices: Array, axes: Array, rows: Rows, first: int, *, progress: Ticks = None
) -> tuple[Array, Array]:
    """The coordinates and norms of the wanted rows among those from number `first` on."""
    indices = indices[slice(*np.searchsorted(indices, [first, first + rows.shape[0]]))] - first
    coordinates, norms = np.empty((len(indices), axes.shape[1])), np.empty(len(indices))
    axes = axes.astype(rows.widened)

    def project(x: Array, out: Array) -> None:
        out[...] = x @ axes

    counts = np.bincount(indices // rows.part, minlength=-(-rows.shape[0] // rows.part))
    # one memory for all blocks: fresh memory for each would leave holes that add up
    buffer = np.empty((counts.max(), len(axes)), rows.widened)
    cells = zip(*(np.split(whole, counts.cumsum()[:-1]) for whole in (indices, coordinates, norms)), strict=True)
    for start, block in rows.numbered(progress, rows.part):
        taken, into, lengths = next(cells)
        # this mode makes no copy of its own; no index is out of range
        chosen = np.take(block, taken - start, axis=0, out=buffer[: len(taken)], mode="clip")
        del block  # frees the reader's buffer
        if len(taken):
            share_rows(project, chosen, into)
            lengths[...] = row_norms(chosen)
    return coordinates, norms


def _sample(n: int, reserved: Reserved | None) -> Array:
    if n <= MOST_POINTS:
        return np.arange(n)
    apart = reserved.indices if reserved else np.empty(0, np.int64)
    kept = apart[evenly(len(apart), MOST_POINTS // 2)]
    # places among the other rows, which may be 100 million and are not listed
    others = evenly(n - len(apart), MOST_POINTS - len(kept))
    before = apart - np.arange(len(apart))  # other rows before each reserved one
    return np.sort(np.concatenate([kept, others + np.searchsorted(before, others, side="right")]))


def evenly(n: int, most: int) -> Array:
    """At most `most` of `n` places, with the first and the last."""
    return np.rint(np.linspace(0, n - 1, min(n, most))).astype(np.int64)


def _axes(moments: Moments, *, centered: bool, toward: Array) -> Array:
    """(D, 3), signed toward the mean row, or by the largest coordinate."""
    axes = moments.leading_directions(_AXES, centered=centered)
    along, k = toward @ axes, axes.shape[1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(k)]
    sign = np.sign(np.where(np.abs(along) > 1e-9 * np.linalg.norm(toward), along, largest))
    return np.pad(axes * np.where(sign == 0, 1.0, sign), ((0, 0), (0, _AXES - k)))


def _quantise(values: Array, levels: int, dtype: npt.DTypeLike) -> tuple[str, float]:
    """Base64 of integers of at most `levels`, and their unit."""
    scale = float(np.abs(values).max()) / levels or 1.0
    whole = np.rint(values / scale).clip(-levels, levels).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(whole.tobytes()).decode("ascii"), scale


def _groups(indices: Array, n: int, reserved: Reserved | None) -> tuple[tuple[str, ...], Array]:
    edge, names = n // _EDGE, ("first tenth of ids", "ids between", "last tenth of ids")
    groups = np.select([indices >= n - edge, indices < edge], [2, 0], 1)
    if not reserved:
        return names, groups
    groups[np.isin(indices, reserved.indices)] = 3
    last = f"{reserved.kind} tokens" if reserved.by_name else f"last {counted(len(reserved.indices), 'id')}"
    return (*names, last), groups
