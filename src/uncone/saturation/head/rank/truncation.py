import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from uncone.saturation.head.rank.record import CutBounds
from uncone.tensors import empty, share

Tensor = torch.Tensor
LEAST_EIGENVALUE = 1e-6
"""Of the mean eigenvalue of the states' second moment: smaller values, float32's rounding, are raised to it."""
_CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Text:
    """The states that the head multiplies, scale included, and what follows the product."""

    x: Tensor  # (N, D) float32
    labels: Tensor  # (N,) int64
    bias: Tensor | None = None  # (V,) float32
    cap: float | None = None

    def part(self, rows: Tensor) -> "Text":
        return Text(self.x[rows], self.labels[rows], self.bias, self.cap)


@dataclass(frozen=True, eq=False)
class Nested:
    """Heads of every rank at once: the head of rank r is left[:, :r] @ right[:r]. float64, (V, K) and (K, D)."""

    left: Tensor
    right: Tensor

    def at(self, rank: int) -> Tensor:
        return self.left[:, :rank] @ self.right[:rank]


def gauge(head: Tensor, cap: float | None) -> Tensor:
    """The head in float64, without its mean row unless logits are capped: that row changes no probability."""
    head = head.double()
    return head if cap is not None else head - head.mean(0)


def second_moment(x: Tensor) -> Tensor:
    """x' x / N in float64, (D, D)."""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for part in torch.split(x, 8192):
        total.addmm_(part.double().T, part.double())
    return total / len(x)


def root_of(moment: Tensor) -> tuple[Tensor, Tensor]:
    """S^(1/2) and S^(-1/2), with eigenvalues raised to the least meaningful size."""
    values, vectors = torch.linalg.eigh(moment)
    least = LEAST_EIGENVALUE * float(values.mean())
    roots = values.clamp_min(least or 1.0).sqrt()
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def descending(symmetric: Tensor) -> Tensor:
    """Eigenvectors (D, D) as columns, the largest eigenvalue first."""
    vectors: Tensor = torch.linalg.eigh(symmetric)[1]
    return vectors.flip(1)


def plain(head: Tensor) -> Nested:
    """Optimal in the Frobenius norm (Eckart & Young 1936)."""
    directions = descending(head.T @ head)
    return Nested(head @ directions, directions.T.contiguous())


def data_aware(head: Tensor, moment: Tensor, weights: Tensor | None = None) -> Nested:
    """Optimal in ||diag(weights)^(1/2) (W - W') S^(1/2)||_F; by default every row weighs 1."""
    root, inverse = root_of(moment)
    whitened = head @ root
    rows = whitened if weights is None else whitened * weights.double().sqrt()[:, None]
    directions = descending(rows.T @ rows)
    return Nested(whitened @ directions, directions.T @ inverse)


def losses(
    heads: Nested, ranks: Sequence[int], text: Text, progress: Callable[[int, int], None] | None = None
) -> Tensor:
    """The loss of each token in nats under the heads of `ranks`, ascending: (ranks, N) float64.

    The logits of a rank are the logits of the rank before plus one more block: all ranks take one full product.
    """
    v, n, top = len(heads.left), len(text.x), ranks[-1]
    chunk, left = max(16, _CHUNK_BYTES // (4 * v)), heads.left[:, :top].float()
    found = torch.empty(len(ranks), n, dtype=torch.float64)
    done = 0

    def read(start: int) -> None:
        nonlocal done
        rows = slice(start, min(start + chunk, n))
        y = (heads.right[:top] @ text.x[rows].double().T).float()
        _read_chunk(left, y, ranks, text, rows, found)
        done += 1
        if progress is not None:
            progress(min(done * chunk, n), n)

    share([partial(read, start) for start in range(0, n, chunk)])
    return found


def _read_chunk(left: Tensor, y: Tensor, ranks: Sequence[int], text: Text, rows: slice, found: Tensor) -> None:
    v, n = len(left), y.shape[1]
    z, spare = empty((v, n), torch.float32), empty((v, n), torch.float32)
    labels = text.labels[rows][None]
    z.zero_() if text.bias is None else z.copy_(text.bias[:, None].expand(v, n))
    for place, (before, rank) in enumerate(pairwise((0, *ranks))):
        z.addmm_(left[:, before:rank], y[before:rank])
        logits = capped(z, text.cap)
        found[place, rows] = _log_sum(logits, spare) - logits.gather(0, labels)[0].double()


def capped(z: Tensor, cap: float | None) -> Tensor:
    return z if cap is None else (z / cap).tanh_().mul_(cap)


def _log_sum(z: Tensor, spare: Tensor) -> Tensor:
    """ln sum exp of each column. We look for its maximum only if the plain sum leaves the range of float32."""
    sums = torch.exp(z, out=spare).sum(0)
    bad, logs = ~((sums > 1e-20) & (sums < 1e30)), sums.double().log_()
    if bool(bad.any()):
        logs[bad] = torch.logsumexp(z[:, bad], 0).double()
    return logs


def bounds(head: Tensor, heads: Nested, rank: int, moment: Tensor, mean_norm: float) -> CutBounds:
    """Bounds of |L(W) - L(W')| for the head of `rank`, on states of this `moment` and `mean_norm`.

    A token's loss changes by at most max_jk |((W - W') x)_j - ((W - W') x)_k| <= sqrt(2) ||(W - W') x||_2, for any two
    heads, and with capped logits too, because tanh does not move logits further apart.
    """
    if rank == heads.left.shape[1]:
        return CutBounds(0.0, 0.0, 0.0)
    cut = head - heads.at(rank)
    values, vectors = torch.linalg.eigh(cut.T @ cut)
    values = values.clamp_min(0)
    energy = float((vectors.T @ moment @ vectors).diagonal().clamp_min(0) @ values)
    spectral, frobenius = (math.sqrt(2) * mean_norm * math.sqrt(square) for square in (values[-1], values.sum()))
    return CutBounds(spectral, frobenius, math.sqrt(2) * math.sqrt(energy))
