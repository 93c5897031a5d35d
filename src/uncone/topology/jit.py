"""How the loops of this room are compiled by numba, and what happens where it cannot be."""

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def loop(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function at its first call, for every process once: where there is room for a cache, beside the code or in the user's folder."""
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **flags)(function)
        except RuntimeError:  # nowhere can be written to: each process compiles anew
            return numba.njit(nogil=True, **flags)(function)

    return compiled


@cache
def loops(module: str) -> Any | None:
    """The module of this room with compiled loops; None where numba is missing, and, with a warning, where it does not work here."""
    try:
        return import_module(f"uncone.topology.{module}")
    except ImportError:
        return None
    except Exception as problem:  # a numba that does not fit its numpy or LLVM fails in many ways
        warnings.warn(
            f"numba is installed but fails, so that spanning trees are slower: {type(problem).__name__}: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
