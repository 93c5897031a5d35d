"""The chunk backend: plain PyTorch, on the CPU and on a GPU. Logits of a few targets at a time, gradients on the way.

For a chunk with states h and logits z, d = softmax(z) - target is written over z; the chunk's gradients are d W and d' h.
With a gate G the head's gradient is of rank two off the targets,

    dW = diag(g1) D0' H0 + diag(g2) D1' H1 + sum over rare targets i of (1 - g2[y_i]) d_i,y_i e_y_i h_i',

with D0 the rows of targets that are not rare and D1 the others: so those come first, dW is scaled by g1 once, and only
the few rare targets are gated number by number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from uncone.cross_entropy.gates import Gates
from uncone.cross_entropy.options import CrossEntropyOptions
from uncone.errors import InputError
from uncone.memory import uninitialised, zeros

Tensor = torch.Tensor
_BUFFER_BYTES = 128 * 2**20
_FAINT = {torch.float32: 1e-30, torch.float64: 1e-290}
"""Below, a probability may have lost digits: denormal numbers are not far."""
_FEWEST = 64
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
    dtype: torch.dtype
    """Of the products."""
    sweep: "type[Sweep] | None" = None
    """Another way through the targets than `Sweep`."""

    def groups(self) -> tuple[Tensor, Tensor]:
        """Row numbers of the targets that are not rare, and of those that are; every target is common without a gate."""
        if self.gates is None:
            return self.valid.nonzero().flatten(), self.valid.new_empty(0, dtype=torch.int64)
        rare = self.gates[0][torch.where(self.valid, self.labels, 0)] & self.valid
        return (self.valid & ~rare).nonzero().flatten(), rare.nonzero().flatten()


# Chunks and rare rows are of sizes that only the data tells: a compiled model calls this as it is.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    """The loss of hidden (N, D) as a scalar, or (N,) with the reduction "none"."""
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, problem)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
        ctx.needs, ctx.problem = ctx.needs_input_grad[:3], problem
        with torch.autocast(hidden.device.type, enabled=False):
            if problem.options.reduction == "none":
                ctx.save_for_backward(hidden, weight, bias)
                return (problem.sweep or Sweep)(hidden, weight, bias, problem, (False, False, False)).run().losses
            found = (problem.sweep or Sweep)(hidden, weight, bias, problem, ctx.needs).run()
        ctx.found, ctx.share = found, share(problem, found.losses.device)
        ctx.dtypes = tuple(None if t is None else t.dtype for t in (hidden, weight, bias))
        total: Tensor = found.losses.sum(dtype=torch.float64) * ctx.share
        return total.to(found.losses.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the gradients of this loss are numbers without a graph of their own: create_graph=True would take them for "
                "constants; use torch.nn.functional.cross_entropy on the logits where second derivatives are wanted"
            )
        if ctx.problem.options.reduction == "none":
            hidden, weight, bias = ctx.saved_tensors
            dtypes = tuple(None if t is None else t.dtype for t in (hidden, weight, bias))
            with torch.autocast(hidden.device.type, enabled=False):
                found = (ctx.problem.sweep or Sweep)(hidden, weight, bias, ctx.problem, ctx.needs, factors=grad).run()
            return *_cast(found.gradients(), dtypes), None
        if ctx.found is None:
            raise RuntimeError(
                "the gradients of this loss were given out already: they are computed with the loss and kept once; "
                "compute the loss again instead of retain_graph=True"
            )
        found, ctx.found = ctx.found, None
        scale = grad.double() * ctx.share
        if scale.device.type != "cpu" or float(scale) != 1:
            for gradient in found.gradients():
                if gradient is not None:
                    gradient.mul_(scale.to(gradient.dtype))
        return *_cast(found.gradients(), ctx.dtypes), None


def share(problem: Problem, device: torch.device) -> Tensor:
    """What the sum is multiplied with, float64: 1, or 1 / items, and 0 where there are none."""
    if problem.options.reduction == "sum":
        return torch.ones((), dtype=torch.float64, device=device)
    items = problem.valid.sum() if problem.options.num_items is None else problem.options.num_items
    items = torch.as_tensor(items, dtype=torch.float64).to(device)
    return torch.where(items > 0, 1 / items, 0.0)


def _cast(gradients: tuple[Tensor | None, ...], dtypes: tuple[torch.dtype | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if g is None or t is None else g.to(t) for g, t in zip(gradients, dtypes, strict=True))


@dataclass
class _Found:
    losses: Tensor
    """(N,), 0 where ignored."""
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.hidden, self.weight, self.bias


class Sweep:
    """One pass over the targets. `factors` (N,) weight their gradients; without them every target counts 1."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        problem: Problem,
        needs: tuple[bool, bool, bool],
        *,
        factors: Tensor | None = None,
    ) -> None:
        self._options, self._problem, self._needs = problem.options, problem, needs
        self._hidden, self._weight = hidden.detach().to(problem.dtype), weight.detach().to(problem.dtype)
        self._exact = torch.float64 if problem.dtype == torch.float64 else torch.float32
        self._bias = None if bias is None else bias.detach().to(self._exact)
        self._factors = None if factors is None else factors.to(self._exact)
        self._vocabulary = weight.shape[0]
        n, d = hidden.shape
        device = hidden.device
        self._found = _Found(
            zeros((n,), self._exact, device),
            zeros((n, d), problem.dtype, device) if needs[0] else None,
            uninitialised(tuple(weight.shape), self._exact, device) if needs[1] else None,
            zeros((self._vocabulary,), self._exact, device) if needs[2] else None,
        )
        self._begun = False  # whether anything was written to the head's gradient

    def run(self) -> _Found:
        found, gates = self._found, self._problem.gates
        common, rare = self._problem.groups()
        self._allocate(max(len(common), len(rare)))
        for rows in self._cut(common):
            self._add(rows, None)
        if gates is not None and found.weight is not None and self._begun:
            found.weight.mul_(gates[1].to(found.weight.dtype)[:, None])
        for rows in self._cut(rare):
            self._add(rows, None if gates is None else gates[2])
        if found.weight is not None and not self._begun:
            found.weight.zero_()
        if found.hidden is not None and self._options.logit_scale != 1:
            found.hidden.mul_(self._options.logit_scale)
        refuse_nan(found.losses, self._hidden)
        return found

    def _allocate(self, most: int) -> None:
        v, device = self._vocabulary, self._hidden.device
        fitting = max(_FEWEST, _BUFFER_BYTES // (v * self._exact.itemsize) // _FEWEST * _FEWEST)
        self._chunk = max(1, min(self._options.chunk or fitting, most))
        self._logits = uninitialised((self._chunk, v), self._exact, device)
        low = self._problem.dtype != self._exact
        self._low = uninitialised((self._chunk, v), self._problem.dtype, device) if low else None
        self._tanh = None if self._options.softcap is None else uninitialised((self._chunk, v), self._exact, device)

    def _cut(self, rows: Tensor) -> Iterator[Tensor]:
        return iter(torch.split(rows, self._chunk) if len(rows) else ())

    def _add(self, rows: Tensor, gate: Tensor | None) -> None:
        """Add the loss and the gradients of the targets `rows`; `gate` (V,) is what pushes are multiplied with in the head's."""
        options, found, n = self._options, self._found, len(rows)
        h = self._hidden[rows]
        if options.logit_scale != 1:
            h = h * options.logit_scale
        y = self._problem.labels[rows][:, None]
        z = self._product(h, self._logits, self._low)
        if self._tanh is not None and options.softcap is not None:
            torch.tanh(z.div_(options.softcap), out=self._tanh[:n])
            torch.mul(self._tanh[:n], options.softcap, out=z)
        loss = -(1 - options.label_smoothing) * z.gather(1, y)
        if options.label_smoothing:
            loss -= options.label_smoothing / self._vocabulary * z.sum(dim=1, keepdim=True)
        log_sum = self._normalise(z, y, h)
        found.losses[rows] = (loss + log_sum + options.z_loss * log_sum.square())[:, 0]
        if any(self._needs):
            self._differentiate(z, y, log_sum, None if self._factors is None else self._factors[rows][:, None])
            self._multiply(z, h, rows, y, gate)

    def _normalise(self, z: Tensor, y: Tensor, h: Tensor) -> Tensor:
        """Turn logits into probabilities in place; the logarithms of their sums (n, 1)."""
        if z.device.type != "cpu":
            top, where = z.max(dim=1, keepdim=True)
            torch.softmax(z, dim=1, out=z)
            return top - z.gather(1, where).log()  # the largest probability is at least 1 / V: no underflow
        # One pass less: the target's logit and probability say the same, unless the probability has lost its digits.
        logit = z.gather(1, y)
        torch.softmax(z, dim=1, out=z)
        probability = z.gather(1, y)
        log_sum = logit - probability.log()
        faint = (probability < _FAINT[z.dtype]).nonzero()[:, 0]
        few = min(_FEWEST, self._chunk)
        for start in range(0, len(faint), few):
            rows = faint[start : start + few]
            again = self._product(
                h[rows], torch.empty_like(self._logits[:few]), None if self._low is None else torch.empty_like(self._low[:few])
            )
            if self._options.softcap is not None:
                again = again.div_(self._options.softcap).tanh_().mul_(self._options.softcap)
            log_sum[rows] = again.logsumexp(dim=1, keepdim=True)
        return log_sum

    def _product(self, h: Tensor, into: Tensor, low: Tensor | None) -> Tensor:
        """h W' + bias, in the first rows of `into`; `low` is where it is computed in a narrower dtype."""
        z = into[: len(h)]
        if low is not None:
            z.copy_(torch.mm(h, self._weight.T, out=low[: len(h)]))
        elif self._bias is not None:
            return torch.addmm(self._bias, h, self._weight.T, out=z)
        else:
            torch.mm(h, self._weight.T, out=z)
        return z if self._bias is None else z.add_(self._bias)

    def _differentiate(self, p: Tensor, y: Tensor, log_sum: Tensor, factors: Tensor | None) -> None:
        """Turn probabilities into d, the gradient of the losses by the products h W' + bias, in place."""
        options, one = self._options, torch.ones((), dtype=p.dtype, device=p.device)
        factors = one if factors is None else factors
        if options.z_loss or factors is not one:
            p.mul_((1 + 2 * options.z_loss * log_sum) * factors)
        if options.label_smoothing:
            p.sub_(factors * (options.label_smoothing / self._vocabulary))
        p.scatter_add_(1, y, (-(1 - options.label_smoothing) * factors).expand(y.shape))
        if self._tanh is not None:
            slope = self._tanh[: len(p)]
            p.mul_(slope.square_().neg_().add_(1))

    def _multiply(self, d: Tensor, h: Tensor, rows: Tensor, y: Tensor, gate: Tensor | None) -> None:
        found, low = self._found, self._low
        if found.bias is not None:
            found.bias += d.sum(0)
        if found.hidden is not None:
            found.hidden[rows] = torch.mm(d if low is None else low[: len(d)].copy_(d), self._weight)
        if found.weight is None:
            return
        if gate is not None:
            of_target = d.gather(1, y)
            d.mul_(gate.to(d.dtype)).scatter_(1, y, of_target)
        if low is None:
            found.weight.addmm_(d.T, h, beta=float(self._begun))
        elif self._begun:
            found.weight += torch.mm(low[: len(d)].copy_(d).T, h)
        else:
            found.weight.copy_(torch.mm(low[: len(d)].copy_(d).T, h))
        self._begun = True


def refuse_nan(losses: Tensor, hidden: Tensor) -> None:
    """Raise where NaN among the losses came from NaN among the states (N, D)."""
    if not bool(torch.isnan(losses).any()):
        return
    bad = torch.isnan(hidden).any(dim=1).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"expected hidden states without NaN, got {len(bad)} of {len(hidden)} with NaN, first at position "
            f"{int(bad[0])}: look for the layer that made it (torch.autograd.set_detect_anomaly helps)"
        )
