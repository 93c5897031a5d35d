"""One cell: train an encoder with an arm's penalty, watch its [CLS] states, and judge it on held-out items."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from arms import ARMS
from clouds import CLOUD, mean_scores, scores, whole
from encoder import Encoder
from glue import Items, Task
from plan import Cell
from schedules import Settings

from uncone.errors import InputError

Tensor = torch.Tensor
PROBES = 20
"""How often the fixed held-out cloud is looked at, beside the start."""


@dataclass
class History:
    """What is kept of each step, or of each probe."""

    loss: list[float] = field(default_factory=list)
    penalty: list[float] = field(default_factory=list)
    batch: list[dict[str, Any]] = field(default_factory=list)
    probes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def train(cell: Cell, settings: Settings, task: Task, directory: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """The numbers of one cell.

    The seed decides which examples are drawn, their order, the head and the dropout; arms of one seed share all four, so that they can be paired.
    """
    began = time.process_time()
    train_set = _drawn(task.train, cell)
    model = Encoder(directory, precision=settings.precision, seed=cell.seed)
    given, held_out = (model.tokens(items.texts, settings.longest) for items in (train_set, task.evaluation))
    watch = _Watch(held_out, task.evaluation, over_steps=cell.over_steps)
    optimiser, schedule = _optimiser(model, settings)
    penalty, history = ARMS[cell.arm](), History()
    every = max(1, settings.steps // PROBES)
    for step, rows in enumerate(_batches(len(train_set), settings, cell.seed), 1):
        labels = train_set.labels[rows]
        states = model.train().states([given[row] for row in rows.tolist()])
        loss = torch.nn.functional.cross_entropy(model.logits(states), labels)
        added = torch.zeros(()) if penalty is None else penalty(states, labels)
        (loss + added).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        history.loss.append(round(float(loss.detach()), 4))
        history.penalty.append(round(float(added.detach()), 4))
        history.batch.append(scores(states.detach(), labels))
        if step % every == 0 or step == settings.steps:
            history.probes.append((step, watch(model)))
            tell(
                f"{cell.name} step {step} of {settings.steps}, loss {history.loss[-1]:.3f}, penalty {history.penalty[-1]:.2f}"
            )
    trained = time.process_time() - began
    found = _judged(model, held_out, task.evaluation)
    return {
        "training": _told(history, settings),
        **found,
        "cpu_seconds": {"training": round(trained, 1), "whole": round(time.process_time() - began, 1)},
    }


def start(task: Task, directory: str, settings: Settings) -> dict[str, Any]:
    """The held-out states before any training: the same for every arm and seed, but for the head, which they do not know."""
    began = time.process_time()
    model = Encoder(directory, precision=settings.precision, seed=0)
    tokens = model.tokens(task.evaluation.texts, settings.longest)
    states = _states(model, tokens)
    cloud = probe_rows(len(task.evaluation))
    found = whole(states, task.evaluation.labels) | {"probe": scores(states[cloud], task.evaluation.labels[cloud])}
    return found | {"cpu_seconds": {"whole": round(time.process_time() - began, 1)}}


def probe_rows(n: int) -> Tensor:
    """Which held-out items make the cloud that is watched: the same 64 for all runs."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:CLOUD]


class _Watch:
    """The scores of the fixed held-out cloud, and with `over_steps` what the model answers to all held-out items."""

    def __init__(self, tokens: list[dict[str, Any]], items: Items, *, over_steps: bool) -> None:
        self.cloud, self.over_steps = probe_rows(len(items)), over_steps
        self.tokens = tokens if over_steps else [tokens[row] for row in self.cloud]
        self.items = items

    def __call__(self, model: Encoder) -> dict[str, Any]:
        states = _states(model, self.tokens)
        labels = self.items.labels[self.cloud]
        if not self.over_steps:
            return scores(states, labels)
        return scores(states[self.cloud], labels) | {"judged": _answers(model, states, self.items)}


def _states(model: Encoder, tokens: list[dict[str, Any]]) -> Tensor:
    """As they are used: without dropout. What random numbers training gets does not depend on when it was watched."""
    model.eval()
    with torch.inference_mode():
        return model.states(tokens).clone()


def _drawn(items: Items, cell: Cell) -> Items:
    if cell.examples is None:
        return items
    if cell.examples > len(items):
        raise InputError(
            f"expected at most {len(items)} examples of {cell.task}, got {cell.examples}: take fewer, or all"
        )
    return items.at(
        torch.randperm(len(items), generator=torch.Generator().manual_seed(1000 + cell.seed))[: cell.examples]
    )


def _batches(n: int, settings: Settings, seed: int) -> Iterator[Tensor]:
    """Shuffled anew each epoch; what does not fill a batch is dropped."""
    if n < settings.batch:
        raise InputError(f"expected at least {settings.batch} training examples, got {n}: a batch is one cloud")
    generator, left = torch.Generator().manual_seed(seed), settings.steps
    while left > 0:
        order = torch.randperm(n, generator=generator)
        for at in range(0, min(n // settings.batch, left) * settings.batch, settings.batch):
            left -= 1
            yield order[at : at + settings.batch]


def _optimiser(model: Encoder, settings: Settings) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW with decay on the weights of linear layers only, as in the authors' notebook; warm-up, then a cosine."""
    linear = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Linear)}
    groups = [
        {"params": [p for p in model.parameters() if id(p) in linear], "weight_decay": settings.decay},
        {"params": [p for p in model.parameters() if id(p) not in linear], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=settings.rate, fused=True)
    warm = max(1, int(settings.steps * settings.warm_up))

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, settings.steps - warm)))

    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, factor)


def _told(history: History, settings: Settings) -> dict[str, Any]:
    first = settings.steps - max(1, round(settings.steps * settings.last))  # steps after this one are the last 30 %
    return {
        "loss": history.loss,
        "penalty": history.penalty,
        "a1_of_batch": {
            kind: [None if one[kind] is None else round(one[kind][0], 4) for one in history.batch]
            for kind in ("raw", "centred", "within_class")
        },
        "probes": [
            {"step": step, **{name: one[name] for name in ("raw", "centred", "within_class", "judged") if name in one}}
            for step, one in history.probes
        ],
        "last_steps": {
            "from_step": first + 1,
            "training_batch": mean_scores(history.batch[first:]),
            "held_out": mean_scores([one for step, one in history.probes if step > first]),
        },
    }


def _judged(model: Encoder, tokens: list[dict[str, Any]], items: Items) -> dict[str, Any]:
    states = _states(model, tokens)
    return {"items": len(items), **_answers(model, states, items), "held_out": whole(states, items.labels)}


def _answers(model: Encoder, states: Tensor, items: Items) -> dict[str, Any]:
    """Which items the head gets right from their states, and its loss; of a model that `_states` has put into evaluation."""
    with torch.inference_mode():
        logits = model.logits(states)
        loss = float(torch.nn.functional.cross_entropy(logits, items.labels))
    predicted = logits.argmax(1)
    confusion = [int(((predicted == p) & (items.labels == g)).sum()) for p, g in ((1, 1), (1, 0), (0, 1), (0, 0))]
    return {
        "correct": bits(predicted == items.labels),
        "loss": round(loss, 5),
        "confusion": dict(zip(("tp", "fp", "fn", "tn"), confusion, strict=True)),
    }


def bits(flags: Tensor) -> str:
    """Flags (N,) as hexadecimal, the first item in the highest bit."""
    return f"{int(''.join('1' if one else '0' for one in flags.tolist()), 2):0{(len(flags) + 3) // 4}x}"


def unpacked(text: str, n: int) -> Tensor:
    """The flags of `bits`."""
    return torch.tensor([one == "1" for one in f"{int(text, 16):0{n}b}"])
