"""Callbacks for Lightning that act after each optimiser step."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from uncone.errors import UnsupportedModel, needed


def lightning_callback(
    step: Callable[[], object],
    *,
    name: str,
    logs: Callable[[], Mapping[str, int | float]] | None = None,
    state: Any = None,
    begin: Callable[[Any, bool], object] | None = None,
    end_epoch: Callable[[], object] | None = None,
    end: Callable[[], object] | None = None,
) -> Any:
    """A callback for a `lightning.pytorch.Trainer` that calls `step()` once after each optimiser step, however many
    batches the step accumulates, and before a checkpoint is written.

    Args:
        name: the name of the state in Lightning's checkpoint; two callbacks of one Trainer need different names.
        logs: numbers to log, called on every rank where Lightning logs a step (`log_every_n_steps`).
        state: an object with `state_dict` and `load_state_dict`, kept in Lightning's checkpoints; None keeps nothing.
        begin: called before the first step, with the Trainer and whether the state came from a checkpoint.
        end_epoch: called after each epoch's last step.
        end: called after the very last step.

    UnsupportedModel where lightning is not installed.
    """
    module = "lightning.pytorch"
    if "pytorch_lightning" in sys.modules and module not in sys.modules:  # its Trainer takes only its own callbacks
        module = "pytorch_lightning"
    message = "a callback for Lightning needs lightning: pip install lightning"
    base: Any = needed(module, message, UnsupportedModel).Callback

    class UnconeCallback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._steps, self._loaded = 0, False

        @property
        def state_key(self) -> str:
            return f"uncone {name}"

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._steps = trainer.global_step
            if begin is not None:
                begin(trainer, self._loaded)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            if trainer.global_step == self._steps:  # a micro-batch
                return
            self._steps = trainer.global_step
            step()
            # the condition that Lightning's own monitors use
            if logs is not None and (trainer._logger_connector.should_update_logs or trainer.fast_dev_run):
                pl_module.log_dict({key: float(value) for key, value in logs().items()}, on_step=True, on_epoch=False)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if end_epoch is not None:
                end_epoch()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if end is not None:
                end()

        def state_dict(self) -> dict[str, Any]:
            return {} if state is None else {"state": state.state_dict()}

        def load_state_dict(self, saved: dict[str, Any]) -> None:
            if state is not None:
                state.load_state_dict(saved["state"])
                self._loaded = True

    return UnconeCallback()
