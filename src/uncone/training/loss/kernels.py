"""The triton backend: the chunks of `chunked`, with one program per row."""

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl

from uncone.tensors import empty
from uncone.training.loss.chunked import Sweep, add_product
from uncone.training.loss.options import CrossEntropyOptions

Tensor = torch.Tensor
_FEWEST = 64


class FusedSweep(Sweep):
    """Logits in the dtype of the products; the kernels replace them by the gradient."""

    def _allocate(self, most: int) -> None:
        v, d = self._weight.shape
        # The head's gradient is read and written once per chunk, so chunks grow with it.
        fitting = max(_FEWEST, 2**27 // (v * self._weight.itemsize) // _FEWEST * _FEWEST, d // 2)
        self._chunk = max(1, min(self._options.chunk or fitting, most))
        self._logits = empty((self._chunk, v), self._weight.dtype, self._weight.device)

    def _add(self, rows: Tensor, gate: Tensor | None) -> None:
        options, y, h = self._options, self._problem.labels[rows], self._hidden[rows]
        h = h if options.logit_scale == 1 else h * options.logit_scale
        d = torch.mm(h, self._weight.T, out=self._logits[: len(rows)])
        factors = None if self._factors is None else self._factors[rows]
        wanted = any(self._needs) or self._gated is not None
        notes = None if self._notes is None else torch.empty(len(rows), 3, dtype=torch.float32, device=d.device)
        of_rows = losses(d, y, self._bias, factors, options, wanted, classes=self._of_classes, notes=notes)
        self._losses[rows] = of_rows if self._of_tokens is None else of_rows * self._of_tokens[rows]
        if self._notes is not None and notes is not None:
            log_sum, of_target, right = notes.split(1, dim=1)
            square = options.z_loss * log_sum * log_sum
            self._notes.add(torch.cat([log_sum - of_target, square, right, log_sum], dim=1))
        if self._gated is not None:
            self._gated.add(d, *self._shard.place(y[:, None]), rare=gate is not None)
        if self._of_bias is not None:
            self._of_bias += d.sum(dim=0, dtype=self._exact)
        if self._of_hidden is not None:
            self._of_hidden[rows] = torch.mm(d, self._weight).to(self._exact)
        if self._of_weight is not None:
            if gate is not None:
                gate_rows(d, y, gate)
            add_product(self._of_weight, d.T, h, begun=self._begun)
            self._begun = True


def losses(
    z: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    factors: Tensor | None,
    options: CrossEntropyOptions,
    write: bool,
    *,
    classes: Tensor | None = None,
    notes: Tensor | None = None,
) -> Tensor:
    """The losses (n,) in float32 of the products z (n, V); with `write`, z becomes their gradient by z. `factors` (n,)
    weight the gradient, `classes` (V,) the classes. z holds the scale already, not the bias (V,) and the cap. `notes`
    (n, 3) gets each target's log-sum-exp, its logit, and whether no logit is higher."""
    (n, v), cap, smoothing = z.shape, options.softcap, options.label_smoothing
    each = torch.empty(n, dtype=torch.float32, device=z.device)
    whole = (None if t is None else t.contiguous() for t in (bias, classes))
    tensors = z, z.stride(0), labels, *whole, factors, each, notes
    flags = {"CAPPED": cap is not None, "SMOOTHED": smoothing > 0, "WRITE": write} | _shape(v)
    with _on(z.device):
        differentiate[(n,)](*tensors, v, cap or 1.0, smoothing, options.z_loss, **flags)
    return each


def gate_rows(d: Tensor, labels: Tensor, factors: Tensor) -> None:
    """Multiply column v of d (n, V) by factors[v] in place, except, in each row, the column of its label."""
    (n, v), shape = d.shape, _shape(d.shape[1])
    with _on(d.device):
        _gate[(n, triton.cdiv(v, shape["BLOCK"]))](d, d.stride(0), labels, factors.contiguous(), v, **shape)


def _shape(v: int) -> dict[str, int]:
    block = min(8192, triton.next_power_of_2(v))
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 512))}


def _on(device: torch.device) -> AbstractContextManager[object]:
    """The GPU that holds the tensors: Triton launches on the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@triton.jit
def _tanh(x):
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    # Near 0 the quotient loses digits.
    s = tl.minimum(size, 0.25)
    s2 = s * s
    series = s * (1.0 + s2 * (-1.0 / 3.0 + s2 * (2.0 / 15.0 + s2 * (-17.0 / 315.0 + s2 * (62.0 / 2835.0)))))
    tanh = tl.where(size < 0.25, series, (1.0 - e) / (1.0 + e))
    return tl.where(x < 0.0, -tanh, tanh)


@triton.jit
def _logits(z_ptr, bias_ptr, at, inside, cap, CAPPED: tl.constexpr):
    z = tl.load(z_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        z += tl.load(bias_ptr + at, mask=inside, other=0.0)
    if CAPPED:
        z = cap * _tanh(z / cap)
    return tl.where(inside, z, float("-inf"))


@triton.jit
def differentiate(
    z_ptr,
    row_stride,
    labels_ptr,
    bias_ptr,
    classes_ptr,
    factors_ptr,
    losses_ptr,
    notes_ptr,
    columns,
    cap,
    smoothing,
    z_loss,
    CAPPED: tl.constexpr,
    SMOOTHED: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # rows times columns may pass 2^31
    z_ptr += row * row_stride
    y = tl.load(labels_ptr + row)
    of_target = _logits(z_ptr, bias_ptr, y, y < columns, cap, CAPPED)
    of_class = 1.0
    if classes_ptr is not None:
        of_class = tl.load(classes_ptr + y)
    top, total, spread, weights = -3.0e38, 0.0, 0.0, 0.0  # finite: a whole block of -inf must not give NaN
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = _logits(z_ptr, bias_ptr, at, at < columns, cap, CAPPED)
        higher = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher), 0)
        top = higher
        if SMOOTHED:
            z = tl.where(at < columns, z, 0.0)
            if classes_ptr is not None:
                c = tl.load(classes_ptr + at, mask=at < columns, other=0.0)
                z *= c
                weights += tl.sum(c, 0)
            spread += tl.sum(z, 0)
    log_sum = top + tl.log(total)
    mass = of_class
    if classes_ptr is not None:
        mass = (1.0 - smoothing) * of_class + smoothing / columns * weights
    loss = mass * log_sum - (1.0 - smoothing) * of_class * of_target + of_class * z_loss * log_sum * log_sum
    if SMOOTHED:
        loss -= smoothing / columns * spread
    tl.store(losses_ptr + row, loss)
    if notes_ptr is not None:
        notes_ptr += row * 3
        tl.store(notes_ptr, log_sum)
        tl.store(notes_ptr + 1, of_target)
        tl.store(notes_ptr + 2, tl.where((of_target >= top) & (log_sum - log_sum == 0.0), 1.0, 0.0))
    if WRITE:
        tl.debug_barrier()  # every thread has read the target's logit
        of_sum = (mass + 2.0 * z_loss * of_class * log_sum) / total
        for start in range(0, columns, BLOCK):
            at = start + tl.arange(0, BLOCK)
            z = _logits(z_ptr, bias_ptr, at, at < columns, cap, CAPPED)
            d = tl.exp(z - top) * of_sum
            if classes_ptr is not None and SMOOTHED:
                d -= smoothing / columns * tl.load(classes_ptr + at, mask=at < columns, other=0.0)
            else:
                d -= smoothing / columns
            d = tl.where(at == y, d - (1.0 - smoothing) * of_class, d)
            if CAPPED:
                d *= tl.where(at < columns, 1.0 - (z / cap) * (z / cap), 0.0)
            if factors_ptr is not None:
                d *= tl.load(factors_ptr + row)
            tl.store(z_ptr + at, d, mask=at < columns)


@triton.jit
def _gate(d_ptr, row_stride, labels_ptr, factors_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d_ptr += row * row_stride
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(d_ptr + at, mask=at < columns)
    factor = tl.load(factors_ptr + at, mask=at < columns)
    tl.store(d_ptr + at, tl.where(at == tl.load(labels_ptr + row), d, d * factor), mask=at < columns)
