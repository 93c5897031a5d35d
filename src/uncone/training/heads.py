"""A model's head: can it train through the gated loss, and how does the loss follow from it?"""

from dataclasses import replace
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model import head_map as maps

Tensor = torch.Tensor


def output_head(model: Any) -> torch.nn.Linear:
    """The model's output head. UnsupportedModel where its weight is not a matrix that can train."""
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "forward"):
        got = f"got {type(model).__name__}: use gated_linear_cross_entropy in its own training loop"
        raise UnsupportedModel(f"expected a transformers model with an output head, {got}")
    head = model.get_output_embeddings()
    if type(head).__name__ == "ModulesToSaveWrapper":  # PEFT trains a copy
        active = list(head.active_adapters)
        if len(active) != 1 or active[0] not in head.modules_to_save:
            raise UnsupportedModel(f"expected one active head in modules_to_save, got {active}: activate one")
        head = head.modules_to_save[active[0]]
    if head is None:
        raise UnsupportedModel(f"expected an output head, got none in {type(model).__name__}: it has no loss")
    kind, weight = type(head).__name__, getattr(head, "weight", None)
    if "peft" in type(head).__module__ or hasattr(head, "lora_A"):
        raise UnsupportedModel(
            f"expected a head that is a matrix, got an adapter on it ({kind}): leave the head out of target_modules "
            f"and trainable_token_indices; {_saved_whole(model, head)} trains it whole"
        )
    quantised = type(weight).__module__.split(".")[0] in ("bitsandbytes", "torchao")
    if weight is None or quantised or not weight.dtype.is_floating_point:
        got = kind if weight is None else f"{kind} of {weight.dtype}"
        raise UnsupportedModel(f"expected a head in floating point, got {got}: exempt it from quantisation")
    if not isinstance(head, torch.nn.Linear):
        raise UnsupportedModel(f"expected a torch.nn.Linear head, got {kind}: its logits are not h W' + bias")
    if hasattr(weight, "placements") and not any(map(is_sharded_alone, model.modules())):
        how = "in your own loop use gated_linear_cross_entropy with CrossEntropyOptions(group=...), on to_local()"
        raise UnsupportedModel(f"expected a head that is whole, or sharded by fully_shard, got another DTensor: {how}")
    return head


def check_matrix(module: object, what: str) -> None:
    """InputError unless it is a module with a weight (V, D)."""
    if not isinstance(module, torch.nn.Module) or getattr(getattr(module, "weight", None), "ndim", 0) != 2:
        how = "give a module such as model.emb, not its weight"
        raise InputError(f"expected a module with a weight (V, D) for {what}, got {type(module).__name__}: {how}")


def refuse_frozen(model: Any, head: torch.nn.Linear) -> None:
    if head.weight.requires_grad:
        return
    how = "unfreeze it (model.get_output_embeddings().requires_grad_(True))"
    if any("peft" in type(module).__module__ for module in model.modules()):
        saved = _saved_whole(model, head)
        is_saved = "modules_to_save" in saved.partition("=")[2]  # in the head's name: PEFT holds a copy
        how = "load the adapter with is_trainable=True" if is_saved else f"give the adapter's config {saved}"
    got = f"got a frozen one (no gradient): {how}, or attach without gate and penalties"
    raise UnsupportedModel(f"expected a head that trains, {got}")


def _saved_whole(model: Any, head: torch.nn.Module) -> str:
    """The PEFT options with which the head trains as a matrix, and stays tied."""
    weight = getattr(getattr(head, "base_layer", head), "weight", None)
    name = next((name for name, module in model.named_modules() if module is head), "lm_head")
    return f'modules_to_save=["{name}"]' + (", ensure_weight_tying=True" if is_tied(model, weight) else "")


def is_tied(model: torch.nn.Module, weight: Any) -> bool:
    """Whether another module of `model` has the same parameter."""
    return sum(each is weight for _, each in model.named_parameters(remove_duplicate=False)) > 1


def refuse_patched(model: Any, backend: str) -> None:
    forward = model.__dict__.get("forward")
    if hasattr(forward, "of_uncone"):
        raise UnsupportedModel("expected an unattached model, got an attached one: detach() its handle")
    forward = forward or type(model).forward
    module = getattr(getattr(forward, "__func__", forward), "__module__", None) or ""
    if module.startswith("liger_kernel") and backend != "wrap:liger":
        how = "leave use_liger_kernel off and give options=CrossEntropyOptions(backend='wrap:liger') to keep its kernel"
        raise UnsupportedModel(f"expected the model's own forward, got Liger's: {how}")


def is_sharded_alone(head: torch.nn.Module) -> bool:
    """Whether the head has its own `fully_shard`: the backward pass finds its storage freed."""
    return any(kind.__name__ == "FSDPModule" for kind in type(head).__mro__)


def refuse_sharded(head: torch.nn.Linear, reduction: str) -> None:
    if reduction == "none" and is_sharded_alone(head):
        how = "leave it in the root's group (fully_shard only the model), because the backward pass needs its rows"
        raise UnsupportedModel(f"expected reduction 'mean' with a head that is sharded on its own, got 'none': {how}")


def probe(model: Any, head: torch.nn.Linear) -> maps.HeadMap:
    with maps.undisturbed(model):
        batch = maps.probe_batch(model)
        given, logits = maps.known_outputs(model, head, batch)
        if logits.requires_grad:
            got = "got a trainable parameter between it and the logits: its gradient would be lost"
            raise UnsupportedModel(f"expected the head to be the last part that trains, {got}")
        head_map = maps.fit(given, logits)
        return replace(head_map, shift=_shift(model, head, batch, head_map))


def whole_bias(own: Tensor | None, head_map: maps.HeadMap, device: torch.device) -> Tensor | None:
    """The part of the logits scale (h W' + own) + measured that follows scale h W'."""
    own = own if own is None or head_map.scale == 1 else head_map.scale * own
    if head_map.bias is None:
        return own
    measured = head_map.bias.to(device)
    return measured if own is None else own.float() + measured


def _shift(model: Any, head: torch.nn.Linear, batch: dict[str, Tensor], head_map: maps.HeadMap) -> bool:
    z, outputs = _run(model, head, batch)
    if outputs.loss is None or z is None:
        raise UnsupportedModel("expected the model's loss from labels, got none: pass labels to its forward")
    if maps.is_seq2seq(model):
        again, _ = _run(model, head, maps.without_labels(model, batch))
        assert again is not None
        difference = float((again - z).abs().max())
        if not difference <= 1e-3 * (1 + float(z.abs().max())):
            got = f"got other logits (by {difference:.2g}): pass decoder_input_ids, and train it with its own loss"
            raise UnsupportedModel(f"expected {type(model).__name__} to feed its decoder labels shifted by one, {got}")
    logits, own, losses = head_map.logits(z).flatten(0, -2), float(outputs.loss), dict[bool, float]()
    for shift in (True, False):
        targets = replace(head_map, shift=shift).align(batch["labels"], maps.IGNORED)
        losses[shift] = float(torch.nn.functional.cross_entropy(logits, targets.flatten()))
    nearest = min(losses, key=lambda shift: abs(losses[shift] - own))
    if not abs(losses[nearest] - own) <= maps.RESIDUAL * max(1.0, abs(own)):
        raise UnsupportedModel(
            f"expected the model's own loss on a probe batch to be the cross-entropy of its logits ({losses[True]:.6g} "
            f"with labels shifted, {losses[False]:.6g} without), got {own:.6g}: train with its own loss"
        )
    return nearest


def _run(model: Any, head: torch.nn.Linear, inputs: dict[str, Tensor]) -> tuple[Tensor | None, Any]:
    """The head's output, in float32 so that the loss is too, or None unless it was called once; and the model's."""
    outputs: list[Tensor] = []
    original = head.forward

    def kept(hidden: Tensor) -> Tensor:
        outputs.append(original(hidden).float())
        return outputs[-1]

    with maps.forward_of(head, kept):
        result = maps.run_model(model, inputs)
    return outputs[0] if len(outputs) == 1 else None, result
