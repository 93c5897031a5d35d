"""Mean and variance of the scores of all pairs, from sums of rows: no pair is looked at."""

import math
from dataclasses import dataclass

import torch

from uncone.calibration.sides import Side
from uncone.errors import InputError

Tensor = torch.Tensor


@dataclass(frozen=True)
class Floor:
    """Mean and variance of the score over `pairs` pairs."""

    pairs: int
    mean: float
    variance: float


def floor_of(side: Side, queries: Side | None, *, left_out: Tensor | None = None) -> Floor:
    """Mean and variance of the score over all pairs, in closed form.

    Within one set, over pairs i != j of its n rows v_i: E[s] = (|S|^2 - sum |v|^2) / (n (n - 1)) and
    E[s^2] = (|G|_F^2 - sum |v|^4) / (n (n - 1)), with S = sum v and G = sum v v'. Between m queries and n rows:
    E[s] = S_q . S / (m n) and E[s^2] = <G_q, G>_F / (m n).

    Args:
        side: the rows.
        queries: the queries, or None for pairs within `side`.
        left_out: scores, float64 (K,), of pairs that do not count: those known to match.

    Raises:
        InputError: no pair is left.
    """
    first, second = side.sums()
    if queries is None:
        n = side.n
        squares, fourths = _powers(side)
        pairs = n * (n - 1) // 2
        total = (float(first @ first) - squares) / 2
        total_square = (float(torch.linalg.vector_norm(second)) ** 2 - fourths) / 2
    else:
        other_first, other_second = queries.sums()
        pairs = side.n * queries.n
        total, total_square = float(first @ other_first), float((second * other_second).sum())
    if left_out is not None:
        pairs -= len(left_out)
        total -= float(left_out.sum())
        total_square -= float(left_out.square().sum())
    if pairs < 1:
        raise InputError(
            "expected random pairs beside the labelled matches, got none: give the whole collection as vectors"
        )
    mean = total / pairs
    return Floor(pairs, mean, max(0.0, total_square / pairs - mean**2))


def alignment(side: Side, queries: Side) -> float:
    """How far rows and queries prefer the same directions: the cosine of G_q / tr G_q - I/D and G / tr G - I/D.

    1 for equal second moments, about 0 for those of two models that have nothing to do with each other. In [-1, 1].
    """
    shapes = []
    for one in (side, queries):
        second = one.sums()[1]
        trace = float(second.diagonal().sum())
        excess = second / trace if trace else second.clone()
        excess.diagonal().sub_(1 / len(second))
        shapes.append(excess)
    norms = math.prod(float(torch.linalg.vector_norm(shape)) for shape in shapes)
    return float((shapes[0] * shapes[1]).sum()) / norms if norms else 0.0


def _powers(side: Side) -> tuple[float, float]:
    """sum |v|^2 and sum |v|^4."""
    if side.metric == "cosine":
        return float(side.n), float(side.n)
    squares = fourths = 0.0
    for block in side.rows.blocks():
        lengths = block.double().square().sum(dim=1)
        squares += float(lengths.sum())
        fourths += float(lengths.square().sum())
        del block
    return squares, fourths
