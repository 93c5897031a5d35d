"""What stands between a head and its centring: refusals before anything is run or written, and what to warn of."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model import ModelFiles
from uncone.model.bounds import objects
from uncone.model.files import read_json
from uncone.model.head_map import HeadMap, logit_map
from uncone.rows.names import listing
from uncone.rows.safetensors import FLOATS

OTHERS = (
    "Whatever reads raw logits, and not probabilities, sees them moved by a number for each position: distillation by the squares of logits, "
    "scores of energy or of logsumexp, contrastive decoding without a softmax."
)
_READERS = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
}
"""Settings of generation that read the sign or the size of raw logits, and their values that do nothing."""


def linear_head(model: Any) -> torch.nn.Linear:
    """The model's head.

    Raises:
        UnsupportedModel: there is none, or it is no linear layer of floats.
    """
    try:
        head = model.get_output_embeddings()
    except (NotImplementedError, AttributeError):
        head = None
    if head is None:
        raise UnsupportedModel(
            f"expected a model with an output head, got {type(model).__name__} without one: there is nothing to centre"
        )
    if not isinstance(head, torch.nn.Linear) or not head.weight.dtype.is_floating_point:
        raise UnsupportedModel(
            f"expected a linear head in floating point, got {type(head).__name__}: logits are not one product with its rows, so to subtract a "
            "vector from them could change probabilities"
        )
    return head


def invariant_map(model: Any, head: torch.nn.Linear) -> HeadMap:
    """How logits follow from the head's output, where adding a constant to all of it changes no probability.

    Raises:
        UnsupportedModel: the logits are capped, as Gemma-2's are, or no scaled and shifted copy of the output.
    """
    try:
        found = logit_map(model, head)
    except UnsupportedModel as error:
        raise UnsupportedModel(
            f"expected a model on which can be measured that its logits are the head's output times a number plus a bias, got {type(model).__name__}: "
            f"{error}"
        ) from error
    if found.cap is not None:
        raise UnsupportedModel(
            f"expected logits that are linear in the head's output, got {type(model).__name__}, which caps them softly at {found.cap:g} (cap tanh(z / "
            "cap)): there a constant added to all logits changes probabilities, so its head cannot be centred"
        )
    return found


def check_dtype(files: ModelFiles, tensor: str) -> None:
    """Raises UnsupportedModel where the tensor is not stored in floating point."""
    dtype = files.entries[tensor].dtype
    if dtype not in FLOATS:
        raise UnsupportedModel(
            f"expected the head in floating point, got {tensor!r} of {dtype}: dequantise the head, or edit the model that was quantised"
        )


def warnings_of(files: ModelFiles) -> tuple[str, ...]:
    """Settings in the directory that read raw logits: penalties of generation, and a z-loss in training."""
    found = [
        _penalty(name, value)
        for name, value in _generation(files).items()
        if name in _READERS and value not in (None, _READERS[name])
    ]
    z_losses = sorted(
        {
            key
            for part in objects(files.config)
            for key, value in part.items()
            if "z_loss" in key and "router" not in key and isinstance(value, int | float) and value
        }
    )
    if z_losses:
        found.append(
            f"config.json sets {listing(z_losses)}: a z-loss holds the logits' sum of exponentials near 1, and the edit moves it, so training on "
            "would begin with another loss."
        )
    return tuple(found)


def _penalty(name: str, value: Any) -> str:
    return (
        f"generation_config.json sets {name} to {str(value)[:40]}: it divides or multiplies raw logits by their sign or size, so with it "
        "the edited model generates otherwise. Turn it off, or keep the original."
    )


def _generation(files: ModelFiles) -> Mapping[str, Any]:
    """generation_config.json, and the same settings where older versions wrote them, in config.json."""
    settings = {name: files.config[name] for name in _READERS if name in files.config}
    path = files.path / "generation_config.json"
    if path.is_file():
        with suppress(InputError):  # transformers would not read it either
            settings |= read_json(path, dict)
    return settings
