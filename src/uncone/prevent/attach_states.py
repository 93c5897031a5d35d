"""A penalty on the states of any Hugging Face model in training: attach it, train as before, detach."""

import inspect
from types import TracebackType
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import is_seq2seq, run_model, undisturbed
from uncone.prevent.forwards import Forward
from uncone.prevent.heads import unwrapped
from uncone.prevent.pooling import POOLINGS, Pooling
from uncone.prevent.ranks import is_first
from uncone.prevent.state_forwards import BaseForward, LossForward, StatePenalty, StateStep
from uncone.prevent.tracking import AnisotropyTrack

Tensor = torch.Tensor


def attach_states(
    model: Any,
    penalty: StatePenalty | None = None,
    *,
    pooling: Pooling = "cls",
    layer: int = -1,
    labels: str | None = "labels",
    add_to_loss: bool | None = None,
    across_ranks: bool = True,
    group: Any = None,
    track: AnisotropyTrack | None = None,
) -> "AttachedStates":
    """Penalise the states of `model` in training, one state a sequence; evaluation and generation stay as they are.

    Args:
        model: a transformers model; DDP, PEFT and compiled ones are looked into. Of a SentenceTransformer, its `[0].auto_model`.
        penalty: called with points (N, D) and labels (N,) or None, returns a scalar: for instance a `PersistentEntropy`. None only tracks.
        pooling: "cls" takes the state of each sequence's first token, "last" of its last one, "mean" their mean. Padding counts for nothing, on
            either side; the attention mask says what it is, and without one the config's pad_token_id.
        layer: of the base model: 0 is the embeddings, 1 the first layer, -1 the last hidden state, after a final normalisation and
            before a pooler.
        labels: the column of the batch with one class a sequence. Token labels and real numbers under "labels" are none: the batch then is one
            cloud, as with None. A column that the model does not take is taken out before the model sees it.
        add_to_loss: True adds the penalty to the model's loss wherever it computes one in training. False keeps the states until `penalty()`
            asks: for a loss of your own, or to take several micro-batches as one cloud. None is True where the model takes labels.
        across_ranks: the points of all ranks of `group` are one cloud, with the gradient of a single process. False takes a cloud a rank.
        group: of torch.distributed; None is all ranks.
        track: a record of the cloud's anisotropy, kept by the first rank; without `across_ranks`, of that rank's cloud.

    Returns:
        A handle, also as a context manager: `with attach_states(model, PersistentEntropy()) as attached: ...`

    Each micro-batch is a cloud of its own. Under a Trainer, a micro-batch's penalty counts as its loss does: where the model divides its
    loss by the targets of the whole step, by its share of them.

    Raises:
        InputError: options that contradict each other, or a layer that there is not.
        UnsupportedModel: a model without hidden states of one stack, with the reason.
    """
    top = unwrapped(model)
    base = _base(top)
    takes_labels = base is not top and "labels" in inspect.signature(top.forward).parameters
    adds = takes_labels if add_to_loss is None else add_to_loss
    if adds and not takes_labels:
        raise InputError(
            f"expected add_to_loss False with {type(top).__name__}, got True: it computes no loss from labels; call penalty() in your loop"
        )
    if penalty is not None and not callable(penalty):
        raise InputError(
            f"expected a penalty that takes points and labels, got {type(penalty).__name__}: PersistentEntropy() is one"
        )
    if pooling not in POOLINGS:
        raise InputError(f"expected pooling 'cls', 'mean' or 'last', got {pooling!r}")
    depth = _layers(top, base, count=layer != -1)
    if not isinstance(layer, int) or isinstance(layer, bool) or not -depth <= layer < depth:
        raise InputError(
            f"expected a layer from 0 (embeddings) to {depth - 1}, or from -{depth} to -1, got {layer!r}"
        )
    at = None if layer % depth == depth - 1 else layer
    pad = getattr(base.config, "pad_token_id", None)
    return AttachedStates(
        top, base, StateStep(penalty, pooling, at, labels, across_ranks, group, track, adds, pad)
    )


class AttachedStates:
    """A model whose states are penalised in training. Call `step()` after each optimiser step, or give `callback` to a Trainer."""

    def __init__(self, model: Any, base: Any, step: StateStep) -> None:
        self.model, self.base, self._step = model, base, step
        self._forwards: list[tuple[Any, Forward]] = []
        for module, kind in ((base, BaseForward), (model, LossForward))[: 2 if step.adds else 1]:
            module.forward = kind(module, step)
            self._forwards.append((module, module.forward))

    @property
    def value(self) -> Tensor | None:
        """What the penalty last added, as it was added, detached; None before the first time."""
        return self._step.value

    @property
    def track(self) -> AnisotropyTrack | None:
        """The record of anisotropy, as it was given."""
        return self._step.track

    @property
    def steps(self) -> int:
        """Optimiser steps so far, those before a Trainer's resume too."""
        return self._step.steps

    @property
    def callback(self) -> Any:
        """A `TrainerCallback` that steps."""
        from uncone.prevent.states_callback import states_callback

        return states_callback(self)

    def penalty(self, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of the states of all training forwards since it was last called, as one cloud; with labels (N,) in their order.

        Raises:
            InputError: the penalty is in the model's loss already, or there was no forward in training mode.
        """
        if self._step.adds:
            raise InputError(
                "expected a handle with add_to_loss=False, got one that adds the penalty to the model's loss already"
            )
        if not self._step.kept:
            raise InputError(
                "expected a forward in training mode (model.train(), gradients on) since the last call, got none"
            )
        added = self._step.take(labels)
        return torch.zeros(()) if added is None else added

    def step(self) -> None:
        """Close an optimiser step. Call it once after each `optimizer.step()`.

        Raises:
            UnsupportedModel: no states were taken since the last one.
        """
        if self._step.taken == 0:
            self._step.kept.clear()
            raise UnsupportedModel(
                "expected at least one cloud of states in this step, got none: "
                + (
                    "pass labels to the model in training mode, and attach before torch.compile"
                    if self._step.adds
                    else "call penalty() before the optimiser's step"
                )
            )
        self._step.kept.clear()  # nobody asked for them, and their gradient belongs to the weights before the step
        self._step.steps, self._step.taken = self._step.steps + 1, 0

    def resume(self, steps: int) -> None:
        """Go on after so many optimiser steps; a Trainer's callback calls this."""
        self._step.steps = steps
        if self._step.track is not None and is_first():
            self._step.track.resume(steps)

    def check(self) -> None:
        """Raises UnsupportedModel if something else took the place of the attached forwards."""
        for module, forward in self._forwards:
            found = module.__dict__.get("forward")
            while found is not None and found is not forward:  # mixed precision of accelerate wraps a forward
                found = getattr(found, "__wrapped__", None)
            if found is None:
                raise UnsupportedModel(
                    f"expected the attached forward of {type(module).__name__}, got another: something patched it since "
                    "(use_liger_kernel?); attach last"
                )

    def detach(self) -> None:
        """Give the model its own forward back. Twice is once; a wrapper that holds on to the attached one finds it passing through."""
        self._step.active = False
        self._step.kept.clear()
        for module, forward in reversed(self._forwards):
            if module.__dict__.get("forward") is forward:
                forward.restore(module)

    def __enter__(self) -> "AttachedStates":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def _base(top: Any) -> Any:
    """The part of a transformers model that makes hidden states."""
    if not hasattr(top, "base_model") or not hasattr(top, "config"):
        raise UnsupportedModel(
            f"expected a transformers model, got {type(top).__name__}: of a SentenceTransformer pass its [0].auto_model; else call the "
            "penalty in your own loop"
        )
    if is_seq2seq(top) and {"encoder", "decoder"} <= {name for name, _ in top.base_model.named_children()}:
        raise UnsupportedModel(
            f"expected a model of one stack, got {type(top).__name__} with an encoder and a decoder: pass its get_encoder(), and call "
            "penalty() in your loop"
        )
    return top.base_model


def _layers(top: Any, base: Any, *, count: bool) -> int:
    """How many hidden states the base model has, its embeddings among them, from a run on four tokens; 1 if not to be counted.

    transformers leaves hooks on a model that was asked for them, with which it cannot be pickled any more: the last one needs no asking.
    """
    asked = (
        top if any(hasattr(p, "full_tensor") for p in base.parameters()) else base
    )  # sharded weights are whole inside the root only
    table = base.get_input_embeddings()
    if not isinstance(getattr(table, "num_embeddings", None), int):
        raise UnsupportedModel(
            f"expected a model of token ids, got {type(base).__name__} without a table of tokens: call the penalty in your own loop"
        )
    device = next(base.parameters()).device
    ids = torch.tensor([[0, 1], [1, 0]], device=device) + min(5, table.num_embeddings - 2)
    batch: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if count or asked is not base:
        batch["output_hidden_states"] = True
    with (
        undisturbed(asked),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.no_grad(),
    ):
        outputs = run_model(asked, batch)
        states = getattr(outputs, "hidden_states", None) if "output_hidden_states" in batch else outputs[:1]
    if not states or states[-1].ndim != 3 or states[-1].shape[:2] != ids.shape:
        raise UnsupportedModel(
            f"expected {type(base).__name__} to give hidden states of shape (B, T, D), got none: it has no layers to read"
        )
    return len(states)
