"""What a Trainer calls: the optimiser's steps, the ends of epochs, and the checkpoints."""

from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnsupportedModel
from uncone.prevent.attach import Attached
from uncone.prevent.forwards import tell

STATE = "uncone_gate.safetensors"
"""The gate's state in a checkpoint folder."""


def trainer_callback(attached: Attached) -> Any:
    """A `TrainerCallback` for an attached model."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UnsupportedModel("expected transformers for a callback, got none: pip install 'uncone[hf]'") from error

    class GateCallback(TrainerCallback):  # type: ignore[misc]
        """Steps the gate, and keeps it in every checkpoint."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.check()
            _refuse(args)
            _set_epoch(attached.gate, args, kwargs.get("train_dataloader"))
            if state.global_step > 0:
                _resume(attached.gate, args, state.global_step)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.step()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tell(attached.gate, "end_epoch")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                tell(attached.gate, "save", _checkpoint(args, state.global_step) / STATE)

    return GateCallback()


def _refuse(args: Any) -> None:
    if args.label_smoothing_factor:
        raise UnsupportedModel(
            f"expected label_smoothing_factor 0, got {args.label_smoothing_factor}: Trainer would compute the loss from logits; give "
            f"attach options=CrossEntropyOptions(label_smoothing={args.label_smoothing_factor})"
        )
    if getattr(args, "use_liger_kernel", False):
        raise UnsupportedModel(
            "expected use_liger_kernel=False, got True: it replaces the model's forward; give attach "
            "options=CrossEntropyOptions(backend='wrap:liger')"
        )
    if args.n_gpu > 1:
        raise UnsupportedModel(
            f"expected one device a process, got {args.n_gpu}: DataParallel copies the model; start one process a device (torchrun)"
        )


def _set_epoch(gate: Any, args: Any, loader: Any) -> None:
    """Say how long an epoch is, where the data has a length; else `end_epoch` says so after the first."""
    if hasattr(loader, "__len__") and hasattr(loader.dataset, "__len__"):
        tell(gate, "set_epoch", -(-len(loader) // args.gradient_accumulation_steps))


def _resume(gate: Any, args: Any, step: int) -> None:
    if not hasattr(gate, "load"):
        return
    given = args.resume_from_checkpoint
    folders = [Path(given)] if isinstance(given, str) and given not in ("True", "true") else []
    for folder in (*folders, _checkpoint(args, step)):
        if (folder / STATE).exists():
            gate.load(folder / STATE)
            return
    if gate.status.step != step:
        raise InputError(
            f"expected the gate of step {step} in {STATE} beside the checkpoint, got none: call gate.load(path) first, or start anew"
        )


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{step}"
