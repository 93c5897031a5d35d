"""When does a reading of a run get worse than its own trend? Warnings with their reasons, without torch.

Each reading is compared only with its own past, by Page's one-sided CUSUM (Biometrika 41, 1954) of whitened rates:

    d_t = (x_t - x_{t-1} - m g_t) / sqrt(g_t),  S_t = max(0, S_{t-1} + w e_t / s - k)
    e_t = d_t - r d_{t-1} where r >= 0,  d_t + q e_{t-1} where r < 0, with q / (1 + q^2) = -r

x is the reading, its logarithm, or the logarithm of 1 less the reading. g is the gap to the previous record, in units
of `every`. m is the median rate, r the lag-one correlation of d and s the scaled median absolute deviation of e, over
the last `_KEPT` increments before S last was 0. Increments of a smooth course are an AR(1), increments of jitter about
a course an MA(1). w is 1 where growth is bad, else -1. A warning needs S above the threshold and, since S last was 0, a
move larger than the rule's `effect`, both in itself and beyond the course m: a change that is certain but small does
not count. A noisy reading jumps in a single increment, so there is a second way: the last three records exceed each of
the 20 before them by the effect and the course. A run's first `unjudged` steps are not judged. False alarms and delays
are simulated in experiments/monitor_rules.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from uncone.arguments import finite_number, whole_number
from uncone.errors import InputError
from uncone.records.text import number

THRESHOLD = 8.0  # of S, in deviations of whitened increments
_SLACK = 1.0  # k: what a drift may add to each increment
_STAYS, _STAYS_STEPS = 20, 200  # the states of a healthy model are also all alike in its first hundred steps
UNJUDGED = 200  # steps
_WARM, _KEPT = 10, 40  # increments before the first judgement, and increments that a judgement uses
_JUMPED, _LEVEL = 3, 20  # so many records beyond all of so many before them
_HELD = 20  # increments after which a change without a warning is the new course
_FINEST = 20  # s is at least the effect divided by this, so that a reading without jitter has a scale too
_MAD = 1.4826  # of a normal distribution's median absolute deviation to its standard deviation
_LEAST = 1e-6  # of 1 less a cosine
_FARTHEST = 3.0  # deviations at which increments are cut to estimate their correlation
_LARGEST = 0.9  # of r and q: a moving average that forgets nothing would never return to its course


@dataclass(frozen=True)
class Warning_:  # noqa: N801 - `Warning` is Python's
    """What a rule found at a step; `asdict` of it is strict JSON."""

    step: int
    rule: str
    name: str  # of the reading, as in the record
    text: str  # what happened, by how much, and what to check


@dataclass(frozen=True)
class Rule:
    """Which readings a rule follows, and what a change means."""

    name: str
    readings: tuple[str, ...]  # last parts of flat names
    way: int  # 1 where growth is bad, -1 where shrinkage is
    effect: float  # the least move, of the followed value or its logarithm
    called: str
    means: str
    look: str
    is_log: bool = False
    from_one: bool = False  # the rule follows 1 less the reading
    limit: float | None = None  # a value that is bad if `_STAYS` records in a row reach it, whatever came before


ONE_DIRECTION = Rule(
    "one_direction",
    ("mean_cosine", "mean_share"),
    1,
    math.log(1.5),
    "the mean cosine",
    "The vectors are turning into one direction.",
    "Check the learning rate and, for a contrastive encoder, the temperature and the negatives.",
    is_log=True,
    from_one=True,
    limit=0.98,
)
"""This rule sees vectors that turn towards one another faster than before. It cannot see a collapse that began before
the rule starts judging (unless the reading stays above the limit for 20 records and 200 steps), a rise as slow as the
reading's own drift, or groups of vectors that collapse into several directions. A high mean cosine alone is not bad:
healthy encoders reach 0.8."""

GIANT_ROWS = Rule(
    "giant_rows",
    ("norm_largest",),
    1,
    math.log(1.5),
    "the longest row",
    "Single rows are outgrowing the others.",
    "Check the weight decay of the table and the tokens that these rows belong to.",
    is_log=True,
)
"""This rule follows the longest row divided by the median row, where both are read. It cannot see many rows that grow
together, or short rows that grow while a longer row stays the same. The reading does not contain which row grew."""

DEAD_ROWS = Rule(
    "dead_rows",
    ("dead",),
    1,
    0.01,
    "the share of dead rows",
    "Rows have stopped receiving updates.",
    "Check the data order, gradient clipping and the precision of the optimiser.",
)
"""This rule sees at least 1% of the rows die. It cannot see fewer rows, rows that were dead from the first record on,
or whether the tokens of dead rows still occur in the data."""

RANK = Rule(
    "rank",
    ("participation_ratio", "sample_rank", "effective_rank"),
    -1,
    -math.log(0.8),
    "the effective rank",
    "The vectors use fewer dimensions.",
    "Check the learning rate and what is added to the loss.",
    is_log=True,
)
"""This rule sees the loss of a fifth of the participation ratio or of a sample's effective rank, both in every record,
or of the whole effective rank, in every tenth record of a table. Directions with little variance hardly affect the
participation ratio, and directions beyond the sample's number of rows hardly affect the sample's rank. The rule cannot
see a rank that was low from the start."""

LOGITS = Rule(
    "logits",
    ("largest_logsumexp",),
    1,
    math.log(1.5),
    "the largest log-sum-exp",
    "Logits are growing away from 0.",
    "A z-loss or a soft cap limits them.",
    is_log=True,
)
"""This rule sees logits that grow by half. It cannot distinguish a single odd text from a growth of all logits, so two
records in a row must show the growth."""

LOSS = Rule(
    "loss",
    ("cross_entropy", "loss"),
    1,
    0.3,
    "the loss",
    "The model is unlearning.",
    "Compare the geometry before this step.",
)
"""This rule sees a loss that rises and stays high. It cannot see a loss that stops falling, or why a loss rises. It
ignores a spike of one record."""

RULES = (ONE_DIRECTION, GIANT_ROWS, DEAD_ROWS, RANK, LOGITS, LOSS)
_BY_READING = {reading: rule for rule in RULES for reading in rule.readings}
_OF_BATCHES = ("states.", "loss.")
_FINITE = ("cross_entropy", "loss", "norm_median", "norm_largest")


@dataclass
class _Series:
    """One reading's past, and how far the reading has left it."""

    step: int
    value: float
    rates: list[float] = field(default_factory=list)  # increments over their gaps
    values: list[list[float]] = field(default_factory=list)  # [step, reading], of steps that are judged
    held: int = 0  # rates since S last was 0, which do not count as past yet
    sum: float = 0.0  # S
    since: int = 0  # the step at which S last was 0, and the reading and the course there
    start: float = 0.0
    beyond: int = 0  # records in a row that fulfil both conditions
    over: int = 0  # records in a row that reach the limit
    rows: float = 0.0  # of the reading's group

    def see(
        self, step: int, value: float, every: float, rule: Rule, threshold: float, *, batch: bool, begun: bool = True
    ) -> bool:
        """Whether the reading has left its course with this record. A reading of one `batch` must do so twice."""
        gap = (step - self.step) / every
        rate = (value - self.value) / gap
        judged, way, jumped = begun and len(self.rates) >= _WARM, _sign(rule), False
        self.values = [*self.values[1 - _JUMPED - _LEVEL :], [step, value]] if begun else []
        if judged:
            past = self.rates[: len(self.rates) - self.held][-_KEPT:]
            course = median(past)
            white, last = _whitened(
                [one - course for one in (*past, *self.rates[len(self.rates) - self.held :])], len(past)
            )
            # a deviation from few increments is uncertain, and its quotient has heavy tails
            scale = _MAD * median(map(abs, white[: len(past) - 1])) * (1 + 5 / len(past))
            if not self.sum:
                self.since, self.start = self.step, self.value
            e = (rate - course) * math.sqrt(gap) - last
            self.sum = max(0.0, self.sum + way * e / max(scale, rule.effect / _FINEST) - _SLACK)
            self.held = self.held + 1 if self.sum else 0
            # beyond the course, and beyond where it began: a loss that falls more slowly does not rise
            off = course * (step - self.since) / every
            moved = min(way * (value - self.start - off), way * (value - self.start))
            self.beyond = self.beyond + 1 if self.sum > threshold and moved > rule.effect else 0
            if self.held == _HELD:
                self.sum, self.held = 0.0, 0
            certain = not batch and moved > 2 * rule.effect
            if len(self.values) >= _WARM + _JUMPED:
                *before, a, b, c = (way * one for _, one in self.values)
                since, start = self.values[-1 - _JUMPED]
                if jumped := min(a, b, c) > max(before) + max(way * course, 0.0) * (step - since) / every + rule.effect:
                    self.since, self.start = int(since), start
        self.step, self.value = step, value
        self.rates = [*self.rates[1 - _KEPT - _HELD :], rate]
        return jumped or (judged and bool(self.beyond) and (certain or self.beyond > 1))


class Rules:
    """The rules of one run. One collapse shows in several readings and groups of a part. The first of them warns, and
    then all of that rule's readings of the part need ten new increments.

    False alarms and delays are in experiments/monitor_rules/results.md. A reading of one batch must be beyond its
    course in two records in a row. So must a reading of a whole table, unless it moved by twice the effect.

    Args:
        every: optimiser steps from one record to the next.
        threshold: of the sum of deviations; a higher value gives fewer false alarms and later warnings.
        unjudged: steps after the first record that are not judged, as much changes there: a warm-up, for instance.
    """

    def __init__(self, every: int, *, threshold: float = THRESHOLD, unjudged: int = UNJUDGED) -> None:
        self.every = whole_number(every, "every", 1)
        self.threshold = finite_number(threshold, "threshold")
        self.unjudged = whole_number(unjudged, "unjudged", 0)
        self._series = dict[str, _Series]()
        self._last = dict[str, int]()  # by rule and part, the step of the last warning
        self._said = set[str]()  # readings of a part that were not finite, and names beyond a limit
        self._first_step: int | None = None
        self._is_tied = False  # table and head are one matrix, and one part

    def see(self, step: int, numbers: Mapping[str, float]) -> list[Warning_]:
        """The warnings of a record. Pass records in the order of their steps: a record of an earlier or the same step
        is ignored, and so is a number without a rule."""
        found = list[Warning_]()
        self._first_step = step if self._first_step is None else self._first_step
        share = numbers.get("head.mean_share")
        self._is_tied = self._is_tied or (share is not None and share == numbers.get("table.mean_share"))
        for name, value in numbers.items():
            reading = name.rpartition(".")[2]
            rule = _rule_of(name)
            if not math.isfinite(value):
                if reading in _FINITE and self._first(f"{name.partition('.')[0]}.{reading}", "not finite"):
                    text = f"{_called(name, rule)} is {value}. Check the last update before step {step:,}."
                    found.append(Warning_(step, "not_finite", name, text))
            elif rule is not None and (followed := _reading(name, rule, value, numbers)) is not None:
                rows = numbers.get(f"{name.rpartition('.')[0]}.rows", 0.0)
                found += self._judge(step, name, rule, value, followed, rows)
        return found

    def _first(self, name: str, why: str) -> bool:
        key = f"{name} {why}"
        is_first = key not in self._said
        self._said.add(key)
        return is_first

    def _judge(
        self, step: int, name: str, rule: Rule, value: float, followed: float, rows: float
    ) -> Iterator[Warning_]:
        series, part = self._series.get(name), self._part(name)
        key = f"{rule.name} {part}"
        if series is None or series.rows != rows:  # a group that was cut again has no past
            series = self._series[name] = _Series(step, followed, over=series.over if series else 0, rows=rows)
        elif step <= series.step:
            return
        else:
            batch = name.startswith(_OF_BATCHES) or "." not in name
            begun = step - (self._first_step or 0) >= self.unjudged
            if series.see(step, followed, self.every, rule, self.threshold, batch=batch, begun=begun):
                yield Warning_(step, rule.name, name, _words(name, rule, series))
                self._last[key] = step
                for other, one in self._series.items():  # values before the warning are no measure of values after it
                    if self._part(other) == part and _rule_of(other) is rule:
                        self._series[other] = _Series(one.step, one.value, over=one.over, rows=one.rows)
                series = self._series[name]
        series.over = series.over + 1 if rule.limit is not None and value >= rule.limit else 0
        stays = max(_STAYS, math.ceil(_STAYS_STEPS / self.every))
        is_said = step - self._last.get(key, -math.inf) <= 2 * stays * self.every
        if series.over == stays and not is_said and self._first(key, "limit"):
            text = f"{_called(name, rule)} stays at {number(value)}. The vectors point in one direction. {rule.look}"
            self._last[key] = step
            yield Warning_(step, rule.name, name, text)

    def _part(self, name: str) -> str:
        part = name.partition(".")[0]
        return "head" if self._is_tied and part == "table" else part

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain JSON."""
        series = {name: asdict(one) for name, one in self._series.items()}
        said = {"last": dict(self._last), "said": sorted(self._said), "first_step": self._first_step}
        own = {"every": self.every, "threshold": self.threshold, "unjudged": self.unjudged}
        return own | {"series": series} | said

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`. InputError: a state with another `every`, or not a state of `Rules`."""
        try:
            every, threshold, said = int(state["every"]), float(state["threshold"]), set(map(str, state["said"]))
            unjudged = int(state["unjudged"])
            series = {str(name): _Series(**one) for name, one in state["series"].items()}
            last = {str(name): int(step) for name, step in state["last"].items()}
            first = None if state["first_step"] is None else int(state["first_step"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"expected a state of `Rules`, got another ({error!r}): pass its state_dict()") from error
        if every != self.every:
            raise InputError(f"expected rules of every={every}, got {self.every}: give the run the same `every`")
        self.threshold, self._series, self._last, self._said = threshold, series, last, said
        self._first_step, self.unjudged = first, unjudged


def _rule_of(name: str) -> Rule | None:
    return _BY_READING.get(name.rpartition(".")[2])


def _whitened(rests: list[float], past: int) -> tuple[list[float], float]:
    """e without its first value, by the correlation of the first `past` of `rests`, and the expected next value."""
    r = _correlation(rests[:past])
    if r >= 0:
        return [b - r * a for a, b in pairwise(rests)], r * rests[-1]
    q = min((1 - math.sqrt(1 - 4 * r * r)) / (-2 * r), _LARGEST) if r > -0.5 else _LARGEST
    found = [rests[0]]
    for one in rests[1:]:
        found.append(one + q * found[-1])
    return found[1:], -q * found[-1]


def _correlation(rests: list[float]) -> float:
    """The correlation of neighbours, with outliers cut."""
    far = _FARTHEST * _MAD * median(map(abs, rests))
    cut = [min(max(one, -far), far) for one in rests]
    squares = sum(one * one for one in cut)
    return min(sum(a * b for a, b in pairwise(cut)) / squares, _LARGEST) if squares else 0.0


def _reading(name: str, rule: Rule, value: float, numbers: Mapping[str, float]) -> float | None:
    """The value that the rule follows; None where it has no logarithm."""
    if rule is GIANT_ROWS:
        middle = numbers.get(f"{name.rpartition('.')[0]}.norm_median", 1.0)
        value = value / middle if 0 < middle < math.inf else -1.0
    if rule.from_one:
        value = max(1 - value, _LEAST)
    if not rule.is_log:
        return value
    return math.log(value) if value > 0 else None


def _sign(rule: Rule) -> int:
    """1 where the followed value grows as things get worse."""
    return -rule.way if rule.from_one else rule.way


def _called(name: str, rule: Rule | None) -> str:
    part, *groups = name.split(".")[:-1] or [""]
    reading = name.rpartition(".")[2].replace("_", " ")
    what = (
        rule.called
        if rule and reading not in ("mean share", "participation ratio", "sample rank")
        else f"the {reading}"
    )
    of = "" if part in ("", "loss") else f" of the {part}"
    return f"{what[:1].upper()}{what[1:]}{of}" + (f" ({', '.join(groups)})" if groups else "")


def _words(name: str, rule: Rule, series: _Series) -> str:
    before, after = (math.exp(x) if rule.is_log else x for x in (series.start, series.value))
    if rule.from_one:
        before, after = 1 - before, 1 - after
    went = "rose" if rule.way > 0 else "fell"
    over = " the median row" if rule is GIANT_ROWS else ""
    moved = f"{number(before)} to {number(after)}" + (f" times{over}" if over else "")
    between = f"between steps {series.since:,} and {series.step:,}"
    return f"{_called(name, rule)} {went} from {moved} {between}, faster than before. {rule.means} {rule.look}"
