"""`uncone repair-tokens`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, hand_over, tell
from uncone.cli.progress import progress_bar


def repair_tokens(
    model: Annotated[str, Role.SPEC],
    out: Annotated[str, Role.OUT],
    /,
    *,
    tokens: Annotated[
        str,
        Role.READ,
        Parameter(help="Ids with commas, a file of ids, zero, added, or auto: those that look untrained."),
    ] = "auto",
    method: Annotated[
        Literal["sub_tokens", "mean", "covariance"], Parameter(help="What new rows are made of.")
    ] = "sub_tokens",
    counts: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="With --tokens auto: how often each token occurs; count 0 is unused."),
    ] = None,
    text: Annotated[
        Path | None, Role.READ, Parameter(help="Text to measure the loss on, before and after.")
    ] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Write a copy of a language model in which rows of tokens that no text has trained are set anew.

    Parameters
    ----------
    model
        A directory of transformers, or the name of a cached one.
    out
        A new directory.
    """
    from uncone.verbs.repair_tokens import repair_tokens as run

    with progress_bar() as progress:
        result = run(model, out, tokens=tokens, method=method, counts=counts, text=text, progress=progress)
    hand_over(result, json=json, html=html)
    tell(Path(out))
