"""`attach_states`: a penalty on the states of any Hugging Face model in training."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import torch

from uncone.arguments import one_of
from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import is_seq2seq, run_model, undisturbed
from uncone.training.attachment import Attachment, part_of_step, unwrapped, with_loss
from uncone.training.bars.clouds import kind
from uncone.training.cloud import Pooling, joined, pool, token_mask
from uncone.training.means import Means

Tensor = torch.Tensor
StatePenalty = Callable[[Tensor, Tensor | None], Tensor]


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
) -> "AttachedStates":
    """Penalise the states of `model` in training, one state per sequence; evaluation stays the same.

    Args:
        model: a transformers model, also inside DDP, PEFT or a compiler; for a SentenceTransformer pass its
            `[0].auto_model`.
        penalty: takes points (N, D) and labels (N,) or None and returns a scalar, as a `PersistentEntropy` does. None
            adds nothing: the clouds are for a `Monitor`.
        pooling: the state of each sequence's first token ("cls") or last token ("last"), or the mean of all ("mean"),
            without padding on either side. The attention mask marks padding, or else the config's pad_token_id.
        layer: of the base model: 0 is the embeddings, 1 the first layer, -1 the last hidden state, after a final
            normalisation and before a pooler.
        labels: the column of the batch with one class per sequence. Token labels and real numbers in "labels" are not
            classes: the batch is then one cloud, as with None. A column that the model does not take never reaches it.
        add_to_loss: add the penalty to the model's training loss; or else keep the states until you call `penalty()`,
            for your own loss, or for several micro-batches as one cloud. None means True where the model takes labels.
        across_ranks: the points of all ranks are one cloud, with the gradient of a single process; False: one cloud per
            rank.
        group: the ranks, of torch.distributed; None is all.

    Returns:
        A handle, also a context manager: `with attach_states(model, PersistentEntropy()) as attached: ...`

    Each micro-batch is a cloud. Under a Trainer its penalty counts as its loss does: where the model divides its loss
    by the targets of the whole step, the penalty is multiplied by the micro-batch's share of the targets.

    Raises:
        InputError: options that contradict each other, or no such layer.
        UnsupportedModel: a model without hidden states of a single stack.
    """
    top = unwrapped(model)
    base = _base(top)
    takes_labels = base is not top and "labels" in inspect.signature(top.forward).parameters
    adds = takes_labels if add_to_loss is None else add_to_loss
    if adds and not takes_labels:
        raise InputError(f"expected add_to_loss False with {type(top).__name__}, got True: call penalty()")
    if penalty is not None and not callable(penalty):
        raise InputError(
            f"expected one penalty(points, labels), got {kind(penalty)}: pass PersistentEntropy(), or a function of several"
        )
    one_of(pooling, "pooling", get_args(Pooling))
    depth = _layers(top, base, count=layer != -1)
    if not isinstance(layer, int) or isinstance(layer, bool) or not -depth <= layer < depth:
        raise InputError(f"expected layer 0 (embeddings) to {depth - 1}, or -{depth} to -1, got {layer!r}")
    at = None if layer % depth == depth - 1 else layer
    return AttachedStates(top, base, penalty, pooling, at, labels, adds, across_ranks, group)


@dataclass(eq=False, repr=False)
class AttachedStates(Attachment):
    """A model whose states are penalised in training. Call `step()` after each optimiser step, or pass `callback` to a
    transformers Trainer, or `lightning` to Lightning's."""

    model: Any
    base: Any
    _penalty: StatePenalty | None
    _pooling: Pooling
    _layer: int | None  # of `hidden_states`; None is the last hidden state
    _labels: str | None
    _adds: bool
    _across_ranks: bool
    _group: Any
    value: Tensor | None = field(default=None, init=False)
    """What the penalty last added to a loss, detached; None before."""
    steps: int = field(default=0, init=False)  # optimiser steps so far, including steps before a Trainer's resume
    _kept: list[Tensor] = field(default_factory=list, init=False)  # states that wait for the penalty
    _followers: list[Callable[[Tensor, Tensor | None], object]] = field(default_factory=list, init=False)
    """Each follower is called with every cloud, detached, and its classes."""

    def __post_init__(self) -> None:
        super().__init__()
        self._means = Means(["states_penalty"] * (self._penalty is not None), torch.device("cpu"))
        self._on_base = self._put(self.base, self._run_base)
        if self._adds:
            self._on_model = self._put(self.model, self._run_model)
            self._divides = True if hasattr(self._on_model.original, "of_uncone") else None
            signature = self._on_model.__signature__
            self._own_column = self._labels not in (None, *signature.parameters)
            if self._own_column:  # Trainer drops the columns that a forward does not name
                column = inspect.Parameter(str(self._labels), inspect.Parameter.KEYWORD_ONLY, default=None)
                ordered = sorted([*signature.parameters.values(), column], key=lambda each: each.kind)
                self._on_model.__signature__ = signature.replace(parameters=ordered)

    def penalty(self, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of the states of all training forwards since its last call, as one cloud with `labels`
        (N,) in their order. InputError where the model's loss already contains it, or no forward was in training
        mode."""
        if self._adds:
            raise InputError("expected add_to_loss=False, got True: the loss already contains the penalty")
        if not self._kept:
            raise InputError("expected a forward in training (train(), gradients on) since the last call, got none")
        added = self._take(labels, None)
        return torch.zeros(()) if added is None else added

    def step(self) -> None:
        """Call it once after each `optimizer.step()`. UnsupportedModel if no states were read since the last call."""
        self._kept.clear()  # their gradient belongs to the weights before the step
        if self._taken == 0:
            how = "call penalty() before the optimiser's step"
            if self._adds:
                how = "pass labels to the model in training mode, and attach before torch.compile"
            raise UnsupportedModel(f"expected at least one cloud of states in this step, got none: {how}")
        self.steps += 1
        self._closed()

    def _needs_steps(self) -> bool:
        return False

    def _trained(self) -> Iterator[Any]:
        return iter(self.model.parameters())

    def logs(self) -> dict[str, int | float]:
        """The penalty of a cloud, undivided, named as for a log: the mean over the clouds since the last call. Every
        rank must call it."""
        return {f"uncone/{name}": value for name, value in self._means.take().items()}

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resume(state["steps"])

    def _state(self) -> Any:
        return self

    def _begin_in_lightning(self, trainer: Any, loaded: bool) -> None:
        if not loaded and trainer.global_step > 0:
            self.resume(trainer.global_step)

    def added_to(self, loss: torch.nn.Module) -> torch.nn.Module:
        """`loss` with `penalty()` added in training, for a Trainer that takes a loss of the model (with
        `add_to_loss=False`): `SentenceTransformerTrainer(model, loss=attached.added_to(loss))`."""
        return _WithPenalty(loss, self)

    def resume(self, steps: int) -> None:
        """Continue after so many optimiser steps."""
        self.steps = steps

    def detach(self) -> None:
        self._kept.clear()
        super().detach()

    def _begin(self, args: Any, step: int, loader: Any) -> None:
        if step > 0:
            self.resume(step)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _take(self, labels: Tensor | None, part: Tensor | None) -> Tensor | None:
        self._check_step()
        points = torch.cat(self._kept)
        self._kept.clear()
        part = points.new_ones((), dtype=torch.float32) if part is None else part
        if self._across_ranks:
            points, labels, part = joined(points, labels, part, self._group)
        for follow in self._followers:
            follow(points.detach(), labels)
        value: Any = None
        if self._penalty is not None:
            value = self._penalty(points, labels)
            if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
                raise InputError(f"expected a scalar tensor from penalty, got {kind(value)}: return one")
            self._means.add(None, value.detach()[None])
            value = value * part.to(value)
            self.value = value.detach()
        self._taken += 1
        return value  # type: ignore[no-any-return]

    def _run_base(self, *args: Any, **kwargs: Any) -> Any:
        run = self._on_base.original
        if not self._on_base.trains():
            return run(*args, **kwargs)
        inputs = self._on_base.bound(args, kwargs)
        if self._layer is None:
            outputs = run(**inputs)
            self._keep(outputs[0], inputs)
            return outputs
        both = {"output_hidden_states": True, "return_dict": True}
        asked, named = (getattr(self.base.config, k) if inputs.get(k) is None else inputs[k] for k in both)
        outputs = run(**inputs | both)
        self._keep(outputs.hidden_states[self._layer], inputs)
        if not asked:
            outputs = type(outputs)(**{name: x for name, x in outputs.items() if name != "hidden_states"})
        return outputs if named else outputs.to_tuple()

    def _keep(self, hidden: Tensor, inputs: dict[str, Any]) -> None:
        if hidden.ndim != 3:
            got = f"got {tuple(hidden.shape)} from {type(self.base).__name__}: attach to the encoder or decoder itself"
            raise UnsupportedModel(f"expected hidden states of shape (B, T, D), {got}")
        pad = getattr(self.base.config, "pad_token_id", None)
        states = pool(hidden, token_mask(inputs, hidden, pad), self._pooling)
        # A checkpointed forward runs again in the backward pass: its states were kept already.
        if self._adds or torch._C._current_graph_task_id() == -1:
            self._kept.append(states)

    def _run_model(self, *args: Any, **kwargs: Any) -> Any:
        column = kwargs.pop(str(self._labels), None) if self._own_column else None
        if not self._on_model.trains():
            return self._on_model.original(*args, **kwargs)
        inputs = self._on_model.bound(args, kwargs)
        self._kept.clear()
        outputs = self._on_model.original(**inputs)
        loss = outputs[0] if isinstance(outputs, tuple) else outputs.get("loss")
        if inputs.get("labels") is None or loss is None:
            self._kept.clear()
            return outputs
        if loss.ndim:
            raise UnsupportedModel(f"expected one loss, got shape {tuple(loss.shape)}: reduce it to its mean")
        if not self._kept:
            got = "got no call to the base model it had when attached: was it replaced? Attach after that"
            raise UnsupportedModel(f"expected {type(self.model).__name__} to call its base model, {got}")
        if not self._own_column and self._labels is not None:
            column = inputs.get(self._labels)
        added = self._take(self._classes(column), self._part(inputs))
        return outputs if added is None else with_loss(outputs, loss + added.to(loss.device))

    def _classes(self, column: Any) -> Tensor | None:
        if self._labels is None:
            return None
        n = sum(map(len, self._kept))
        whole = isinstance(column, Tensor) and not column.is_floating_point()
        if whole and column.numel() == n and column.ndim in (1, 2):
            return column.reshape(-1)  # type: ignore[no-any-return]
        if self._labels == "labels":
            return None
        got = f"got {'none' if column is None else kind(column)}: add it, or pass labels=None"
        raise InputError(f"expected a column {self._labels!r} in the batch with one integer per sequence ({n}), {got}")

    def _part(self, inputs: dict[str, Any]) -> Tensor | None:
        """None unless the model divides its loss by a whole step's targets."""
        items, labels = inputs.get("num_items_in_batch"), inputs["labels"]
        if items is None:
            return None
        if self._divides is None:  # does the loss halve with twice the items?
            with undisturbed(self.model):
                outputs = [self._on_model.original(**inputs | {"num_items_in_batch": items * k}) for k in (1, 2)]
            once, twice = (float(o[0] if isinstance(o, tuple) else o.loss) for o in outputs)
            self._divides = abs(once - 2 * twice) < abs(once - twice)
        if not self._divides:
            return None
        counted = labels[..., 1:] if labels.ndim > 1 and labels.shape[-1] > 1 else labels  # a first token is given
        return part_of_step((counted != -100).sum(), items)


class _WithPenalty(torch.nn.Module):
    def __init__(self, loss: torch.nn.Module, attached: AttachedStates) -> None:
        super().__init__()
        self.loss, self._attached = loss, attached

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found, attached = self.loss(*args, **kwargs), self._attached
        if not attached._kept:  # no forward was in training
            return found
        return found | {"penalty": attached.penalty()} if isinstance(found, dict) else found + attached.penalty()


def _base(top: Any) -> Any:
    if not hasattr(top, "base_model") or not hasattr(top, "config"):
        how = "for a SentenceTransformer pass its [0].auto_model; else call the penalty in your own loop"
        raise UnsupportedModel(f"expected a transformers model, got {type(top).__name__}: {how}")
    if is_seq2seq(top) and {"encoder", "decoder"} <= {name for name, _ in top.base_model.named_children()}:
        got = f"got {type(top).__name__} with an encoder and a decoder"
        how = "pass its get_encoder(), and call penalty() in your loop"
        raise UnsupportedModel(f"expected a model with a single stack, {got}: {how}")
    return top.base_model


def _layers(top: Any, base: Any, *, count: bool) -> int:
    """The number of hidden states, with embeddings; 1 without `count`, because requesting all of them leaves hooks of
    transformers that cannot be pickled."""
    table = base.get_input_embeddings()
    if not isinstance(getattr(table, "num_embeddings", None), int):
        got = f"got {type(base).__name__} without a token table: call the penalty in your own loop"
        raise UnsupportedModel(f"expected a model that reads token ids, {got}")
    # Sharded weights are whole only inside the root.
    asked = top if any(hasattr(p, "full_tensor") for p in base.parameters()) else base
    ids = torch.tensor([[0, 1], [1, 0]], device=next(base.parameters()).device) + min(5, table.num_embeddings - 2)
    more: dict[str, Any] = {"output_hidden_states": True} if count or asked is not base else {}
    with undisturbed(asked):
        outputs = run_model(asked, {"input_ids": ids, "attention_mask": torch.ones_like(ids)} | more)
        states = getattr(outputs, "hidden_states", None) if more else outputs[:1]
    if not states or states[-1].ndim != 3 or states[-1].shape[:2] != ids.shape:
        got = "got none: it has no layers to read"
        raise UnsupportedModel(f"expected {type(base).__name__} to give hidden states of shape (B, T, D), {got}")
    return len(states)
