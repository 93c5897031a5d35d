"""Small GPT-2s and contrastive encoders, healthy and with planted collapses, read by monitors every 10, 20 and 50 steps.

A run is one file of results/runs: of each record of each monitor a JSON line with the readings that rules follow. A run whose file is
there is not trained again. Up to the planted fault a run is the healthy one of its seed, and its file begins after it.
"""

import json
import lzma
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

import uncone
from uncone import atomic
from uncone.training.monitor.rules import RULES

HERE = Path(__file__).parent
RUNS = HERE / "results" / "runs"
TEXT = HERE.parents[2] / "shared" / "data" / "lm" / "wikitext-2" / "train.txt.xz"
VOCABULARY, WIDTH, LENGTH, BATCH = 2048, 64, 48, 8
STEPS, PLANTED, AFTER, EVERY = 1600, 1000, 400, (10, 20, 50)
SEEDS, PLANTED_IN = range(5), range(3)
PEAK, DECAY, WARM_UP = 2e-3, 0.1, 100
TEMPERATURE = 0.1
FOLLOWED = {reading for rule in RULES for reading in rule.readings} | {"norm_median", "rows"}
Tensor = torch.Tensor
Numbers = dict[str, float]


@cache
def tokens() -> Tensor:
    """WikiText-2 by words, the most frequent ones; others are 0."""
    with lzma.open(TEXT, "rt", encoding="utf-8") as file:
        words = file.read().split()
    known = {word: i for i, (word, _) in enumerate(Counter(words).most_common(VOCABULARY - 1), start=1)}
    return torch.tensor([known.get(word, 0) for word in words])


class Run:
    """A GPT-2 of two layers with a tied head, or the same network as an encoder, whose mean states are trained by
    InfoNCE on the halves of a passage."""

    def __init__(self, seed: int, *, encoder: bool) -> None:
        torch.manual_seed(seed)
        size = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": LENGTH, "vocab_size": VOCABULARY}
        size |= {"bos_token_id": 0, "eos_token_id": 0}
        config = GPT2Config(**size, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.model = (GPT2Model if encoder else GPT2LMHeadModel)(config).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), PEAK, weight_decay=DECAY)
        self.random, self.encoder, self.step = torch.Generator().manual_seed(seed), encoder, 0
        self.only_positives = False
        self.monitors = {every: uncone.Monitor(None, self.model, every, rules=None) for every in EVERY}
        self.losses: dict[int, list[float]] = {every: [] for every in EVERY}

    @property
    def table(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def train(self, fault: "Fault | None" = None) -> Iterator[str]:
        """A step, and the lines of the records that it has."""
        progress = self.step / STEPS
        warm = min(1.0, (self.step + 1) / WARM_UP) * (0.55 + 0.45 * math.cos(math.pi * progress))
        self.optimiser.param_groups[0]["lr"] = PEAK * warm
        starts = torch.randint(len(tokens()) - LENGTH, (BATCH * (2 if self.encoder else 1),), generator=self.random)
        ids = tokens()[starts[:, None] + torch.arange(LENGTH)]
        loss = self.contrast(ids) if self.encoder else self.model(input_ids=ids, labels=ids).loss
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        if fault is not None:
            fault(self)
        self.step += 1
        for every, monitor in self.monitors.items():
            self.losses[every].append(loss.item())
            monitor.step()
            if self.step == 1 or self.step % every == 0:
                yield self.line(every, monitor.last)

    def contrast(self, ids: Tensor) -> Tensor:
        a, b = (self.model(half).last_hidden_state.mean(1) for half in ids.chunk(2, dim=1))
        a, b = (functional.normalize(one, dim=1) for one in (a, b))
        if self.only_positives:
            return 1 - (a * b).sum(1).mean()
        return functional.cross_entropy(a @ b.T / TEMPERATURE, torch.arange(len(a)))

    def line(self, every: int, numbers: Numbers) -> str:
        """`loss` is the mean since the record before, as a Trainer logs it."""
        found = {name: x for name, x in numbers.items() if name.rpartition(".")[2] in FOLLOWED}
        found["loss"] = sum(self.losses[every]) / len(self.losses[every])
        self.losses[every] = []
        of = {name: float(f"{value:.5g}") for name, value in found.items()}
        return json.dumps({"every": every, "step": self.step, **of}, separators=(",", ":")) + "\n"


def one_direction(run: Run) -> None:
    w = run.table.data
    w += 0.01 * w.norm(dim=1).mean() * functional.normalize(w[0], dim=0)


def giant_rows(run: Run) -> None:
    run.table.data[100:105] *= 1.02


def dead_rows(run: Run) -> None:
    if run.step == PLANTED:
        run.kept = run.table[1000:1400].detach().clone()
    run.table.data[1000:1400] = run.kept


def rank(run: Run) -> None:
    w = run.table.data
    weak = torch.linalg.eigh(torch.cov(w.T)).eigenvectors[:, : 3 * WIDTH // 4]
    w -= 0.02 * w @ weak @ weak.T


def no_negatives(run: Run) -> None:
    run.only_positives = True


Fault = Callable[[Run], None]
FAULTS: dict[str, Fault] = {one.__name__: one for one in (rank, one_direction, giant_rows, dead_rows)}
OF_ENCODERS: dict[str, Fault] = {"no_negatives": no_negatives}


def run_all(tell: Callable[[str], None]) -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for kind, faults in (("gpt2", FAULTS), ("encoder", OF_ENCODERS)):
            files = {name: RUNS / f"{kind}-{name}-{seed}.jsonl.xz" for name in (faults if seed in PLANTED_IN else {})}
            healthy, missing = RUNS / f"{kind}-healthy-{seed}.jsonl.xz", [f for f in files if not files[f].exists()]
            if healthy.exists() and not missing:
                continue
            run = Run(seed, encoder=kind == "encoder")
            lines = list(lines_until(run, PLANTED))
            for name in missing:
                if (child := os.fork()) == 0:  # a copy of the run, its monitors and its optimiser as they are
                    write(files[name], lines_until(run, PLANTED + AFTER, faults[name]))
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                tell(files[name].name)
            if not healthy.exists():
                write(healthy, [*lines, *lines_until(run, STEPS)])
                tell(healthy.name)


def lines_until(run: Run, until: int, fault: Fault | None = None) -> Iterator[str]:
    while run.step < until:
        yield from run.train(fault)


def write(file: Path, lines: Iterable[str]) -> None:
    atomic.write_bytes(file, lzma.compress("".join(lines).encode()))
