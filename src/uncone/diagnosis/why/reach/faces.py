"""Which rows of a head, or sets of rows, can be above all others along some direction: faces of the rows' hull.

A row v is above all others along a direction g if <a_v - a_u, g> > 0 for every other u. With a bias a row is a = (w,
b), and the last number of g has to be positive. No such g exists if and only if 0 is in the hull of the differences,
which `Hull` decides. Rows of a batch share one product with the head in each step.

Powers of two make answers independent of the scale of head and bias. In whitened rows, which are searched, a direction
of length 1 has logits of standard deviation 1 over the vocabulary. Differences to far longer rows are shortened, and
these rows do not decide what a standard deviation is.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from uncone.diagnosis.why.reach.hull import EPS, Hull, holds_zero, scaled, times_power
from uncone.errors import InputError
from uncone.rows import Array

EPSILON = 1e-6  # standard deviations of the logits: a row that no state puts further above all others is hidden
_FLOOR = 1e-12  # of the largest eigenvalue, beyond which nothing is stretched
_NOTHING = 1e-12
FAR = 1000  # medians of lengths (of rows) or spreads (of biases): what is farther out has digits of its own
_UP = -1  # the place of the demand that the bias has a positive factor
_AT_ONCE, _A_STEP, _MOST_TOGETHER = 2**24, 3e6, 512
_FLOAT32, _LEAST = 1e30, 1e-35
"""What a bias in float32 is cut to, and more than numbers below float32's range add up to."""
Status = Literal["exposed", "hidden", "undecided"]


@dataclass
class Work:
    """Multiplications that are left; a limit in seconds would give one input several answers."""

    left: float

    @property
    def is_over(self) -> bool:
        return self.left <= 0


@dataclass(frozen=True, eq=False)
class Answer:
    """Whether the rows `own` can be above all others, and the proof.

    exposed: along `direction` they are above all others by `margin`, beyond all rounding. hidden: the mean of the rows
    `places` by `weights` is so close that no direction has a margin above `bound`, or any (`exact`); with `is_lower`
    that mean has the larger bias.
    """

    own: tuple[int, ...]
    status: Status
    margin: float = 0.0
    bound: float = float("inf")
    exact: bool = False
    direction: Array | None = None
    places: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    is_lower: bool = False
    steps: int = 0


@dataclass(frozen=True, eq=False)
class HeadSpace:
    """What whitens a head's rows; d is D, or D + 1 with a bias."""

    rows: Array  # (V, D)
    bias: Array | None  # (V,) float64
    is_lossless: bool  # no digit left the range of its dtype
    shares: Array  # (V,) powers of two: factors of differences to long rows
    long: Array  # places of rows longer than `FAR` medians
    lengths: Array  # (V,) with the bias
    longest: float  # of the others
    mean: Array  # (d,)
    whitener: Array  # (d, d), symmetric
    stretch: float  # its largest eigenvalue
    up: Array | None  # (d,), whitened
    power: int  # of two, in bias over rows

    @classmethod
    def of(cls, head: Array, bias: Array | None = None, spread: float | None = None) -> "HeadSpace":
        """InputError as `check_head`. `spread`: how far apart biases are, where it matters."""
        check_head(head, bias)
        rows, by, is_lossless = scaled(head)
        if bias is not None and bias.min() == bias.max():
            bias = None
        wide = bias is not None
        lengths = np.concatenate([np.linalg.norm(block, axis=1) for block in blocks(rows)])
        if bias is not None:
            usual = float(np.median(lengths)) / math.sqrt(head.shape[1]) or 1.0
            power = math.frexp(usual)[1] - math.frexp(spread or float(np.ptp(bias / 2)))[1]
            power = min(power, 1000 - math.frexp(float(np.abs(bias).max()))[1])
            bias, is_kept = times_power(bias, power)
            by, is_lossless, lengths = power - by, is_lossless and is_kept, np.hypot(lengths, bias)
        far = FAR * float(np.median(lengths)) or float("inf")
        long = np.flatnonzero(lengths > far)
        shares = np.ones(len(rows))
        shares[long] = np.exp2(np.floor(np.log2(far / lengths[long])))
        d = head.shape[1] + wide
        mean, square = np.zeros(d), np.zeros((d, d))
        for block in blocks(rows, bias, shares):
            mean += block.sum(0) / len(head)
        for block in blocks(rows, bias, shares):
            block -= mean
            square += block.T @ block / len(head)
        values, vectors = np.linalg.eigh(square)
        top = float(values[-1])
        stretch = 1 / np.sqrt(np.maximum(values, _FLOOR * top)) if top > 0 else np.ones(d)
        whitener = (vectors * stretch) @ vectors.T
        # as long as a difference of rows is
        up = whitener[-1] * (np.sqrt(2 * d) / np.linalg.norm(whitener[-1])) if wide else None
        longest, most = float(lengths[lengths <= far].max()), float(stretch.max())
        return cls(rows, bias, is_lossless, shares, long, lengths, longest, mean, whitener, most, up, by)

    def taken(self, places: Array) -> Array:
        rows = self.rows[places].astype(np.float64)
        return rows if self.bias is None else np.column_stack([rows, self.bias[places]])

    def unscaled(self, direction: Array) -> Array:
        return np.append(direction[:-1], np.ldexp(direction[-1], self.power)) if self.up is not None else direction

    def differences(self, places: Array, others: Array) -> Array:
        """(n, d) of rows less other rows, those to long ones shortened; to `_UP` the demand on the bias' factor."""
        real = np.maximum(others, 0)
        found = (self.taken(places) - self.taken(real)) * self.shares[real][:, None]
        found[others == _UP] = np.eye(len(self.mean))[-1]
        return found

    def heights(self, directions: Array, *, double: bool) -> tuple[Array, Array]:
        """(n, V) of rows along directions (n, d), which are float32 numbers unless `double`; and how far rounding moves
        that of a row of length 1 (n,)."""
        d, kind = self.rows.shape[1], np.float64 if double else np.float32
        found = np.empty((len(directions), len(self.rows)), kind)
        step = max(1, _AT_ONCE // d) if double else len(self.rows)
        for at in range(0, len(self.rows), step):
            part = self.rows[at : at + step].astype(kind, copy=False)
            np.matmul(directions[:, :d].astype(kind), part.T, out=found[:, at : at + step])
        if self.bias is not None:  # no row that matters has a bias beyond the range of float32
            bias = self.bias if double else np.clip(self.bias, -_FLOAT32, _FLOAT32)
            found += directions[:, d, None].astype(kind) * bias.astype(kind)
        # twice the usual gamma, for the bias and for 1 / (1 - n u)
        return found, (d + 6) * float(np.finfo(kind).eps) * np.linalg.norm(directions, axis=1)


def check_head(head: Array, bias: Array | None) -> None:
    """InputError: not (V, D) with V of at least 2, a bias of another length, or numbers that are not finite."""
    if head.ndim != 2 or len(head) < 2 or not head.shape[1]:
        raise InputError(f"expected a head (V, D) with at least two rows, got shape {head.shape}: pass W alone")
    if bias is not None and bias.shape != (len(head),):
        raise InputError(f"expected a bias ({len(head)},), got shape {bias.shape}: pass one number per row")
    if not all(np.isfinite(block).all() for block in blocks(head, bias)):
        raise InputError("expected a head of finite numbers, got NaN or inf: the model is damaged")


def levels(bias: Array) -> Iterator[tuple[Array, float]]:
    """The places of rows whose biases are close, the highest first, and how far apart they are. In their digits a
    row is compared with its level and those above: a padded vocabulary's bias of -1e30 takes none from the others."""
    left = np.argsort(-bias, kind="stable")
    ordered = bias[left] / 2  # as a difference may be out of range
    top = ordered[0]
    while len(ordered):
        below = ordered[(len(ordered) - 1) // 2 :]
        below = below[below < top]
        middle = below[0] if len(below) else top
        spread = float(top - middle)
        n = int(((middle - ordered) / FAR <= spread).sum())
        yield left[:n], spread
        left, ordered = left[n:], ordered[n:]


@dataclass(eq=False)
class _Question:
    own: Array
    level: Array | None  # (m - 1, d) orthonormal, whitened: along these the rows stay level
    stiff: float  # how far rows move for each unit by which `own` is not level
    direction: Array
    double: bool
    hull: Hull | None = None
    steps: int = 0
    is_over: bool = False  # 0 is in the hull


def seek(
    space: HeadSpace,
    sets: Sequence[Sequence[int]],
    *,
    most_steps: int | None = None,
    work: Work | None = None,
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Answer]:
    """For each set of rows whether a direction exists along which they are level and above all others.

    Args:
        sets: places of affinely independent rows.
        most_steps: of one set; 10 d + 100 by default.
        work: what is still open when the work is used up counts as undecided.
        keep: the directions of exposed sets.
        progress: called with (sets answered, sets).

    Yields:
        answers, in the order in which they are found.
    """
    most = most_steps or 10 * len(space.mean) + 100
    together = max(1, min(_MOST_TOGETHER, _AT_ONCE // len(space.rows)))
    waiting, active, done = deque(sets), list[_Question](), 0
    work = work or Work(float("inf"))
    while waiting or active:
        if work.is_over:
            yield from (Answer(tuple(map(int, own)), "undecided") for own in (*(q.own for q in active), *waiting))
            return
        active += _asked(space, [waiting.popleft() for _ in range(min(len(waiting), together - len(active)))])
        still, takes = list[_Question](), list[tuple[_Question, int]]()
        for double, group in [(wide, [q for q in active if q.double is wide]) for wide in (False, True)]:
            for q, rival, margin in _looked(space, group, double=double):
                if margin > 0:
                    kept = space.unscaled(q.direction) if keep else None
                    yield Answer(tuple(map(int, q.own)), "exposed", margin, direction=kept, steps=q.steps)
                elif _goes_on(q, rival, most):
                    still.append(q)
                    if rival is not None:
                        takes.append((q, rival))
                else:
                    yield _ended(space, q)
        _take(space, takes)
        for q in active:  # a product with all rows, the nearest point of a hull, and the rest
            work.left -= _A_STEP + (1 + q.double) * space.rows.size + (len(q.hull.places) ** 3 if q.hull else 0)
        done += len(active) - len(still)
        active = still
        if progress:
            progress(done, len(sets))


def blocks(head: Array, bias: Array | None = None, shares: Array | None = None) -> Iterator[Array]:
    """Float64, some rows at a time."""
    step = max(1, 2**22 // head.shape[1])
    for at in range(0, len(head), step):
        block = head[at : at + step].astype(np.float64)
        block = block if bias is None else np.column_stack([block, bias[at : at + step]])
        yield block if shares is None else block * shares[at : at + step, None]


def _asked(space: HeadSpace, sets: Sequence[Sequence[int]]) -> list[_Question]:
    """Each with its first direction: its own mean row, whitened twice."""
    if not sets:
        return []
    questions, tiny = list[_Question](), np.finfo(np.float64).tiny
    starts = (space.taken(np.array([one[0] for one in sets])) - space.mean) @ space.whitener
    for own, start in zip(sets, starts, strict=True):
        places, level, stiff = np.array(own), None, 0.0
        if len(places) > 1:
            differences = space.taken(places[1:]) - space.taken(places[:1])
            least = float(np.linalg.svd(differences, compute_uv=False)[-1])
            stiff = 2 * float(space.lengths.max()) * np.sqrt(len(places) - 1) / max(least, tiny)
            level = np.linalg.qr((differences @ space.whitener).T)[0].T
        questions.append(_Question(places, level, stiff, _levelled(level, start), space.rows.dtype != np.float32))
    directions = np.stack([q.direction for q in questions])
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), tiny)
    for q, direction in zip(questions, directions @ space.whitener, strict=True):
        q.direction = direction
    return questions


def _levelled(level: Array | None, point: Array) -> Array:
    return point if level is None else np.asarray(point - (point @ level.T) @ level)


def _looked(
    space: HeadSpace, questions: list[_Question], *, double: bool
) -> Iterator[tuple[_Question, int | None, float]]:
    """The highest of the other rows and the proven margin; the row is None where the rounding of float32 hides it."""
    if not questions:
        return
    directions = np.stack([q.direction for q in questions])
    if not double:
        directions = directions.astype(np.float32).astype(np.float64)
    heights, units = space.heights(directions, double=double)
    for q, direction, column, unit in zip(questions, directions, heights, units, strict=True):
        q.direction, rounding = direction, unit * float(space.lengths[q.own].max()) + _LEAST
        mine = column[q.own].astype(np.float64)
        column[q.own] = -np.inf
        rival = int(column.argmax())
        lowest, highest = float(mine.min()), float(column[rival])
        raw, highest = lowest - highest, highest + unit * space.longest + _LEAST
        far = column[space.long] + unit * space.lengths[space.long]
        slack = q.stiff * (float(np.ptp(mine)) + 2 * rounding)
        margin = lowest - rounding - max(highest, float(far.max(initial=-np.inf))) - slack
        if raw > 0 and space.up is not None and direction[-1] <= 0:
            rival, margin = _UP, -np.inf
        unclear = raw > 0 and margin <= 0 and rival != _UP
        yield q, None if unclear and not double else rival, margin


def _goes_on(q: _Question, rival: int | None, most: int) -> bool:
    """A search that float32 cannot lead goes on in float64."""
    q.steps += 1
    is_stuck = rival is None or bool(q.hull and rival in q.hull.places)
    if q.is_over or q.steps > most or (is_stuck and q.double):
        return False
    q.double = q.double or is_stuck
    return True


def _take(space: HeadSpace, takes: Sequence[tuple[_Question, int]]) -> None:
    """Add rivals to the hulls, and turn to the points that are then nearest to 0."""
    takes = [(q, rival) for q, rival in takes if not q.hull or rival not in q.hull.places]
    if not takes:
        return
    pairs, hulls = np.array([(q.own[0], rival) for q, rival in takes]), list[Hull]()
    for (q, rival), point in zip(takes, space.differences(*pairs.T) @ space.whitener, strict=True):
        new = _levelled(q.level, space.up if rival == _UP and space.up is not None else point)
        size = float(np.linalg.norm(new))
        if not q.hull:
            q.hull = Hull(new, rival, size)
        else:
            q.hull.largest = max(q.hull.largest, size)
            q.hull.take(new, rival)
        hulls.append(q.hull)
    shortest = _NOTHING * np.sqrt(len(space.mean))
    sizes = np.array([np.linalg.norm(hull.x) for hull in hulls])
    turned = np.stack([hull.x for hull in hulls]) / np.maximum(sizes, shortest)[:, None]
    for (q, _), size, direction in zip(takes, sizes.tolist(), turned @ space.whitener, strict=True):
        q.direction, q.is_over = direction, size <= shortest


def _ended(space: HeadSpace, q: _Question) -> Answer:
    """What the hull proves where no direction was found."""
    hull = q.hull
    open_ = Answer(tuple(map(int, q.own)), "undecided", steps=q.steps)
    if not hull:
        return open_
    d, rivals = len(space.mean), np.array(hull.places)
    real = rivals != _UP
    longest = float(space.lengths[q.own[0]] + (space.lengths * space.shares)[rivals[real]].max(initial=0))
    rounding = (len(rivals) + 2 * d + 3) * EPS * (longest * space.stretch + hull.largest)
    if len(q.own) == 1 and space.is_lossless:
        # an equal row with a bias that is not smaller: differences of equal numbers are exact
        gaps = space.taken(np.full(real.sum(), q.own[0])) - space.taken(rivals[real])
        wide = space.rows.shape[1]
        if beaten := rivals[real][~gaps[:, :wide].any(1) & ~(gaps[:, wide:] > 0).any(1)].tolist()[:1]:
            hidden = replace(open_, status="hidden", bound=0.0, exact=True, is_lower=True)
            return replace(hidden, places=tuple(beaten), weights=(1.0,))
    weights = (hull.weights * np.where(real, space.shares[np.maximum(rivals, 0)], 0))[real]
    whole = float(weights.sum())
    if not whole > 0:
        return open_
    bound = (float(np.linalg.norm(hull.weights @ hull.kept)) + rounding) / whole
    points = space.differences(np.full(len(rivals), q.own[0]), rivals)
    exact = len(q.own) == 1 and holds_zero(points, float(np.linalg.norm(points, axis=1).max()))
    status: Status = "hidden" if exact or bound <= EPSILON else "undecided"
    found = replace(open_, status=status, bound=bound, exact=exact, is_lower=not real.all())
    return replace(found, places=tuple(rivals[real].tolist()), weights=tuple((weights / whole).tolist()))
