"""What a transformation was fitted on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fitted:
    """The rows that a transformation was fitted on.

    `sha256` is over the rows as little-endian float32 (float64 where they are), row by row, so that the same
    numbers in any file format have the same digest; None where only their sums were seen. `weights` is None
    where every row counted once, else the sha256 of the weights as little-endian float64, or "in the moments"
    where only weighted sums were seen.
    """

    name: str
    n: int
    d: int
    sha256: str | None = None
    weights: str | None = None
