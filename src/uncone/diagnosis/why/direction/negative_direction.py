"""Is there a direction that all states avoid, and do new states avoid it too?

The row of a word that never occurs grows without end along it (Gao et al. 2019, theorem 1). Few points, one long state
or the bias of the last norm can cause such a direction too. Other clouds separate these causes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from uncone import measure
from uncone.arguments import finite_number, shown, whole_number
from uncone.diagnosis.why.direction.cone import EPSILON, Separation, layer_norm_direction, separate, separation_chance
from uncone.diagnosis.why.direction.record import AvoidedCloud, NegativeDirection, NormDirection
from uncone.diagnosis.why.reach.faces import blocks
from uncone.errors import InputError
from uncone.measure.reading import read
from uncone.moments import Moments
from uncone.records.text import count, counted, number
from uncone.roles import Progress
from uncone.rows import Array
from uncone.rows.floats import is_tensor
from uncone.rows.samples import as_floats, as_numbers
from uncone.threads import on_one_thread

MOST_SEARCHED = 20_000
OUTLIER = 3.0  # median norms: longer states, such as attention sinks and first positions, count as outliers
THIN = 0.01  # of the mean norm: a margin below it is called thin
LIKELY = 0.01  # with a larger chance a direction shows little
_LARGEST = 1e150  # whose square is a float
_FEWEST, _BLOCKS, _PER_DIMENSION, _SMALL, _MOST_KEPT = 20, 20, 8, 4_000_000, 4096
_DEFINITION = (
    "All states avoid a direction v if <v, h> < 0 for every state h. Its margin is the least -<v, h> over the mean "
    'norm of states, and "at most" bounds the margin of any direction. The search uses half of the text\'s windows, '
    "and the rest is held out. Random signs: each state times +1 or -1. Unit length: the margin is a cosine. Without "
    "their mean, states have no such direction."
)


@on_one_thread
def uniformly_negative_direction(
    hidden: Any,
    *,
    norm: Any = None,
    margin: float = EPSILON,
    held_out: Any = None,
    windows: Any = None,
    seed: int = 0,
    most: int = MOST_SEARCHED,
    progress: Progress | None = None,
) -> NegativeDirection:
    """Prove whether all states avoid one direction, and verify it on states that the search did not see.

    Args:
        hidden: (N, D) states that the head reads, an array or tensor; or a norm (see `norm`) alone.
        norm: the last norm before the head: a module with `weight` and `bias`, or a pair (gain, bias) of (D,). A
            LayerNorm with bias has such a direction in closed form, for any text; RMSNorm or one without bias has none.
        margin: epsilon, of the mean norm. False means that no direction has as large a margin.
        held_out: (M, D) other states. Without them, half of the windows or more are held out.
        windows: (N,) whole numbers: the text window of each state; by default 20 stretches of states.
        seed: of the split and of the random signs.
        most: states to search.
        progress: called with (step, done, in all).

    Raises:
        InputError: no states, shapes that do not fit, or numbers that are not finite.

    >>> random = np.random.default_rng(0)
    >>> found = uniformly_negative_direction(random.standard_normal((2000, 8)) + 6)
    >>> found.exists, found.violations, found.clouds[2].name, found.clouds[2].exists
    (True, 0, 'random signs', False)
    """
    finite_number(margin, "margin")
    whole_number(seed, "seed", 0)
    whole_number(most, "most", 1)
    if _is_norm(hidden):
        return _of_norm_alone(_gain_and_bias(hidden), margin)
    states = as_numbers(hidden)
    if states.ndim != 2 or not states.size:
        raise InputError(f"expected states (N, D), got shape {states.shape}: pass one state a row")
    searched, rest = _split(states, held_out, windows, seed, most)
    if not all((np.abs(block) < _LARGEST).all() for cloud in (states, rest) for block in blocks(cloud)):
        raise InputError(f"expected finite states below {_LARGEST:g}, got NaN, inf or larger ones: leave them out")
    found = _decided(searched, margin, progress and partial(progress, "seeking a direction"))
    exists, violations, least, both = found.exists, 0, None, None
    if exists and len(rest):
        heights = _heights(rest, found.direction)
        violations, least = int((heights >= 0).sum()), -float(heights.max())
        both = _again(searched, rest, heights, margin) if violations else None
    proof = both[1] if both else found
    if violations or not len(rest):  # nothing is proven about states that the search did not see
        exists = False if proof.exists is False else None
    own = None if norm is None else _norm_direction(_gain_and_bias(norm), states, found.mean_norm)
    if own and not own.violations and not exists:  # the closed form holds for any text if it holds for these states
        direction = layer_norm_direction(*_gain_and_bias(norm))[0]
        heights = _heights(rest, direction) if len(rest) else np.array([-own.margin])
        if heights.max() < 0:
            exists, violations, least = True, 0, -float(heights.max()) if len(rest) else None
            found = replace(found, exists=True, direction=direction, margin=own.margin, is_inside=False)
            proof, both = found, None
    clouds = (
        _cloud("all searched states", len(searched), found),
        *((_cloud("with held-out states that do not avoid it", *both),) if both else ()),
        *_nulls(searched, margin, seed, progress),
    )
    cosine, crossing = _mean_state(states, found.direction)
    result = NegativeDirection(
        verdict="",
        exists=exists,
        epsilon=margin,
        n=len(searched),
        dimensions=states.shape[1],
        mean_norm=found.mean_norm,
        margin=clouds[0].margin if found.exists else None,
        bound=proof.bound / (proof.mean_norm or 1.0),
        exact=proof.is_inside,
        held_out=len(rest) if found.exists else 0,
        violations=violations,
        held_out_margin=None if least is None or not found.mean_norm else least / found.mean_norm,
        effective_rank=read("", measure.effective_rank, Moments.of(searched, unit_first=False)).value,
        chance=separation_chance(*searched.shape),
        cosine_to_mean=cosine if found.exists else None,
        mean_violations=crossing,
        clouds=clouds,
        norm=own,
        direction=_kept(found.direction) if found.exists else (),
        definition=_DEFINITION,
        given=len(states),
    )
    return replace(result, verdict=_verdict(result))


def _is_norm(x: Any) -> bool:
    if is_tensor(x) or isinstance(x, np.ndarray):
        return False
    pair = isinstance(x, tuple) and len(x) == 2
    return pair or (hasattr(x, "weight") and not hasattr(x, "columns"))


def _gain_and_bias(norm: Any) -> tuple[Array, Array]:
    if not _is_norm(norm):
        raise InputError(f"expected a norm with a weight, or its (gain, bias), got {shown(norm)}: pass the module")
    gain, bias = norm if isinstance(norm, tuple) else (norm.weight, getattr(norm, "bias", None))
    if gain is None:
        raise InputError("expected a norm with a weight, got one without: its states have no such direction")
    gains = as_numbers(gain).astype(np.float64)
    return gains, np.zeros_like(gains) if bias is None else as_numbers(bias).astype(np.float64)


def _split(states: Array, held_out: Any, windows: Any, seed: int, most: int) -> tuple[Array, Array]:
    """Searched and held-out states, split by windows because the states of a window are alike."""
    n, random = len(states), np.random.default_rng(seed)
    if held_out is not None:
        rest = as_numbers(held_out)
        if rest.ndim != 2 or rest.shape[1] != states.shape[1]:
            expected = f"expected held-out states (M, {states.shape[1]})"
            raise InputError(f"{expected}, got shape {rest.shape}: pass states of one model")
        return states[np.sort(random.choice(n, min(n, most), replace=False))], rest
    stretches = np.arange(n) * min(_BLOCKS, n) // n
    of = stretches if windows is None else as_floats(windows, "windows")
    if not np.isfinite(of).all() or of.shape != (n,):
        raise InputError(f"expected a window for each of {n} states, got shape {of.shape}: pass one number a state")
    names = random.permutation(np.unique(of))
    if len(names) < 2:
        of, names = stretches, random.permutation(np.unique(stretches))
    if n < _FEWEST:
        return states[:most], states[:0]
    sizes = np.cumsum([(of == name).sum() for name in names[: len(names) // 2]])
    mask = np.isin(of, names[: max(1, int(np.searchsorted(sizes, most, side="right")))])
    return states[mask][:most], states[~mask]


def _decided(points: Array, epsilon: float, tick: Callable[[int, int], None] | None = None) -> Separation:
    """`separate`, first for some points: if these leave no direction, all points leave none."""
    n, few = len(points), _PER_DIMENSION * points.shape[1]
    if n > 2 * few:
        found = separate(points[np.linspace(0, n - 1, few).astype(int)], epsilon=epsilon, progress=tick)
        if found.exists is False:
            return found
    found = separate(points, epsilon=epsilon, progress=tick)
    return found if found.exists is not None or points.size > _SMALL else _programmed(points, found, epsilon)


def _programmed(points: Array, found: Separation, epsilon: float) -> Separation:
    """What a linear programme (scipy) proves if the search left the answer open."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        return found
    (n, d), unit = points.shape, found.mean_norm or 1.0
    x, bounds = points.astype(np.float64) / unit, [(-1, 1)] * d + [(None, 1)]
    aim = np.append(np.zeros(d), -1.0)
    answer = linprog(aim, A_ub=np.column_stack([x, np.ones(n)]), b_ub=np.zeros(n), bounds=bounds)
    if answer.status != 0:
        return found
    v, weights = answer.x[:d], np.maximum(-answer.ineqlin.marginals, 0)
    length, total = float(np.linalg.norm(v)), float(weights.sum())
    rounding = (n + d + 3) * float(np.finfo(np.float64).eps) * float(np.linalg.norm(x, axis=1).max())
    margin = -float((x @ v).max()) / length - rounding if length else -np.inf
    bound = float(np.linalg.norm(weights @ x)) / total + rounding if total else np.inf
    if margin > 0:
        return replace(found, exists=True, direction=v / length, margin=margin * found.mean_norm)
    if bound < min(epsilon, found.bound / unit):
        support = np.flatnonzero(weights)
        found = replace(found, support=support, weights=weights[support] / total)
        return replace(found, exists=False, bound=bound * found.mean_norm)
    return found


def _again(searched: Array, rest: Array, heights: Array, epsilon: float) -> tuple[int, Separation]:
    """Search again with the held-out states that violate the direction, which may leave none."""
    worst = np.argsort(-heights)[: max(_PER_DIMENSION * searched.shape[1], 100)]
    both = np.concatenate([searched, rest[np.sort(worst[heights[worst] >= 0])]])
    return len(both), separate(both, epsilon=epsilon)


def _heights(points: Array, direction: Array) -> Array:
    return np.concatenate([block @ direction for block in blocks(points)])


def _cloud(name: str, n: int, found: Separation, remark: str = "") -> AvoidedCloud:
    unit = found.mean_norm or 1.0
    margin = found.margin / unit if np.isfinite(found.margin) else None
    return AvoidedCloud(name, n, found.exists, margin, found.bound / unit, found.is_inside, remark)


def _nulls(points: Array, epsilon: float, seed: int, progress: Progress | None) -> tuple[AvoidedCloud, ...]:
    """Clouds that differ in one thing."""
    norms = np.linalg.norm(points.astype(np.float64), axis=1)
    signs = np.random.default_rng([seed, 1]).choice(np.array([-1, 1], points.dtype), len(points))
    lengths = np.where(norms > 0, norms, 1).astype(points.dtype)
    usual = norms <= OUTLIER * np.median(norms)
    left_out = f"{counted(int((~usual).sum()), 'state')} longer than {OUTLIER:g} medians left out"
    makes: list[tuple[str, Callable[[], Array], str]] = [
        ("unit length", lambda: points / lengths[:, None], ""),
        ("random signs", lambda: points * signs[:, None], ""),
        ("without outliers", lambda: points[usual], left_out),
    ][: 2 if usual.all() else 3]
    found = []
    for i, (name, make, remark) in enumerate(makes):
        if progress:
            progress(f"states: {name}", i, len(makes))
        cloud = make()
        found.append(_cloud(name, len(cloud), _decided(cloud, epsilon), remark))
    found.append(AvoidedCloud("without their mean", len(points), False, None, 0.0, False, "their mean is 0"))
    return tuple(found)


def _norm_direction(norm: tuple[Array, Array], states: Array, mean_norm: float) -> NormDirection | None:
    """The closed form, checked on the states."""
    gain, bias = norm
    if gain.shape != states.shape[1:]:
        raise InputError(f"expected a norm of {states.shape[1]} gains, got {gain.shape}: pass the last norm's")
    direction, margin = layer_norm_direction(gain, bias)
    if not margin:
        return None
    heights, scale = _heights(states, direction), mean_norm or 1.0
    least, off = float(np.abs(gain).min()), float(np.abs(heights + margin).max()) / scale
    return NormDirection(margin, margin / scale, least, len(states), int((heights >= 0).sum()), off)


def _of_norm_alone(norm: tuple[Array, Array], epsilon: float) -> NegativeDirection:
    """The answer without states. The mean norm assumes entries of square 1 before the gain."""
    (direction, margin), gain = layer_norm_direction(*norm), norm[0]
    size = float(np.sqrt(np.square(norm).sum(1).sum()))
    definition = "From gain and bias alone: <1 / gain, h> is sum(bias / gain) for every output h of a LayerNorm."
    result = NegativeDirection("", None, epsilon, 0, len(gain), size, definition=definition)
    if margin:
        share = margin / (size or 1.0)
        own = NormDirection(margin, share, float(np.abs(gain).min()))
        result = replace(result, exists=True, margin=share, norm=own, direction=_kept(direction))
    return replace(result, verdict=_verdict(result))


def _mean_state(states: Array, direction: Array) -> tuple[float | None, float | None]:
    """The cosine of the mean state with minus the direction, and the share of states with <mean, h> <= 0."""
    mean = states.mean(0, dtype=np.float64)
    if not (size := float(np.linalg.norm(mean))):
        return None, None
    return -float(mean @ direction) / size, float((_heights(states, mean) <= 0).mean())


def _kept(direction: Array) -> tuple[float, ...]:
    return tuple(map(float, direction)) if len(direction) <= _MOST_KEPT else ()


def _verdict(found: NegativeDirection) -> str:
    states, held, own = counted(found.n, "state"), counted(found.held_out, "held-out state"), ""
    if found.norm and found.n:
        own = f" The norm's own direction has a margin of {number(found.norm.share)} of the mean norm."
    if found.exists:
        by, thin = number(found.margin or 0), ", which is thin" if (found.margin or 0) < THIN else ""
        if not found.n:
            return f"Every output of this norm avoids one direction, whatever the text, by {by} of the mean norm{thin}."
        others = f", and so do all {held}" if found.held_out else ". No states were held out"
        text = f"All {states} avoid one direction, by {by} of their mean norm{thin}{others}."
        if found.chance > LIKELY and (not found.norm or found.norm.violations):
            chance = number(found.chance, limits=(0, 1))
            text += (
                f" As many random points do so with a probability of {chance}, so this shows little about the model."
            )
        return text + own
    if found.exists is False:
        proof = "beyond all rounding" if found.exact else f"to a margin of {number(found.epsilon)} of their mean norm"
        why = f" ({proof})"
        if found.violations:
            failed = f"The one that {states} avoid fails on {counted(found.violations, 'held-out state')}"
            why = f". {failed}, and none is left with these included"
        return f"There is no direction that all states avoid{why}."
    if found.violations:
        lean = f"{count(found.violations)} of {held}"
        return f"Undecided: all {states} point away from one direction, but {lean} do not.{own}"
    if not found.n:
        return "This norm alone gives no direction: its sum of bias / gain is 0 or rounding. Only a text can decide."
    if found.margin is not None and not found.held_out:
        return f"Undecided: all {states} point away from one direction, but there are too few to hold some out."
    most = f"up to {number(found.bound or 0)} of the mean norm may exist"
    return f"Undecided: no direction was found, but a direction with a margin of {most}.{own}"
