"""One pass over the targets, a chunk at a time: losses, and the gradients on the way.

For a chunk with states h and logits z, d = softmax(z) - target is written over z; the chunk's gradients are d W and d' h.
With a gate G the head's gradient is of rank two off the targets,

    dW = diag(g1) D0' H0 + diag(g2) D1' H1 + sum over rare targets i of (1 - g2[y_i]) d_i,y_i e_y_i h_i',

with D0 the rows of targets that are not rare and D1 the others: so those come first, dW is scaled by g1 once, and only
the few rare targets are gated number by number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from uncone.cross_entropy.finite import refuse_nan
from uncone.cross_entropy.gated_share import GatedShare
from uncone.cross_entropy.gates import Gates
from uncone.cross_entropy.options import CrossEntropyOptions
from uncone.cross_entropy.products import add_product, product
from uncone.cross_entropy.shard import Shard, whole
from uncone.memory import recycled, zeros

Tensor = torch.Tensor
_BUFFER_BYTES = {"cpu": 144 * 2**20, "other": 128 * 2**20}
_STEP = 32
_SMALL = 64
_FEWEST = 160
"""Targets in a chunk, however large the vocabulary: a product of fewer is slow."""


@dataclass(frozen=True)
class Problem:
    """What is to be computed, beside the tensors that have gradients."""

    options: CrossEntropyOptions
    labels: Tensor
    """(N,)"""
    valid: Tensor
    """(N,): which targets count."""
    gates: Gates | None
    """The rare ids of the whole vocabulary, and the factors of the head's rows at hand."""
    dtype: torch.dtype
    """Of the products."""
    sweep: "type[Sweep] | None" = None
    """Another way through the targets than `Sweep`."""
    shard: Shard | None = None
    """Which rows of the head are at hand, if not all."""
    record: Callable[[Tensor, Tensor], None] | None = None
    """Takes the sums of the gradient that was held back and of all, as `Gate` says."""

    def groups(self) -> tuple[Tensor, Tensor]:
        """Row numbers of the targets that are not rare, and of those that are; every target is common without a gate."""
        if self.gates is None:
            return self.valid.nonzero().flatten(), self.valid.new_empty(0, dtype=torch.int64)
        rare = self.gates[0][torch.where(self.valid, self.labels, 0)] & self.valid
        return (self.valid & ~rare).nonzero().flatten(), rare.nonzero().flatten()


@dataclass
class Found:
    """What a pass gives."""

    losses: Tensor
    """(N,), 0 where ignored."""
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Those that were wanted."""
        return self.hidden, self.weight, self.bias


class Sweep:
    """One pass over the targets. `factors` (N,) weight their gradients; without them every target counts 1.

    With `recorded`, the problem is told how much of the gradient its gate held back.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        problem: Problem,
        needs: tuple[bool, bool, bool],
        *,
        factors: Tensor | None = None,
        recorded: bool = False,
    ) -> None:
        self._options, self._problem, self._needs = problem.options, problem, needs
        self._hidden, self._weight = hidden.detach().to(problem.dtype), weight.detach().to(problem.dtype)
        self._exact = torch.float64 if problem.dtype == torch.float64 else torch.float32
        self._bias = None if bias is None else bias.detach().to(self._exact)
        self._factors = None if factors is None else factors.to(self._exact)
        self._shard = problem.shard or whole(weight.shape[0])
        n, d = hidden.shape
        device = hidden.device
        self._found = Found(
            zeros((n,), self._exact, device),
            zeros((n, d), self._exact, device) if needs[0] else None,
            recycled(tuple(weight.shape), self._exact, device) if needs[1] else None,
            zeros((weight.shape[0],), self._exact, device) if needs[2] else None,
        )
        self._low: Tensor | None = None
        self._tanh: Tensor | None = None
        self._begun = False  # whether anything was written to the head's gradient
        self._gated: GatedShare | None = None
        if recorded and problem.gates is not None:
            signed = bool(self._options.label_smoothing or self._options.z_loss)
            self._gated = GatedShare(problem.gates, self._shard, signed=signed)

    def run(self) -> Found:
        """The pass.

        Raises:
            InputError: NaN among the losses that came with the tensors.
        """
        common, rare = self._problem.groups()
        self._allocate(max(len(common), len(rare)))
        self._add_all(common, rare)
        refuse_nan(self._found.losses, self._hidden, self._weight, self._bias, self._shard)
        self._finish()
        return self._found

    def _add_all(self, common: Tensor, rare: Tensor) -> None:
        found, gates = self._found, self._problem.gates
        for rows in self._cut(common):
            self._add(rows, None)
        if gates is not None and found.weight is not None and self._begun:
            found.weight.mul_(gates[1].to(found.weight.dtype)[:, None])
        for rows in self._cut(rare):
            self._add(rows, None if gates is None else gates[2])

    def _finish(self) -> None:
        found = self._found
        if found.weight is not None and not self._begun:
            found.weight.zero_()
        if found.hidden is not None:
            if self._options.logit_scale != 1:
                found.hidden.mul_(self._options.logit_scale)
            self._shard.sum(found.hidden)
        if self._gated is not None and self._problem.record is not None:
            self._problem.record(*self._gated.sums())

    def _allocate(self, most: int) -> None:
        v, device = self._weight.shape[0], self._hidden.device
        buffer = _BUFFER_BYTES["cpu" if device.type == "cpu" else "other"]
        steps = buffer // (self._shard.largest * self._exact.itemsize) // _STEP
        fitting = max(_FEWEST, (steps - 1 + steps % 2) * _STEP)  # an odd number of steps, as `_width` says
        self._chunk = max(1, min(self._options.chunk or fitting, most))
        size, low = _width(self._chunk) * v, self._problem.dtype != self._exact
        self._logits = recycled((size,), self._exact, device)
        self._low = recycled((size,), self._problem.dtype, device) if low else None
        self._tanh = None if self._options.softcap is None else recycled((size,), self._exact, device)

    def _matrix(self, buffer: Tensor, n: int) -> Tensor:
        """(n, V) in `buffer`. On the CPU a column is contiguous: the product that fills it is a third faster so, if not of 16 bits."""
        v, width = self._weight.shape[0], _width(n)
        by_columns = buffer.device.type == "cpu" and self._low is None
        return buffer[: width * v].view(v, width)[:, :n].T if by_columns else buffer[: n * v].view(n, v)

    def _cut(self, rows: Tensor) -> Iterator[Tensor]:
        return iter(torch.split(rows, self._chunk) if len(rows) else ())

    def _add(self, rows: Tensor, gate: Tensor | None) -> None:
        """Add the loss and the gradients of the targets `rows`; `gate` (V,) is what pushes are multiplied with in the head's."""
        options, found = self._options, self._found
        h = self._hidden[rows]
        if options.logit_scale != 1:
            h = h * options.logit_scale
        at, own = self._shard.place(self._problem.labels[rows][:, None])
        z = self._logits_of(h)
        loss = self._linear_part(z, at, own)
        log_sum = self._normalise(z)
        found.losses[rows] = (loss + log_sum + options.z_loss * log_sum * log_sum)[
            :, 0
        ]  # 0 times a square that overflows is NaN
        if any(self._needs) or self._gated is not None:
            factors = None if self._factors is None else self._factors[rows][:, None]
            self._differentiate(z, at, own, log_sum, factors, rare=gate is not None)
        if any(self._needs):
            self._multiply(z, h, rows, at, own, gate)

    def _logits_of(self, h: Tensor) -> Tensor:
        z = self._matrix(self._logits, len(h))
        if self._low is not None:
            z.copy_(torch.mm(h, self._weight.T, out=self._matrix(self._low, len(h))))
        else:
            torch.mm(h, self._weight.T, out=z)
        if self._bias is not None:
            z.add_(self._bias)
        if self._tanh is not None and self._options.softcap is not None:
            tanh = self._matrix(self._tanh, len(h))
            torch.tanh(z.div_(self._options.softcap), out=tanh)
            torch.mul(tanh, self._options.softcap, out=z)
        return z

    def _linear_part(self, z: Tensor, at: Tensor, own: Tensor) -> Tensor:
        """What the loss takes from the logits themselves: their mean over the target's distribution (n, 1), negative."""
        smoothing = self._options.label_smoothing
        loss = torch.where(own, -(1 - smoothing) * z.gather(1, at), 0.0)
        if smoothing:
            loss -= smoothing / self._shard.total * z.sum(dim=1, keepdim=True)
        return self._shard.sum(loss)

    def _normalise(self, z: Tensor) -> Tensor:
        """Turn logits into probabilities in place; the logarithms of their sums (n, 1)."""
        top = z.amax(dim=1, keepdim=True)
        if z.is_contiguous():
            torch.softmax(z, dim=1, out=z)
        else:  # of what is not contiguous it would make a copy: whole columns, with what they are padded with
            width = z.stride(1)
            columns = z.as_strided((z.shape[1], width), (width, 1))
            torch.softmax(columns, dim=0, out=columns)
        own = (
            top - z.amax(dim=1, keepdim=True).log_()
        )  # the largest probability is at least 1 / V: no underflow
        if self._shard.group is None:
            return own
        log_sum = self._shard.log_sum(own)
        z.mul_((own - log_sum).exp_())
        return log_sum

    def _differentiate(
        self, p: Tensor, at: Tensor, own: Tensor, log_sum: Tensor, factors: Tensor | None, *, rare: bool
    ) -> None:
        """Turn probabilities into d, the gradient of the losses by the products h W' + bias, in place."""
        options, one = self._options, torch.ones((), dtype=p.dtype, device=p.device)
        factors = one if factors is None else factors
        if options.z_loss or factors is not one:
            p.mul_((1 + 2 * options.z_loss * log_sum) * factors)
        if options.label_smoothing:
            p.sub_(factors * (options.label_smoothing / self._shard.total))
        p.scatter_add_(1, at, torch.where(own, -(1 - options.label_smoothing) * factors, 0.0))
        if self._tanh is not None:
            slope = self._matrix(self._tanh, len(p))
            p.mul_(slope.square_().neg_().add_(1))
        if self._gated is not None:
            self._gated.add(p, at, own, rare=rare)

    def _multiply(
        self, d: Tensor, h: Tensor, rows: Tensor, at: Tensor, own: Tensor, gate: Tensor | None
    ) -> None:
        found = self._found
        if found.bias is not None:
            found.bias += d.sum(0)
        if found.hidden is not None:
            found.hidden[rows] = product(self._narrow(d), self._weight).to(self._exact)
        if found.weight is None:
            return
        if gate is not None:
            gate = gate.to(d.dtype)
            of_target = d.gather(1, at) * torch.where(own, 1.0, gate[at])
            d.mul_(gate).scatter_(1, at, of_target)
        # The CPU multiplies what is wide; elsewhere products of what is narrow are summed in more digits.
        add_product(found.weight, (d if d.device.type == "cpu" else self._narrow(d)).T, h, begun=self._begun)
        self._begun = True

    def _narrow(self, d: Tensor) -> Tensor:
        """d in the dtype of the products."""
        return d if self._low is None else self._matrix(self._low, len(d)).copy_(d)


def _width(n: int) -> int:
    """Of a column of n numbers with its padding. A vector register's worth times an odd number is fastest: whole cache lines, and
    columns that do not all begin on the same lines of a cache. Small products want none."""
    return n if n < _SMALL else (-(-n // _STEP) | 1) * _STEP
