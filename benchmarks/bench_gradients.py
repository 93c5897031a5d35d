"""The ledger of a head's gradient against forward and backward of the head, and one reading of the monitor against a training step."""

from collections.abc import Callable
from typing import Any

import torch
from measured import Row, Work, run

import uncone
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.model.last_states import States

N, V, D = 8192, 30_000, 384
WINDOWS, LENGTH, LAYERS = 8, 128, 6


def states() -> States:
    """States, a head and targets of a Zipfian frequency, ids in its order."""
    random = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(N, D, generator=random), 0.02 * torch.randn(V, D, generator=random)
    labels = torch.multinomial(1 / (torch.arange(V) + 2.7), N, True, generator=random)
    return States(hidden, labels, head, None, None, 1.0, "made", torch.arange(N) // 128)


def head_alone(loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> Work:
    made = states()
    h, w = made.states.requires_grad_(), made.head.requires_grad_()

    def work() -> None:
        h.grad = w.grad = None
        loss(h, w, made.labels).backward()

    return work


def dense() -> Work:
    """All probabilities in memory, and a product for each part of the push: no sums, no bins, no moments."""
    made = states()
    counts = torch.bincount(made.labels, minlength=V)
    rare = (counts < 3)[made.labels]

    def work() -> None:
        p = torch.softmax(made.states @ made.head.T, 1)
        at = torch.arange(N), made.labels
        pull = torch.zeros(V, D).index_add_(0, made.labels, (p[at] - 1)[:, None] * made.states)
        p[at] = 0
        return pull, p[~rare].T @ made.states[~rare], p[rare].T @ made.states[rare]

    return work


def ledger() -> Work:
    made = states()
    return lambda: gradient_ledger(made)


def step(*, monitored: bool) -> Work:
    """A training step of a small GPT-2 in which the monitor, where there is one, reads."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        bos_token_id=0, eos_token_id=0, vocab_size=V, n_positions=LENGTH, n_embd=D, n_layer=LAYERS, n_head=6
    )
    model: Any = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.multinomial(1 / (torch.arange(V) + 2.7), WINDOWS * LENGTH, True).view(WINDOWS, LENGTH)

    monitor = uncone.Monitor(None, model, every=1) if monitored else None

    def work() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.step()

    return work


ROWS = [
    Row(
        "forward and backward of the head: logits + cross_entropy",
        lambda: head_alone(lambda h, w, y: torch.nn.functional.cross_entropy(h @ w.T, y)),
    ),
    Row(
        "forward and backward of the head: uncone.linear_cross_entropy",
        lambda: head_alone(lambda h, w, y: uncone.linear_cross_entropy(h, w, y)),
    ),
    Row("dense split: all probabilities, three parts alone", dense),
    Row("uncone, the whole ledger", ledger),
    Row("training step of GPT-2, 6 layers", lambda: step(monitored=False)),
    Row("the same step, read by Monitor", lambda: step(monitored=True)),
]

if __name__ == "__main__":
    run(
        __file__,
        f"The ledger of a head's gradient, N {N}, V {V}, D {D}, float32",
        ROWS,
        repeats=5,
        columns=[("logits", ROWS[0].name), ("uncone's loss", ROWS[1].name), ("step", ROWS[4].name)],
        notes="The monitor reads one step in 50: its share of training is (x step of the last row, less 1) / 50. "
        f"That step has {WINDOWS * LENGTH} tokens and {LAYERS} layers, and the same head.",
    )
