"""Which bars stand out: the selection of Atienza, Gonzalez-Diaz and Rucco (2019), each round in a few steps.

The procedure neutralises the i longest of its bars (but for the longest, T, and the shortest, r): it gives them the one length at which the entropy of all
is greatest, l'_i = exp(sum l ln l / sum l) over the bars not neutralised yet. The total length is then S'_i, and the first i with C_i = S'_(i-1) / S'_i < 1
marks where noise begins. Written out, with u = l_i / l'_i and P_i the length of the bars not neutralised,

    S'_(i-1) - S'_i = l'_i ((u - 1) + (i - 1) (exp(u ln u / (P_i / l'_i + u)) - 1)),

and both terms have the sign of ln u. So C_i < 1 exactly where bar i is shorter than its neutral length: where the weighted mean of ln l over the tail
exceeds ln l_i. No exponential and no near-tie of two sums is left. As i grows, so does (that mean - ln l_i) P_i: by P_i (ln l_i - ln l_(i+1)) a step. The
first such i is therefore found by bisection on two prefix sums.
"""

import math
from typing import Literal

import numpy as np
import torch

from uncone.errors import InputError
from uncone.topology.grouped import check_lengths

Tensor = torch.Tensor
Convention = Literal["official", "exclusive"]
FEWEST = 4
"""Fewer bars than this are all kept: the procedure compares bars between the longest and the shortest, and needs two of them."""


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
    check_convention(convention)
    check_lengths(lengths)
    bars = np.sort(lengths.detach().to("cpu", torch.float64).numpy())[::-1]
    if len(bars) and not (bars[-1] >= 0 and bars[0] < math.inf):  # NaN sorts last, so it comes first here
        raise InputError(
            f"expected lengths that are finite and at least 0, got {bars[0]:g} to {bars[-1]:g}: pass the lengths of a barcode"
        )
    return _features(bars[bars > 0], convention)


def check_convention(convention: str) -> None:
    """Refuses a convention that there is not."""
    if convention not in ("official", "exclusive"):
        raise InputError(f'expected convention "official" or "exclusive", got {convention!r}')


def _features(bars: np.ndarray, convention: Convention) -> int:
    """`bars` are beyond 0, in descending order."""
    if len(bars) < FEWEST:
        return len(bars)
    share = bars / bars[0]
    share = share[share > 0]  # a bar that is 0 beside the longest even in float64
    if len(share) < FEWEST:
        return len(share)
    # ln(l / T); near 1 from the difference, which is exact there, so that nearly equal bars still differ
    near = share > 0.5
    logs = np.where(
        near,
        np.log1p((bars[: len(share)] - bars[0]) / bars[0], where=near, out=np.zeros_like(share)),
        np.log(share),
    )
    mass = [0.0, *np.cumsum(share[1:-1]).tolist()]  # of the first k bars after the longest
    weighted = [0.0, *np.cumsum((share * logs)[1:-1]).tolist()]
    log = logs.tolist()
    end_mass = float(share[-1]) + 1
    end_weighted = float(share[-1]) * log[-1]

    def is_noise(i: int, m: int) -> bool:
        """C_i < 1 where m bars are left between the longest and the shortest."""
        return bool(weighted[m] - weighted[i] + end_weighted > (mass[m] - mass[i] + end_mass) * log[i])

    bound = features_per_bar(float(share[-1]))
    m = len(share) - 2
    while True:
        low, high = 1, m - 1  # the answer lies in [low, high]
        if high > 1 and not is_noise(high - 1, m):
            low = high  # nearly equal bars lose one a round, for thousands of rounds
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_noise(middle, m) else (middle + 1, high)
        if low <= math.ceil((m + 2) * bound) if bound < math.inf else True:
            return low + 1 if convention == "official" else low
        m = low


def features_per_bar(alpha: float) -> float:
    """Q / n: the share of the bars that can be features at most, where the shortest is `alpha` times the longest (step c).

    Q long bars among n of two lengths minimise the entropy: Q / n = alpha (alpha - 1 - ln alpha) / (1 - alpha)^2, which nears 1/2 at alpha = 1 and is
    taken as unbounded there, as 0/0 is in the official code.
    """
    if alpha == 1:
        return math.inf
    gap = 1 - alpha
    if gap < 0.001:  # the difference below cancels: its series is sum_k gap^k / (k + 2)
        return alpha * sum(gap**k / (k + 2) for k in range(6))
    return alpha * (-gap - math.log(alpha)) / gap**2
