"""A record of a run against the floor of two passes over the table and the head, and against a training step."""

import ctypes
from contextlib import suppress
from typing import Any

import torch
from measured import Row, Work, run

import uncone

V, D, N = 50_000, 768, 1024


def model() -> Any:
    """A table and a head of their own, with a Zipfian text."""
    torch.manual_seed(0)
    found = torch.nn.Sequential(torch.nn.Embedding(V, D), torch.nn.Linear(D, V, bias=False))
    ids = torch.multinomial(1 / (torch.arange(V) + 2.7), N, True)
    return found, ids


def matrices() -> list[torch.Tensor]:
    return [part.weight.detach() for part in model()[0]]


def floor() -> Work:
    """Each number of both matrices is read twice: a sum, then a sum of squares."""
    both = matrices()

    def work() -> None:
        for w in both:
            sums, squares = torch.zeros(D), torch.zeros(())
            for x in w.split(680):
                sums += x.sum(0)
            for x in w.split(680):
                squares += torch.linalg.vector_norm(x) ** 2

    return work


def record(*, loss: bool, spectrum: bool = False) -> Work:
    made, ids = model()
    monitor = uncone.Monitor(None, made, table=made[0], head=made[1])
    labels = ids.roll(-1) if loss else None
    with torch.enable_grad():
        made(ids)
    kept, at = (monitor._taps.hidden, monitor._taps.places), [0]
    monitor.measure(0, labels=labels)

    def work() -> Any:
        at[0] += 1
        monitor._taps.hidden, monitor._taps.places = kept
        monitor._records = 0 if spectrum else 1
        found = monitor.measure(at[0], labels=labels)
        assert ("gradient.norm" in found) is loss
        assert ("head.effective_rank" in found) is spectrum
        return found

    return work


def whole() -> Work:
    """From the making of a monitor on: what it keeps counts as memory too. What libraries keep for themselves is there
    before, of a small table."""
    made, ids = model()
    small = torch.nn.Sequential(torch.nn.Embedding(2000, D), torch.nn.Linear(D, 2000, bias=False))
    states = torch.randn(N, D)

    def records(of: torch.nn.Sequential, ids: torch.Tensor) -> None:
        monitor = uncone.Monitor(None, of, table=of[0], head=of[1])
        for step in range(3):
            monitor._taps._at_table(of[0], (ids,))
            monitor._taps._at_head(of[1], (states,), states)
            monitor.measure(step, labels=ids.roll(-1))
        monitor.detach()

    records(small, ids % 2000)
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return lambda: records(made, ids)


def counting() -> Work:
    """What every training forward pays: ids are counted and states are kept."""
    made, ids = model()
    uncone.Monitor(None, made, table=made[0], head=made[1])
    states = torch.randn(N, D)
    hooks = list(made[0]._forward_pre_hooks.values()), list(made[1]._forward_hooks.values())
    return lambda: (
        [hook(made[0], (ids,)) for hook in hooks[0]] + [hook(made[1], (states,), states) for hook in hooks[1]]
    )


def step() -> Work:
    """Forward and backward of the table and the head alone, the least that a training step does."""
    made, ids = model()

    def work() -> None:
        made.zero_grad()
        torch.nn.functional.cross_entropy(made(ids), ids.roll(-1)).backward()

    return work


ROWS = [
    Row("two passes over table and head: sums and squares", floor),
    Row("a record of rows and states", lambda: record(loss=False)),
    Row("a record with push and pull of 256 targets", lambda: record(loss=True)),
    Row("every tenth record: with spectra and the kept gradient", lambda: record(loss=True, spectrum=True)),
    Row("a monitor's first three records, with all that it keeps", whole, repeats=2),
    Row("in every training forward: ids counted, states kept", counting),
    Row(f"forward and backward of table and head alone, {N} targets", step),
]

if __name__ == "__main__":
    run(
        __file__,
        f"A record of a run, V {V}, D {D}, float32, table and head apart",
        ROWS,
        repeats=5,
        columns=[("floor", ROWS[0].name), ("step", ROWS[-1].name)],
        notes=(
            "A run has one record in 50 steps and one spectrum in 500: of such steps its records take a fiftieth of the "
            "ratio to a step, and less of steps with layers between table and head or with more targets."
        ),
    )
