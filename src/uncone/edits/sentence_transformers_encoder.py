"""Loaded models of Sentence Transformers: embeddings before the Normalize at a model's end."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from uncone.model.sentence_transformers import need_sentence_transformers

Tensor = torch.Tensor
NORMALIZE = "Normalize"


def without_normalize(model: Any) -> Any:
    """A `SentenceTransformer` of the same modules up to its Normalize: what it gives is what a repair is fitted on."""
    names = list(model._modules)
    kept = [
        model._modules[name]
        for name in names[: insertion([type(model._modules[name]).__name__ for name in names])]
    ]
    found = need_sentence_transformers().SentenceTransformer(
        modules=kept,
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name,
        local_files_only=True,
    )
    return found.to(model.device).eval()


def embed(
    model: Any,
    sentences: Sequence[str],
    *,
    progress: Callable[[int], None] | None = None,
    batch: int = 64,
    at_once: int = 1024,
) -> Tensor:
    """The sentences' embeddings, float32 (N, D) on the CPU."""
    parts = []
    for start in range(0, len(sentences), at_once):
        some = list(sentences[start : start + at_once])
        found = model.encode(some, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)
        parts.append(found.detach().float().cpu())
        if progress is not None:
            progress(start + len(some))
    return torch.cat(parts)


def insertion(kinds: Sequence[str]) -> int:
    """Before the Normalize modules at the end; that is the end itself where there is none."""
    at = len(kinds)
    while at and kinds[at - 1] == NORMALIZE:
        at -= 1
    return at
