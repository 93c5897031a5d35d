"""Refuse a config whose counts would keep a model's constructor busy for ever."""

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.nn.modules import module as torch_module

from uncone.errors import InputError

# The most of what a setting's name counts that a constructor makes in a few seconds: 1,024 layers take about two.
_MOST = (
    (r"(layer|block|depth|stage)s?$", 1024),
    (r"(expert|head|group|codebook)s?$", 4096),
    (r"^num_labels$", 2**17),
    (r"", 2**31),
)
_MOST_PARTS = 2**18
"""Modules and parameters: twenty times those of models with 126 layers, built in about ten seconds."""


def check_sizes(config: Mapping[str, Any]) -> None:
    """Refuse counts that no model has, and so no constructor ends with.

    Raises:
        InputError: an absurd number of layers, experts, labels or the like, or an integer beyond 2**31.
    """
    for part in objects(config):
        for key, value in part.items():
            most = next(most for pattern, most in _MOST if re.search(pattern, key))
            if type(value) is int and abs(value) > most:
                short = str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
                raise _absurd(f"{key} of at most {most}", short)


@contextmanager
def bounded_construction() -> Iterator[None]:
    """Stop a constructor of this thread that makes modules without end, whatever settings made it do so.

    Raises:
        InputError: more than 2**18 modules and parameters.
    """
    thread, count = threading.get_ident(), itertools.count(1)

    def stop(*_: Any) -> None:
        if threading.get_ident() == thread and next(count) > _MOST_PARTS:
            raise _absurd(f"a model of at most {_MOST_PARTS} modules and parameters", "more")

    hooks = (
        torch_module.register_module_module_registration_hook(stop),
        torch_module.register_module_parameter_registration_hook(stop),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a JSON value, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _absurd(expected: str, came: str) -> InputError:
    return InputError(
        f"expected {expected} in config.json, got {came}: the config is not to be trusted, copy it again"
    )
