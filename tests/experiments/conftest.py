"""An experiment's files import each other by name; here each folder is imported alone and forgotten afterwards."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/shrink_the_longest by name."""
    yield from _alone("shrink_the_longest", monkeypatch)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/known_runs by name."""
    yield from _alone("known_runs", monkeypatch)


@pytest.fixture
def saturation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/saturation by name."""
    yield from _alone("saturation", monkeypatch)


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/arms by name."""
    yield from _alone("arms", monkeypatch)


@pytest.fixture
def rare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/rare_tokens by name."""
    yield from _alone("rare_tokens", monkeypatch)


@pytest.fixture
def translation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of experiments/translation, or of rare_tokens that it takes from, by name."""
    yield from _alone("translation", monkeypatch, "rare_tokens")


def _alone(folder: str, monkeypatch: pytest.MonkeyPatch, *others: str) -> Iterator[Callable[[str], Any]]:
    places = [ROOT / "experiments" / one for one in (folder, *others)]
    names = {file.stem for place in places for file in place.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}  # of another experiment, or a library
    for place in reversed(places):
        monkeypatch.syspath_prepend(str(place))
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(kept)
