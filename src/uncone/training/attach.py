"""`attach`: any Hugging Face model trains through the gated loss."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from uncone.arguments import shown
from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import HeadMap, decoder_input_ids, is_seq2seq
from uncone.training.attachment import STATE, Attachment, checkpoint, part_of_step, tell, unwrapped, with_loss
from uncone.training.gate import GateStatus
from uncone.training.heads import (
    is_sharded_alone,
    output_head,
    probe,
    refuse_frozen,
    refuse_patched,
    refuse_sharded,
    whole_bias,
)
from uncone.training.loss.loss import gated_linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import Gate
from uncone.training.loss.stats import CrossEntropyStats
from uncone.training.means import OF_LOSS, Means, names_of

Tensor = torch.Tensor
Penalty = Callable[[Tensor], Tensor]


def attach(
    model: Any,
    *,
    gate: Gate | None = None,
    penalties: Iterable[Penalty] | Penalty = (),
    options: CrossEntropyOptions | None = None,
    fresh: bool = False,
) -> "Attached":
    """Compute `model`'s training loss inside its head, gated and without its logits; evaluation stays the same.

    A probe batch measures how logits follow from the head (scale, bias, cap) and whether labels are shifted, so load
    weights first.

    Args:
        model: a transformers model with a linear head and cross-entropy as its loss; also inside DDP, PEFT or a
            compiler.
        gate: for instance a `RareTokenGate`; None is the plain loss.
        penalties: functions of the head's weight (V, D) that return scalars to add to the loss; or a single function.
        options: without scale and cap, which come from the model.
        fresh: start the gate afresh, with a warning, where a Trainer resumes from a checkpoint without a gate's state;
            by default such a checkpoint is refused.

    Returns:
        A handle, also a context manager: `with attach(model, gate=gate) as attached: ...`

    UnsupportedModel where the model cannot be measured, or has another objective; InputError for a gate of another
    vocabulary, or options that contradict the model.
    """
    options = options or CrossEntropyOptions()
    penalties = (penalties,) if callable(penalties) else tuple(penalties)
    for penalty in penalties:
        if isinstance(penalty, type) or not callable(penalty):
            got = f"got {f'the class {penalty.__name__}' if isinstance(penalty, type) else shown(penalty)}"
            raise InputError(
                f"expected penalties to be called with the head's weight, {got}: penalties=[CosinePenalty()]"
            )
    _check_options(options, penalties)
    inner = unwrapped(model)
    head = output_head(inner)
    refuse_patched(inner, options.backend)
    refuse_sharded(head, options.reduction)
    if "labels" not in inspect.signature(inner.forward).parameters:
        raise UnsupportedModel(f"expected a model that takes labels, got {type(inner).__name__}: it has no loss")
    if gate is not None or penalties:
        refuse_frozen(inner, head)
    _check_gate(gate, head, inner, options.ignore_index)
    head_map = probe(inner, head)
    options = replace(options, softcap=head_map.cap, logit_scale=head_map.scale)
    return Attached(inner, head, head_map, options, penalties, gate, fresh)


@dataclass(eq=False, repr=False)
class Attached(Attachment):
    """A model that trains through the gated loss. Call `step()` after each optimiser step, or pass `callback` to a
    transformers Trainer, or `lightning` to Lightning's."""

    model: Any
    head: torch.nn.Linear
    head_map: HeadMap
    options: CrossEntropyOptions  # with the measured scale and cap
    _penalties: tuple[Penalty, ...]
    gate: Gate | None
    fresh: bool = False
    nll: Tensor | None = field(default=None, init=False)
    """The last training forward's cross-entropy in nats per target, a detached scalar: the mean over that micro-batch;
    0 without targets. It includes label smoothing and a z loss."""
    penalty: Tensor | None = field(default=None, init=False)
    """The penalties' undivided sum in the last training forward, detached; None without penalties."""
    stats: CrossEntropyStats | None = field(default=None, init=False)
    """The last training forward's plain cross-entropy, accuracy and log-sum-exp; NaN where another package's kernel
    does not report them."""

    def __post_init__(self) -> None:
        super().__init__()
        self._ignored: Any = self.options.ignore_index
        several = [f"penalty/{name}" for name in names_of(self._penalties)] if len(self._penalties) > 1 else []
        of_loss: tuple[str, ...] = OF_LOSS
        if self.options.backend.startswith("wrap:"):  # these kernels report only the loss
            of_loss = () if self.options.label_smoothing or self.options.z_loss else OF_LOSS[:1]
        self._means = Means(several + ["penalty"] * bool(self._penalties), self.head.weight.device, of_loss)
        self._targets: Tensor | None = None  # aligned targets that wait for the head's input
        self._items: Any = None
        self._loss: Tensor | None = None
        self._loss_function = getattr(self.model, "_loss_function", None)
        self._on_head = self._put(self.head, self._run_head)
        self._on_model = self._put(self.model, self._run_model)

    def step(self) -> None:
        """Call it once after each `optimizer.step()`. UnsupportedModel if no loss went through the head since the last
        call."""
        if self._taken == 0:
            how = "pass labels to the model in training mode (a loss computed outside of it is not gated)"
            raise UnsupportedModel(f"expected at least one training loss in this step, got none: {how}")
        self._closed()
        tell(self.gate, "step")

    def _needs_steps(self) -> bool:
        return hasattr(self.gate, "step")

    def _trained(self) -> Iterator[Any]:
        yield self.head.weight

    def logs(self) -> dict[str, int | float]:
        """The gate's status, the loss's stats and the penalties, named as for a log; stats and penalties are means
        since the last call. Every rank must call it. It waits for the device, and nothing else does."""
        status = getattr(self.gate, "status", None)
        numbers: dict[str, Any] = asdict(status) if isinstance(status, GateStatus) else {}
        numbers |= self._means.take()
        if not self.options.z_loss:
            numbers.pop("z_loss", None)
        return {f"uncone/{name}": value for name, value in numbers.items() if value is not None}

    def _refuse(self, args: Any) -> None:
        super()._refuse(args)
        if (reduction := self.options.reduction) != "mean":
            raise UnsupportedModel(f"expected reduction 'mean' under Trainer, got {reduction!r}: use 'mean'")
        if getattr(args, "use_liger_kernel", False):
            how = "it replaces the model's forward; give attach options=CrossEntropyOptions(backend='wrap:liger')"
            raise UnsupportedModel(f"expected use_liger_kernel=False, got True: {how}")

    def _begin(self, args: Any, step: int, loader: Any) -> None:
        if step > 0:
            _resume(self.gate, args, step, fresh=self.fresh)
        steps = args.gradient_accumulation_steps
        with suppress(TypeError):  # without a length: `end_epoch` sets it later
            tell(self.gate, "set_epoch", -(-len(loader) // steps))
        tell(self.gate, "set_batch", args.world_size * args.train_batch_size * steps)

    def _state(self) -> Any:
        return self.gate if hasattr(self.gate, "state_dict") and hasattr(self.gate, "load_state_dict") else None

    def _begin_in_lightning(self, trainer: Any, loaded: bool) -> None:
        step, status = trainer.global_step, getattr(self.gate, "status", None)
        if step > 0 and not loaded and self._state() is not None and getattr(status, "step", 1) == 0:
            if not self.fresh:
                how = "call gate.load_state_dict before fit; if that run had no gate, use attach(..., fresh=True)"
                raise InputError(f"expected the gate's state in the checkpoint of step {step}, got none: {how}")
            _begin_fresh(self.gate, step, "its callbacks hold no gate")
        every, batches = trainer.accumulate_grad_batches, trainer.num_training_batches
        if isinstance(batches, int):
            tell(self.gate, "set_epoch", -(-batches // every))
        if isinstance(size := getattr(trainer.train_dataloader, "batch_size", None), int):
            tell(self.gate, "set_batch", trainer.world_size * size * every)

    def _run_head(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._targets is None or not self.active:
            return self._on_head.original(hidden, *args, **kwargs)
        targets, self._targets = self._targets, None
        self._loss = self._loss_of(hidden, targets)
        return hidden.new_zeros((1,) * (hidden.ndim - 1) + (self.head.weight.shape[0],))

    def _loss_of(self, hidden: Tensor, targets: Tensor) -> Tensor:
        options, weight, items = self.options, self.head.weight, self._items
        refuse_sharded(self.head, options.reduction)
        options = options if items is None else replace(options, num_items=items)
        if (given := hidden.shape[:-1].numel()) != targets.numel():
            got = f"got {given} at the head: leave logits_to_keep out in training"
            raise InputError(f"expected a hidden state for each of {targets.numel()} labels, {got}")
        hidden = hidden.reshape(*targets.shape, hidden.shape[-1])
        bias = whole_bias(self.head.bias, self.head_map, weight.device)
        of_loss: dict[str, Any] = {"gate": self.gate, "bias": bias, "options": options}
        noted = not options.backend.startswith("wrap:")
        if noted:
            loss, self.stats = gated_linear_cross_entropy(hidden, weight, targets, return_stats=True, **of_loss)
        else:
            loss = gated_linear_cross_entropy(hidden, weight, targets, **of_loss)
        counted, self.nll = (targets != self._ignored).sum(), loss.detach().clone()
        if options.reduction != "mean" or items is not None:
            total = 1 if items is None else torch.as_tensor(items, device=loss.device).reshape(())
            self.nll = self.nll.sum() * total / counted.clamp(min=1)
        if not noted:
            self.stats = _stats_of(self.nll, counted, plain=not options.label_smoothing and not options.z_loss)
        values = None
        if self._penalties:
            rows = weight.clone() if is_sharded_alone(self.head) else weight  # rows that the backward pass still finds
            each = torch.stack([penalty(rows).to(loss.dtype) for penalty in self._penalties])
            added = each.sum()
            self.penalty = added.detach().clone()
            values = torch.cat([each[: len(each) * (len(each) > 1)], added[None]])
            # penalties count once over all micro-batches of a step
            loss = loss + (added if items is None else added * part_of_step(counted, items))
        if self.stats is not None:
            self._means.add(self.stats.numbers, values)
        return loss

    def _run_model(self, *args: Any, **kwargs: Any) -> Any:
        if not self._on_model.trains():
            return self._on_model.original(*args, **kwargs)
        inputs = self._on_model.bound(args, kwargs)
        labels = inputs.pop("labels", None)
        if labels is None:
            return self._on_model.original(**inputs)
        if "ignore_index" in inputs:
            got = f"got {inputs['ignore_index']}: give attach options=CrossEntropyOptions(ignore_index=...)"
            raise InputError(f"expected no ignore_index in a call to the model, {got}")
        if getattr(self.model, "_loss_function", None) is not self._loss_function:
            got = "got another: set the loss function first, then attach"
            raise UnsupportedModel(f"expected the loss function that the model had when attached, {got}")
        self._check_step()
        targets = inputs.pop("shift_labels", None)
        if targets is None:
            targets = self.head_map.align(labels, self._ignored)
        if is_seq2seq(self.model):
            if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
                inputs["decoder_input_ids"] = decoder_input_ids(self.model, labels)
            if "use_cache" in self._on_model.__signature__.parameters and inputs.get("use_cache") is None:
                inputs["use_cache"] = False  # as with labels
        at_once = getattr(self.gate, "counts_first", False)
        if at_once:
            tell(self.gate, "observe", targets)
        self._targets, self._items = targets, inputs.get("num_items_in_batch")
        try:
            outputs = self._on_model.original(**inputs)
            if self._loss is None:
                got = "got no call: was it replaced (a copy in modules_to_save, resized embeddings)? Attach after that"
                raise UnsupportedModel(f"expected the model to use the head that it had when attached, {got}")
            _refuse_more_losses(outputs)
            loss = self._loss
        finally:
            self._targets = self._loss = None  # the loss's gradients are as large as the head
        self._taken += 1
        if not at_once:  # a forward that failed and is run again is counted once
            tell(self.gate, "observe", targets)
        return with_loss(outputs, loss, logits=NoLogits())


class LogitsNotComputedError(UnsupportedModel, AttributeError):
    """The logits of a training step are never in memory."""


class NoLogits:
    def __getattr__(self, name: str) -> Any:
        how = "turn off what reads them (token accuracy, compute_metrics in training), or detach"
        raise LogitsNotComputedError(f"expected no code that reads a training step's logits, got some: {how}")


def _refuse_more_losses(outputs: Any) -> None:
    named = () if isinstance(outputs, tuple) else outputs.items()
    if more := [name for name, value in named if "loss" in name and name != "loss" and value is not None]:
        got = f"got {', '.join(more)} as well, which would be lost"
        how = "turn it off (for instance output_router_logits=False), or add it yourself as a penalty"
        raise UnsupportedModel(f"expected the cross-entropy as the only loss, {got}: {how}")


def _stats_of(nll: Tensor, targets: Tensor, *, plain: bool) -> CrossEntropyStats:
    """The stats that follow from the mean `nll` of the targets; the others are NaN."""
    numbers = torch.full((6,), torch.nan, dtype=torch.float64, device=nll.device)
    numbers[0] = targets
    if plain:
        numbers[1] = nll * targets
    return CrossEntropyStats(numbers)


def _check_options(options: CrossEntropyOptions, penalties: tuple[Penalty, ...]) -> None:
    if penalties and options.reduction == "none":
        raise InputError("expected a reduced loss with penalties, got 'none': a penalty has no single target")
    if options.softcap is not None or options.logit_scale != 1:
        got = f"got {options.softcap} and {options.logit_scale}: both are measured on the model"
        raise InputError(f"expected options without softcap and logit_scale, {got}")
    if options.ignore_index is None:
        raise InputError("expected an ignore_index, got None: use -100, because the last position has no target")
    if options.num_items is not None:
        raise InputError("expected options without num_items, got one: pass num_items_in_batch to the model")


def _check_gate(gate: Any, head: torch.nn.Linear, model: Any, ignore_index: int | None) -> None:
    if gate is None:
        return
    if not hasattr(gate, "gates"):
        raise InputError(f"expected a gate with gates(), got {type(gate).__name__}: use uncone.RareTokenGate")
    size, rows = len(gate.gates()[0]), head.weight.shape[0]
    if size != rows:
        raise InputError(f"expected a gate for the head's {rows} rows, got {size}: RareTokenGate({rows})")
    if (counted := getattr(gate, "ignore_index", ignore_index)) != ignore_index:
        raise InputError(f"expected one ignore_index, got {counted} (gate) and {ignore_index} (options): use the same")
    names = ("pad", "bos", "eos", "unk", "cls", "sep", "mask", "decoder_start")
    special = (getattr(model.config, f"{name}_token_id", None) for name in names)
    ids = (i for one in special for i in (one if isinstance(one, list | tuple) else [one]))
    tell(gate, "protect", [i for i in ids if isinstance(i, int) and 0 <= i < size])


def _resume(gate: Any, args: Any, step: int, *, fresh: bool) -> None:
    if not hasattr(gate, "load") or gate.status.step == step:
        return
    given, own = args.resume_from_checkpoint, checkpoint(args, step)
    folders = [Path(given)] if isinstance(given, str) and given not in ("True", "true") else []
    if states := [folder / STATE for folder in (*folders, own) if (folder / STATE).exists()]:
        gate.load(states[0])
    elif fresh and gate.status.step == 0:
        _begin_fresh(gate, step, f"{own.name}/{STATE} is missing")
        return
    if (at := gate.status.step) != step:
        raise InputError(
            f"expected the gate's state of step {step} in {own.name}/{STATE} of the output folder, got "
            f"{'none' if at == 0 else f'the state of step {at}'}: if the checkpoint is elsewhere, call "
            f"gate.load(checkpoint / {STATE!r}) before train(); if it was written without a gate, use "
            "uncone.attach(model, gate=gate, fresh=True)"
        )


def _begin_fresh(gate: Any, step: int, where: str) -> None:
    tell(gate, "begin_at", step)
    cause = f"the checkpoint of step {step} was written without a gate ({where})"
    warnings.warn(f"{cause}, so the gate starts at this step and counts from here on", stacklevel=3)
