"""`uncone saturation`: one command for five questions, each a function of its own."""

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from uncone.cli.answer import answer
from uncone.cli.files import Html, Json, Read, Role, Several
from uncone.errors import InputError
from uncone.regular import number_in

_OF = {
    "file": ("judge_curves", "columns lower higher alpha seed"),
    "law": ("fit_scaling_law", "columns smallest fixed parameters seed"),
    "checkpoints": ("trace_checkpoints", "text losses steps out seed"),
    "head": ("examine_head", "text ranks margin_nats remedies seed"),
    "contexts": ("context_rank", "tokenizer order dimensions seed"),
}
"""The questions, with the function that answers each and its options."""


def saturation(
    file: Read = None,
    /,
    *,
    law: Read = None,
    checkpoints: Annotated[list[Path] | None, Role.READ, Several] = None,
    head: Annotated[str | None, Role.SPEC] = None,
    contexts: Read = None,
    text: Read = None,
    columns: str | None = None,
    lower: Annotated[list[str] | None, Several] = None,
    higher: Annotated[list[str] | None, Several] = None,
    alpha: float | None = None,
    smallest: float | None = None,
    fixed: str | None = None,
    parameters: Literal["total", "non-embedding"] | None = None,
    losses: Read = None,
    steps: Annotated[list[int] | None, Several] = None,
    out: Annotated[Path | None, Role.WRITE] = None,
    ranks: str | None = None,
    margin_nats: float | None = None,
    remedies: bool | None = None,
    tokenizer: Read = None,
    order: int | None = None,
    dimensions: int | None = None,
    seed: int | None = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say whether training stops to help, whether geometry turns before the loss, and what the rank of a head
    costs.

    FILE: which curves over checkpoints decline. --law: the loss that runs should have. --checkpoints: when
    spectra and loss turn. --head with --text: losses and gradients behind the rank of a head. --contexts: of
    how many dimensions a text's contexts are.

    Args:
        file: A table with a row for each checkpoint (CSV, TSV, JSON lines, Parquet), a folder of results of
            lm-evaluation-harness, event files of TensorBoard, or a trainer_state.json.
        law: A table of runs: model, n (parameters), t (tokens), loss.
        checkpoints: Directories of one training's checkpoints, or one that holds them all.
        head: A language model: a directory of transformers, or the name of a cached one.
        contexts: A text.
        text: With --head or --checkpoints: a text to run the models on.
        columns: Names of columns, as in step=iteration,value=accuracy; with --law as in n=params,t=tokens.
        lower: Metrics of which less is better, where their names do not say so; of a table without metrics the
            column of values.
        higher: Metrics of which more is better, likewise.
        alpha: The level within each family of curves; 0.05 by default.
        smallest: With --law: fit the runs of at least so many parameters, and read the gap of the others.
        fixed: With --law: constants that are given, as in B=410.7,beta=0.28,E=1.69.
        parameters: With --law: what n counts; total by default.
        losses: With --checkpoints: a table of step and loss, or a trainer_state.json.
        steps: With --checkpoints: their steps, as in 0 1000 2000, where their names have none.
        out: With --checkpoints: keep a line of JSON for each checkpoint here, so that a stopped run goes on.
        ranks: With --head: as in 16,64,256.
        margin_nats: With --head: how much loss a smaller head may cost, in nats a token.
        remedies: With --head: also train a mixture of softmaxes and a wider head.
        tokenizer: With --contexts: a model's directory or a tokenizer.json; words between spaces by default.
        order: With --contexts: tokens of context and the next one; 5 by default.
        dimensions: With --contexts: singular values to compute; 500 by default.
        seed: Of what is drawn; 0 by default.
    """
    given = {
        name: value for name, value in locals().items() if value is not None and name not in ("json", "html")
    }
    question = _question(given)
    source = given.pop(question)
    for name in ("columns", "fixed"):
        if name in given:
            given[name] = dict(_pairs(name, given[name]))
    if "ranks" in given:
        given["ranks"] = _ranks(given["ranks"])
    if question == "head" and "text" not in given:
        raise InputError("expected --text with --head, got none: name a text to run the model on")
    verb, _ = _OF[question]
    work = getattr(import_module(f"uncone.verbs.{verb}"), verb)
    answer(partial(work, source, **given), json, html)


def _question(given: dict[str, Any]) -> str:
    """Which question is asked; an option of another is refused."""
    asked = [name for name in _OF if name in given]
    if len(asked) != 1:
        got = " and ".join(map(_flag, asked)) or "none"
        raise InputError(
            f"expected one of FILE, --law, --checkpoints, --head and --contexts, got {got}: ask one question at a time"
        )
    others = [name for name in given if name not in (asked[0], *_OF[asked[0]][1].split())]
    if others:
        homes = [_flag(question) for question, (_, names) in _OF.items() if others[0] in names.split()]
        raise InputError(
            f"expected {_flag(others[0])} with {' or '.join(homes)}, got it with {_flag(asked[0])}: leave it out"
        )
    return asked[0]


def _flag(name: str) -> str:
    return "FILE" if name == "file" else f"--{name.replace('_', '-')}"


def _pairs(option: str, text: str) -> Iterable[tuple[str, Any]]:
    """NAME=VALUE, parted by commas; the values of constants are numbers."""
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        number = number_in(value) if option == "fixed" else None
        if not name or not value or (option == "fixed" and number is None):
            example = "B=410.7,beta=0.28" if option == "fixed" else "step=iteration,value=accuracy"
            raise InputError(f"expected --{option} NAME=VALUE, got {part!r}: give them as in {example}")
        yield name, value if number is None else number


def _ranks(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError(f"expected --ranks of whole numbers, got {text!r}: give them as in 16,64,256")
    return list(map(int, parts))
