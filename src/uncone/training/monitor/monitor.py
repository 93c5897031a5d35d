"""`Monitor`: the geometry of a model while it trains, in a file, in trackers and in any loop."""

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import torch

from uncone.arguments import whole_number
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.errors import InputError
from uncone.model.counts import as_counts
from uncone.model.last_states import States
from uncone.roles import Path_
from uncone.training import resume
from uncone.training.cloud import is_first
from uncone.training.gate import GateStatus
from uncone.training.heads import whole_bias
from uncone.training.lightning import lightning_callback
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.monitor.callback import trainer_callback
from uncone.training.monitor.loss import Batch, LossReader
from uncone.training.monitor.rows import Groups, Numbers, RowsReader
from uncone.training.monitor.run_file import RunFile
from uncone.training.monitor.states import states_numbers
from uncone.training.monitor.taps import Guard, Taps
from uncone.training.optimisers.kappa import kappa_by_frequency

Tensor = torch.Tensor
SPECTRUM = 10  # records from one spectrum to the next
_OF_GATE = ("rare_ids", "rare_share", "rare_mass", "gated_share", "mean_g1", "mean_g2")
_OF_PENALTY = {"penalty": "penalty.total", "states_penalty": "penalty.states"}


class Monitor:
    """Reads table, head, states and loss of a model in training every so many optimiser steps.

        with uncone.Monitor("run.jsonl", model) as monitor:
            for batch in data:
                model(**batch).loss.backward(); optimizer.step(); optimizer.zero_grad(); monitor.step()

    `callback` serves a Trainer, `lightning` Lightning's. A loop with a tracker of its own calls `measure(step)` where it
    logs, instead of `step()`. The first and the last step have a record too. Training stays as it is, to the bit, a
    device is waited for by a record alone, and no error of the monitor ends a run: the first of each kind is a warning.

    Names of numbers are "part.reading" or "part.group.reading", with parts table, head (without its mean row, which
    changes no probability), states, loss, gradient, gate and penalty, and groups frequent, medium, rare and never, by
    `counts` or by the targets seen. Rows are read after the step; states are of its last micro-batch; the numbers that
    an attached loss gives are means over the step, or with `measure` alone since the record before. Of several
    processes the first one reads.

    Args:
        path: of the run's file, a line of JSON each; None writes none.
        model: of transformers, of Sentence Transformers, or any module with `table` or `head`; also attached by
            `uncone.attach`, inside DDP, PEFT or a compiler.
        every: optimiser steps from one record to the next; spectra are read in every tenth record.
        counts: (V,) or a file, of each id in the training text; by default in the targets so far.
        targets: of a micro-batch that are read at most, evenly spaced.
        options: of the loss that trains, where it is not attached: its label smoothing, z-loss and reduction.
        class_weights: (V,) of the loss that trains.
        beta2: of the optimiser, for kappa; under a Trainer its own.
        table: the embedding of a model that is of neither library.
        head: its `torch.nn.Linear`, whose outputs are the logits.
        rules: judges each record by `see(step, numbers)`; its warnings are written, and given out.
        on_warning: called with each of them.

    InputError for options out of range, another run's file or counts of another length; UnsupportedModel where the
    model has neither table nor head, or where they are sharded.
    """

    def __init__(
        self,
        path: Path_ | None,
        model: Any,
        every: int = 50,
        *,
        counts: Any = None,
        targets: int = 256,
        options: CrossEntropyOptions | None = None,
        class_weights: Tensor | None = None,
        beta2: float = 0.999,
        table: Any = None,
        head: torch.nn.Linear | None = None,
        rules: Any = None,
        on_warning: Callable[[Any], object] | None = None,
    ) -> None:
        self.every = whole_number(every, "every", 1)
        whole_number(targets, "targets", 1)
        self.guard = Guard()
        self._options, self._weights, self.beta2 = options, class_weights, beta2
        self.rules, self._on_warning = rules, on_warning
        self.steps = 0  # optimiser steps done, those before a resume too
        self.last: Numbers = {}  # the numbers of the last record
        self._recorded, self._records, self._unsaid = -1, 0, Numbers()
        self._begun = self._stepping = self._closed = False
        self._taps = taps = Taps(model, self.guard, targets, table, head)
        self._matrix: Tensor = (taps.head or taps.table).weight
        v, d = self._matrix.shape
        self._counts = None if counts is None else torch.from_numpy(as_counts(counts, v).counts)
        by = "targets seen" if taps.head is not None else "ids seen"
        header = {"model": type(taps.model).__name__, "vocabulary": v, "dimensions": d, "every": every}
        header["groups"] = {"by": by if counts is None else "counts given"}
        try:
            self._file = None if path is None or not is_first() else RunFile(path, header)
        except InputError:
            taps.detach()
            raise
        self._readers = {"table": RowsReader(), "head": RowsReader()}
        self._groups: tuple[int, dict[int, Groups]] = (0, {})
        self._batch: Batch | None = None
        self._followed: dict[int, tuple[Any, Any]] = {}  # by id: an attachment, and what follows it
        self._fresh = True  # no forward in this step
        taps.at_forward = self._at_forward
        taps.wants_targets = lambda: not self._stepping or self._is_due(self.steps + 1)

    def _at_forward(self) -> None:
        self._begin_in_training()
        for handle in self._taps.attachments():
            if id(handle) not in self._followed:
                followers = getattr(handle, "_followers", None)
                if followers is not None:
                    followers.append(self._take_points)
                self._followed[id(handle)] = handle, handle._means.followed()
            if (options := getattr(handle, "options", None)) is not None:
                self._taps.ignored = options.ignore_index
        if self._fresh and self._stepping:
            for _, means in self._followed.values():
                means.clear()
        self._fresh = False

    def _take_points(self, points: Tensor, classes: Tensor | None) -> None:
        self._taps.points, self._taps.classes = points, classes

    def resume(self, steps: int) -> None:
        """Go on after so many optimiser steps: lines of later ones are dropped from the file. InputError where the file
        cannot be written, or where another process writes to it."""
        if steps != self.steps:  # and no state of then was loaded
            self._before = steps
        self.steps = whole_number(steps, "steps", 0)
        self._recorded, self._stepping = (steps, True) if steps else (-1, False)
        self._begun, self._closed = True, False
        if self._file is not None:
            self._file.begin(steps)

    def _begin_in_training(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self._file is not None and self.guard("write its file", self._opened) is None:
            self._file = None

    def _opened(self) -> bool:
        assert self._file is not None
        self._file.begin(self.steps)
        return True

    def step(self) -> None:
        """Call it once after each `optimizer.step()`."""
        self.at(self.steps + 1)

    def at(self, step: int, *, is_last: bool = False) -> None:
        """`step()`, where so many optimiser steps are done."""
        self._begin_in_training()
        is_first_step, self._stepping, self._fresh = not self._stepping, True, True
        self.steps = step
        if is_first_step or is_last or self._is_due(step):
            self.measure(step)

    def _is_due(self, step: int) -> bool:
        return step % self.every == 0

    def measure(self, step: int, *, labels: Tensor | None = None, states: Tensor | None = None) -> Numbers:
        """Read a record after so many optimiser steps, write its line, and return its flat names and numbers.

        Of one step it is read once. `labels` are the targets of the last forward's states, aligned with them and -100
        where there is none, for a loop whose loss is outside of the model; `states` (N, D) stand for the batch's.
        """
        if step == self._recorded or not is_first():
            return dict(self.last)
        self._begin_in_training()
        if step < self._recorded:
            got = f"got {step:,} after {self._recorded:,}"
            self.guard.say("order", f"expected steps in their order, {got}: after a resume call monitor.resume(step)")
            return {}
        self.steps = max(self.steps, step)
        self.last = self.guard("read a record", self._read, labels, states) or {}
        self._recorded, self._records = step, self._records + 1
        self._unsaid = dict(self.last)
        if self._file is not None and self._file.is_open:
            self.guard("write its file", self._file.record, step, self.last)
        if self.rules is not None:
            for warning in self.guard("judge a record", self.rules.see, step, self.last) or ():
                self.guard("warn", self._warn, step, warning)
        return dict(self.last)

    def _warn(self, step: int, warning: Any) -> None:
        if self._file is not None and self._file.is_open:
            named = {name: getattr(warning, name) for name in ("rule", "name", "text")}
            self.guard("write its file", self._file.append, step, {}, warning=named)
        if self._on_warning is not None:
            self.guard("call on_warning", self._on_warning, warning)
        if (trackio := sys.modules.get("trackio")) is not None:
            self.guard("alert trackio", trackio.alert, f"{warning.rule}: {warning.name}", warning.text)
        with suppress(Warning):
            warnings.warn(f"step {step:,}: {warning.text}", stacklevel=2)

    @torch.no_grad()
    def _read(self, labels: Tensor | None, states: Tensor | None) -> Numbers:
        taps, found = self._taps, Numbers()
        with torch.autocast(self._matrix.device.type, enabled=False):
            spectrum = self._records % SPECTRUM == 0
            batch = self._batch = self.guard("read the batch", self._batch_of, labels)
            for part, one in (("head", taps.head), ("table", taps.table)):
                if one is not None and not (part == "table" and self._is_tied):
                    found |= self.guard(f"read the {part}", self._matrix_numbers, part, one, batch, spectrum) or {}
            points = taps.points if states is None else states
            points = taps.hidden if points is None else points
            if points is not None and len(points):
                classes = None if states is not None or points is not taps.points else taps.classes
                read = self.guard("read states", states_numbers, points, classes) or {}
                found |= _named("states", read)
        found |= self.guard("read the attached loss", self._attached_numbers) or {}
        found |= self.guard("read kappa", self._kappa) or {}
        taps.clear()
        return found

    @property
    def _is_tied(self) -> bool:
        head, table = self._taps.head, self._taps.table
        return head is not None and table is not None and head.weight is table.weight

    def _matrix_numbers(self, part: str, one: Any, batch: Batch | None, spectrum: bool) -> Numbers:
        groups, is_head = self._groups_of(len(one.weight)), part == "head"
        also = LossReader(batch, groups, spectrum) if is_head and batch is not None else None
        counts = self._taps.counted("targets" if is_head else "ids")
        if counts is not None and (not bool(counts.any()) or (is_head and not self._taps.counts_all)):
            counts = None  # the labels do not pass through the model
        given: dict[str, Any] = {"counts": counts, "is_head": is_head, "spectrum": spectrum, "also": also}
        read, passed = self._readers[part].read(one.weight, groups, **given)
        found = _named(part, read[is_head])
        if is_head and self._is_tied:
            found |= _named("table", read[False])
            if (ids := self._taps.counted("ids")) is not None and bool(ids.any()):
                found["table.untouched"] = float((ids == 0).double().mean())
        if also is not None:
            loss, gradient = also.numbers(passed)
            found |= _named("loss", loss) | _named("gradient", gradient)
        return found

    def _groups_of(self, v: int) -> Groups:
        """Cut anew when twice as many targets were seen."""
        counts = self._known_counts()
        if counts is None or len(counts) != v:
            counts = self._taps.counted("ids")
        if counts is None or len(counts) != v:
            counts = torch.zeros(v, dtype=torch.int64)
        total, cut = self._groups
        now = int(counts.sum())
        if now >= 2 * total and self._counts is None:
            total, cut = now, {}
        if v not in cut:
            cut[v] = Groups.by_count(counts.to(self._matrix.device))
        self._groups = total, cut
        return cut[v]

    def _known_counts(self) -> Tensor | None:
        if self._counts is not None:
            return self._counts
        counts = self._taps.counted("targets")
        return counts if counts is not None and bool(counts.any()) else None

    def _batch_of(self, labels: Tensor | None) -> Batch | None:
        taps, options = self._taps, self._options or CrossEntropyOptions()
        options = next((h.options for h in taps.attachments() if hasattr(h, "options")), options)
        if taps.head is None or taps.hidden is None or taps.places is None:
            return None
        targets, count = taps.labels, taps.count
        if labels is not None:
            whole = labels.reshape(-1).to(taps.places.device)
            targets, count = whole[taps.places], (whole != taps.ignored).sum()
        if targets is None or count is None:
            return None
        kept = (targets != taps.ignored).nonzero()[:, 0]
        if not len(kept):
            return None
        own, weight = taps.head.bias, taps.head.weight
        bias = whole_bias(None if own is None else own.detach().float(), taps.map, weight.device)
        hidden, targets = taps.hidden[kept].to(weight.device), targets[kept].to(weight.device)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        of_head = weight.detach(), bias, taps.map.cap, taps.map.scale, type(taps.head).__name__
        return Batch(States(hidden, targets, *of_head, torch.zeros_like(targets)), int(count), options, self._weights)

    def ledger(self) -> GradientLedger:
        """`uncone.gradient_ledger` of the batch that the last record read, with drifts of coupled Adam too: of the plain
        mean, in matrices as large as the head. InputError where that record had no targets."""
        if self._batch is None:
            raise InputError("expected a record with targets, got none: train with labels, then call step() or measure")
        s, counts = self._batch.states, self._known_counts()
        whole = States(s.states.float(), s.labels, s.head.float(), s.bias, s.cap, s.scale, s.name, s.windows)
        by = "in the targets that were read so far" if self._counts is None else "in the counts given"
        return gradient_ledger(whole, counts=counts, counted_in=by)

    def _attached_numbers(self) -> Numbers:
        found = Numbers()
        for handle, means in self._followed.values():
            for name, value in means.take(across_ranks=False).items():
                kind, _, penalty = name.partition("/")
                found[f"penalty.{penalty}" if penalty else _OF_PENALTY.get(kind, f"loss.{kind}")] = value
            status = getattr(getattr(handle, "gate", None), "status", None)
            if isinstance(status, GateStatus):
                of_gate = {name: getattr(status, name) for name in _OF_GATE}
                found |= _named("gate", {name: float(x) for name, x in of_gate.items() if x is not None})
        return found

    def _kappa(self) -> Numbers:
        seen, counts = self._taps.counted("targets"), self._known_counts()
        done = self.steps - self._before
        if seen is None or counts is None or done < 1 or not (targets := int(seen.sum()) / done):
            return {}
        table = kappa_by_frequency(counts.cpu().numpy(), targets, beta2=self.beta2)
        return {f"gradient.{group.name}.kappa": group.kappa for group in table.groups}

    _before = 0  # steps whose targets were not counted

    def close(self) -> None:
        """Record the last step, close the file, and leave the model as it was."""
        if not self._closed and self._stepping:
            self.measure(self.steps)
        self._closed = True
        if self._file is not None:
            self._file.close()

    def detach(self) -> None:
        self.close()
        self._taps.detach()
        for handle, means in self._followed.values():
            handle._means._followers.remove(means)
            if self._take_points in getattr(handle, "_followers", ()):
                handle._followers.remove(self._take_points)
        self._followed.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def unsaid(self) -> dict[str, float]:
        """The numbers of the last record, once: for what logs on its own occasions."""
        said, self._unsaid = self._unsaid, {}
        return {f"uncone/{name}": value for name, value in said.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on without a seam."""
        counts = {name: self._taps.counted(name) for name in ("ids", "targets")}
        means = {name: reader.kept.first_mean for name, reader in self._readers.items()}
        tensors = {name: x.cpu().clone() for name, x in (counts | means).items() if x is not None}
        rules = self.rules.state_dict() if hasattr(self.rules, "state_dict") else None
        plain = {"steps": self.steps, "before": self._before, "records": self._records, "rules": rules}
        return tensors | plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """InputError, with the monitor unchanged, where it is no monitor's state, or another model's."""
        with resume.refusing_damaged_state():
            steps, before, records = (int(state[name]) for name in ("steps", "before", "records"))
            counts = {name: own for name in ("ids", "targets") if (own := self._taps.counted(name)) is not None}
            new = {name: resume.like(state[name].to(own.device), own) for name, own in counts.items()}
        for name, own in counts.items():
            own.copy_(new[name])
        for name, reader in self._readers.items():
            mean = state.get(name)
            reader.kept.first_mean = None if mean is None else mean.to(self._matrix.device)
        if hasattr(self.rules, "load_state_dict") and state.get("rules") is not None:
            self.rules.load_state_dict(state["rules"])
        self.steps, self._before, self._records = steps, before, records

    @property
    def callback(self) -> Any:
        """A callback for a Trainer: its numbers reach every tracker with the next log, and its state is in checkpoints.
        InputError where training begins and the file is another run's."""
        return trainer_callback(self)

    @property
    def lightning(self) -> Any:
        """A callback for a `lightning.pytorch.Trainer`; its checkpoints keep the state."""

        def begin(trainer: Any, loaded: bool) -> None:
            self.resume(trainer.global_step)

        given: Any = {"logs": self.unsaid, "state": self, "begin": begin, "end": self.close}
        return lightning_callback(self.step, name="Monitor", **given)


def _named(part: str, numbers: Numbers) -> Numbers:
    return {f"{part}.{name}": value for name, value in numbers.items()}
