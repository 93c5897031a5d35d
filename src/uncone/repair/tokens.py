"""New values for the rows of tokens that were never trained."""

import os
from collections.abc import Callable, Sequence
from typing import Literal

from uncone.records.token_edit import TokenEdit, Way

Progress = Callable[[str, int, int], None]


def reinitialise_tokens(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    ids: Sequence[int] | Literal["zero", "added"] = "zero",
    *,
    method: Way = "sub_tokens",
    text: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a model in which the rows of some tokens, and no others, are set anew."""
    raise NotImplementedError
