"""Which bars stand out: the selection of Atienza, Gonzalez-Diaz and Rucco (2019), for all groups at once and without a wait for the device.

The procedure neutralises the i longest of its bars (but for the longest, T, and the shortest, r): it gives them the one length at which
the entropy of all is greatest, over the bars not neutralised yet. With S'_i the total length then, noise begins at the first i with
C_i = S'_(i-1) / S'_i < 1. Written out, with l'_i the neutral length, u = l_i / l'_i and P_i the length of the bars not neutralised,

    l'_i = exp(sum l ln l / sum l)
    S'_(i-1) - S'_i = l'_i ((u - 1) + (i - 1) (exp(u ln u / (P_i / l'_i + u)) - 1))

Both terms have the sign of ln u. So C_i < 1 exactly where bar i is shorter than its neutral length: where the weighted mean of ln l over
the tail exceeds ln l_i. No exponential and no near-tie of two sums is left. As i grows, so does (that mean - ln l_i) P_i. The first such i
is therefore found by a search on two prefix sums.

A round is known by the number m of bars between the longest and the shortest that are left. So the bar at which each possible round would
stop is a table (G, m), and the rounds that do happen are a path in it, which pointer jumping follows in ceil(log2 m) steps.
"""

import math
from typing import Literal

import torch

from uncone.errors import InputError
from uncone.topology.clouds import check_bars, check_lengths, group_of_each, place_of_each

Tensor = torch.Tensor
Convention = Literal["official", "exclusive"]
_FEWEST = 4
"""Fewer bars than this are all kept: the procedure compares bars between the longest and the shortest, and needs two of them."""
_LEAST = 5e-324
_BRANCHES = 32  # of the search for the bar at which a round stops
_AT_ONCE = 2**19  # numbers of a table on the CPU, beyond which groups are taken one by one


def prominent_bars(lengths: Tensor, *, convention: Convention = "official") -> int:
    """How many of the longest bars are features and not noise.

    The procedure of Atienza, Gonzalez-Diaz and Rucco (2019), "Persistent entropy for separating topological features from noise in Vietoris-Rips
    complexes"; its steps are in docs/topology.md.

    The longest bar is always a feature. The answer does not change when all lengths are scaled. It is no count of clusters: it is mostly 5 for a Gaussian
    cloud of hundreds of dimensions, and jumps between few and many while clusters move apart.
    Computed in float64 on the host, in O(m log m); a tensor on another device is copied, which waits for it (`prominent_counts` does not).

    Args:
        lengths: (m,), in any order and unit, finite and at least 0. Bars of length 0 are left out first, as ripser and gudhi leave them out.
        convention: what is kept where the test stops at bar i, counted from 1 after the longest. "official" keeps the longest and i more, as the code of
            "Shrink the longest" and one other do; "exclusive" leaves bar i out, as a third does.

    Returns:
        k in [0, m]: the features are the k longest. With fewer than four bars beyond 0 it is their number, since nothing lies between the longest and the
        shortest to compare. With m >= 4 bars of exactly one length the bound on the number of features is 0/0; the official code then accepts
        the first round, and so does this: m - 2 ("official") or m - 3.

    Raises:
        InputError: another shape, dtype or convention, or lengths that are negative or not finite.

    Example: prominent_bars(torch.tensor([1., 1.1, 1.2, 1.3, 1.4, 9.])) == 2 and, "exclusive", 1.
    """
    lengths = lengths.cpu() if isinstance(lengths, Tensor) else lengths
    check_lengths(lengths)
    return int(prominent_counts(lengths, torch.tensor([len(lengths)]), convention=convention))


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
        (G,) int64 on the device of `lengths`. Takes O(G width) float64 memory.

    Raises:
        InputError: another shape, dtype or convention; and, where the lengths are on the CPU, bars that do not sum to their number or are above the width.
    """
    return _selected(lengths, bars, convention, width)[0]


def prominent_mask(
    lengths: Tensor, bars: Tensor, *, convention: Convention = "official", width: int | None = None
) -> Tensor:
    """(M,) bool: which lengths are features of their group, for lengths ascending inside each group, as a `Barcode` holds them.

    `persistent_entropy(torch.where(mask, lengths, 0), bars)` is then the entropy of the features alone. Arguments as of `prominent_counts`.
    """
    counts, bars, group, place = _selected(lengths, bars, convention, width)
    return place >= (bars - counts)[group]


def check_convention(convention: str) -> None:
    """Refuses any other convention than the two."""
    if convention not in ("official", "exclusive"):
        raise InputError(f'expected convention "official" or "exclusive", got {convention!r}')


def _selected(
    lengths: Tensor, bars: Tensor, convention: Convention, width: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How many bars stand out in each group (G,), how many there are (G,), and of each bar its group (M,) and its place in it (M,)."""
    check_convention(convention)
    check_lengths(lengths)
    check_bars(bars, len(lengths))
    bars = bars.to(lengths.device)
    if width is None:
        width = int(bars.max()) if len(bars) else 0
    elif bars.device.type == "cpu" and bool((bars > width).any()):
        raise InputError(
            f"expected a width of at least the largest group, {int(bars.max())}, got {width}: leave it out on the CPU"
        )
    group = group_of_each(bars, len(lengths))
    place = place_of_each(bars, group)
    lengths = lengths.detach().double()
    if lengths.device.type == "cpu" and len(bars) > 1 and len(bars) * width > _AT_ONCE:
        ones = [
            _kept(one.sort(descending=True).values[None], convention)
            for one in torch.split(lengths, bars.tolist())
        ]
        return torch.cat(ones), bars, group, place
    padded = lengths.new_zeros(len(bars), width)
    padded[group, place] = lengths
    return _kept(padded.sort(dim=1, descending=True).values, convention), bars, group, place


def _kept(bars: Tensor, convention: Convention) -> Tensor:
    """How many stand out (G,) of bars (G, W) in descending order, 0 beyond the last of a group."""
    if bars.shape[1] < _FEWEST:
        bars = torch.nn.functional.pad(bars, (0, _FEWEST - bars.shape[1]))
    width = bars.shape[1]
    longest = bars[:, :1].clamp(min=_LEAST)
    share = bars / longest
    count = share.count_nonzero(1)  # without a bar that is 0 beside the longest even in float64
    # ln(l / T); near 1 from the difference, which is exact there, so that nearly equal bars still differ
    logs = torch.where(share > 0.5, torch.log1p((bars - longest) / longest), share.clamp(min=_LEAST).log())
    between = torch.stack([share, share * logs])
    shortest = between.gather(2, (count - 1).clamp(min=0)[None, :, None].expand(2, -1, -1))
    between[:, :, 0] = 0
    sums = _prefix_sums(between)  # of the bars 1 to k
    tails = sums + shortest
    tails[0] += 1

    # for each m, how many bars in a row are longer than their neutral length, of the first m - 2
    m, tried = (
        torch.arange(width, device=bars.device)[:, None],
        torch.arange(1, _BRANCHES, device=bars.device),
    )
    sums, (tail_mass, tail_weighted) = torch.cat([sums, logs[None]]), tails[..., None]
    stop = torch.zeros_like(share, dtype=torch.int64)
    for step in _strides(width):
        i = (stop[:, :, None] + tried * step).clamp(max=width - 1)
        mass, weighted, log = sums.gather(2, i.flatten(1).expand(3, -1, -1)).view(3, *i.shape)
        longer = tail_weighted - weighted <= (tail_mass - mass) * log
        stop = stop + longer.logical_and_(i <= m - 2).count_nonzero(2) * step
    stop, m = stop + 1, m[:, 0]
    rounds = torch.where(stop <= ((m + 2) * features_per_bar(shortest[0])).ceil_(), m, stop)
    for _ in range(width.bit_length()):
        rounds = rounds.gather(1, rounds)
    last = rounds.gather(1, (count - 2).clamp(min=0)[:, None])
    kept = stop.gather(1, last)[:, 0] + (convention == "official")
    return torch.where(count < _FEWEST, count, kept)


def _strides(width: int) -> list[int]:
    """Steps of a search among `width` places, `_BRANCHES` at a time, the largest first."""
    strides = [1]
    while strides[0] * _BRANCHES < width:
        strides.insert(0, strides[0] * _BRANCHES)
    return strides


def _prefix_sums(x: Tensor) -> Tensor:
    """Inclusive sums along the last dimension; on a GPU by doubling, as `cumsum` has no deterministic form there."""
    if x.device.type == "cpu":
        return x.cumsum(-1)
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], dim=-1)
        step *= 2
    return x


def features_per_bar(alpha: Tensor) -> Tensor:
    """Q / n: the share of the bars that can be features at most, where the shortest is `alpha` times the longest (step c).

    Q long bars among n of two lengths minimise the entropy:

        Q / n = alpha (alpha - 1 - ln alpha) / (1 - alpha)^2

    It nears 1/2 at alpha = 1 and is taken as unbounded there, as 0/0 is in the official code.
    """
    gap = 1 - alpha
    k = torch.arange(6, dtype=alpha.dtype, device=alpha.device)
    series = (gap[..., None] ** k / (k + 2)).sum(-1)  # where the difference below cancels
    safe = alpha.clamp(torch.finfo(alpha.dtype).tiny, 0.9999)
    plain = safe * (safe - 1 - safe.log()) / (1 - safe).square()
    return torch.where(gap < 0.001, alpha * series, plain).masked_fill_(alpha == 1, math.inf)
