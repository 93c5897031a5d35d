"""The models whose gradients are looked at: stories260K, and examples/train_with_gate.py on wiki-en-2018, without and with the gate."""

import argparse
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import torch

from uncone.model.last_states import States

ROOT = Path(__file__).parents[2]
DATA, BUILD = ROOT / "../shared/data", ROOT / "build/gradients"
WIKI = {"train": "train-00", "valid": "valid", "test": "valid"}
STEPS, LENGTH = 2000, 127
"""Of training; targets in a window."""


def imported(folder: str, name: str) -> Any:
    """A module of a folder that is no package."""
    sys.path.insert(0, str(ROOT / folder))
    try:
        return __import__(name)
    finally:
        sys.path.pop(0)


def _folder_of_text() -> Path:
    """wiki-en-2018 under the names that the example reads."""
    folder = BUILD / "wiki"
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in WIKI.items():
        if not (folder / f"{name}.txt.xz").exists():
            (folder / f"{name}.txt.xz").symlink_to((DATA / "lm/wiki-en-2018" / f"{file}.txt.xz").resolve())
    return folder


def _tokens(example: Any, args: argparse.Namespace) -> Any:
    """The text's ids, made once."""
    kept = BUILD / "text.pt"
    if not kept.exists():
        text = example.read_text(args.data, args.vocab)
        torch.save({"splits": text.splits, "vocab_size": text.vocab_size}, kept)
    read = torch.load(kept, weights_only=True)
    return example.Text(read["splits"], read["vocab_size"])


def gpt2(name: str, steps: int = STEPS) -> tuple[Any, Any, torch.Tensor]:
    """The model `plain`, `relative` (gated) or `untrained`, its text, and how often it was trained on each id."""
    import uncone

    example = imported("examples", "train_with_gate")
    args = example.parse(["--data", str(_folder_of_text()), "--steps", str(steps)])
    text = _tokens(example, args)
    model, batches = example.make_model(text.vocab_size, args), example.make_batches(text, args)
    counts = torch.bincount(batches[..., 1:].flatten(), minlength=text.vocab_size)
    kept = BUILD / f"{name}-{steps}.pt"
    if name != "untrained" and not kept.exists():
        gate = None if name == "plain" else uncone.RareTokenGate(text.vocab_size, mode=name, window=args.window)
        example.train(example.Run(name, gate, model), batches, args)
        torch.save(model.state_dict(), kept)
    elif name != "untrained":
        model.load_state_dict(torch.load(kept, weights_only=True))
    return model.eval(), text, counts


def gpt2_states(name: str, windows: int, steps: int = STEPS) -> tuple[States, torch.Tensor]:
    """What the head of `name` reads on the first windows of held-out text, and the counts of its training."""
    model, text, counts = gpt2(name, steps)
    states, labels = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        for ids in torch.split(text.windows("valid")[:windows], 32):
            states.append(model.transformer(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1))
            labels.append(ids[:, 1:].flatten())
    n = sum(map(len, labels))
    head = model.get_output_embeddings().weight.detach().clone()
    places = torch.arange(n) // LENGTH
    return States(torch.cat(states), torch.cat(labels), head, None, None, 1.0, f"gpt2, {name}", places), counts


def stories_states(most: int) -> States:
    """stories260K on stories that it wrote itself, as experiments/saturation has them."""
    from uncone.model.last_states import states_of

    bottleneck = imported("experiments/saturation", "bottleneck")
    kept = BUILD / "stories.json"
    BUILD.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        kept.write_text(json.dumps(bottleneck.own_stories(BUILD)))
    return states_of(bottleneck.stories(BUILD), json.loads(kept.read_text()), most=most)


def stories_on_wiki(most: int) -> States:
    """stories260K on text that it was not trained for."""
    from uncone.model.last_states import states_of

    bottleneck = imported("experiments/saturation", "bottleneck")
    text = lzma.decompress((DATA / "lm/wiki-en-2018/valid.txt.xz").read_bytes()).decode()[:200_000]
    return states_of(bottleneck.stories(BUILD), [text], most=most)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in ("plain", "relative"):
        gpt2(each)
