"""The H0 barcode on a GPU: exact against the CPU, eager and under graph replay, beside its product and torch-topological.

A row that fails, or differs from the CPU, says so in the table. `--tiny` runs small shapes on the CPU, to try the script itself, and keeps nothing.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import torch
from measured import HERE

from uncone.training.bars import one_pass
from uncone.training.bars.barcode import barcode
from uncone.training.bars.bars import persistent_entropy, prominent_mask
from uncone.training.bars.lengths import measured

Tensor = torch.Tensor
Work = Callable[[], object]
D = 768


@dataclass
class Row:
    """One line: `prepare` takes the points and returns the work, whose result, if a tensor, are lengths to compare with the CPU's."""

    name: str
    prepare: Callable[[Tensor], Work]
    times: list[float] = field(default_factory=list)
    error: str = ""


def forward(points: Tensor) -> Work:
    return lambda: barcode(points).lengths


def forward_and_backward(points: Tensor) -> Work:
    x = points.clone().requires_grad_()

    def work() -> Tensor:
        lengths = barcode(x).lengths
        torch.autograd.grad(lengths.sum(), x)
        return lengths.detach()

    return work


def loss(points: Tensor) -> Work:
    """What training takes: bars, selection, entropy and gradient."""
    x = points.clone().requires_grad_()
    width = points.shape[-2] - 1

    def work() -> Tensor:
        found = barcode(x)
        bars = torch.full((x.shape[0] if x.ndim == 3 else 1,), width, device=x.device)
        kept = prominent_mask(found.lengths, bars, width=width)
        torch.autograd.grad(persistent_entropy(torch.where(kept, found.lengths, 0), bars).sum(), x)
        return found.lengths.detach()

    return work


def replayed(prepare: Callable[[Tensor], Work]) -> Callable[[Tensor], Work]:
    """The same work, captured in a CUDA graph once and replayed."""

    def prepared(points: Tensor) -> Work:
        work = prepare(points)
        if not points.is_cuda:
            return work
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = work()

        def again() -> object:
            graph.replay()
            return out

        return again

    return prepared


def product(dtype: torch.dtype) -> Callable[[Tensor], Work]:
    """The floor: all inner products, and nothing done with them."""

    def prepared(points: Tensor) -> Work:
        x = points.to(dtype)
        return lambda: (x @ x.mT).shape

    return prepared


def product_in_blocks(points: Tensor) -> Work:
    """Each pair once: what the algorithm of large clouds computes at least."""
    block = 8192

    def work() -> None:
        for begin in range(0, len(points), block):
            for other in range(begin, len(points), block):
                points[begin : begin + block] @ points[other : other + block].T

    return work


def large(points: Tensor) -> Work:
    return lambda: measured(points, one_pass.grow(points).edges).sort().values


def torch_topological(points: Tensor) -> Work:
    from torch_topological.nn import VietorisRipsComplex

    x = points.clone().requires_grad_()
    layer = VietorisRipsComplex(dim=0)

    def work() -> Tensor:
        clouds = x if x.ndim == 3 else x[None]
        lengths = torch.cat([cloud[0].diagram[:, 1] for cloud in layer(clouds)])
        torch.autograd.grad(lengths.sum(), x)
        return lengths.detach()

    return work


SMALL = [
    Row("product, float32", product(torch.float32)),
    Row("product, float64", product(torch.float64)),
    Row("barcode, forward", forward),
    Row("barcode, forward and backward", forward_and_backward),
    Row("bars, selection, entropy and gradient", loss),
    Row("barcode, forward, graph replay", replayed(forward)),
    Row("barcode, forward and backward, graph replay", replayed(forward_and_backward)),
    Row("bars, selection, entropy and gradient, graph replay", replayed(loss)),
    Row("torch-topological, forward and backward", torch_topological),
]
LARGE = [Row("product, float32, each pair once", product_in_blocks), Row("tree of a large cloud, forward", large)]


def cloud(shape: tuple[int, ...], device: str) -> Tensor:
    """Gaussian rows with a falling spectrum and a common offset, as in the method note."""
    g = torch.Generator().manual_seed(0)
    spectrum = torch.arange(1, D + 1) ** -0.25
    return ((torch.randn(shape, generator=g) + 1) * spectrum).to(device)


def measure(rows: list[Row], points: Tensor, expected: Tensor | None, repeats: int) -> None:
    """Fills `times` and `error`, the rows in turn."""
    works = {}
    for row in rows:
        row.times, row.error = [], ""
        try:
            works[row.name] = row.prepare(points)
            for _ in range(2):
                found = works[row.name]()
            row.error = compared(found, expected)
        except Exception as fault:  # a row that cannot be measured is a result
            works.pop(row.name, None)
            row.error = f"{type(fault).__name__}: {str(fault).splitlines()[0][:80] if str(fault) else ''}"
    for _ in range(repeats):
        for row in rows:
            if row.name in works:
                row.times.append(seconds(works[row.name]))


def compared(found: object, expected: Tensor | None) -> str:
    """The largest error relative to the CPU's lengths, sorted."""
    if not isinstance(found, Tensor) or expected is None:
        return ""
    ours, theirs = found.double().cpu().sort().values, expected.sort().values
    if len(ours) != len(theirs):
        return f"{len(ours)} bars, not {len(theirs)}"
    return f"{float(((ours - theirs).abs() / theirs.clamp(min=1e-30)).max()):.1e}"


def seconds(work: Work) -> float:
    """One run, from an idle device to an idle device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def nearest_are_in_the_tree(points: Tensor, sample: int = 256) -> str:
    """Where no reference can be had: the edge of every point to its nearest is in a minimum spanning tree. Looked at in float64 for some points."""
    edges = one_pass.grow(points).edges
    lengths = measured(points, edges).double()
    shortest = torch.full((len(points),), torch.inf, dtype=torch.float64, device=points.device)
    shortest.scatter_reduce_(0, edges.flatten(), lengths.repeat_interleave(2), "amin")
    rows = torch.randint(0, len(points), (sample,), generator=torch.Generator().manual_seed(1)).to(points.device)
    worst = 0.0
    for row in rows.tolist():
        least = torch.full((), torch.inf, dtype=torch.float64, device=points.device)
        for begin in range(0, len(points), 65_536):
            distance = (points[begin : begin + 65_536].double() - points[row].double()).square_().sum(1)
            if begin <= row < begin + 65_536:
                distance[row - begin] = torch.inf
            least = torch.minimum(least, distance.min())
        worst = max(worst, abs(float(shortest[row] / least.sqrt()) - 1))
    return f"{len(edges)} edges; of {sample} points the edge to the nearest is there to {worst:.1e}"


def table(title: str, rows: list[Row]) -> str:
    """Markdown; the ratio is to the first row."""
    lines = [
        f"## {title}",
        "",
        "| row | median ms | min to max ms (n) | x product | largest error |",
        "|---|---|---|---|---|",
    ]
    floor = statistics.median(rows[0].times) if rows[0].times else None
    for row in rows:
        cells = [row.name, "", "", "", row.error]
        if row.times:
            middle = statistics.median(row.times)
            cells[1] = f"{1000 * middle:.4g}"
            cells[2] = f"{1000 * min(row.times):.4g} to {1000 * max(row.times):.4g} ({len(row.times)})"
            cells[3] = f"{middle / floor:.3g}" if floor else ""
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def circumstances(device: str) -> str:
    """Where and with what this was run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    )
    versions = []
    for package in ("torch", "torch-topological"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return (
        f"{device}; commit {commit.stdout.strip()}, Python {platform.python_version()}, {', '.join(versions)}. From an idle device to an idle device; rows in "
        "turn in one process after two untimed rounds; TF32 off. The error is the largest of a length against the float64 barcode of a CPU.\n"
    )


def main() -> None:
    """Measure, print, and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small shapes on the CPU, nothing is kept")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--million", type=int, default=1_000_000, help="points of the largest cloud")
    chosen = parser.parse_args()
    if not chosen.tiny and not torch.cuda.is_available():
        print("no CUDA device here: nothing was measured (try the script itself with --tiny)")
        sys.exit(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cpu" if chosen.tiny else "cuda"
    shapes: list[tuple[int, ...]] = (
        [(32, D), (4, 8, D)] if chosen.tiny else [(1024, D), (4096, D), (2, 32, D), (256, 16, D)]
    )
    parts = [
        f"# The H0 barcode on {'a CPU' if chosen.tiny else torch.cuda.get_device_name()}\n",
        f"`{' '.join(['python benchmarks/bench_barcode_gpu.py', *sys.argv[1:]])}`\n",
    ]
    for shape in shapes:
        points = cloud(shape, device)
        measure(SMALL, points, barcode(points.cpu().double()).lengths, chosen.repeats)
        parts.append(table(" x ".join(map(str, shape)), SMALL))
    for n in (64, 128) if chosen.tiny else (16_384, chosen.million):
        points = cloud((n, D), device)
        expected = barcode(points.cpu().double()).lengths if n <= 16_384 else None
        measure(LARGE, points, expected, 3 if n > 16_384 else 5)
        LARGE[1].error += "" if n <= 16_384 and not chosen.tiny else f" {nearest_are_in_the_tree(points)}"
        parts.append(table(f"{n} x {D}", LARGE))
    text = "\n".join([*parts, circumstances(device if chosen.tiny else torch.cuda.get_device_name())])
    print(text)
    if not chosen.tiny:
        (HERE / "results" / "barcode_gpu.md").write_text(text)


if __name__ == "__main__":
    main()
