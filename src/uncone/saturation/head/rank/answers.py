import math

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array
from uncone.saturation.head.rank.record import Kink, SmallestRank
from uncone.statistics.blocks import draws

LEVEL = 0.95
FEWEST = 6  # ranks: a broken line and a cubic have four constants each
_NOISE = 1e-9  # nats: an excess below it is rounding
_ALPHA = (1 - LEVEL) / 2
_ENDS = (_ALPHA, 1 - _ALPHA)
_SHARP = 2.0  # log-log: a fall to nothing is a kink if it is this much steeper than twice the slope before
_SCATTER = 0.02  # of log excess: no law is expected to be closer
_POWERS = np.linspace(0.05, 2.5, 25)


def standard_errors(means: Array) -> Array:
    """Standard errors of the mean over blocks, (R,)."""
    return np.asarray(means.std(1, ddof=1) / math.sqrt(means.shape[1]))


def resampled(means: Array, *, seed: int = 0) -> Array:
    """Means over blocks drawn with replacement, the same blocks for all ranks: (draws, R).

    They are spread further from the overall mean, by as much as Student's t of so many blocks is wider than a normal.
    """
    blocks, middle = means.shape[1], means.mean(1)
    few = max(blocks - 1, 1)
    wider = (1 + 1.4 / few) * math.sqrt(blocks / few)
    return np.asarray(middle + wider * (draws(blocks, seed, 2000) / blocks @ means.T - middle))


def smallest(ranks: tuple[int, ...], excess: Array, drawn: Array, margin: float, heads: int = 1) -> SmallestRank:
    """The smallest rank by the `excess` (R,) over the full head's loss and its resamples (draws, R). `heads` share the
    level, because an answer takes the best of so many."""

    def first(curves: Array) -> Array:
        above = curves > margin
        return np.where(above.any(-1), above.shape[-1] - np.argmax(above[..., ::-1], -1), 0)

    ends = np.quantile(first(drawn), (_ALPHA / heads, 1 - _ALPHA / heads), method="inverted_cdf").astype(int)
    return SmallestRank(*((*ranks, None)[place] for place in (int(first(excess)), *ends)))


def kink(ranks: tuple[int, ...], full: int, excess: Array, drawn: Array) -> Kink:
    """Look for a kink: a rank where the excess falls to nothing at once, or else a break in its logarithm.

    An excess over the head of rank `full` steepens towards it, since it ends in 0 there: its smooth law is
    r^-a - full^-a. A break counts if the broken law leaves at most half of the residual of smooth laws, in the curve
    and in 95% of resamples. `ranks` ascend, without the full rank.
    """
    if len(ranks) != len(excess) or drawn.shape[1] != len(ranks):
        came = f"{len(excess)} and {drawn.shape[1]} for {len(ranks)} ranks"
        raise InputError(f"expected an excess and its resamples for each rank, got {came}: pass all three alike")
    x = np.log(np.asarray(ranks, float))
    counts = np.quantile(drawn, _ALPHA, 0) > _NOISE
    last = len(ranks) if counts.all() else int(np.argmin(counts))  # from here on nothing differs from 0
    if 2 <= last < len(ranks):
        before = math.log(excess[last - 1] / excess[last - 2]) / (x[last - 1] - x[last - 2])
        left = max(float(np.quantile(drawn[:, last], 1 - _ALPHA)), _NOISE)
        turn = math.log(left / excess[last - 1]) / (x[last] - x[last - 1]) - before
        if turn <= min(before, 0.0) - _SHARP:
            low, high = ranks[last - 1 : last + 1]
            reason = f"The excess falls to nothing between ranks {low} and {high}."
            return Kink(True, reason, float(high), float(low), float(high), turn)
    if last < FEWEST:
        above = f"the loss is clearly above the full head's at {last} of {len(ranks)} ranks"
        return Kink(False, f"We cannot decide whether there is a kink: {above}, and at least {FEWEST} are needed.")
    return _break(x[:last], math.log(full), excess[:last], drawn[:, :last])


def _break(x: Array, full: float, excess: Array, drawn: Array) -> Kink:
    resamples = np.log(np.maximum(drawn, _NOISE))
    curves = np.concatenate([np.log(excess)[None], resamples])
    weights = 1 / np.hypot(resamples.std(0), _SCATTER)
    weights *= math.sqrt(len(x)) / np.linalg.norm(weights)
    smooth, (at, turn, broken) = _smooth(x, full, curves, weights), _broken(x, full, curves, weights)
    wins = (broken < smooth / 2) & (np.sign(turn) == np.sign(turn[0]))
    share = float(wins[1:].mean())
    found = bool(wins[0]) and share >= LEVEL
    what = "The slope breaks: two lines fit clearly better than" if found else "No kink: two lines fit no better than"
    of = f"residuals {broken[0]:.2g} and {smooth[0]:.2g} in log excess"
    reason = f"{what} a smooth curve does ({of}; clearly better in {share:.0%} of resamples)."
    low, high = np.exp(np.quantile(at[1:], _ENDS)).tolist()
    return Kink(found, reason, math.exp(at[0]), low, high, *(float(of[0]) for of in (turn, smooth, broken)))


def _law(x: Array, full: float, power: float) -> Array:
    """ln (r^-a - full^-a) up to a constant."""
    return np.log(np.expm1(power * (full - x)))


def _smooth(x: Array, full: float, y: Array, weights: Array) -> Array:
    """The least residual (B,) of smooth curves: a cubic, and a multiple of the law with a slope."""
    designs = [np.vander((x - x.mean()) / np.ptp(x), 4)]
    designs += [np.stack([np.ones_like(x), _law(x, full, power), x], 1) for power in _POWERS]
    return np.asarray(np.min([_fitted(design, y, weights)[1] for design in designs], 0))


def _broken(x: Array, full: float, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The law with one break, fitted to each curve y (B, R): log rank of the break, its turn, the residual."""
    place, turn, best = np.zeros(len(y)), np.zeros(len(y)), np.full(len(y), np.inf)
    for power in _POWERS:
        law = _law(x, full, power)
        for at in np.linspace(x[1], x[-2], 31):
            design = np.stack([np.ones_like(x), np.maximum(x - at, 0)], 1)
            constants, rest = _fitted(design, y - law, weights)
            better = rest < best
            best[better], place[better], turn[better] = rest[better], at, constants[1, better]
    return place, turn, best


def _fitted(design: Array, y: Array, weights: Array) -> tuple[Array, Array]:
    """Constants (K, B) and weighted root mean squares (B,) of residuals of curves y (B, R)."""
    weighted, target = design * weights[:, None], (y * weights).T
    constants = np.linalg.pinv(weighted) @ target
    return constants, np.sqrt(np.mean((weighted @ constants - target) ** 2, 0))
