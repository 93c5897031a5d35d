"""The remedies on a GPU: penalties, optimiser steps, centring and the loss with its statistics, each held to float64 on the CPU first.

The table is as large as the head of Llama 3.2 1B, the states are 4096 x 768. `--tiny` runs small shapes on the CPU, to try the script itself,
and keeps nothing.
"""

import argparse
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version

import torch
from measured import HERE

import uncone

Tensor = torch.Tensor
Work = Callable[[], object]


@dataclass
class Row:
    """One line: `prepare` takes the inputs and returns the work; `check` its relative error, where there is one."""

    name: str
    prepare: Callable[[], Work]
    check: Callable[[], float] | None = None
    times: list[float] = field(default_factory=list)
    error: str = ""


def points(shape: tuple[int, int], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows with a decaying spectrum and a common direction, as in bench_penalties.py."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float32) + 0.5
    return (drawn * torch.linspace(2, 0.3, shape[1])).to(device, dtype)


def gradient(penalty: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(penalty(x), x)[0]


def penalty_row(name: str, penalty: Callable[[Tensor], Tensor], x: Tensor, *, checked: bool = True) -> Row:
    def prepare() -> Work:
        given = x.clone().requires_grad_()

        def work() -> None:
            torch.autograd.grad(penalty(given), given)

        return work

    def check() -> float:
        few = x[:2000].float()
        ours, known = gradient(penalty, few).double().cpu(), gradient(penalty, few.double().cpu())
        return float((ours - known).norm() / known.norm())

    return Row(name, prepare, check if checked else None)


def closed_form(x: Tensor) -> Tensor:
    """CosReg under autograd."""
    s = torch.nn.functional.normalize(x, dim=1).sum(0)
    return (s @ s - len(x)) / len(x) ** 2


def step_row(name: str, make: Callable[[Tensor], torch.optim.Optimizer], x: Tensor, *, checked: bool) -> Row:
    def stepped(table: Tensor, steps: int) -> Tensor:
        table = torch.nn.Parameter(table.clone())
        optimizer = make(table)
        for k in range(steps):
            table.grad = torch.sin(table.detach() + k)
            optimizer.step()
        return table.detach()

    def prepare() -> Work:
        table = torch.nn.Parameter(x.clone())
        table.grad = torch.sin(x)
        optimizer = make(table)
        optimizer.step()
        return optimizer.step

    def check() -> float:
        few = x[:2000]
        ours, known = stepped(few, 5).double().cpu(), stepped(few.double().cpu(), 5)
        return float((ours - known).norm() / (known - few.double().cpu()).norm())

    return Row(name, prepare, check if checked else None)


def centre_rows(x: Tensor) -> list[Row]:
    import transformers

    (v, d), few = x.shape, {"intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 8}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=v, hidden_size=d, **few)).to(x.device)

    def ours() -> Work:
        return uncone.CenterRows(model).step

    def by_hand() -> Work:
        table = x.clone()

        def work() -> None:
            table.copy_(table - table.mean(0))

        return work

    def check() -> float:
        with torch.no_grad():
            model.lm_head.weight.copy_(x)
        ours()()
        known = x.double() - x.double().mean(0)
        return float((model.lm_head.weight.detach().double() - known).norm() / known.norm())

    return [Row("CenterRows", ours, check), Row("mean, difference, copy", by_hand)]


def loss_rows(sizes: tuple[int, int, int], device: str, backend: str) -> list[Row]:
    n, v, d = sizes
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    h = torch.randn(n, d, generator=generator).to(device, dtype).requires_grad_()
    w = (torch.randn(v, d, generator=generator) / d**0.5).to(device, dtype).requires_grad_()
    y = torch.randint(0, v, (n,), generator=generator).to(device)

    def prepared(**more: object) -> Callable[[], Work]:
        def prepare() -> Work:
            def work() -> None:
                h.grad = w.grad = None
                found = uncone.linear_cross_entropy(
                    h, w, y, options=uncone.CrossEntropyOptions(backend=backend), **more
                )
                (found[0] if isinstance(found, tuple) else found).backward()

            return work

        return prepare

    def check() -> float:
        with torch.no_grad():
            loss, stats = uncone.linear_cross_entropy(
                h[:256], w, y[:256], options=uncone.CrossEntropyOptions(backend=backend, z_loss=1e-4), return_stats=True
            )
        z = h[:256].detach().double().cpu() @ w.detach().double().cpu().T
        lse, ce = z.logsumexp(1), torch.nn.functional.cross_entropy(z, y[:256].cpu())
        pairs = ((loss, ce + 1e-4 * lse.square().mean()), (stats.cross_entropy, ce), (stats.logsumexp, lse.mean()))
        return max(abs(float(ours) - float(known)) / abs(float(known)) for ours, known in pairs)

    return [
        Row(f"loss and gradients, {backend}", prepared()),
        Row(f"the same with statistics, {backend}", prepared(return_stats=True), check),
    ]


def sections(device: str, *, tiny: bool) -> dict[str, list[Row]]:
    """By title. The first row of each is what the others are compared with."""
    shape, few = ((3000, 64), (256, 32)) if tiny else ((128_256, 2048), (4096, 768))
    sizes = (256, 2000, 64) if tiny else (8192, 128_256, 2048)
    x, states = points(shape, device), points(few, device)
    bf16 = x.to(torch.bfloat16)

    def copied() -> Work:
        out = torch.empty_like(x)
        return lambda: out.copy_(x)

    def made(kind: str, **more: object) -> Callable[[Tensor], torch.optim.Optimizer]:
        return lambda table: uncone.TableAdam([table], kind, betas=(0.9, 0.999), **more)

    def adam(**how: bool) -> Callable[[Tensor], torch.optim.Optimizer]:
        return lambda table: torch.optim.AdamW([table], lr=1e-3, weight_decay=0.0, **how)

    cosine, iso, orthogonal = uncone.CosinePenalty(), uncone.IsoScorePenalty(), uncone.OrthogonalPenalty()
    of = " x ".join(map(str, shape))
    backends = ("chunk",) if device == "cpu" else ("chunk", "triton")
    return {
        f"CosinePenalty, value and gradient, {of}": [
            Row("floor: a copy of the matrix, read and written once", copied),
            penalty_row("uncone", cosine, x),
            penalty_row("closed form, autograd", closed_form, x, checked=False),
            penalty_row("closed form, autograd, compiled", torch.compile(closed_form), x, checked=False),
            penalty_row("uncone, bfloat16", cosine, bf16, checked=False),
            penalty_row("closed form, autograd, bfloat16", closed_form, bf16, checked=False),
        ],
        f"penalties on states, {' x '.join(map(str, few))}": [
            penalty_row("IsoScorePenalty", iso, states),
            penalty_row("OrthogonalPenalty", orthogonal, states),
        ],
        f"a step of an optimiser, {of}": [
            step_row("torch AdamW, default on a GPU", adam(), x, checked=False),
            step_row("torch AdamW, fused", adam(fused=True), x, checked=False),
            *(
                step_row(f'TableAdam "{kind}"', made(kind), x, checked=True)
                for kind in ("entry", "column", "row", "factored")
            ),
            *centre_rows(x),
        ],
        f"loss of a head, N {sizes[0]}, {sizes[1]} x {sizes[2]}": [
            row for backend in backends for row in loss_rows(sizes, device, backend)
        ],
    }


def measure(rows: list[Row], repeats: int) -> None:
    """Check, warm up, then time in turn. A row that fails says so."""
    works = {}
    for row in rows:
        try:
            row.error = "" if row.check is None else f"{row.check():.1e}"
            works[row.name] = row.prepare()
            for _ in range(3):
                works[row.name]()
        except Exception as fault:
            works.pop(row.name, None)
            row.error = f"{type(fault).__name__}: {str(fault).splitlines()[0][:100] if str(fault) else ''}".replace(
                "|", "/"
            )
    for _ in range(repeats):
        for row in rows:
            if row.name in works:
                row.times.append(seconds(works[row.name]))


def seconds(work: Work) -> float:
    """One run, from an idle device to an idle device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def table(title: str, rows: list[Row]) -> list[str]:
    """Markdown."""
    first = statistics.median(rows[0].times) if rows[0].times else None
    lines = [
        f"## {title}",
        "",
        "| row | median ms | min to max ms (n) | x first | relative error |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row.name, "", "", "", row.error]
        if row.times:
            middle = statistics.median(row.times)
            cells[1] = f"{1000 * middle:.4g}"
            cells[2] = f"{1000 * min(row.times):.4g} to {1000 * max(row.times):.4g} ({len(row.times)})"
            cells[3] = f"{middle / first:.3g}" if first else ""
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    """Measure, print, and keep the table under the device's name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small shapes on the CPU, nothing is kept")
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    if not chosen.tiny and not torch.cuda.is_available():
        sys.exit("expected a GPU, found none: run this on a machine with one, or try the script itself with --tiny")
    device = "cpu" if chosen.tiny else "cuda"
    name = "a CPU" if chosen.tiny else torch.cuda.get_device_name()
    command = " ".join(["python benchmarks/bench_remedies_gpu.py", *sys.argv[1:]])
    lines = [f"# The remedies on {name}", "", f"`{command}`", ""]
    for title, rows in sections(device, tiny=chosen.tiny).items():
        measure(rows, chosen.repeats)
        lines += table(title, rows)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    )
    lines += [
        f"Commit {commit.stdout.strip()}, Python {platform.python_version()}, torch {version('torch')}. From an idle device to an idle device, rows in turn in "
        "one process after three untimed rounds. The error is that of gradients, of what five steps moved, of rows, or of the statistics, on some of the rows, "
        "against float64 on the CPU."
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if not chosen.tiny:
        slug = re.sub(r"\W+", "_", name.lower()).strip("_")
        (HERE / "results" / f"remedies_gpu_{slug}.md").write_text(text)


if __name__ == "__main__":
    main()
