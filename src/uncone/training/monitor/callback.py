"""A monitor's callback for a Trainer of transformers."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from uncone.errors import UnsupportedModel, needed
from uncone.training import resume
from uncone.training.attachment import call_first, checkpoint
from uncone.training.loss.options import CrossEntropyOptions

STATE = "uncone_monitor.safetensors"  # a monitor's state in a checkpoint folder
FORMAT = "uncone.monitor/1"


def trainer_callback(monitor: Any) -> Any:
    message = "a callback needs transformers: pip install 'uncone[hf]'"
    base: Any = needed("transformers", message, UnsupportedModel).TrainerCallback

    class Callback(base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            call_first(self)
            with suppress(AttributeError, LookupError, TypeError):
                monitor._reading.beta2 = float(kwargs["optimizer"].param_groups[0]["betas"][1])
            if (smoothing := args.label_smoothing_factor) and monitor._reading.options is None:
                monitor._reading.options = CrossEntropyOptions(label_smoothing=smoothing)
            _begin(monitor, args, state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            monitor.at(state.global_step, is_last=state.global_step >= state.max_steps or control.should_training_stop)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs is None or not {"loss", "train_loss"} & set(logs):  # an evaluation's
                return
            logs |= (numbers := monitor.unsaid())
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1] |= numbers  # a copy of `logs`

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                path = checkpoint(args, state.global_step) / STATE
                monitor.guard("save its state", resume.save, monitor.state_dict(), path, format=FORMAT)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            monitor.close()

    return Callback()


def _begin(monitor: Any, args: Any, step: int) -> None:
    given = args.resume_from_checkpoint
    folders = [Path(given)] if isinstance(given, str) and given not in ("True", "true") else []
    states = [folder / STATE for folder in (*folders, checkpoint(args, step)) if (folder / STATE).exists()]
    if step > 0 and states:
        monitor.load_state_dict(resume.load(states[0], format=FORMAT, what="the state of a monitor"))
    monitor.resume(step)
