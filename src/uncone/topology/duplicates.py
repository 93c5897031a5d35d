"""Rows that occur more than once: all but the first of each join it by an edge of length 0, and need no distance."""

from collections.abc import Iterator

import torch

Tensor = torch.Tensor
_ROWS = 1024
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def without_repeats(points: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each value (m,), ascending, and edges (n - m, 2) that join every other row to the first of its value.

    Rows are compared whole where their hashes are equal. Of unequal rows with one hash all are kept; they are told apart by
    their distances.
    """
    n = len(points)
    hashes, order = torch.sort(
        torch.cat([torch.empty(0, dtype=torch.int64, device=points.device), *_hashes(points)]), stable=True
    )
    begins = torch.ones(n, dtype=torch.bool, device=points.device)
    begins[1:] = hashes[1:] != hashes[:-1]
    first = order[begins][begins.cumsum(0) - 1]
    other = (first != order).nonzero().flatten()
    equal = [
        (points[order[some]] == points[first[some]]).all(1) for some in torch.split(other, _ROWS)
    ]  # pieces, for a cloud may be one point many times over
    repeats = other[torch.cat(equal)] if equal else other
    keep = torch.ones(n, dtype=torch.bool, device=points.device)
    keep[order[repeats]] = False
    return keep.nonzero().flatten(), torch.stack([first[repeats], order[repeats]], 1)


def _hashes(points: Tensor) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.shape[1],), generator=generator).to(points.device) * 2 + 1
    for start in range(0, len(points), _ROWS):
        rows = points[start : start + _ROWS] + 0.0  # -0.0 and 0.0 are one value in two patterns of bits
        bits = rows.view(_WORDS[points.element_size()]).to(torch.int64)
        bits ^= bits >> 17  # the low bits of round numbers are all zero, and a product only carries upwards
        bits *= odd
        yield (bits ^ (bits >> 29)).sum(1)
