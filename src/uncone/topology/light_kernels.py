"""The search of a block for light edges, compiled by numba. Imported only where numba is installed, by the function that calls it.

Flags: a sum may be added in any order (reassoc); a search for the smallest must know that no NaN and no infinity comes to use
vectors.
"""

import numpy as np
from numba import njit

_FINITE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
_CHUNK = 128  # pairs that are ruled out together, in registers
_NEVER = np.float32(3e38)


@njit(cache=True, nogil=True, fastmath=_FINITE)
def light_edges(product, rows, columns, errors, reach, points, order, unit, tree, ends, squared):
    """Writes pairs (k, 2) and their squared lengths (k,) to `ends` and `squared`; returns k and how many pairs were measured.

    `rows` and `columns` are (first position, squares, moved), `errors` those of the product and absolute, `tree` the fields of
    a `Forest` without its reach, `unit` the square of the scale.
    """
    count, measured = 0, 0
    first, squares, moved = rows
    first_column, others, shifts = columns
    reaches = reach[first_column : first_column + product.shape[1]]
    for r in range(product.shape[0]):
        i = first + r
        begin = max(0, i + 1 - first_column)  # a row's pairs are with later positions
        while begin < product.shape[1]:
            some = slice(begin, begin + _CHUNK)
            row = squares[r], moved[r], reach[i]
            if _least_excess(row, product[r, some], others[some], shifts[some], reaches[some], errors[0]) <= errors[1]:
                for c in range(begin, min(begin + _CHUNK, product.shape[1])):
                    one = slice(c, c + 1)
                    if _least_excess(row, product[r, one], others[one], shifts[one], reaches[one], errors[0]) > errors[1]:
                        continue
                    j = first_column + c
                    length = _squared_distance(points[order[i]], points[order[j]]) * unit
                    measured += 1
                    if _is_light(length, i, j, order, tree):
                        ends[count, 0], ends[count, 1], squared[count] = i, j, length
                        count += 1
            begin += _CHUNK
    return count, measured


@njit(cache=True, nogil=True, fastmath=_FINITE)
def _least_excess(row, products, squares, moved, reach, product_error):
    """Of pairs of one row: what is left of the least squared distance there can be, less the square of the longest edge there can be."""
    square, shift, far = row
    least = _NEVER
    for k in range(len(products)):
        longest = far if far > reach[k] else reach[k]
        longest += shift + moved[k]
        excess = (square + squares[k]) - np.float32(2) * products[k] - product_error * abs(products[k]) - longest * longest
        least = excess if excess < least else least
    return least


@njit(cache=True, nogil=True, fastmath=_FINITE)
def _squared_distance(a, b):
    total = 0.0
    for k in range(len(a)):
        difference = np.float64(a[k]) - np.float64(b[k])
        total += difference * difference
    return total


@njit(cache=True, nogil=True, fastmath=_FINITE)
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
