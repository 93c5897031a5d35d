"""The loss of a head and its gradients, forward and backward: gated, plain, and the ways it is computed elsewhere."""

import functools
import time

import torch
from measured import Row, product_rate, run

from uncone import CrossEntropyOptions, gated_linear_cross_entropy

N, V, D = 4096, 50257, 768
RARE = 0.19


class Gate:
    """The rarest 19% of ids, with factors as the published rule gives them."""

    def __init__(self) -> None:
        rare = torch.arange(V) >= V - int(RARE * V)
        factors = torch.rand(2, V, generator=torch.Generator().manual_seed(1))
        self._gates = rare, torch.where(rare, 0.03 * factors[0], 1.0), torch.where(rare, factors[1], 1.0)

    def gates(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(rare, g1, g2)"""
        return self._gates


@functools.cache
def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States, head and targets; ids are sorted by a Zipfian frequency, as those of most vocabularies.

    The rows have them in common: what lies idle while others run is taken away by the system, and a training reads its head in every step.
    """
    random = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(N, D, generator=random), 0.02 * torch.randn(V, D, generator=random)
    frequencies = 1 / (torch.arange(V) + 2.7)
    return (hidden.requires_grad_(), weight.requires_grad_(), torch.multinomial(frequencies, N, True, generator=random))


def dense(h: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Logits, then the cross-entropy."""
    return torch.nn.functional.cross_entropy(h @ w.T, y)


def torch_chunked(h: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """torch's own fused loss, with its chunked options."""
    return torch.nn.functional.linear_cross_entropy(h, w, y, options=torch.nn.LinearCrossEntropyOptions())


def published(h: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The published way: three logit products, gates as dense matrices, one copy of the logits for each gradient."""
    rare, g1, g2 = Gate().gates()
    is_rare = rare[y]
    total = torch.nn.functional.cross_entropy(h @ w.detach().T, y, reduction="sum")
    for rows, factors in ((~is_rare, g1), (is_rare, g2)):
        gate = factors.expand(int(rows.sum()), V).clone()
        gate[torch.arange(len(gate)), y[rows]] = 1
        z = h[rows].detach() @ (w * 2 / 2).T
        total = total + torch.nn.functional.cross_entropy(gate * z + (1 - gate) * z.detach(), y[rows], reduction="sum")
    return total / N


def _row(name: str, loss, dtype=torch.float32, **options) -> Row:
    def prepare():
        h, w, y = inputs()
        h, w = (t.detach().to(dtype).requires_grad_() for t in (h, w))

        def work() -> None:
            h.grad = w.grad = None
            loss(h, w, y).backward()

        return work

    return Row(name, prepare, **options)


def floor(dtype: str = "float32"):
    """Multiplies for as long as 6 N V D takes at the product rate measured now: after a sleep, the next row would find a cold machine."""
    duration, square = 6 * N * V * D / product_rate(dtype), torch.randn(1024, 1024)

    def work() -> None:
        until = time.perf_counter() + duration
        while time.perf_counter() < until:
            torch.mm(square, square)

    return work


def has_narrow_products() -> bool:
    """Whether this processor multiplies bfloat16 numbers in one instruction, at more than float32's rate."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


class RecordingGate(Gate):
    """The same, told how much of the gradient it held back."""

    def record(self, gated: torch.Tensor, total: torch.Tensor) -> None:
        """Keep it."""
        self.told = gated, total


def weighted(h: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """With all that is noted of a target, and weights of classes and tokens."""
    given = {"class_weights": torch.linspace(0, 1, V), "token_weights": torch.linspace(0, 1, N)}
    return gated_linear_cross_entropy(h, w, y, return_stats=True, **given)[0]


ROWS = [
    Row("floor: 6 N V D at the measured rate", floor, memory=False),
    _row("uncone, plain", lambda h, w, y: gated_linear_cross_entropy(h, w, y)),
    _row("uncone, gated", lambda h, w, y: gated_linear_cross_entropy(h, w, y, gate=Gate())),
    _row("uncone, gated, share told", lambda h, w, y: gated_linear_cross_entropy(h, w, y, gate=RecordingGate())),
    _row(
        "uncone, plain, chunks of 256",
        lambda h, w, y: gated_linear_cross_entropy(h, w, y, options=CrossEntropyOptions(chunk=256)),
    ),
    _row("uncone, plain, weights and stats", weighted),
    _row("torch linear_cross_entropy, chunked", torch_chunked, repeats=3),
    _row("logits + cross_entropy", dense, repeats=3),
    _row("published gate: three products, dense gates", published, repeats=3),
]
NARROW = [
    Row("floor of bfloat16: 6 N V D at its rate", lambda: floor("bfloat16"), memory=False),
    _row("uncone, plain, bfloat16", lambda h, w, y: gated_linear_cross_entropy(h, w, y), torch.bfloat16),
    _row("torch linear_cross_entropy, chunked, bfloat16", torch_chunked, torch.bfloat16, repeats=3),
    _row("logits + cross_entropy, bfloat16", dense, torch.bfloat16, repeats=3),
]

if __name__ == "__main__":
    columns = [("floor", ROWS[0].name), ("plain", ROWS[1].name), ("logits", ROWS[7].name), ("published", ROWS[8].name)]
    if has_narrow_products():
        ROWS += NARROW
        columns.append(("floor of bfloat16", NARROW[0].name))
    run(
        __file__,
        f"Cross-entropy of a head, N {N}, V {V}, D {D}, float32 unless named, forward and backward",
        ROWS,
        repeats=5,
        columns=columns,
    )
