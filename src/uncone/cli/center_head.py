"""`uncone center-head`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, hand_over, tell
from uncone.cli.progress import progress_bar


def center_head(
    model: Annotated[str, Role.SPEC],
    out: Annotated[str, Role.OUT],
    /,
    *,
    untie: Annotated[
        bool, Parameter(negative="", help="Store a head apart that shares the token table's rows.")
    ] = False,
    text: Annotated[
        Path | None, Role.READ, Parameter(help="Text to prove it on, instead of a sample of its own.")
    ] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Write a copy of a language model whose head has no mean row, and prove that no probability changed.

    Parameters
    ----------
    model
        A directory of transformers, or the name of a cached one.
    out
        A new directory.
    """
    from uncone.verbs.center_head import center_head as run

    with progress_bar() as progress:
        result = run(model, out, untie=untie, text=text, progress=progress)
    hand_over(result, json=json, html=html)
    tell(Path(out))
