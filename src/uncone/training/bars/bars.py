"""How even bars are, and which bars are prominent by the procedure of Atienza, Gonzalez-Diaz and Rucco (2019).

Its steps are in docs/topology.md. With l'_i the neutral length, u = l_i / l'_i and P_i the length of other bars,

    S'_(i-1) - S'_i = l'_i ((u - 1) + (i - 1) (exp(u ln u / (P_i / l'_i + u)) - 1))

Both terms have the sign of ln u. So S'_(i-1) / S'_i < 1 exactly where bar i is shorter than its neutral length: where
the weighted mean of ln l over the tail exceeds ln l_i. As i grows, so does (that mean - ln l_i) P_i: a search on two
prefix sums finds the first such i.

A round is known by the number m of bars left between the longest and the shortest. The bar at which each would stop is
a table (G, m); pointer jumping follows the rounds in ceil(log2 m) steps, in NumPy on the CPU, as a small array costs
PyTorch three times as much.
"""

import math
from typing import Any, Literal, get_args

import numpy as np
import torch

from uncone.arguments import one_of, whole_number
from uncone.errors import InputError
from uncone.training.bars.clouds import INTEGERS, floats, group_of_each, integers, kind, place_of_each

Tensor = torch.Tensor
Convention = Literal["official", "exclusive"]
_FEWEST = 4  # with fewer bars, all are kept: the procedure needs two between the longest and the shortest
_LEAST = 5e-324
_AT_ONCE = 2**19  # numbers of a table on the CPU; groups with larger tables are processed one by one


def check_lengths(lengths: object) -> None:
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or not lengths.is_floating_point():
        raise InputError(f"expected lengths (M,) of floats, got {kind(lengths)}: pass Barcode.lengths")
    if lengths.device.type == "cpu" and len(lengths):  # elsewhere the check would wait for the device
        least, most = torch.aminmax(lengths.detach())
        if not 0 <= float(least) <= float(most) < torch.inf:
            wrong = next(one for one in lengths.tolist() if not 0 <= one < torch.inf)
            raise InputError(f"expected finite lengths of at least 0, got {wrong:g}: pass the lengths of a barcode")


def check_bars(bars: object, count: int) -> None:
    if not isinstance(bars, Tensor) or bars.ndim != 1 or bars.dtype not in INTEGERS:
        raise InputError(f"expected bars (G,) of integers, got {kind(bars)}: pass Barcode.bars")
    if bars.device.type == "cpu" and (int(bars.sum()) != count or bool((bars < 0).any())):
        got = f"got {int(bars.sum())}: pass the lengths and the bars of one Barcode"
        raise InputError(f"expected bars of at least 0 that sum to {count}, the number of lengths, {got}")


class _PersistentEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lengths: Tensor, group: Tensor | None, groups: int) -> Tensor:
        entropy, slope = _entropy_and_slope(lengths, group, groups)
        ctx.save_for_backward(lengths, group, slope)
        return entropy.to(torch.promote_types(lengths.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        lengths, group, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed
            slope = _entropy_and_slope(lengths, group, len(grads[0]))[1]
        return (slope * _spread(grads[0].to(slope.dtype), group)).to(lengths.dtype), None, None


def _entropy_and_slope(lengths: Tensor, group: Tensor | None, groups: int) -> tuple[Tensor, Tensor]:
    """Entropies (groups,) and dH/dl (M,), in float64: M is small, and at the maximum H + ln p cancels."""
    bars = lengths if lengths.device.type == "mps" else lengths.double()  # that device has no float64
    bars = torch.where(bars < 0, torch.nan, bars)
    total = _sums(bars, group, groups)
    total = _spread(torch.where(total == 0, 1, total), group)
    share = bars / total
    logs = torch.where(share == 0, 1, share).log()
    entropy = _sums(share * -logs, group, groups)
    return entropy, torch.where(share == 0, 0, -(_spread(entropy, group) + logs) / total)


def _sums(values: Tensor, group: Tensor | None, groups: int) -> Tensor:
    if group is None:
        return values.sum(0, keepdim=True)
    return values.new_zeros(groups).index_add(0, group, values)


def _spread(by_group: Tensor, group: Tensor | None) -> Tensor:
    return by_group if group is None else by_group[group]


def persistent_entropy(lengths: Any, bars: Any = None) -> Tensor:
    """How even the bars are: 0 where one bar has all the length, ln m where m bars are equal, in nats.

    H = -sum_i p_i ln p_i with p_i = l_i / sum_j l_j (Atienza, Gonzalez-Diaz and Rucco 2019), whatever the scale. Its
    gradient is dH/dl_i = -(H + ln p_i) / sum_j l_j: a step upward shrinks every bar longer than e^-H sum_j l_j and
    stretches the others. A bar of length 0 adds no entropy and gets gradient 0, though the limit there is infinite.

    Example: lengths 1, 1 and 2 have shares 1/4, 1/4 and 1/2, and H = 1.5 ln 2.

    Args:
        lengths: (M,) floats, a tensor, array or list, in any unit and order, at least 0. Computed in float64 (float32
            on Apple's GPU).
        bars: (G,) integers, how many lengths each group has, as `Barcode.bars`; None is one cloud.

    Returns:
        A tensor: a scalar, or (G,) with `bars`; in [0, ln m]; of the dtype of `lengths`, float32 at least. On CUDA only
        `torch.use_deterministic_algorithms(True)` adds several groups in a fixed order.

    Raises:
        InputError: another shape or dtype; on the CPU lengths that are negative, not finite or too large to add, or
            bars that do not sum to their number. Elsewhere, without a wait for the device, the entropy of such a group
            is NaN, or 0 where only the sum overflows.

    Reads badly when: the points have many dimensions. The bars of any round cloud are then nearly equal: 64 Gaussian
    points in 768 dimensions have more than 0.9999 ln m.
    """
    lengths, bars = floats(lengths), integers(bars)
    check_lengths(lengths)
    is_wide = lengths.device.type == "cpu" and lengths.dtype == torch.float64
    if is_wide and not bool(torch.isfinite(lengths.sum())):
        raise InputError("expected lengths with a finite sum, got an infinite one: scale them all down")
    group, groups = None, 1
    if bars is not None:
        check_bars(bars, len(lengths))
        group, groups = group_of_each(bars.to(lengths.device), len(lengths)), len(bars)
    entropy: Tensor = _PersistentEntropy.apply(lengths, group, groups)  # type: ignore[no-untyped-call]
    return entropy[0] if bars is None else entropy


def prominent_bars(lengths: Any, *, convention: Convention = "official") -> int:
    """How many of the longest bars are features and not noise.

    The procedure of Atienza, Gonzalez-Diaz and Rucco (2019), "Persistent entropy for separating topological features
    from noise in Vietoris-Rips complexes"; its steps are in docs/topology.md.

    The longest bar is always a feature, and scale changes nothing. The answer is not the number of clusters: it is
    mostly 5 for a Gaussian cloud of hundreds of dimensions, and jumps while clusters move apart. Computed in float64 on
    the host in O(m log m).

    Args:
        lengths: (m,), in any order and unit, finite and at least 0. Bars of length 0 are left out first.
        convention: where the test stops at bar i, counted from 1 after the longest, "official" keeps the longest and i
            more, as in "Shrink the longest" and one other work; "exclusive" leaves bar i out.

    Returns:
        k in [0, m]: the features are the k longest. Fewer than four bars longer than 0 are all features. With m >= 4
        bars of exactly the same length the bound on their number is 0/0; as in the official code, the first round is
        then accepted: m - 2 ("official") or m - 3.

    InputError for another shape, dtype or convention, or lengths that are negative or not finite.

    Example: prominent_bars(torch.tensor([1., 1.1, 1.2, 1.3, 1.4, 9.])) == 2 and, "exclusive", 1.
    """
    lengths = floats(lengths)
    if isinstance(lengths, Tensor):
        if lengths.is_meta:
            raise InputError("expected lengths with values, got some on meta, which has none: compute a barcode first")
        lengths = lengths.cpu()
    check_lengths(lengths)
    return int(prominent_counts(lengths, torch.tensor([len(lengths)]), convention=convention))


def prominent_counts(
    lengths: Any, bars: Any, *, convention: Convention = "official", width: int | None = None
) -> Tensor:
    """`prominent_bars` of each group, on the device of the lengths.

    Args:
        lengths: (M,), the groups one after another, in any order; finite and at least 0 (checked on the CPU).
        bars: (G,) integers, how many lengths each group has, as `Barcode.bars`.
        width: the largest of `bars` or more; with one, nothing waits for the device and a CUDA graph can capture all.

    Returns (G,) int64. Takes O(G width) float64 memory.

    InputError for another shape, dtype or convention; on the CPU for bars of another sum or above the width.
    """
    check_convention(convention)
    lengths, bars = floats(lengths), integers(bars)
    check_lengths(lengths)
    check_bars(bars, len(lengths))
    bars, groups = bars.to(lengths.device), len(bars)
    least = int(bars.max()) if groups and (width is None or bars.device.type == "cpu") else 0
    if width is None:
        width = least
    elif whole_number(width, "width", 0, 2**31) < least:
        raise InputError(f"expected a width of {least} at least, got {width}: leave it out on the CPU")
    lengths = lengths.detach().double()
    if lengths.device.type == "cpu" and groups * width > _AT_ONCE:
        return torch.cat([_counts(one[None], convention) for one in torch.split(lengths, bars.tolist())])
    if len(lengths) == groups * width:
        return _counts(lengths.view(groups, width), convention)
    group = group_of_each(bars, len(lengths))
    padded = lengths.new_zeros(groups, width)
    padded[group, place_of_each(bars, group)] = lengths
    return _counts(padded, convention)


def prominent_mask(lengths: Any, bars: Any, *, convention: Convention = "official", width: int | None = None) -> Tensor:
    """(M,) bool: which lengths, ascending in each group as in a `Barcode`, are features of their group.

    `persistent_entropy(torch.where(mask, lengths, 0), bars)` is their entropy. Arguments: see `prominent_counts`.
    """
    lengths, bars = floats(lengths), integers(bars)
    counts = prominent_counts(lengths, bars, convention=convention, width=width)
    bars = bars.to(lengths.device)
    first = torch.repeat_interleave(bars.cumsum(0) - counts, bars, output_size=len(lengths))
    return torch.arange(len(lengths), device=lengths.device) >= first


def check_convention(convention: str) -> None:
    one_of(convention, "convention", get_args(Convention))


def _counts(lengths: Tensor, convention: Convention) -> Tensor:
    """(G,) of lengths (G, W) in any order, filled up with 0."""
    if lengths.shape[1] < _FEWEST:
        lengths = torch.nn.functional.pad(lengths, (0, _FEWEST - lengths.shape[1]))
    bars = lengths.sort(dim=1, descending=True).values
    places = torch.arange(bars.numel(), device=bars.device).view(bars.shape)
    if bars.device.type == "cpu":
        return torch.from_numpy(_kept(bars.numpy(), places.numpy(), convention, np))
    kept: Tensor = _kept(bars, places, convention, torch)
    return kept


def _kept(bars: Any, places: Any, convention: Convention, xp: Any) -> Any:
    """(G,) of bars (G, W) in descending order, at `places` of the whole table. The column at place m of a group is also
    the round with m bars left."""
    first = places[:, :1]
    longest = bars[:, :1].clip(min=_LEAST)
    share = bars / longest
    count = (share > 0).sum(1)[:, None]  # without a bar that is 0 next to the longest even in float64
    # ln(l / T); near 1 from the difference, which is exact there: nearly equal bars still differ
    near = xp.log1p(((bars - longest) / longest).clip(min=-0.5))
    logs = xp.where(share > 0.5, near, xp.log(share.clip(min=_LEAST)))
    weighted = share * logs
    last = first + count - 1  # of another group without a bar, but then `count` is the answer
    shortest, shortest_weighted = share.take(last), weighted.take(last)
    mass, weighted = _prefix_sums(share, weighted)  # of the bars 0 to k
    tail_mass, tail_weighted = mass + (shortest + 1), weighted + shortest_weighted
    tangent = weighted - mass * logs

    # for each m, how many bars in a row are longer than their neutral length, of the first m - 2
    most = xp.maximum(places - 2, first)
    stop, steps = first, (bars.shape[1] - 3).bit_length()
    for power in reversed(range(steps)):
        i = xp.minimum(stop + 2**power, most)
        longer = tail_weighted - tail_mass * logs.take(i) <= tangent.take(i)
        stop = xp.where(longer, i, stop)
    stop = stop + 1
    accepted = stop - first <= xp.ceil((places - first + 2) * features_per_bar(shortest, xp))
    rounds = xp.where(accepted, places, stop)
    for _ in range(steps):
        rounds = rounds.take(rounds)
    kept = stop.take(rounds.take(last - 1)) - first + (convention == "official")
    return xp.where(count < _FEWEST, count, kept)[:, 0]


def _prefix_sums(*arrays: Any) -> Any:
    """Inclusive; on a GPU, where `cumsum` is not deterministic, by doubling."""
    if isinstance(arrays[0], np.ndarray):
        return [array.cumsum(-1) for array in arrays]
    x, step = torch.stack(arrays), 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], dim=-1)
        step *= 2
    return x


def features_per_bar(alpha: Any, xp: Any = torch) -> Any:
    """Q / n: the most features per bar, where the shortest is `alpha` times the longest; Q long bars among n of two
    lengths minimise the entropy:

        Q / n = alpha (alpha - 1 - ln alpha) / (1 - alpha)^2

    It nears 1/2 at alpha = 1 and is unbounded there, as 0/0 is in the official code.
    """
    gap = 1 - alpha
    series = 1 / 2 + gap * (1 / 3 + gap * (1 / 4 + gap * (1 / 5 + gap / 6)))  # where the difference cancels
    plain = -(gap + xp.log(alpha.clip(min=_LEAST))) / gap.clip(min=0.001) ** 2
    bound = alpha * xp.where(gap < 0.001, series, plain)
    return xp.where(alpha == 1, math.inf, bound)
