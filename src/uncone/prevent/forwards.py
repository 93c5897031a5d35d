"""What stands in the place of a model's forward and of its head's: the way from labels to a loss without logits."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from uncone.cross_entropy import CrossEntropyOptions, Gate, gated_linear_cross_entropy
from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import HeadMap, decoder_input_ids
from uncone.prevent.heads import refuse_sharded

Tensor = torch.Tensor
Penalty = Callable[[Tensor], Tensor]


class LogitsNotComputedError(UnsupportedModel, AttributeError):
    """Logits of a training step were asked for, but are never in memory."""


class NoLogits:
    """Stands where a training step's logits would be."""

    def __getattr__(self, name: str) -> Any:
        raise LogitsNotComputedError(
            "expected no use of a training step's logits, got one: the attached loss never holds them; leave out what reads them "
            "(token accuracy, compute_metrics in training), or detach"
        )


@dataclass
class Step:
    """What the model's forward and the head's hand to each other."""

    options: CrossEntropyOptions
    gate: Gate | None
    penalties: tuple[Penalty, ...]
    found: HeadMap
    labels: Tensor | None = None
    """Aligned targets that wait for the head."""
    items: Any = None
    loss: Tensor | None = None
    nll: Tensor | None = None
    penalty: Tensor | None = None
    losses: int = field(default=0)
    """Losses since the last optimiser step."""
    active: bool = True
    """False once detached: something else may still call these forwards."""

    @property
    def ignored(self) -> int:
        """The label of what is no target; attaching refuses options without one."""
        assert self.options.ignore_index is not None
        return self.options.ignore_index


class Forward:
    """In the place of a module's forward, with its signature: Trainer drops the columns that a forward does not take."""

    of_uncone = True

    def __init__(self, module: torch.nn.Module, step: Any) -> None:
        self._before = module.__dict__.get("forward")
        self._original, self._step = module.forward, step
        self.__signature__ = inspect.signature(module.forward)
        self.__name__ = "forward"
        if hasattr(module.forward, "of_uncone"):
            self.__wrapped__ = module.forward

    def restore(self, module: torch.nn.Module) -> None:
        before = self._before
        while isinstance(before, Forward) and not before._step.active:  # it was detached first
            before = before._before
        if before is None:
            del module.forward
        else:
            module.forward = before

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments by their names."""
        inputs = dict(self.__signature__.bind(*args, **kwargs).arguments)
        for name, parameter in self.__signature__.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                inputs |= inputs.pop(name, {})
        return inputs


class HeadForward(Forward):
    """The head's forward: the loss where targets wait, and a single row of zeros for logits; else logits as before."""

    _step: Step

    def __init__(self, head: torch.nn.Linear, step: Step) -> None:
        super().__init__(head, step)
        self._head = head

    def __call__(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self._step.labels is None or not self._step.active:
            logits: Tensor = self._original(hidden, *args, **kwargs)
            return logits
        labels, self._step.labels = self._step.labels, None
        self._lose(hidden, labels)
        return hidden.new_zeros((1,) * (hidden.ndim - 1) + (self._head.weight.shape[0],))

    def _lose(self, hidden: Tensor, labels: Tensor) -> None:
        step, weight = self._step, self._head.weight
        refuse_sharded(self._head, step.options.reduction)
        if hidden.shape[:-1].numel() != labels.numel():
            raise InputError(
                f"expected a hidden state for each of {labels.numel()} labels, got {hidden.shape[:-1].numel()} at the head: leave "
                "logits_to_keep out in training"
            )
        options = step.options if step.items is None else replace(step.options, num_items=step.items)
        flat = hidden.reshape(-1, hidden.shape[-1])
        loss = gated_linear_cross_entropy(
            flat, weight, labels.reshape(-1), gate=step.gate, bias=self._bias(), options=options
        )
        step.nll = loss.detach().clone()
        loss = loss.view(labels.shape) if options.reduction == "none" else loss
        penalties = [penalty(weight) for penalty in step.penalties]
        if penalties:
            added = torch.stack([p.to(loss.dtype) for p in penalties]).sum() * self._part(labels)
            step.penalty = added.detach().clone()
            loss = loss + added
        step.loss = loss

    def _part(self, labels: Tensor) -> Tensor | float:
        """The part of the step that these targets are, so that a penalty counts once over all micro-batches."""
        if self._step.items is None:
            return 1.0
        here = (labels != self._step.ignored).sum()
        items = torch.as_tensor(self._step.items, device=here.device)
        return torch.where(items > 0, here / items, 0.0)

    def _bias(self) -> Tensor | None:
        """Of scale (h W' + own) + measured, the part after scale h W'."""
        found = self._step.found
        own: Tensor | None = self._head.bias
        if own is not None and found.scale != 1:
            own = found.scale * own
        if found.bias is None:
            return own
        measured = found.bias.to(self._head.weight.device)
        return measured if own is None else own.float() + measured


class ModelForward(Forward):
    """The model's forward: in training, labels go to the head instead of the model's own loss."""

    _step: Step

    def __init__(self, model: torch.nn.Module, step: Step) -> None:
        super().__init__(model, step)
        self._model = model
        self._loss_function = getattr(model, "_loss_function", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._step.active and self._model.training and torch.is_grad_enabled()):
            return self._original(*args, **kwargs)
        inputs = self.bound(args, kwargs)
        labels = inputs.pop("labels", None)
        if labels is None:
            return self._original(**inputs)
        self._refuse_changes(inputs)
        aligned = self._aligned(labels, inputs)
        gate = self._step.gate
        at_once = getattr(gate, "counts_first", False)
        if at_once:
            tell(gate, "observe", aligned)
        outputs = self._with_loss(self._run(aligned, labels, inputs))
        if not at_once:  # a forward that failed, and is tried again, is counted once
            tell(gate, "observe", aligned)
        return outputs

    def _refuse_changes(self, inputs: dict[str, Any]) -> None:
        """Raise where the loss is to be another than the one that was measured."""
        if "ignore_index" in inputs:
            raise InputError(
                f"expected no ignore_index in a call of the model, got {inputs['ignore_index']}: give attach "
                "options=CrossEntropyOptions(ignore_index=...)"
            )
        if getattr(self._model, "_loss_function", None) is not self._loss_function:
            raise UnsupportedModel(
                "expected the loss function that was there when the model was attached to, got another: set it first, then attach"
            )

    def _aligned(self, labels: Tensor, inputs: dict[str, Any]) -> Tensor:
        shifted = inputs.pop("shift_labels", None)
        return shifted if shifted is not None else self._step.found.align(labels, self._step.ignored)

    def _run(self, aligned: Tensor, labels: Tensor, inputs: dict[str, Any]) -> Any:
        step, parameters = self._step, self.__signature__.parameters
        if getattr(self._model.config, "is_encoder_decoder", False):
            if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
                inputs["decoder_input_ids"] = decoder_input_ids(self._model, labels)
            if "use_cache" in parameters and inputs.get("use_cache") is None:
                inputs["use_cache"] = False  # as with labels
        step.labels, step.items, step.loss = aligned, inputs.get("num_items_in_batch"), None
        try:
            outputs = self._original(**inputs)
            if step.loss is None:
                raise UnsupportedModel(
                    "expected the model to use the head that was attached to, got no call of it: was it replaced since (a copy in "
                    "modules_to_save, resized embeddings)? Attach after that"
                )
            _refuse_more_losses(outputs)
        except BaseException:
            step.loss = None  # its gradients are as large as the head
            raise
        finally:
            step.labels = None
        return outputs

    def _with_loss(self, outputs: Any) -> Any:
        """The outputs with the loss, and without logits."""
        loss, self._step.loss = self._step.loss, None
        self._step.losses += 1
        if isinstance(outputs, tuple):
            return (loss, NoLogits(), *outputs[1:])
        found = dict(outputs.items()) | {"loss": loss, "logits": NoLogits()}
        return type(outputs)(**found)


def _refuse_more_losses(outputs: Any) -> None:
    """Raise where the model computed another loss, which its own sum would hold and this one does not."""
    more = (
        []
        if isinstance(outputs, tuple)
        else [k for k, v in outputs.items() if "loss" in k and k != "loss" and v is not None]
    )
    if more:
        raise UnsupportedModel(
            f"expected the cross-entropy as the only loss, got {', '.join(more)} besides, which would be lost: turn it off (for "
            "instance output_router_logits=False), or add it yourself as a penalty"
        )


def tell(gate: Any, what: str, *args: Any) -> None:
    """Call a method that a gate may have and need not."""
    if hasattr(gate, what):
        getattr(gate, what)(*args)
