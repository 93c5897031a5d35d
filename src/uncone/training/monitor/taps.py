"""What a monitor notes in each training forward, without waiting for a device."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from uncone.errors import UnsupportedModel, first_line
from uncone.model.head_map import IGNORED, HeadMap
from uncone.training.attachment import Forward, unwrapped
from uncone.training.cloud import is_first, pool, token_mask
from uncone.training.heads import check_matrix, output_head, probe

Tensor = torch.Tensor
_AT_ONCE = 32  # rows of logits that are copied at once


class Guard:
    """Runs code that must never end a training run: the first error of each kind becomes a warning."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, what: str, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """None where it fails."""
        try:
            return run(*args, **kwargs)
        except Exception as error:  # whatever it is: a run of days is worth more than its record
            self.say(what, f"the monitor could not {what}, and the run continues: {first_line(error)}")
            return None

    def say(self, what: str, message: str) -> None:
        if what not in self._said:
            self._said.add(what)
            with suppress(Warning):  # where warnings are errors
                warnings.warn(message, stacklevel=3)


class Taps:
    """Hooks on a table, a head and a model: how often ids and targets occurred, and a few states of the last
    forward."""

    def __init__(self, model: Any, guard: Guard, most: int, table: Any = None, head: Any = None) -> None:
        """InputError where `table` or `head` is no module with a matrix; UnsupportedModel where there is neither
        table nor head, or one of them is sharded."""
        for name, given in {"table": table, "head": head}.items():
            if given is not None:
                check_matrix(given, name)
        self.model, self._guard, self._most = unwrapped(model), guard, most
        own = head is None and _has_head(self.model)
        self.head: Any = output_head(self.model) if own else head
        self.map = probe(self.model, self.head) if own else HeadMap(1, None, None, False)
        self.table: Any = _table_of(self.model) if table is None else table
        matrices = [part.weight for part in (self.table, self.head) if part is not None]
        if not matrices:
            got = f"got {type(self.model).__name__}: give table=, head= or both"
            raise UnsupportedModel(f"expected a model with a token table or an output head, {got}")
        for weight in matrices:
            if hasattr(weight, "full_tensor"):
                raise UnsupportedModel("expected whole matrices, got a sharded one: do not shard the table or the head")
        self.encoder = None if self.head is not None else _encoder_of(self.model)
        self.ignored = IGNORED
        self.clear()
        self.ids, self.targets = (None if part is None else _counter(part.weight) for part in (self.table, self.head))
        self.counts_all = True  # and not only the targets that were read
        self._signature = inspect.signature(self.model.forward)
        self._labels: Tensor | None = None
        self.at_forward: Callable[[], object] = lambda: None
        self.wants_targets: Callable[[], bool] = lambda: False
        hooks = [self.model.register_forward_pre_hook(self._at_model, with_kwargs=True)]
        if self.table is not None:  # encoder and decoder may each have a module of their own for one matrix
            same = {self.table: None} | {one: None for one in self.model.modules() if _looks_up(one, self.table.weight)}
            hooks += [one.register_forward_pre_hook(self._at_table) for one in same]
        if self.head is not None:
            hooks.append(self.head.register_forward_hook(self._at_head))
        if self.encoder is not None:
            hooks.append(self.encoder.register_forward_hook(self._at_encoder, with_kwargs=True))
        self._hooks = hooks

    def clear(self) -> None:
        """Forget the states."""
        self.hidden: Tensor | None = None  # (M, D) that the head read
        self.labels: Tensor | None = None  # (M,) the states' targets, some ignored; None where unknown
        self.places: Tensor | None = None  # (M,) positions of the states in the forward
        self.count: Tensor | None = None  # targets in the forward
        self.points: Tensor | None = None  # (B, D) states of an encoder
        self.classes: Tensor | None = None

    def detach(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def attachments(self) -> Iterator[Any]:
        """The handles of `attach` and `attach_states` on the model, outermost first."""
        seen = set[int]()
        for module in (self.model, getattr(self.model, "base_model", None), self.encoder):
            forward = None if module is None else module.__dict__.get("forward")
            while isinstance(forward, Forward):
                handle = forward._handle
                if handle.active and id(handle) not in seen:
                    seen.add(id(handle))
                    yield handle
                forward = forward.original

    def counted(self, which: str) -> Tensor | None:
        """(V,): how often each id was read ("ids"), or was a target ("targets"), in this process."""
        counts: Tensor | None = getattr(self, which)
        return None if counts is None else counts[:-1]

    def _count(self, which: str, ids: Tensor, ignored: int | None) -> None:
        counts: Tensor = getattr(self, which).to(ids.device)  # a Trainer may move the model after the monitor was made
        setattr(self, which, counts)
        v, ids = len(counts) - 1, ids.detach().reshape(-1).long()
        is_id = (ids >= 0) & (ids < v)
        is_id = is_id if ignored is None else is_id & (ids != ignored)
        ids = torch.where(is_id, ids, v)
        counts.scatter_add_(0, ids, torch.ones_like(ids))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_model(self, module: Any, args: Any, kwargs: Any) -> None:
        self._labels = None
        if _trains(module):
            self._guard("follow the model's forward", self._read_labels, args, kwargs)

    def _read_labels(self, args: Any, kwargs: Any) -> None:
        self.at_forward()
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError:  # the forward itself reports what is wrong
            return
        given = given | given.pop("kwargs", {})
        labels: Any = given.get("shift_labels")
        if labels is None and (own := given.get("labels")) is not None:
            labels = self.map.align(own, self.ignored)
        self._labels = labels if isinstance(labels, Tensor) else None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_table(self, module: Any, args: Any) -> None:
        if _trains(module) and is_first() and args and isinstance(args[0], Tensor):
            self._guard("count ids", self._count, "ids", args[0], None)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_head(self, module: Any, args: Any, output: Any) -> None:
        labels, self._labels = self._labels, None
        if _trains(module) and is_first():
            self._guard("keep states", self._keep, args[0].detach(), labels)
            is_whole = isinstance(output, Tensor) and output.requires_grad and output.shape[-1] == len(module.weight)
            if labels is None and is_whole and self.wants_targets():
                self._guard("read targets from the gradient", self._await_gradient, output)

    def _await_gradient(self, output: Tensor) -> None:
        places = self.places
        assert places is not None
        rows = output.detach().reshape(-1, output.shape[-1])
        likeliest = torch.cat([rows[few].argmax(-1) for few in torch.split(places, _AT_ONCE)])
        hook: Any = output.register_hook
        hook(
            lambda gradient: self._guard(
                "read targets from the gradient", self._targets_of, gradient, likeliest, places
            )
        )

    def _targets_of(self, gradient: Tensor, likeliest: Tensor, places: Tensor) -> None:
        """The target is the only entry below 0 in the gradient by the logits; a token without a loss has none. With
        smoothed labels, unlikely tokens are also below 0, all alike. A target with more probability than its smoothed
        label is above 0, and is then the likeliest token."""
        if self.places is not places or not self._hooks:
            return
        rows = gradient.reshape(-1, gradient.shape[-1])
        parts = [rows[few].topk(2, dim=-1, largest=False) for few in torch.split(places, _AT_ONCE)]
        low, at = (torch.cat([part[i] for part in parts]) for i in (0, 1))
        stands_out = low[:, 0] < 2 * low[:, 1].clamp(max=0)
        labels = torch.where(stands_out, at[:, 0], likeliest)
        self.labels = torch.where(low[:, 0] < 0, labels, self.ignored)
        kept = (low[:, 0] < 0).double().mean() * len(rows)  # the others are taken to have as many
        self.count = kept.round().long()
        self._count("targets", self.labels, self.ignored)
        self.counts_all = False

    def _keep(self, hidden: Tensor, labels: Tensor | None) -> None:
        n, device = hidden.shape[:-1].numel(), hidden.device
        if labels is not None and labels.numel() != n:
            labels = None
        m = min(n, self._most)
        places = torch.arange(m, device=device) * n // max(m, 1)
        self.labels = self.count = None
        if labels is not None:
            labels = labels.reshape(-1).to(device)
            self._count("targets", labels, self.ignored)
            kept = labels != self.ignored
            self.count = count = kept.sum()
            at = torch.arange(m, device=device)
            at = torch.where(count > m, at * count // max(m, 1), at)
            places = torch.argsort((~kept).to(torch.uint8), stable=True)[at]
            self.labels = labels[places]
        self.places, self.hidden = places, hidden.reshape(n, -1)[places]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_encoder(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if _trains(module) and is_first():
            if module is not self.model:
                self.at_forward()
            self._guard("keep states", self._keep_points, module, args, kwargs, output)

    def _keep_points(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(output, Mapping) and isinstance(points := output.get("sentence_embedding"), Tensor):
            self.points = points.detach()
            return
        hidden = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", None)
        if isinstance(hidden, Tensor) and hidden.ndim == 3:
            inputs = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            pad = getattr(getattr(module, "config", None), "pad_token_id", None)
            self.points = pool(hidden.detach(), token_mask(inputs, hidden, pad), "mean")


def _counter(weight: Tensor) -> Tensor:
    """(V + 1,): the last place counts values that are not ids."""
    return torch.zeros(len(weight) + 1, dtype=torch.int64, device=weight.device)


def _trains(module: Any) -> bool:
    return bool(module.training and torch.is_grad_enabled())


def _has_head(model: Any) -> bool:
    with suppress(NotImplementedError, AttributeError):
        return model.get_output_embeddings() is not None
    return False


def _table_of(model: Any) -> Any:
    for module in model.modules():
        with suppress(NotImplementedError, AttributeError):
            table = module.get_input_embeddings()
            if isinstance(table, torch.nn.Module) and getattr(getattr(table, "weight", None), "ndim", 0) == 2:
                return table
    return None


def _looks_up(module: Any, weight: Any) -> bool:
    return isinstance(module, torch.nn.Embedding) and module.weight is weight


def _encoder_of(model: Any) -> Any:
    """The module whose output has states: a sentence model itself, or the base model of a transformers model."""
    if hasattr(model, "encode") and hasattr(model, "tokenize"):
        return model
    base = getattr(model, "base_model", None)
    return base if isinstance(base, torch.nn.Module) else None
