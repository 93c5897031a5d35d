"""Studies of which every run has one case."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(cases: Iterable[Any]) -> list[Any]:
    """The first case as it is, and the others marked `long`."""
    first, *others = cases
    params = [one if isinstance(one, tuple) else (one,) for one in others]
    return [first, *(pytest.param(*one, marks=pytest.mark.long) for one in params)]
