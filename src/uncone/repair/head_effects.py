"""What centring is good for, measured: how far rounding the head, or its logits, moves the differences of logits, before and after."""

from typing import Literal

import torch

from uncone.records.head_edit import HeadRows, RoundingError
from uncone.repair.model_shards import rows_at_once
from uncone.rows import Rows

Tensor = torch.Tensor
Kind = Literal["int8_tensor", "int8_rows", "float16", "bfloat16", "logits_bfloat16"]
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_FLOATS: tuple[tuple[Kind, int], ...] = (("float16", 11), ("bfloat16", 8))
_MOST_POSITIONS = 256


def rounding_errors(before: Rows, after: Rows, mean: Tensor, hidden: Tensor) -> tuple[RoundingError, ...]:
    """The error of the logits' differences for each kind of rounding of a head, and of the same head centred.

    The error of a position is taken about its mean over the vocabulary, since a constant added to all logits changes nothing; given is
    the root of its mean square over all positions, as a share of the logits' standard deviation there. int8 is symmetric, 127 for the
    largest absolute value, of the whole matrix or of each row. A float type that is no narrower than the stored one is left out.

    Args:
        before, after: the head's rows (V, D) as stored, original and edited.
        mean: (D,), float64: what was subtracted.
        hidden: (T, D): inputs of the head on real text; the first 256 are used.
    """
    h = hidden[:_MOST_POSITIONS].double()
    digits, nothing = _DIGITS.get(before.dtype, 24), torch.zeros_like(mean)
    narrower: list[Kind] = [kind for kind, has in _FLOATS if has < digits]
    found = []
    for kind in ("int8_tensor", "int8_rows", *narrower, "logits_bfloat16"):
        centred = (before, mean) if kind in narrower else (after, nothing)  # rounded once, from the exact numbers
        found.append(RoundingError(kind, _error(before, nothing, h, kind), _error(*centred, h, kind)))
    return tuple(found)


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
    return HeadRows(mean_norm=norms / n, norm_of_mean=float((total / n).norm()), largest=largest, mean_cosine=cosine)


def _largest(rows: Rows) -> float:
    return max(float(block.abs().max()) for block in rows.blocks(rows_at_once(rows.shape[1])))


def _error(rows: Rows, mean: Tensor, h: Tensor, kind: Kind) -> float:
    """Root mean square of the error about its mean over the vocabulary, over that of the logits, for `rows` minus `mean`."""
    sums: list[Tensor] = [torch.zeros(len(h)).double() for _ in range(4)]
    largest = _largest(rows) if kind == "int8_tensor" else 0.0
    for block in rows.blocks(rows_at_once(rows.shape[1])):
        x = block.double() - mean
        z = h @ x.T
        e = (z.to(torch.bfloat16).double() if kind == "logits_bfloat16" else h @ _rounded(x, kind, largest).T) - z
        for total, term in zip(sums, (e, e * e, z, z * z), strict=True):
            total += term.sum(1)
    e1, e2, z1, z2 = (total / rows.shape[0] for total in sums)
    error, spread = (e2 - e1**2).clamp_min(0).mean(), (z2 - z1**2).clamp_min(0).mean()
    return float((error / spread).sqrt()) if float(spread) > 0 else 0.0


def _rounded(x: Tensor, kind: Kind, largest: float) -> Tensor:
    if kind == "float16":
        return x.to(torch.float16).double()
    if kind == "bfloat16":
        return x.to(torch.bfloat16).double()
    top = torch.full((1, 1), largest).double() if kind == "int8_tensor" else x.abs().amax(1, keepdim=True)
    step = (top / 127).clamp_min(torch.finfo(torch.float64).tiny)
    return (x / step).round().clamp(-127, 127) * step
