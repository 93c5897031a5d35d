"""Many fits of ln L = ln(A / N^alpha + B / T^beta + E) at once, after Levenberg and Marquardt, for Huber's loss."""

from functools import partial

import numpy as np

from uncone.rows import Array
from uncone.threads import share

_TERMS = (slice(0, 2), slice(2, 4), slice(4, 5))  # the constants of each term: a and alpha, b and beta, e
_AT_ONCE = 32_768  # numbers in an array: the arrays of a step stay in a core's cache
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e-9, 1e12
"""The least damping is above the rounding of the sums, so that every step can be solved."""
_LEAST, _TINY = 1e-20, 1e-300
"""A term that is not part of L has squares below the range of float32."""
_TURN = 1e-2  # above this damping steps use reweighted squares, below it they are near Newton's


def descend(
    theta: Array,
    free: Array,
    x: Array,
    y: Array,
    box: Array,
    delta: float,
    steps: int,
    done: float = 1e-13,
    dtype: type = np.float64,
) -> tuple[Array, Array]:
    """Where each of S descents ends, (S, 5), and the sums of Huber's losses there, (S,).

    They start at `theta` (S, 5): a = ln A, alpha, b = ln B, beta, e = ln E, of which the `free` (5,) or (S, 5) move
    within `box` (2, 5). `x` (2, R) holds ln N and ln T of the runs, `y` (R,) or (S, R) ln L. A descent ends once a step
    lowers the sum by no more than the share `done`. float32 is for a first choice among many starts.
    """
    runs = x.shape[1]
    size = max(1, _AT_ONCE // runs)
    y, free = np.broadcast_to(y, (len(theta), runs)), np.broadcast_to(free, theta.shape)
    cuts = [slice(start, start + size) for start in range(0, len(theta), size)]
    ends = share(partial(_piece, theta[cut], free[cut], x, y[cut], box, delta, steps, done, dtype) for cut in cuts)
    end, total = map(np.concatenate, zip(*ends, strict=True))
    return end, total


class _Sums:
    def __init__(self, x: Array, delta: float, dtype: type) -> None:
        self.x: Array = x.astype(dtype)
        self.delta = dtype(delta)
        one = np.ones_like(self.x[0])
        factors = np.stack([one, -self.x[0], one, -self.x[1], one])
        self.factors = [factors[term].T for term in _TERMS]
        self.products = factors[:, None] * factors

    def shares(self, theta: Array) -> tuple[Array, Array]:
        """The share of each term in L, (3, S, R), and ln L."""
        a, alpha, b, beta, e = (theta[:, [i]].astype(self.x.dtype) for i in range(5))
        terms = np.empty((3, len(theta), self.x.shape[1]), self.x.dtype)
        np.subtract(a, alpha * self.x[0], out=terms[0])
        np.subtract(b, beta * self.x[1], out=terms[1])
        terms[2] = e
        largest = terms.max(0)
        terms -= largest
        np.exp(terms, out=terms)
        total = terms.sum(0)
        terms /= total
        largest += np.log(total, out=total)
        return terms, largest

    def losses(self, residuals: Array) -> Array:
        size = np.abs(residuals)
        inside = np.minimum(size, self.delta)
        return np.asarray((inside * (size - inside / 2)).sum(1, dtype=np.float64))

    def normal(self, shares: Array, residuals: Array, damping: Array) -> tuple[Array, Array]:
        """The matrix of the step (S, 5, 5), and the gradient (S, 5).

        Runs within delta have weight 1, runs beyond it delta / size, as in reweighted squares. The true second
        derivative of the runs beyond it is 0: at low damping their weight goes to 0 too.
        """
        size = np.maximum(np.abs(residuals), self.delta)
        weights = self.delta / size
        slopes = residuals * weights
        weights *= np.where(size > self.delta, np.minimum(1, damping / _TURN)[:, None], 1).astype(size.dtype)
        normal, slope = np.empty((len(damping), 5, 5)), np.empty((len(damping), 5))
        for i, rows in enumerate(_TERMS):
            weighted = shares[i] * weights
            slope[:, rows] = (shares[i] * slopes) @ self.factors[i]
            for j in range(i, 3):
                columns = _TERMS[j]
                products = self.products[rows, columns]
                sums = (weighted * shares[j]) @ products.reshape(-1, len(self.x[0])).T
                normal[:, rows, columns] = sums.reshape(-1, *products.shape[:2])
                normal[:, columns, rows] = normal[:, rows, columns].swapaxes(1, 2)
        return normal, slope


@np.errstate(over="ignore", invalid="ignore")  # a step out of range is not taken
def _piece(
    theta: Array, free: Array, x: Array, y: Array, box: Array, delta: float, steps: int, done: float, dtype: type
) -> tuple[Array, Array]:
    sums, y = _Sums(x, delta, dtype), y.astype(dtype)
    low, high = np.where(free, box[:, None], theta)
    ends, totals = np.clip(theta.astype(np.float64), low, high), np.empty(len(theta))
    running, theta, damping = np.arange(len(theta)), ends.copy(), np.full(len(theta), _FIRST_DAMPING)
    shares, predicted = sums.shares(theta)
    residuals = predicted - y
    totals[:] = current = sums.losses(residuals)
    used = free.any(0)
    eye, least = np.eye(int(used.sum())), max(_LEAST_DAMPING, 50 * float(np.finfo(dtype).eps))
    for _ in range(steps if used.any() else 0):
        normal, slope = sums.normal(shares, residuals, damping)
        # a constant that is held, or pushed against its limit, takes no step
        moves = np.where(slope > 0, theta > low, theta < high)[:, used]
        normal, slope = normal[:, used][:, :, used] * (moves[:, :, None] & moves[:, None]), slope[:, used] * moves
        size = np.einsum("spp->sp", normal)
        scale = np.sqrt(np.maximum(size, _LEAST * size.max(1, keepdims=True)) + _TINY)
        damped = normal / (scale[:, :, None] * scale[:, None]) + damping[:, None, None] * eye
        moved = theta.copy()
        moved[:, used] -= np.linalg.solve(damped, (slope / scale)[..., None])[..., 0] / scale
        moved = np.clip(moved, low, high)
        new_shares, predicted = sums.shares(moved)
        new_residuals = predicted - y
        found = sums.losses(new_residuals)
        better = found < current
        gained = current - np.where(better, found, -np.inf)
        ended = (gained <= done * current) | (damping > _MOST_DAMPING)
        damping = np.maximum(damping * np.where(better, 1 / 3, 4.0), least)
        theta[better], current = moved[better], np.where(better, found, current)
        np.copyto(shares, new_shares, where=better[:, None])
        np.copyto(residuals, new_residuals, where=better[:, None])
        if ended.any():
            ends[running], totals[running] = theta, current
            shares = shares[:, ~ended]
            state: tuple[Array, ...] = (running, theta, damping, current, low, high, residuals, y)
            running, theta, damping, current, low, high, residuals, y = (part[~ended] for part in state)
        if not len(running):
            break
    ends[running], totals[running] = theta, current
    return ends, totals
