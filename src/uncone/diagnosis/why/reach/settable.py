"""How many top tokens can a state set freely? Sets of rows that are faces of the rows' hull.

Even a random head gives exact probabilities to rather many top tokens (Basri and Jacobs 2026, ICLR). If the rows of m
tokens are affinely independent, and a direction g has them level and above all others, then a state h = t g + f has any
logits among the m by the choice of f, and all others as far below as wanted by t. Almost all sets of m normal rows are
faces up to m about D / (2 ln(V / D)) (Donoho and Tanner 2009).
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from uncone.arguments import whole_number
from uncone.diagnosis.why.reach.faces import HeadSpace, Work, seek
from uncone.diagnosis.why.reach.record import SettableSets, SettableTokens
from uncone.diagnosis.why.reach.unreachable import checked_states, distinct, plain
from uncone.errors import UndefinedMeasure
from uncone.records.text import counted
from uncone.roles import Progress
from uncone.rows import Array
from uncone.rows.samples import as_numbers

MOST_WORK = 2e12  # multiplications: some two minutes on two cores
Kind = Literal["random", "top"]
_DEFINITION = (
    "A set of tokens is settable if its rows are affinely independent and some direction puts them level and above all "
    "others. Some state then gives the tokens any probabilities among them, and leaves as little as wanted to the "
    "others. The size is the largest at which at least half of the sets are settable. Biases change nothing here, "
    "because states may grow."
)


def settable_tokens(
    head: Any,
    *,
    states: Any = None,
    sets: int = 20,
    seed: int = 0,
    most_work: float = MOST_WORK,
    progress: Progress | None = None,
) -> SettableTokens:
    """Find how many tokens a state can put on top with any probabilities among them.

    Args:
        head: (V, D), an array or tensor of distinct rows (of equal rows the first counts).
        states: (N, D) of a text: the most likely tokens of single states are searched as well.
        sets: how many sets of each size.
        seed: of the sets.
        most_work: the most multiplications, the same on every machine; what is still open counts as undecided.
        progress: called with (step, done, in all).

    Raises:
        InputError: not a matrix of at least two rows, states of another width or none, or numbers that are not finite.
        UndefinedMeasure: all rows are equal.

    >>> simplex = np.eye(6)  # any five or fewer of six corners are a face
    >>> settable_tokens(simplex).random
    5
    """
    whole_number(sets, "sets", 1, 10**6)
    whole_number(seed, "seed", 0)
    rows = plain(as_numbers(head))
    whole = HeadSpace.of(rows)
    first = distinct(rows, None)[0]
    if len(first) < 2:
        raise UndefinedMeasure(f"all {len(rows)} rows are equal, so no set of tokens can be separated")
    rows, work = rows[first], Work(most_work)
    space, (v, d) = whole if len(first) == len(whole.rows) else HeadSpace.of(rows), rows.shape

    def random_sets(m: int) -> list[Array]:
        random = np.random.default_rng([seed, m])
        return [random.choice(v, m, replace=False) for _ in range(sets)]

    draws: dict[Kind, Callable[[int], list[Array]]] = {"random": random_sets}
    if states is not None:
        order = _tops(rows, checked_states(states, d), sets, min(d, v - 1), seed)
        draws["top"] = lambda m: [one[:m] for one in order]
    found, largest, least = list[SettableSets](), dict[Kind, int](), dict[Kind, str]()
    for kind, draw in draws.items():
        asked, is_whole = _asked(space, kind, draw, work, progress)
        largest[kind] = max((one.size for one in asked if 2 * one.settable >= one.sets), default=0)
        is_open = any(one.size > largest[kind] and 2 * (one.settable + one.undecided) >= one.sets for one in asked)
        least[kind] = "at least " if is_open or not is_whole else ""
        found += sorted(asked, key=lambda one: one.size)
    gaussian, tokens = gaussian_settable(v, d), counted(largest["random"], "random token")
    verdict = (
        f"States can set {least['random'] or 'about '}{tokens} freely above all others, of {v:,} in {d:,} dimensions. "
        f"In a head of normal rows they can set {gaussian:,}."
    )
    if "top" in largest:
        verdict += f" Of a state's most likely tokens, {least['top']}{largest['top']:,} can be set."
    if any(least.values()):
        verdict += ' "At least": the search reached its limit of work before larger sets were decided.'
    return SettableTokens(verdict, v, d, largest["random"], largest.get("top"), gaussian, tuple(found), _DEFINITION)


def gaussian_settable(v: int, d: int) -> int:
    """The size m at which half of the sets are settable in a head (v, d) of normal rows.

    Half of the faces survive if the statistical dimension of the cone at a face is d (Amelunxen et al. 2014, theorem
    I): min over t of m (1 + t^2) + (v - m) E[max(g - t, 0)^2].

    >>> gaussian_settable(8192, 64), gaussian_settable(50257, 768)
    (7, 104)
    """
    low, high = 0, min(d, v - 1)
    while low < high:
        m = (low + high + 1) // 2
        low, high = (m, high) if _statistical_dimension(v, m) <= d else (low, m - 1)
    return low


def _statistical_dimension(v: int, m: int) -> float:
    def at(t: float) -> float:
        tail, density = 0.5 * math.erfc(t / math.sqrt(2)), math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        return m * (1 + t * t) + (v - m) * ((1 + t * t) * tail - t * density)

    return min(at(step / 200) for step in range(-600, 1601))


def _asked(
    space: HeadSpace, kind: Kind, draw: Callable[[int], list[Array]], work: Work, progress: Progress | None
) -> tuple[list[SettableSets], bool]:
    """Sizes that double until fewer than half of the sets are settable, then sizes between; False if work ran out."""
    found, (v, d) = list[SettableSets](), space.rows.shape
    low, high, size = 0, min(d, v - 1) + 1, 1
    while low + 1 < high and not work.is_over:
        if progress:
            progress(f"setting {kind} tokens", size, 0)
        sets = [tuple(one.tolist()) for one in draw(size)]
        status: list[str] = [one.status for one in seek(space, sets, work=work)]
        found.append(one := SettableSets(kind, size, len(sets), *map(status.count, ("exposed", "hidden", "undecided"))))
        low, high = (size, high) if 2 * one.settable >= one.sets else (low, size)
        size = min(2 * size, high - 1) if high > d or high > v - 1 else (low + high) // 2
    return found, low + 1 >= high


def _tops(rows: Array, states: Array, sets: int, most: int, seed: int) -> list[Array]:
    random = np.random.default_rng([seed, 0])
    places = np.sort(random.choice(len(states), min(sets, len(states)), replace=False))
    logits = states[places].astype(np.float64) @ rows.T.astype(np.float64)
    return list(np.argsort(-logits, axis=1, kind="stable")[:, :most])
