"""One run from the first step to the last: checkpoints are examined on the way, and a killed run goes on from the last of them."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from network import Batch, Model, Shape, learning_rate

import uncone
from uncone import atomic

Line = dict[str, Any]
MOST_VALUES = 100
"""Singular values kept of a head, the largest first."""
CLOUD = 4096
"""States on unseen text whose mean cosine is taken."""


@dataclass(frozen=True)
class Training:
    """What decides a run, beside its text."""

    shape: Shape
    batch: int
    steps: int
    peak: float
    decay: float
    seed: int


class Feed(Protocol):
    """Text to train on, read once. `state` and `read` are all that is needed to go on."""

    read: int

    def batch(self) -> Batch: ...
    def state(self) -> np.ndarray: ...


def checkpoints(steps: int, early: int = 9, late: int = 22) -> list[int]:
    """The start, then evenly in the logarithm up to 4 % of the steps, then evenly to the end."""
    first = np.geomspace(max(1, steps / 2000), steps * 0.04, early)
    rest = np.linspace(steps * 0.04, steps, late + 1)
    return sorted({0, *(max(1, round(one)) for one in (*first, *rest))})


def train(
    training: Training,
    feed: Callable[[np.ndarray | None, int], Feed],
    judge: Callable[[Model], Line],
    state: Path,
    tell: Callable[[str], None],
    keep: Path | None = None,
) -> list[Line]:
    """The examined checkpoints in order. `state` is written at each of them and read by the next run of the same name; into
    `keep` each is written as a model's folder."""
    model, lines, text = Model(training.shape, training.seed), [], None
    if state.exists():
        text, lines = _restore(state, model, feed)
    text = text or feed(None, 0)
    for stop in checkpoints(training.steps):
        if lines and stop <= lines[-1]["step"]:
            continue
        while model.steps < stop:
            model.gradients(text.batch())
            model.adamw(learning_rate(model.steps, training.steps, training.peak), training.decay)
        rate = learning_rate(max(0, stop - 1), training.steps, training.peak)
        lines.append({"step": stop, "tokens": stop * training.batch, "learning_rate": _short(rate)} | judge(model))
        lines[-1] |= geometry(model)
        _save(state, model, text, lines)
        if keep is not None:
            write_model(model, keep / f"step{stop}")
        tell(f"step {stop} of {training.steps}, loss {lines[-1]['loss']:.4f}")
    return lines


def geometry(model: Model) -> Line:
    """Spectrum and isotropy of the head, raw and centred, and of the table."""
    head, table = (model.p[name].double().numpy() for name in "WE")
    found: Line = {"head": _isotropy(head), "table": _isotropy(table)}
    for name, rows in (("", head), ("_centred", head - head.mean(0))):
        values = np.linalg.svd(rows, compute_uv=False)
        found["head"]["singular_values" + name] = [_short(one) for one in values[:MOST_VALUES]]
        found["head"]["singular_entropy" + name] = _short(singular_entropy(values))
    return found


def singular_entropy(values: np.ndarray) -> float:
    """KL of the squared singular values, as shares, from uniform, in nats: 0 for a flat spectrum, ln D for one direction."""
    share = values**2 / (values**2).sum()
    return float(np.log(len(share)) + (share[share > 0] * np.log(share[share > 0])).sum())


def anisotropy(states: np.ndarray) -> float:
    """Mean cosine over all pairs of states (N, D)."""
    return _short(float(uncone.measure.mean_cosine(states)))


def write_model(model: Model, folder: Path) -> None:
    """Table, head and final gain as a folder that `uncone.open_subjects` and `uncone.open_rows("FOLDER#head")` read."""
    if folder.exists():
        return
    from safetensors.torch import save_file

    names = {"E": "model.embed_tokens.weight", "W": "lm_head.weight", "g": "model.norm.weight"}
    (v, d), config = model.p["E"].shape, {"tie_word_embeddings": False, "model_type": "feed_forward"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic.new_directory(folder) as new:
        save_file({name: model.p[part].clone() for part, name in names.items()}, new / "model.safetensors")
        (new / "config.json").write_text(json.dumps(config | {"vocab_size": v, "hidden_size": d}))


@contextmanager
def claimed(lock: Path) -> Iterator[bool]:
    """Whether no other process has the cell; it is ours until the end of the block, or of this process."""
    import fcntl

    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def write_lines(path: Path, lines: list[Line]) -> None:
    """One JSON object a line, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def one_thread() -> None:
    """Small products are no faster on more threads, and numbers below the normal range are slow."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1, user_api="blas")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def _isotropy(rows: np.ndarray) -> Line:
    return {
        "mean_cosine": _short(float(uncone.measure.mean_cosine(rows))),
        "partition_isotropy": _short(float(uncone.measure.partition_isotropy(rows))),
        "mean_norm": _short(float(np.linalg.norm(rows, axis=1).mean())),
    }


def _save(path: Path, model: Model, text: Feed, lines: list[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(model, name).numpy() for name in ("vector", "first", "second")}
    with atomic.replacing(path) as file:
        np.savez(file, steps=model.steps, read=text.read, text=text.state(), lines=json.dumps(lines), **arrays)


def _restore(path: Path, model: Model, feed: Callable[..., Feed]) -> tuple[Feed, list[Line]]:
    with np.load(path, allow_pickle=False) as kept:
        for name in ("vector", "first", "second"):
            getattr(model, name).copy_(torch.from_numpy(kept[name]))
        model.steps = int(kept["steps"])
        return feed(kept["text"], int(kept["read"])), json.loads(str(kept["lines"]))


def _short(value: float) -> float:
    return float(f"{value:.7g}") if math.isfinite(value) else value
