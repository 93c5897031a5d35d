"""`uncone calibrate`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, SkipNonfinite, hand_over
from uncone.cli.progress import progress_bar
from uncone.errors import InputError
from uncone.records import Calibration


def calibrate(
    vectors: Annotated[str, Role.SPEC],
    /,
    *,
    queries: Annotated[
        str | None, Role.SPEC, Parameter(help="Vectors of queries, if rows are not compared with each other.")
    ] = None,
    texts: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="Texts, one a line, to encode with VECTORS: an encoder or word vectors."),
    ] = None,
    query_texts: Annotated[Path | None, Role.READ, Parameter(help="The same for queries.")] = None,
    pairs: Annotated[
        Path | None, Role.READ, Parameter(help="Labelled pairs: id, id and label, separated by tabs.")
    ] = None,
    ids: Annotated[
        Path | None,
        Role.READ,
        Parameter(
            help="The ids of the rows that --pairs names, one a line; else the texts, or numbers from 0."
        ),
    ] = None,
    query_ids: Annotated[Path | None, Role.READ, Parameter(help="The same for the queries.")] = None,
    match_at: Annotated[
        float | None,
        Parameter(
            help="A pair with a label of at least this matches; by default above 0.", show_default=False
        ),
    ] = None,
    prior: Annotated[
        float | None,
        Parameter(
            help="The share of matches among pairs compared, for the precision; by default 0.01.",
            show_default=False,
        ),
    ] = None,
    score: Annotated[
        list[float] | None,
        Parameter(negative="", help="A score to explain; by default a cosine of 0.8. Can be given again."),
    ] = None,
    false_match_rate: Annotated[
        list[float] | None,
        Parameter(
            negative="", help="The share of random pairs that may reach a threshold. Can be given again."
        ),
    ] = None,
    metric: Annotated[
        Literal["cosine", "inner_product"], Parameter(help="How vectors are compared.")
    ] = "cosine",
    against: Annotated[
        Path | None, Role.READ, Parameter(help="A calibration saved with --json: does it still hold?")
    ] = None,
    json: Json = None,
    html: Html = None,
    most_pairs: Annotated[
        int, Parameter(help="Pairs counted at most; of more, those of rows drawn at random.")
    ] = 1_000_000_000,
    seed: Annotated[int, Parameter(help="Of the rows drawn.")] = 0,
    skip_nonfinite: SkipNonfinite = False,
) -> None:
    """Say what a similarity score means for these vectors: how often random pairs reach it, and which threshold to use.

    Parameters
    ----------
    vectors
        Vectors that are compared, in any form that uncone reads: FILE or FILE#tensor, or MODEL#input; with --texts, an encoder's directory.
    """
    from uncone.verbs.calibrate import RATES, PairTable
    from uncone.verbs.calibrate import calibrate as run

    if pairs is None and any(given is not None for given in (ids, query_ids, match_at, prior)):
        raise InputError(
            "expected --pairs with --ids, --query-ids, --match-at or --prior, got none: give the table of labelled pairs too"
        )
    saved = None if against is None else _load(against)
    share = {} if prior is None else {"prior": prior}
    table = (
        None if pairs is None else PairTable(pairs, ids=ids, query_ids=query_ids, match_at=match_at, **share)
    )
    with progress_bar() as progress:
        found = run(
            vectors, queries=queries, texts=texts, query_texts=query_texts, pairs=table, metric=metric, scores=score,
            rates=false_match_rate or RATES, against=saved, most_pairs=most_pairs, seed=seed, skip_nonfinite=skip_nonfinite,
            progress=progress,
        )  # fmt: skip
    hand_over(found, json=json, html=html)


def _load(path: Path) -> Calibration:
    try:
        return Calibration.load(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error
