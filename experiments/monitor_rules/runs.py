"""Small GPT-2s and contrastive encoders, healthy and with planted collapses, read every ten steps by plain code.

A run is one file of results/runs, JSON lines with a line for each record; a run whose file is there is not trained again. Up to the
planted fault a run is the healthy one of its seed, and its file begins after it.
"""

import copy
import json
import lzma
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from uncone import atomic

HERE = Path(__file__).parent
RUNS = HERE / "results" / "runs"
TEXT = HERE.parents[2] / "shared" / "data" / "lm" / "wikitext-2" / "train.txt.xz"
VOCABULARY, WIDTH, LENGTH, BATCH = 2048, 64, 48, 10
STEPS, PLANTED, AFTER, EVERY, SPECTRUM = 2500, 1500, 600, 10, 10
SEEDS, PLANTED_IN = range(5), range(3)
PEAK, DECAY, WARM_UP = 2e-3, 0.1, 100
TEMPERATURE = 0.1
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
    """A GPT-2 of two layers with a tied head; `encoder` trains its mean states by InfoNCE on the halves of a passage."""

    def __init__(self, seed: int, *, encoder: bool) -> None:
        torch.manual_seed(seed)
        size = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": LENGTH, "vocab_size": VOCABULARY}
        size |= {"bos_token_id": 0, "eos_token_id": 0}
        self.model = GPT2LMHeadModel(GPT2Config(**size, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), PEAK, weight_decay=DECAY)
        self.random, self.encoder, self.step = torch.Generator().manual_seed(seed), encoder, 0
        self.rate, self.losses, self.only_positives = 1.0, list[float](), False
        self.states = self.before = torch.zeros(0)

    @property
    def table(self) -> Tensor:
        return self.model.transformer.wte.weight

    def train(self) -> None:
        progress = self.step / STEPS
        warm = min(1.0, (self.step + 1) / WARM_UP) * (0.55 + 0.45 * math.cos(math.pi * progress))
        self.optimiser.param_groups[0]["lr"] = PEAK * warm * self.rate
        starts = torch.randint(len(tokens()) - LENGTH, (BATCH * (2 if self.encoder else 1),), generator=self.random)
        ids = tokens()[starts[:, None] + torch.arange(LENGTH)]
        loss = self.contrast(ids) if self.encoder else self.predict(ids)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.step += 1

    def predict(self, ids: Tensor) -> Tensor:
        hidden = self.model.transformer(ids).last_hidden_state
        self.states = hidden.detach().flatten(0, 1)
        return functional.cross_entropy(self.model.lm_head(hidden[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def contrast(self, ids: Tensor) -> Tensor:
        pair = [self.model.transformer(half).last_hidden_state.mean(1) for half in ids.chunk(2, dim=1)]
        self.states = torch.cat(pair).detach()
        a, b = (functional.normalize(one, dim=1) for one in pair)
        if self.only_positives:
            return 1 - (a * b).sum(1).mean()
        return functional.cross_entropy(a @ b.T / TEMPERATURE, torch.arange(len(a)))

    def read(self) -> Numbers:
        w = self.table.detach()
        found = {f"head.{name}": value for name, value in geometry(w).items()}
        if len(self.before):
            found["head.dead"] = (w == self.before).all(1).double().mean().item()
        self.before = w.clone()
        if self.losses:
            found |= {f"states.{name}": value for name, value in geometry(self.states).items() if "norm" not in name}
            found["loss.cross_entropy"] = sum(self.losses) / len(self.losses)
        self.losses = []
        return {name: float(f"{value:.5g}") for name, value in found.items()}


def geometry(x: Tensor) -> Numbers:
    x = x.double()
    n, norms = len(x), x.norm(dim=1)
    unit = (x / norms[:, None].clamp_min(1e-12)).sum(0)
    spectrum = torch.linalg.svdvals(x - x.mean(0))
    p = spectrum / spectrum.sum()
    return {
        "mean_cosine": ((unit @ unit - n) / (n * (n - 1))).item(),
        "mean_share": (x.mean(0).square().sum() / x.square().sum(1).mean()).item(),
        "norm_median": norms.median().item(),
        "norm_largest": norms.max().item(),
        "effective_rank": torch.exp(-(p * p.clamp_min(1e-300).log()).sum()).item(),
    }


def one_direction(run: Run) -> None:
    w = run.table.data
    w += 0.01 * w.norm(dim=1).mean() * functional.normalize(w[0], dim=0)


def giant_rows(run: Run) -> None:
    run.table.data[100:105] *= 1.02


def dead_rows(run: Run) -> None:
    run.table.data[1000:1400] = run.before[1000:1400]


def rank(run: Run) -> None:
    w = run.table.data
    weak = torch.linalg.eigh(torch.cov(w.T)).eigenvectors[:, : 3 * WIDTH // 4]
    w -= 0.02 * w @ weak @ weak.T


def no_negatives(run: Run) -> None:
    run.only_positives = True


def learning_rate(run: Run) -> None:
    run.rate = 30.0


Fault = Callable[[Run], None]
FAULTS: dict[str, Fault] = {one.__name__: one for one in (one_direction, giant_rows, dead_rows, rank, learning_rate)}
OF_ENCODERS: dict[str, Fault] = {"no_negatives": no_negatives}


def run_all(tell: Callable[[str], None]) -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for kind, faults in (("gpt2", FAULTS), ("encoder", OF_ENCODERS)):
            faults = faults if seed in PLANTED_IN else {}
            files = {name: RUNS / f"{kind}-{name}-{seed}.jsonl" for name in ("healthy", *faults)}
            if all(file.exists() for file in files.values()):
                continue
            run, lines = Run(seed, encoder=kind == "encoder"), list[str]()
            lines += records(run, PLANTED, None)
            kept = copy.deepcopy(run)
            lines += records(run, STEPS, None)
            atomic.write_text(files["healthy"], "".join(lines))
            tell(f"{files['healthy'].name}: {lines[-1].strip()}")
            for name, fault in faults.items():
                atomic.write_text(files[name], "".join(records(copy.deepcopy(kept), PLANTED + AFTER, fault)))
                tell(files[name].name)


def records(run: Run, until: int, fault: Fault | None) -> Iterator[str]:
    if run.step == 0:
        yield line(run)
    while run.step < until:
        run.train()
        if fault is not None:
            fault(run)
        if run.step % EVERY == 0:
            yield line(run)


def line(run: Run) -> str:
    return json.dumps({"step": run.step, **run.read()}, separators=(",", ":")) + "\n"
