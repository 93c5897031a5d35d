"""How benchmarks measure: rows in turn in one process for time, each row in a process of its own for memory.

Absolute times belong to one machine on one day; the ratios in one run are what a table is for.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of a table: `prepare` returns the work to be measured. `repeats` below the table's for slow rivals."""

    name: str
    prepare: Callable[[], Work]
    repeats: int | None = None
    memory: bool = True


def seconds(rows: list[Row], repeats: int) -> dict[str, list[float]]:
    """Times of each row, taken in turn (A B C A B C ...) after one untimed round."""
    works = {row.name: row.prepare() for row in rows}
    taken: dict[str, list[float]] = {row.name: [] for row in rows}
    for row in rows:
        if (row.repeats or repeats) > 1:
            works[row.name]()
    for turn in range(repeats):
        for row in rows:
            if turn < (row.repeats or repeats):
                time.sleep(0.3)  # the threads of the row before spin on for a while
                began = time.perf_counter()
                works[row.name]()
                taken[row.name].append(time.perf_counter() - began)
                print(f"  {row.name}: {taken[row.name][-1]:.4f} s", file=sys.stderr, flush=True)
    return taken


def anonymous_mib() -> float:
    """Anonymous resident memory of this process in MiB: what a mapping of a file does not count to."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no RssAnon in /proc/self/status: memory is measured on Linux only")


def peak_extra_mib(work: Work) -> float:
    """The highest anonymous memory during `work` beyond what there was before, sampled every two milliseconds."""
    before, peak, done = anonymous_mib(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(peak, anonymous_mib()) - before


def memory_of(script: str, row: Row) -> float | None:
    """`peak_extra_mib` of one row in a fresh process."""
    if not row.memory:
        return None
    done = subprocess.run([sys.executable, script, "--memory-of", row.name], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def run(
    script: str, title: str, rows: list[Row], *, repeats: int, columns: list[tuple[str, str]], notes: str = ""
) -> None:
    """Measure `rows`, print the table in Markdown, and keep it in results/.

    `columns` are (heading, row) pairs: the median, over the turns that both were part of, of this row's time divided by that
    row's in the same turn. Neighbours on the machine come and go over many turns; what ran side by side had the same ones.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--memory-of", help="measure the memory of one row and print it")
    parser.add_argument("--repeats", type=int, default=repeats)
    chosen = parser.parse_args()
    if chosen.memory_of:
        row = next(row for row in rows if row.name == chosen.memory_of)
        print(json.dumps(peak_extra_mib(row.prepare())))
        return
    taken = seconds(rows, chosen.repeats)
    memory = {row.name: memory_of(script, row) for row in rows}
    medians = {name: statistics.median(times) for name, times in taken.items()}
    lines = [f"# {title}", "", f"`python benchmarks/{Path(script).name}`", ""]
    headings = ["row", "median s", "min to max s (n)", *[f"x {heading}" for heading, _ in columns], "extra memory MiB"]
    lines += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in rows:
        times = taken[row.name]
        ratios = [f"{_ratio(times, taken[against]):.3g}" for _, against in columns]
        held = memory[row.name]
        cells = [row.name, f"{medians[row.name]:.4g}", f"{min(times):.4g} to {max(times):.4g} ({len(times)})", *ratios]
        lines.append("| " + " | ".join([*cells, "" if held is None else f"{held:.0f}"]) + " |")
    lines += ["", notes] if notes else []
    lines += ["", _circumstances()]
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "results" / f"{Path(script).stem.removeprefix('bench_')}.md").write_text(text)


def _ratio(times: list[float], against: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(times, against, strict=False))


def _circumstances() -> str:
    import numpy
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    ).stdout.strip()
    edited = subprocess.run(
        ["git", "status", "--porcelain", "src"], capture_output=True, text=True, cwd=HERE.parent, check=False
    ).stdout
    return (
        f"Commit {commit}{' with edits' if edited else ''}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {numpy.__version__}, {torch.get_num_threads()} threads, {platform.machine()}. Medians of ratios turn by turn, rows in turn in one process; "
        "memory is anonymous (RssAnon), beyond what the process held before, each row in a process of its own."
    )


def product_rate(dtype: str = "float32") -> float:
    """Multiply-adds times two per second, from the best of 16 products of 4096 x 4096: the rate that neighbours on the machine leave."""
    import torch

    a, b = (torch.randn(4096, 4096).to(getattr(torch, dtype)) for _ in range(2))
    best = min(_timed(lambda: a @ b) for _ in range(16))
    return 2 * 4096**3 / best


def _timed(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
