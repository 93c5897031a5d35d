"""Every record and every part of one, as attributes: `parts.Calibration`, `parts.Interval`."""

import dataclasses
import pkgutil
from importlib import import_module
from types import SimpleNamespace

import uncone
from uncone.records.load import kinds

_FILES = [
    found.name
    for found in pkgutil.walk_packages(uncone.__path__, "uncone.")
    if found.name.endswith(".record")
    or found.name in ("uncone.records.parts", "uncone.records.tokens", "uncone.records.measures")
]
BY_NAME = {
    name: cls
    for file in _FILES
    for name, cls in vars(import_module(file)).items()
    if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == file
}
KINDS = tuple(kind for kind in kinds() if kind.__name__ != "Measures")
parts = SimpleNamespace(**BY_NAME)
