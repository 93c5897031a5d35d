"""Symmetric products in strips, each computed by one thread: the same bytes on any number of them."""

from functools import partial

import torch

from uncone.threads import share

Tensor = torch.Tensor
STRIP = 96
"""Columns of a product computed at once: wide enough to keep one core busy, narrow enough to skip most of the
mirrored half."""
_ADDED = 2**16
"""Numbers added at once: what a core's cache holds."""


def lower_product(left: Tensor, right: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
    """left' right of (n, D) matrices whose product is symmetric, into the lower half of `out` (D, D), or
    added to it; `mirror` makes it whole.

    torch has no symmetric product. Strips below the diagonal take 9/16 of the time of a full one at D = 768,
    hardly more than a BLAS syrk does. What is above the diagonal afterwards has no meaning.
    """
    if left.device.type != "cpu":
        return out.addmm_(left.T, right, beta=float(add))

    def strip(start: int) -> None:
        stop = min(start + STRIP, len(out))
        out[start:stop, :stop].addmm_(left[:, start:stop].T, right[:, :stop], beta=float(add))

    # The last strips are the longest; given out first, they leave the short ones to even out the threads.
    share(partial(strip, start) for start in reversed(range(0, len(out), STRIP)))
    return out


def mirror(product: Tensor) -> Tensor:
    """Copy what lies below the diagonal of `product` (D, D) above it: symmetric to the bit, which no BLAS
    promises."""

    def strip(start: int) -> None:
        rows = product[start : start + STRIP]
        product[:start, start : start + STRIP] = rows[:, :start].T
        block = rows[:, start : start + STRIP]
        block.copy_(block.tril().add_(block.tril(-1).T))

    if product.device.type == "cpu":
        share(partial(strip, start) for start in reversed(range(0, len(product), STRIP)))
    return product


def add_lower(total: Tensor, part: Tensor) -> Tensor:
    """total += part below and on the diagonal, in place; `part` may be of a narrower dtype."""
    if total.device.type != "cpu":
        return total.add_(part)
    # torch widens a narrower operand into fresh memory, which then stays with the worker's allocator: keep it small.
    rows = max(1, _ADDED // total.shape[1])

    def strip(start: int) -> None:
        stop = min(start + rows, len(total))
        total[start:stop, :stop] += part[start:stop, :stop]

    share(partial(strip, start) for start in range(0, len(total), rows))
    return total
