"""`center_head`: a language model whose output head has no mean row, with the proof that no probability changed."""

from uncone.edits import head
from uncone.edits.targets import Path_, Progress, whole_model
from uncone.records.head_edit import HeadEdit


def center_head(
    model: Path_,
    out: Path_,
    *,
    untie: bool = False,
    text: Path_ | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> HeadEdit:
    """Write a copy of a language model whose head is centred; no probability changes (`edits.head.center_head` says how).

    Args:
        model: a directory of transformers, or the name of a cached one.
        out: a new directory.
        untie: store a head apart that shares the rows of the token table.
        text: a text in UTF-8 for the proof; by default a sample that is part of uncone.
        dtype: in which the proof runs; by default that of the model.
        progress: called with (what is done, how much, of how much).

    Returns:
        A `HeadEdit` with the proof.

    Raises:
        InputError: what `edits.head.center_head` raises. Then nothing is written.
    """
    return head.center_head(whole_model(model), out, untie=untie, text=text, dtype=dtype, progress=progress)
