"""The kernels of other packages as backends, gated without changing the kernels; and Triton's.

Targets that are not rare go through the kernel with the head's gradient multiplied by g1 on its way out, rare targets
with g2. Then row y_i gets back the part that g2 took from the row of the rare target itself:

    (1 - g2[y_i]) d_i,y_i h_i,    d_i,y_i = exp(-nll_i) - 1 where nothing is smoothed or capped

The gradients of the states and of the bias do not pass a gate.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from uncone.errors import InputError
from uncone.training.loss import chunked
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import Problem, refuse_again, refuse_nan

Tensor = torch.Tensor
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, CrossEntropyOptions], Tensor]
"""(states, head, labels, bias, options) to the sum of the losses, or one loss per target with "none"."""
_LACKS = {
    "wrap:liger": ("chunk",),
    "wrap:cce": ("label_smoothing", "z_loss", "chunk"),
    "wrap:torch": ("label_smoothing", "z_loss", "softcap"),
}


def by_triton(hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    kernels = _package("uncone.training.loss.kernels", "triton")
    _refuse_cpu(kernels.differentiate, hidden.device, "triton")
    _refuse_float64(problem)
    loss: Tensor = chunked.cross_entropy(hidden, weight, bias, problem, kernels.FusedSweep)
    return loss


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    options, backend = problem.options, problem.options.backend
    for name in _LACKS[backend]:
        if (value := getattr(options, name)) != (default := getattr(CrossEntropyOptions, name)):
            got = f"got {value}: use backend='chunk' or 'triton'"
            raise InputError(f"expected {name}={default} with the backend {backend!r}, which has no such option, {got}")
    if backend != "wrap:torch":
        _refuse_float64(problem)
    kernel: Kernel = {"wrap:liger": _liger, "wrap:cce": _cce, "wrap:torch": _torch}[backend]
    with torch.autocast(hidden.device.type, enabled=False):
        loss = _loss(kernel, hidden, weight, bias, problem)
    refuse_nan(loss.detach(), hidden.detach(), None, None, problem.shard)
    return _for_one_backward(loss, kept=options.reduction != "none")


def _loss(kernel: Kernel, hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    options, labels, gates = problem.options, problem.labels, problem.gates
    each, (common, rare) = options.reduction == "none", problem.groups()
    inner = options if each else replace(options, reduction="sum", num_items=None)
    h, w = hidden.to(problem.dtype), weight.to(problem.dtype)
    b = None if bias is None else bias.to(problem.dtype)
    h = h if options.logit_scale == 1 else h * options.logit_scale
    parts = []
    if len(common):
        states = h if len(common) == len(h) else h[common]
        head = w if gates is None else _scale_rows(w, gates[1])
        parts.append((common, kernel(states, head, labels[common], b, inner)))
    if len(rare) and gates is not None:
        parts.append((rare, _of_rare(kernel, h[rare], w, labels[rare], b, inner, gates[2])))
    exact = torch.promote_types(h.dtype, torch.float32)
    losses = torch.zeros(len(h) if each else 1, dtype=exact, device=h.device)
    for rows, part in parts:
        part = part.to(exact)
        losses = losses.index_copy(0, rows, part) if each else losses + part.sum()
    if not parts:  # no target: the loss is 0, and so are its gradients
        losses = losses + sum(t[:0].sum() for t in (h, w, b) if t is not None)
    return losses if each else (losses[0] * problem.share(h.device)).to(exact)


def _of_rare(
    kernel: Kernel, h: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, options: CrossEntropyOptions, gate: Tensor
) -> Tensor:
    """The losses (n,); `gate` (V,) scales the gradient of every row but the target's own."""
    each = replace(options, reduction="none")
    losses = kernel(h, _scale_rows(w, gate), y, bias, each)
    if not (w.requires_grad and torch.is_grad_enabled()):
        return losses
    exact = torch.promote_types(h.dtype, torch.float32)
    logits = (h.detach().to(exact) * torch.nn.functional.embedding(y, w).to(exact)).sum(dim=1)
    with torch.no_grad():
        nll = losses
        if options.label_smoothing or options.z_loss:
            nll = kernel(h.detach(), w.detach(), y, bias, replace(each, label_smoothing=0.0, z_loss=0.0))
        z = logits if bias is None else logits + bias[y]
        taken = (1 - gate[y]).to(exact) * _of_target(nll.to(exact), z, len(w), options)
    return losses + taken * (logits - logits.detach())


def _of_target(nll: Tensor, z: Tensor, vocabulary: int, options: CrossEntropyOptions) -> Tensor:
    """The gradient (n,) of the loss by the target's logit z before a cap; `nll` is the plain loss."""
    slope: Tensor | float = 1.0
    if options.softcap is not None:
        tanh = torch.tanh(z / options.softcap)
        z, slope = options.softcap * tanh, 1 - tanh.square()
    of_square = 2 * options.z_loss * (nll + z) * torch.exp(-nll)
    return (torch.expm1(-nll) + of_square + options.label_smoothing * (1 - 1 / vocabulary)) * slope


def _for_one_backward(loss: Tensor, *, kept: bool) -> Tensor:
    """Refuses a second backward pass where gradients are `kept`: some kernels scale them."""
    once, given = loss.view_as(loss), False

    def refuse(grad: Tensor) -> None:
        nonlocal given
        refuse_again(given=given)
        given = kept

    if once.requires_grad:
        once.register_hook(refuse)  # type: ignore[no-untyped-call]
    return once


def _scale_rows(w: Tensor, factors: Tensor) -> Tensor:
    """w (V, D) itself, whose gradient's rows will be multiplied by the factors."""
    scaled = w.view_as(w)
    if scaled.requires_grad:
        by_row = factors[:, None]
        scaled.register_hook(lambda grad: grad * by_row.to(grad.dtype))  # type: ignore[no-untyped-call]
    return scaled


def _torch(h: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, options: CrossEntropyOptions) -> Tensor:
    if (function := getattr(torch.nn.functional, "linear_cross_entropy", None)) is None:
        got = f"got {torch.__version__}: update it, or use backend='chunk'"
        raise InputError(f"expected torch of at least 2.13 for the backend 'wrap:torch', {got}")
    of_chunk: dict[str, Any] = {} if options.chunk is None else {"batch_chunk_size": options.chunk}
    chunks = torch.nn.LinearCrossEntropyOptions(**of_chunk)
    narrow = h.dtype.itemsize <= 2 and options.reduction != "none"  # their sum would be in their dtype
    reduction = "none" if narrow else options.reduction
    loss: Tensor = function(h, w, y, linear_bias=bias, reduction=reduction, options=chunks)
    return loss.float().sum() if narrow else loss


def _liger(h: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, options: CrossEntropyOptions) -> Tensor:
    stock = _package("liger_kernel.ops.fused_linear_cross_entropy", "liger")
    if "token_grad_output" not in inspect.signature(stock.fused_linear_cross_entropy_forward).parameters:
        got = "got an older one, whose gradients of single losses are wrong: pip install 'uncone[liger]'"
        raise InputError(f"expected liger-kernel of at least 0.8.2 for the backend 'wrap:liger', {got}")
    _refuse_cpu(stock.liger_cross_entropy_kernel, h.device, "wrap:liger")
    head_trains = w.requires_grad or (bias is not None and bias.requires_grad)
    if head_trains and not h.requires_grad and torch.is_grad_enabled():
        h = h.detach().requires_grad_()  # Liger computes no gradient at all where the states require none
    settings = (options.z_loss, options.label_smoothing, options.reduction, options.softcap, False, torch.float32)
    loss: Tensor = stock.LigerFusedLinearCrossEntropyFunction.apply(h, w, y, bias, None, -100, *settings)[0]
    return loss


def _cce(h: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, options: CrossEntropyOptions) -> Tensor:
    stock = _package("cut_cross_entropy", "cce").linear_cross_entropy
    more = without_filter(stock, h.device)
    if bias is not None:
        if "bias" not in inspect.signature(stock).parameters:
            how = "install the newer version of cut-cross-entropy from its repository, or use backend='chunk'"
            raise InputError(f"expected no bias with the backend 'wrap:cce', got one: {how}")
        more["bias"] = bias
    loss: Tensor = stock(h, w, y, softcap=options.softcap, reduction=options.reduction, **more)
    return loss


def without_filter(stock: Callable[..., Tensor], device: torch.device) -> dict[str, Any]:
    """The options that turn off the gradient filter: by default small gradients are skipped (`filter_eps`)."""
    known = inspect.signature(stock).parameters
    if device.type == "cpu":
        return {"impl": "torch_compile"}
    if "filter_c_grad" in known:
        return {"impl": "cce_exact"}
    if "filter_eps" in known:
        return {"impl": "cce", "filter_eps": None}
    got = "got a version without that argument: install 25.1.1 or newer, or use backend='chunk'"
    raise InputError(f"expected a cut-cross-entropy whose gradient filter (filter_eps) can be turned off, {got}")


def _package(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        backend, got = extra if extra == "triton" else f"wrap:{extra}", f"got none: pip install 'uncone[{extra}]'"
        missing = (error.name or module).partition(".")[0]
        raise InputError(f"expected the package {missing} for the backend {backend!r}, {got}") from error


def _refuse_cpu(kernel: object, device: torch.device, backend: str) -> None:
    """Refuse the CPU, unless the kernel is interpreted."""
    import triton

    if device.type == "cpu" and isinstance(kernel, triton.JITFunction):
        raise InputError(
            f"expected tensors on a GPU with the backend {backend!r}, got cpu: move them there, or use backend='chunk' "
            "(TRITON_INTERPRET=1, set before triton is imported, runs its kernels on the CPU)"
        )


def _refuse_float64(problem: Problem) -> None:
    if problem.dtype == torch.float64:
        got = f"got {problem.dtype}: it computes in float32; use backend='chunk'"
        raise InputError(f"expected float32, bfloat16 or float16 with the backend {problem.options.backend!r}, {got}")
