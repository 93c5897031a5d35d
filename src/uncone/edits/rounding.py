"""The use of centring: how far rounding the head, or its logits, moves the differences of logits."""

from typing import Literal

import torch

from uncone.edits.shards import rows_at_once
from uncone.records import HeadRows, RoundingError
from uncone.rows import Rows

Tensor = torch.Tensor
Kind = Literal["int8_tensor", "int8_rows", "float16", "bfloat16", "logits_bfloat16"]
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_FLOATS: tuple[tuple[Kind, int], ...] = (("float16", 11), ("bfloat16", 8))
_MOST_POSITIONS = 128


def rounding_errors(
    before: Rows, after: Rows, mean: Tensor, hidden: Tensor, largest: tuple[float, float]
) -> tuple[RoundingError, ...]:
    """The error of the logits' differences for each kind of rounding of a head, and of the same head centred.

    The error of a position is taken about its mean over the vocabulary, since a constant added to all logits
    changes nothing; given is the root of its mean square over all positions, as a share of the logits'
    standard deviation there. int8 is symmetric, 127 for the largest absolute value, of the whole matrix or of
    each row. A float type that is no narrower than the stored one is left out. The head's bias is.

    Args:
        before, after: the head's rows (V, D) as stored, original and edited.
        mean: (D,), float64: what was subtracted.
        hidden: (T, D): inputs of the head; of them 128 are used, spread over all.
        largest: the largest absolute value of each of the two.
    """
    h = hidden[:: max(1, len(hidden) // _MOST_POSITIONS)][:_MOST_POSITIONS].float()
    digits = _DIGITS.get(before.dtype, 24)
    narrower: list[Kind] = [kind for kind, has in _FLOATS if has < digits]
    kinds: list[Kind] = ["int8_tensor", "int8_rows", *narrower, "logits_bfloat16"]
    first, second = ({kind: _Spread(len(h)) for kind in (*kinds, "logits")} for _ in range(2))
    size = rows_at_once(before.shape[1])
    for one, other in zip(before.blocks(size), after.blocks(size), strict=True):
        x, y = one.double(), other.double()
        exact = x - mean  # what a narrower float type would hold is rounded once from the exact numbers
        for sums, rows, floats, top in ((first, x, x, largest[0]), (second, y, exact, largest[1])):
            z = h @ rows.float().T
            sums["logits"].add(z)
            sums["logits_bfloat16"].add(z.to(torch.bfloat16).float() - z)
            for kind in kinds[:-1]:
                source = floats if kind in narrower else rows
                sums[kind].add(h @ (_rounded(source, kind, top) - source).float().T)
    return tuple(
        RoundingError(kind, first[kind].share_of(first["logits"]), second[kind].share_of(second["logits"]))
        for kind in kinds
    )


class _Spread:
    """Running sums for the variance over the vocabulary, a position a row."""

    def __init__(self, positions: int) -> None:
        self._sum, self._squares = torch.zeros(positions).double(), torch.zeros(positions).double()
        self._n = 0

    def add(self, part: Tensor) -> None:
        self._sum += part.sum(1, dtype=torch.float64)
        self._squares += part.double().square().sum(1)
        self._n += part.shape[1]

    def _variance(self) -> float:
        return float((self._squares / self._n - (self._sum / self._n) ** 2).clamp_min(0).mean())

    def share_of(self, other: "_Spread") -> float:
        """The ratio of the standard deviations; 0 where there is nothing to divide by."""
        return (self._variance() / other._variance()) ** 0.5 if other._variance() > 0 else 0.0


def head_rows(rows: Rows) -> HeadRows:
    """Norms, the norm of the mean, the largest value, and the mean cosine of two different rows, in float64.

    The mean cosine is (|S|^2 - N) / (N (N - 1)) of the sum S of the N unit rows; None where a row is zero.
    """
    n, d = rows.shape
    total, units, norms, largest, zero = torch.zeros(d).double(), torch.zeros(d).double(), 0.0, 0.0, False
    for block in rows.blocks(rows_at_once(rows.shape[1])):
        x = block.double()
        length = x.norm(dim=1)
        zero |= bool((length == 0).any())
        total += x.sum(0)
        units += (x / length.clamp_min(torch.finfo(torch.float64).tiny)[:, None]).sum(0)
        norms, largest = norms + float(length.sum()), max(largest, float(x.abs().max()))
    cosine = None if zero or n < 2 else float((units @ units - n) / (n * (n - 1)))
    return HeadRows(
        mean_norm=norms / n, norm_of_mean=float((total / n).norm()), largest=largest, mean_cosine=cosine
    )


def _rounded(x: Tensor, kind: Kind, largest: float) -> Tensor:
    if kind == "float16":
        return x.to(torch.float16).double()
    if kind == "bfloat16":
        return x.to(torch.bfloat16).double()
    top = torch.full((1, 1), largest).double() if kind == "int8_tensor" else x.abs().amax(1, keepdim=True)
    step = (top / 127).clamp_min(torch.finfo(torch.float64).tiny)
    return (x / step).round().clamp(-127, 127) * step
