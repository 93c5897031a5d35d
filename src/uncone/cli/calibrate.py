"""`uncone calibrate`."""

from typing import Annotated, Literal

from uncone.calibration.record import Calibration
from uncone.cli.answer import judge, progress_bar
from uncone.cli.files import Html, Json, Read, SkipNonfinite, Spec, load
from uncone.errors import InputError
from uncone.roles import Role


def calibrate(
    vectors: Spec,
    /,
    *,
    queries: Annotated[str | None, Role.SPEC] = None,
    texts: Read = None,
    query_texts: Read = None,
    pairs: Read = None,
    ids: Read = None,
    query_ids: Read = None,
    match_at: float | None = None,
    prior: float | None = None,
    score: list[float] | None = None,
    false_match_rate: list[float] | None = None,
    metric: Literal["cosine", "inner_product"] = "cosine",
    against: Read = None,
    json: Json = None,
    html: Html = None,
    most_pairs: int = 1_000_000_000,
    seed: int = 0,
    skip_nonfinite: SkipNonfinite = False,
) -> None:
    """Say what a similarity score of these vectors means: how often random pairs reach it, and thresholds.

    Args:
        vectors: Vectors to compare, in any form that uncone reads: FILE or FILE#tensor, or MODEL#input; with
            --texts, an encoder's directory.
        queries: Vectors of queries, if rows are not compared with each other.
        texts: Texts, one a line, to encode with VECTORS: an encoder or word vectors.
        query_texts: The same for queries.
        pairs: Labelled pairs: id, id and label, separated by tabs.
        ids: The ids of the rows that --pairs names, one a line; else the texts, or row numbers from 0.
        query_ids: The same for the queries.
        match_at: A pair with a label of at least this matches; by default above 0.
        prior: The share of matches among pairs compared, for the precision; by default 0.01.
        score: A score to explain; by default a cosine of 0.8, without --against. Can be given again.
        false_match_rate: The share of random pairs that may reach a threshold. Can be given again.
        metric: How vectors are compared.
        against: A calibration saved with --json: does it still hold? Exit status 2 where it drifted.
        most_pairs: Pairs counted at most; of more, those of rows drawn at random.
        seed: Of the rows drawn.
    """
    from uncone.calibration.calibrate import RATES, PairTable
    from uncone.calibration.calibrate import calibrate as run

    if pairs is None and any(given is not None for given in (ids, query_ids, match_at, prior)):
        raise InputError(
            "expected --pairs with --ids, --query-ids, --match-at or --prior, got none: give --pairs FILE"
        )
    saved = None if against is None else load(Calibration, against)
    share = {} if prior is None else {"prior": prior}
    table = pairs and PairTable(pairs, ids=ids, query_ids=query_ids, match_at=match_at, **share)
    with progress_bar() as progress:
        record = run(
            vectors, queries=queries, texts=texts, query_texts=query_texts, pairs=table, metric=metric,
            scores=score, rates=false_match_rate or RATES, against=saved, most_pairs=most_pairs, seed=seed,
            skip_nonfinite=skip_nonfinite, progress=progress,
        )  # fmt: skip
    judge(record, json, html, beyond=record.drift is not None and record.drift.found)
