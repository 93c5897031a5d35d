"""Exact search by inner product, block by block, with ties in a fixed order."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError

Array = npt.NDArray[np.float32]
_SCORES = 1 << 24
"""Scores held at a time: 64 MiB."""
_DOCUMENTS = 8192


def nearest(
    queries: npt.NDArray[Any], documents: npt.NDArray[Any], k: int
) -> tuple[Array, npt.NDArray[np.int64]]:
    """The `k` documents with the highest inner product of each query, highest first; ties by number.

    Args:
        queries: (Q, D) floats.
        documents: (N, D) floats.
        k: how many; no more than N are found.

    Returns:
        Scores float32 and document numbers int64, both (Q, min(k, N)).

    Raises:
        InputError: widths that differ.
    """
    if queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"expected one width, got {queries.shape[1]} and {documents.shape[1]}: encode both sides alike"
        )
    x, y = (torch.from_numpy(np.ascontiguousarray(given, np.float32)) for given in (queries, documents))
    step = max(1, _SCORES // min(_DOCUMENTS, len(y)))
    parts = [_nearest(x[start : start + step], y, min(k, len(y))) for start in range(0, len(x), step)]
    return np.concatenate([scores for scores, _ in parts]), np.concatenate([ids for _, ids in parts])


def _nearest(queries: torch.Tensor, documents: torch.Tensor, k: int) -> tuple[Array, npt.NDArray[np.int64]]:
    scores = torch.empty((len(queries), 0))
    ids = torch.empty((len(queries), 0), dtype=torch.int64)
    for start in range(0, len(documents), _DOCUMENTS):
        block = queries @ documents[start : start + _DOCUMENTS].T
        numbers = torch.arange(start, start + block.shape[1]).expand(len(block), -1)
        # Blocks come in the order of their numbers, so that columns stay in it too.
        scores, ids = _best(torch.cat([scores, block], 1), torch.cat([ids, numbers], 1), k)
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices
    return scores.gather(1, order).numpy(), ids.gather(1, order).numpy()


def _best(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns of the `k` highest scores in their order, of equal ones the first: topk alone takes any."""
    if scores.shape[1] <= k:
        return scores, ids
    least = torch.topk(scores, k, dim=1, sorted=True).values[:, -1:]
    above, equal = scores > least, scores == least
    kept = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    return scores[kept].view(-1, k), ids[kept].view(-1, k)


def unit(x: npt.NDArray[Any]) -> Array:
    """The rows over their norms, float32; rows of zeros stay."""
    rows = np.asarray(x, np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)
