"""Does a curve over checkpoints decline late? Two windows against its jitter, and its peak against a bootstrap.

A curve is read as declined only where both tests say so: the mean of the last quarter lies below that of the middle, and
the final value further below the peak than a curve that never declines would end by chance. Jitter between checkpoints
may be autocorrelated: every number is averaged over how likely each autocorrelation is on this curve.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array

BODY, MIDDLE, LATE = 0.2, (0.22, 0.52), 0.77
"""Shares of the training: from where on jitter is read, and the two windows that are compared."""
FEWEST = 10
"""Checkpoints that a verdict takes from `BODY` on."""
CORRELATIONS = np.linspace(0.0, 0.95, 20)
"""Of neighbouring checkpoints: all that are weighed."""
_DEGREE = 2


@dataclass(frozen=True, eq=False)
class Curve:
    """One number of one model over its checkpoints.

    `steps` ascend, float64 (n,); `errors` are standard errors of `values` (n,), or None. With `lower` less is better.
    `settings` stand beside the verdict, such as the batch size.
    """

    model: str
    task: str
    metric: str
    steps: Array
    values: Array
    errors: Array | None = None
    lower: bool = False
    suite: str = ""
    shots: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrast:
    """The late mean less the middle one (above 0: better late), its standard error, and P(as low | no decline)."""

    value: float
    error: float
    p: float
    correlation: float
    """Of the jitter of neighbouring checkpoints, its posterior mean."""


@dataclass(frozen=True)
class _Design:
    """What depends on the checkpoints alone, for each of `CORRELATIONS`."""

    body: Array
    contrast: Array
    degrees: int
    residual: Array  # (K, n, n): y' P y is the residual sum of squares
    determinant: Array  # (K,): ln |R| + ln |X' R^-1 X|
    variance: Array  # (K,): of the contrast, for jitter of variance 1
    root: Array  # (K, n, n): Cholesky's factor over all checkpoints
