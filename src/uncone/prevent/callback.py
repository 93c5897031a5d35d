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
        raise UnsupportedModel(
            "expected transformers for a callback, got none: pip install 'uncone[hf]'"
        ) from error

    class GateCallback(TrainerCallback):  # type: ignore[misc]
        """Steps the gate, and keeps it in every checkpoint."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.check()
            _refuse(args, attached)
            if state.global_step > 0:
                _resume(attached.gate, args, state.global_step)
            _set_epoch(attached.gate, args, kwargs.get("train_dataloader"))
            tell(
                attached.gate,
                "set_batch",
                args.world_size * args.train_batch_size * args.gradient_accumulation_steps,
            )

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.step()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tell(attached.gate, "end_epoch")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                tell(attached.gate, "save", _checkpoint(args, state.global_step) / STATE)

    return GateCallback()


def _refuse(args: Any, attached: Attached) -> None:
    if attached.options.reduction != "mean":
        raise UnsupportedModel(
            f"expected reduction 'mean' under a Trainer, got {attached.options.reduction!r}: it divides by the targets of a step"
        )
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
    try:
        length = len(loader)
    except TypeError:  # none given, or a stream
        return
    tell(gate, "set_epoch", -(-length // args.gradient_accumulation_steps))


def _resume(gate: Any, args: Any, step: int) -> None:
    if not hasattr(gate, "load") or gate.status.step == step:  # loaded already
        return
    given = args.resume_from_checkpoint
    folders = [Path(given)] if isinstance(given, str) and given not in ("True", "true") else []
    for folder in (*folders, _checkpoint(args, step)):
        if (folder / STATE).exists():
            gate.load(folder / STATE)
            break
    if gate.status.step != step:
        raise InputError(
            f"expected the gate's state of step {step} in {_checkpoint(args, step).name}/{STATE} of the output folder, got "
            f"{'none' if gate.status.step == 0 else f'that of step {gate.status.step}'}: if the checkpoint lies elsewhere, call "
            f"gate.load(checkpoint / {STATE!r}) before train()"
        )


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{step}"
