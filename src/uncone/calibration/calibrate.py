"""`calibrate`: what a score means, compared with the scores of random pairs."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from uncone.arguments import check_seed, shown, whole_number
from uncone.calibration.drift import drift
from uncone.calibration.record import Calibration
from uncone.calibration.sides import METRICS, Metric, Sides, equal_pairs, floor_of, open_side, read_labels
from uncone.calibration.thresholds import count_scores, function_of, remarks, verdict, with_labels
from uncone.engines.choose import working
from uncone.errors import InputError, nearest, needed
from uncone.roles import EngineName, Path_, Progress, Read, Role, Spec, Vectors
from uncone.rows.ids import ids_beside, note_on_ids, places_of
from uncone.rows.samples import as_floats
from uncone.transforms.one_side import check_same_width, one_sided
from uncone.transforms.row_numbers import PairedRows, remarks_on_numbers
from uncone.version import versions

RATES = (0.05, 0.01, 0.001, 0.0001, 0.00001)


def calibrate(
    vectors: Spec,
    *,
    queries: Vectors = None,
    texts: Read = None,
    query_texts: Read = None,
    pairs: Read = None,
    ids: Read = None,
    query_ids: Read = None,
    match_at: float | None = None,
    prior: float | None = None,
    metric: Metric = "cosine",
    scores: Sequence[float] | None = None,
    rates: Sequence[float] = RATES,
    against: Annotated[Calibration | Path_ | None, Role.READ] = None,
    most_pairs: int = 1_000_000_000,
    seed: int = 0,
    skip_nonfinite: bool = False,
    workers: int | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Say what a similarity score of these vectors means: how often random pairs reach it.

    A random pair is a query with a row, or two different rows where there are no queries. Mean and variance are exact
    over all pairs, from sums (E[s] and E[s^2] in closed form). Shares are counted in bins, over all pairs up to
    `most_pairs`; beyond that, over all pairs of rows drawn without replacement. Intervals (95%) show where a share
    would be for other rows drawn in the same way; pairs that share a row do not count as independent.

    Args:
        vectors: the documents (N, D), in any form that uncone reads; with `texts` their encoder.
        queries: the queries (M, D); without them rows are compared with each other.
        texts: a file of texts, one per line, whose vectors are compared.
        query_texts: the same for queries.
        pairs: labelled pairs: id of the query (or first row), id of the row and label, separated by tabs. Matches do
            not count as random pairs, and each threshold gets the share of matches that reach it.
        ids: the ids of the rows that `pairs` names, one per line; by default the texts, the rows' own ids, the lines of
            NAME.ids next to NAME.npy, or row numbers from 0.
        query_ids: the same for the queries.
        match_at: a pair matches if its label is at least this; by default, if its label is above 0.
        prior: the share of matches among pairs compared, for the precision; by default 0.01.
        metric: how vectors are compared.
        scores: scores to explain; by default a cosine of 0.8, none with `against`.
        rates: shares of random pairs, each in (0, 1), that may reach a threshold.
        against: a saved calibration, to check whether it still holds; a command ends with status 2 where it drifted.
        most_pairs: the most pairs to count, at least 1000; beyond that, rows are drawn at random.
        seed: the seed for drawing rows and their random groups.
        skip_nonfinite: leave out rows with NaN or inf instead of refusing them.
        workers: of shards (a glob, a folder, a Lance dataset), processes of this machine, or units of Ray under way; by
            default this process alone. The answer is the same to the last byte.
        engine: what works on shards: "processes", or "ray" (extra [ray]).
        address: of a cluster of Ray, such as "ray://head:10001"; by default one is begun on this machine.
        progress: called with (the step, how much is done, of how much).

    Returns:
        `Calibration`, whose `false_match_rate(score)`, `percentile(score)` and `threshold(rate)` need nothing but the
        record.

    Raises:
        InputError: vectors, queries or a table that cannot be opened; queries of another width; fewer than two rows
            with a direction; a rate or score out of its range; labelled pairs that name no row.

    Reads badly when rows are few (the intervals show it), when many rows are equal, or when the rows are of other texts
    than you will compare.

    Example:
        >>> import numpy, uncone
        >>> calibration = uncone.calibrate(numpy.random.default_rng(0).normal(size=(500, 64)))
        >>> 0.25 < calibration.threshold(0.01) < 0.35, calibration.false_match_rate(0.8)
        (True, 0.0)
    """
    of_pairs = {"ids": ids, "query-ids": query_ids, "match-at": match_at, "prior": prior}
    given = next((name for name, value in of_pairs.items() if value is not None), None)
    if pairs is None and given is not None:
        raise InputError(f"expected --pairs with --{given}, got none: give --pairs FILE")
    prior = 0.01 if prior is None else prior
    if isinstance(against, str | os.PathLike):
        against = Calibration.load(against)
    scores, rates = None if scores is None else _listed(scores, "scores"), _listed(rates, "rates")
    if against is not None and not isinstance(against, Calibration):
        raise InputError(f"expected a saved calibration, got {shown(against)}: read one with Calibration.load(path)")
    _check(metric, scores, rates, most_pairs, prior)
    check_seed(seed)
    if (query_texts is not None and texts is None) or (texts is not None and queries is not None):
        raise InputError("expected --query-texts with --texts, and --queries with vectors, got them mixed: encode both")
    if texts is not None:
        needed("torch", "encoding texts needs torch: pip install 'uncone[sentence]'")
        from uncone.evaluation.encoding import encoded_texts

        vectors, queries = encoded_texts(vectors, texts, query_texts, progress=progress)
    with working(workers, engine, address) as worker:
        side = open_side(vectors, metric, "rows", skip_nonfinite, progress, worker)
        other = None if queries is None else open_side(queries, metric, "queries", skip_nonfinite, progress)
        if other is not None:
            check_same_width(side.rows, other.rows)
        sides, numbers, shifted = Sides(side, other), "", ""
        if pairs is not None:
            sides, numbers, shifted = _with_labels(sides, pairs, ids, query_ids, match_at)
        common = "" if other is None else one_sided(side.rows, other.rows)
        rows, floor = side.fitted, floor_of(sides)
        counted = count_scores(sides, floor, most_pairs, seed, progress)
        histogram, knots, equal = counted.histogram, counted.knots(), equal_pairs(sides)
    meanings = tuple(map(counted.meaning, (0.8,) if scores is None and metric == "cosine" else scores or ()))
    thresholds = tuple(map(counted.threshold, sorted(rates, reverse=True)))
    first, asked = verdict(metric, meanings, thresholds, histogram), None if other is None else other.fitted
    parts = (histogram, knots, counted.free, meanings, thresholds, function_of(knots, histogram))
    more: Any = {"equal_pairs": equal, "seed": seed, "versions": versions("numpy", *["torch"] * (texts is not None))}
    more["notes"] = (*filter(None, (numbers,)), *remarks(sides, counted, floor, equal))
    more["caution"] = " ".join(filter(None, (shifted, common)))
    record = Calibration(rows.name, first, metric, rows, asked, floor.pairs, floor.mean, floor.variance, *parts, **more)
    if sides.labels is not None:
        record = with_labels(record, sides.labels, prior)
    if against is None:
        return record
    found = drift(against, record)
    if scores:
        return replace(record, drift=found, verdict=f"{found.verdict()} {record.verdict}")
    return replace(record, drift=found, verdict=found.verdict(), meanings=())  # no score was given to explain


def _check(metric: str, scores: Sequence[float] | None, rates: Sequence[float], most_pairs: int, prior: float) -> None:
    if not isinstance(metric, str) or metric not in METRICS:
        got = f"{shown(metric)}: {nearest(metric, METRICS, 'the cosine is the default')}"
        raise InputError(f"expected a metric of {' or '.join(METRICS)}, got {got}")
    for score in scores or ():
        if not math.isfinite(score) or (metric == "cosine" and abs(score) > 1):
            bounds = "from -1 to 1" if metric == "cosine" else "that is finite"
            raise InputError(f"expected a score {bounds}, got {score:g}: pass scores that this metric can have")
    for rate in rates:
        if not 0 < rate < 1:
            raise InputError(f"expected a false-match rate above 0 and below 1, got {rate}: 1% is 0.01")
    if whole_number(most_pairs, "most_pairs") < 1000:
        raise InputError(f"expected at least 1000 pairs to count, got {most_pairs}: millions are best")
    if not 0 < prior < 1:
        raise InputError(f"expected a prior above 0 and below 1, got {prior}: 1 match in 100 pairs compared is 0.01")


def _listed(given: Any, name: str) -> tuple[float, ...]:
    numbers = as_floats(given, name)
    if numbers.ndim != 1:
        raise InputError(f"expected a list of {name}, got {shown(given)}: pass for instance [0.5]")
    return tuple(numbers.tolist())


def _with_labels(
    sides: Sides, table: Path_, ids: Path_ | None, query_ids: Path_ | None, match_at: float | None
) -> tuple[Sides, str, str]:
    """The sides with their labelled pairs, and remarks on row numbers that are ids of matching pairs."""
    rows, queries = sides.rows.rows, sides.queries
    if queries is None and query_ids is not None:
        raise InputError("expected queries with ids of queries, got none: give the queries too")
    beside = ids_beside(rows) if ids is None else None
    beside_queries = ids_beside(queries.rows) if queries is not None and query_ids is None else None
    ids, query_ids = beside or ids, beside_queries or query_ids
    places = places_of(rows, ids)
    of_first, of_second = (places, None) if queries is None else (places_of(queries.rows, query_ids), places)
    labels = sides.scored(read_labels(table, of_first, of_second, match_at=match_at))
    first, second = labels.matching()
    paired = []
    if queries is None:
        second = np.stack([first, second], axis=1)
    else:
        are_numbered = query_ids is None and queries.rows.keys is None
        paired.append(PairedRows("queries", queries.rows, first, "--query-ids", are_numbered))
    paired.append(PairedRows("rows", rows, second, "--ids", ids is None and rows.keys is None))
    numbers, shifted = remarks_on_numbers(paired, labels.source)
    note = " ".join(filter(None, (note_on_ids(beside, beside_queries), numbers)))
    return replace(sides, labels=labels), note, shifted
