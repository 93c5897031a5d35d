"""Small language models with a drift: a mean row that is far from zero, as trained heads have it. And tokenizers for them."""

from pathlib import Path
from typing import Any

import torch

from tests.training.models import D, V, build

__all__ = ["TEXT", "D", "V", "add_tokenizer", "drifted", "saved"]

TEXT = "the cat sat on the mat and the dog sat on the log; a man saw the cat, the dog and the log. " * 6


def drifted(name: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, size: float = 0.3, **config: Any) -> Any:
    """A model of `name` whose head's rows share one random vector."""
    model = build(name, dtype=torch.float32, **config)
    head = model.get_output_embeddings().weight
    with torch.no_grad():
        head += size * torch.randn(head.shape[1], generator=torch.Generator().manual_seed(seed))
    return model.to(dtype).eval()


def saved(path: Path, name: str, *, max_shard_size: str = "1GB", **options: Any) -> Path:
    """`drifted`, saved as its class saves it."""
    drifted(name, **options).save_pretrained(path, max_shard_size=max_shard_size)
    return path


def add_tokenizer(path: Path, *, added: tuple[str, ...] = (), vocabulary: int = V - 7) -> Any:
    """Write a byte-pair tokenizer of at most `vocabulary` tokens, trained on TEXT, and `added` tokens behind it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False))
    tokenizer.add_tokens(list(added))
    tokenizer.save(str(path / "tokenizer.json"))
    return tokenizer
