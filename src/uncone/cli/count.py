"""`uncone count`."""

from functools import partial
from typing import Annotated

from uncone.cli.answer import answer
from uncone.cli.files import Html, Json, Several, Write
from uncone.errors import InputError
from uncone.roles import Role


def count(
    model: Annotated[str, Role.SPEC],
    text: Annotated[list[str], Role.READ, Several],
    /,
    *,
    save: Write = None,
    no_words: bool = False,
    overwrite: bool = False,
    json: Json = None,
    html: Html = None,
) -> None:
    """Count how often each token of a model occurs in texts, which --counts of every command takes.

    A stopped run with --save goes on where it was when the same command is given again.

    Args:
        model: A model, a tokenizer's directory or a tokenizer.json.
        text: Texts: .txt, .jsonl#field, .parquet#column, also packed as .gz, .xz or .zst; or counts to add, .npy or
            .tsv.
        save: Write the counts to this file, a .npy.
        no_words: Count tokens alone, and no words.
        overwrite: With --save: replace the file if it is there, and a FILE.part of anything but this count.
    """
    from uncone.tokens.count import count as run

    if save is not None and save.suffix != ".npy":
        raise InputError(
            f"expected a name that ends in .npy for --save, got {save}: say {save.with_suffix('.npy')}"
        )
    answer(partial(run, model, text, save=save, words=not no_words, overwrite=overwrite), json, html, save)
