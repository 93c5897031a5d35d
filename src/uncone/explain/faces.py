"""Which rows of a head, or sets of rows, can lie above all others along some direction: exposed vertices and faces of their hull.

A row v is above all others along a direction g if <a_v - a_u, g> > 0 for every other u. With a bias a row is
a = (w, b), and the last number of g has to be positive. No such g exists if and only if 0 lies in the hull of the
differences, which `Hull` decides. All rows of a batch share one product with the head a step.

Lengths are in standard deviations of the logits over the vocabulary: the search is in whitened rows, where a direction of
length 1 has logits of that standard deviation. So no answer depends on the scale of head or states.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from uncone.errors import InputError
from uncone.explain.hull import Hull, holds_zero
from uncone.rows import Array

EPSILON = 1e-6
"""Of the logits' standard deviation: a row that no state puts farther above all others counts as hidden."""
_FLOOR = 1e-12
"""Of the largest eigenvalue: directions in which rows vary less are not stretched farther."""
_NOTHING = 1e-12
_UP = -1
"""The place of the demand that the number before the bias is positive."""
_AT_ONCE = 2**24
_MOST_TOGETHER = 512
Status = Literal["exposed", "hidden", "undecided"]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Answer:
    """Whether the rows `own` can lie above all others, and the proof.

    exposed: along `direction` they are above all others by `margin`, in float64 or in float32 beyond all rounding. hidden:
    `weights` of the differences to the rows `places` have a mean so short that no direction has a margin above `bound`; `exact`
    says that no direction has any margin, whatever the rounding. A place of -1 is the demand on the number before the bias.
    """

    own: tuple[int, ...]
    status: Status
    margin: float = 0.0
    bound: float = float("inf")
    exact: bool = False
    direction: Array | None = None
    places: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    steps: int = 0


@dataclass(frozen=True, eq=False)
class HeadSpace:
    """The rows of a head with what whitens them; (V, d) with d = D, or D + 1 with a bias."""

    rows: Array  # (V, D) as stored
    bias: Array | None  # (V,) float64
    mean: Array  # (d,)
    whitener: Array  # (d, d), symmetric
    longest: float
    up: Array | None  # (d,), whitened

    @classmethod
    def of(cls, head: Array, bias: Array | None = None) -> "HeadSpace":
        """Raises InputError: not (V, D) with V of at least 2, a bias of another length, or numbers that are not finite."""
        if head.ndim != 2 or len(head) < 2 or not head.shape[1]:
            raise InputError(
                f"expected a head (V, D) with at least two rows, got shape {head.shape}: pass W alone"
            )
        if bias is not None and bias.shape != (len(head),):
            raise InputError(f"expected a bias ({len(head)},), got shape {bias.shape}: pass one number a row")
        if bias is not None and not np.isfinite(bias).all():
            raise InputError("expected a bias of finite numbers, got NaN or inf: the model is damaged")
        bias = None if bias is None or np.ptp(bias) == 0 else bias.astype(np.float64)
        d = head.shape[1] + (bias is not None)
        mean, square, longest = np.zeros(d), np.zeros((d, d)), 0.0
        for block in _blocks(head, bias):
            with np.errstate(all="ignore"):  # looked for below
                mean += block.sum(0) / len(head)
                longest = max(longest, float(np.linalg.norm(block, axis=1).max()))
        if not np.isfinite(mean).all() or not np.isfinite(longest):
            raise InputError(
                "expected a head of finite numbers below 1e150, got NaN, inf or larger ones: the model is damaged"
            )
        for block in _blocks(head, bias):
            block -= mean
            square += block.T @ block / len(head)
        values, vectors = np.linalg.eigh(square)
        top = float(values[-1])
        stretch = 1 / np.sqrt(np.maximum(values, _FLOOR * top)) if top > 0 else np.ones(d)
        whitener = (vectors * stretch) @ vectors.T
        up = None
        if bias is not None:  # as long as a difference of rows is
            up = whitener[-1] * (np.sqrt(2 * d) / np.linalg.norm(whitener[-1]))
        return cls(head, bias, mean, whitener, longest, up)

    def taken(self, places: Array) -> Array:
        """(n, d) float64."""
        rows = self.rows[places].astype(np.float64)
        return rows if self.bias is None else np.column_stack([rows, self.bias[places]])

    def heights(self, directions: Array, *, double: bool) -> tuple[Array, Array]:
        """Heights (V, n) of all rows along directions (n, d), and how far rounding moves each at most (n,).

        In float32 the directions have to be numbers of float32, and the rows as well.
        """
        d, n = self.rows.shape[1], len(directions)
        kind = np.float64 if double else np.float32
        found = np.empty((len(self.rows), n), kind)
        step = max(1, _AT_ONCE // d) if double else len(self.rows)
        for at in range(0, len(self.rows), step):
            part = self.rows[at : at + step].astype(kind, copy=False)
            np.matmul(part, directions[:, :d].T.astype(kind), out=found[at : at + step])
        if self.bias is not None:
            found += self.bias.astype(kind)[:, None] * directions[:, d].astype(kind)
        unit = (d + 6) * float(
            np.finfo(kind).eps
        )  # twice the usual gamma, for the bias and for 1 / (1 - n u)
        return found, unit * self.longest * np.linalg.norm(directions, axis=1) + 1e-35


@dataclass(eq=False)
class _Question:
    """Rows whose search goes on: the nearest point so far, and the directions along which they have to stay level."""

    own: Array
    level: Array | None  # (m - 1, d) orthonormal, whitened
    stiff: float  # how far rows move for each unit by which `own` is not level
    hull: Hull | None = None
    double: bool = False
    steps: int = 0
    is_over: bool = False  # 0 is in the hull
    direction: Array = field(default_factory=lambda: np.zeros(0))


def seek(
    space: HeadSpace,
    sets: Sequence[Sequence[int]],
    *,
    most_steps: int | None = None,
    until: float = float("inf"),
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Answer]:
    """For each set of rows whether a direction exists along which all of its rows are level and above all others.

    Args:
        sets: places of rows, each set affinely independent.
        most_steps: of one set; 10 d + 100 unless given.
        until: of time.monotonic: what is not answered then is undecided.
        keep: the directions of exposed sets.
        progress: called with (sets answered, sets).

    Yields:
        answers, in the order in which they are found.
    """
    most = most_steps or 10 * len(space.mean) + 100
    together = max(1, min(_MOST_TOGETHER, _AT_ONCE // len(space.rows)))
    waiting, active, done = deque(sets), list[_Question](), 0
    while waiting or active:
        if time.monotonic() > until:
            left = [*(q.own for q in active), *waiting]
            yield from (Answer(tuple(map(int, own)), "undecided") for own in left)
            return
        new = [waiting.popleft() for _ in range(min(len(waiting), together - len(active)))]
        active += _asked(space, new)
        still, takes = list[_Question](), list[tuple[_Question, int]]()
        groups = [(wide, [q for q in active if q.double is wide]) for wide in (False, True)]
        for double, group in groups:
            for q, rival, margin in _looked(space, group, double=double):
                if margin > 0:
                    kept = q.direction if keep else None
                    yield Answer(tuple(map(int, q.own)), "exposed", margin, direction=kept, steps=q.steps)
                elif _goes_on(q, rival, most, double=double):
                    still.append(q)
                    if rival is not None:
                        takes.append((q, rival))
                else:
                    yield _ended(space, q)
        _take(space, takes)
        done += len(active) - len(still)
        active = still
        if progress is not None:
            progress(done, len(sets))


def _blocks(head: Array, bias: Array | None) -> Iterator[Array]:
    step = max(1, 2**22 // head.shape[1])
    for at in range(0, len(head), step):
        block = head[at : at + step].astype(np.float64)
        yield block if bias is None else np.column_stack([block, bias[at : at + step]])


def _asked(space: HeadSpace, sets: Sequence[Sequence[int]]) -> list[_Question]:
    """The questions, each with its first direction: its own mean row, whitened twice."""
    if not sets:
        return []
    questions = []
    first = np.array([one[0] for one in sets])
    starts = (space.taken(first) - space.mean) @ space.whitener
    for own, start in zip(sets, starts, strict=True):
        places, level, stiff = np.array(own), None, 0.0
        if len(places) > 1:
            differences = space.taken(places[1:]) - space.taken(places[:1])
            least = float(np.linalg.svd(differences, compute_uv=False)[-1])
            stiff = 2 * space.longest * np.sqrt(len(places) - 1) / max(least, np.finfo(np.float64).tiny)
            level = np.linalg.qr((differences @ space.whitener).T)[0].T
        question = _Question(places, level, stiff, double=space.rows.dtype != np.float32)
        question.direction = _levelled(question, start)
        questions.append(question)
    directions = np.stack([q.direction for q in questions])
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    for question, direction in zip(questions, directions @ space.whitener, strict=True):
        question.direction = direction
    return questions


def _levelled(question: _Question, point: Array) -> Array:
    level = question.level
    return point if level is None else np.asarray(point - (point @ level.T) @ level)


def _looked(
    space: HeadSpace, questions: list[_Question], *, double: bool
) -> Iterator[tuple[_Question, int | None, float]]:
    """Each question with the row that is highest of the others, and the proven margin.

    The rival is None where the margin is within rounding of float32, so that the next look has to be in float64.
    """
    if not questions:
        return
    directions = np.stack([q.direction for q in questions])
    if not double:
        directions = directions.astype(np.float32).astype(np.float64)
    heights, roundings = space.heights(directions, double=double)
    for j, q in enumerate(questions):
        column, rounding = heights[:, j], float(roundings[j])
        mine = column[q.own].astype(np.float64)
        column[q.own] = -np.inf
        rival = int(column.argmax())
        raw = float(mine.min()) - float(column[rival])
        slack = 2 * rounding + q.stiff * (float(np.ptp(mine)) + 2 * rounding if len(mine) > 1 else 0.0)
        is_up = space.up is None or bool(directions[j, -1] > 0)
        q.direction = directions[j]
        margin = raw - slack if is_up else -np.inf
        if raw > slack and not is_up:
            rival = _UP
        unclear = raw > 0 and margin <= 0 and rival != _UP
        yield q, None if unclear and not double else rival, margin


def _goes_on(q: _Question, rival: int | None, most: int, *, double: bool) -> bool:
    """Whether there is more to do; a search that float32 cannot lead goes on in float64."""
    q.steps += 1
    if q.is_over or q.steps > most:
        return False
    stuck = q.hull is not None and rival is not None and rival in q.hull.places
    if rival is None or stuck:
        if double:
            return False
        q.double = True
        return True
    return True


def _take(space: HeadSpace, takes: Sequence[tuple[_Question, int]]) -> None:
    """Take the rival of each question into its hull, and turn to the point that is nearest to 0 then."""
    takes = [(q, rival) for q, rival in takes if q.hull is None or rival not in q.hull.places]
    if not takes:
        return
    first = np.array([q.own[0] for q, _ in takes])
    rivals = np.array([rival for _, rival in takes])
    points = (space.taken(first) - space.taken(np.maximum(rivals, 0))) @ space.whitener
    for (q, rival), point in zip(takes, points, strict=True):
        new = _levelled(q, space.up if rival == _UP and space.up is not None else point)
        if q.hull is None:
            q.hull = Hull(new, rival, float(np.linalg.norm(new)))
        else:
            q.hull.largest = max(q.hull.largest, float(np.linalg.norm(new)))
            q.hull.take(new, rival)
    shortest = _NOTHING * np.sqrt(len(space.mean))
    sizes = np.array([np.linalg.norm(q.hull.x) for q, _ in takes if q.hull is not None])
    turned = (
        np.stack([q.hull.x for q, _ in takes if q.hull is not None]) / np.maximum(sizes, shortest)[:, None]
    )
    for (q, _), size, direction in zip(takes, sizes.tolist(), turned @ space.whitener, strict=True):
        q.direction = direction
        if size <= shortest:
            q.is_over = True


def _ended(space: HeadSpace, q: _Question) -> Answer:
    """What the hull proves of rows for which no direction was found."""
    own = tuple(map(int, q.own))
    hull = q.hull
    if hull is None:
        return Answer(own, "undecided", steps=q.steps)
    d, eps = len(space.mean), float(np.finfo(np.float64).eps)
    stretch = float(np.linalg.norm(space.whitener, 2))
    rounding = (len(hull.places) + 2 * d + 3) * eps * (2 * space.longest * stretch + hull.largest)
    bound = float(np.linalg.norm(hull.weights @ hull.kept)) + rounding
    rivals = np.array(hull.places)
    points = space.taken(q.own[:1]) - space.taken(np.maximum(rivals, 0))
    if space.up is not None:
        points[rivals == _UP] = np.eye(d)[-1]
    beaten = _beaten(space, points, rivals) if len(own) == 1 else None
    if beaten is not None:
        return Answer(own, "hidden", bound=0.0, exact=True, places=(beaten,), weights=(1.0,), steps=q.steps)
    exact = len(own) == 1 and holds_zero(points, float(np.linalg.norm(points, axis=1).max()))
    status: Status = "hidden" if exact or bound <= EPSILON else "undecided"
    return Answer(
        own, status, bound=bound, exact=exact, places=tuple(map(int, hull.places)),
        weights=tuple(map(float, hull.weights)), steps=q.steps,
    )  # fmt: skip


def _beaten(space: HeadSpace, points: Array, rivals: Array) -> int | None:
    """An equal row with a bias that is not smaller, of the rivals: differences of equal numbers are exact."""
    d = space.rows.shape[1]
    least = points[:, d] <= 0 if space.bias is not None else np.ones(len(points), bool)
    found = np.flatnonzero((rivals != _UP) & ~points[:, :d].any(1) & least)
    return int(rivals[found[0]]) if len(found) else None
