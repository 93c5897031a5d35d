"""Heads refitted on frozen states: of full rank, which is convex, and of rank r as a product A B, which is not.

We minimise the cross-entropy to a target that mixes the next token with the full head's own probabilities,

    F(W) = mean over tokens of sum_v t_v (-log softmax(W x)_v),   t = (1 - c) onehot + c softmax(W_0 x).

A head has far more numbers than a text has tokens to set them: from labels alone (c = 0, as in Godey et al. 2024, who
take 150 M tokens) it learns the tokens by heart.

We use coordinates in which the second derivative is near 1: x is whitened, and rows are multiplied by the root of their
tokens' expected frequency. L-BFGS then takes tens of steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

import torch

from uncone.saturation.head.rank.truncation import Nested, Tensor, Text, capped, root_of, second_moment
from uncone.tensors import on_one_thread, share

Factors = tuple[Tensor, Tensor]  # A (V, r) and B (r, D) of the head A B
MEMORY, _ARMIJO, _HALVINGS = 10, 1e-4, 12
_RARE = 1e-2  # of an even share: rarer tokens are scaled like this share
_LEAST_SIZE = 0.3  # nats: the spread of logits by one column, in coordinates
_GROUPS, _PIECE = 4, 2**20  # of tokens, and logits at a time: they fit into a cache


@dataclass(frozen=True, eq=False)
class Objective:
    """F on some states, in the coordinates above."""

    x: Tensor  # (n, D), whitened
    target: Tensor  # (V, n)
    scale: Tensor  # (V, 1): what rows of coordinates are divided by
    root: Tensor  # (D, D) float64: S^(1/2)
    inverse: Tensor
    bias: Tensor | None
    cap: float | None
    tick: Callable[[], None] = lambda: None  # called once for each gradient

    @classmethod
    def of(cls, text: Text, head: Tensor, teacher: float, moment: Tensor | None = None) -> "Objective":
        """`teacher` is c above, and `head` float64 (V, D). Numbers have the dtype of the text's states."""
        dtype, n = text.x.dtype, len(text.x)
        target = torch.empty(len(head), n, dtype=dtype)
        for part in torch.split(torch.arange(n), max(1, _PIECE // len(head))):
            z = capped(_logits(head.to(dtype), text.x[part].T, text.bias), text.cap)
            target[:, part] = torch.softmax(z, 0) if teacher else 0.0
        target.mul_(teacher)
        target[text.labels, torch.arange(n)] += 1 - teacher
        root, inverse = root_of(second_moment(text.x) if moment is None else moment)
        expected = target.mean(1, dtype=torch.float64).clamp_min(_RARE / len(head))
        x = (text.x.double() @ inverse).to(dtype)
        return cls(x, target, expected.sqrt().to(dtype)[:, None], root, inverse, text.bias, text.cap)

    def first(self, n: int) -> "Objective":
        return replace(self, x=self.x[:n], target=self.target[:, :n].contiguous())

    def enter(self, head: Factors) -> Factors:
        """A head in coordinates, as U s and V' of its singular value decomposition: then B B' = 1."""
        a, b = (part.double() for part in head)
        qa, ra = torch.linalg.qr(self.scale.double() * a)
        qb, rb = torch.linalg.qr((b @ self.root).T)
        u, s, v = torch.linalg.svd(ra @ rb.T)
        return (qa @ (u * s)).to(self.x.dtype), (v @ qb.T).to(self.x.dtype)

    def leave(self, a: Tensor, b: Tensor) -> Factors:
        return a.double() / self.scale.double(), b.double() @ self.inverse

    def value(self, a: Tensor, b: Tensor | None) -> tuple[float, Tensor, Tensor | None]:
        """F at A B (at A for full rank), and its gradients; each group of tokens has a thread, summed in order."""
        self.tick()
        n, rows = len(self.x), a / self.scale
        y = self.x.T if b is None else b @ self.x.T
        of_y = torch.empty_like(y)
        groups = torch.linspace(0, n, min(_GROUPS, n) + 1).long().tolist()
        tasks = [partial(self._group, rows, y, of_y if b is not None else None, *ends) for ends in pairwise(groups)]
        totals, parts = zip(*share(tasks), strict=True)
        of_rows = reduce(Tensor.add_, parts)
        of_b = None if b is None else of_y.div_(n) @ self.x
        return sum(totals) / n, of_rows.div_(n).div_(self.scale), of_b

    def _group(self, rows: Tensor, y: Tensor, of_y: Tensor | None, start: int, stop: int) -> tuple[float, Tensor]:
        """The sum over tokens, and its gradient by `rows`; the gradient by y is written to `of_y`."""
        total, of_rows = 0.0, torch.zeros_like(rows)
        piece = max(1, _PIECE // len(rows))
        for first in range(start, stop, piece):
            columns = slice(first, min(first + piece, stop))
            target = self.target[:, columns]
            logits = capped(_logits(rows, y[:, columns], self.bias), self.cap)
            slope = None if self.cap is None else 1 - (logits / self.cap).square()
            total -= float(torch.mul(target, logits).sum(0).sum(dtype=torch.float64))
            top = logits.amax(0)
            gradient = logits.sub_(top).exp_()
            sums = gradient.sum(0)
            total += float((top.double() + sums.double().log()).sum())
            gradient.div_(sums).sub_(target)
            if slope is not None:
                gradient.mul_(slope)
            of_rows.addmm_(gradient, y[:, columns].T)
            if of_y is not None:
                of_y[:, columns] = rows.T @ gradient
        return total, of_rows


def _logits(head: Tensor, columns: Tensor, bias: Tensor | None) -> Tensor:
    z = head @ columns
    return z if bias is None else z.add_(bias.to(z.dtype)[:, None])


@dataclass(frozen=True)
class Fit:
    objective: float  # F at its end
    gradient: float  # norm
    evaluations: int  # of F


@on_one_thread
def full_rank(problem: Objective, start: Tensor, evaluations: int, least: float = 0.0) -> tuple[Tensor, Fit]:
    """F is convex here: every start ends at the same value."""
    dtype = problem.x.dtype
    first = (problem.scale.double() * (start.double() @ problem.root)).to(dtype)

    def at(point: Tensor) -> tuple[float, Tensor]:
        value, gradient, _ = problem.value(point.view_as(first), None)
        return value, gradient.flatten()

    point, fit = _minimise(at, first.flatten(), evaluations, least)
    return (point.view_as(first).double() / problem.scale.double()) @ problem.inverse, fit


@on_one_thread
def of_rank(problem: Objective, start: Factors, evaluations: int) -> tuple[Factors, Fit]:
    """A head at least as good as the start, but not always the best."""
    a, b = problem.enter(start)
    # about F's curvature in b, which would grow too much from a start near 0
    sizes = a.norm(dim=0).clamp_min(_LEAST_SIZE)[:, None]
    cut = a.numel()

    def at(point: Tensor) -> tuple[float, Tensor]:
        value, of_a, of_b = problem.value(point[:cut].view_as(a), point[cut:].view_as(b) / sizes)
        assert of_b is not None
        return value, torch.cat([of_a.flatten(), (of_b / sizes).flatten()])

    point, fit = _minimise(at, torch.cat([a.flatten(), (b * sizes).flatten()]), evaluations)
    return problem.leave(point[:cut].view_as(a), point[cut:].view_as(b) / sizes), fit


def _minimise(
    at: Callable[[Tensor], tuple[float, Tensor]], point: Tensor, evaluations: int, least: float = 0.0
) -> tuple[Tensor, Fit]:
    """L-BFGS with steps halved until F falls enough; ends at a gradient of norm `least` or when F falls no more."""
    value, gradient = at(point)
    used, pairs = 1, list[tuple[Tensor, Tensor, float]]()
    while used < evaluations and float(gradient.norm()) > least:
        step = _direction(gradient, pairs)
        slope, length = float(step @ gradient), 1.0
        for _ in range(_HALVINGS):
            moved = point + length * step
            new, turned = at(moved)
            used += 1
            if new <= value + _ARMIJO * length * slope or used >= evaluations:
                break
            length *= 0.5 if math.isfinite(new) and length > 0.2 else 0.2
        if not new < value:
            if not pairs:
                break
            pairs.clear()  # the curvature was wrong
            continue
        change, bent = moved - point, turned - gradient
        product = float(change @ bent)
        if product > 1e-10 * float(change.norm() * bent.norm()):
            pairs = [*pairs, (change, bent, product)][-MEMORY:]
        point, value, gradient = moved, new, turned
    return point, Fit(value, float(gradient.norm()), used)


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, float]]) -> Tensor:
    step, sizes = gradient.neg(), list[float]()
    for change, bent, product in reversed(pairs):
        sizes.append(float(change @ step) / product)
        step.sub_(bent, alpha=sizes[-1])
    if pairs:
        _, bent, product = pairs[-1]
        step.mul_(product / float(bent @ bent))
    for (change, bent, product), size in zip(pairs, reversed(sizes), strict=True):
        step.add_(change, alpha=size - float(bent @ step) / product)
    return step


def cut(heads: Nested, rank: int) -> Factors:
    return heads.left[:, :rank], heads.right[:rank]


def random_head(v: int, d: int, rank: int, moment: Tensor, seed: int) -> Factors:
    """A and B of N(0, 1) (Godey et al. 2024, section 5.1), A scaled down until logits spread by a tenth of a nat.

    In the paper they spread by sqrt(r) ||x||, where softmax is saturated: a long warm-up trains it out of this.
    """
    random = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(size, generator=random, dtype=torch.float64) for size in ((v, rank), (rank, d)))
    spread = float(((b.T @ b) * moment).sum().clamp_min(1e-30))
    return a * (0.1 / math.sqrt(spread)), b
