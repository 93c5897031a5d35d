"""Rows that occur more than once: all but the first of each join it by an edge of length 0, and need no distance."""

import torch

Tensor = torch.Tensor
_ROWS = 256
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def without_repeats(points: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each value (m,), ascending, and edges (n - m, 2) that join every other row to the first of its value.

    Rows are compared whole where their hashes are equal. Of unequal rows with one hash all are kept; they are told apart by
    their distances.
    """
    n = len(points)
    hashes, order = torch.sort(_hashes(points), stable=True)
    begins = torch.ones(n, dtype=torch.bool, device=points.device)
    begins[1:] = hashes[1:] != hashes[:-1]
    first = order[begins][begins.cumsum(0) - 1]
    other = (first != order).nonzero().flatten()
    equal = torch.empty(len(other), dtype=torch.bool, device=points.device)
    for start in range(0, len(other), _ROWS):  # in pieces, for a cloud may be one point many times over
        some = other[start : start + _ROWS]
        torch.all(points[order[some]] == points[first[some]], 1, out=equal[start : start + _ROWS])
    repeats = other[equal]
    keep = torch.ones(n, dtype=torch.bool, device=points.device)
    keep[order[repeats]] = False
    return keep.nonzero().flatten(), torch.stack([first[repeats], order[repeats]], 1)


def _hashes(points: Tensor) -> Tensor:
    """A number (n,) int64 for each row, the same for equal ones."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.shape[1],), generator=generator).to(points.device) * 2 + 1
    # Results go where there is room for them: small tensors between large ones leave holes, which the C library then keeps.
    hashes = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for start in range(0, len(points), _ROWS):
        rows = points[start : start + _ROWS] + 0.0  # -0.0 and 0.0 are one value in two patterns of bits
        bits = rows.view(_WORDS[points.element_size()]).to(torch.int64)
        bits ^= bits >> 17  # the low bits of round numbers are all zero, and a product only carries upwards
        bits *= odd
        bits ^= bits >> 29
        torch.sum(bits, 1, out=hashes[start : start + _ROWS])
    return hashes
