"""`Monitor`: the geometry of a model while it trains, in a file, in trackers and in any loop."""

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, Self

import torch

from uncone.arguments import one_of, whole_number
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.errors import InputError
from uncone.model.counts import as_counts
from uncone.roles import Path_
from uncone.training import resume
from uncone.training.cloud import is_first
from uncone.training.lightning import lightning_callback
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.monitor.callback import trainer_callback
from uncone.training.monitor.reading import Reading
from uncone.training.monitor.rows import Numbers
from uncone.training.monitor.rules import Rules
from uncone.training.monitor.run_file import RunFile
from uncone.training.monitor.taps import Guard, Taps

Tensor = torch.Tensor
SPECTRUM = 10  # records from one spectrum to the next
LOGGED = {
    *(f"{part}.{of}" for part in ("table", "head", "states") for of in ("mean_cosine", "sample_rank", "norm_largest")),
    *("table.dead", "head.dead", "head.mean_share", "states.effective_rank"),
    *("loss.cross_entropy", "loss.accuracy", "penalty.total", "gate.rare_ids"),
}
"""What trackers get unless all is wanted: readings that rules follow, and the loss."""


class Monitor:
    """Reads the table, head, states and loss of a model in training, every so many optimiser steps.

        with uncone.Monitor("run.jsonl", model) as monitor:
            for batch in data:
                model(**batch).loss.backward(); optimizer.step(); optimizer.zero_grad(); monitor.step()

    Use `callback` for a transformers Trainer and `lightning` for Lightning's. A loop with its own tracker calls
    `measure(step)` where it logs, instead of `step()`. The first and the last step have a record too. Training stays
    the same, to the bit. Only a record waits for the device. No error of the monitor ends a run: the first error of
    each kind becomes a warning.

    Names of numbers are "part.reading" or "part.group.reading". Parts are table, head (without its mean row, which
    changes no probability), states, loss, gradient, gate and penalty. Groups are frequent, medium, rare and never, by
    `counts` or by the targets seen. Rows are read after the step; states are from the step's last micro-batch; the
    numbers of an attached loss are means over the step, or, with `measure` alone, since the previous record. Where
    there are several processes, the first one reads.

    Args:
        path: the run's file, one JSON object per line; None writes no file.
        model: from transformers or Sentence Transformers, or any module with `table` or `head`; also attached by
            `uncone.attach`, inside DDP, PEFT or a compiler.
        every: optimiser steps from one record to the next; spectra are read in every tenth record.
        counts: (V,) or a file: how often each id occurs in the training text; by default, in the targets so far.
        targets: how many targets of a micro-batch are read at most, evenly spaced.
        options: the options of the training loss, where it is not attached: its label smoothing (a Trainer's is known),
            z-loss and reduction; with `head` also the cap and the scale of its logits.
        class_weights: (V,), the class weights of the training loss.
        beta2: the optimiser's, for kappa; a Trainer provides its own.
        table: the embedding of a model from neither library.
        head: the model's `torch.nn.Linear` whose outputs are the logits.
        rules: True warns when a reading gets worse than its own trend; None does not. Or pass an object whose
            `see(step, numbers)` returns warnings with `rule`, `name` and `text`. Warnings become lines of the file,
            Python warnings, and trackio alerts where trackio is imported.
        on_warning: called with each warning.
        log: what trackers and a Trainer's log get: "few" is about a dozen readings of the whole parts and the loss, "all"
            is every number, some 150. The file always has all.

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
        head: Any = None,
        rules: Any = True,
        on_warning: Callable[[Any], object] | None = None,
        log: Literal["few", "all"] = "few",
    ) -> None:
        self.every = whole_number(every, "every", 1)
        one_of(log, "log", ("few", "all"))
        self._log = log
        whole_number(targets, "targets", 1)
        self.guard = Guard()
        self.rules: Any = Rules(self.every) if rules is True else rules or None
        self._on_warning = on_warning
        self.steps = 0  # optimiser steps done, including steps before a resume
        self.last: Numbers = {}  # the numbers of the last record
        self._recorded, self._records, self._unsaid = -1, 0, Numbers()
        self._begun = self._stepping = self._resumed = self._closed = False
        self._taps = taps = Taps(model, self.guard, targets, table, head)
        v, d = (taps.head or taps.table).weight.shape
        known = None if counts is None else torch.from_numpy(as_counts(counts, v).counts)
        given: dict[str, Any] = {"options": options, "class_weights": class_weights, "beta2": beta2}
        self._reading = Reading(taps, self.guard, counts=known, **given)
        by = "targets seen" if taps.head is not None else "ids seen"
        header = {"model": type(taps.model).__name__, "vocabulary": v, "dimensions": d, "every": every}
        header["groups"] = {"by": by if counts is None else "counts given"}
        try:
            self._file = None if path is None or not is_first() else RunFile(path, header)
        except InputError:
            taps.detach()
            raise
        self._fresh = True  # no forward in this step
        taps.at_forward = self._at_forward
        taps.wants_targets = lambda: not self._stepping or self._is_due(self.steps + 1)

    def _at_forward(self) -> None:
        self._begin_in_training()
        self._reading.follow(begins=self._fresh and self._stepping)
        self._fresh = False

    def resume(self, steps: int) -> None:
        """Continue after so many optimiser steps: the lines of later steps are removed from the file. InputError where
        the file cannot be written, or where another process writes to it."""
        if steps != self.steps:  # and no state of that step was loaded
            self._reading.before = steps
        self.steps = whole_number(steps, "steps", 0)
        self._recorded, self._resumed, self._stepping = steps or -1, steps > 0, False
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
        """`step()`, after so many optimiser steps in total."""
        self._begin_in_training()
        is_first_step = not (self._stepping or self._resumed)
        self._stepping = self._fresh = True
        self.steps = step
        if is_first_step or is_last or self._is_due(step):
            self.measure(step)

    def _is_due(self, step: int) -> bool:
        return step % self.every == 0

    def measure(
        self,
        step: int,
        *,
        labels: Tensor | None = None,
        token_weights: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Numbers:
        """Read a record after so many optimiser steps, write its line, and return its flat names and numbers.

        Each step is read once. `labels` are the targets of the last forward's states, aligned with the states and -100
        where there is no target, for a loop that computes its loss outside the model. `token_weights` of the same shape
        multiply the loss of each target. `states` (N, D) replace the batch's states.
        """
        if step == self._recorded or not is_first():
            return dict(self.last)
        self._begin_in_training()
        if step < self._recorded:
            got = f"got {step:,} after {self._recorded:,}"
            self.guard.say("order", f"expected steps in order, {got}: after a resume call monitor.resume(step)")
            return {}
        self.steps = max(self.steps, step)
        given = {"labels": labels, "token_weights": token_weights, "states": states}
        spectrum = self._records % SPECTRUM == 0
        self.last = self.guard("read a record", self._reading.read, self.steps, spectrum=spectrum, **given) or {}
        self._recorded, self._records = step, self._records + 1
        self._unsaid = dict(self.last)
        if self._file is not None and self._file.is_open:
            self.guard("write its file", self._file.record, step, self.last)
        if self.rules is not None:
            for warning in self.guard("apply the rules to a record", self.rules.see, step, self.last) or ():
                self.guard("warn", self._warn, step, warning)
        return dict(self.last)

    def _warn(self, step: int, warning: Any) -> None:
        if self._file is not None and self._file.is_open:
            named = {name: getattr(warning, name) for name in ("rule", "name", "text")}
            self.guard("write its file", self._file.append, step, {}, warning=named)
        if self._on_warning is not None:
            self.guard("call on_warning", self._on_warning, warning)
        if (trackio := sys.modules.get("trackio")) is not None:
            self.guard("send an alert to trackio", trackio.alert, f"{warning.rule}: {warning.name}", warning.text)
        with suppress(Warning):
            warnings.warn(f"step {step:,}: {warning.text}", stacklevel=2)

    def ledger(self) -> GradientLedger:
        """`uncone.gradient_ledger` of the batch that the last record read, including the drifts of coupled Adam. It is
        computed for the plain mean, in matrices as large as the head. InputError where that record had no targets."""
        return self._reading.ledger()

    def close(self) -> None:
        """Record the last step, close the file, and leave the model as it was."""
        if not self._closed and self._stepping:
            self.measure(self.steps)
        self._closed = True
        if self._file is not None:
            self.guard("close its file", self._file.close)

    def detach(self) -> None:
        self.close()
        self._taps.detach()
        self._reading.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def unsaid(self) -> dict[str, float]:
        """The numbers of the last record that `log` wants, given once: for a tracker that logs at its own steps."""
        said, self._unsaid = self._unsaid, {}
        return {f"uncone/{name}": value for name, value in said.items() if self._log == "all" or name in LOGGED}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to continue seamlessly: plain numbers, and tensors as large as a few columns of the
        table."""
        rules = self.rules.state_dict() if hasattr(self.rules, "state_dict") else None
        plain = {"steps": self.steps, "records": self._records, "unsaid": dict(self._unsaid), "rules": rules}
        return self._reading.state_dict() | plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """InputError, with the monitor unchanged, where `state` is not a monitor's state, or another model's."""
        with resume.refusing_damaged_state():
            steps, records = int(state["steps"]), int(state["records"])
            unsaid = {str(name): float(x) for name, x in state["unsaid"].items()}
            judged = self.rules.state_dict() if hasattr(self.rules, "state_dict") else None
            if hasattr(self.rules, "load_state_dict") and state["rules"] is not None:
                self.rules.load_state_dict(state["rules"])
            try:
                self._reading.load_state_dict(state)
            except Exception:
                if judged is not None:
                    self.rules.load_state_dict(judged)
                raise
        self.steps, self._records, self._unsaid = steps, records, unsaid

    @property
    def callback(self) -> Any:
        """A callback for a transformers Trainer. Its numbers reach every tracker with the next log, and checkpoints
        keep its state. InputError where training begins and the file is another run's."""
        return trainer_callback(self)

    @property
    def lightning(self) -> Any:
        """A callback for a `lightning.pytorch.Trainer`; its checkpoints keep the state."""

        def begin(trainer: Any, loaded: bool) -> None:
            self.resume(trainer.global_step)

        given: Any = {"logs": self.unsaid, "state": self, "begin": begin, "end": self.close}
        return lightning_callback(self.step, name="Monitor", **given)
