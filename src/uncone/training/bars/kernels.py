"""The loops of the barcode, compiled by numba.

A sum of squares may be added in any order (reassoc); a search for the least uses vectors where no NaN comes (nnan).
Distances are the same from either end, so that equal ones are equal to the bit.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

_SUM = {"reassoc", "contract", "nsz"}
_FINITE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
_CHUNK = 128  # pairs that are ruled out together, in registers
_BLOCK = 256
_TILE = 32


def loop(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles at the first call, once for all processes where a cache can be written."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **flags)(function)
        except RuntimeError:  # nowhere to write a cache
            return numba.njit(nogil=True, **flags)(function)

    return compiled


@loop(fastmath=_SUM)
def centred(points, rows, out, norms):
    mean, count = np.zeros(points.shape[1], points.dtype), points.dtype.type(len(rows))
    for i in range(len(rows)):
        x = points[rows[i]]
        for k in range(x.shape[0]):
            mean[k] += x[k] / count
    for i in range(len(rows)):
        x, y = points[rows[i]], out[i]
        total = points.dtype.type(0)
        for k in range(x.shape[0]):
            y[k] = x[k] - mean[k]
            total += y[k] * y[k]
        norms[i] = total


@loop(fastmath=_SUM)
def _squared(a, b):
    total = a.dtype.type(0)
    for k in range(a.shape[0]):
        t = a[k] - b[k]
        total += t * t
    return total


@loop(fastmath=_SUM)
def direct(points, rows, product):
    n, half = len(rows), points.dtype.type(-0.5)  # half the squared distances, negative, as in a product
    for i in range(n):
        x = points[rows[i]]
        j = i + 1
        while j + 4 <= n:
            a, b, c, d = points[rows[j]], points[rows[j + 1]], points[rows[j + 2]], points[rows[j + 3]]
            ta = tb = tc = td = points.dtype.type(0)
            for k in range(x.shape[0]):
                ta += (x[k] - a[k]) * (x[k] - a[k])
                tb += (x[k] - b[k]) * (x[k] - b[k])
                tc += (x[k] - c[k]) * (x[k] - c[k])
                td += (x[k] - d[k]) * (x[k] - d[k])
            product[i, j], product[i, j + 1] = half * ta, half * tb
            product[i, j + 2], product[i, j + 3] = half * tc, half * td
            j += 4
        while j < n:
            product[i, j] = half * _squared(x, points[rows[j]])
            j += 1


@loop()
def mirror(product, begin, end, n):
    """Rows `begin` to `end` below the diagonal, a tile at a time: a column would miss the cache."""
    for left in range(begin, n, _TILE):
        for top in range(begin, end, _TILE):
            bottom = min(top + _TILE, end)
            for j in range(left, min(left + _TILE, n)):
                out = product[j, top : min(bottom, j)]
                for i in range(len(out)):
                    out[i] = product[top + i, j]


@loop()
def _visit(row, norm, new, waiting, best, parent):
    zero = row.dtype.type(0)
    for u in range(len(row)):
        d = max((waiting[u] + norm) - (row[u] + row[u]), zero)
        b, p = best[u], parent[u]
        nearer = (d < b) | ((d == b) & (new < p))
        best[u] = d if nearer else b
        parent[u] = new if nearer else p


@loop()
def _lowest(bits):
    """Non-negative floats are in the order of their bits, which vectors search."""
    low = bits[0]
    for u in range(len(bits)):
        low = min(low, bits[u])
    return low


@loop()
def _nearest(best, parent, lowest):
    low = lowest.min()
    found, small, large = -1, np.int64(0), np.int64(0)
    for block in range(len(lowest)):
        if lowest[block] == low:
            for u in range(block * _BLOCK, min((block + 1) * _BLOCK, len(best))):
                if best[u] == low:
                    a, b = min(u, parent[u]), max(u, parent[u])
                    if found < 0 or (a, b) < (small, large):
                        found, small, large = u, a, b
    return found


@loop()
def prim(product, norms, integer, ends, weights):
    """The tree by squared distances norms[i] + norms[j] - 2 product[i, j]; `integer` is as wide as these floats. False
    where a distance is not finite."""
    n = len(norms)
    waiting, best = norms.copy(), np.full(n, np.inf, norms.dtype)
    parent, bits = np.zeros(n, np.int32), best.view(integer)
    lowest = np.empty((n + _BLOCK - 1) // _BLOCK, integer)
    new = 0
    for step in range(n - 1):
        waiting[new] = best[new] = np.inf  # it is in the tree
        row, norm, joined = product[new, :n], norms[new], np.int32(new)
        for block in range(len(lowest)):
            part = slice(block * _BLOCK, min((block + 1) * _BLOCK, n))
            _visit(row[part], norm, joined, waiting[part], best[part], parent[part])
            lowest[block] = _lowest(bits[part])
        new = _nearest(bits, parent, lowest)
        if not best[new] < np.inf:
            return False
        ends[step, 0], ends[step, 1], weights[step] = new, parent[new], best[new]
    return True


@loop(fastmath=_SUM)
def _length(a, b):
    total, largest = 0.0, 0.0
    for k in range(len(a)):
        t = np.float64(a[k] - b[k])
        total += t * t
    if total == 0:  # all squares vanished
        for k in range(len(a)):
            largest = max(largest, abs(np.float64(a[k] - b[k])))
        return largest
    return np.sqrt(total)


@loop()
def rounding(points, rows, ends, weights, norms):
    of_sums = of_itself = sums_of = 0.0
    for e in range(len(weights)):
        exact = _length(points[rows[ends[e, 0]]], points[rows[ends[e, 1]]]) ** 2
        sums, off = np.float64(norms[ends[e, 0]]) + norms[ends[e, 1]], abs(weights[e] - exact)
        if sums > 0:
            of_sums = max(of_sums, off / sums)
            of_itself = max(of_itself, off / exact if exact > 0 else np.inf)
            sums_of = max(sums_of, sums / exact if exact > 0 else np.inf)
    return of_sums, of_itself, sums_of


@loop()
def settle(points, rows, product, norms, ends, weights, error):
    """Replace `product` by minus half the squared distances: direct ones where rounding could hide an edge. One from
    the product is off by at most `error` times the sum of the squared norms. In the order in which points joined, the
    largest edge between the i-th and the j-th is the largest of the (i+1)-th to the j-th: no pair beyond that by more
    than the errors is an edge."""
    n, half = len(norms), product.dtype.type(-0.5)
    order, bound = np.zeros(n, np.int64), np.empty(n, norms.dtype)
    for e in range(n - 1):
        order[e + 1] = ends[e, 0]
        bound[e + 1] = weights[e] + error * (norms[ends[e, 0]] + norms[ends[e, 1]])
    for i in range(n):
        row, norm = product[i, :n], norms[i]
        for u in range(n):
            row[u] = half * max((norms[u] + norm) - (row[u] + row[u]), row.dtype.type(0))
    for i in range(n):
        a, way = order[i], product.dtype.type(0)
        row, norm = product[a, :n], norms[a]
        for j in range(i + 1, n):
            b = order[j]
            way = max(way, bound[j])
            if -2 * row[b] - error * (norm + norms[b]) <= way:
                row[b] = product[b, a] = half * _squared(points[rows[a]], points[rows[b]])


@loop()
def ordered(points, rows, ends, vanishing, edges, lengths):
    """Write edges as rows of points, smaller first, and lengths, ascending by (length, smaller, larger row). False
    where a length is above 0 and below `vanishing`: its square is not exact."""
    m = len(ends)
    key, measured = np.empty(m, np.int64), np.empty(m, points.dtype)
    for e in range(m):
        a, b = min(ends[e, 0], ends[e, 1]), max(ends[e, 0], ends[e, 1])
        key[e] = a * (m + 1) + b
    turn = np.argsort(key, kind="mergesort")
    for e in range(m):
        pair = key[turn[e]]
        measured[e] = _length(points[rows[pair // (m + 1)]], points[rows[pair % (m + 1)]])
        if 0 < measured[e] < vanishing:
            return False
    by_length = np.argsort(measured, kind="mergesort")
    for e in range(m):
        pair = key[turn[by_length[e]]]
        edges[e, 0], edges[e, 1] = rows[pair // (m + 1)], rows[pair % (m + 1)]
        lengths[e] = measured[by_length[e]]
    return True


@loop()
def small_clouds(points, order, offsets, first, which, integer, vanishing, edges, lengths):
    """Trees by direct differences. False where a square overflowed."""
    most = np.diff(offsets)[which].max()
    product, norms = np.empty((most, most), points.dtype), np.zeros(most, points.dtype)
    ends, weights = np.empty((most, 2), np.int64), np.empty(most, points.dtype)
    for c in which:
        n = offsets[c + 1] - offsets[c]
        if n < 2:
            continue
        rows, m = order[offsets[c] : offsets[c + 1]], n - 1
        direct(points, rows, product)
        mirror(product, 0, n, n)
        if not prim(product, norms[:n], integer, ends[:m], weights[:m]):
            return False
        part = slice(first[c], first[c] + m)
        if not ordered(points, rows, ends[:m], vanishing, edges[part], lengths[part]):
            return False
    return True


@loop(fastmath={"contract"})
def pull(points, edges, lengths, grads, tiny, out):
    """For each point the sum over its edges of grad / length * (difference to the other end), in one order. False where
    a quotient leaves the range of its floats."""
    begin = np.zeros(len(points) + 1, np.int64)
    for e in range(len(edges)):
        begin[edges[e, 0] + 1] += 1
        begin[edges[e, 1] + 1] += 1
    for v in range(len(points)):
        begin[v + 1] += begin[v]
    at, other, factor = begin[:-1].copy(), np.empty(begin[-1], np.int64), np.empty(begin[-1], grads.dtype)
    for e in range(len(edges)):
        scale = grads.dtype.type(0)
        if lengths[e] > 0 and grads[e] != 0:
            scale = grads[e] / lengths[e]
            if not tiny <= abs(scale) < np.inf:
                return False
        for end in range(2):
            slot = at[edges[e, end]]
            other[slot], factor[slot] = edges[e, 1 - end], scale
            at[edges[e, end]] += 1
    for v in range(len(points)):
        x, y = points[v], out[v]
        y[:] = 0
        for slot in range(begin[v], begin[v + 1]):
            z, s = points[other[slot]], factor[slot]
            for k in range(x.shape[0]):
                y[k] += s * (x[k] - z[k])
    return True


@loop(fastmath=_FINITE)
def light_edges(product, rows, columns, errors, bounds, points, order, scale, tree, ends, squared):
    """Writes pairs (k, 2) and squared lengths (k,) to `ends` and `squared`; returns k and the pairs measured. `rows`
    and `columns` are (first position, squares, moved), `errors` those of the product and absolute, `bounds` (on lengths
    times `scale`) and `tree` fields of a `Forest`."""
    count, measured, excess = 0, 0, np.empty(_CHUNK, np.float32)
    first, squares, moved = rows
    first_column, others, shifts = columns
    across = slice(first_column, first_column + product.shape[1])
    reach, part, within = bounds
    reaches, parts, withins = reach[across], part[across], within[across]
    factor = points.dtype.type(scale)
    # of a coarse distance, less what rounding (as in `Rounding`) and underflow may add
    share, least = 1 - (2 * points.shape[1] + 32) * 2.0**-24, points.shape[1] * 2.0**-100
    for r in range(product.shape[0]):
        i = first + r
        row = squares[r], moved[r], reach[i], part[i], within[i]
        earliest = max(0, i + 1 - first_column)  # a row's pairs are with later positions
        for begin in range(earliest, product.shape[1], _CHUNK):
            some = slice(begin, begin + _CHUNK)
            bound = reaches[some], parts[some], withins[some]
            low = _least_excess(row, product[r, some], others[some], shifts[some], bound, errors[0], excess)
            if low > errors[1]:
                continue
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
    return count, measured


@loop(fastmath=_FINITE)
def _least_excess(row, products, squares, moved, bounds, product_error, out):
    square, shift, far, own, inside = row
    reach, part, within = bounds
    least = np.float32(3e38)
    for k in range(len(products)):
        apart = far if far > reach[k] else reach[k]
        together = inside if inside > within[k] else within[k]
        longest = together if own == part[k] else apart
        longest += shift + moved[k]
        hidden = product_error * abs(products[k])
        out[k] = (square + squares[k]) - np.float32(2) * products[k] - hidden - longest * longest
        least = out[k] if out[k] < least else least
    return least


@loop(fastmath=_FINITE)
def _coarse_distance(a, b, scale):
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
    """Whether an edge comes before the last on the tree's path, by (length, smaller row, larger row)."""
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
    return (min(p, q), max(p, q)) < (min(s, t), max(s, t))
