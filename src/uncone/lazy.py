"""Rooms and files as attributes, loaded when they are first used."""

import sys
from importlib import import_module
from types import ModuleType

from uncone.errors import without_package


def open_room(package: str) -> None:
    """Let a room find its own rooms and files; names that its `__init__` binds go before names of files."""
    room = vars(sys.modules[package])
    room["__getattr__"] = lambda name: load_part(package, name)
    room["__dir__"] = lambda: sorted({*room, *parts(package)})


def parts(package: str) -> list[str]:
    from pkgutil import iter_modules

    names = (module.name for module in iter_modules(sys.modules[package].__path__))
    return [name for name in names if not name.startswith("_")]


def load_part(package: str, name: str) -> ModuleType:
    """The room or file `name`. InputError: a package that it needs is not installed."""
    if name.startswith("_") or name not in parts(package):
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return import_module(f"{package}.{name}")  # which sets the attribute
    except ModuleNotFoundError as error:
        raise (without_package(error, f"{package}.{name}") or error) from error
