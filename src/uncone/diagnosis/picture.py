"""The picture: where the rows lie along the first singular directions, raw and centred."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.measure.groups import Reserved
from uncone.moments import Moments, row_norms
from uncone.records.parts import Picture
from uncone.records.text import counted
from uncone.records.token_text import token_texts
from uncone.rows import Array, Rows, as_array
from uncone.threads import on_one_thread, share_rows

MOST_POINTS = 32768  # more points add nothing that an eye could see, and a megabyte to the file for every 40,000
_AXES = 3
_LEVELS = 32767
_NORM_LEVELS = 65535
_EDGE = 10  # the first and the last tenth of the ids, the frequent and the rare, are groups of their own


@on_one_thread
def draw_picture(
    rows: Rows,
    moments: Moments,
    reserved: Reserved | None,
    progress: Callable[[int], None] | None = None,
    *,
    counts: Any = None,
) -> Picture:
    """At most 32,768 raw rows along three singular directions, raw and centred; and their norms.

    The sample holds all `reserved` rows, where they are at most half of it, as a group of their own, and evenly spaced
    rows besides. `counts` (N,) says how often the token of each row occurs.
    """
    n = rows.shape[0]
    if counts is not None:
        counts = as_array(counts)
        if counts.shape != (n,) or counts.dtype.kind not in "biu":
            expected, came = f"integers of shape ({n},), one a row", f"{counts.dtype} of shape {tuple(counts.shape)}"
            raise InputError(f"expected counts as {expected}, got {came}: count the tokens by id")
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
    labels, often = tuple(token_texts(rows.labels, listed)), None if counts is None else tuple(counts[indices].tolist())
    return Picture(n, ids, labels, tuple(groups.tolist()), names, *raw, *centered, *lengths, often)


def _coordinates(
    rows: Rows, indices: Array, axes: Array, progress: Callable[[int], None] | None
) -> tuple[Array, Array]:
    """The rows at `indices` (ascending) along `axes` (D, K), float64 (n, K), and their norms (n,)."""
    coordinates, norms = np.empty((len(indices), axes.shape[1])), np.empty(len(indices))
    axes = axes.astype(rows.widened)

    def project(x: Array, out: Array) -> None:
        out[...] = x @ axes

    counts = np.bincount(indices // rows.part, minlength=-(-rows.shape[0] // rows.part))
    # Rows of all blocks go through the same memory: fresh memory for each would leave holes that add up.
    buffer = np.empty((counts.max(), len(axes)), rows.widened)
    cells = zip(*(np.split(whole, counts.cumsum()[:-1]) for whole in (indices, coordinates, norms)), strict=True)
    for start, block in rows.numbered(progress, rows.part):
        taken, into, lengths = next(cells)
        # Of a mode that takes no copy of its own; no index is out of range.
        chosen = np.take(block, taken - start, axis=0, out=buffer[: len(taken)], mode="clip")
        del block  # lets the reader use its buffer again
        if len(taken):
            share_rows(project, chosen, into)
            lengths[...] = row_norms(chosen)
    return coordinates, norms


def _sample(n: int, reserved: Reserved | None) -> Array:
    if n <= MOST_POINTS:
        return np.arange(n)
    apart = np.empty(0, np.int64) if reserved is None else reserved.indices
    kept = apart[evenly(len(apart), MOST_POINTS // 2)]
    # Places among the other rows, which are not listed: they may be 100 million.
    others = evenly(n - len(apart), MOST_POINTS - len(kept))
    before = apart - np.arange(len(apart))  # how many other rows stand before each reserved one
    return np.sort(np.concatenate([kept, others + np.searchsorted(before, others, side="right")]))


def evenly(n: int, most: int) -> Array:
    """At most `most` places among `n`, evenly spaced, with the first and the last."""
    return np.rint(np.linspace(0, n - 1, min(n, most))).astype(np.int64)


def _axes(moments: Moments, *, centered: bool, toward: Array) -> Array:
    """The leading directions (D, 3), signed toward the mean row, or else the largest coordinate."""
    axes = moments.leading_directions(_AXES, centered=centered)
    along = toward @ axes
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    decided = np.abs(along) > 1e-9 * np.linalg.norm(toward)
    sign = np.sign(np.where(decided, along, largest))
    padded = np.zeros((len(axes), _AXES))
    padded[:, : axes.shape[1]] = axes * np.where(sign == 0, 1.0, sign)
    return padded


def _quantise(values: Array, levels: int, dtype: npt.DTypeLike) -> tuple[str, float]:
    """The values as base64 of integers of at most `levels`, and what one of these stands for."""
    scale = float(np.abs(values).max()) / levels or 1.0
    whole = np.rint(values / scale).clip(-levels, levels).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(whole.tobytes()).decode("ascii"), scale


def _groups(indices: Array, n: int, reserved: Reserved | None) -> tuple[tuple[str, ...], Array]:
    edge, names = n // _EDGE, ("first tenth of ids", "ids between", "last tenth of ids")
    groups = np.ones(len(indices), np.int64)
    groups[indices < edge] = 0
    groups[indices >= n - edge] = 2
    if reserved is None:
        return names, groups
    groups[np.isin(indices, reserved.indices)] = 3
    last = "reserved tokens" if reserved.by_name else f"last {counted(len(reserved.indices), 'id')}"
    return (*names, last), groups
