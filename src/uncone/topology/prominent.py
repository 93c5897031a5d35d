"""Which bars stand out: the selection of Atienza, Gonzalez-Diaz and Rucco (2019), for all groups at once and without a wait for the device.

The procedure neutralises the i longest of its bars (but for the longest, T, and the shortest, r): it gives them the one length at which
the entropy of all is greatest, over the bars not neutralised yet. With S'_i the total length then, noise begins at the first i with
C_i = S'_(i-1) / S'_i < 1. Written out, with l'_i the neutral length, u = l_i / l'_i and P_i the length of the bars not neutralised,

    l'_i = exp(sum l ln l / sum l)
    S'_(i-1) - S'_i = l'_i ((u - 1) + (i - 1) (exp(u ln u / (P_i / l'_i + u)) - 1))

Both terms have the sign of ln u. So C_i < 1 exactly where bar i is shorter than its neutral length: where the weighted mean of ln l over
the tail exceeds ln l_i. No exponential and no near-tie of two sums is left. As i grows, so does (that mean - ln l_i) P_i. The first such i
is therefore found by bisection on two prefix sums.

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
_AT_ONCE = 2**22  # numbers of a table on the CPU, beyond which groups are taken one by one


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
    if lengths.device.type == "cpu" and len(bars) > 1 and len(bars) * width > _AT_ONCE:
        ones = torch.split(lengths, bars.tolist())
        return torch.tensor([prominent_bars(one, convention=convention) for one in ones])
    group = group_of_each(bars, len(lengths))
    padded = torch.zeros(len(bars), max(width, _FEWEST), dtype=torch.float64, device=lengths.device)
    padded[group, place_of_each(bars, group)] = lengths.detach().double()
    counts, kept = _counts(padded.sort(dim=1, descending=True).values)
    return torch.where(counts < _FEWEST, counts, kept if convention == "exclusive" else kept + 1)


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


def check_convention(convention: str) -> None:
    """Refuses any other convention than the two."""
    if convention not in ("official", "exclusive"):
        raise InputError(f'expected convention "official" or "exclusive", got {convention!r}')


def _counts(bars: Tensor) -> tuple[Tensor, Tensor]:
    """Of bars (G, W) in descending order, 0 beyond the last of a group: how many are above 0 (G,), and at which i the last round stops (G,)."""
    width = bars.shape[1]
    longest = torch.where(bars[:, :1] > 0, bars[:, :1], 1)
    share = bars / longest
    present = share > 0  # not a bar that is 0 beside the longest even in float64
    count = present.sum(1)
    # ln(l / T); near 1 from the difference, which is exact there, so that nearly equal bars still differ
    logs = torch.where(
        share > 0.5, torch.log1p((bars - longest) / longest), torch.where(present, share, 1).log()
    )
    shortest = (count - 1).clamp(min=0)[:, None]
    alpha = share.gather(1, shortest)
    between = torch.stack([share, share * logs])
    between[:, :, 0] = 0
    mass, weighted = _prefix_sums(between)  # of the bars 1 to k
    tail_mass, tail_weighted = mass + alpha + 1, weighted + alpha * logs.gather(1, shortest)

    m = torch.arange(width, device=bars.device).expand_as(bars)
    low, high = (
        torch.ones_like(m),
        (m - 1).clamp(min=1),
    )  # the first i that is noise where m are left, or m - 1
    for _ in range(width.bit_length()):
        middle = (low + high) // 2
        tail = tail_weighted - weighted.gather(1, middle)
        is_noise = tail > (tail_mass - mass.gather(1, middle)) * logs.gather(1, middle)
        high = torch.where(is_noise, middle, high)
        low = torch.where(is_noise, low, torch.minimum(middle + 1, high))

    accepted = low <= torch.ceil((m + 2) * features_per_bar(alpha))
    rounds = torch.where(accepted, m, low)
    for _ in range(width.bit_length()):
        rounds = rounds.gather(1, rounds)
    last = rounds.gather(1, (count - 2).clamp(min=0)[:, None])
    return count, low.gather(1, last)[:, 0]


def _prefix_sums(x: Tensor) -> Tensor:
    """Inclusive sums along the last dimension, by doubling: `cumsum` has no deterministic form on CUDA."""
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
    series = sum(gap**k / (k + 2) for k in range(6))  # where the difference below cancels
    safe = torch.where(gap < 0.001, 0.5, alpha).clamp(min=torch.finfo(alpha.dtype).tiny)
    plain = safe * (safe - 1 - safe.log()) / (1 - safe) ** 2
    return torch.where(alpha == 1, math.inf, torch.where(gap < 0.001, alpha * series, plain))
