"""The norm whose output a head reads, found by running the model and not by its name."""

from typing import Any

import torch

from uncone.model.head_map import run_model

Tensor = torch.Tensor
CLOSE = 1e-4  # how far the mean of an output before gain and bias may lie from 0, of its root mean square
_ROUNDINGS, _LARGEST = 4, 5.0
"""Roundings of the model's dtype in an output, and how many of its sizes an entry that is not known may have."""


def final_layer_norm(model: Any, head: torch.nn.Linear, ids: Tensor) -> tuple[Tensor, Tensor] | None:
    """Gain and bias (D,), float32, of the LayerNorm whose output is what the head reads; None where none is.

    GPT-2 has one (`ln_f`), and so has GPT-NeoX. A norm without bias and one that does not centre (RMSNorm) are none: no
    direction follows from them. `model` is in evaluation; it is run on `ids` (B, T).
    """
    outputs, inputs = list[tuple[Any, Tensor]](), list[Tensor]()
    hooks = [head.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))]
    for module in model.modules():
        gain, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(gain, Tensor) and isinstance(bias, Tensor) and gain.shape == bias.shape == head.weight.shape[1:]:
            hooks.append(module.register_forward_hook(lambda one, _, made: outputs.append((one, made))))
    try:
        run_model(model, {"input_ids": ids})
    finally:
        for hook in hooks:
            hook.remove()
    for module, made in reversed(outputs):
        if inputs and isinstance(made, Tensor) and made.shape == inputs[-1].shape and torch.equal(made, inputs[-1]):
            gain, bias = module.weight.detach().float().cpu(), module.bias.detach().float().cpu()
            return (gain, bias) if _is_centred(made, gain, bias) else None
    return None


def _is_centred(made: Tensor, gain: Tensor, bias: Tensor) -> bool:
    """Whether (made - bias) / gain has a mean of 0 and a size of 1; an entry whose gain is tiny is not known."""
    eps = torch.finfo(made.dtype).eps
    close = max(CLOSE, _ROUNDINGS * eps)
    live = eps * bias.abs() < close * gain.abs()
    if not bool(live.any()):
        return False
    before = ((made.detach().double().cpu() - bias.double()) / gain.double()).flatten(0, -2)[:, live]
    size, lost = before.square().mean().sqrt(), int((~live).sum())
    mean = before.sum(1).abs().max() / len(gain)
    return bool(size <= 1 + 10 * close) and bool(mean <= close * size + _LARGEST * lost / len(gain))
