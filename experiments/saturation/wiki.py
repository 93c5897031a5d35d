"""The same models on one reading of Wikipedia. It claims nothing about saturation: the wider models see too few tokens.

nice -n 15 python experiments/saturation/wiki.py          # reads ../shared/data; each model becomes one file of results/wiki
"""

import lzma
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network import Batch, Model, Shape
from runs import BUILD, HERE

from training import CLOUD, Line, Training, anisotropy, claimed, one_thread, train, write_lines
from uncone import atomic
from uncone.errors import InputError

DATA = HERE.parents[2] / "shared" / "data" / "lm" / "wiki-en-2018"
RESULTS = HERE / "results" / "wiki"
VOCABULARY, CONTEXT, BATCH, UNSEEN, SHARDS = 512, 6, 2048, 1 << 17, 1
WIDTHS, DECAYS, SEEDS, PEAK = (4, 8, 16, 32, 64), (0.1, 0.0), (0,), 0.004
ARTICLES = "\n\n"


class Wiki:
    """Tokens of the training shards in one array, and of the validation shard, by a byte-level BPE trained on the first shard."""

    def __init__(self, data: Path = DATA, build: Path = BUILD) -> None:
        self.data, self.build = data, build
        if not (data / "valid.txt.xz").exists():
            raise InputError(f"expected Wikipedia's text in {data}, got no such folder: lay it there")

    @cached_property
    def train(self) -> np.ndarray:
        return self._tokens("train", [self.data / f"train-{shard:02}.txt.xz" for shard in range(SHARDS)])

    @cached_property
    def valid(self) -> np.ndarray:
        return self._tokens("valid", [self.data / "valid.txt.xz"])

    @cached_property
    def tokenizer(self) -> Any:
        from tokenizers import ByteLevelBPETokenizer

        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(
            _articles(self.data / "train-00.txt.xz"), vocab_size=VOCABULARY, show_progress=False
        )
        return tokenizer

    def _tokens(self, name: str, files: list[Path]) -> np.ndarray:
        """Read once, then kept in the build folder."""
        kept = self.build / f"wiki_{name}.npy"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            found = [
                np.array(one.ids, dtype=np.int16)
                for file in files
                for some in _hundreds(_articles(file))
                for one in self.tokenizer.encode_batch(some)
            ]
            with atomic.replacing(kept) as file:
                np.save(file, np.concatenate(found))
        return np.load(kept, allow_pickle=False)


class Pages:
    """Every place of the text once, in an order drawn by the seed: the tokens before it, and the token there."""

    def __init__(self, tokens: np.ndarray, seed: int, read: int = 0) -> None:
        self.tokens, self.read = tokens, read
        self.order = np.random.default_rng(seed).permutation(np.arange(len(tokens) - CONTEXT, dtype=np.int32))

    def state(self) -> np.ndarray:
        return np.zeros(0)

    def batch(self) -> Batch:
        at = self.order[self.read * BATCH : (self.read + 1) * BATCH]
        self.read += 1
        rows = self.tokens[at[:, None] + np.arange(CONTEXT + 1)].astype(np.int64)
        return Batch.of(rows[:, :-1], rows[:, -1], VOCABULARY)


class Judge:
    """The loss on the first places of the validation articles."""

    def __init__(self, tokens: np.ndarray, unseen: int = UNSEEN) -> None:
        windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), CONTEXT + 1)[:unseen]
        self.contexts, self.tokens = (torch.from_numpy(one.copy()) for one in (windows[:, :-1], windows[:, -1]))

    def __call__(self, model: Model) -> Line:
        cuts = zip(self.contexts.split(8192), self.tokens.split(8192), strict=True)
        losses = torch.cat([-model.log_probabilities(c).gather(1, t[:, None])[:, 0].double() for c, t in cuts])
        states = model.states(self.contexts[:CLOUD])[0].numpy()
        error = float(losses.std()) / len(losses) ** 0.5
        return {
            "loss": round(float(losses.mean()), 6),
            "loss_error": round(error, 6),
            "state_anisotropy": anisotropy(states),
        }


def main() -> None:
    """The narrowest models first; finished ones, and those of another process, are passed over."""
    one_thread()
    wiki = Wiki()
    judge, steps = Judge(wiki.valid), (len(wiki.train) - CONTEXT) // BATCH
    for seed, decay, width in product(SEEDS, DECAYS, WIDTHS):
        training = Training(Shape(VOCABULARY, width, CONTEXT), BATCH, steps, PEAK, decay, seed)
        name = f"wiki_d{width:02}_wd{decay:g}_s{seed}"
        target, state = RESULTS / f"{name}.jsonl", BUILD / f"{name}.npz"
        with claimed(state.with_suffix(".lock")) as ours:
            if not ours or target.exists():
                continue
            began = time.process_time()
            lines = train(
                training,
                lambda kept, read, seed=seed: Pages(wiki.train, seed, read),
                judge,
                state,
                lambda text, name=name: print(name, text, flush=True),
            )
            settings = asdict(training) | {"parameters": training.shape.parameters, "tokens": steps * BATCH}
            write_lines(target, [{"cell": name, "training": settings, "torch": torch.__version__}, *lines])
            state.unlink()
            print(f"{name} done, {steps * BATCH / (time.process_time() - began) / 1e6:.2f} M tokens/s", flush=True)


def _articles(file: Path) -> Iterator[str]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        yield from lines.read().split(ARTICLES)


def _hundreds(articles: Iterator[str]) -> Iterator[list[str]]:
    some: list[str] = []
    for one in articles:
        some.append(one)
        if len(some) == 100:
            yield some
            some = []
    yield some


if __name__ == "__main__":
    main()
