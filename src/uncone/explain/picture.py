"""The picture: where the rows lie along the first singular directions, raw and centred."""

import base64
import sys
from collections.abc import Callable

import torch

from uncone.measure.groups import Reserved
from uncone.moments import Moments
from uncone.records import Picture
from uncone.rows import GRID, Rows

Tensor = torch.Tensor
MOST_POINTS = 32768
"""More points add nothing that an eye could see, and a megabyte to the file for every 40,000."""
_AXES = 3
_LEVELS = 32767
_EDGE = 10  # the first and the last tenth of the ids are groups of their own: there the frequent and the rare ones are


def draw_picture(
    rows: Rows, moments: Moments, reserved: Reserved | None, progress: Callable[[int], None] | None = None
) -> Picture:
    """Coordinates of the rows (a sample of at most 32,768) along three singular directions, raw and centred.

    Args:
        rows: the rows, raw.
        moments: their moments, with second-order sums.
        reserved: the reserved rows, kept in the sample and shown as a group of their own.
        progress: called with the number of rows done.
    """
    indices = _sample(rows.shape[0], reserved)
    mean = moments.mean().cpu()
    axes = torch.cat([_axes(moments, centered=centered, toward=mean) for centered in (False, True)], dim=1)
    coordinates = _coordinates(rows, indices, axes, progress)
    raw, raw_scale = _quantise(coordinates[:, :_AXES])
    centered, centered_scale = _quantise(coordinates[:, _AXES:] - mean @ axes[:, _AXES:])
    names, groups = _groups(indices, rows.shape[0], reserved)
    labels = rows.labels
    listed = indices.tolist()
    return Picture(
        total=rows.shape[0],
        ids=tuple(listed if rows.ids is None else rows.ids[indices].tolist()),
        labels=tuple(None if labels is None else labels[i] for i in listed),
        groups=tuple(groups.tolist()),
        group_names=names,
        raw=raw,
        raw_scale=raw_scale,
        centered=centered,
        centered_scale=centered_scale,
    )


def _coordinates(rows: Rows, indices: Tensor, axes: Tensor, progress: Callable[[int], None] | None) -> Tensor:
    """The rows at `indices` (ascending) along `axes` (D, K), float64 (len(indices), K)."""
    coordinates = torch.empty((len(indices), axes.shape[1]), dtype=torch.float64)
    counts = torch.bincount(indices // GRID)
    # Rows of one block after another go through the same memory: what is allocated for each leaves holes that add up.
    buffer = torch.empty((int(counts.max()), len(axes)), dtype=rows.widened)
    cells = iter(enumerate(zip(torch.split(indices, counts.tolist()), torch.split(coordinates, counts.tolist()), strict=True)))
    for block in rows.blocks():  # no zip over them: it holds what it gave until it gives the next
        cell, (taken, into) = next(cells)
        chosen = torch.index_select(block, 0, taken - cell * GRID, out=buffer[: len(taken)])
        del block  # lets the reader use its buffer again
        into.copy_(chosen @ axes.to(chosen.dtype))
        if progress is not None:
            progress(min((cell + 1) * GRID, rows.shape[0]))
    return coordinates


def _sample(n: int, reserved: Reserved | None) -> Tensor:
    if n <= MOST_POINTS:
        return torch.arange(n)
    kept = reserved.indices[: MOST_POINTS // 16] if reserved is not None else torch.empty(0, dtype=torch.int64)
    even = torch.linspace(0, n - 1, MOST_POINTS - len(kept), dtype=torch.float64).round().long()
    sample: Tensor = torch.unique(torch.cat([even, kept]))
    return sample


def _axes(moments: Moments, *, centered: bool, toward: Tensor) -> Tensor:
    """The leading directions (D, 3) with a fixed sign: toward the mean row, or else toward the largest coordinate."""
    axes: Tensor = moments.leading_directions(_AXES, centered=centered).cpu()
    along = toward @ axes
    largest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))[0]
    decided = along.abs() > 1e-9 * toward.norm()
    sign = torch.where(decided, along, largest).sign()
    axes = axes * torch.where(sign == 0, 1.0, sign)
    padded: Tensor = torch.zeros((len(axes), _AXES), dtype=axes.dtype)
    padded[:, : axes.shape[1]] = axes
    return padded


def _quantise(coordinates: Tensor) -> tuple[str, float]:
    scale = float(coordinates.abs().max()) / _LEVELS or 1.0
    values = (coordinates / scale).round().to(torch.int16).numpy()
    if sys.byteorder == "big":
        values = values.byteswap()
    return base64.b64encode(values.tobytes()).decode("ascii"), scale


def _groups(indices: Tensor, n: int, reserved: Reserved | None) -> tuple[tuple[str, ...], Tensor]:
    edge = n // _EDGE
    groups = torch.ones(len(indices), dtype=torch.int64)
    groups[indices < edge] = 0
    groups[indices >= n - edge] = 2
    names = ("first tenth of ids", "ids between", "last tenth of ids")
    if reserved is None:
        return names, groups
    groups[torch.isin(indices, reserved.indices)] = 3
    return (*names, "reserved tokens" if reserved.by_name else f"last {len(reserved.indices):,} ids"), groups
