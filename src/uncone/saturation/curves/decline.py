"""Does a curve over checkpoints decline late? Two windows against its jitter, and its peak against chance.

Families of curves are corrected after Holm, and share what is known of their jitter: its correlation, and its size over
the standard errors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from uncone.records.text import count, counted, listing, plural
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.curves import contrast
from uncone.saturation.curves.peak import Noise, p_of_peak
from uncone.saturation.curves.record import MOST_DRAWN, CurveFamily, CurveVerdict
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.holm import holm
from uncone.statistics.tails import NORMAL

START = 0.005  # of the training: before, a model knows nothing
STURDY = 0.025  # the level of the contrast, one-sided
MOST_CHECKPOINTS = 128  # a longer curve is averaged to so many

_MOST_NAMED = 4
_ODD, _FEW_ITEMS = 20.0, 30
"""Standard errors of another unit: so many times the jitter, or as of a test of fewer items."""

Family = tuple[str, str, str, str]
Ratios = Mapping[Family, tuple[Array, int]]
"""Deviation of a family's values over their errors, (K,), and its degrees of freedom."""


@dataclass(frozen=True, eq=False)
class Curve:
    model: str
    task: str
    metric: str
    steps: Array  # ascending, float64 (n,)
    values: Array  # (n,)
    errors: Array | None = None  # standard errors, (n,)
    lower: bool = False  # less is better
    guessed: str = ""  # the metric, where nobody said which way is better
    logarithm: bool = False  # ln(value) is judged: the jitter of a perplexity grows with it
    suite: str = ""
    shots: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)  # such as the batch size
    fault: str = ""  # why it is undecided
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> Family:
        return self.task, self.metric, self.suite, self.shots

    @property
    def as_given(self) -> Array:
        return np.exp(self.values) if self.logarithm else self.values

    def noted(self, note: str, **changes: Any) -> "Curve":
        return replace(self, notes=(*self.notes, note), **changes)


@dataclass(frozen=True, eq=False)
class _Group:
    """Curves over the same checkpoints, with or without errors: oriented, about 0, their largest value of size 1."""

    at: list[int]
    y: Array  # (m, n)
    errors: Array | None
    of: contrast.Design
    found: contrast.Contrasts
    unit: Array  # (m,): what 1 is in the curve's own unit


def judge(
    curves: Sequence[Curve], *, alpha: float = 0.05, seed: int = 0, progress: Progress | None = None
) -> tuple[tuple[CurveVerdict, ...], tuple[CurveFamily, ...]]:
    prepared = [_prepared(curve) for curve in curves]
    verdicts = [_undecided(curve) for curve in prepared]
    groups = _groups(prepared)
    likely, ratios = _shared(prepared, groups)
    done, lock = len(curves) - sum(len(group.at) for group in groups), Lock()

    def tick(more: int) -> None:
        nonlocal done
        with lock:  # several threads judge curves
            done += more
            if progress is not None:
                progress("curves", done, len(curves))

    for group in groups:
        of, weights = [prepared[i] for i in group.at], likely[group.at]
        p_contrast = contrast.p_of(group.found, group.errors, group.of, weights).tolist()
        chance = partial(p_of_peak, seed=seed, tick=tick)
        p_peak = _peaks(group, [curve.family for curve in of], weights, ratios, chance).tolist()
        bends = _bends(of[0].steps, group, weights)
        for row, i in enumerate(group.at):
            verdicts[i] = _evidence(of[row], group, row, p_contrast[row], p_peak[row], bends[row])
    verdicts = _decided(verdicts, alpha)
    fell = [i for i, verdict in enumerate(verdicts) if verdict.declined]
    for i in sorted(fell, key=lambda i: verdicts[i].p_holm or 0.0)[:MOST_DRAWN]:
        steps, values = (tuple(of.tolist()) for of in (prepared[i].steps, prepared[i].as_given))
        verdicts[i] = replace(verdicts[i], steps=steps, values=values)
    return tuple(verdicts), tuple(_families(prepared, verdicts, likely, ratios))


def _prepared(curve: Curve) -> Curve:
    if curve.fault:
        return curve
    if len(steps := curve.steps) < 2:
        few = f"{len(steps)} checkpoint: a curve has more" if len(steps) else "no checkpoint has a value"
        return replace(curve, fault=few)
    if not np.isfinite(steps).all() or steps[0] < 0 or not steps[-1] > 0:
        return replace(curve, fault="steps that are not numbers from 0 up")
    kept = steps >= START * steps[-1]
    if early := int((~np.isfinite(curve.values[~kept])).sum()):
        are = plural(early, "is no number", "are no numbers")
        first = f"{counted(early, 'value')} before step {steps[kept][0]:g} {are}"
        curve = curve.noted(f"{first}: so early nothing is judged")
    errors = None if curve.errors is None else curve.errors[kept]
    curve = replace(curve, steps=steps[kept], values=curve.values[kept], errors=errors)
    return replace(curve, fault=fault) if (fault := _fault(curve)) else _as_judged(curve)


def _as_judged(curve: Curve) -> Curve:
    """Values averaged where they are many, with standard errors that are known everywhere or unused."""
    if curve.errors is not None and not (np.isfinite(curve.errors) & (curve.errors > 0)).all():
        curve = curve.noted("standard errors are missing or 0 at some checkpoints: none was used", errors=None)
    if curve.logarithm:
        errors = None if curve.errors is None else curve.errors / curve.values
        curve = replace(curve, values=np.log(curve.values), errors=errors)
    curve = _averaged(curve) if len(curve.steps) > MOST_CHECKPOINTS else curve
    return replace(curve, fault=contrast.shortcoming(curve.steps))


def _fault(curve: Curve) -> str:
    steps, values = curve.steps, curve.values
    for step in steps[1:][np.diff(steps) <= 0]:
        return f"two values at step {step:g}: give one a checkpoint, or name the column that tells the curves apart"
    for i in np.flatnonzero(~np.isfinite(values)):
        how = "leave that checkpoint out if it was not measured"
        return f"the value at step {steps[i]:g} is {values[i]:g}: {how}"
    if curve.logarithm and not (values > 0).all():
        return f"a perplexity of {values.min():g}: expected values above 0"
    return "values of over 1e150" if np.abs(values).max() > 1e150 else ""


def _averaged(curve: Curve) -> Curve:
    span = np.minimum((curve.steps / curve.steps[-1] * MOST_CHECKPOINTS).astype(int), MOST_CHECKPOINTS - 1)
    kept, of, held = np.unique(span, return_inverse=True, return_counts=True)

    def total(values: Array) -> Array:
        return np.bincount(of, values, len(kept))

    errors = None if curve.errors is None else np.sqrt(total(curve.errors**2)) / held
    note = f"{len(curve.steps):,} checkpoints were averaged to {len(kept)}"
    return curve.noted(note, steps=total(curve.steps) / held, values=total(curve.values) / held, errors=errors)


def _groups(curves: Sequence[Curve]) -> list[_Group]:
    alike = dict[tuple[bytes, bool], list[int]]()
    for i, curve in enumerate(curves):
        if not curve.fault:
            alike.setdefault((curve.steps.tobytes(), curve.errors is None), []).append(i)
    groups = []
    for at in alike.values():
        y = np.stack([-curves[i].values if curves[i].lower else curves[i].values for i in at])
        y = y - np.median(y, axis=1, keepdims=True)
        unit = np.abs(y).max(1, keepdims=True)
        unit[unit == 0] = 1.0
        errors = [errors for i in at if (errors := curves[i].errors) is not None]
        scaled = np.stack(errors) / unit if errors else None
        of = contrast.design(curves[at[0]].steps)
        y = y / unit
        groups.append(_Group(at, y, scaled, of, contrast.contrasts(y, scaled, of), unit[:, 0]))
    return groups


def _shared(curves: Sequence[Curve], groups: Iterable[_Group]) -> tuple[Array, Ratios]:
    """How likely each correlation is for each curve; of each family its deviation over its errors: the median over its
    curves, at least 1, since a few curves of much jitter do not speak for all."""
    likelihood = np.zeros((len(curves), len(CORRELATIONS)))
    members, over = dict[Family, list[int]](), dict[Family, list[tuple[Array, int]]]()
    for group in groups:
        likelihood[group.at] = group.found.likelihood
        for row, i in enumerate(group.at):
            members.setdefault(curves[i].family, []).append(i)
            if group.errors is not None:
                ratio = np.sqrt(group.found.variances[row]) / group.errors[row][group.of.body].mean()
                over.setdefault(curves[i].family, []).append((ratio, group.of.degrees))
    likely = np.zeros_like(likelihood)
    for at in members.values():
        likely[at] = contrast.posteriors(likelihood[at])
    ratios = dict[Family, tuple[Array, int]]()
    for family, each in over.items():
        ratio, degrees = zip(*each, strict=True)
        ratios[family] = np.maximum(np.median(ratio, axis=0), 1.0), sum(degrees)
    return likely, ratios


def _peaks(
    group: _Group, families: Sequence[Family], weights: Array, ratios: Ratios, chance: Callable[..., Array]
) -> Array:
    """The chance of each peak, by the standard errors times the family's ratio, or by the curve's own jitter."""
    if group.errors is None:
        noise = Noise(np.ones_like(group.y), np.sqrt(group.found.variances), group.of.degrees)
        return chance(group.y, noise, group.of, weights)
    p, scale = np.empty(len(families)), np.stack([ratios[family][0] for family in families])
    degrees = np.array([min(ratios[family][1], NORMAL) for family in families])
    for one in np.unique(degrees).tolist():
        rows = degrees == one
        p[rows] = chance(group.y[rows], Noise(group.errors[rows], scale[rows], one), group.of, weights[rows])
    return p


def _bends(steps: Array, group: _Group, weights: Array) -> Array:
    nearest = np.abs(CORRELATIONS - (weights @ CORRELATIONS)[:, None]).argmin(1)
    bends = np.empty((len(group.at), 3))
    for k in np.unique(nearest):
        rows = nearest == k
        bends[rows] = steps[contrast.change_points(group.y[rows], steps, group.of.correlation[k])]
    return bends


def _evidence(curve: Curve, group: _Group, row: int, p_contrast: float, p_peak: float, bend: Array) -> CurveVerdict:
    y, unit, found = group.y[row], float(group.unit[row]), group.found
    peak, (step, low, high) = int(y.argmax()), bend.tolist()
    late, error, jitter = (float(of[row]) * unit for of in (found.value, found.error, found.jitter))
    late, decline = -late if curve.lower else late, float(y[peak] - y[-1]) * unit
    both = None if curve.errors is None else float(np.hypot(curve.errors[peak], curve.errors[-1]))
    best, final = ((float(curve.as_given[at]), float(curve.steps[at])) for at in (peak, -1))
    noise = "jitter" if curve.errors is None else "standard errors"
    notes = (*curve.notes, *_odd_errors(curve, jitter))
    of = replace(_undecided(curve), declined=False, reason="", p_contrast=p_contrast, p_peak=p_peak, notes=notes)
    of = replace(of, peak=best[0], peak_step=best[1], final=final[0], final_step=final[1])
    of = replace(of, decline=decline, decline_error=both, decline_z=decline / both if both else None)
    of = replace(of, contrast=late, contrast_error=error, contrast_z=late / error if error > 0 else None)
    return replace(of, jitter=jitter, noise=noise, change_step=step, change_low=low, change_high=high)


def _odd_errors(curve: Curve, jitter: float) -> Iterable[str]:
    """A note where the standard errors have another unit than the values, as percents beside fractions: neither the
    jitter nor the range of the curve, or of shares a test of few items, bears them out."""
    if curve.errors is None or not jitter > 0:
        return
    error, values = float(np.median(curve.errors)), curve.values
    are_shares = not curve.logarithm and values.min() >= 0 and values.max() <= 1
    largest = np.sqrt(np.mean(values * (1 - values)) / _FEW_ITEMS) if are_shares else np.ptp(values)
    if error > max(_ODD * jitter, largest):
        times = f"{error / jitter:.0f} times the jitter between checkpoints, which hides declines"
        yield f"the standard errors are {times}: are they percents where the values are fractions?"
    elif error < jitter / _ODD and not curve.logarithm and values.max() > 1:
        times = f"{jitter / error:.0f} times the standard errors"
        yield f"the jitter between checkpoints is {times}: are they fractions where the values are percents?"


def _undecided(curve: Curve) -> CurveVerdict:
    settings = (dict(curve.settings), curve.lower, curve.logarithm, curve.fault, len(curve.steps))
    names = (curve.model, curve.task, curve.metric, None, curve.suite, curve.shots)
    return CurveVerdict(*names, *settings, notes=curve.notes)


def _decided(verdicts: Sequence[CurveVerdict], alpha: float) -> list[CurveVerdict]:
    decided = list(verdicts)
    for at in _members(verdicts).values():
        judged = [i for i in at if verdicts[i].p_peak is not None]
        for i, corrected in zip(judged, holm([verdicts[i].p_peak or 0.0 for i in judged]), strict=True):
            sturdy = (verdicts[i].p_contrast or 0.0) <= STURDY
            decided[i] = replace(verdicts[i], p_holm=corrected, declined=sturdy and corrected <= alpha)
    return decided


def _members(curves: Iterable[Curve | CurveVerdict]) -> dict[Family, list[int]]:
    members = dict[Family, list[int]]()
    for i, curve in enumerate(curves):
        members.setdefault(curve.family, []).append(i)
    return members


def _families(
    curves: Sequence[Curve], verdicts: Sequence[CurveVerdict], likely: Array, ratios: Ratios
) -> Iterable[CurveFamily]:
    for family, at in _members(curves).items():
        judged = likely[at][likely[at].any(1)]  # an undecided curve has no correlation
        said = [verdicts[i].declined for i in at]
        counts = len(at), said.count(True), said.count(None)
        correlation = ratio = None
        if len(judged):
            weights = judged.mean(0)
            correlation = float(weights @ CORRELATIONS)
            # the weights sum to 1 but for rounding
            ratio = 1 + float(weights @ (ratios[family][0] - 1)) if family in ratios else None
        yield CurveFamily(*family, curves[at[0]].lower, *counts, correlation, ratio)


def verdict_of(families: Sequence[CurveFamily], curves: Sequence[CurveVerdict]) -> str:
    fell = [curve.model for curve in curves if curve.declined]
    undecided, of = sum(family.undecided for family in families), counted(len(curves), "curve")
    open_ones = f"{count(undecided)} {plural(undecided, 'is', 'are')} undecided."
    if undecided == len(curves):
        return f"No curve could be judged: {open_ones}"
    if len(families) == 1:
        where, names = f"of {families[0].title}", fell
    else:
        where = f"in {counted(len(families), 'family', 'families')}"
        falling = sorted((one for one in families if one.declined), key=lambda one: -one.declined)
        names = [f"{one.declined} of {one.title}" for one in falling]
    told = f"No late decline is shown {where}, in {of}"
    if names:
        more = f" and {count(len(names) - _MOST_NAMED)} more" if len(names) > _MOST_NAMED else ""
        told = f"{count(len(fell))} of {of} {where} declined late: {', '.join(names[:_MOST_NAMED])}{more}"
    return f"{told}; {open_ones}" if undecided else f"{told}."


def direction_taken(curves: Sequence[Curve], verdicts: Sequence[CurveVerdict]) -> str:
    judged = zip(curves, verdicts, strict=True)
    names = list(dict.fromkeys(one.guessed for one, verdict in judged if one.guessed and not verdict.reason))
    if not names:
        return ""
    shown = [repr(name[:40]) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"{count(len(names) - _MOST_NAMED)} more")
    return f" Higher was taken as better for {listing(shown)}, whose direction is not known (lower=, --lower)."
