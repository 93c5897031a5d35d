"""Points that lie at the same place: found, counted, and put back into the lists of neighbours."""

from functools import partial

import torch

from uncone.measure.neighbours.points import Points
from uncone.threads import share

Tensor = torch.Tensor
_PIECE = 512
_EXPANDED = 2**22  # entries that one piece of lists may have while it is sorted


def first_of_each(points: Points) -> Tensor:
    """For each point the lowest point at the same place, itself where there is none below: int64 (N,)."""
    codes = _codes(points)
    first = torch.arange(points.n)
    pending = first
    while len(pending):
        order = torch.argsort(codes[pending], stable=True)
        pending = pending[order]
        _, counts = torch.unique_consecutive(codes[pending], return_counts=True)
        lowest = pending[(counts.cumsum(0) - counts).repeat_interleave(counts)]
        several = (counts > 1).repeat_interleave(counts) & (lowest != pending)
        pending, lowest = pending[several], lowest[several]
        same = points.squares(pending, lowest) == 0
        first[pending[same]] = lowest[same]
        pending = pending[~same].sort().values  # another place with the same code: once in 2^33 pairs
    return first


def _codes(points: Points) -> Tensor:
    """A number for each point, int64 (N,): equal points have equal numbers, others nearly never."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.d,), generator=generator) * 2 + 1
    codes = torch.empty(points.n, dtype=torch.int64)

    def code(raw: Tensor, start: int) -> None:
        x = points.exact(raw, slice(start, start + len(raw))) if points.metric == "cosine" else raw
        x = x + 0.0  # -0 is 0
        bits = x.view(torch.int32).long() if x.dtype == torch.float32 else x.view(torch.int64)
        if x.dtype == torch.float64:  # whole numbers differ in high bits, which a product leaves there
            bits = bits ^ (bits >> 29)
        codes[start : start + len(raw)] = (bits * odd).sum(1)

    for start in range(0, points.n, points.stripe):
        raw = points.raw(start, min(start + points.stripe, points.n))
        share(partial(code, piece, start + i * _PIECE) for i, piece in enumerate(torch.split(raw, _PIECE)))
        del raw
    return codes


class Places:
    """Which points lie where: the lowest points at each place, and how many there are."""

    def __init__(self, first: Tensor) -> None:
        """`first` is what `first_of_each` found."""
        self.distinct, self.place, self.counts = torch.unique(first, return_inverse=True, return_counts=True)
        order = torch.argsort(self.place, stable=True)
        self._members, self._starts = order, self.counts.cumsum(0) - self.counts

    def members(self, places: Tensor, most: int) -> Tensor:
        """The lowest `most` points at each of the places (..., most), -1 where there are fewer."""
        within = torch.arange(most)
        at = (self._starts[places][..., None] + within).clamp_max(len(self._members) - 1)
        return torch.where(within < self.counts[places][..., None], self._members[at], -1)

    def expand(self, queries: Tensor, k: int, near: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The k nearest points of each query from the nearest places: (Q, k) points and squared distances.

        `near` and `squares` (places, m) are the nearest other places of every query's place, in the order of
        the places that queries lie at. The query itself is left out; ties go to the lower point.
        """
        asked, row = torch.unique(self.place[queries], return_inverse=True)
        assert len(asked) == len(near)
        points = torch.empty((len(queries), k), dtype=torch.int64)
        found = torch.empty((len(queries), k), dtype=torch.float64)
        most = min(k + 1, int(self.counts.max()))
        step = max(1, _EXPANDED // (most * (near.shape[1] + 1)))
        for at in torch.split(torch.arange(len(queries)), step):
            places = torch.cat([self.place[queries[at]][:, None], near[row[at]]], 1)
            far = torch.cat([torch.zeros((len(at), 1), dtype=torch.float64), squares[row[at]]], 1)
            who = self.members(places, most)
            left_out = (who < 0) | (who == queries[at][:, None, None])
            far = far[..., None].expand(who.shape).masked_fill(left_out, torch.inf)
            far, who = far.reshape(len(at), -1), who.reshape(len(at), -1)
            far, who = in_order(far, who)
            points[at], found[at] = who[:, :k], far[:, :k]
        return points, found


def in_order(squares: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Both (Q, m), each row from the nearest to the farthest; equally far points by number."""
    points, order = points.sort(1)
    squares, nearest = squares.gather(1, order).sort(dim=1, stable=True)
    return squares, points.gather(1, nearest)
