"""Does a curve over checkpoints decline late? Each curve is judged alone and in its family.

Holm corrects the chances within a family, and its curves share what is known about the correlation of their jitter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uncone.records.text import count, counted, listing, plural
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.curves.bends import bends
from uncone.saturation.curves.late_fall import BODY, Design, Readings, design, posteriors, shortcoming
from uncone.saturation.curves.record import MOST_DRAWN, CurveFamily, CurveVerdict
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.holm import holm

START = 0.005  # the share of the training before which a model knows nothing
MOST_CHECKPOINTS = 128  # a longer curve is averaged to this number

_MOST_NAMED = 4
_ODD_END = 1.5
_ODD, _FEW_ITEMS = 20.0, 30
"""Standard errors in another unit: so many times the jitter, and larger than in a test of so few items."""

Family = tuple[str, str, str, str]


@dataclass(frozen=True, eq=False)
class Curve:
    model: str
    task: str
    metric: str
    steps: Array  # ascending, float64 (n,)
    values: Array  # (n,)
    errors: Array | None = None  # standard errors, (n,)
    lower: bool = False  # less is better
    guessed: str = ""  # the metric, if its direction was guessed
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
    """Curves over the same checkpoints: oriented, centred, and scaled to a largest size of 1."""

    at: list[int]
    y: Array  # (m, n)
    of: Design
    read: Readings
    unit: Array  # (m,): the size of 1 in the curve's own unit


def judge(
    curves: Sequence[Curve], *, first: Sequence[str] = (), alpha: float = 0.05, progress: Progress | None = None
) -> tuple[tuple[CurveVerdict, ...], tuple[CurveFamily, ...]]:
    prepared = [_prepared(curve) for curve in curves]
    verdicts = [_undecided(curve) for curve in prepared]
    groups = _groups(prepared)
    weights, share = _shared(prepared, groups)
    judged = _members(prepared, [i for group in groups for i in group.at])
    sizes = {i: len(at) for at in judged.values() for i in at}
    done = len(curves) - len(sizes)
    for group in groups:
        alone = group.of.alone(group.read)
        family = np.array([sizes[i] for i in group.at])
        together = np.empty(len(alone))
        for size in np.unique(family).tolist():
            together[family == size] = group.of.together(group.read, weights[group.at], size)[family == size]
        chances = share[group.at] * together + (1 - share[group.at]) * alone
        bent = _bends(prepared[group.at[0]].steps, group)
        for row, i in enumerate(group.at):
            verdicts[i] = _evidence(prepared[i], group, row, float(alone[row]), float(chances[row]), bent[row])
        done += len(group.at)
        if progress is not None:
            progress("curves", done, len(curves))
    verdicts = _decided(verdicts, first, alpha)
    fell = [i for i, verdict in enumerate(verdicts) if verdict.declined or verdict.declined_alone]
    for i in sorted(fell, key=lambda i: (not verdicts[i].declined, verdicts[i].p_alone or 0.0))[:MOST_DRAWN]:
        steps, values = (tuple(of.tolist()) for of in (prepared[i].steps, prepared[i].as_given))
        verdicts[i] = replace(verdicts[i], steps=steps, values=values)
    return tuple(verdicts), tuple(_families(prepared, verdicts, weights))


def _prepared(curve: Curve) -> Curve:
    if curve.fault:
        return curve
    if len(steps := curve.steps) < 2:
        few = f"{len(steps)} checkpoint: a curve needs more" if len(steps) else "no checkpoint has a value"
        return replace(curve, fault=few)
    if not np.isfinite(steps).all() or steps[0] < 0 or not steps[-1] > 0:
        return replace(curve, fault="steps that are not numbers from 0 up")
    kept = steps >= START * steps[-1]
    if early := int((~np.isfinite(curve.values[~kept])).sum()):
        are = plural(early, "is not a number", "are not numbers")
        first = f"{counted(early, 'value')} before step {steps[kept][0]:g} {are}"
        curve = curve.noted(f"{first}: values this early are not judged")
    errors = None if curve.errors is None else curve.errors[kept]
    curve = replace(curve, steps=steps[kept], values=curve.values[kept], errors=errors)
    return replace(curve, fault=fault) if (fault := _fault(curve)) else _as_judged(curve)


def _as_judged(curve: Curve) -> Curve:
    """Averages of many values, with standard errors that are known everywhere or unused."""
    if curve.errors is not None and not (np.isfinite(curve.errors) & (curve.errors > 0)).all():
        curve = curve.noted("standard errors are missing or 0 at some checkpoints: none were used", errors=None)
    if curve.logarithm:
        errors = None if curve.errors is None else curve.errors / curve.values
        curve = replace(curve, values=np.log(curve.values), errors=errors)
    curve = _averaged(curve) if len(curve.steps) > MOST_CHECKPOINTS else curve
    curve = _without_odd_end(curve)
    return replace(curve, fault=shortcoming(curve.steps))


def _without_odd_end(curve: Curve) -> Curve:
    """Without a last value that is much worse than the one before: one checkpoint shows no decline."""
    late = curve.values[curve.steps >= BODY * curve.steps[-1]] * (-1 if curve.lower else 1)
    if len(late) < 4 or late[-2] - late[-1] <= _ODD_END * np.abs(np.diff(late[:-1])).max():
        return curve
    worse = f"the last value drops more than {_ODD_END:g} times as far as any two others are apart"
    errors = None if curve.errors is None else curve.errors[:-1]
    return curve.noted(
        f"{worse}: one checkpoint cannot show a decline, so it was left out",
        steps=curve.steps[:-1],
        values=curve.values[:-1],
        errors=errors,
    )


def _fault(curve: Curve) -> str:
    steps, values = curve.steps, curve.values
    for step in steps[1:][np.diff(steps) <= 0]:
        return f"two values at step {step:g}: give one per checkpoint, or name the column that separates the curves"
    for i in np.flatnonzero(~np.isfinite(values)):
        how = "leave that checkpoint out if it was not measured"
        return f"the value at step {steps[i]:g} is {values[i]:g}: {how}"
    if curve.logarithm and not (values > 0).all():
        return f"a perplexity of {values.min():g}: expected values above 0"
    return "values above 1e150" if np.abs(values).max() > 1e150 else ""


def _averaged(curve: Curve) -> Curve:
    span = np.minimum((curve.steps / curve.steps[-1] * MOST_CHECKPOINTS).astype(int), MOST_CHECKPOINTS - 1)
    kept, of, held = np.unique(span, return_inverse=True, return_counts=True)

    def total(values: Array) -> Array:
        return np.bincount(of, values, len(kept))

    errors = None if curve.errors is None else np.sqrt(total(curve.errors**2)) / held
    note = f"{len(curve.steps):,} checkpoints were averaged to {len(kept)}"
    return curve.noted(note, steps=total(curve.steps) / held, values=total(curve.values) / held, errors=errors)


def _groups(curves: Sequence[Curve]) -> list[_Group]:
    alike = dict[bytes, list[int]]()
    for i, curve in enumerate(curves):
        if not curve.fault:
            alike.setdefault(curve.steps.tobytes(), []).append(i)
    groups = []
    for at in alike.values():
        y = np.stack([-curves[i].values if curves[i].lower else curves[i].values for i in at])
        y = y - np.median(y, axis=1, keepdims=True)
        unit = np.abs(y).max(1, keepdims=True)
        unit[unit == 0] = 1.0
        y, of = y / unit, design(curves[at[0]].steps)
        groups.append(_Group(at, y, of, of.read(y), unit[:, 0]))
    return groups


def _shared(curves: Sequence[Curve], groups: Iterable[_Group]) -> tuple[Array, Array]:
    """How likely each correlation is for each curve given its family, and how likely the curve shares theirs."""
    likelihood, share = np.zeros((len(curves), len(CORRELATIONS))), np.zeros(len(curves))
    for group in groups:
        likelihood[group.at] = group.read.likelihood
    weights = np.zeros_like(likelihood)
    for at in _members(curves, [i for group in groups for i in group.at]).values():
        weights[at], share[at] = posteriors(likelihood[at])
    return weights, share


def _bends(steps: Array, group: _Group) -> Array:
    weights = np.exp(group.read.likelihood - group.read.likelihood.max(1, keepdims=True))  # equally likely beforehand
    nearest = np.abs(CORRELATIONS - (weights @ CORRELATIONS / weights.sum(1))[:, None]).argmin(1)
    bent = np.empty((len(group.at), 3))
    for k in np.unique(nearest):
        rows = nearest == k
        bent[rows] = steps[bends(group.y[rows], steps, CORRELATIONS[k]).astype(int)]
    return bent


def _evidence(curve: Curve, group: _Group, row: int, alone: float, chance: float, bend: Array) -> CurveVerdict:
    y, unit = group.y[row], float(group.unit[row])
    peak, (step, low, high) = int(y.argmax()), bend.tolist()
    jitter, decline = float(group.read.jitter[row]) * unit, float(y[peak] - y[-1]) * unit
    both = None if curve.errors is None else float(np.hypot(curve.errors[peak], curve.errors[-1]))
    best, final = ((float(curve.as_given[at]), float(curve.steps[at])) for at in (peak, -1))
    notes = (*curve.notes, *_odd_errors(curve, jitter))
    of = replace(_undecided(curve), declined=False, reason="", p_alone=alone, p_family=chance, notes=notes)
    of = replace(of, peak=best[0], peak_step=best[1], final=final[0], final_step=final[1])
    of = replace(of, decline=decline, decline_error=both, decline_z=decline / both if both else None)
    of = replace(of, jitter=jitter, visible=group.of.visible * jitter)
    return replace(of, change_step=step, change_low=low, change_high=high)


def _odd_errors(curve: Curve, jitter: float) -> Iterable[str]:
    """A note if the standard errors seem to have another unit than the values, such as percents for fractions: neither
    the jitter nor the range of the curve (for shares, a test of few items) explains them."""
    if curve.errors is None or not jitter > 0:
        return
    error, values = float(np.median(curve.errors)), curve.values
    are_shares = not curve.logarithm and values.min() >= 0 and values.max() <= 1
    largest = np.sqrt(np.mean(values * (1 - values)) / _FEW_ITEMS) if are_shares else np.ptp(values)
    if error > max(_ODD * jitter, largest):
        times = f"{error / jitter:.0f} times the jitter between checkpoints, which hides declines"
        yield f"the standard errors are {times}: are they percents while the values are fractions?"
    elif error < jitter / _ODD and not curve.logarithm and values.max() > 1:
        times = f"{jitter / error:.0f} times the standard errors"
        yield f"the jitter between checkpoints is {times}: are they fractions while the values are percents?"


def _undecided(curve: Curve) -> CurveVerdict:
    settings = (dict(curve.settings), curve.lower, curve.logarithm, curve.fault, len(curve.steps))
    names = (curve.model, curve.task, curve.metric, None, curve.suite, curve.shots)
    return CurveVerdict(*names, *settings, notes=curve.notes)


def _decided(verdicts: Sequence[CurveVerdict], first: Sequence[str], alpha: float) -> list[CurveVerdict]:
    """Holm, after a fixed sequence (Westfall & Krishen 2001): each curve of `first` is tested at the whole level, by its
    own jitter, and what follows only while all before it declined."""
    decided = list(verdicts)
    for at in _members(verdicts, [i for i, one in enumerate(verdicts) if one.p_family is not None]).values():
        others, largest = [i for i in at if verdicts[i].model not in first], 0.0
        corrected = dict(zip(others, holm([verdicts[i].p_family or 0.0 for i in others]), strict=True))
        for i in sorted(set(at).difference(others), key=lambda i: first.index(verdicts[i].model)):
            corrected[i] = largest = max(largest, verdicts[i].p_alone or 0.0)
        for i, p in corrected.items():
            p, alone = max(p, largest) if i in others else p, (verdicts[i].p_alone or 0.0) <= alpha
            decided[i] = replace(verdicts[i], p_holm=p, declined=p <= alpha, declined_alone=alone)
    return decided


def _members(curves: Sequence[Curve | CurveVerdict], of: Iterable[int]) -> dict[Family, list[int]]:
    members = dict[Family, list[int]]()
    for i in of:
        members.setdefault(curves[i].family, []).append(i)
    return members


def _families(curves: Sequence[Curve], verdicts: Sequence[CurveVerdict], weights: Array) -> Iterable[CurveFamily]:
    for family, at in _members(curves, range(len(curves))).items():
        judged = weights[at][weights[at].any(1)]  # an undecided curve has no correlation
        declined = [verdicts[i].declined for i in at]
        correlation = float((judged @ CORRELATIONS).mean()) if len(judged) else None
        yield CurveFamily(
            *family, curves[at[0]].lower, len(at), declined.count(True), declined.count(None), correlation
        )


def verdict_of(families: Sequence[CurveFamily], curves: Sequence[CurveVerdict]) -> str:
    titles = {(one.task, one.metric, one.suite, one.shots): one.title for one in families}
    is_one = len(families) == 1
    where = f"of {families[0].title}" if is_one else f"in {counted(len(families), 'family', 'families')}"

    def named(chosen: Sequence[CurveVerdict]) -> str:
        counts = Counter(titles[curve.family] for curve in chosen)
        names = [c.model for c in chosen] if is_one else [f"{n} of {title}" for title, n in counts.most_common()]
        more = f" and {count(len(names) - _MOST_NAMED)} more" if len(names) > _MOST_NAMED else ""
        return f"{', '.join(names[:_MOST_NAMED])}{more}"

    undecided, of = sum(family.undecided for family in families), counted(len(curves), "curve")
    open_ones = f"{counted(undecided, 'curve')} {plural(undecided, 'is', 'are')} undecided."
    if undecided == len(curves):
        return f"No curve could be judged: {open_ones}"
    fell = [curve for curve in curves if curve.declined]
    alone = [curve for curve in curves if curve.declined_alone and not curve.declined]
    verdict = f"No late decline was detected in {of} {where}."
    if fell:
        verdict = f"{count(len(fell))} of {of} {where} declined late: {named(fell)}."
    if undecided:
        verdict += f" {open_ones}"
    if alone:
        verdict += f" Judged alone, {count(len(alone))}{' more' if fell else ''} declined: {named(alone)}."
    return verdict


def direction_taken(curves: Sequence[Curve], verdicts: Sequence[CurveVerdict]) -> str:
    judged = zip(curves, verdicts, strict=True)
    names = list(dict.fromkeys(one.guessed for one, verdict in judged if one.guessed and not verdict.reason))
    if not names:
        return ""
    shown = [repr(name[:40]) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"{count(len(names) - _MOST_NAMED)} more")
    return f" We assumed that higher is better for {listing(shown)}, whose direction is not known (lower=, --lower)."
