"""Forwards in the place of a model's own, and their handle: steps, a Trainer's callback, detaching."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch

from uncone.errors import UnsupportedModel

STATE = "uncone_gate.safetensors"
"""A gate's state in a checkpoint folder."""


class Forward:
    """`run` in the place of a module's forward, with its signature: Trainer drops columns that it lacks."""

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
        """Whether a call now is a training step; else it goes to the module's own forward."""
        return bool(self._handle.active and self.module.training and torch.is_grad_enabled())

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments by their names."""
        inputs = dict(self.__signature__.bind(*args, **kwargs).arguments)
        for name, parameter in self.__signature__.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                inputs |= inputs.pop(name, {})
        return inputs

    def in_place(self) -> bool:
        """Whether the module calls this forward, wrapped or not: mixed precision of accelerate wraps it."""
        forward: Any = self.module.__dict__.get("forward")
        return forward is not None and inspect.unwrap(forward, stop=lambda f: f is self) is self

    def restore(self) -> None:
        """Give the module its own forward back, unless another one took this one's place."""
        if self.module.__dict__.get("forward") is not self:
            return
        before = self._before
        while isinstance(before, Forward) and not before._handle.active:  # it was detached first
            before = before._before
        if before is None:
            del self.module.forward
        else:
            self.module.forward = before


class Attachment:
    """A handle on attached forwards, also as a context manager; `callback` serves a Trainer."""

    gate: Any = None

    def __init__(self) -> None:
        self.active = True
        """False once detached: something else may still call the forwards."""
        self._forwards: list[Forward] = []

    def _put(self, module: Any, run: Callable[..., Any]) -> Forward:
        self._forwards.append(Forward(module, self, run))
        return self._forwards[-1]

    def step(self) -> None:
        """Close an optimiser step. Call it once after each `optimizer.step()`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises UnsupportedModel if something else took the place of the attached forwards."""
        for forward in self._forwards:
            if not forward.in_place():
                raise UnsupportedModel(
                    f"expected the attached forward of {type(forward.module).__name__}, got another: "
                    "something patched it since (use_liger_kernel?); attach last"
                )

    def detach(self) -> None:
        """Give the model its own forward back.

        A second call does nothing; a wrapper that keeps the attached forward finds it passing through.
        """
        self.active = False
        for forward in self._forwards:
            forward.restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    @property
    def callback(self) -> Any:
        """A `TrainerCallback` that steps, and goes on where a resumed run stands."""
        try:
            from transformers import TrainerCallback
        except ImportError as error:
            raise UnsupportedModel("a callback needs transformers: pip install 'uncone[hf]'") from error
        attached = self

        class Callback(TrainerCallback):  # type: ignore[misc]
            """Steps the attached model, and keeps its state in every checkpoint."""

            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                attached.check()
                attached._refuse(args)
                attached._begin(args, state.global_step, kwargs.get("train_dataloader"))

            def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                attached.step()

            def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                tell(attached.gate, "end_epoch")

            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.is_world_process_zero:
                    tell(attached.gate, "save", checkpoint(args, state.global_step) / STATE)

        return Callback()

    def _refuse(self, args: Any) -> None:
        """Raise where a Trainer's settings go around the attached forwards."""
        if args.label_smoothing_factor:
            raise UnsupportedModel(
                f"expected label_smoothing_factor 0, got {args.label_smoothing_factor}: Trainer would "
                "compute the loss from logits, outside of the model; uncone.attach smooths labels with "
                f"options=CrossEntropyOptions(label_smoothing={args.label_smoothing_factor})"
            )
        if args.n_gpu > 1:
            raise UnsupportedModel(
                f"expected one device a process, got {args.n_gpu}: DataParallel copies models; use torchrun"
            )

    def _begin(self, args: Any, step: int, loader: Any) -> None:
        """A Trainer begins after `step` optimiser steps."""
        raise NotImplementedError


def unwrapped(model: Any) -> Any:
    """The model inside wrappers for several devices, for adapters and of a compiler."""
    for _ in range(4):
        if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
            model = model.get_base_model()
        elif type(model).__name__ in ("DistributedDataParallel", "OptimizedModule"):
            model = getattr(model, "module", None) or model._orig_mod
    return model


def checkpoint(args: Any, step: int) -> Path:
    """Where a Trainer keeps the checkpoint of a step."""
    return Path(args.output_dir) / f"checkpoint-{step}"


def tell(gate: Any, what: str, *args: Any) -> None:
    """Call a method that a gate may have and need not."""
    if hasattr(gate, what):
        getattr(gate, what)(*args)
