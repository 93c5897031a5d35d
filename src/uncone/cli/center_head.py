"""`uncone center-head`."""

from functools import partial

from uncone.cli.answer import answer
from uncone.cli.files import Html, Json, Out, Read, Spec


def center_head(
    model: Spec, out: Out, /, *, untie: bool = False, text: Read = None, json: Json = None, html: Html = None
) -> None:
    """Write a copy of a language model whose head has no mean row, and prove that no probability changed.

    Args:
        model: A directory of transformers, or the name of a cached one.
        out: A new directory.
        untie: Store a head apart that shares the token table's rows.
        text: Text to prove it on, instead of a sample of its own.
    """
    from uncone.edits.center_head import center_head as run

    answer(partial(run, model, out, untie=untie, text=text), json, html, out)
