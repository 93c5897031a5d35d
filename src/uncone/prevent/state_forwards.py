"""What stands in the place of a model's forward and of its base model's: states are read from the one, a penalty on them is added to the loss of the other."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model.head_map import undisturbed
from uncone.prevent.forwards import Forward
from uncone.prevent.labels import used
from uncone.prevent.pooling import Pooling, pool, token_mask
from uncone.prevent.ranks import is_first, joined
from uncone.prevent.tracking import AnisotropyTrack

Tensor = torch.Tensor
StatePenalty = Callable[[Tensor, Tensor | None], Tensor]


@dataclass
class StateStep:
    """What the two forwards hand to each other, and what became of it."""

    penalty: StatePenalty | None
    pooling: Pooling
    layer: int | None
    """Into `hidden_states`; None is the last hidden state."""
    labels: str | None
    across_ranks: bool
    group: Any
    track: AnisotropyTrack | None
    adds: bool
    """To the model's loss; else the states wait to be asked for."""
    pad: int | None
    kept: list[Tensor] = field(default_factory=list)
    value: Tensor | None = None
    steps: int = 0
    taken: int = 0
    """Clouds since the last optimiser step."""
    active: bool = True

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def take(self, labels: Tensor | None, part: Tensor | None = None) -> Tensor | None:
        """The penalty of the states kept, times `part`, and nothing is kept any more; None without a penalty."""
        points = torch.cat(self.kept)
        self.kept.clear()
        part = points.new_ones((), dtype=torch.float32) if part is None else part
        if self.across_ranks:
            points, labels, part = joined(points, labels, part, self.group)
        self._record(points.detach(), labels)
        added = None
        if self.penalty is not None:
            added = self._scalar(self.penalty(points, labels))
            added = added * part.to(added)
            self.value = added.detach()
        self.taken += 1
        return added

    def _record(self, points: Tensor, labels: Tensor | None) -> None:
        if self.track is None or not self.track.due(self.steps) or not is_first():
            return
        if labels is None or bool(used(labels).any()):  # else there is no cloud, and the next one is taken
            self.track.take(self.steps, points, labels)

    @staticmethod
    def _scalar(found: Any) -> Tensor:
        if not isinstance(found, Tensor) or found.ndim or not found.is_floating_point():
            got = (
                f"{found.dtype} of shape {tuple(found.shape)}"
                if isinstance(found, Tensor)
                else type(found).__name__
            )
            raise InputError(
                f"expected a scalar tensor from the penalty, got {got}: return one number with a gradient"
            )
        return found


class BaseForward(Forward):
    """The base model's forward: in training, the states of one layer are kept, one a sequence."""

    _step: StateStep

    def __init__(self, base: torch.nn.Module, step: StateStep) -> None:
        super().__init__(base, step)
        self._base = base

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._step.active and self._base.training and torch.is_grad_enabled()):
            return self._original(*args, **kwargs)
        inputs = self.bound(args, kwargs)
        if self._step.layer is None:
            outputs = self._original(**inputs)
            self._keep(outputs[0], inputs)
            return outputs
        config: Any = self._base.config
        asked, as_tuple = inputs.get("output_hidden_states"), inputs.get("return_dict")
        asked = config.output_hidden_states if asked is None else asked
        as_tuple = not (config.return_dict if as_tuple is None else as_tuple)
        outputs = self._original(**inputs | {"output_hidden_states": True, "return_dict": True})
        self._keep(outputs.hidden_states[self._step.layer], inputs)
        if not asked:
            outputs = type(outputs)(
                **{name: value for name, value in outputs.items() if name != "hidden_states"}
            )
        return outputs.to_tuple() if as_tuple else outputs

    def _keep(self, hidden: Tensor, inputs: dict[str, Any]) -> None:
        if hidden.ndim != 3:
            raise UnsupportedModel(
                f"expected hidden states of shape (B, T, D), got {tuple(hidden.shape)} from {type(self._base).__name__}: attach to the "
                "encoder or decoder itself"
            )
        states = pool(hidden, token_mask(inputs, hidden, self._step.pad), self._step.pooling)
        if (
            self._step.adds or not _in_backward()
        ):  # a checkpointed forward is run again for its gradient: those states were kept
            self._step.kept.append(states)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # as torch.utils.checkpoint asks


class LossForward(Forward):
    """The model's forward: in training, the penalty is added to its loss. A column of labels of its own is taken out before."""

    _step: StateStep

    def __init__(self, model: torch.nn.Module, step: StateStep) -> None:
        super().__init__(model, step)
        self._model = model
        self._divides = True if hasattr(self._original, "of_uncone") else None
        known = inspect.signature(model.forward).parameters
        self._own_column = step.labels if step.labels not in (None, *known) else None
        if self._own_column is not None:  # Trainer drops the columns that a forward does not name
            parameters = list(known.values())
            at = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
            parameters.insert(
                at, inspect.Parameter(self._own_column, inspect.Parameter.KEYWORD_ONLY, default=None)
            )
            self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        column = None if self._own_column is None else kwargs.pop(self._own_column, None)
        if not (self._step.active and self._model.training and torch.is_grad_enabled()):
            return self._original(*args, **kwargs)
        inputs = self.bound(args, kwargs)
        self._step.kept.clear()
        outputs = self._original(**inputs)
        loss = outputs[0] if isinstance(outputs, tuple) else outputs.get("loss")
        if inputs.get("labels") is None or loss is None:
            self._step.kept.clear()
            return outputs
        if loss.ndim:
            raise UnsupportedModel(
                f"expected one loss from the model, got shape {tuple(loss.shape)}: reduce it to its mean"
            )
        if not self._step.kept:
            raise UnsupportedModel(
                f"expected {type(self._model).__name__} to call its base model, got no call of the one attached to: was it replaced "
                "since? Attach after that"
            )
        column = inputs.get(self._step.labels) if self._own_column is None and self._step.labels else column
        classes = self._classes(column, sum(len(states) for states in self._step.kept))
        added = self._step.take(classes, self._part(inputs))
        if added is None:
            return outputs
        loss = loss + added.to(loss.device)
        if isinstance(outputs, tuple):
            return (loss, *outputs[1:])
        return type(outputs)(**dict(outputs.items()) | {"loss": loss})

    def _classes(self, column: Any, n: int) -> Tensor | None:
        """One class a sequence; None where the batch's labels are no classes of sequences."""
        name = self._step.labels
        if name is None:
            return None
        is_class = isinstance(column, torch.Tensor) and not column.is_floating_point() and column.numel() == n
        if is_class and column.ndim in (1, 2):
            classes: Tensor = column.reshape(-1)
            return classes
        if name == "labels":
            return None
        got = f"{column.dtype} of shape {tuple(column.shape)}" if isinstance(column, torch.Tensor) else "none"
        raise InputError(
            f"expected a column {name!r} in the batch with one integer a sequence ({n}), got {got}: add it, or labels=None"
        )

    def _part(self, inputs: dict[str, Any]) -> Tensor | None:
        """The part of the step that this micro-batch is, where the model divides its loss by the targets of a whole step."""
        items, labels = inputs.get("num_items_in_batch"), inputs["labels"]
        if items is None:
            return None
        if self._divides is None:
            self._divides = self._does_divide(inputs, items)
        if not self._divides:
            return None
        counted = (
            labels[..., 1:] if labels.ndim > 1 and labels.shape[-1] > 1 else labels
        )  # a first token is never predicted
        here = (counted != -100).sum()
        return torch.where(
            torch.as_tensor(items, device=here.device) != 0, here.float() / items, 0.0
        )  # NaN stays, as in the loss

    def _does_divide(self, inputs: dict[str, Any], items: Any) -> bool:
        """Whether the model's own loss halves with twice the items: some take the number and ignore it."""
        device = next(self._model.parameters()).device
        with (
            undisturbed(self._model),
            torch.no_grad(),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
        ):
            once, twice = (self._original(**inputs | {"num_items_in_batch": items * k}) for k in (1, 2))
        first, second = (float(o[0] if isinstance(o, tuple) else o.loss) for o in (once, twice))
        return abs(first - 2 * second) < abs(first - second)
