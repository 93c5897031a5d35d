"""Which bars stand out in each of many groups, without a wait for the device: every possible round at once, then a walk along them.

A round is known by the number m of bars between the longest and the shortest that are left. So the bar at which each of them would stop is a
table (G, m), and the rounds that do happen are a path in it, which pointer jumping follows in ceil(log2 m) steps.
"""

import torch

from uncone.errors import InputError
from uncone.topology.grouped import check_bars, check_lengths, group_of_each, place_of_each
from uncone.topology.prominent import FEWEST, Convention, check_convention, prominent_bars

Tensor = torch.Tensor


def prominent_counts(
    lengths: Tensor, bars: Tensor, *, convention: Convention = "official", width: int | None = None
) -> Tensor:
    """`prominent_bars` of each group, on the device of the lengths.

    Args:
        lengths: (M,), the groups one after another, inside each in any order; finite and at least 0 (looked at
            on the CPU only).
        bars: (G,) integers, how many lengths each group has, as `Barcode.bars` says.
        convention: as in `prominent_bars`.
        width: the largest of `bars` or more. None asks the device, which on a GPU is the one wait here; with a width nothing waits, and the whole can be
            captured in a CUDA graph.

    Returns:
        (G,) int64 on the device of `lengths`. Takes O(G width^2) float64 memory on a GPU: meant for groups of a few hundred. On the CPU few or
        large groups are taken one by one.

    Raises:
        InputError: another shape, dtype or convention; and, where the lengths are on the CPU, bars that do not sum to their number or are above the width.
    """
    check_convention(convention)
    check_lengths(lengths)
    check_bars(bars, len(lengths))
    bars = bars.to(lengths.device)
    if lengths.device.type == "cpu" and not bool(((lengths >= 0) & (lengths < torch.inf)).all()):
        worst = lengths.detach()[~((lengths >= 0) & (lengths < torch.inf))][0]
        raise InputError(
            f"expected lengths that are finite and at least 0, got {float(worst):g}: pass the lengths of a barcode"
        )
    if width is None:
        width = int(bars.max()) if len(bars) else 0
    elif bars.device.type == "cpu" and bool((bars > width).any()):
        raise InputError(
            f"expected a width of at least the largest group, {int(bars.max())}, got {width}: leave it out on the CPU"
        )
    if lengths.device.type == "cpu" and (
        len(bars) <= 8 or width > 256
    ):  # the table has a price: one at a time is faster there
        one_by_one = [
            prominent_bars(one, convention=convention) for one in torch.split(lengths, bars.tolist())
        ]
        return torch.tensor(one_by_one, dtype=torch.int64)
    width = max(width, FEWEST)
    group = group_of_each(bars, len(lengths))
    padded = torch.zeros(len(bars), width, dtype=torch.float64, device=lengths.device)
    padded[group, place_of_each(bars, group)] = lengths.detach().double()
    return _counts(padded.sort(dim=1, descending=True).values, convention)


def prominent_mask(
    lengths: Tensor, bars: Tensor, *, convention: Convention = "official", width: int | None = None
) -> Tensor:
    """(M,) bool: which lengths are features of their group, for lengths ascending inside each group, as a `Barcode` holds them.

    `persistent_entropy(torch.where(mask, lengths, 0), bars)` is then the entropy of the features alone. Arguments as of `prominent_counts`.
    """
    counts = prominent_counts(lengths, bars, convention=convention, width=width)
    bars = bars.to(lengths.device)
    group = group_of_each(bars, len(lengths))
    return place_of_each(bars, group) >= (bars - counts)[group]


def _counts(bars: Tensor, convention: Convention) -> Tensor:
    """(G,) of bars (G, W) in descending order, 0 beyond the last of a group."""
    width = bars.shape[1]
    index = torch.arange(width, device=bars.device)
    longest = torch.where(bars[:, :1] > 0, bars[:, :1], 1)
    share = bars / longest
    present = share > 0
    count = present.sum(1)
    logs = torch.where(
        share > 0.5, torch.log1p((bars - longest) / longest), torch.where(present, share, 1).log()
    )
    shortest = (count - 1).clamp(min=0)[:, None]
    alpha = share.gather(1, shortest)

    # prefix sums over the bars 1 to k: not cumsum, which has no deterministic form on CUDA
    earlier = (index[:, None] >= index) & (index >= 1)
    mass = (share[:, None] * earlier).sum(2)
    weighted = ((share * logs)[:, None] * earlier).sum(2)
    tail_mass = mass[:, :, None] - mass[:, None, :] + (alpha + 1)[:, :, None]  # (G, m, i)
    tail_weighted = (
        weighted[:, :, None] - weighted[:, None, :] + (alpha * logs.gather(1, shortest))[:, :, None]
    )
    signal = tail_weighted <= tail_mass * logs[:, None, :]
    tested = (index >= 1) & (index <= index[:, None] - 2)
    stop = 1 + (signal & tested).sum(2)  # (G, m): the first i that is noise, or m - 1

    accepted = stop <= torch.ceil((index + 2) * _features_per_bar(alpha))
    rounds = torch.where(accepted, index, stop).clamp(max=width - 1)
    for _ in range(max(width - 1, 1).bit_length()):
        rounds = rounds.gather(1, rounds)
    last = rounds.gather(1, (count - 2).clamp(min=0)[:, None])
    kept = stop.gather(1, last)[:, 0] + (1 if convention == "official" else 0)
    return torch.where(count < FEWEST, count, kept)


def _features_per_bar(alpha: Tensor) -> Tensor:
    """`prominent.features_per_bar` for a tensor."""
    gap = 1 - alpha
    series = gap / 7 + 1 / 6
    for k in (5, 4, 3, 2):
        series = gap * series + 1 / k
    safe = torch.where(gap < 0.001, 0.5, alpha).clamp(min=torch.finfo(alpha.dtype).tiny)
    plain = safe * (safe - 1 - safe.log()) / (1 - safe) ** 2
    return torch.where(alpha == 1, torch.inf, torch.where(gap < 0.001, alpha * series, plain))
