"""Mutations of parsed JSON: every list, number, text and object of it, one change at a time."""

import copy
import random
from collections.abc import Iterator
from typing import Any

HUGE = 10**400
_NUMBERS = (0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**64, HUGE, -HUGE, 0.0, 0.5, -1.5, 1e308, -1e308, 5e-324)
_TEXTS = ("", "x", "0", "\0", "\ud800", "x" * 100_000, "<script>", "AAAA")
_TREES: tuple[Any, ...] = ([], [None], [0], ["x"], [[]], {}, {"x": 1}, {"schema": "x"})
SPIKES: tuple[Any, ...] = (None, True, False, *_NUMBERS, *map(float, ("nan", "inf", "-inf")), *_TEXTS, *_TREES)
_NESTED_DEPTH = 10_000
PATH = tuple[str | int, ...]


def nested(depth: int = _NESTED_DEPTH) -> str:
    """JSON of lists in lists."""
    return "[" * depth + "]" * depth


def paths(tree: Any, at: PATH = ()) -> Iterator[PATH]:
    """The way to every value in the tree, the tree itself first."""
    yield at
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from paths(value, (*at, key))


def get(tree: Any, path: PATH) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def changed(tree: Any, path: PATH, value: Any) -> Any:
    """A copy of the tree with `value` at the path."""
    if not path:
        return value
    found = copy.deepcopy(tree)
    get(found, path[:-1])[path[-1]] = value
    return found


def resized(tree: Any, path: PATH) -> Iterator[Any]:
    """Copies in which the list or object at the path lost an item, has its last twice, is empty, turned or long."""
    there = get(tree, path)
    if isinstance(there, list):
        for other in (there[1:], there[:-1], [*there, *there[-1:]], [], there[::-1], there * 40):
            yield changed(tree, path, other)
    elif isinstance(there, dict):
        for key in there:
            yield changed(tree, path, {k: v for k, v in there.items() if k != key})
        yield changed(tree, path, {})
        if there:
            yield changed(tree, path, {**there, "\u202eadded": next(iter(there.values()))})
            yield changed(tree, path, {**{"x" * 100_000 + str(i): v for i, v in enumerate(there.values())}})


def mutant(tree: Any, rng: random.Random, times: int = 1) -> Any:
    """The tree with a few changes drawn at random."""
    for _ in range(times):
        ways = list(paths(tree))
        path = rng.choice(ways)
        if isinstance(get(tree, path), (list, dict)) and rng.random() < 0.5:
            tree = rng.choice(list(resized(tree, path)) or [tree])
        elif rng.random() < 0.25:
            tree = changed(tree, path, copy.deepcopy(get(tree, rng.choice(ways))))
        else:
            tree = changed(tree, path, rng.choice(SPIKES))
    return tree
