"""How logits follow from the head's output, measured on the model instead of looked up by its name.

The model runs once with known outputs in place of the head's: 0, small, huge and random. The logits give the scale,
bias and cap of z -> cap tanh((scale z + bias) / cap). The residual decides whether this map fits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from uncone.errors import UnsupportedModel

Tensor = torch.Tensor
RESIDUAL = 1e-4
IGNORED = -100
_HUGE = 1e4


@dataclass(frozen=True)
class HeadMap:
    """z is the head's output; targets may be shifted."""

    scale: float
    bias: Tensor | None  # (V,), or None where it is 0
    cap: float | None
    shift: bool

    def logits(self, z: Tensor) -> Tensor:
        z = self.scale * z if self.bias is None else self.scale * z + self.bias
        return z if self.cap is None else self.cap * torch.tanh(z / self.cap)

    def align(self, labels: Tensor, ignored: int) -> Tensor:
        if not self.shift:
            return labels
        aligned = torch.full_like(labels, ignored)
        aligned[..., :-1] = labels[..., 1:]
        return aligned


def logit_map(model: Any, head: torch.nn.Linear) -> HeadMap:
    """How `model` computes logits, without `shift`. The model is left as it was."""
    with undisturbed(model):
        return fit(*known_outputs(model, head, probe_batch(model)))


def known_outputs(model: Any, head: torch.nn.Linear, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Known outputs in place of the head's, and the logits (18, V), with gradients if a part in between trains."""
    outputs = []

    def known(hidden: Tensor) -> Tensor:
        rows, v = hidden.shape[:-1].numel(), head.weight.shape[0]
        z = torch.randn(rows, v, generator=torch.Generator().manual_seed(0))
        z *= torch.logspace(-1, 2, rows)[:, None]
        for i, value in enumerate((0.0, 1.0, _HUGE, -_HUGE)):
            z[i] = value
        outputs.append(z.to(hidden.device))
        return outputs[-1].view(*hidden.shape[:-1], v).requires_grad_(False)

    with torch.enable_grad(), forward_of(head, known):
        result = run_model(model, without_labels(model, batch))
    logits = getattr(result, "logits", None)
    if logits is None:
        raise UnsupportedModel(
            f"expected a model with logits, got {type(model).__name__}: load its class for language modelling"
        )
    if len(outputs) != 1 or logits.numel() != outputs[0].numel():
        raise UnsupportedModel(
            f"expected one use of the head and {outputs[0].numel() if outputs else 'its'} logits, got "
            f"{len(outputs)} and shape {tuple(logits.shape)}: the loss does not come from one product with the head"
        )
    return outputs[0], logits.reshape(outputs[0].shape).float()


def fit(z: Tensor, logits: Tensor) -> HeadMap:
    """The map of `known_outputs`, without its shift, checked on every row."""
    logits = logits.detach()
    at_zero, at_small, at_huge = logits[:3].double()
    cap = None
    slope, rise = (at_huge - at_zero) / _HUGE, at_small - at_zero
    if float((rise - slope).abs().max()) > 1e-3 * float(rise.abs().max()):
        cap = float(at_huge.abs().median())
        if not cap > 0 or not bool((at_zero.abs() < cap).all()):
            raise UnsupportedModel("expected logits linear in the head's output or capped, got neither: use the loss")
        scaled = (torch.stack([at_zero, at_small]) / cap).clamp(-1 + 1e-12, 1 - 1e-12)
        at_zero, at_small = cap * torch.atanh(scaled)
        slope = at_small - at_zero
    scale, bias = float(slope.median()), at_zero.float()
    measured = HeadMap(scale, bias if bool(bias.any()) else None, cap, False)
    expected = measured.logits(z)
    residual = float(((logits - expected).abs() / (1 + expected.abs())).max())
    if not residual <= RESIDUAL:
        raise UnsupportedModel(
            f"expected logits of the form cap tanh((scale z + bias) / cap), got a residual of {residual:.1g} "
            f"(scale {scale:.4g}, cap {cap}): train this model with its own loss"
        )
    return replace(measured, scale=_rounded(scale), cap=None if cap is None else _rounded(cap))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def probe_batch(model: Any) -> dict[str, Tensor]:
    """A batch of shape (2, 9): some labels are ignored, one position is masked."""
    table = model.get_input_embeddings()
    v = min(table.num_embeddings, model.get_output_embeddings().weight.shape[0])
    random = torch.Generator().manual_seed(0)
    special = {i for i in (_config_id(model, name) for name in ("pad", "bos", "eos")) if i is not None}
    usable = torch.tensor([i for i in range(v) if i not in special])
    ids, labels = (usable[torch.randint(0, len(usable), (2, 9), generator=random)] for _ in range(2))
    labels[0, 3] = labels[1, 5] = IGNORED
    device = table.weight.device
    if not is_seq2seq(model):
        labels = torch.where(labels == IGNORED, labels, ids)  # a causal model predicts the ids
    mask = torch.ones_like(ids)
    mask[1, -1] = 0  # to notice a loss that leaves out masked positions
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "labels": labels.to(device)}


def without_labels(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in batch.items() if name != "labels"} | decoder_inputs(model, batch["labels"])


def decoder_inputs(model: Any, labels: Tensor) -> dict[str, Tensor]:
    return {"decoder_input_ids": decoder_input_ids(model, labels)} if is_seq2seq(model) else {}


def decoder_input_ids(model: Any, labels: Tensor) -> Tensor:
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        # The config may name no start.
        with suppress(ValueError, AttributeError, TypeError):
            ids: Tensor = model.prepare_decoder_input_ids_from_labels(labels=labels)
            return ids
    start, pad = _config_id(model, "decoder_start"), _config_id(model, "pad")
    if start is None or pad is None:
        raise UnsupportedModel(
            f"expected decoder_start_token_id and pad_token_id in the config of {type(model).__name__}, got none: "
            "pass decoder_input_ids"
        )
    shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, pad)


def is_seq2seq(model: Any) -> bool:
    return bool(getattr(model.config, "is_encoder_decoder", False))


def _config_id(model: Any, name: str) -> int | None:
    value = getattr(model.config, f"{name}_token_id", None)
    return value if isinstance(value, int) else None


def run_model(model: Any, inputs: dict[str, Any]) -> Any:
    try:
        return model(**inputs, return_dict=True)
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        batch, got = ", ".join(inputs), f"{type(error).__name__}: {error}"
        raise UnsupportedModel(f"expected {type(model).__name__} to run on {batch}, got {got}") from error


@contextmanager
def forward_of(head: torch.nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    before = head.__dict__.get("forward")
    head.forward = forward
    try:
        yield
    finally:
        del head.forward
        if before is not None:
            head.forward = before


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Evaluate without gradients, then restore the modes of modules, the random state and the shards."""
    parameters, training = list(model.parameters()), [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.random.fork_rng({one.device for one in parameters if one.device.type == "cuda"}), torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
        if any(now is not before for now, before in zip(model.parameters(), parameters, strict=True)):
            # FSDP2 leaves its root whole until a backward pass: an optimiser would train the copies.
            for module in model.modules():
                if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
                    module.reshard()
