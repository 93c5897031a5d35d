"""What a diagnosis says about tokens: groups by frequency, with intervals, and the tokens that were hardly trained."""

from dataclasses import dataclass
from typing import Literal

from uncone.errors import InputError


@dataclass(frozen=True)
class Estimate:
    """A number and its interval, as if the rows had been drawn at random; None where it is undefined."""

    value: float | None
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and (
            self.value is None or not self.interval[0] <= self.value <= self.interval[1]
        ):
            raise InputError(
                f"expected a value inside its interval, got {self.value} and {self.interval}: the file was edited"
            )


@dataclass(frozen=True)
class FrequencyGroup:
    """The rows of one group and their readings.

    `excess` is how many standard deviations the mean cosine of the group lies above that of random groups of its size;
    `chance` bounds the probability that a random group has as much (Cantelli's inequality, whatever the distribution).
    """

    name: str
    n: int
    occurrences: int | None
    mean_cosine: Estimate
    mean_norm: Estimate
    cosine_to_reserved: Estimate
    cosine_to_common: Estimate
    excess: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Difference:
    """A reading of the group `first` minus that of the group `second`."""

    first: str
    second: str
    reading: Literal["mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common"]
    difference: Estimate


@dataclass(frozen=True)
class FrequencyGroups:
    """Frequent, medium, rare and reserved rows compared. `by` says what they were ranked by, `definition` how they were cut."""

    by: Literal["count", "id"]
    definition: str
    confidence: float
    groups: tuple[FrequencyGroup, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class UnderTrainedToken:
    """One row that looks untrained, with the evidence.

    `p` and `q` belong to the indicator; `cosine_to_unused` is to the mean of the known-unused rows and `cosine_to_mean` to
    the mean row. `expected` marks the known-unused rows themselves.
    """

    id: int
    token: str | None
    indicator: float
    p: float
    q: float
    norm: float
    cosine_to_unused: float | None
    cosine_to_mean: float | None
    count: int | None = None
    expected: bool = False


@dataclass(frozen=True)
class UnderTrained:
    """The rows that look like rows no text ever trained.

    `found` counts those that were not known to be unused, of `tested` rows, at the false-discovery rate `rate`; it is None
    exactly when nothing could be told, and `reason` says why. `known` rows were known to be unused (`reference` says which and
    how), `known_found` of them look it. `tokens` lists the first of both, the news first. `center` and `scale` are the null
    of the indicator, `threshold` is the last indicator that counts.
    """

    found: int | None
    reason: str = ""
    indicator: Literal["cosine", "norm", ""] = ""
    definition: str = ""
    rate: float = 0.0
    tested: int = 0
    reference: str = ""
    known: int = 0
    known_found: int = 0
    center: float | None = None
    scale: float | None = None
    threshold: float | None = None
    tokens: tuple[UnderTrainedToken, ...] = ()
    notes: tuple[str, ...] = ()
