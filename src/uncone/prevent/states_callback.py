"""What a Trainer calls of attached states: the optimiser's steps, and where a resumed run stands."""

from typing import Any

from uncone.errors import UnsupportedModel


def states_callback(attached: Any) -> Any:
    """A `TrainerCallback` for an `AttachedStates`."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UnsupportedModel(
            "expected transformers for a callback, got none: pip install 'uncone[hf]'"
        ) from error

    class StatesCallback(TrainerCallback):  # type: ignore[misc]
        """Steps, and goes on with the track of a resumed run."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.check()
            _refuse(args)
            if state.global_step > 0:
                attached.resume(state.global_step)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attached.step()

    return StatesCallback()


def _refuse(args: Any) -> None:
    if args.label_smoothing_factor:
        raise UnsupportedModel(
            f"expected label_smoothing_factor 0, got {args.label_smoothing_factor}: Trainer would compute the loss from logits, without "
            "the penalty"
        )
    if args.n_gpu > 1:
        raise UnsupportedModel(
            f"expected one device a process, got {args.n_gpu}: DataParallel copies the model; start one process a device (torchrun)"
        )
