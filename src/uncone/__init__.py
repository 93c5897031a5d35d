"""uncone measures, explains, repairs and prevents representation degeneration in language models.

Public names load when they are first used: importing `uncone` loads neither torch nor numpy.
"""

from importlib import import_module
from typing import Any

from uncone.questions import OBJECTS, QUESTIONS, ROOMS
from uncone.version import __version__


def _places() -> dict[str, str]:
    records = (record.rpartition(".") for _, record, *_ in QUESTIONS.values())
    functions = {name: file for name, (file, *_) in QUESTIONS.items()}
    return {**OBJECTS, **functions, **{name: file for file, _, name in records}}


__all__ = ["__version__", *sorted({*_places(), *ROOMS})]


def __getattr__(name: str) -> Any:
    place = _places().get(name)
    if place is None:
        from uncone.lazy import load_part

        return load_part("uncone", name)
    try:
        value = getattr(import_module(f"uncone.{place}"), name)
    except ModuleNotFoundError as error:
        from uncone.errors import without_package

        raise (without_package(error, f"uncone.{name}") or error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from uncone.lazy import parts

    return sorted({*__all__, *parts("uncone")})
