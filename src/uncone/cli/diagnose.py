"""`uncone diagnose`."""

from uncone.cli.answer import hand_over, progress_bar
from uncone.cli.files import Html, Json, Read, SkipNonfinite, Spec


def diagnose(
    spec: Spec,
    /,
    *,
    json: Json = None,
    html: Html = None,
    counts: Read = None,
    neighbours: bool = False,
    skip_nonfinite: SkipNonfinite = False,
) -> None:
    """Say how degenerate a token table and an output head are, why, and what to do next.

    Args:
        spec: A model (MODEL, MODEL#input, MODEL#head, MODEL#tensor): a directory, the name of a cached one
            (NAME or NAME@REVISION) or a GGUF file. Or a file of matrices, FILE or FILE#tensor.
        counts: How often each token occurs: a table of ids or tokens and counts, or .npy.
        neighbours: Also measure what takes the nearest neighbours of every row; minutes for large tables.
    """
    from uncone.verbs.diagnose import diagnose as run
    from uncone.verbs.diagnose import with_whole_paths

    with progress_bar() as progress:
        result = run(
            spec, counts=counts, neighbours=neighbours, skip_nonfinite=skip_nonfinite, progress=progress
        )
    hand_over(result, json, html, shown=with_whole_paths(result, spec))
