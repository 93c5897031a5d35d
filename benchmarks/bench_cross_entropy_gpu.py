"""The loss of a head and its gradients on a GPU: our backends, plain and gated, beside the kernels of other packages.

Every row is first held to the definition in float32 on some of the targets; one that is wrong, missing or out of memory
says so in the table and is not timed. `--tiny` runs the same on the CPU with small shapes, to try the script itself.
"""

import argparse
import gc
import platform
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import torch
from measured import HERE

from uncone import CrossEntropyOptions, gated_linear_cross_entropy
from uncone.training.loss.wrapped import without_filter

Tensor = torch.Tensor
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
RARE = 0.19
CHECKED = 256
ALLOWED = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
"""The largest relative error of a loss or a gradient, by the dtype of the inputs."""


class Gate:
    """The rarest 19% of ids, with factors as the published rule gives them."""

    def __init__(self, v: int, device: str) -> None:
        rare = torch.arange(v) >= v - int(RARE * v)
        factors = torch.rand(2, v, generator=torch.Generator().manual_seed(1))
        gates = rare, torch.where(rare, 0.03 * factors[0], 1.0), torch.where(rare, factors[1], 1.0)
        self._gates = tuple(t.to(device) for t in gates)

    def gates(self) -> tuple[Tensor, ...]:
        """(rare, g1, g2)"""
        return self._gates


@dataclass
class Row:
    """One line of the table, filled as it is measured."""

    name: str
    loss: Loss
    gated: bool = False
    error: float | None = None
    mib: float | None = None
    problem: str | None = None
    times: list[float] = field(default_factory=list)


def inputs(n: int, v: int, d: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """States, head and targets; ids are sorted by a Zipfian frequency, as those of most vocabularies."""
    random = torch.Generator(device).manual_seed(0)
    hidden = torch.randn(n, d, generator=random, device=device).to(dtype)
    weight = torch.randn(v, d, generator=random, device=device).mul_(d**-0.5).to(dtype)
    frequencies = 1 / (torch.arange(v, device=device) + 2.7)
    labels = torch.multinomial(frequencies, n, True, generator=random)
    return hidden.requires_grad_(), weight.requires_grad_(), labels


def rows(gate: Gate, device: str) -> list[Row]:
    """Ours, and the others' as they are shipped; the others' gated."""

    def ours(backend: str, gated: bool, **options: object) -> Row:
        chosen = CrossEntropyOptions(backend=backend, **options)
        name = ", ".join(
            [backend, "gated" if gated else "plain", *(f"{key} {value}" for key, value in options.items())]
        )
        of = gate if gated else None
        return Row(name, lambda h, w, y: gated_linear_cross_entropy(h, w, y, gate=of, options=chosen), gated)

    return [
        Row("floor: the three products alone", products),
        ours("chunk", False),
        ours("chunk", True),
        ours("triton", False),
        ours("triton", True),
        ours("triton", True, chunk=1024),
        ours("triton", True, chunk=4096),
        Row("Liger, its defaults", liger),
        ours("wrap:liger", True),
        Row("cut-cross-entropy, exact", lambda h, w, y: cce(h, w, y, device)),
        ours("wrap:cce", True),
        Row("torch linear_cross_entropy, chunked", torch_chunked),
        ours("wrap:torch", True),
        Row("logits + cross_entropy", lambda h, w, y: torch.nn.functional.cross_entropy(h @ w.T, y)),
    ]


class _Products(torch.autograd.Function):
    """What no exact way does without: logits, and their gradient times head and states. It computes no loss."""

    @staticmethod
    def forward(ctx, h, w):
        dh, dw = torch.empty_like(h), torch.zeros_like(w)
        for rows in torch.arange(len(h), device=h.device).split(2048):
            z = h[rows] @ w.T
            dh[rows] = z @ w
            dw.addmm_(z.T, h[rows])
        ctx.save_for_backward(dh, dw)
        return h.new_zeros(())

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors


def products(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """The floor, of 6 N V D operations."""
    return _Products.apply(h, w)


def liger(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """Liger, called by itself."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    return LigerFusedLinearCrossEntropyFunction.apply(h, w, y)[0]


def cce(h: Tensor, w: Tensor, y: Tensor, device: str) -> Tensor:
    """cut-cross-entropy, called by itself without its gradient filter."""
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(h, w, y, **without_filter(linear_cross_entropy, torch.device(device)))


def torch_chunked(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """torch's own fused loss, with its chunked options."""
    return torch.nn.functional.linear_cross_entropy(h, w, y, options=torch.nn.LinearCrossEntropyOptions())


def definition(h: Tensor, w: Tensor, y: Tensor, gate: Gate | None) -> list[Tensor]:
    """[loss, gradient of h, gradient of w], with all logits in float32 and the gate as a dense matrix."""
    h, w = h.detach().float(), w.detach().float()
    z = h @ w.T
    loss = torch.nn.functional.cross_entropy(z, y)
    d = z.softmax(dim=1)
    d[torch.arange(len(y), device=y.device), y] -= 1
    d /= len(y)
    dh = d @ w
    if gate is not None:
        rare, g1, g2 = gate.gates()
        d *= torch.where(rare[y][:, None], g2, g1).scatter(1, y[:, None], 1.0)
    return [loss, dh, d.T @ h]


def check(row: Row, h: Tensor, w: Tensor, y: Tensor, known: list[Tensor]) -> None:
    """Set the row's largest relative error."""
    h, w = h.detach().clone().requires_grad_(), w.detach().requires_grad_()
    loss = row.loss(h, w, y)
    loss.backward()
    pairs = zip((loss.detach(), h.grad, w.grad), known, strict=True)
    row.error = max(float((found.float() - k).norm() / k.norm()) for found, k in pairs)
    if not row.error <= ALLOWED[h.dtype]:
        row.problem = f"wrong: relative error {row.error:.2g}"


def once(row: Row, h: Tensor, w: Tensor, y: Tensor) -> float:
    """Seconds of the loss and its backward pass."""
    h.grad = w.grad = None
    synchronise(h)
    began = time.perf_counter()
    row.loss(h, w, y).backward()
    synchronise(h)
    return time.perf_counter() - began


def synchronise(h: Tensor) -> None:
    """Wait for the GPU, if that is where h is."""
    if h.device.type == "cuda":
        torch.cuda.synchronize()


def memory(row: Row, h: Tensor, w: Tensor, y: Tensor) -> float | None:
    """The most memory in MiB, gradients included, beyond what there was before."""
    if h.device.type != "cuda":
        return None
    h.grad = w.grad = None
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    once(row, h, w, y)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def attempt(row: Row, work: Callable[[], object]) -> None:
    """Do `work`; what goes wrong is the row's result."""
    if row.problem is not None:
        return
    try:
        work()
    except Exception as error:
        traceback.print_exc()
        said = (str(error) or type(error).__name__).splitlines()[0].replace("|", "/")
        row.problem = said.partition(": ")[0][:160]
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def measure(table: list[Row], gate: Gate, h: Tensor, w: Tensor, y: Tensor, repeats: int) -> None:
    """Check all rows, then their memory (which warms them up), then their times in turn."""
    few, v = min(CHECKED, len(h)), len(w)
    mixed = torch.cat([y[: few // 2], torch.arange(v - (few - few // 2), v, device=y.device)])
    for gated in (False, True):
        known = definition(h[:few], w, mixed, gate if gated else None)
        for row in table[1:]:
            if row.gated == gated:
                attempt(row, lambda row=row, known=known: check(row, h[:few], w, mixed, known))
                print(f"  {row.name}: {row.problem or f'error {row.error:.2g}'}", file=sys.stderr, flush=True)
    del known

    def remember(row: Row) -> None:
        once(row, h, w, y)
        row.mib = memory(row, h, w, y)

    for row in table:
        attempt(row, lambda row=row: remember(row))
    for _ in range(repeats):
        for row in table:
            attempt(row, lambda row=row: row.times.append(once(row, h, w, y)))


def show(table: list[Row], title: str) -> str:
    """The table in Markdown."""
    medians = {row.name: statistics.median(row.times) for row in table if row.times and row.problem is None}
    against = [("floor", table[0].name), ("triton plain", "triton, plain"), ("Liger", "Liger, its defaults")]
    lines = [f"# {title}", "", f"`{' '.join(['python benchmarks/bench_cross_entropy_gpu.py', *sys.argv[1:]])}`", ""]
    heads = [
        "row",
        "median ms",
        "min to max ms (n)",
        *(f"x {name}" for name, _ in against),
        "extra memory MiB",
        "relative error",
    ]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in table:
        cells = [row.name]
        if row.name not in medians:
            cells += [row.problem or "not run", *[""] * 6]
        else:
            ms = [1000 * t for t in row.times]
            cells += [f"{1000 * medians[row.name]:.4g}", f"{min(ms):.4g} to {max(ms):.4g} ({len(ms)})"]
            cells += [f"{medians[row.name] / medians[base]:.3g}" if base in medians else "" for _, base in against]
            cells += ["" if row.mib is None else f"{row.mib:.0f}", "" if row.error is None else f"{row.error:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", circumstances(), ""])


def circumstances() -> str:
    """Where and with what this was run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    ).stdout
    versions = []
    for package in ("torch", "triton", "liger-kernel", "cut-cross-entropy"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return (
        f"Commit {commit.strip()}, Python {platform.python_version()}, {', '.join(versions)}. Forward and backward, rows in turn in one "
        f"process after two untimed rounds; ratios of medians. Memory is what torch allocated beyond the inputs, at its highest. "
        f"The error is the largest of loss and gradients, against float32 with all logits, on {CHECKED} targets, half of them rare."
    )


def main() -> None:
    """Measure, print, and keep the table under the device's name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small shapes on the CPU, nothing is kept")
    parser.add_argument("--repeats", type=int, default=10)
    chosen = parser.parse_args()
    if not chosen.tiny and not torch.cuda.is_available():
        sys.exit("expected a GPU, found none: run this on a machine with one, or try the script itself with --tiny")
    device, dtype = ("cpu", torch.float32) if chosen.tiny else ("cuda", torch.bfloat16)
    n, v, d = (64, 500, 32) if chosen.tiny else (16_384, 128_256, 4096)
    name = "CPU" if chosen.tiny else torch.cuda.get_device_name()
    gate = Gate(v, device)
    table = rows(gate, device)
    measure(table, gate, *inputs(n, v, d, device, dtype), chosen.repeats)
    text = show(table, f"Cross-entropy of a head on {name}, N {n}, V {v}, D {d}, {str(dtype).removeprefix('torch.')}")
    print(text)
    if not chosen.tiny:
        slug = re.sub(r"\W+", "_", name.lower()).strip("_")
        (HERE / "results" / f"cross_entropy_gpu_{slug}.md").write_text(text)


if __name__ == "__main__":
    main()
