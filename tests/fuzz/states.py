"""Files that a stopped run goes on from: a damaged one is refused, or gives the results of the undamaged one."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from uncone import InputError
from uncone.model.state_sums import StateSums
from uncone.model.token_counts import count_tokens
from uncone.rows.safetensors import to_bytes
from uncone.saturation.checkpoints.trace import Place, places_of, read_checkpoints
from uncone.training.gate import RareTokenGate
from uncone.training.monitor.run_file import RunFile

_WIDTHS, _ROWS, _DIGEST = (6, 8, 8), 30, "of a run"
Add = Callable[..., None]


class ChangedError(Exception):
    """A damaged state was believed."""


@cache
def _sources() -> Path:
    """What the states are of: a tokenizer, texts and checkpoints, which no case damages."""
    _kept.append(TemporaryDirectory(prefix="uncone-fuzz-sources-"))
    folder = Path(_kept[0].name)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(40)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    for name in "ab":
        (folder / f"{name}.txt").write_text("".join(f"w{i % 37} w{i % 11} {name}\n" for i in range(300)))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": False}
    for step in (100, 200, 300):
        at = folder / "runs" / f"step{step}"
        at.mkdir(parents=True)
        (at / "config.json").write_text(json.dumps(config))
        draw = torch.Generator().manual_seed(step)
        weights = {name: torch.randn(20, 6, generator=draw) for name in ("lm_head.weight", "model.embed_tokens.weight")}
        save_file(weights, at / "model.safetensors")
    return folder


_kept: list[TemporaryDirectory[str]] = []


def add_states(add: Add) -> None:
    add("count state", "x.npy.part", lambda path: _count(path))
    add("layer state", "sums", lambda path: _layers(path))
    add("kept checkpoints", "kept.jsonl", lambda path: read_checkpoints(_places(), out=path))
    add("gate state", "gate.safetensors", lambda path: _gate().save(path))
    add("run", "run.jsonl", _run)


def _count(path: Path) -> Any:
    texts = [_sources() / "a.txt", _sources() / "b.txt"]
    found = count_tokens(_sources() / "tokenizer.json", texts, resume=path)
    blocks = None if found.blocks is None else found.blocks.tolist()
    return found.counts.tolist(), found.words, found.characters, blocks


@cache
def _whole_count() -> Any:
    with TemporaryDirectory() as folder:
        return _count(Path(folder, "x"))


def _new_sums() -> StateSums:
    return StateSums(_WIDTHS, _ROWS, sample=100)


def _layers(path: Path) -> None:
    sums, draw = _new_sums(), np.random.default_rng(0)
    for at in range(3):
        layers = [draw.normal(size=(130, d)).astype(np.float32) for d in _WIDTHS]
        norms = np.stack([np.linalg.norm(x, axis=1) for x in layers])
        places = np.column_stack([draw.integers(0, _ROWS, 130), np.full(130, at), np.arange(130)])
        sums.counts += np.bincount(places[:, 0], minlength=_ROWS)
        sums.update(layers, norms, places)
        sums.sequences, sums.read = at + 1, 130 * (at + 1)
    sums.save(path, _DIGEST)


def _content(sums: StateSums) -> bytes:
    with TemporaryDirectory() as folder:
        sums.save(Path(folder, "x"), _DIGEST)
        return Path(folder, "x").read_bytes()


@cache
def _whole_layers() -> bytes:
    with TemporaryDirectory() as folder:
        _layers(Path(folder, "x"))
        return Path(folder, "x").read_bytes()


def _places() -> list[Place]:
    return places_of([_sources() / "runs"])


@cache
def _whole_checkpoints() -> Any:
    return read_checkpoints(_places())


def _gate() -> RareTokenGate:
    gate = RareTokenGate(50)
    for at in range(3):
        gate.observe(torch.arange(at, 40))
        gate.step()
    return gate


def _run(path: Path) -> None:
    run = RunFile(path, {"model": "GPT2LMHeadModel", "vocabulary": 50, "dimensions": 8, "every": 1})
    run.begin(0)
    for step in range(4):
        run.record(step, {"table.mean_cosine": step / 10})
    run.close()


def use_count(path: Path) -> None:
    if _count(path) != _whole_count():
        raise ChangedError("other counts")


def use_layers(path: Path) -> None:
    sums = _new_sums()
    sums.load(path, _DIGEST)
    if _content(sums) != _whole_layers():
        raise ChangedError("other sums")


def use_checkpoints(path: Path) -> None:
    """A file that is refused stays, to the byte."""
    before = path.read_bytes()
    try:
        found = read_checkpoints(_places(), out=path)
    except InputError:
        if path.read_bytes() != before:
            raise ChangedError("a file that was refused is another") from None
        raise
    if found != _whole_checkpoints():
        raise ChangedError("other checkpoints")


def use_gate(path: Path) -> None:
    gate = RareTokenGate(50)
    gate.load(path)
    gate.observe(torch.arange(40))
    gate.step()
    for part in gate.gates():
        if not bool(torch.isfinite(part.float()).all()):
            raise ChangedError("gates that are not finite")
    tensors = {name: x for name, x in gate.state_dict().items() if isinstance(x, torch.Tensor)}
    to_bytes(tensors, {})


def use_run(path: Path) -> None:
    """Lines of JSON for people, without a checksum: their steps are whole and in order, and no line of others is
    lost."""
    before = path.read_bytes()
    run = RunFile(path, {"model": "GPT2LMHeadModel", "vocabulary": 50, "dimensions": 8, "every": 1})
    run.begin(10**4400)  # beyond any step that JSON can hold: later lines are removed on purpose
    run.close()
    whole = before[: before.rfind(b"\n") + 1]
    if whole and path.read_bytes() != whole:
        raise ChangedError("lines that were dropped")
