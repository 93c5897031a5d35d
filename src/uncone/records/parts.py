"""What a diagnosis is made of."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from uncone.errors import InputError, UndefinedMeasure
from uncone.records.wording import counted


@dataclass(frozen=True)
class Measurement:
    """One number with its meaning.

    `value` is None exactly when the measure is undefined here, and `reason` says why. `range` is (lowest,
    highest), None where unbounded. `reference` is what an isotropic cloud of the same number of rows and
    columns gives. `centered` says whether the mean row was subtracted (None: the question does not arise).
    """

    name: str
    value: float | None
    reason: str = ""
    range: tuple[float | None, float | None] = (None, None)
    better: Literal["higher", "lower", "neither"] = "neither"
    reference: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    d: int = 0
    centered: bool | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    definition: str = ""
    reads_badly: str = ""
    """When the value misleads, whatever the rows; empty in files of older versions."""

    def __float__(self) -> float:
        if self.value is None:
            raise UndefinedMeasure(f"{self.name} is undefined: {self.reason}")
        return self.value


@dataclass(frozen=True)
class Finding:
    """A cause in the user's words, the evidence for it, and what to do about it."""

    cause: str
    level: Literal["healthy", "note", "warning", "severe"]
    summary: str
    evidence: tuple[str, ...] = ()
    repair: str = ""


@dataclass(frozen=True)
class Group:
    """Readings of one group of rows: a bin of ids, or the reserved rows. Undefined readings are None."""

    name: str
    start: int
    stop: int
    n: int
    zero_rows: int
    norm_mean: float | None
    norm_std: float | None
    mean_cosine: float | None
    cosine_to_reserved: float | None
    reserved_rows: int = 0


@dataclass(frozen=True)
class Groups:
    """Rows cut into bins of ids, and the reserved rows that each bin is compared to."""

    bin_size: int
    reserved: str
    reserved_group: Group | None
    bins: tuple[Group, ...]
    reserved_by_name: bool = True
    """Whether the tokenizer names the reserved rows; else they are the last ids, which stand in for rare
    tokens."""

    def __post_init__(self) -> None:
        for group in self.bins:
            if not 0 <= group.start < group.stop:
                raise InputError(
                    f"expected bins from a start to a later stop, got {group.start} to {group.stop}"
                )


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, largest first, of the second moment (raw), of the covariance (centred), and of an
    isotropic cloud with the covariance's trace and the same number of rows and columns (Marchenko-Pastur
    quantiles)."""

    raw: tuple[float, ...]
    centered: tuple[float, ...]
    isotropic: tuple[float, ...]


@dataclass(frozen=True)
class Norms:
    """The distribution of the rows' Euclidean norms: `counts[i]` rows lie in [edges[i], edges[i + 1])."""

    smallest: float
    mean: float
    largest: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        expected = len(self.counts) + 1 if self.counts else 0
        if len(self.edges) != expected or any(b < a for a, b in itertools.pairwise(self.edges)):
            raise InputError(
                f"expected {counted(expected, 'rising edge')} for {counted(len(self.counts), 'count')} of norms, got {len(self.edges)}"
            )
