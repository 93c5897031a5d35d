"""The search of a block for light edges, and the tree of those that it found, compiled by numba.

Imported only where numba is installed, by the functions that call it. Flags: a sum may be added in any order (reassoc); a search
for the smallest must know that no NaN and no infinity comes to use vectors.
"""

import inspect

import numpy as np

from uncone.topology import forest
from uncone.topology.jit import loop

_FINITE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
_CHUNK = 128  # pairs that are ruled out together, in registers
_NEVER = np.float32(3e38)

kruskal = loop()(inspect.unwrap(forest.kruskal))


@loop(fastmath=_FINITE)
def light_edges(product, rows, columns, errors, bounds, points, order, scale, tree, ends, squared):
    """Writes pairs (k, 2) and their squared lengths (k,) to `ends` and `squared`; returns k and how many pairs were measured.

    `rows` and `columns` are (first position, squares, moved), `errors` those of the product and absolute, `bounds` and
    `tree` the fields of a `Forest`; `bounds` are on lengths times `scale`.
    """
    count, measured, excess = 0, 0, np.empty(_CHUNK, np.float32)
    first, squares, moved = rows
    first_column, others, shifts = columns
    across = slice(first_column, first_column + product.shape[1])
    reach, part, within = bounds
    reaches, parts, withins = reach[across], part[across], within[across]
    factor = points.dtype.type(scale)
    share = (
        1 - (2 * points.shape[1] + 32) * 2.0**-24
    )  # of a coarse distance, less what rounding may add: as in `Rounding`
    least = points.shape[1] * 2.0**-100  # what underflow may add
    for r in range(product.shape[0]):
        i = first + r
        begin = max(0, i + 1 - first_column)  # a row's pairs are with later positions
        while begin < product.shape[1]:
            some = slice(begin, begin + _CHUNK)
            row = squares[r], moved[r], reach[i], part[i], within[i]
            bound = reaches[some], parts[some], withins[some]
            if (
                _least_excess(row, product[r, some], others[some], shifts[some], bound, errors[0], excess)
                <= errors[1]
            ):
                for c in range(begin, min(begin + _CHUNK, product.shape[1])):
                    if excess[c - begin] > errors[1]:
                        continue
                    j = first_column + c
                    measured += 1
                    longest = max(within[i], withins[c]) if part[i] == parts[c] else max(reach[i], reaches[c])
                    coarse = np.float64(_coarse_distance(points[order[i]], points[order[j]], factor))
                    if coarse * share - least > np.float64(longest) * longest:
                        continue
                    length = _squared_distance(points[order[i]], points[order[j]])
                    if _is_light(length, i, j, order, tree):
                        ends[count, 0], ends[count, 1], squared[count] = i, j, length
                        count += 1
            begin += _CHUNK
    return count, measured


@loop(fastmath=_FINITE)
def _least_excess(row, products, squares, moved, bounds, product_error, out):
    """Of pairs of one row, to `out`: the least squared distance there can be, less the square of the longest edge there can be; returns the least."""
    square, shift, far, own, inside = row
    reach, part, within = bounds
    least = _NEVER
    for k in range(len(products)):
        apart = far if far > reach[k] else reach[k]
        together = inside if inside > within[k] else within[k]
        longest = together if own == part[k] else apart
        longest += shift + moved[k]
        out[k] = (
            (square + squares[k])
            - np.float32(2) * products[k]
            - product_error * abs(products[k])
            - longest * longest
        )
        least = out[k] if out[k] < least else least
    return least


@loop(fastmath=_FINITE)
def _coarse_distance(a, b, scale):
    """The squared distance in the type of the points: in float32 faster than exactly, and mostly enough."""
    total = a.dtype.type(0)
    for k in range(len(a)):
        difference = (a[k] - b[k]) * scale
        total += difference * difference
    return total


@loop(fastmath=_FINITE)
def _squared_distance(a, b):
    total = 0.0
    for k in range(len(a)):
        difference = np.float64(a[k]) - np.float64(b[k])
        total += difference * difference
    return total


@loop(fastmath=_FINITE)
def _is_light(length, i, j, order, tree):
    """Whether an edge comes before the last one on the tree's path between its ends, by (length, smaller row, larger row)."""
    tree_ends, tree_squared, rank, parent = tree
    a, b, last = i, j, 0
    while a != b:
        if rank[a] < rank[b]:
            last, a = rank[a], parent[a]
        else:
            last, b = rank[b], parent[b]
    if length != tree_squared[last]:
        return length < tree_squared[last]
    p, q = order[i], order[j]
    s, t = order[tree_ends[last, 0]], order[tree_ends[last, 1]]
    return min(p, q) < min(s, t) or (min(p, q) == min(s, t) and max(p, q) < max(s, t))
