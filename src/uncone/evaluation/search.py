"""The documents that are nearest to queries, found with all scores, block by block."""

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.evaluation.encoding import Array

def nearest(queries: Array, documents: Array, k: int) -> npt.NDArray[np.int64]:
    """The numbers (Q, min(k, N)) of the documents (N, D) with the highest inner product of queries (Q, D).

    Highest first, ties by number; for cosine both are of length 1.
    """
    if queries.shape[1] != documents.shape[1]:
        raise InputError(f"expected one width, got {queries.shape[1]} and {documents.shape[1]}: encode alike")
    search = Search(queries, len(documents), k)
    for start in range(0, len(documents), _DOCUMENTS):
        search.add(documents[start : start + _DOCUMENTS])
    return search.numbers()


class Search:
    """`nearest` among `n` documents that come block by block, in the order of their numbers."""

    def __init__(self, queries: Array, n: int, k: int) -> None:
        step = max(1, _SCORES // min(_DOCUMENTS, n))
        self._queries, self._seen, self._k = torch.split(_floats(queries), step), 0, k
        self._best = [
            (torch.empty((len(part), 0)), torch.empty((len(part), 0), dtype=torch.int64))
            for part in self._queries
        ]

    def add(self, documents: Array) -> None:
        """The next documents (any number, D)."""
        block = _floats(documents).T
        for at, (queries, best) in enumerate(zip(self._queries, self._best, strict=True)):
            self._best[at] = _best(*best, queries @ block, self._seen, self._k)
        self._seen += block.shape[1]

    def numbers(self) -> npt.NDArray[np.int64]:
        """The numbers (Q, min(k, documents so far)), highest first."""
        sorted_ = (
            ids.gather(1, torch.sort(x, dim=1, descending=True, stable=True)[1]) for x, ids in self._best
        )
        return torch.cat(list(sorted_)).numpy()


def _floats(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, np.float32))


def _best(
    scores: torch.Tensor, ids: torch.Tensor, block: torch.Tensor, start: int, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `k` best of `scores` (Q, K) of documents `ids` and of the block (Q, n) of those from `start` on.

    They stay in the order of their numbers; of equal scores the first are kept: topk alone takes any.
    """
    known, both = scores.shape[1], torch.cat([scores, block], 1)
    columns = torch.arange(both.shape[1]).expand(both.shape)
    if both.shape[1] > k:
        least = torch.topk(both, k, dim=1, sorted=True).values[:, -1:]
        above, equal = both > least, both == least
        first = equal.cumsum(1, dtype=torch.int32) <= k - above.sum(1, keepdim=True)
        columns = (above | (equal & first)).nonzero()[:, 1].view(-1, k)
    old = ids.gather(1, columns.clamp(max=known - 1)) if known else columns
    return both.gather(1, columns), torch.where(columns < known, old, columns - known + start)


