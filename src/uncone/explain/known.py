"""A reading among those of real models: the published ones and ours, in `known_readings.csv` beside this file.

The table is made by `experiments/known_runs/make_table.py`. It holds models that were trained without a remedy.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, get_args

from uncone.records import Measurement, Placed, Subject

Kind = Literal["untied input table", "untied head", "tied table", "table without a head", "collection"]
"""What a matrix is to its model, as far as it decides which known matrices it is like."""
ONE_SIGN = "partition_isotropy_one_sign"
"""I(W) as published: with one sign of each eigenvector, the one that the solver gave."""
EFFECTIVE_RANK_SHARE = "effective_rank_share"
"""`effective_rank` divided by min(N, D), so that matrices of different widths compare."""
LARGEST_OVER_MEAN = "largest_row_over_mean"
"""The length of the longest row divided by the mean length."""
_WHOM: dict[Kind, str] = {"table without a head": "tied or headless table", "collection": "row collection"}
_CENTER_THEMSELVES = {"isoscore", EFFECTIVE_RANK_SHARE}
_PLACED = ("mean_cosine", "mean_shift", "partition_isotropy", "isoscore", "effective_rank")
_HALF_A_DIGIT = 0.5 + 1e-9  # 0.0005 itself may have been printed as 0.000 or as 0.001


@dataclass(frozen=True)
class KnownReading:
    """One line of the table. The source rounded: the number lies from `low` to `high`; nan where it gave none."""

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
    """The kind of one subject of a diagnosis among all of them. A tied head and its table have one source."""
    if subject.name not in ("input", "head"):
        return "collection"
    others = [one for one in subjects if one.name in ("input", "head") and one.name != subject.name]
    if any(one.source == subject.source for one in others):
        return "tied table"
    if subject.name == "head":
        return "untied head"
    return "untied input table" if others else "table without a head"


def placed_among_known(subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
    """The subjects of one diagnosis, each with its readings among known ones of such matrices."""
    return tuple(replace(one, placed=tuple(_placed(one, kind_of(one, subjects)))) for one in subjects)


def _placed(subject: Subject, kind: Kind) -> Iterator[Placed]:
    """Of a head, the rows as stored are placed: published readings are of those."""
    of = {m.name: m for m in (*subject.measurements, *subject.without_effect) if m.value is not None}
    yield from (place(of[name], kind) for name in _PLACED if name in of)
    if subject.norms is not None and subject.norms.mean > 0:
        longest, centered = subject.norms.largest / subject.norms.mean, bool(subject.without_effect)
        shape = (subject.n, subject.d)
        yield place_value(LARGEST_OVER_MEAN, longest, kind, shape=shape, centered=centered)


def place(measurement: Measurement, kind: Kind, *, parameters: int | None = None) -> Placed:
    """Where a measurement of a diagnosis stands among known readings of such matrices.

    I(W) is compared as published, with one sign of each eigenvector: a known reading counts as lower or higher
    only where it is so whatever the signs, which the measurement's details tell.

    Args:
        measurement: of a subject's `measurements` or `without_effect`; `centered` says which.
        kind: what the matrix is, see `kind_of`.
        parameters: of the whole model, if known.

    Raises:
        UndefinedMeasure: the measurement has no value.
    """
    name, value, centered = measurement.name, float(measurement), measurement.centered is True
    ends = (value, value)
    if name == "partition_isotropy" and {"low", "high"} <= set(measurement.details):
        name, ends = ONE_SIGN, (float(measurement.details["low"]), float(measurement.details["high"]))
    elif name == "effective_rank":
        name, ends = EFFECTIVE_RANK_SHARE, (value / min(measurement.n, measurement.d),) * 2
    shape = (measurement.n, measurement.d)
    return place_value(name, ends, kind, shape=shape, centered=centered, parameters=parameters)


def place_value(
    measure: str,
    value: float | tuple[float, float],
    kind: Kind,
    *,
    shape: tuple[int, int],
    centered: bool = False,
    parameters: int | None = None,
) -> Placed:
    """Where a number stands among known readings of `measure`, as the table names it.

    Args:
        measure: such as "mean_shift" or `LARGEST_OVER_MEAN`; one that the table lacks has no known reading.
        value: the number, or (lowest, highest) where it lies between two.
        kind: what the matrix is.
        shape: its rows and columns (N, D).
        centered: whether the mean row was subtracted first.
        parameters: of the whole model, if known.

    >>> place_value("mean_shift", 0.85, "untied head", shape=(50257, 768)).sentence
    'higher than 17 of 30 known untied heads of 16 to 221 M parameters (5 diverged runs left out)'
    """
    low, high = value if isinstance(value, tuple) else (value, value)
    alike = [one for one in known_readings() if _is_like(one, measure, kind, centered)]
    compared = [one for one in alike if not one.diverged]
    below, above = sum(one.high < low for one in compared), sum(one.low > high for one in compared)
    sizes = [one.parameters for one in compared if one.parameters is not None]
    smallest, largest = (min(sizes), max(sizes)) if len(sizes) == len(compared) > 0 else (None, None)
    return Placed(
        measure, _WHOM.get(kind, kind), "with the mean row removed" if centered and measure not in _CENTER_THEMSELVES else "",
        below, len(compared) - below - above, above, smallest, largest, len(alike) - len(compared),
        _doubt(smallest, largest, shape, parameters), tuple(dict.fromkeys(one.source for one in compared)),
        (low, high),
    )  # fmt: skip


@cache
def known_readings() -> tuple[KnownReading, ...]:
    """The table that comes with the package."""
    text = resources.files("uncone.explain").joinpath("known_readings.csv").read_text(encoding="utf-8")
    return tuple(_lines(text))


def _lines(text: str) -> Iterator[KnownReading]:
    for line in csv.DictReader(text.splitlines()):
        digits = line["value"] or "nan"
        half = _HALF_A_DIGIT * 10.0 ** -len(digits.partition(".")[2])
        value, parameters = float(digits), int(line["parameters"]) if line["parameters"] else None
        kind: Kind = next(kind for kind in get_args(Kind) if kind == line["kind"])
        yield KnownReading(
            line["model"], parameters, kind, line["rows"] == "mean removed", line["measure"],
            value - half, value + half, line["diverged"] == "yes", line["source"],
        )  # fmt: skip


def _is_like(one: KnownReading, measure: str, kind: Kind, centered: bool) -> bool:
    # An encoder's table was mostly trained with a tied head that its files no longer have.
    kinds = ("tied table", kind) if kind == "table without a head" else (kind,)
    return one.measure == measure and one.kind in kinds and one.centered == centered


def _doubt(smallest: int | None, largest: int | None, shape: tuple[int, int], parameters: int | None) -> str:
    if smallest is None or largest is None:
        return ""
    if parameters is not None and not smallest <= parameters <= largest:
        return f"this model is {'larger' if parameters > largest else 'smaller'} than any of them"
    if shape[0] * shape[1] > largest:
        return "this matrix alone is larger than any of their models"
    return ""
