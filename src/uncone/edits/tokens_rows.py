"""New values for rows: the mean of other rows, or a draw around the mean of all trained ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from uncone.edits.model_shards import rows_at_once
from uncone.errors import InputError
from uncone.moments import Moments
from uncone.rows import Rows, SelectedRows, nonfinite_rows

Tensor = torch.Tensor
SPREAD = 0.1
"""Standard deviation of a drawn row about the mean, as a share of that of trained rows: near enough to the mean to be unlikely everywhere."""
LEAST_SHRINKAGE = 1e-6


@dataclass(frozen=True)
class Trained:
    """The rows that stay, as far as new ones are made of them."""

    mean: Tensor
    """(D,), float64."""
    mean_norm: float
    covariance: Tensor | None
    """(D, D), float64, shrunk; None where none was asked for."""
    shrinkage: float | None


def trained_rows(rows: Rows, kept: Tensor, *, with_covariance: bool) -> Trained:
    """Mean, and on request the shrunk covariance, of the rows at `kept` (int64, ascending).

    The covariance is (1 - s) S + s (tr S / D) I, with S the covariance of the n rows and s of Ledoit & Wolf (2004): the share that makes the
    expected squared error least, estimated from the data. It is at least 1e-6, so that the result is positive definite
    for fewer rows than features too, where a Cholesky factor of S itself does not exist.

    Raises:
        InputError: no row, or a row that is not finite.
    """
    if len(kept) == 0:
        raise InputError("expected trained rows to make new ones of, got none: name fewer ids")
    chosen = SelectedRows(rows, kept)
    bad = kept[nonfinite_rows(chosen)].tolist()
    if bad:
        raise InputError(
            f"expected finite rows to learn from in {rows.name}, got NaN or inf in {len(bad)}: name them too ({', '.join(map(str, bad[:5]))}"
            f"{', ...' if len(bad) > 5 else ''}), and they are set anew with the others"
        )
    moments = Moments.of(chosen, second=with_covariance, unit_first=False)
    covariance, shrinkage = _shrunk(chosen, moments) if with_covariance else (None, None)
    return Trained(moments.mean(), moments.mean_norm(), covariance, shrinkage)


def new_rows(
    rows: Rows, ids: Sequence[int], parts: Mapping[int, tuple[int, ...]], trained: Trained, *, seed: int
) -> Tensor:
    """The new rows (len(ids), D) in float64: the mean of `parts` where an id has some, else a draw where there is a covariance, else the mean.

    A draw is the mean plus 0.1 times a normal vector of the shrunk covariance; `seed` decides it.
    """
    made = trained.mean.expand(len(ids), -1).clone()
    if trained.covariance is not None:
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(len(ids), len(trained.mean), generator=generator, dtype=torch.float64)
        made += SPREAD * normal @ torch.linalg.cholesky(trained.covariance).T
    wanted = torch.tensor(sorted({part for i in ids for part in parts.get(i, ())}), dtype=torch.int64)
    if len(wanted):
        found = rows.take(wanted).double()
        at = {part: position for position, part in enumerate(wanted.tolist())}
        for k, i in enumerate(ids):
            if parts.get(i):
                made[k] = found[[at[part] for part in parts[i]]].mean(0)
    return made


def _shrunk(rows: Rows, moments: Moments) -> tuple[Tensor, float]:
    """Ledoit & Wolf 2004, equations 5 to 14, with S over n: s = min(b, d) / d, b the error of S as an estimate, d its distance to the target."""
    n, d = rows.shape
    mean = moments.mean()
    if n < 2:
        return torch.zeros(d, d, dtype=torch.float64).fill_diagonal_(torch.finfo(torch.float64).tiny), 1.0
    s = moments.covariance().double() * ((n - 1) / n)
    target = s.trace() / d
    distance = (s - torch.eye(d, dtype=torch.float64) * target).square().sum()
    fourth = torch.zeros((), dtype=torch.float64)
    for block in rows.blocks(rows_at_once(d)):
        fourth += (block.double() - mean).square().sum(1).square().sum()
    error = ((fourth - n * s.square().sum()) / n**2).clamp(min=0).minimum(distance)
    shrinkage = max(float(error / distance), LEAST_SHRINKAGE) if float(distance) > 0 else 1.0
    shrunk = (1 - shrinkage) * s
    shrunk.diagonal().add_(shrinkage * target + torch.finfo(torch.float64).tiny)
    return shrunk, shrinkage
