"""The gradient of the cross-entropy by the output rows in three parts: what pulls a row, and which targets push it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from uncone.errors import InputError
from uncone.memory import check_memory
from uncone.model.last_states import States
from uncone.roles import Progress

Tensor = torch.Tensor
_BUFFER_BYTES = 144 * 2**20  # for the logits of one chunk
_FEWEST, _STEP, _SMALL, _ROWS = 160, 32, 64, 512
_LEAST = 1e-30  # a smaller probability has lost digits in float32
_LARGEST, _MOST_RAISED = 55, 126
"""Powers of two. In float32 the largest gradient is brought near 2^55: squares can then be summed over rows, and the
squares of numbers 1e38 times smaller are not 0. Above 2^126 Adam's epsilon leaves the range."""


@dataclass(frozen=True, eq=False)
class GradientParts:
    """Matrices (V, D) over `unit`; pull, frequent and rare sum to the gradient of the mean cross-entropy over N
    targets. `pull` comes from the row's own targets. `squares` is the mean over micro-batches, weighted by targets, of
    squared gradients over the square of `unit`: what Adam's second moment tends to at a fixed model."""

    pull: Tensor
    frequent: Tensor
    rare: Tensor
    squares: Tensor
    masses: Tensor  # (N, K) float64: the probability that each state gives to the rows of each bin
    own: Tensor  # (N,) float64: the probability of its own target
    losses: Tensor  # (N,) float64: its cross-entropy
    unit: float = 1.0  # a power of two; 1 where states are float64

    def whole(self) -> Tensor:
        return (self.pull + self.frequent + self.rare) * self.unit


def gradient_parts(
    states: States,
    rare: Tensor,
    *,
    members: Tensor | None = None,
    micro_batches: int = 1,
    progress: Progress | None = None,
) -> GradientParts:
    """Split the gradient of the mean cross-entropy by each output row w_v by whose targets it comes from.

    With p = softmax(z), z = cap tanh(u / cap), u = scale h . w + bias, c = dz/du (1 without a cap) and R the rare ids:

        dL/dw_v = scale / N (sum over i with y_i = v             of (p_iv - 1) c_iv h_i     pull, part (a)
                           + sum over i with y_i != v, not in R  of p_iv c_iv h_i           push, part (b)
                           + sum over i with y_i != v, in R      of p_iv c_iv h_i)          push, part (c)

    These are the parts of Yu et al. (2022) for a rare row, here for all rows. The memory is a chunk of logits and six
    matrices (V, D); the work is two products of N x V x D.

    `rare` is (V,) bool; `members` (V, K) is 1 where a row is in a bin whose `masses` are wanted; `squares` is over
    `micro_batches` batches, in the order of the targets. float64 states are computed in float64.
    """
    return _Sweep(states, rare, members, micro_batches).run(progress)


class _Sweep:
    def __init__(self, states: States, rare: Tensor, members: Tensor | None, micro_batches: int) -> None:
        head = states.head
        self._n, (self._v, d) = len(states.labels), head.shape
        check_targets(states, micro_batches)
        self._states, self._rare = states, rare.to(head.device)
        self._dtype = torch.promote_types(states.states.dtype, torch.float32)
        unit = 1.0 if self._dtype == torch.float64 else _unit_of(states)
        self._head, self._pieces = head.to(self._dtype), min(micro_batches, self._n)
        self._bias = None if states.bias is None else states.bias.to(self._dtype)[:, None]
        members = torch.zeros(self._v, 0) if members is None else members
        self._members = members.to(head.device, self._dtype).T.contiguous()
        column = self._v * self._dtype.itemsize
        self._chunk = max(_FEWEST, _BUFFER_BYTES // column // _STEP * _STEP - _STEP)
        self._chunk = min(self._chunk, -(-self._n // self._pieces))
        what, advice = f"gradients of {self._v} rows and {d} columns", "use a machine with more"
        check_memory((6 * d + 2 * self._chunk) * column, what, advice)
        zeros = partial(torch.zeros, dtype=self._dtype, device=head.device)
        self._logits = zeros(_width(self._chunk) * self._v)
        pull, frequent, of_rare, squares = (zeros(self._v, d) for _ in range(4))
        wide = partial(zeros, dtype=torch.float64)
        masses, (own, losses) = wide(self._n, len(self._members)), wide(2, self._n)
        self._parts = GradientParts(pull, frequent, of_rare, squares, masses, own, losses, unit)
        self._of_batch = [torch.empty_like(self._parts.pull) for _ in range(2)]

    @torch.no_grad()
    def run(self, progress: Progress | None) -> GradientParts:
        places, done = torch.arange(self._n, device=self._states.labels.device), 0
        for batch in torch.tensor_split(places, self._pieces):
            self._add_batch(batch)
            done += len(batch)
            if progress:
                progress("splitting the gradient", done, self._n)
        _check_finite(float(self._parts.squares.sum()))
        return self._parts

    def _add_batch(self, batch: Tensor) -> None:
        """Pushes by products over chunks of targets of one kind, the pull row by row."""
        pushes = (self._parts.frequent, self._parts.rare)
        of_rare = self._rare[self._states.labels[batch]]
        pulls, given = list[tuple[Tensor, Tensor]](), list[tuple[Tensor, Tensor]]()
        for kind, total, part in zip((False, True), pushes, self._of_batch, strict=True):
            if len(targets := batch[of_rare == kind]):
                chunks = enumerate(torch.split(targets, self._chunk))
                pulls += [self._add_chunk(chunk, part, begun=i > 0) for i, chunk in chunks]
                given.append((total, part))
        whole = given[0][1]
        for rows in _slices(self._v):  # which stay in the cache
            for total, part in given:
                total[rows] += part[rows]
            if len(given) > 1:
                whole[rows] += given[1][1][rows]
        for labels, values in pulls:
            self._parts.pull.index_add_(0, labels, values)
            whole.index_add_(0, labels, values)
        # the micro-batch's own mean is over its targets, not all
        self._parts.squares.addcmul_(whole, whole, value=self._n / len(batch))

    def _add_chunk(self, chunk: Tensor, part: Tensor, *, begun: bool) -> tuple[Tensor, Tensor]:
        """Write or add the push of a chunk of targets. Returns the ids that it pulls, and the pulls (n, D)."""
        labels, h = self._states.labels[chunk], self._states.states[chunk].to(self._dtype)
        p, slope = self._probabilities(h)
        at = labels, torch.arange(len(chunk), device=labels.device)
        own = p[at]
        self._parts.own[chunk] = own.double()
        self._parts.losses[chunk] = self._losses_of(h, labels, own)
        self._parts.masses[chunk] = (self._members @ p).T.double()
        pulled = own - 1
        p[at] = 0
        if slope is not None:
            pulled = pulled * slope[at]
            p.mul_(slope)
        h = h / self._parts.unit * (self._states.scale / self._n)
        part.addmm_(p, h, beta=float(begun)) if begun else torch.mm(p, h, out=part)
        return labels, pulled[:, None] * h

    def _losses_of(self, h: Tensor, labels: Tensor, own: Tensor) -> Tensor:
        """-ln p, from logits in float64 if p leaves the range of its dtype."""
        losses, cap = -own.double().log(), self._states.cap
        for few in torch.split((own < _LEAST).nonzero()[:, 0], _SMALL):
            z = (self._head @ (h[few] * self._states.scale).T).T.double()
            z = z if self._bias is None else z + self._bias.T
            z = z if cap is None else cap * torch.tanh(z / cap)
            losses[few] = z.logsumexp(1) - z.gather(1, labels[few, None])[:, 0]
        return losses

    def _probabilities(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """(V, n) of states (n, D), and the cap's slope: a column for each state makes a faster product."""
        n, width, cap = len(h), _width(len(h)), self._states.cap
        columns = self._logits[: width * self._v].view(self._v, width)
        z, slope = columns[:, :n], None
        torch.mm(self._head, (h * self._states.scale).T, out=z)
        if self._bias is not None:
            z.add_(self._bias)
        if cap is not None:
            slope = torch.tanh(z / cap)
            torch.mul(slope, cap, out=z)
            slope.square_().neg_().add_(1)
        torch.softmax(columns, dim=0, out=columns)
        return z, slope


def _unit_of(states: States) -> float:
    largest = float(states.states.abs().max()) * abs(states.scale)
    _check_finite(largest)
    return math.ldexp(1.0, -min(_LARGEST - math.frexp(largest)[1], _MOST_RAISED))


def _check_finite(number: float) -> None:
    if not math.isfinite(number):
        raise InputError("expected finite states and a finite head, got NaN or inf: the model is damaged")


def _width(n: int) -> int:
    """The width for n columns, padded so that rows do not begin on the same lines of a cache."""
    return n if n < _SMALL else (-(-n // _STEP) | 1) * _STEP


def check_targets(states: States, micro_batches: int) -> None:
    n, v = len(states.labels), len(states.head)
    if n == 0 or micro_batches < 1:
        raise InputError(f"expected a target and a micro-batch, got {n} and {micro_batches}: give more text")
    low, high = int(states.labels.min()), int(states.labels.max())
    if low < 0 or high >= v:
        raise InputError(f"expected targets from 0 to {v - 1}, got {low} to {high}: leave out ignored targets")


def _slices(v: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS) for start in range(0, v, _ROWS))


def row_blocks(parts: GradientParts) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Rows of pull, frequent, rare and squares, in blocks that fit a cache."""
    matrices = parts.pull, parts.frequent, parts.rare, parts.squares
    return ((rows, tuple(part[rows] for part in matrices)) for rows in _slices(len(parts.pull)))
