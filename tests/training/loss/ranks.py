"""One of two ranks of a head that is cut by rows: runs every case and saves the results."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from uncone import InputError
from uncone.training.loss.loss import gated_linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .dense import FixedGate, Gates
from .test_exactness import a_gate, problem

Tensor = torch.Tensor
CUT = 25
"""Rows of the first rank; the second has 15."""
SLICES = (slice(0, CUT), slice(CUT, None))
GATES = {"no gate": None, "none rare": 0.0, "some rare": 0.3, "all rare": 1.0}
OPTIONS = {
    "mean": CrossEntropyOptions(),
    "small chunks": CrossEntropyOptions(chunk=4),
    "sum": CrossEntropyOptions(reduction="sum", logit_scale=0.5),
    "none": CrossEntropyOptions(reduction="none", chunk=7),
    "items": CrossEntropyOptions(num_items=50),
    "smoothing": CrossEntropyOptions(label_smoothing=0.1, chunk=5),
    "z-loss": CrossEntropyOptions(z_loss=1e-2, reduction="none"),
    "softcap": CrossEntropyOptions(softcap=1.5, reduction="sum", chunk=9),
    "all": CrossEntropyOptions(
        label_smoothing=0.3, z_loss=1e-2, softcap=5.0, logit_scale=-2.0, reduction="none", chunk=6
    ),
    "weights": CrossEntropyOptions(label_smoothing=0.3, z_loss=1e-2, chunk=6),
}


class Recorder(FixedGate):
    """Gates that somebody chose, and what the loss told them."""

    def __init__(self, gates: Gates) -> None:
        super().__init__(*gates)
        self.told: list[list[float]] = []

    def record(self, gated: Tensor, total: Tensor) -> None:
        assert gated.dtype == total.dtype == torch.float64
        self.told.append([float(gated), float(total)])


def cases() -> Iterator[tuple[str, CrossEntropyOptions, float | None, bool, torch.dtype, bool]]:
    """(name, options, share of rare ids, with a bias, dtype, with weights)"""
    for name, options in OPTIONS.items():
        for gate, rare in GATES.items():
            for biased in (True, False):
                weighted = name == "weights"
                full = f"{name}, {gate}, {'biased, ' if biased else ''}float64"
                yield full, options, rare, biased, torch.float64, weighted
        yield f"{name}, some rare, biased, float32", options, 0.3, True, torch.float32, name == "weights"


def found(
    options: CrossEntropyOptions, rare: float | None, biased: bool, dtype: torch.dtype, weighted: bool, rows: slice
) -> dict[str, Any]:
    """Loss and gradients of the problem with these rows of the head."""
    hidden, weight, bias, labels = problem(dtype=dtype)
    gate = None if rare is None else Recorder(a_gate(len(weight), rare).gates())
    h, w, b = (t.clone().requires_grad_() for t in (hidden, weight[rows], bias[rows]))
    of: dict[str, Any] = {"gate": gate, "bias": b if biased else None, "options": options}
    if weighted:
        random = torch.Generator().manual_seed(1)
        of["class_weights"], of["token_weights"] = (torch.rand(n, generator=random) for n in (len(weight), len(labels)))
    loss, stats = gated_linear_cross_entropy(h, w, labels, return_stats=True, **of)
    loss.backward(torch.linspace(0.5, 1.5, loss.numel(), dtype=dtype).view(loss.shape))
    told = None if gate is None else gate.told
    return {
        "loss": loss.detach(),
        "hidden": h.grad,
        "weight": w.grad,
        "bias": b.grad,
        "told": told,
        "stats": stats.numbers,
    }


def refusals(group: Any, rows: slice) -> dict[str, str]:
    """What is said to what cannot be done."""
    hidden, weight, _, labels = problem()
    options = CrossEntropyOptions(group=group)

    def run(**changed: Any) -> str:
        given = {"gate": None, "weight": weight[rows], "labels": labels, "hidden": hidden} | changed
        try:
            inputs = (given[name] for name in ("hidden", "weight", "labels"))
            gated_linear_cross_entropy(*inputs, gate=given["gate"], options=options)
        except InputError as error:
            return str(error)
        return "nothing"

    def spoiled(tensor: Tensor, *at: int) -> Tensor:
        tensor = tensor.clone()
        tensor[at] = float("nan")
        return tensor

    wrong = labels.clone()
    wrong[4] = 40
    attempts: dict[str, Callable[[], str]] = {
        "a gate of one slice": lambda: run(gate=a_gate(CUT, 0.3)),
        "a label beyond the last rank": lambda: run(labels=wrong),
        "NaN in the states": lambda: run(hidden=spoiled(hidden, 0, 1), labels=labels.clamp(min=0)),
        "NaN in the second slice": lambda: run(weight=spoiled(weight, CUT + 3, 1)[rows]),
        "no rows": lambda: run(weight=weight[:0] if rows.start else weight),
    }
    return {name: attempt() for name, attempt in attempts.items()}


def main(rank: int, folder: Path) -> None:
    """Run all cases as one of the ranks."""
    group = torch.distributed.group.WORLD
    each = {name: found(replace(options, group=group), *rest, SLICES[rank]) for name, options, *rest in cases()}
    torch.save({"cases": each, "refusals": refusals(group, SLICES[rank])}, folder / f"{rank}.pt")
