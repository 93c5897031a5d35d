"""Forwards that replace a model's own, and their handle."""

import atexit
import inspect
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any, Self

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from uncone.errors import StepWarning, UnsupportedModel, needed
from uncone.training.lightning import lightning_callback

STATE = "uncone_gate.safetensors"  # a gate's state in a checkpoint folder
_BETWEEN: tuple[str, ...] = (
    "uncone",
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "trl",
    "contextlib",
)  # not the user's code
_BETWEEN += ("lightning", "pytorch_lightning", "lightning_fabric")
_EACH = "expected attached.step() after each optimizer.step()"
_LINE = (
    "add attached.step() after optimizer.step(), or pass callbacks=[attached.callback] to a Trainer or "
    "callbacks=[attached.lightning] to a Lightning Trainer, where attached is what attach returned"
)


class Forward:
    """`run` in place of a module's forward, with its signature: Trainer drops columns that the signature lacks."""

    of_uncone = True

    def __init__(self, module: Any, handle: "Attachment", run: Callable[..., Any]) -> None:
        self.module, self._handle, self._run = module, handle, run
        self._before, self.original = module.__dict__.get("forward"), module.forward
        self.__signature__ = inspect.signature(module.forward)
        self.__name__ = "forward"
        if hasattr(module.forward, "of_uncone"):
            self.__wrapped__ = module.forward
        module.forward = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def trains(self) -> bool:
        return bool(self._handle.active and self.module.training and torch.is_grad_enabled())

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        inputs = dict(self.__signature__.bind(*args, **kwargs).arguments)
        for name, parameter in self.__signature__.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                inputs |= inputs.pop(name, {})
        return inputs

    def restore(self) -> None:
        if self.module.__dict__.get("forward") is not self:
            return
        before = self._before
        while isinstance(before, Forward) and not before._handle.active:  # the inner one was detached first
            before = before._before
        if before is None:
            del self.module.forward
        else:
            self.module.forward = before


class Watch:
    """Reports optimiser steps and Python's exit to an attachment; a copy reports to nobody."""

    def __init__(self, attachment: "Attachment | None" = None) -> None:
        if attachment is not None:
            stepped = weakref.WeakMethod(attachment._optimizer_stepped)
            ended = weakref.WeakMethod(attachment._say_at_the_end)
            self._handle = register_optimizer_step_post_hook(lambda optimizer, *_: _call(stepped, optimizer))
            self._at_exit = atexit.register(lambda: _call(ended))

    def __reduce__(self) -> Any:
        return Watch, ()

    def end(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.remove()
            atexit.unregister(self._at_exit)


def _call(method: weakref.WeakMethod[Any], *args: Any) -> None:
    if (alive := method()) is not None:
        alive(*args)


class Attachment:
    """A handle on attached forwards, also a context manager. Use `callback` for a Trainer, `lightning` for
    Lightning's."""

    model: Any
    gate: Any = None
    step: Callable[[], None]
    _needs_steps: Callable[[], bool]  # whether a step that is not closed changes anything
    _trained: Callable[[], Iterator[Any]]  # an optimiser that steps for this attachment holds one of these parameters
    _begin: Callable[[Any, int, Any], None]  # a Trainer with (arguments, steps before, data) begins
    _begin_in_lightning: Callable[[Any, bool], None]  # its Trainer begins, with whether a checkpoint brought the state
    _state: Callable[[], Any]  # what a checkpoint keeps, with `state_dict` and `load_state_dict`
    logs: Callable[[], dict[str, int | float]]  # since its last call

    def __init__(self) -> None:
        self.active = True  # once detached, something may still call the forwards
        self._forwards: list[Forward] = []
        self._taken = 0  # losses, or clouds of states, since the last `step()`
        # `step()` was called; an optimiser stepped since the last call, after losses; or at all
        self._stepped = self._late = self._moved = False
        self._said = self._quiet = False  # a warning was given in training; none is wanted any more
        # optimiser steps with a `step()`, and without; calls of `step()` amid micro-batches
        self._closed_steps = self._missed = self._extra = 0
        self._watch = Watch(self)

    def _put(self, module: Any, run: Callable[..., Any]) -> Forward:
        self._forwards.append(Forward(module, self, run))
        return self._forwards[-1]

    def check(self) -> None:
        """UnsupportedModel if detached, or if another forward replaced this one."""
        if not self.active:
            raise UnsupportedModel("expected an attached model, got a detached one: attach again")
        for forward in self._forwards:
            called: Any = forward.module.__dict__.get("forward")  # mixed precision of accelerate wraps it
            if called is None or inspect.unwrap(called, stop=partial(is_, forward)) is not forward:
                got = "got another: something patched it afterwards (use_liger_kernel?); attach last"
                raise UnsupportedModel(f"expected the attached forward of {type(forward.module).__name__}, {got}")

    def detach(self) -> None:
        """Give the model its own forward back. Warns (`StepWarning`) how many optimiser steps had no `step()`."""
        self._watch.end()
        was_active, self.active = self.active, False
        for forward in self._forwards:
            forward.restore()
        if was_active:
            self._say_at_the_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._quiet |= kind is not None  # an error is more informative than a warning, and must get out
        self.detach()

    def _closed(self) -> None:
        """Warn of steps between micro-batches: finite gradients wait, unlike after a step that a scaler skipped. A few
        such calls raise no warning, because gradients may be infinite on another rank only."""
        self._taken, self._stepped, self._late = 0, True, False
        moved, self._moved = self._moved, False
        self._closed_steps += moved
        if moved or not self._closed_steps or self._said or not self._needs_steps() or not self._gradients_wait():
            return
        self._extra += 1
        if self._extra >= max(2, self._closed_steps):
            self._warn(
                "expected attached.step() once after each optimizer.step(), got it after micro-batches too, while "
                "their gradients wait: move attached.step() to the line after optimizer.step(), out of the loop over "
                "micro-batches; with accelerate, write: if accelerator.sync_gradients: attached.step()"
            )

    def _gradients_wait(self) -> bool:
        gradients = (p.grad for p in self.model.parameters() if p.grad is not None)
        return 0 < sum(float((g.to_local() if hasattr(g, "to_local") else g).norm()) for g in gradients) < math.inf

    def _optimizer_stepped(self, optimizer: Any) -> None:
        """Note a step of this model's optimiser. Another model's steps, or micro-batches before a step, are not
        late."""
        if self.active and not (self._moved and (self._late or not self._taken)):
            mine = set(map(id, self._trained()))
            if any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"]):
                self._moved, self._late = True, self._taken > 0

    def _check_step(self) -> None:
        if self._late:
            self._late, self._missed = False, self._missed + 1
            self._warn(f"{_EACH}, got another training forward pass without it: {_LINE}")

    def _say_at_the_end(self) -> None:
        """Warn of optimiser steps without `step()`, or, where no optimiser step was seen, of losses without one."""
        if missed := self._missed + self._late:
            got = f"none after {missed:,} of {self._closed_steps + missed:,} optimiser steps"
        elif self._taken and not self._stepped and self.gate is not None:
            got = "none at all"
        else:
            return
        self._warn(f"{_EACH}, got {got}: {_LINE}", again=True)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _warn(self, message: str, *, again: bool = False) -> None:
        if self._quiet or (self._said and not again) or not self._needs_steps():
            return
        self._said = True
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _BETWEEN:
            frame, level = frame.f_back, level + 1
        warnings.warn(message, StepWarning, stacklevel=level)

    @property
    def callback(self) -> Any:
        message, attached = "a callback needs transformers: pip install 'uncone[hf]'", self
        trainer_callback: Any = needed("transformers", message, UnsupportedModel).TrainerCallback

        class Callback(trainer_callback):  # type: ignore[misc]
            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                attached.check()
                attached._refuse(args)
                call_first(self)
                attached._begin(args, state.global_step, kwargs.get("train_dataloader"))

            def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
                attached._moved = True  # also where a scaler skipped it, or no optimiser of torch made it
                attached.step()

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
                if logs is None or "loss" not in logs:  # logs of an evaluation, or the summary of a run
                    return
                logs |= (status := attached.logs())
                if state.log_history and state.log_history[-1].get("step") == state.global_step:
                    state.log_history[-1] |= status  # a copy of `logs`

            def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
                tell(attached.gate, "end_epoch")

            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.is_world_process_zero:
                    tell(attached.gate, "save", checkpoint(args, state.global_step) / STATE)

        return Callback()

    @property
    def lightning(self) -> Any:
        """A callback for a `lightning.pytorch.Trainer`; its checkpoints keep the state."""

        def stepped() -> None:
            self._moved = True
            self.step()

        def begin(trainer: Any, loaded: bool) -> None:
            self.check()
            self._begin_in_lightning(trainer, loaded)

        name, of_epoch = type(self).__name__, partial(tell, self.gate, "end_epoch")
        given: Any = {"logs": self.logs, "state": self._state(), "begin": begin, "end_epoch": of_epoch}
        return lightning_callback(stepped, name=name, **given)

    def _refuse(self, args: Any) -> None:
        if args.label_smoothing_factor:
            raise UnsupportedModel(
                f"expected label_smoothing_factor 0, got {args.label_smoothing_factor}: Trainer would compute the loss "
                f"from logits; give attach options=CrossEntropyOptions(label_smoothing={args.label_smoothing_factor})"
            )
        if args.n_gpu > 1:
            got = f"got {args.n_gpu}: DataParallel copies models; use torchrun"
            raise UnsupportedModel(f"expected one device per process, {got}")


def call_first(callback: Any) -> None:
    """Put `callback` first in the Trainer's handler that calls it now, so that the trackers' `on_log` gets its numbers.
    Without such a handler the numbers are only in `log_history`."""
    frame: Any = sys._getframe()
    while (frame := frame.f_back) is not None:
        callbacks = getattr(frame.f_locals.get("self"), "callbacks", None)
        if isinstance(callbacks, list) and callback in callbacks:
            callbacks.remove(callback)  # the handler goes through this list now: the next one stays next
            callbacks.insert(0, callback)
            return


def unwrapped(model: Any) -> Any:
    for _ in range(4):
        if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
            model = model.get_base_model()
        elif type(model).__name__ in ("DistributedDataParallel", "OptimizedModule"):
            model = getattr(model, "module", None) or model._orig_mod
    return model


def checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{step}"


def part_of_step(targets: torch.Tensor, items: Any) -> torch.Tensor:
    items = torch.as_tensor(items, device=targets.device)
    return torch.where(items != 0, targets / items, 0.0)  # NaN stays, as in the loss


def with_loss(outputs: Any, loss: Any, **logits: Any) -> Any:
    if isinstance(outputs, tuple):
        return (loss, *logits.values(), *outputs[1:])
    return type(outputs)(**dict(outputs.items()) | {"loss": loss} | logits)


def tell(gate: Any, what: str, *args: Any) -> None:
    if hasattr(gate, what):
        getattr(gate, what)(*args)
