"""Numbers of several groups in one flat tensor, as a `Barcode` holds them: which group each belongs to, and its place there."""

import torch

from uncone.errors import InputError

Tensor = torch.Tensor


def check_lengths(lengths: object) -> None:
    """Refuses what is no tensor (M,) of floating point numbers."""
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or not lengths.is_floating_point():
        found = (
            f"{tuple(lengths.shape)} of {lengths.dtype}"
            if isinstance(lengths, Tensor)
            else type(lengths).__name__
        )
        raise InputError(
            f"expected lengths of shape (M,) with floating point numbers, got {found}: pass Barcode.lengths"
        )


def check_bars(bars: object, count: int) -> None:
    """Refuses `bars` that do not cut `count` numbers into groups; the values are looked at on the CPU only, where it costs no wait."""
    if not isinstance(bars, Tensor):
        raise InputError(
            f"expected bars as a tensor of integers, got {type(bars).__name__}: pass Barcode.bars, how many bars each group has"
        )
    if bars.ndim != 1 or bars.is_floating_point() or bars.is_complex() or bars.dtype == torch.bool:
        raise InputError(
            f"expected bars of shape (G,) with integers, got {tuple(bars.shape)} of {bars.dtype}: pass Barcode.bars, how many bars each group has"
        )
    if bars.device.type == "cpu" and (int(bars.sum()) != count or bool((bars < 0).any())):
        raise InputError(
            f"expected bars that are at least 0 and sum to the number of lengths, {count}, got a sum of {int(bars.sum())}: "
            "pass the lengths and the bars of one Barcode"
        )


def group_of_each(bars: Tensor, count: int) -> Tensor:
    """(count,) which group each number belongs to, for groups of sizes `bars` that lie one after another. Never waits for the device."""
    return torch.repeat_interleave(torch.arange(len(bars), device=bars.device), bars, output_size=count)


def place_of_each(bars: Tensor, group: Tensor) -> Tensor:
    """(count,) the place of each number inside its group, from 0."""
    start = bars.cumsum(0) - bars
    return torch.arange(len(group), device=group.device) - start[group]
