"""Centre an output head: the exact edit that changes no probability."""

import os
from collections.abc import Callable

from uncone.records.head_edit import HeadEdit

Progress = Callable[[str, int, int], None]


def center_head(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    untie: bool = False,
    text: str | os.PathLike[str] | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> HeadEdit:
    """Write a copy of a model whose head's rows have mean zero: the same probabilities, proven before anything is published."""
    raise NotImplementedError
