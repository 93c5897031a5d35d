"""The point of a growing hull that is nearest to 0 (Wolfe 1976), and what its weights prove."""

import math
from itertools import compress

import numpy as np

from uncone.rows import Array

EPS = float(np.finfo(np.float64).eps)
_INSIDE, _DROPPED = 1e-12, 1e-14
_RESIDUAL = 1e-12  # relative, of a solution: about what a solver leaves too
_LOST = 1e-9  # of the square of a point: nearer to the span of the others it takes the inverse's digits
_USUAL = 20  # numbers within 2 to this power of 1 have squares in range


def scaled(numbers: Array) -> tuple[Array, int, bool]:
    """The numbers times the power of two that brings the largest near 1, the power, and whether no digit was lost.

    >>> numbers, power, is_lossless = scaled(np.array([6.0, -2.0]) * 2.0**200)
    >>> numbers.tolist(), power, is_lossless
    ([0.75, -0.25], -203, True)
    """
    power = math.frexp(max(float(numbers.max()), -float(numbers.min())))[1]
    if abs(power) <= _USUAL:
        return numbers, 0, True
    found, is_lossless = times_power(numbers, -power)
    if not is_lossless and numbers.dtype == np.float32:
        found, is_lossless = times_power(numbers.astype(np.float64), -power)
    return found, -power, is_lossless


def times_power(numbers: Array, power: int) -> tuple[Array, bool]:
    """Times 2 to the power, and whether this can be undone."""
    found = np.ldexp(numbers, power)
    return found, np.array_equal(np.ldexp(found, -power), numbers)


class Hull:
    """Affinely independent points, and the nearest point x = weights' kept of their hull. `place` is the caller's name
    of a point; `largest` is at least the norm of every point."""

    def __init__(self, first: Array, place: int, largest: float) -> None:
        self._unit = max(largest, np.finfo(np.float64).tiny) ** 2
        self.largest = largest
        self.places, self.weights = [place], np.ones(1)
        self.kept = first[None].astype(np.float64)
        self._gram = self.kept @ self.kept.T
        self._inverse: Array | None = None  # of the Gram matrix + unit
        self.x = self.kept[0].copy()

    def take(self, new: Array, place: int) -> None:
        """Move to the nearest point of the hull with one more point; points without weight go."""
        across = self.kept @ new
        k = len(across)
        gram = np.empty((k + 1, k + 1))
        gram[:k, :k], gram[:k, k], gram[k, :k], gram[k, k] = self._gram, across, across, new @ new
        self._gram = gram
        if self._inverse is not None:
            self._inverse = _bordered(self._inverse, across + self._unit, float(new @ new) + self._unit)
        self.kept, self.places = np.vstack([self.kept, new]), [*self.places, place]
        self.weights = np.append(self.weights, 0.0)
        while True:
            aim = self._affine()
            falling = aim < _INSIDE
            if not falling.any():
                self.weights = aim
                break
            lost = falling & (aim < self.weights)
            if not lost.any():  # rounding: nothing moves
                break
            ratios = np.full(len(aim), np.inf)
            ratios[lost] = self.weights[lost] / (self.weights[lost] - aim[lost])
            self.weights = self.weights + min(1.0, float(ratios.min())) * (aim - self.weights)
            stays = self.weights > _DROPPED
            stays[int(ratios.argmin())] = False
            self.kept, self.weights = self.kept[stays], self.weights[stays]
            self._gram = self._gram[np.ix_(stays, stays)]
            self._inverse = None if self._inverse is None else _without(self._inverse, stays)
            self.places = list(compress(self.places, stays))
        weights = np.maximum(self.weights, 0)
        self.weights = weights / weights.sum()
        self.x = self.weights @ self.kept

    def _affine(self) -> Array:
        """Weights of the point nearest to 0 in the affine hull: (G + c 11') a ~ 1, definite for any c > 0. The inverse
        is kept between steps and its answer refined once; where it has lost its digits, the whole system is solved."""
        ones, found = np.ones(len(self._gram)), None
        if self._inverse is not None:
            found = self._inverse.sum(1)
            found = found + self._inverse @ (ones - self._shifted(found))
        if found is None or not float(np.abs(ones - self._shifted(found)).max()) < _RESIDUAL:
            shifted = self._gram + self._unit
            try:
                found, self._inverse = np.linalg.solve(shifted, ones), np.linalg.inv(shifted)
            except np.linalg.LinAlgError:
                found, self._inverse = np.linalg.lstsq(shifted, ones, rcond=None)[0], None
        return np.asarray(found / found.sum())

    def _shifted(self, weights: Array) -> Array:
        return np.asarray(self._gram @ weights + self._unit * weights.sum())

    def bound(self) -> float:
        """No direction has a larger margin: the norm of x, rounding added."""
        rounding = (len(self.places) + self.kept.shape[1] + 3) * EPS * self.largest
        return float(np.linalg.norm(self.weights @ self.kept) + rounding)


def _bordered(inverse: Array, across: Array, corner: float) -> Array | None:
    """The inverse of a definite matrix with one more row and column; None where digits are lost."""
    k, along = len(across), inverse @ across
    left = corner - float(across @ along)
    if not left > _LOST * corner:
        return None
    found = np.empty((k + 1, k + 1))
    found[:k, :k] = inverse + np.outer(along, along / left)
    found[:k, k] = found[k, :k] = -along / left
    found[k, k] = 1 / left
    return found


def _without(inverse: Array, stays: Array) -> Array | None:
    """The inverse of a definite matrix without some rows and columns."""
    across = inverse[np.ix_(stays, ~stays)]
    try:
        gone = np.linalg.solve(inverse[np.ix_(~stays, ~stays)], across.T)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(inverse[np.ix_(stays, stays)] - across @ gone)


def holds_zero(points: Array, largest: float) -> bool:
    """Whether 0 is inside of the simplex of d + 1 points (k, d), its coordinates above what their residual can move."""
    k, d = points.shape
    if k != d + 1:
        return False
    system, wanted = np.vstack([points.T / (largest or 1.0), np.ones(k)]), np.append(np.zeros(d), 1.0)
    try:
        found = np.linalg.solve(system, wanted)
    except np.linalg.LinAlgError:
        return False
    residual = np.linalg.norm(system @ found - wanted)
    residual += (k + 3) * EPS * np.abs(system).sum(0).max() * np.abs(found).sum()
    least = float(np.linalg.svd(system, compute_uv=False)[-1]) - k * EPS * float(np.linalg.norm(system))
    return least > 0 and bool(found.min() > residual / least)
