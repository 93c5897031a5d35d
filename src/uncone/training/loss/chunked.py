"""The chunk backend, in plain PyTorch: one pass over the targets gives losses and gradients.

For a chunk with states h and logits z, d = softmax(z) - target is written over z; the chunk's gradients are d W and d'
h. With a gate G the head's gradient has rank two outside the targets' own entries,

    dW = diag(g1) D0' H0 + diag(g2) D1' H1 + sum over rare targets i of (1 - g2[y_i]) d_i,y_i e_y_i h_i',

with D0 the rows of targets that are not rare and D1 the rare ones. So common targets come first, dW is scaled by g1
once, and only the few rare targets are gated number by number. The backward pass only scales the gradients.

Class weights c and the weight t of a token make the target's distribution q_v = t c_v ((1 - E) [v = y] + E / V), whose
sum t m replaces 1; t c_y multiplies the z loss.
"""

from typing import Any

import torch

from uncone.tensors import empty, zeros
from uncone.training.loss.problem import GatedShare, Problem, refuse_again, refuse_nan
from uncone.training.loss.stats import Notes

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
_STEP = 32
_SMALL = 64
_FEWEST = 160  # targets in a chunk: a product of fewer is slow
_FEW = 16  # rows below which a product of transposes takes ten times as long


class Sweep:
    """One pass over the targets. `factors` (N,) weight their gradients. If `recorded`, the problem records how much of
    the gradient its gate held back; if `noted`, the numbers of its targets."""

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
        noted: bool = False,
    ) -> None:
        self._options, self._problem, self._needs = problem.options, problem, needs
        self._hidden, self._weight = hidden.detach().to(problem.dtype), weight.detach().to(problem.dtype)
        self._exact = torch.promote_types(problem.dtype, torch.float32)
        self._bias = None if bias is None else bias.detach().to(self._exact)
        self._shard = problem.shard
        of_classes, of_tokens = (
            None if t is None else t.detach().to(self._exact) for t in (problem.class_weights, problem.token_weights)
        )
        self._of_classes, self._of_tokens = of_classes, of_tokens
        if factors is not None and of_tokens is not None:
            of_tokens = of_tokens * factors
        elif factors is not None:
            of_tokens = factors.to(self._exact)
        self._factors = of_tokens  # of the gradients
        n, d = hidden.shape
        v, device = weight.shape[0], hidden.device
        self._losses = zeros((n,), self._exact, device)  # (N,), 0 where ignored
        self._of_hidden = zeros((n, d), self._exact, device) if needs[0] else None
        self._of_weight = empty((v, d), self._exact, device) if needs[1] else None
        self._of_bias = zeros((v,), self._exact, device) if needs[2] else None
        self._begun = False  # nothing was written to the head's gradient yet
        self._gated: GatedShare | None = None
        if recorded and problem.gates is not None:
            signed = bool(self._options.label_smoothing or self._options.z_loss or self._of_tokens is not None)
            self._gated = GatedShare(problem.gates, self._shard, signed=signed)
        self._notes = Notes(device) if noted and problem.note is not None else None

    def run(self) -> tuple[Tensor, Gradients]:
        gates, (common, rare) = self._problem.gates, self._problem.groups()
        self._allocate(max(len(common), len(rare)))
        for rows in self._cut(common):
            self._add(rows, None)
        if gates is not None and self._of_weight is not None and self._begun:
            self._of_weight.mul_(gates[1].to(self._exact)[:, None])
        for rows in self._cut(rare):
            self._add(rows, None if gates is None else gates[2])
        refuse_nan(self._losses, self._hidden, self._weight, self._bias, self._shard)
        if self._of_weight is not None and not self._begun:
            self._of_weight.zero_()
        if self._of_hidden is not None:
            if self._options.logit_scale != 1:
                self._of_hidden.mul_(self._options.logit_scale)
            self._shard.sum(self._of_hidden)
        if self._gated is not None and self._problem.record is not None:
            self._problem.record(*self._gated.sums())
        if self._notes is not None and self._problem.note is not None:
            self._problem.note(self._notes.numbers(self._problem.valid.sum()))
        return self._losses, (self._of_hidden, self._of_weight, self._of_bias)

    def _cut(self, rows: Tensor) -> tuple[Tensor, ...]:
        return torch.split(rows, self._chunk) if len(rows) else ()

    def _allocate(self, most: int) -> None:
        v, device = self._weight.shape[0], self._hidden.device
        steps = (144 if device.type == "cpu" else 128) * 2**20 // (self._shard.largest * self._exact.itemsize) // _STEP
        fitting = max(_FEWEST, (steps - 1 + steps % 2) * _STEP)  # an odd number of steps, as `_width` says
        self._chunk = max(1, min(self._options.chunk or fitting, most))
        size, low = _width(self._chunk) * v, self._problem.dtype != self._exact
        self._logits = empty((size,), self._exact, device)
        self._low = empty((size,), self._problem.dtype, device) if low else None
        self._tanh = None if self._options.softcap is None else empty((size,), self._exact, device)

    def _matrix(self, buffer: Tensor, n: int) -> Tensor:
        """A matrix (n, V) in `buffer`; on the CPU by columns, which makes products that are not of 16 bits a third
        faster."""
        v, width = self._weight.shape[0], _width(n)
        by_columns = buffer.device.type == "cpu" and self._low is None
        return buffer[: width * v].view(v, width)[:, :n].T if by_columns else buffer[: n * v].view(n, v)

    def _add(self, rows: Tensor, gate: Tensor | None) -> None:  # `gate` (V,) multiplies the head's gradients
        options, h = self._options, self._hidden[rows]
        if options.logit_scale != 1:
            h = h * options.logit_scale
        labels = self._problem.labels[rows][:, None]
        at, own = self._shard.place(labels)
        z = self._logits_of(h)
        of_class, mass = self._masses(labels)
        of_target, loss = self._linear_part(z, at, own, of_class)
        top, log_sum = self._normalise(z)
        square = options.z_loss * log_sum * log_sum  # in this order: 0 times a square that overflows is NaN
        loss = (loss + mass * log_sum + of_class * square)[:, 0]
        self._losses[rows] = loss if self._of_tokens is None else loss * self._of_tokens[rows]
        if self._notes is not None:
            right = ((of_target >= self._shard.highest(top)) & log_sum.isfinite()).to(loss.dtype)
            self._notes.add(torch.cat([log_sum - of_target, square, right, log_sum], dim=1))
        if any(self._needs) or self._gated is not None:
            slope = mass if not options.z_loss else mass + 2 * options.z_loss * of_class * log_sum
            self._differentiate(z, rows, at, own, of_class, slope, rare=gate is not None)
        if any(self._needs):
            self._multiply(z, h, rows, at, own, gate)

    def _masses(self, labels: Tensor) -> tuple[Tensor | float, Tensor | float]:
        """The weight of each target's class, and the sum of its distribution, (n, 1) or 1."""
        if self._of_classes is None:
            return 1.0, 1.0
        of_class, smoothing = self._of_classes[labels], self._options.label_smoothing
        return of_class, (1 - smoothing) * of_class + smoothing * self._of_classes.mean()

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

    def _linear_part(self, z: Tensor, at: Tensor, own: Tensor, of_class: Tensor | float) -> tuple[Tensor, Tensor]:
        """The targets' logits (n, 1), and minus the sum of all logits weighted by the targets' distributions (n, 1)."""
        smoothing, parts = self._options.label_smoothing, [torch.where(own, z.gather(1, at), 0.0)]
        if smoothing:
            classes = self._classes_here()
            parts.append(z.sum(dim=1, keepdim=True) if classes is None else z.mv(classes)[:, None])
        of_target, *spread = torch.split(self._shard.sum(torch.cat(parts, dim=1)), 1, dim=1)
        loss = -(1 - smoothing) * of_class * of_target
        return of_target, loss - smoothing / self._shard.total * spread[0] if spread else loss

    def _classes_here(self) -> Tensor | None:
        return None if self._of_classes is None else self._of_classes[self._shard.start : self._shard.stop]

    def _normalise(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Turn logits into probabilities in place; returns the largest here and the logarithms of the sums (n, 1)."""
        top = z.amax(dim=1, keepdim=True)
        if z.is_contiguous():
            torch.softmax(z, dim=1, out=z)
        else:  # whole columns with their padding, because torch would copy what is not contiguous
            width = z.stride(1)
            columns = z.as_strided((z.shape[1], width), (width, 1))
            torch.softmax(columns, dim=0, out=columns)
        # The largest probability is at least 1 / V: no underflow.
        own = top - z.amax(dim=1, keepdim=True).log_()
        if self._shard.group is None:
            return top, own
        highest = self._shard.highest(own.clone())
        log_sum = highest + self._shard.sum((own - highest).exp_()).log_()
        z.mul_((own - log_sum).exp_())
        return top, log_sum

    def _differentiate(
        self,
        p: Tensor,
        rows: Tensor,
        at: Tensor,
        own: Tensor,
        of_class: Tensor | float,
        of_sum: Tensor | float,
        *,
        rare: bool,
    ) -> None:
        """Turn probabilities into d, the gradient of the losses by the products h W' + bias, in place; `of_sum` is the
        losses' gradient by the log-sum-exp."""
        smoothing, factors = self._options.label_smoothing, torch.ones((), dtype=p.dtype, device=p.device)
        if self._factors is not None:
            factors = self._factors[rows][:, None]
        if isinstance(of_sum, Tensor) or self._factors is not None:
            p.mul_(of_sum * factors)
        if smoothing and (classes := self._classes_here()) is not None:
            p.addr_(factors.expand(len(p), 1)[:, 0], classes, alpha=-smoothing / self._shard.total)
        elif smoothing:
            p.sub_(factors * (smoothing / self._shard.total))
        p.scatter_add_(1, at, torch.where(own, -(1 - smoothing) * of_class * factors, 0.0))
        if self._tanh is not None:
            slope = self._matrix(self._tanh, len(p))
            p.mul_(slope.square_().neg_().add_(1))
        if self._gated is not None:
            self._gated.add(p, at, own, rare=rare)

    def _multiply(self, d: Tensor, h: Tensor, rows: Tensor, at: Tensor, own: Tensor, gate: Tensor | None) -> None:
        if self._of_bias is not None:
            self._of_bias += d.sum(0)
        if self._of_hidden is not None:
            narrow = self._narrow(d)  # contiguous by columns where d is, which saves up to a tenth of the time
            by_rows = len(d) < _FEW or narrow.is_contiguous()
            product = torch.mm(narrow, self._weight) if by_rows else torch.mm(self._weight.T, narrow.T).T
            self._of_hidden[rows] = product.to(self._exact)
        if self._of_weight is None:
            return
        if gate is not None:
            gate = gate.to(d.dtype)
            of_target = d.gather(1, at) * torch.where(own, 1.0, gate[at])
            d.mul_(gate).scatter_(1, at, of_target)
        # The CPU multiplies wide numbers; elsewhere products of narrow ones are summed in more digits.
        d = d if d.device.type == "cpu" else self._narrow(d)
        add_product(self._of_weight, d.T, h, begun=self._begun)
        self._begun = True

    def _narrow(self, d: Tensor) -> Tensor:
        return d if self._low is None else self._matrix(self._low, len(d)).copy_(d)


def _width(n: int) -> int:
    """The padded length of a column of n numbers: a vector register's worth times an odd number, because columns that
    all begin on the same cache lines are slow."""
    return n if n < _SMALL else (-(-n // _STEP) | 1) * _STEP


def add_product(total: Tensor, a: Tensor, b: Tensor, *, begun: bool) -> None:
    """total += a b, or total = a b before the first; of 16-bit factors, no product is rounded before it is added where
    the device can do that."""
    if a.device.type == "cpu":
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=float(begun))
    elif a.dtype == total.dtype:
        total.addmm_(a, b, beta=float(begun))
    elif (
        a.device.type != "cuda"
        or torch.version.hip is not None
        or torch.__version__ < "2.8"
        or torch.cuda.get_device_capability(a.device) < (8, 0)
    ):  # which cannot add products of 16 bits in float32
        total.copy_(total + torch.mm(a, b) if begun else torch.mm(a, b))
    elif begun:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        torch.mm(a, b, out_dtype=total.dtype, out=total)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem, sweep: type[Sweep]
    ) -> Tensor:
        ctx.needs, ctx.problem, ctx.sweep = ctx.needs_input_grad[:3], problem, sweep
        ctx.dtypes = tuple(None if t is None else t.dtype for t in (hidden, weight, bias))
        ctx.later = problem.options.reduction == "none"
        needs = (False, False, False) if ctx.later else ctx.needs
        recorded = problem.record is not None and ctx.needs[1]
        with torch.autocast(hidden.device.type, enabled=False):
            first = sweep(hidden, weight, bias, problem, needs, recorded=recorded, noted=True)
            losses, ctx.gradients = first.run()
        if ctx.later:
            ctx.save_for_backward(hidden, weight, bias)
            return losses
        ctx.share = problem.share(losses.device)
        total: Tensor = losses.sum(dtype=torch.float64) * ctx.share
        return total.to(losses.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_again(given=False)
        if ctx.later:
            hidden, weight, bias = ctx.saved_tensors
            with torch.autocast(hidden.device.type, enabled=False):
                _, gradients = ctx.sweep(hidden, weight, bias, ctx.problem, ctx.needs, factors=grad).run()
        else:
            if (gradients := ctx.gradients) is None:
                how = "give the first backward pass retain_graph=True, or compute the loss again"
                raise RuntimeError(f"the gradients of this loss were used already: {how}")
            scale = grad.double() * ctx.share
            if _keeps_the_graph():
                gradients = [None if g is None else g * scale.to(g.dtype) for g in gradients]
            else:
                ctx.gradients = None
                if scale.device.type != "cpu" or float(scale) != 1:
                    for gradient in gradients:
                        if gradient is not None:
                            gradient.mul_(scale.to(gradient.dtype))
        given = (None if g is None else g.to(t) for g, t in zip(gradients, ctx.dtypes, strict=True))
        return *given, None, None


def _keeps_the_graph() -> bool:
    """Whether this backward pass runs with retain_graph=True, as far as this torch can report: another may follow."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return keeps is None or bool(keeps())


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem, sweep: type[Sweep] = Sweep
) -> Tensor:
    """The loss of hidden (N, D) as a scalar, or (N,) with the reduction "none"."""
    if not torch.is_grad_enabled():  # inside apply it is always off
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, problem, sweep)  # type: ignore[no-untyped-call]
    return loss
