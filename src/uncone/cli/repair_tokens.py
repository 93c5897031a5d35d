"""`uncone repair-tokens`."""

from functools import partial
from typing import Annotated, Literal

from uncone.cli.answer import answer
from uncone.cli.files import Html, Json, Out, Read, Spec
from uncone.roles import Role


def repair_tokens(
    model: Spec,
    out: Out,
    /,
    *,
    tokens: Annotated[str, Role.READ] = "auto",
    method: Literal["sub_tokens", "mean", "covariance"] = "sub_tokens",
    counts: Read = None,
    text: Read = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Write a copy of a language model in which rows of tokens that no text has trained are set anew.

    Args:
        model: A directory of transformers, or the name of a cached one.
        out: A new directory.
        tokens: Ids, spans and token strings such as 3,90-99,<|user|>, a file of them, zero, added, or auto: those that look
            untrained. Digits are an id.
        method: What new rows are made of.
        counts: With --tokens auto: how often each token occurs; count 0 is unused.
        text: Text to measure the loss on, before and after.
    """
    from uncone.edits.repair_tokens import repair_tokens as run

    work = partial(run, model, out, tokens=tokens, method=method, counts=counts, text=text)
    answer(work, json, html, out)
