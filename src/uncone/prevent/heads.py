"""Which module is a model's head, and whether its gradients can be computed for it."""

from typing import Any

import torch

from uncone.errors import UnsupportedModel

Tensor = torch.Tensor


def unwrapped(model: Any) -> Any:
    """What is inside wrappers for several devices, for adapters and of a compiler."""
    for _ in range(4):
        if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
            model = model.get_base_model()
        elif type(model).__name__ in ("DistributedDataParallel", "OptimizedModule"):
            model = getattr(model, "module", None) or model._orig_mod
    return model


def base_model(model: Any) -> Any:
    """The transformers model inside wrappers."""
    model = unwrapped(model)
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "forward"):
        raise UnsupportedModel(
            f"expected a transformers model with an output head, got {type(model).__name__}: use gated_linear_cross_entropy in "
            "its own training loop"
        )
    return model


def output_head(model: Any) -> torch.nn.Linear:
    """The linear layer that makes the logits.

    Raises:
        UnsupportedModel: there is none, or its weight cannot be trained as a matrix of its own.
    """
    head = model.get_output_embeddings()
    if type(head).__name__ == "ModulesToSaveWrapper":
        head = _active_copy(head)
    if head is None:
        raise UnsupportedModel(
            f"expected a model with an output head, got {type(model).__name__} without: it has no loss to gate"
        )
    kind = type(head).__name__
    if "peft" in type(head).__module__ or hasattr(head, "lora_A"):
        raise UnsupportedModel(
            f"expected a head that is a matrix, got an adapter on it ({kind}): leave the head out of target_modules, or train it "
            "whole with modules_to_save"
        )
    weight = getattr(head, "weight", None)
    if (
        weight is None
        or not weight.dtype.is_floating_point
        or type(weight).__module__.split(".")[0] in ("bitsandbytes", "torchao")
    ):
        got = kind if weight is None else f"{kind} of {weight.dtype}"
        raise UnsupportedModel(
            f"expected a head in floating point, got {got}: exempt the head from quantisation"
        )
    if not isinstance(head, torch.nn.Linear):
        raise UnsupportedModel(
            f"expected a linear head (torch.nn.Linear), got {kind}: its logits are not hidden W' + bias"
        )
    return head


def refuse_patched(model: Any, backend: str) -> None:
    """Raises UnsupportedModel where the model is attached to already, or Liger computes its loss."""
    forward = model.__dict__.get("forward")
    if hasattr(forward, "of_uncone"):
        raise UnsupportedModel(
            "expected a model that nothing is attached to, got one that is: call detach() on the first handle"
        )
    where = (
        getattr(
            getattr(forward or type(model).forward, "__func__", forward or type(model).forward),
            "__module__",
            "",
        )
        or ""
    )
    if where.startswith("liger_kernel") and backend != "wrap:liger":
        raise UnsupportedModel(
            "expected the model's own forward, got Liger's: leave use_liger_kernel off and give "
            "options=CrossEntropyOptions(backend='wrap:liger') to keep its kernel"
        )


def refuse_sharded(head: torch.nn.Linear, reduction: str) -> None:
    """Raises UnsupportedModel where the backward pass would find the head's storage freed."""
    if reduction == "none" and any(kind.__name__ == "FSDPModule" for kind in type(head).__mro__):
        raise UnsupportedModel(
            "expected reduction 'mean' with a head that is sharded by itself, got 'none': its gradients are computed in the backward "
            "pass, when the head's rows are given back; leave the head in the root's group (fully_shard the model only)"
        )


def _active_copy(wrapper: Any) -> Any:
    """The copy of the head that PEFT trains."""
    active = list(wrapper.active_adapters)
    if len(active) != 1 or active[0] not in wrapper.modules_to_save:
        raise UnsupportedModel(
            f"expected one active copy of the head under modules_to_save, got {active}: activate one adapter"
        )
    return wrapper.modules_to_save[active[0]]
