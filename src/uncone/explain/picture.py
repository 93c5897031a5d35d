"""The picture: where the rows lie along the first singular directions, raw and centred."""

import base64
import sys
from collections.abc import Callable

import torch

from uncone.errors import InputError
from uncone.measure.groups import Reserved
from uncone.moments import Moments, row_norms
from uncone.records import Picture
from uncone.records.text import counted
from uncone.records.token_text import token_texts
from uncone.rows import GRID, Rows
from uncone.threads import share_rows

Tensor = torch.Tensor
MOST_POINTS = 32768
"""More points add nothing that an eye could see, and a megabyte to the file for every 40,000."""
_AXES = 3
_LEVELS = 32767
_NORM_LEVELS = 65535
_EDGE = 10  # the first and the last tenth of the ids, the frequent and the rare, are groups of their own


def draw_picture(
    rows: Rows,
    moments: Moments,
    reserved: Reserved | None,
    progress: Callable[[int], None] | None = None,
    *,
    counts: Tensor | None = None,
) -> Picture:
    """At most 32,768 raw rows along three singular directions, raw and centred; and their norms.

    The sample holds all `reserved` rows, where they are at most half of it, as a group of their own, and
    evenly spaced rows besides. `counts` (N,) says how often the token of each row occurs, as whole numbers.
    """
    n = rows.shape[0]
    if counts is not None:
        if counts.shape != (n,) or counts.is_floating_point() or counts.is_complex():
            came = f"{counts.dtype} of shape {tuple(counts.shape)}"
            raise InputError(
                f"expected counts as integers of shape ({n},), one a row, got {came}: count the tokens by id"
            )
        if n and int(counts.min()) < 0:
            raise InputError(f"expected counts of at least 0, got {int(counts.min())}: count tokens by id")
    indices = _sample(n, reserved)
    mean = moments.mean().cpu()
    axes = torch.cat([_axes(moments, centered=centered, toward=mean) for centered in (False, True)], dim=1)
    coordinates, norms = _coordinates(rows, indices, axes, progress)
    raw, raw_scale = _quantise(coordinates[:, :_AXES], _LEVELS, torch.int16)
    about_mean = coordinates[:, _AXES:] - mean @ axes[:, _AXES:]
    centered, centered_scale = _quantise(about_mean, _LEVELS, torch.int16)
    lengths, norm_scale = _quantise(norms, _NORM_LEVELS, torch.uint16)
    names, groups = _groups(indices, n, reserved)
    labels, listed = rows.labels, indices.tolist()
    return Picture(
        total=n, ids=tuple(listed if rows.ids is None else rows.ids[indices].tolist()),
        labels=tuple(token_texts(labels, listed)),
        groups=tuple(groups.tolist()), group_names=names,
        raw=raw, raw_scale=raw_scale, centered=centered, centered_scale=centered_scale,
        norms=lengths, norm_scale=norm_scale,
        counts=None if counts is None else tuple(counts.cpu()[indices].tolist()),
    )  # fmt: skip


def _coordinates(
    rows: Rows, indices: Tensor, axes: Tensor, progress: Callable[[int], None] | None
) -> tuple[Tensor, Tensor]:
    """The rows at `indices` (ascending) along `axes` (D, K), float64 (n, K), and their norms (n,)."""
    coordinates = torch.empty((len(indices), axes.shape[1]), dtype=torch.float64)
    norms = torch.empty(len(indices), dtype=torch.float64)
    counts = torch.bincount(indices // GRID)
    # Rows of all blocks go through the same memory: fresh memory for each would leave holes that add up.
    buffer = torch.empty((int(counts.max()), len(axes)), dtype=rows.widened)
    parts = [torch.split(whole, counts.tolist()) for whole in (indices, coordinates, norms)]
    cells = zip(*parts, strict=True)
    for start, block in rows.numbered(progress):
        taken, into, lengths = next(cells)
        chosen = torch.index_select(block, 0, taken - start, out=buffer[: len(taken)])
        del block  # lets the reader use its buffer again
        if len(taken):
            share_rows(lambda x, y: y.copy_(x @ axes.to(x.dtype)), chosen, into)
            lengths.copy_(row_norms(chosen))
    return coordinates, norms


def _sample(n: int, reserved: Reserved | None) -> Tensor:
    if n <= MOST_POINTS:
        return torch.arange(n)
    apart = torch.empty(0, dtype=torch.int64) if reserved is None else reserved.indices
    kept = apart[_evenly(len(apart), MOST_POINTS // 2)]
    # Places among the other rows, which are not listed: they may be 100 million.
    others = _evenly(n - len(apart), MOST_POINTS - len(kept))
    before = apart - torch.arange(len(apart))  # how many other rows stand before each reserved one
    return torch.cat([kept, others + torch.searchsorted(before, others, right=True)]).sort().values


def _evenly(n: int, most: int) -> Tensor:
    """At most `most` places among `n`, evenly spaced, with the first and the last."""
    return torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).round().long()


def _axes(moments: Moments, *, centered: bool, toward: Tensor) -> Tensor:
    """The leading directions (D, 3), signed toward the mean row, or else the largest coordinate."""
    axes: Tensor = moments.leading_directions(_AXES, centered=centered).cpu()
    along = toward @ axes
    largest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))[0]
    decided = along.abs() > 1e-9 * toward.norm()
    sign = torch.where(decided, along, largest).sign()
    axes = axes * torch.where(sign == 0, 1.0, sign)
    padded: Tensor = torch.zeros((len(axes), _AXES), dtype=axes.dtype)
    padded[:, : axes.shape[1]] = axes
    return padded


def _quantise(values: Tensor, levels: int, dtype: torch.dtype) -> tuple[str, float]:
    """The values as base64 of integers of at most `levels`, and what one of these stands for."""
    scale = float(values.abs().max()) / levels or 1.0
    return _base64((values / scale).round().clamp(-levels, levels).to(torch.int32).to(dtype)), scale


def _base64(integers: Tensor) -> str:
    values = integers.numpy()
    if sys.byteorder == "big":
        values = values.byteswap()
    return base64.b64encode(values.tobytes()).decode("ascii")


def _groups(indices: Tensor, n: int, reserved: Reserved | None) -> tuple[tuple[str, ...], Tensor]:
    edge, names = n // _EDGE, ("first tenth of ids", "ids between", "last tenth of ids")
    groups = torch.ones(len(indices), dtype=torch.int64)
    groups[indices < edge] = 0
    groups[indices >= n - edge] = 2
    if reserved is None:
        return names, groups
    groups[torch.isin(indices, reserved.indices)] = 3
    last = "reserved tokens" if reserved.by_name else f"last {counted(len(reserved.indices), 'id')}"
    return (*names, last), groups
