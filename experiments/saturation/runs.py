"""Do small models saturate on an endless stream? Trains the plan's cells, the narrowest models first; each becomes one file of results/runs.

nice -n 15 python experiments/saturation/runs.py          # in as many processes as there are cores to spare; kill and start again at will
python experiments/saturation/runs.py --keep d16_b2048_wd0_s0    # one cell, its checkpoints as models in build/saturation/checkpoints
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from network import Batch, Model, Shape
from source import Source, Streams

from training import CLOUD, Line, Training, anisotropy, claimed, one_thread, train, write_lines

HERE = Path(__file__).parent
RESULTS, BUILD = HERE / "results" / "runs", HERE.parents[1] / "build" / "saturation"
WIDTHS, BATCHES, DECAYS, SEEDS = (4, 8, 16, 32, 64), (32768, 2048), (0.0, 0.1), (0, 1, 2)
PER_PARAMETER, LEAST_TOKENS = 10_000, 1 << 25
PEAKS = {
    2048: {4: 0.008, 8: 0.008, 16: 0.016, 32: 0.008, 64: 0.008},
    32768: {4: 0.016, 8: 0.016, 16: 0.032, 32: 0.016, 64: 0.016},
}
"""Learning rates: the best of the sweep in RUNS.md (D 4, 16 and 64, without decay) or its neighbour."""
UNSEEN, UNSEEN_SEED = 1 << 20, 10**9


@dataclass(frozen=True)
class Cell:
    """One run: width, tokens a batch, weight decay and seed (of both the initial weights and the stream)."""

    width: int
    batch: int
    decay: float
    seed: int

    @property
    def name(self) -> str:
        return f"d{self.width:02}_b{self.batch}_wd{self.decay:g}_s{self.seed}"

    def training(self, vocabulary: int, least: int = LEAST_TOKENS) -> Training:
        """Its settings: the same tokens for every batch size."""
        shape = Shape(vocabulary, self.width)
        tokens = max(least, PER_PARAMETER * shape.parameters)
        peak = PEAKS[self.batch][self.width]
        return Training(
            shape, self.batch, -(-tokens // max(BATCHES)) * max(BATCHES) // self.batch, peak, self.decay, self.seed
        )


def plan() -> Iterator[Cell]:
    """Every cell: all widths of one seed before the next, the narrowest first, since they are done soon."""
    for seed in SEEDS:
        for width in WIDTHS:
            for batch in BATCHES:
                for decay in DECAYS:
                    yield Cell(width, batch, decay, seed)


class Stream:
    """`Streams` as batches with equal contexts put together."""

    def __init__(self, source: Source, n: int, seed: int, contexts: np.ndarray | None = None, read: int = 0) -> None:
        self.streams, self.vocabulary = (Streams(source, n, seed, contexts=contexts, read=read), source.vocabulary)

    @property
    def read(self) -> int:
        return self.streams.read

    def state(self) -> np.ndarray:
        return self.streams.contexts

    def batch(self) -> Batch:
        return Batch.of(*self.streams.next(), self.vocabulary)


class Judge:
    """A model's loss: exactly, from the source's own probabilities, and on a million tokens of a stream that no run reads."""

    def __init__(self, source: Source, unseen: int = UNSEEN) -> None:
        self.source = source
        v = source.vocabulary
        self.every = torch.from_numpy(np.stack(np.divmod(np.arange(v * v), v), 1))
        self.log_p = torch.from_numpy(source.log_p)
        self.weighted = torch.from_numpy(source.stationary)[:, None] * self.log_p.exp()
        streams = Streams(source, min(unseen, 1 << 15), UNSEEN_SEED)
        drawn = [streams.next() for _ in range(unseen // streams.n)]
        self.contexts, self.tokens = (np.concatenate(one) for one in zip(*drawn, strict=True))

    @cached_property
    def counts(self) -> torch.Tensor:
        v = self.source.vocabulary
        counts = np.bincount(self.contexts * v + self.tokens, minlength=v**3)
        return torch.from_numpy(counts.reshape(v * v, v).astype(float))

    def __call__(self, model: Model) -> Line:
        states = model.states(self.every)[0]
        log_q = torch.log_softmax((states @ model.p["W"].T).double(), 1)
        n = float(len(self.tokens))
        loss = -float((self.counts * log_q).sum()) / n
        square = float((self.counts * log_q.square()).sum()) / n
        return {
            "excess": round(float((self.weighted * (self.log_p - log_q)).sum()), 8),
            "loss": round(loss, 6),
            "loss_error": round(((square - loss**2) / n) ** 0.5, 6),
            "state_anisotropy": anisotropy(states.numpy()[self.contexts[:CLOUD]]),
        }


def run(
    cell: Cell,
    judge: Judge,
    state: Path,
    tell: Callable[[str], None],
    keep: Path | None = None,
    least: int = LEAST_TOKENS,
) -> list[Line]:
    """The settings of a cell, then its checkpoints."""
    source = judge.source
    training = cell.training(source.vocabulary, least)

    def feed(contexts: np.ndarray | None, read: int) -> Stream:
        return Stream(source, cell.batch, cell.seed, contexts, read)

    lines = train(training, feed, judge, state, tell, keep)
    about = {"vocabulary": source.vocabulary, "rank": source.rank, "spread": source.spread, "seed": source.seed}
    about |= {"entropy": round(source.entropy, 6), "unigram_entropy": round(source.unigram_entropy, 6)}
    settings = asdict(training) | {"parameters": training.shape.parameters, "tokens": training.steps * training.batch}
    return [{"cell": cell.name, "source": about, "training": settings, "torch": torch.__version__}, *lines]


def main() -> None:
    """Go through the plan; finished cells, and cells of another process, are passed over."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keep", metavar="CELL", help="run this cell again and write its checkpoints as models")
    options.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="models of these widths alone")
    given = options.parse_args()
    keep = given.keep
    one_thread()
    judge = Judge(Source())
    for cell in (one for one in plan() if one.width in given.widths):
        target, state = RESULTS / f"{cell.name}.jsonl", BUILD / f"{cell.name}.npz"
        folders = None
        if keep is not None:
            if cell.name != keep:
                continue
            folders, state = BUILD / "checkpoints" / cell.name, BUILD / f"{cell.name}.kept.npz"
        elif target.exists():
            continue
        with claimed(state.with_suffix(".lock")) as ours:
            if not ours or (keep is None and target.exists()):
                continue
            began = time.process_time()
            lines = run(cell, judge, state, lambda text, cell=cell: print(cell.name, text, flush=True), folders)
            if keep is None:
                write_lines(target, lines)
                state.unlink()
            took = time.process_time() - began
            print(f"{cell.name} done, {lines[0]['training']['tokens'] / took / 1e6:.2f} M tokens/s", flush=True)


if __name__ == "__main__":
    main()
