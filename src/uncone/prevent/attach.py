"""Any Hugging Face model's training through the gated loss: attach to it, train as before, detach."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch

from uncone.cross_entropy import CrossEntropyOptions, Gate
from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import HeadMap
from uncone.prevent.forwards import Forward, HeadForward, ModelForward, Penalty, Step, tell
from uncone.prevent.heads import base_model, output_head, refuse_patched, refuse_sharded
from uncone.prevent.probe import probe

Tensor = torch.Tensor
_SPECIAL = ("pad", "bos", "eos", "unk", "cls", "sep", "mask", "decoder_start")


def attach(
    model: Any,
    *,
    gate: Gate | None = None,
    penalties: Iterable[Penalty] = (),
    options: CrossEntropyOptions | None = None,
) -> "Attached":
    """Compute `model`'s training loss inside its head, gated, without its logits; evaluation and generation stay as they are.

    How logits follow from the head (scale, bias, cap) and whether labels are shifted is measured on a probe batch, and the model's
    own loss has to come out; nothing is looked up by the model's name.

    Args:
        model: a transformers model with a linear head and a loss that is its cross-entropy; DDP, PEFT and compiled ones are looked into.
        gate: for instance a `RareTokenGate`; None is the plain loss.
        penalties: each is called with the head's weight (V, D) and returns a scalar, which is added to the loss.
        options: see `CrossEntropyOptions`; scale and cap come from the model and must be left alone.

    Returns:
        A handle, also as a context manager: `with attach(model, gate=gate) as attached: ...`

    Load weights first: what was measured is not measured again.

    Raises:
        UnsupportedModel: what cannot be measured, or would train another objective, with the reason.
        InputError: a gate for another vocabulary, or options that contradict the model.
    """
    options = options or CrossEntropyOptions()
    penalties = tuple(penalties)
    _check_options(options, penalties)
    inner = base_model(model)
    refuse_patched(inner, options.backend)
    head = output_head(inner)
    refuse_sharded(head, options.reduction)
    if "labels" not in inspect.signature(inner.forward).parameters:
        raise UnsupportedModel(
            f"expected a model whose forward takes labels, got {type(inner).__name__}: it has no training loss"
        )
    check_gate(gate, head, inner, options.ignore_index)
    found = probe(inner, head)
    options = replace(options, softcap=found.cap, logit_scale=found.scale)
    return Attached(inner, head, Step(options, gate, penalties, found))


class Attached:
    """A model that trains through the gated loss. Call `step()` after each optimiser step, or give `callback` to a Trainer."""

    def __init__(self, model: Any, head: torch.nn.Linear, step: Step) -> None:
        self.model, self.head, self._step = model, head, step
        self._head_forward, self._model_forward = HeadForward(head, step), ModelForward(model, step)
        for module, forward in self._forwards():
            module.forward = forward

    @property
    def gate(self) -> Gate | None:
        """The gate, as it was given."""
        return self._step.gate

    @property
    def options(self) -> CrossEntropyOptions:
        """Those of the loss, with the measured scale and cap."""
        return self._step.options

    @property
    def head_map(self) -> HeadMap:
        """What was measured between the head and the loss."""
        return self._step.found

    @property
    def nll(self) -> Tensor | None:
        """The last training loss without penalties: the cross-entropy in nats a target, detached."""
        return self._step.nll

    @property
    def penalty(self) -> Tensor | None:
        """What the penalties added to it, detached; None without penalties."""
        return self._step.penalty

    @property
    def callback(self) -> Any:
        """A `TrainerCallback` that steps, and keeps the gate's state in every checkpoint."""
        from uncone.prevent.callback import trainer_callback

        return trainer_callback(self)

    def step(self) -> None:
        """Close an optimiser step. Call it once after each `optimizer.step()`.

        Raises:
            UnsupportedModel: no loss went through the head since the last one.
        """
        if self._step.losses == 0:
            raise UnsupportedModel(
                "expected at least one training loss in this step, got none: pass labels to the model in training mode "
                "(a loss computed outside of the model is not gated)"
            )
        self._step.losses = 0
        tell(self.gate, "step")

    def check(self) -> None:
        """Raises UnsupportedModel if something else took the place of the attached forwards."""
        for module, forward in self._forwards():
            if not _is_or_wraps(module.__dict__.get("forward"), forward):
                raise UnsupportedModel(
                    f"expected the attached forward of {type(module).__name__}, got another: something patched it since "
                    "(use_liger_kernel?); attach last"
                )

    def detach(self) -> None:
        """Give the model its own forward back. Twice is once; a wrapper that holds on to the attached one finds it passing through."""
        self._step.active = False
        for module, forward in self._forwards():
            if module.__dict__.get("forward") is forward:
                forward.restore(module)

    def _forwards(self) -> tuple[tuple[Any, Forward], ...]:
        return (self.model, self._model_forward), (self.head, self._head_forward)

    def __enter__(self) -> "Attached":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def _is_or_wraps(forward: Any, ours: Forward) -> bool:
    """Mixed precision of accelerate wraps a model's forward."""
    found: Any = forward if forward is None else inspect.unwrap(forward)
    return found is ours


def _check_options(options: CrossEntropyOptions, penalties: tuple[Penalty, ...]) -> None:
    if penalties and options.reduction == "none":
        raise InputError(
            "expected a reduction to one loss with penalties, got 'none': a penalty belongs to no single target"
        )
    if options.softcap is not None or options.logit_scale != 1:
        raise InputError(
            f"expected options without softcap and logit_scale, got {options.softcap} and {options.logit_scale}: both are measured "
            "on the model"
        )
    if options.ignore_index is None:
        raise InputError(
            "expected options with an ignore_index, got None: the last position of a sequence has no target; -100 marks it"
        )
    if options.num_items is not None:
        raise InputError(
            "expected options without num_items, got one: pass num_items_in_batch to the model, as Trainer does"
        )


def check_gate(gate: Any, head: torch.nn.Linear, model: Any, ignore_index: int | None) -> None:
    """Raises InputError or UnsupportedModel where the gate does not fit the head; the model's special ids are protected."""
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
    size = len(gate.gates()[0])
    if size != head.weight.shape[0]:
        raise InputError(
            f"expected a gate for the head's {head.weight.shape[0]} rows, got one for {size}: RareTokenGate({head.weight.shape[0]})"
        )
    counted = getattr(gate, "ignore_index", ignore_index)
    if counted != ignore_index:
        raise InputError(
            f"expected one ignore_index, got {counted} of the gate and {ignore_index} of the options: make both the same"
        )
    if hasattr(gate, "protect"):
        gate.protect(i for i in _special_ids(model.config) if 0 <= i < size)


def _special_ids(config: Any) -> Iterator[int]:
    for name in _SPECIAL:
        ids = getattr(config, f"{name}_token_id", None)
        yield from (i for i in (ids if isinstance(ids, list | tuple) else [ids]) if isinstance(i, int))
