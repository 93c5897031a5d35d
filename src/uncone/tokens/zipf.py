"""Does a text follow Zipf's law?"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from uncone.errors import InputError
from uncone.records.text import counted
from uncone.records.tokens import Estimate
from uncone.rows import Array, as_array
from uncone.tokens.record import Coverage, ZipfLaw
from uncone.tokens.rivals import rivals

LEAST = 100  # of a token in the fit: the order of rarer ones is mostly chance
FEWEST_RANKS, FEWEST_COMPARED = 10, 50  # of an exponent, and of a comparison with other laws
LEVEL = 0.02  # of the two rivals together, after Holm
FEWEST_BLOCKS = 10  # stretches of text that an interval needs
CLOSE, ROUGH = 0.02, 0.1
CLOSE_BEND, ROUGH_BEND = 0.25, 0.5
"""The largest gap and bend of a law that is followed closely, or roughly."""
SHARES = (0.3, 0.5, 0.9, 0.98)  # of a text; 30, 50 and 98% are those of Bis et al. 2021, section 2
_T_95 = """2.262 2.228 2.201 2.179 2.160 2.145 2.131 2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056
2.052 2.048 2.045 2.042 2.040 2.037 2.035 2.032 2.030 2.028 2.026 2.024 2.023"""
"""97.5% quantiles of Student's t with 9 to 39 degrees of freedom."""
_STEPS, _CLOSE_ENOUGH, _LIMITS = 60, 1e-10, (-20.0, 40.0)


def fit_zipf(counts: Array, blocks: Array | None = None, *, least: int = LEAST) -> ZipfLaw:
    """Fit p(r) = r^-s / (1^-s + ... + R^-s) to the counts by rank (Zipf 1949).

    With the counts n_1 >= ... >= n_R and N their sum, the exponent s of greatest likelihood is where the mean log-rank
    of the text is that of the law:

        sum_r n_r ln r / N = sum_r r^-s ln r / sum_r r^-s

    R is the number of tokens that occur at least `least` times, but at most half of those that occur: ranks come from
    the same counts as the fit, so that noise looks like order, mostly among small counts. The law says nothing about
    the rest.

    With `blocks` the value and its interval are those of the delete-one jackknife over them (Efron & Stein 1981), with
    new ranks each time. It takes out the bias of ranking, which falls with the length of the text, and knows that words
    come in bursts; `likely` is the value without it. `gap` is the largest distance of the text's cumulative share from
    the law's (Kolmogorov-Smirnov).

    `follows` is "no" if a rival fits the counts better (`rivals`, at 0.02 after Holm), or if the exponent is
    larger among the most frequent by more than half. It is "closely" or "roughly" if neither holds, the gap is small
    and the whole 95% interval of the bend too (0.02 and 0.25, or 0.1 and 0.5). All else is "undecided", and so are
    fewer than 50 ranks: these cannot separate one law from another.

    Args:
        counts: (V,), how often each token occurs.
        blocks: (B, V), the counts of B stretches of the text; with fewer than 10 there is no interval.
        least: the smallest count that is fitted.

    >>> law = fit_zipf(12_000 // np.arange(1, 81))
    >>> round(law.exponent.value, 2), law.ranks
    (1.0, 40)
    """
    counts = np.asarray(as_array(counts), np.float64)
    ranks = min(int((counts >= least).sum()), int((counts > 0).sum()) // 2)
    if ranks < FEWEST_RANKS:
        few = f"{counted(ranks, 'rank')} of tokens that occur at least {least} times"
        needed = f"{few}, but {FEWEST_RANKS} are needed: count more text"
        return ZipfLaw(Estimate(None), ranks, least, None, needed)
    logs = np.log(np.arange(1, ranks + 1))
    falling = _falling(counts)[:ranks]
    value = _exponent(falling, logs)
    model = np.exp(-value * logs)
    gap = float(np.abs(falling.cumsum() / falling.sum() - model.cumsum() / model.sum()).max())
    reason = ""
    if blocks is not None and len(blocks) < FEWEST_BLOCKS:
        reason = f"no interval: {len(blocks)} of {FEWEST_BLOCKS} stretches of text"
    law = ZipfLaw(_jackknife(counts, blocks, value, logs), ranks, least, gap, reason, value)
    return law if ranks < FEWEST_COMPARED else _compared(law, falling)


def _compared(law: ZipfLaw, falling: Array) -> ZipfLaw:
    found, bend, named = rivals(falling)
    low, high = bend.interval or (-math.inf, math.inf)
    law = replace(law, rivals=found, bend=bend, named=named)
    if found[0].p <= LEVEL or found[1].p <= LEVEL or high < -ROUGH_BEND:
        return replace(law, follows="no")
    gap, most = law.gap or 0.0, max(-low, high)
    if gap <= CLOSE and most <= CLOSE_BEND:
        return replace(law, follows="closely")
    return replace(law, follows="roughly") if gap <= ROUGH and most <= ROUGH_BEND else law


def _falling(counts: Array) -> Array:
    return np.sort(counts[counts > 0])[::-1]


def _exponent(falling: Array, logs: Array) -> float:
    """By Newton's method between two bounds."""
    wanted, (low, high), s = float(falling @ logs / falling.sum()), _LIMITS, 1.0
    for _ in range(_STEPS):
        weights = np.exp(-s * logs if s >= 0 else -s * (logs - logs[-1]))
        weights /= weights.sum()
        mean = float(weights @ logs)
        low, high = (s, high) if mean > wanted else (low, s)
        spread = float(weights @ np.square(logs - mean))
        step = s + (mean - wanted) / spread if spread > 0 else math.inf
        step = step if low < step < high else (low + high) / 2
        if abs(step - s) < _CLOSE_ENOUGH:
            break
        s = step
    return s


def _jackknife(counts: Array, blocks: Array | None, value: float, logs: Array) -> Estimate:
    """Over the stretches of text, with as many ranks each time."""
    if blocks is None or len(blocks) < FEWEST_BLOCKS:
        return Estimate(value)
    n, ranks = len(blocks), len(logs)
    kept = np.argsort(-counts, kind="stable")[: 2 * ranks]  # a token that is left out never comes so far
    left = [_exponent(np.sort(counts[kept] - block[kept])[::-1][:ranks], logs) for block in blocks]
    value = n * value - (n - 1) * float(np.mean(left))
    quantiles = _T_95.split()
    reach = float(quantiles[min(n - 10, len(quantiles) - 1)]) * math.sqrt((n - 1) * float(np.var(left)))
    return Estimate(value, (value - reach, value + reach))


def coverage(counts: Array, shares: Sequence[float] = SHARES) -> tuple[Coverage, ...]:
    """How many of the most frequent tokens make up each share of a text (Bis et al. 2021, section 2).

    >>> [one.tokens for one in coverage(np.array([50, 30, 15, 5]), (0.5, 0.9))]
    [1, 3]
    """
    if any(not 0 < share <= 1 for share in shares):
        raise InputError(f"expected shares above 0 and up to 1, got {tuple(shares)}: give parts of the text")
    falling = _falling(np.asarray(as_array(counts), np.float64))
    reached = falling.cumsum()
    needed = np.searchsorted(reached, np.array(shares) * reached[-1] * (1 - 1e-12)) + 1
    return tuple(Coverage(share, int(n)) for share, n in zip(shares, needed.tolist(), strict=True))


def drawn_ranks(counts: Array, most: int = 120) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks that are even on a logarithmic axis, and the count at each rank."""
    falling = _falling(np.asarray(as_array(counts), np.float64))
    last = len(falling)
    ranks = sorted({round(last ** (step / most)) for step in range(most + 1)} | set(range(1, min(last, 20) + 1)))
    return tuple(ranks), tuple(int(falling[rank - 1]) for rank in ranks)
