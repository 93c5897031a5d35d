"""`uncone diagnose`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, SkipNonfinite, hand_over
from uncone.cli.progress import progress_bar


def diagnose(
    spec: Annotated[str, Role.SPEC],
    /,
    *,
    json: Json = None,
    html: Html = None,
    counts: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="How often each token occurs: a table of ids or tokens and counts, or .npy."),
    ] = None,
    neighbours: Annotated[
        bool,
        Parameter(
            negative="",
            help="Also measure what takes the nearest neighbours of every row; minutes for large tables.",
        ),
    ] = False,
    device: Annotated[
        str, Parameter(help="Where products are computed, a torch device such as cuda.")
    ] = "cpu",
    skip_nonfinite: SkipNonfinite = False,
) -> None:
    """Say how degenerate a token table and an output head are, why, and what to do next.

    Parameters
    ----------
    spec
        A model (MODEL, MODEL#input, MODEL#head, MODEL#tensor): a directory, the name of a cached one (NAME or
        NAME@REVISION) or a GGUF file. Or a file of matrices, FILE or FILE#tensor.
    """
    from uncone.verbs.diagnose import diagnose as run

    with progress_bar() as progress:
        diagnosis = run(
            spec,
            counts=counts,
            neighbours=neighbours,
            skip_nonfinite=skip_nonfinite,
            device=device,
            progress=progress,
        )
    hand_over(diagnosis, json=json, html=html)
