"""Any Hugging Face model's training through the gated loss: attach to it, train as before, detach."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from uncone.cross_entropy import CrossEntropyOptions, Gate, gated_linear_cross_entropy
from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import HeadMap, decoder_input_ids, is_seq2seq
from uncone.prevent.attachment import Attachment, Forward, unwrapped
from uncone.prevent.heads import output_head, probe, refuse_patched, refuse_sharded

Tensor = torch.Tensor
Penalty = Callable[[Tensor], Tensor]
STATE = "uncone_gate.safetensors"
"""The gate's state in a checkpoint folder."""
_SPECIAL = ("pad", "bos", "eos", "unk", "cls", "sep", "mask", "decoder_start")


def attach(
    model: Any,
    *,
    gate: Gate | None = None,
    penalties: Iterable[Penalty] = (),
    options: CrossEntropyOptions | None = None,
) -> "Attached":
    """Compute `model`'s training loss inside its head, gated, without its logits; evaluation stays as it is.

    A probe batch measures how logits follow from the head (scale, bias, cap) and whether labels are shifted.
    The model's own loss has to come out. Nothing is looked up by the model's name. Load weights first:
    nothing is measured again.

    Args:
        model: a transformers model with a linear head and a loss that is its cross-entropy, also inside DDP,
            PEFT or a compiler.
        gate: for instance a `RareTokenGate`; None is the plain loss.
        penalties: each is called with the head's weight (V, D) and returns a scalar, which is added to the
            loss.
        options: see `CrossEntropyOptions`; scale and cap come from the model and must be left alone.

    Returns:
        A handle, also as a context manager: `with attach(model, gate=gate) as attached: ...`

    Raises:
        UnsupportedModel: a model that cannot be measured, or whose objective is another one, with the reason.
        InputError: a gate for another vocabulary, or options that contradict the model.
    """
    options = options or CrossEntropyOptions()
    penalties = tuple(penalties)
    _check_options(options, penalties)
    inner = unwrapped(model)
    head = output_head(inner)
    refuse_patched(inner, options.backend)
    refuse_sharded(head, options.reduction)
    if "labels" not in inspect.signature(inner.forward).parameters:
        raise UnsupportedModel(
            f"expected a model whose forward takes labels, got {type(inner).__name__}: it has no training "
            "loss"
        )
    _check_gate(gate, head, inner, options.ignore_index)
    head_map = probe(inner, head)
    options = replace(options, softcap=head_map.cap, logit_scale=head_map.scale)
    return Attached(inner, head, head_map, options, gate, penalties)


class Attached(Attachment):
    """A model that trains through the gated loss.

    Call `step()` after each optimiser step, or give `callback` to a Trainer.
    """

    def __init__(
        self,
        model: Any,
        head: torch.nn.Linear,
        head_map: HeadMap,
        options: CrossEntropyOptions,
        gate: Gate | None,
        penalties: tuple[Penalty, ...],
    ) -> None:
        super().__init__()
        self.model, self.head, self.gate = model, head, gate
        self.head_map = head_map
        """The measured map from the head's output to the logits and the loss."""
        self.options = options
        """The options of the loss, with the measured scale and cap."""
        self.nll: Tensor | None = None
        """The last training loss without penalties: the cross-entropy in nats a target, detached."""
        self.penalty: Tensor | None = None
        """The penalties' part of that loss, detached; None without penalties."""
        self._penalties, self._losses = penalties, 0
        on_head = HeadForward(head, self)
        self._put(on_head, ModelForward(model, self, on_head))

    def step(self) -> None:
        """Close an optimiser step. Call it once after each `optimizer.step()`.

        Raises:
            UnsupportedModel: no loss went through the head since the last one.
        """
        if self._losses == 0:
            raise UnsupportedModel(
                "expected at least one training loss in this step, got none: pass labels to the model in "
                "training mode (a loss computed outside of the model is not gated)"
            )
        self._losses = 0
        tell(self.gate, "step")

    def _refuse(self, args: Any) -> None:
        super()._refuse(args)
        if self.options.reduction != "mean":
            raise UnsupportedModel(
                f"expected reduction 'mean' under a Trainer, got {self.options.reduction!r}: it divides by "
                "the targets of a step"
            )
        if getattr(args, "use_liger_kernel", False):
            raise UnsupportedModel(
                "expected use_liger_kernel=False, got True: it replaces the model's forward; give attach "
                "options=CrossEntropyOptions(backend='wrap:liger')"
            )

    def _begin(self, args: Any, step: int, loader: Any) -> None:
        if step > 0:
            _resume(self.gate, args, step)
        with suppress(
            TypeError
        ):  # no data, or a stream without a length: `end_epoch` tells it after the first
            tell(self.gate, "set_epoch", -(-len(loader) // args.gradient_accumulation_steps))
        tell(
            self.gate, "set_batch", args.world_size * args.train_batch_size * args.gradient_accumulation_steps
        )

    def _end_epoch(self) -> None:
        tell(self.gate, "end_epoch")

    def _save(self, args: Any, step: int) -> None:
        tell(self.gate, "save", _checkpoint(args, step) / STATE)


class LogitsNotComputedError(UnsupportedModel, AttributeError):
    """Logits of a training step were asked for, but are never in memory."""


class NoLogits:
    """Stands where a training step's logits would be."""

    def __getattr__(self, name: str) -> Any:
        raise LogitsNotComputedError(
            "expected no use of a training step's logits, got one: the attached loss never holds them; leave "
            "out what reads them (token accuracy, compute_metrics in training), or detach"
        )


class HeadForward(Forward):
    """The head's forward: the loss and one row of zeros where labels wait, else logits as before."""

    _handle: Attached
    labels: Tensor | None = None
    """Aligned targets that wait for the head's input."""
    items: Any = None
    loss: Tensor | None = None

    def __call__(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.labels is None or not self._handle.active:
            logits: Tensor = self._original(hidden, *args, **kwargs)
            return logits
        labels, self.labels = self.labels, None
        self.loss = self._loss(hidden, labels)
        return hidden.new_zeros((1,) * (hidden.ndim - 1) + (self.module.weight.shape[0],))

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        handle, options, weight = self._handle, self._handle.options, self.module.weight
        refuse_sharded(self.module, options.reduction)
        if hidden.shape[:-1].numel() != labels.numel():
            raise InputError(
                f"expected a hidden state for each of {labels.numel()} labels, got "
                f"{hidden.shape[:-1].numel()} at the head: leave logits_to_keep out in training"
            )
        options = options if self.items is None else replace(options, num_items=self.items)
        flat, targets = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
        loss = gated_linear_cross_entropy(
            flat, weight, targets, gate=handle.gate, bias=self._bias(), options=options
        )
        handle.nll = loss.detach().clone()
        loss = loss.view(labels.shape) if options.reduction == "none" else loss
        if handle._penalties:
            penalties = torch.stack([penalty(weight).to(loss.dtype) for penalty in handle._penalties])
            added = penalties.sum() * self._part(labels)
            handle.penalty = added.detach().clone()
            loss = loss + added
        return loss

    def _part(self, labels: Tensor) -> Tensor | float:
        """These targets' part of the step, so that a penalty counts once over all micro-batches."""
        if self.items is None:
            return 1.0
        here = (labels != _ignored(self._handle.options)).sum()
        items = torch.as_tensor(self.items, device=here.device)
        return torch.where(items > 0, here / items, 0.0)

    def _bias(self) -> Tensor | None:
        """Of scale (h W' + own) + measured, the part after scale h W'."""
        head_map = self._handle.head_map
        own: Tensor | None = self.module.bias
        if own is not None and head_map.scale != 1:
            own = head_map.scale * own
        if head_map.bias is None:
            return own
        measured = head_map.bias.to(self.module.weight.device)
        return measured if own is None else own.float() + measured


class ModelForward(Forward):
    """The model's forward: in training, labels go to the head instead of the model's own loss."""

    _handle: Attached

    def __init__(self, model: torch.nn.Module, handle: Attached, head: HeadForward) -> None:
        super().__init__(model, handle)
        self._head, self._loss_function = head, getattr(model, "_loss_function", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.trains():
            return self._original(*args, **kwargs)
        inputs = self.bound(args, kwargs)
        labels = inputs.pop("labels", None)
        if labels is None:
            return self._original(**inputs)
        self._refuse_changes(inputs)
        aligned, gate = inputs.pop("shift_labels", None), self._handle.gate
        if aligned is None:
            aligned = self._handle.head_map.align(labels, _ignored(self._handle.options))
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
        if getattr(self.module, "_loss_function", None) is not self._loss_function:
            raise UnsupportedModel(
                "expected the loss function that was there when the model was attached to, got another: set "
                "it first, then attach"
            )

    def _run(self, aligned: Tensor, labels: Tensor, inputs: dict[str, Any]) -> Any:
        head = self._head
        if is_seq2seq(self.module):
            if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
                inputs["decoder_input_ids"] = decoder_input_ids(self.module, labels)
            if "use_cache" in self.__signature__.parameters and inputs.get("use_cache") is None:
                inputs["use_cache"] = False  # as with labels
        head.labels, head.items, head.loss = aligned, inputs.get("num_items_in_batch"), None
        try:
            outputs = self._original(**inputs)
            if head.loss is None:
                raise UnsupportedModel(
                    "expected the model to use the head that was attached to, got no call of it: was it "
                    "replaced since (a copy in modules_to_save, resized embeddings)? Attach after that"
                )
            _refuse_more_losses(outputs)
        except BaseException:
            head.loss = None  # its gradients are as large as the head
            raise
        finally:
            head.labels = None
        return outputs

    def _with_loss(self, outputs: Any) -> Any:
        """The outputs with the loss, and without logits."""
        loss, self._head.loss = self._head.loss, None
        self._handle._losses += 1
        if isinstance(outputs, tuple):
            return (loss, NoLogits(), *outputs[1:])
        return type(outputs)(**dict(outputs.items()) | {"loss": loss, "logits": NoLogits()})


def _refuse_more_losses(outputs: Any) -> None:
    """Raise where the model computed another loss, which its own sum would hold and this one does not."""
    if isinstance(outputs, tuple):
        return
    more = [
        name for name, value in outputs.items() if "loss" in name and name != "loss" and value is not None
    ]
    if more:
        raise UnsupportedModel(
            f"expected the cross-entropy as the only loss, got {', '.join(more)} besides, which would be "
            "lost: turn it off (for instance output_router_logits=False), or add it yourself as a penalty"
        )


def _ignored(options: CrossEntropyOptions) -> int:
    assert options.ignore_index is not None  # as _check_options has seen
    return options.ignore_index


def _check_options(options: CrossEntropyOptions, penalties: tuple[Penalty, ...]) -> None:
    if penalties and options.reduction == "none":
        raise InputError(
            "expected a reduction to one loss with penalties, got 'none': a penalty belongs to no single "
            "target"
        )
    if options.softcap is not None or options.logit_scale != 1:
        raise InputError(
            f"expected options without softcap and logit_scale, got {options.softcap} and "
            f"{options.logit_scale}: both are measured on the model"
        )
    if options.ignore_index is None:
        raise InputError(
            "expected options with an ignore_index, got None: the last position of a sequence has no target; "
            "-100 marks it"
        )
    if options.num_items is not None:
        raise InputError(
            "expected options without num_items, got one: pass num_items_in_batch to the model, as Trainer "
            "does"
        )


def _check_gate(gate: Any, head: torch.nn.Linear, model: Any, ignore_index: int | None) -> None:
    """Refuse a gate that does not fit the head, and protect the model's special ids in it."""
    if gate is None:
        return
    if not hasattr(gate, "gates"):
        raise InputError(
            f"expected a gate with gates(), got {type(gate).__name__}: uncone.RareTokenGate is one"
        )
    if not head.weight.requires_grad:
        raise UnsupportedModel(
            "expected a head that trains, got a frozen one: there is no gradient to gate; use gate=None"
        )
    size, rows = len(gate.gates()[0]), head.weight.shape[0]
    if size != rows:
        raise InputError(
            f"expected a gate for the head's {rows} rows, got one for {size}: RareTokenGate({rows})"
        )
    counted = getattr(gate, "ignore_index", ignore_index)
    if counted != ignore_index:
        raise InputError(
            f"expected one ignore_index, got {counted} of the gate and {ignore_index} of the options: make "
            "both the same"
        )
    tell(gate, "protect", (i for i in _special_ids(model.config) if 0 <= i < size))


def _special_ids(config: Any) -> Iterator[int]:
    for name in _SPECIAL:
        ids = getattr(config, f"{name}_token_id", None)
        yield from (i for i in (ids if isinstance(ids, list | tuple) else [ids]) if isinstance(i, int))


def _resume(gate: Any, args: Any, step: int) -> None:
    """Load the gate's state from the Trainer's checkpoint, unless it was loaded already."""
    if not hasattr(gate, "load") or gate.status.step == step:
        return
    given = args.resume_from_checkpoint
    folders = [Path(given)] if isinstance(given, str) and given not in ("True", "true") else []
    for folder in (*folders, _checkpoint(args, step)):
        if (folder / STATE).exists():
            gate.load(folder / STATE)
            break
    if gate.status.step != step:
        raise InputError(
            f"expected the gate's state of step {step} in {_checkpoint(args, step).name}/{STATE} of the "
            f"output folder, got {'none' if gate.status.step == 0 else f'that of step {gate.status.step}'}: "
            f"if the checkpoint lies elsewhere, call gate.load(checkpoint / {STATE!r}) before train()"
        )


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{step}"


def tell(gate: Any, what: str, *args: Any) -> None:
    """Call a method that a gate may have and need not."""
    if hasattr(gate, what):
        getattr(gate, what)(*args)
