"""Compares a reading with readings of real models trained without a remedy, published and our own, in
`known_readings.csv`, which `experiments/known_runs/make_table.py` makes."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, get_args

from uncone.diagnosis.bins.record import ALONG
from uncone.diagnosis.known.record import Placed
from uncone.diagnosis.record import Subject
from uncone.errors import InputError, nearest
from uncone.records.parts import Measurement
from uncone.records.text import number
from uncone.records.tokens import UNDER_TRAINED_SHARE

Kind = Literal[
    "untied input table", "untied head", "tied table", "table without a head", "collection", "language model"
]
ONE_SIGN = "partition_isotropy_one_sign"  # I(W) as published
EFFECTIVE_RANK_SHARE = "effective_rank_share"  # of min(N, D)
LARGEST_OVER_MEAN, SMALLEST_OVER_MEAN = "largest_row_over_mean", "smallest_row_over_mean"  # lengths
SMALLEST_OVER_LARGEST = "smallest_over_largest_singular_value"  # of the rows as stored
ALONG_MEAN = "rank_correlation_along_mean"  # of how often a token occurs with its row's distance along the mean row
_WHOM: dict[Kind, str] = {"table without a head": "tied table or table without a head", "collection": "row collection"}
_CENTER_THEMSELVES = {"isoscore", EFFECTIVE_RANK_SHARE}
_OF_MODELS: tuple[Kind, ...] = ("untied input table", "untied head", "tied table")
_VERIFIED = "whose tokens were verified by prompts"
_FEW_TRIED = "known shares are lower bounds: prompts tested only the most suspect tokens; here rows only look untrained"
_PLACED = ("mean_cosine", "mean_shift", "partition_isotropy", "isoscore", "effective_rank")
_SHARES: tuple[str, ...] = ("mean_shift", "partition_isotropy", ONE_SIGN, "isoscore", EFFECTIVE_RANK_SHARE)
_SHARES += (SMALLEST_OVER_MEAN, SMALLEST_OVER_LARGEST, UNDER_TRAINED_SHARE)
_RANGES = (
    dict.fromkeys(("mean_cosine", ALONG_MEAN), (-1.0, 1.0))
    | dict.fromkeys(_SHARES, (0.0, 1.0))
    | {LARGEST_OVER_MEAN: (1.0, math.inf)}
)
_PAST_AN_END = 1e-6  # of float32 rows
_HALF_A_DIGIT = 0.5 + 1e-9  # 0.0005 may have been printed as 0.000 or as 0.001
_SAME, _FEWEST_SAME = 2e-6, 4
"""How close two readings of one matrix are on two machines, and how many such readings identify a matrix."""


@dataclass(frozen=True)
class KnownReading:
    """The number is from `low` to `high`, as its source rounded it; nan if the source gave no number."""

    model: str
    parameters: int | None
    kind: Kind
    centered: bool
    measure: str
    low: float
    high: float
    diverged: bool
    source: str


def kind_of(subject: Subject, subjects: tuple[Subject, ...]) -> Kind:
    """What the matrix is. A tied head and its table have the same source."""
    model = ("input", "head")
    if subject.name not in model:
        return "collection"
    others = [one for one in subjects if one.name in model and one.name != subject.name]
    if any(one.source == subject.source for one in others):
        return "tied table"
    if subject.name == "head":
        return "untied head"
    return "untied input table" if others else "table without a head"


def placed_among_known(subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
    return tuple(replace(one, placed=tuple(_placed(one, kind_of(one, subjects)))) for one in subjects)


def _placed(subject: Subject, kind: Kind) -> Iterator[Placed]:
    taken = [m for m in (*subject.measurements, *subject.without_effect) if m.value is not None]
    of = {m.name: m for m in taken}  # of a head the rows as stored, as published readings are
    read = {(name, m.centered is True): value for m in taken for name, value in [_read(m)]}
    lengths = dict[str, float]()
    if subject.norms and subject.norms.mean > 0:
        lengths[LARGEST_OVER_MEAN] = max(1.0, subject.norms.largest / subject.norms.mean)
        lengths[SMALLEST_OVER_MEAN] = min(1.0, subject.norms.smallest / subject.norms.mean)
    of_lengths = bool(subject.without_effect)
    read |= {(name, of_lengths): value for name, value in lengths.items()}
    itself = _model_of(read)
    for name in _PLACED:
        if name in of and not (name == "partition_isotropy" and of[name].warnings):
            yield place(of[name], kind, itself=itself)
    shape, untrained = (subject.n, subject.d), subject.under_trained
    for name, value in lengths.items():
        yield place_value(name, value, kind, shape=shape, centered=of_lengths, itself=itself)
    if kind not in ("untied input table", "collection") and (ratio := singular_ratio(subject)) is not None:
        yield place_value(SMALLEST_OVER_LARGEST, ratio, kind, shape=shape, itself=itself)
    # The head is read without its mean row: the order along it is the same as for rows as stored, as published
    bins = subject.by_count if kind == "untied head" and subject.by_count and subject.by_count.by == "count" else None
    for one in bins.correlations if bins else ():
        if one.reading == ALONG and one.correlation.value is not None:
            yield place_value(ALONG_MEAN, one.correlation.value, kind, shape=shape, itself=itself)
    if kind in _OF_MODELS and untrained and untrained.found is not None and untrained.tested:
        share = untrained.found / untrained.tested
        yield place_value(UNDER_TRAINED_SHARE, share, "language model", shape=shape, itself=itself)


def singular_ratio(subject: Subject) -> float | None:
    """The smallest over the largest singular value of the rows as stored; None without a spectrum, or of zeros."""
    raw = subject.spectrum.raw[: min(subject.n, subject.d)] if subject.spectrum else ()
    return math.sqrt(min(1.0, max(0.0, min(raw) / max(raw)))) if raw and max(raw) > 0 else None


def _model_of(read: Mapping[tuple[str, bool], float]) -> str:
    """The model whose matrix has these readings, by measure and whether centred; published ones have too few digits."""
    same: dict[str, list[bool]] = {}
    for one in known_readings():
        if one.source == "uncone" and (value := read.get((one.measure, one.centered))) is not None:
            same.setdefault(one.model, []).append(one.low - _SAME <= value <= one.high + _SAME)
    return next((model for model, are in same.items() if len(are) >= _FEWEST_SAME and all(are)), "")


def _read(m: Measurement) -> tuple[str, float]:
    if m.name == "effective_rank":
        return EFFECTIVE_RANK_SHARE, float(m) / min(m.n, m.d)
    return m.name, float(m)


def place(measurement: Measurement, kind: Kind, *, parameters: int | None = None, itself: str = "") -> Placed:
    """Compare a measurement of a diagnosis with known readings. For arguments and errors see `place_value`.

    I(W) is compared as published, with one sign of each eigenvector: a known reading counts as lower or higher only
    if it is so for all signs. UndefinedMeasure: the measurement has no value.
    """
    m, (name, value) = measurement, _read(measurement)
    ends, centered = (value, value), m.centered is True
    if name == "partition_isotropy" and {"low", "high"} <= set(m.details):
        name, ends = ONE_SIGN, (float(m.details["low"]), float(m.details["high"]))
    return place_value(name, ends, kind, shape=(m.n, m.d), centered=centered, parameters=parameters, itself=itself)


def place_value(
    measure: str,
    value: float | tuple[float, float],
    kind: Kind,
    *,
    shape: tuple[int, int],
    centered: bool = False,
    parameters: int | None = None,
    itself: str = "",
) -> Placed:
    """Compare a number with known readings of `measure`, as the table names it.

    Args:
        measure: "mean_cosine", "mean_shift", "isoscore", `ONE_SIGN` (I(W) as published), "partition_isotropy" (both
            signs, of our own readings alone), `EFFECTIVE_RANK_SHARE`, `LARGEST_OVER_MEAN`, `SMALLEST_OVER_MEAN`, or of
            a "language model" "under_trained_share"; `SMALLEST_OVER_LARGEST` of singular values, and of an untied head
            `ALONG_MEAN`.
        value: the number, or (lowest, highest) if it is between two.
        kind: what the matrix is.
        shape: its rows and columns (N, D).
        centered: whether the mean row was subtracted first.
        parameters: of the whole model, if known.
        itself: the matrix's own model in the table, whose readings are left out.

    Raises:
        InputError: another measure or kind, or a value that is not finite or outside the measure's range.

    >>> place_value("mean_shift", 0.85, "untied head", shape=(50257, 768)).sentence
    'higher than 17 of 30 known untied heads of 16 to 221 M parameters (5 diverged runs left out)'
    """
    low, high = _checked(measure, value, kind)
    # most encoders' tables were trained with a tied head that their files lack
    kinds = ("tied table", kind) if kind == "table without a head" else (kind,)
    readings = (one for one in known_readings() if one.measure == measure and one.centered == centered)
    like = [one for one in readings if one.kind in kinds]
    alike = [one for one in like if not itself or one.model != itself]
    compared = [one for one in alike if not one.diverged]
    below, above = sum(one.high < low for one in compared), sum(one.low > high for one in compared)
    tally, left_out = (below, len(compared) - below - above, above), len(alike) - len(compared)
    sizes = [one.parameters for one in compared if one.parameters is not None]
    smallest, largest = (min(sizes), max(sizes)) if len(sizes) == len(compared) > 0 else (None, None)
    sources, note = tuple(dict.fromkeys(one.source for one in compared)), _doubt(smallest, largest, shape, parameters)
    if measure == "partition_isotropy" and not alike:
        note = f"published readings use one sign: place {ONE_SIGN}"
    whom, ends, itself_too = _WHOM.get(kind, kind), (low, high), len(alike) < len(like)
    how = "with the mean row removed" if centered and measure not in _CENTER_THEMSELVES else ""
    if measure == UNDER_TRAINED_SHARE:
        how, note = _VERIFIED, _FEW_TRIED
    nearby = _nearby(compared, low, high) if kind == "collection" else ()
    return Placed(measure, whom, how, *tally, smallest, largest, left_out, note, sources, ends, itself_too, nearby)


def _nearby(compared: Sequence[KnownReading], low: float, high: float) -> tuple[str, ...]:
    """The nearest below and above, with their numbers: collections differ, and their names show in what."""
    below = max((one for one in compared if one.high < low), key=lambda one: one.high, default=None)
    above = min((one for one in compared if one.low > high), key=lambda one: one.low, default=None)
    return tuple(f"{one.model}: {number((one.low + one.high) / 2)}" for one in (below, above) if one)


def _checked(measure: str, value: float | tuple[float, float], kind: str) -> tuple[float, float]:
    for what, name, known in (("a measure", measure, tuple(_RANGES)), ("a kind", kind, get_args(Kind))):
        if name not in known:
            advice = nearest(name, known, f"give one of {', '.join(map(repr, known))}")
            raise InputError(f"expected {what} of the known readings, got {name!r}: {advice}")
    low, high = map(float, value if isinstance(value, tuple | list) else (value, value))
    least, most = _RANGES[measure]
    if not (math.isfinite(high) and least - _PAST_AN_END <= low <= high <= most + _PAST_AN_END):
        span = f"from {least:g} up" if most == math.inf else f"from {least:g} to {most:g}"
        raise InputError(f"expected {measure} {span}, or (lowest, highest), got {value}: give the value that was read")
    return low, high


@cache
def known_readings() -> tuple[KnownReading, ...]:
    text = resources.files("uncone.diagnosis.known").joinpath("known_readings.csv").read_text(encoding="utf-8")
    return tuple(map(_parsed, csv.DictReader(text.splitlines())))


def _parsed(line: Mapping[str, str]) -> KnownReading:
    digits = line["value"] or "nan"
    half = _HALF_A_DIGIT * 10.0 ** -len(digits.partition(".")[2])
    kind: Kind = next(kind for kind in get_args(Kind) if kind == line["kind"])
    of = line["model"], int(line["parameters"]) if line["parameters"] else None, kind, line["rows"] == "mean removed"
    ends = (float(digits) - half, float(digits) + half)
    return KnownReading(*of, line["measure"], *ends, line["diverged"] == "yes", line["source"])


def _doubt(smallest: int | None, largest: int | None, shape: tuple[int, int], parameters: int | None) -> str:
    if smallest is not None and largest is not None:
        if parameters is not None and not smallest <= parameters <= largest:
            return f"this model is {'larger' if parameters > largest else 'smaller'} than any of them"
        if shape[0] * shape[1] > largest:
            return "this matrix alone is larger than any of their models"
    return ""
