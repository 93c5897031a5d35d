"""The texts that edits are proven on."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model import ModelFiles
from uncone.model.text_sources import read_texts
from uncone.model.texts import cut, longest_input, token_ids
from uncone.roles import Path_

Tensor = torch.Tensor


@dataclass(frozen=True)
class ProofText:
    """Ids to run on."""

    name: str
    text: Tensor | None
    random: Tensor


def proof_text(files: ModelFiles, model: Any, n: int, text: Path_ | None) -> ProofText:
    """Ids below `n`: at most 1,024 of text and 256 random ones, fewer where their logits would be more than 2**25 numbers
    each, but two windows of a long enough text and a random one."""
    length = longest_input(model)
    count = max(2 * length, min(1024, 2**25 // n) // length * length)
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, n, (min(count, 256) // length or 1, length), generator=generator)
    sample = resources.files("uncone.edits").joinpath("sample.txt")
    ids, why = token_ids(files, sample.read_text("utf-8") if text is None else "\n".join(read_texts(text)), n)
    if ids is None and text is not None:
        raise InputError(f"expected a tokenizer in {files.path} for the text, got none ({why}): leave the text out")
    if ids is None:
        return ProofText(f"random ids, as {why}", None, random)
    windows = cut(ids[:count], length)
    if windows is None:
        raise InputError(f"expected a text of at least two tokens, got {len(ids)} in {text}: give a longer one")
    return ProofText("a sample of text" if text is None else Path(text).name, windows, random)
