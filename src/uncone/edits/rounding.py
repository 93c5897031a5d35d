"""How much rounding the head, or its logits, changes the differences between logits."""

import torch

from uncone.edits.record import HeadRows, Kind, RoundingError
from uncone.model.directory import rows_at_once
from uncone.rows import Rows
from uncone.tensors import DTYPES, blocks_of

Tensor = torch.Tensor
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_FLOATS: tuple[Kind, ...] = ("float16", "bfloat16")


def rounding_errors(
    sides: tuple[Rows, Rows], mean: Tensor, hidden: Tensor, largest: tuple[float, float]
) -> tuple[RoundingError, ...]:
    """The error of the logits' differences for each kind of rounding of a head, and of the same head centred.

    An error is a root mean square about the mean over the vocabulary, as a share of the logits' standard deviation.
    int8 is symmetric, 127 for the largest absolute value of the whole matrix or of each row.

    `sides` are the head's rows (V, D), original and edited by -`mean`, and `largest` their largest absolute values. 128
    of the head's inputs `hidden` (T, D) are used.
    """
    h = hidden[:: max(1, len(hidden) // 128)][:128].float()
    n, d = sides[0].shape
    stored = _DIGITS.get(sides[0].dtype, 24)
    narrower: list[Kind] = [kind for kind in _FLOATS if _DIGITS[kind] < stored]
    of_rows: list[Kind] = ["int8_tensor", "int8_rows", *narrower]
    kinds: list[Kind] = [*of_rows, "logits_bfloat16"]
    # sums and sums of squares over the vocabulary, for each kind and last for the logits; one column per position
    sums = torch.zeros(2, len(kinds) + 1, 2, len(h), dtype=torch.float64)
    size = rows_at_once(d)
    for one, other in zip(*(blocks_of(rows, size) for rows in sides), strict=True):
        x, y = one.double(), other.double()
        exact = x - mean  # narrower floats are rounded once from the exact numbers
        for side, (rows, floats) in enumerate(((x, x), (y, exact))):
            z = h @ rows.float().T
            parts = []
            for kind in of_rows:
                source = floats if kind in narrower else rows
                parts.append(h @ (_rounded(source, kind, largest[side]) - source).float().T)
            parts += [z.to(torch.bfloat16).float() - z, z]
            for total, part in zip(sums[side], parts, strict=True):
                total[0] += part.sum(1, dtype=torch.float64)
                total[1] += part.double().square().sum(1)
    variances = (sums[:, :, 1] / n - (sums[:, :, 0] / n) ** 2).clamp_min(0).mean(-1)
    shares = [[(of / logits) ** 0.5 if logits > 0 else 0.0 for of in errors] for *errors, logits in variances.tolist()]
    return tuple(map(RoundingError, kinds, *shares))


def head_rows(rows: Rows) -> HeadRows:
    """In float64. The mean cosine of two different rows is (|S|^2 - N) / (N (N - 1)) of the sum S of the N unit rows;
    None where a row is zero."""
    n, d = rows.shape
    (total, units), norms, largest, zero = torch.zeros(2, d).double(), 0.0, 0.0, False
    for block in blocks_of(rows, rows_at_once(d)):
        x = block.double()
        length = x.norm(dim=1)
        zero |= bool((length == 0).any())
        total += x.sum(0)
        units += (x / length.clamp_min(torch.finfo(x.dtype).tiny)[:, None]).sum(0)
        norms, largest = norms + float(length.sum()), max(largest, float(x.abs().max()))
    cosine = None if zero or n < 2 else float((units @ units - n) / (n * (n - 1)))
    return HeadRows(norms / n, float((total / n).norm()), largest, cosine)


def _rounded(x: Tensor, kind: Kind, largest: float) -> Tensor:
    if kind in _FLOATS:
        return x.to(DTYPES[kind]).double()
    top = torch.full((1, 1), largest).double() if kind == "int8_tensor" else x.abs().amax(1, keepdim=True)
    step = (top / 127).clamp_min(torch.finfo(torch.float64).tiny)
    return (x / step).round().clamp(-127, 127) * step
