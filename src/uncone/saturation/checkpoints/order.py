import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from uncone.records.text import counted, number
from uncone.rows import Array
from uncone.saturation.checkpoints.record import NAMED, Checkpoint, Order, SeriesTurn
from uncone.saturation.checkpoints.turns import DRAWS, LEVEL, SURE, Turn, find_turn, probability_before
from uncone.saturation.curves.late_fall import FEWEST
from uncone.statistics.holm import holm

Points = Sequence[tuple[float, float]]
GEOMETRY = ("head_entropy_centered", "head_entropy", "logit_entropy", "states_anisotropy")
"""The verdict takes the first of these series that is known as the geometry."""
LOSSES = ("loss", "text_loss")
_MOST = 128  # points of a series: in a longer series neighbours are averaged


def series_of(checkpoints: Sequence[Checkpoint], losses: Points) -> dict[str, Points]:
    """(step, value) of every series. If heads differ in width, entropies are shares of ln d and RankMe is one of d."""
    read = [one for one in checkpoints if not one.failed]
    are_shares = len({one.shape[1] for one in read if one.shape}) > 1

    def size(name: str, shape: Sequence[int]) -> float:
        if are_shares and shape and "entropy" in name:
            return math.log(shape[1])
        return shape[1] if are_shares and shape and "rankme" in name else 1.0

    points = {
        name: [(float(one.step), one.values[name] / size(name, one.shape)) for one in read if name in one.values]
        for name in NAMED
    }
    points["loss"] = list(losses) or points["loss"]
    return {name: of for name, of in points.items() if of}


def find_turns(
    series: Mapping[str, Points], *, seed: int = 0, draws: int = DRAWS
) -> tuple[list[SeriesTurn], dict[str, Turn]]:
    thinned = {name: _thinned(points) for name, points in series.items()}
    loss = next((name for name in LOSSES if name in thinned), None)
    steps = np.unique(np.concatenate([np.empty(0), *(x for x, _ in thinned.values())]))
    shared = np.random.default_rng(seed).standard_normal((draws, len(steps)))
    found: dict[str, Turn] = {}
    for name, (x, y) in thinned.items():
        own = np.random.default_rng([seed, 1])  # the same for every series, so that equal series get equal answers
        normal = own.standard_normal((draws, len(x)))
        if loss is not None:
            # at the checkpoints of the loss, a series shares its noise as far as both move together
            together = _correlation((x, y), thinned[loss]) if name != loss else 1.0
            normal = together * shared[:, np.searchsorted(steps, x)] + math.sqrt(1 - together**2) * normal
        turn = find_turn(x, y, normal, own, peak=NAMED[name].peak)
        if turn is not None:
            found[name] = turn
    p = dict[str, float]()
    for is_named in (True, False):  # the series that the verdict may name are a family
        family = [name for name in found if (name in LOSSES + GEOMETRY) is is_named]
        p |= zip(family, holm([found[name].p for name in family]), strict=True)
    rows = list[SeriesTurn]()
    for name, (x, _) in thinned.items():
        row = SeriesTurn(name, len(x), None)
        if turn := found.get(name):
            of = (turn.at, turn.low, turn.high, p[name], turn.correlation, turn.visible, int(x[turn.start]))
            row = SeriesTurn(name, len(x), p[name] <= LEVEL, *of)
        if row.turned and name not in LOSSES and loss and p.get(loss, 1.0) <= LEVEL:
            before = probability_before(found[name], found[loss])
            order: Order = "before" if before >= SURE else "after" if before <= 1 - SURE else "not apart"
            row = replace(row, before_loss=before, order=order)
        rows.append(row)
    return rows, found


def _thinned(points: Points) -> tuple[Array, Array]:
    x, y = np.array(points, np.float64).reshape(-1, 2).T
    parts = min(len(x), _MOST)
    cuts = np.linspace(0, len(x), parts + 1).astype(int)[:-1]
    sizes = np.diff(np.append(cuts, len(x)))
    return np.add.reduceat(x, cuts) / sizes, np.add.reduceat(y, cuts) / sizes


def _correlation(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """The correlation of second differences, which a trend hardly affects, at the steps of both series."""
    _, i, j = np.intersect1d(one[0], other[0], return_indices=True)
    if len(i) < FEWEST:
        return 0.0
    a, b = (d - d.mean() for d in (np.diff(one[1][i], 2), np.diff(other[1][j], 2)))
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0 else 0.0


def sentence(turns: Sequence[SeriesTurn], n: int) -> str:
    by_name = {turn.name: turn for turn in turns}
    geometry, loss = (next((by_name[o] for o in names if o in by_name), None) for names in (GEOMETRY, LOSSES))
    if n == 0:
        return "No checkpoint could be read."
    if geometry is None:
        return f"{counted(n, 'checkpoint')} without a head: only the token table was read."
    of_loss = _shown(loss) if loss else ""
    first, second = (f"{text[:1].upper()}{text[1:]}" for text in (_shown(geometry), of_loss))
    if geometry.turned is None:
        few = f"Too few checkpoints to look for a turn: {_few(geometry)}. See the numbers of each checkpoint."
        return f"{few} {second}." if loss and loss.turned else few
    if loss is None:
        return f"{first}. No loss was given, so we do not know whether the loss turned."
    if loss.turned is None:
        return f"{first}. The loss has too few points to look for a turn: {_few(loss)}."
    if not (geometry.turned and loss.turned):
        return f"{first}. {second}."
    is_known = geometry.order in ("before", "after")
    order = f"Geometry turned {geometry.order} the loss" if is_known else "We cannot tell which turned first"
    before = f"P(geometry first) = {geometry.before_loss:.2f}. An order in time does not show a cause."
    return f"{order}. {first}, and {of_loss}. {before}"


def _shown(turn: SeriesTurn) -> str:
    title = NAMED[turn.name].title
    name = f"the {title[0].lower()}{title[1:]}"
    if turn.ends:
        return f"{name} turned at {_span(*turn.ends)}"
    seen = f" (80% of changes of {number(turn.visible)} over the last third would be found)" if turn.visible else ""
    return f"no turn was detected in {name}{seen}"


def _few(turn: SeriesTurn) -> str:
    return (
        f"{turn.n:,} of at least {FEWEST}" if turn.n < FEWEST else f"{turn.n:,}, too few of them late in the training"
    )


def _span(at: float, low: float, high: float) -> str:
    return f"step {at:,.0f} ({low:,.0f} to {high:,.0f})"


def phases(series: Mapping[str, Points], found: Mapping[str, Turn], *, seed: int = 0) -> str:
    """The phases of the states' RankMe, or of the head's without states (Li et al. 2025): a collapse ends in a valley,
    an expansion at a peak. Both tests are one family (Holm)."""
    name = next((name for name in ("states_rankme", "head_rankme") if name in found), "")
    if not name:
        return ""
    x, y = _thinned(series[name])
    own = np.random.default_rng([seed, 2])
    valley = find_turn(x, y, own.standard_normal((len(found[name].draws), len(x))), own)
    turns = {"expansion": found[name]} | ({} if valley is None else {"collapse": valley})
    chances = zip(turns, holm([turn.p for turn in turns.values()]), strict=True)
    ends = sorted((turns[phase].at, phase) for phase, p in chances if p <= LEVEL)
    whose = f"{NAMED[name].title} (phases of Li et al. 2025)"
    if not ends:
        return f"{whose}: no phase was detected."
    parts = list[str]()
    for at, phase in ends:
        is_own = at == ends[0][0] or phase == "expansion"
        parts.append(f"{phase if is_own else 'compression'} until {_span(at, turns[phase].low, turns[phase].high)}")
    last = "compression" if ends[-1][1] == "expansion" else "expansion"
    return f"{whose}: {', then '.join([*parts, last])}."
