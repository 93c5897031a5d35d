"""Every error that a user can cause is an `UnconeError`, whose message is a way out."""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_LONGEST, _LONGEST_WORD = 1000, 200


def bounded(message: str) -> str:
    """At most 1,000 characters, without the middle of long words, then of the whole: its ends matter most."""
    if len(message) <= _LONGEST:
        return message
    return _cut(re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: _cut(word[0], _LONGEST_WORD), message), _LONGEST)


def _cut(text: str, longest: int) -> str:
    tail = longest // 3
    return text if len(text) <= longest else f"{text[: longest - tail - 1]}…{text[-tail:]}"


def first_line(error: BaseException | None) -> str:
    """The first line of another library's error, to fit into our sentence."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def nearest(name: object, known: Iterable[str], otherwise: str) -> str:
    """What to do about an unknown name: the names most like it, or `otherwise`."""
    import difflib

    folded = {one.casefold(): one for one in known}
    likely = difflib.get_close_matches(str(name)[:_LONGEST_WORD].casefold(), folded, 3, 0.6)
    return f"did you mean {' or '.join(repr(folded[one]) for one in likely)}?" if likely else otherwise


class UnconeError(Exception):
    """Anything uncone refuses or cannot do. The message has what was expected, what came and what to do."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*(bounded(part) if isinstance(part, str) else part for part in parts))


class InputError(UnconeError, ValueError):
    """The input is not what it must be: a missing or misleading file, a wrong shape, rows that are not finite."""


def expect(holds: bool, what: str) -> None:
    """InputError unless it `holds`; `what` is what was expected, and what came."""
    if not holds:
        raise InputError(f"expected {what}")


class UnknownName(InputError, KeyError):  # noqa: N818
    """A result has nothing with the name in brackets: a KeyError too, as from any mapping."""

    __str__ = Exception.__str__  # a KeyError would quote the message


class UndefinedMeasure(UnconeError, ArithmeticError):  # noqa: N818 - the name is a result, not an accident
    """The measure has no value on this input (too few rows, no direction, no variance)."""


class UnsupportedModel(UnconeError):  # noqa: N818
    """The model can be read, but we do not know where its table or head is, or a package is missing."""


class StepWarning(UserWarning):
    """`attached.step()` was not called once per optimiser step: everything that counts steps has a wrong number."""


_EXTRAS = {name: name for name in ("torch", "faiss", "gguf", "triton")}
_EXTRAS |= {"transformers": "hf", "sentence_transformers": "sentence", "pyarrow": "parquet", "sklearn": "cluster"}
_EXTRAS |= {"httpx": "remote", "fsspec": "remote", "s3fs": "s3", "ray": "ray", "lance": "lance"}
_EXTRAS |= {"numba": "topology", "zstandard": "zst", "matplotlib": "plot", "ir_measures": "evaluate"}
"""The extra that brings a package; pip installs other packages by their own names."""


def without_package(error: BaseException, what: str) -> InputError | None:
    """The error to raise where a package that `what` needs is not installed; None for any other error."""
    name = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else "uncone"
    if name == "uncone":
        return None
    by = f"'uncone[{_EXTRAS[name]}]'" if name in _EXTRAS else name
    return InputError(f"{what} needs {name}, got none: pip install {by}")


def needed(module: str, message: str, kind: type[UnconeError] = InputError) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise kind(message) from error


def need_torch(what: str) -> None:
    needed("torch", f"{what} needs torch, got none: pip install 'uncone[torch]'")
