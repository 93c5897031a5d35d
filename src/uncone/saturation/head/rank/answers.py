"""What a curve of loss against rank says: how small the head may be, and whether the curve has a kink. NumPy alone."""

import math

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array
from uncone.saturation.head.rank.record import Kink, SmallestRank
from uncone.statistics.blocks import draws

LEVEL = 0.95
FEWEST = 6
"""Ranks with a loss above the full head's: a broken line and a cubic have four constants each."""
_NOISE = 1e-9
"""Nats: an excess below it is rounding."""
_DRAWS = 2000
_ALPHA = (1 - LEVEL) / 2
_SHARP = 2.0
"""In log-log: a fall to nothing is a kink if it is steeper by so much than twice the slope before it."""
_SCATTER = 0.02
"""Of log excess: what no law is expected to be closer than."""
_POWERS, _PLACES = np.linspace(0.05, 2.5, 25), 31


def standard_errors(means: Array) -> Array:
    """Of the mean over blocks, (R,)."""
    errors: Array = means.std(1, ddof=1) / math.sqrt(means.shape[1])
    return errors


def resampled(means: Array, *, seed: int = 0) -> Array:
    """Means over blocks drawn with replacement, the same blocks for all ranks: (draws, R)."""
    blocks = means.shape[1]
    drawn: Array = draws(blocks, seed, _DRAWS) / blocks @ means.T
    return drawn


def smallest(ranks: tuple[int, ...], excess: Array, drawn: Array, margin: float) -> SmallestRank:
    """How small the head may be: `excess` (R,) is over the full head's loss in nats, and `drawn` (draws, R) of it."""
    chosen = np.asarray([*ranks, 0])

    def first(curves: Array) -> Array:
        above = curves > margin
        return np.where(above.any(-1), above.shape[-1] - np.argmax(above[..., ::-1], -1), 0)

    ends = np.quantile(first(drawn), (_ALPHA, 1 - _ALPHA), method="inverted_cdf").astype(int)
    rank, low, high = (int(chosen[place]) or None for place in (int(first(excess)), *ends))
    return SmallestRank(rank, low, high)


def kink(ranks: tuple[int, ...], full: int, excess: Array, drawn: Array) -> Kink:
    """Look for a kink: a rank where the excess falls to nothing at once, or else a break in its logarithm.

    An excess over the head of rank `full` steepens towards it, since it ends in 0 there: its smooth law is
    r^-a - full^-a. A break counts where the broken law leaves at most half of the residual of smooth ones, in the curve
    and in 95% of resamples. `ranks` ascend and lack the full one; `drawn` (draws, R) are resamples of `excess`.
    """
    if len(ranks) != len(excess) or drawn.shape[1] != len(ranks):
        came = f"{len(excess)} and {drawn.shape[1]} for {len(ranks)} ranks"
        raise InputError(f"expected an excess and its resamples for each rank, got {came}: pass all three alike")
    x = np.log(np.asarray(ranks, float))
    counts = np.quantile(drawn, _ALPHA, 0) > _NOISE
    last = len(ranks) if counts.all() else int(np.argmin(counts))  # from here on nothing is told from 0
    fall = None if last < 2 or last == len(ranks) else _fall(ranks, x, excess, drawn[:, last], last)
    if fall is not None:
        return fall
    if last < FEWEST:
        told = f"{last} of {len(ranks)} ranks have a loss that is clearly above the full head's"
        return Kink(False, f"No kink can be told: {told}, and at least {FEWEST} are needed.")
    return _break(x[:last], math.log(full), excess[:last], drawn[:, :last])


def _fall(ranks: tuple[int, ...], x: Array, excess: Array, drawn: Array, last: int) -> Kink | None:
    """A kink between the ranks `last` - 1 and `last`, if the fall between them is far steeper than before it."""
    before = math.log(excess[last - 1] / excess[last - 2]) / (x[last - 1] - x[last - 2])
    left = max(float(np.quantile(drawn, 1 - _ALPHA)), _NOISE)
    turn = math.log(left / excess[last - 1]) / (x[last] - x[last - 1]) - before
    if turn > min(before, 0.0) - _SHARP:
        return None
    reason = f"The excess falls to nothing between ranks {ranks[last - 1]} and {ranks[last]}."
    return Kink(True, reason, float(ranks[last]), float(ranks[last - 1]), float(ranks[last]), turn)


def _break(x: Array, full: float, excess: Array, drawn: Array) -> Kink:
    logs, curves = np.log(excess)[None], np.log(np.maximum(drawn, _NOISE))
    weights = 1 / np.hypot(curves.std(0), _SCATTER)
    weights *= math.sqrt(len(x)) / np.linalg.norm(weights)
    smooth = _smooth(x, full, np.concatenate([logs, curves]), weights)
    at, turn, broken = _broken(x, full, np.concatenate([logs, curves]), weights)
    wins = (broken < smooth / 2) & (np.sign(turn) == np.sign(turn[0]))
    found = bool(wins[0]) and float(wins[1:].mean()) >= LEVEL
    line = f"a break leaves {broken[0]:.2g} of log excess, a smooth curve {smooth[0]:.2g}"
    share = f", and a break is clearly better in {wins[1:].mean():.0%} of resamples"
    ends = np.exp(np.quantile(at[1:], (_ALPHA, 1 - _ALPHA)))
    return Kink(
        found,
        f"{'The slope breaks' if found else 'No kink'}: {line}{share}.",
        math.exp(at[0]),
        float(ends[0]),
        float(ends[1]),
        float(turn[0]),
        float(smooth[0]),
        float(broken[0]),
    )


def _law(x: Array, full: float, power: float) -> Array:
    """ln (r^-a - full^-a) but for a constant."""
    law: Array = np.log(np.expm1(power * (full - x)))
    return law


def _smooth(x: Array, full: float, y: Array, weights: Array) -> Array:
    """The least residual (B,) of smooth curves: a cubic, and a multiple of the law with a slope."""
    designs = [np.vander((x - x.mean()) / np.ptp(x), 4)]
    designs += [np.stack([np.ones_like(x), _law(x, full, power), x], 1) for power in _POWERS]
    best: Array = np.min([_fitted(design, y, weights)[1] for design in designs], 0)
    return best


def _broken(x: Array, full: float, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The law with one break, fitted to each curve y (B, R): log rank of the break, its turn, the residual."""
    place, turn, best = np.zeros(len(y)), np.zeros(len(y)), np.full(len(y), np.inf)
    for power in _POWERS:
        law = _law(x, full, power)
        for at in np.linspace(x[1], x[-2], _PLACES):
            design = np.stack([np.ones_like(x), np.maximum(x - at, 0)], 1)
            constants, rest = _fitted(design, y - law, weights)
            better = rest < best
            best[better], place[better], turn[better] = rest[better], at, constants[1, better]
    return place, turn, best


def _fitted(design: Array, y: Array, weights: Array) -> tuple[Array, Array]:
    """Constants (K, B) and the weighted root mean squares (B,) of residuals of curves y (B, R)."""
    weighted, target = design * weights[:, None], (y * weights).T
    constants = np.linalg.pinv(weighted) @ target
    return constants, np.sqrt(np.mean((weighted @ constants - target) ** 2, 0))
