"""Does the model's own loss follow from its logits, and are labels shifted? Measured on a probe batch, not looked up by a name."""

from typing import Any

import torch

from uncone.errors import UnsupportedModel
from uncone.model.head_map import (
    IGNORED,
    RESIDUAL,
    HeadMap,
    decoder_inputs,
    fit,
    forward_of,
    is_seq2seq,
    known_outputs,
    probe_batch,
    run_model,
    undisturbed,
)

Tensor = torch.Tensor


def probe(model: Any, head: torch.nn.Linear) -> HeadMap:
    """Measure `model`, which is left as it was.

    Raises:
        UnsupportedModel: what was measured is no map of this form, or gives another loss than the model's own.
    """
    devices = [head.weight.device] if head.weight.device.type == "cuda" else []
    with undisturbed(model), torch.random.fork_rng(devices=devices), torch.no_grad():
        batch = probe_batch(model)
        given, logits = known_outputs(model, head, batch)
        _require_last(logits)
        scale, bias, cap = fit(given, logits)
        return _with_own_loss(model, head, batch, HeadMap(scale, bias, cap, False))


def _require_last(logits: Tensor) -> None:
    """Raise where a trainable part makes the logits of the head's output."""
    if logits.requires_grad:
        raise UnsupportedModel(
            "expected the head to be the last part that trains, got a trainable parameter between it and the logits: its gradient "
            "would be lost"
        )


def _with_own_loss(model: Any, head: torch.nn.Linear, batch: dict[str, Tensor], found: HeadMap) -> HeadMap:
    """The map with the shift that gives the model's own loss."""
    outputs: list[Tensor] = []
    original = head.forward

    def kept(hidden: Tensor) -> Tensor:
        outputs.append(original(hidden).float())  # so that the model's own loss is computed in float32
        return outputs[-1]

    with forward_of(head, kept):
        own = run_model(model, batch).loss
    if own is None or len(outputs) != 1:
        raise UnsupportedModel(
            "expected a model that computes a loss from labels, got none: pass labels to its forward"
        )
    z = outputs[0].view(*batch["labels"].shape, -1)
    _check_decoder_inputs(model, head, batch, z)
    losses = {}
    for shift in (True, False):
        candidate = HeadMap(found.scale, found.bias, found.cap, shift)
        targets = candidate.align(batch["labels"], IGNORED)
        losses[shift] = float(
            torch.nn.functional.cross_entropy(candidate.logits(z).flatten(0, -2), targets.flatten())
        )
    matching = [
        shift
        for shift, loss in losses.items()
        if abs(loss - float(own)) <= RESIDUAL * max(1.0, abs(float(own)))
    ]
    if len(matching) == 2:
        matching = [min(losses, key=lambda shift: abs(losses[shift] - float(own)))]
    if len(matching) != 1:
        raise UnsupportedModel(
            f"expected the model's own loss on a probe batch to be the cross-entropy of its logits ({losses[True]:.6g} with labels "
            f"shifted, {losses[False]:.6g} without), got {float(own):.6g}: it adds something to it; train with its own loss"
        )
    return HeadMap(found.scale, found.bias, found.cap, matching[0])


def _check_decoder_inputs(model: Any, head: torch.nn.Linear, batch: dict[str, Tensor], z: Tensor) -> None:
    """Raise where the decoder is fed something else with labels than without."""
    if not is_seq2seq(model):
        return
    outputs: list[Tensor] = []
    original = head.forward

    def kept(hidden: Tensor) -> Tensor:
        outputs.append(original(hidden))
        return outputs[-1]

    inputs = {k: v for k, v in batch.items() if k != "labels"} | decoder_inputs(model, batch["labels"])
    with forward_of(head, kept):
        run_model(model, inputs)
    difference = float((outputs[0].float().view(z.shape) - z).abs().max())
    if not difference <= 1e-3 * (1 + float(z.abs().max())):
        raise UnsupportedModel(
            f"expected {type(model).__name__} to feed its decoder the labels moved by one, got other logits (by {difference:.2g}): "
            "pass decoder_input_ids to the model, and train it with its own loss"
        )
