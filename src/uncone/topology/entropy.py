"""Persistent entropy: how even the bars are."""

from typing import Any

import torch

from uncone.errors import InputError
from uncone.topology.clouds import check_bars, check_lengths, group_of_each

Tensor = torch.Tensor


class _PersistentEntropy(torch.autograd.Function):
    """(M,) lengths, (M,) their groups -> (groups,) entropies."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, group: Tensor | None, groups: int) -> Tensor:
        entropy, slope = _entropy_and_slope(lengths, group, groups)
        ctx.save_for_backward(lengths, group, slope)
        return entropy.to(torch.promote_types(lengths.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        lengths, group, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for
            slope = _entropy_and_slope(lengths, group, len(grads[0]))[1]
        return (slope * _spread(grads[0].to(slope.dtype), group)).to(lengths.dtype), None, None


def _entropy_and_slope(lengths: Tensor, group: Tensor | None, groups: int) -> tuple[Tensor, Tensor]:
    """Entropies (groups,) and dH/dl (M,), in float64: M is small, and at the maximum H + ln p cancels."""
    bars = lengths if lengths.device.type == "mps" else lengths.double()  # that device has no float64
    # refused on the CPU; elsewhere to ask would wait for the device
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


def persistent_entropy(lengths: Tensor, bars: Tensor | None = None) -> Tensor:
    """How even the bars are: 0 where one bar has all the length, ln m where m bars are equal, in nats.

    H = -sum_i p_i ln p_i with p_i = l_i / sum_j l_j (Atienza, Gonzalez-Diaz and Rucco 2019), with the natural logarithm. It does not change
    when all lengths are scaled. Its gradient, dH/dl_i = -(H + ln p_i) / sum_j l_j, is taken in closed form: a step upward shrinks every bar longer than
    e^-H sum_j l_j and stretches the others.

    A bar of length 0 counts for nothing: it adds no entropy and gets gradient 0, though the limit of the gradient there is infinite. It does not lower
    the maximum either, which is ln of the number of other bars. No bars, or bars of length 0 only, have entropy 0 with gradient 0.

    Example: lengths 1, 1 and 2 have shares 1/4, 1/4 and 1/2, and H = 1.5 ln 2.

    Args:
        lengths: (M,), in any unit and order, at least 0; floating point. Computed in float64, whatever autocast says (in float32 on Apple's GPU).
        bars: (G,) integers, how many of the lengths each group has, one group after another, as `Barcode.bars` says. None takes all as one cloud.

    Returns:
        A scalar, or (G,) with `bars`; in [0, ln m]; of the dtype of `lengths`, float32 at least. On a CUDA device nothing waits for the host; the
        order in which the sums of several groups add in float64 is only fixed under `torch.use_deterministic_algorithms(True)`.

    Raises:
        InputError: another shape or dtype; and, where the lengths are on the CPU, lengths that are negative, not finite or too large to
            add, or bars that do not sum to their number. Elsewhere such lengths are not looked at, since that would wait for the
            device: the entropy of their group is then NaN, or 0 where only their sum overflows.

    Reads badly when: the points have many dimensions. The bars of any round cloud are then nearly equal: 64 Gaussian points in 768
    dimensions have more than 0.9999 ln m.
    """
    check_lengths(lengths)
    is_wide = lengths.device.type == "cpu" and lengths.dtype == torch.float64
    if is_wide and not bool(torch.isfinite(lengths.sum())):
        raise InputError(
            "expected lengths whose sum is a float64 number, got an infinite sum: scale them down, which changes no entropy"
        )
    group, groups = None, 1
    if bars is not None:
        check_bars(bars, len(lengths))
        group, groups = group_of_each(bars.to(lengths.device), len(lengths)), len(bars)
    entropy: Tensor = _PersistentEntropy.apply(lengths, group, groups)  # type: ignore[no-untyped-call]
    return entropy[0] if bars is None else entropy
