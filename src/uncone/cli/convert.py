"""`uncone convert`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import Role, tell


def convert(
    model: Annotated[Path, Role.SPEC],
    out: Annotated[Path, Role.OUT],
    /,
    *,
    tokenizer: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="Its tokenizer, where that is not tokN.bin or tokenizer.bin beside the model."),
    ] = None,
) -> None:
    """Write a llama2.c model as a Llama directory that transformers opens: the same logits, the same tokens.

    Parameters
    ----------
    model
        A llama2.c file, or the directory that holds one.
    out
        The directory to write. It must not exist yet.
    """
    from uncone.model import to_hugging_face

    tell(to_hugging_face(model, out, tokenizer=tokenizer))
