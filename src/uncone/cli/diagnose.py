"""`uncone diagnose`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from uncone.cli.answer import hand_over, progress_bar
from uncone.cli.files import Html, Json, Read, Several, SkipNonfinite, Spec
from uncone.errors import InputError
from uncone.roles import Role


def diagnose(
    spec: Spec,
    /,
    *,
    json: Json = None,
    html: Html = None,
    text: Annotated[list[str] | None, Role.READ, Several] = None,
    counts: Read = None,
    neighbours: bool = False,
    skip_nonfinite: SkipNonfinite = False,
    tokens: int | None = None,
    resume: Annotated[Path | None, Role.WRITE] = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
) -> None:
    """Say how degenerate a token table and an output head are, why, and what to do next.

    Args:
        spec: A model (MODEL, MODEL#input, MODEL#head, MODEL#tensor): a directory, the name of a cached one
            (NAME or NAME@REVISION) or a GGUF file. Or a file of matrices, FILE or FILE#tensor.
        text: Texts to say why by: .txt, .jsonl#field or .parquet#column, also packed (.gz, .xz, .zst). Tokens
            are counted, and the model is run (needs torch and transformers).
        counts: How often each token occurs: a table of ids or tokens and counts, or .npy.
        neighbours: Also measure what takes the nearest neighbours of every row; minutes for large tables.
        tokens: With --text: run the model over so many tokens at most, 100,000 by default; all are counted.
        resume: With --text: keep the sums over layers in this file, so that a stopped run goes on.
        device: With --text: run the model there, as on cuda.
        dtype: With --text: run the model in it; float32 by default.
    """
    from uncone.diagnosis.diagnose import diagnose as run
    from uncone.diagnosis.diagnose import with_whole_paths

    asked = {"tokens": tokens, "resume": resume, "device": device, "dtype": dtype}
    of_text: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if of_text and text is None:
        raise InputError(
            f"expected --text with --{next(iter(of_text))}, got none: name a text to run the model on"
        )
    with progress_bar() as progress:
        result = run(
            spec, text=text, counts=counts, neighbours=neighbours, skip_nonfinite=skip_nonfinite,
            progress=progress, **of_text,
        )  # fmt: skip
    hand_over(result, json, html, shown=with_whole_paths(result, spec))
