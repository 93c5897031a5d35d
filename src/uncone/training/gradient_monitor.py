"""The ledger of the head's gradient while a model trains."""

import inspect
import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import torch

from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.diagnosis.why.gradients.record import GradientLedger, RowGradients
from uncone.errors import InputError, UnconeError, UnsupportedModel
from uncone.model.counts import as_counts
from uncone.model.head_map import IGNORED, HeadMap
from uncone.model.last_states import States
from uncone.roles import Path_
from uncone.training.attachment import unwrapped
from uncone.training.cloud import is_first
from uncone.training.heads import output_head, probe, whole_bias
from uncone.training.resume import own_lines

Tensor = torch.Tensor
_OF_GROUP = [field.name for field in fields(RowGradients) if field.name not in ("name", "rows", "targets", "net")]
_OF_LEDGER = ["tokens", "rare_targets", "nats", "zero_sum"]
_OF_LEDGER += ["mean_state_share", "mean_row_share", "state_to_minus_row", "logit_of_mean_row"]


class GradientMonitor:
    """Writes `uncone.gradient_ledger` of every `every`-th training micro-batch to `path`, a line of JSON each.

    Its hooks on the head leave any loop and any Trainer as it was, to the bit. Targets are the labels that the model's
    forward gets, or else those that the gradient by the logits shows: a token's one entry that stands out below 0. Only
    the first of several processes reads and writes.

        monitor = uncone.GradientMonitor(model, "gradients.jsonl") ...  # train as before monitor.detach()

    Args:
        model: of transformers with a linear head, also inside DDP, PEFT or a compiler, or attached by `uncone.attach`;
            with `head` any module.
        path: a file, new or with lines of earlier monitors, in a folder that exists.
        every: training forwards from one line to the next; with gradient accumulation over k micro-batches k times as
            many.
        targets: of a micro-batch that are read at most, evenly spaced.
        counts: (V,) or a file, of each id in the training text; by default in the targets read so far.
        head: the `torch.nn.Linear` of a model that is not of transformers, whose outputs are the logits.

    InputError where options are out of range, or the path cannot be appended to; UnsupportedModel where the head is not
    linear, or sharded.
    """

    def __init__(
        self,
        model: Any,
        path: Path_,
        *,
        every: int = 50,
        targets: int = 1024,
        counts: Any = None,
        head: torch.nn.Linear | None = None,
    ) -> None:
        if every < 1 or targets < 1:
            raise InputError(f"expected every and targets of at least 1, got {every} and {targets}: 50 and 1024")
        self._path, self._every, self._most = _appendable(path), every, targets
        inner = unwrapped(model)
        self._head = output_head(inner) if head is None else head
        if hasattr(self._head.weight, "full_tensor"):
            raise UnsupportedModel("expected a whole head, got a sharded one: leave the head out of the shards")
        v = self._head.weight.shape[0]
        self._counts = None if counts is None else torch.from_numpy(as_counts(counts, v).counts)
        self._counted_in = "in the targets that were read so far" if counts is None else "in the counts given"
        self._seen = torch.zeros(v, dtype=torch.int64)
        self._map = probe(inner, self._head) if head is None else HeadMap(1, None, None, False)
        self._signature = inspect.signature(inner.forward)
        self.steps = 0  # training forwards so far
        self.last: GradientLedger | None = None  # the ledger of the last line
        self._labels: Tensor | None = None
        self._hooks: list[Any] = [self._head.register_forward_hook(self._at_head)]
        if head is None:
            self._hooks.append(inner.register_forward_pre_hook(self._at_model, with_kwargs=True))

    def detach(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_model(self, module: Any, args: Any, kwargs: Any) -> None:
        self._labels = None
        if self.steps % self._every or not _trains(module):
            return
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError:  # the forward itself says what is wrong
            return
        given = given | given.pop("kwargs", {})
        self._labels = given.get("shift_labels")
        if self._labels is None and (labels := given.get("labels")) is not None:
            self._labels = self._map.align(labels, IGNORED)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _at_head(self, module: Any, args: Any, output: Any) -> None:
        labels, self._labels = self._labels, None
        if not _trains(module) or not is_first():
            return
        self.steps += 1
        hidden, step = args[0].detach(), self.steps
        if (step - 1) % self._every:
            return
        if labels is not None and labels.shape == hidden.shape[:-1]:
            self._read(hidden, labels, step)
        elif isinstance(output, Tensor) and output.requires_grad:
            hook: Any = output.register_hook
            likeliest = output.detach().argmax(dim=-1)
            hook(lambda gradient: self._from_gradient(hidden, gradient, likeliest, step))

    def _from_gradient(self, hidden: Tensor, gradient: Tensor, likeliest: Tensor, step: int) -> None:
        """The target is the one entry of the gradient by the logits below 0; a token without a loss has none. With
        smoothed labels unlikely tokens are below 0 too, all alike; a target with more probability than its smoothed
        label is above 0, and is then the likeliest token."""
        if not self._hooks:
            return
        low, places = gradient.topk(2, dim=-1, largest=False)
        stands_out = low[..., 0] < 2 * low[..., 1].clamp(max=0)
        labels = torch.where(stands_out, places[..., 0], likeliest)
        self._read(hidden, torch.where(low[..., 0] < 0, labels, IGNORED), step)

    @torch.no_grad()
    def _read(self, hidden: Tensor, labels: Tensor, step: int) -> None:
        line: dict[str, Any] = {"step": step}
        with torch.autocast(hidden.device.type, enabled=False):
            try:
                self.last = self._ledger(hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1))
                line |= summary_of(self.last)
            except (UnconeError, MemoryError, torch.OutOfMemoryError) as error:  # no reason to end a run
                line["reason"] = str(error)
        try:
            # one write: lines of several runs do not mix, and a kill leaves whole lines
            with self._path.open("ab", buffering=0) as file:
                file.write(f"{json.dumps(line, allow_nan=False)}\n".encode())
        except OSError as error:
            warnings.warn(f"the gradients were not written, and are no longer read: {error}", stacklevel=2)
            self.detach()

    def _ledger(self, hidden: Tensor, labels: Tensor) -> GradientLedger:
        places = (labels != IGNORED).nonzero()[:, 0]
        if len(places) > self._most:
            places = places[torch.arange(self._most, device=places.device) * len(places) // self._most]
        targets = labels[places].to(hidden.device)
        self._seen += torch.bincount(targets.cpu(), minlength=len(self._seen))
        counts = self._counts if self._counts is not None else self._seen
        head, own = self._head, self._head.bias
        bias = whole_bias(None if own is None else own.detach().float(), self._map, hidden.device)
        of_head = head.weight.detach().float(), bias, self._map.cap, self._map.scale, type(head).__name__
        states = States(hidden[places].float(), targets, *of_head, torch.zeros_like(targets))
        return gradient_ledger(states, counts=counts if len(targets) else None, counted_in=self._counted_in)


def summary_of(ledger: GradientLedger) -> dict[str, Any]:
    line: dict[str, Any] = {name: getattr(ledger, name) for name in _OF_LEDGER}
    for group in ledger.groups:
        line |= {f"{group.name}.{name}": getattr(group, name) for name in _OF_GROUP}
        line[f"{group.name}.net"] = group.net.value
    for drift in ledger.drifts:
        name = drift.optimiser.replace(" ", "_").lower()
        line |= {f"drift.{name}": drift.share, f"drift.{name}_to_mean_row": drift.to_mean_row}
    return line


def _trains(module: Any) -> bool:
    return bool(module.training and torch.is_grad_enabled())


def _appendable(path: Path_) -> Path:
    path = Path(path)
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"expected a file in a folder that exists, got {path}: make the folder first")
    if path.exists():
        records, rest = own_lines(path, (), "gradients of a step")
        others = [f"another in line {at}" for at, r in enumerate(records, 1) if not {"reason", "zero_sum"} & r.keys()]
        if rest:
            others.append(f"a part of one in line {len(records) + 1}")
        if others:
            got = f"got {others[0]}: name a new file"
            raise InputError(f"expected gradients of a step in each line of {path.name}, {got}")
    return path
