"""Shards by several workers: the speed-up beside that of bare products, Ray beside processes, and states in memory on Ray.

    python benchmarks/bench_shards.py [--rows 2000000] [--part speed,states,seeds] [--turns 3]

`speed`: 2M x 768 in 8 files, one BLAS thread a process. `states`: 8 shards of 4,096 columns on Ray, the memory of all its processes while they
are merged. `seeds`: 50M x 256 on Ray, where each task draws its shard from a seed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # also of processes begun here

import numpy as np

import uncone
from uncone.engines.choose import engine_of
from uncone.engines.processes import Processes
from uncone.moments.drawn import DrawnRows
from uncone.rows import GRID, Rows
from uncone.rows.parts import JoinedRows, Part

RESULTS = Path(__file__).parent / "results"
SHARDS, D = 8, 768
WIDE, WIDE_ROWS = 4096, 20 * 4096
SEEDED, SEEDED_D, SEEDED_ROWS = 50_000_000, 256, 500_000


class Seeded(Rows):
    """Standard normal rows, drawn block by block from a seed."""

    def __init__(self, seed: int, n: int, d: int) -> None:
        self._seed = seed
        self._describe((n, d), "float32", f"seed {seed}")

    def fill(self, start: int, out: np.ndarray) -> None:
        at = start // GRID * GRID
        random = np.random.default_rng([self._seed, at])
        random.standard_normal((start - at, self.shape[1]), np.float32)
        random.standard_normal(out=out, dtype=np.float32)


def product(path: str) -> np.ndarray:
    """The bare sums: x' x of a file, block by block."""
    x = np.load(path, mmap_mode="r")
    total = np.zeros((x.shape[1], x.shape[1]))
    for at in range(0, len(x), GRID):
        block = np.asarray(x[at : at + GRID])
        total += block.T @ block
    return total


def bare(paths: list[str], pool: ProcessPoolExecutor) -> None:
    total = np.zeros((D, D))
    for part in pool.map(product, paths):
        total += part


def speed(n: int, turns: int) -> list[str]:
    import ray

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{k}.npy" for k in range(SHARDS)]
        for k, path in enumerate(paths):
            x = np.lib.format.open_memmap(path, "w+", np.float32, (n // SHARDS, D))
            for at in range(0, len(x), GRID):
                x[at : at + GRID] = np.random.default_rng([k, at]).standard_normal(
                    (len(x[at : at + GRID]), D), np.float32
                )
            del x
        rows = uncone.open_rows(folder)

        def ours(engine: object) -> None:
            rows.engine = engine
            uncone.Moments.of(rows)

        ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
        one, two, on_ray = Processes(1), Processes(2), engine_of(2, "ray", None)
        pools = [ProcessPoolExecutor(k, get_context("spawn")) for k in (1, 2)]
        work: dict[str, Callable[[], None]] = {
            "bare products, 1 process": partial(bare, paths, pools[0]),
            "bare products, 2 processes": partial(bare, paths, pools[1]),
            "uncone, 1 process": partial(ours, one),
            "uncone, 2 processes": partial(ours, two),
            "uncone, Ray, 2 units under way": partial(ours, on_ray),
        }
        times: dict[str, list[float]] = {name: [] for name in work}
        for turn in range(turns + 1):  # the first starts processes, and is not counted
            for name, run in work.items():
                began = time.perf_counter()
                run()
                if turn:
                    times[name].append(time.perf_counter() - began)
                    print(name, f"{times[name][-1]:.2f} s", file=sys.stderr, flush=True)
        ray.shutdown()
        for engine in (one, two):
            engine.close()
    names = list(work)

    def ratio(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))

    plain, own = ratio(names[0], names[1]), ratio(names[2], names[3])
    lines = [f"{n:,} x {D} of float32 in {SHARDS} files, one BLAS thread a process, {turns} turns.", ""]
    lines += ["| work | median s | min to max s |", "|---|---|---|"]
    lines += [f"| {k} | {statistics.median(t):.2f} | {min(t):.2f} to {max(t):.2f} |" for k, t in times.items()]
    lines += [
        "",
        f"Speed-up by a second process: bare {plain:.2f}, uncone {own:.2f}, which is {own / plain:.2f} of it.",
    ]
    return [*lines, f"Ray takes {ratio(names[4], names[3]):.2f} x as long as plain processes, without its start."]


def memory_mib(root: int, name: bytes = b"ray::_") -> tuple[float, float]:
    """Of Ray's workers below `root` whose work begins with `name`, their own memory; and that of all processes, where pages that
    several share count once (PSS)."""
    ours, total, todo = 0.0, 0.0, [root]
    while todo:
        pid = todo.pop()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            named = Path(f"/proc/{pid}/cmdline").read_bytes().startswith(name)
            todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in rollup.splitlines()[1:]}
        total += sizes["Pss"]
        ours += (sizes["Private_Clean"] + sizes["Private_Dirty"]) * named
    return ours, total


def in_store_mib() -> float:
    """Of the objects in Ray's store."""
    import ray
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    return (
        float(node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats.object_store_bytes_used)
        / 2**20
    )


def states() -> list[str]:
    """In a process of its own: peaks while shards are worked on, and after the last was."""
    done = subprocess.run(
        [sys.executable, __file__, "--part", "states-here"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    state = WIDE * (8 * WIDE + 4 * DrawnRows(WIDE).most) / 2**20
    lines = [
        f"{SHARDS} shards of {WIDE_ROWS:,} x {WIDE:,} on Ray, drawn from seeds; a state has {state:.0f} MiB with its drawn rows.",
        "",
    ]
    lines += ["| peak of | MiB | states |", "|---|---|---|"]
    return lines + [f"| {name} | {value:,.0f} | {value / state:.1f} |" for name, value in found.items()]


def states_here() -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)

    @ray.remote
    def ready() -> int:
        import uncone.moments  # noqa: F401

        return os.getpid()

    ray.get([ready.remote() for _ in range(4)])
    rows = seeded(SHARDS, WIDE_ROWS, WIDE)
    rows.engine = engine_of(1, "ray", None)  # one unit under way, so that what is merged shows
    samples, ended = list[tuple[float, float, float]](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            adds, sums = (memory_mib(os.getpid(), name)[0] for name in (b"ray::_Total", b"ray::_w"))
            samples.append((adds, sums, in_store_mib()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    uncone.Moments.of(rows, unit_first=False)
    ended.set()
    watcher.join()
    names = ("the process that adds, with its libraries", "that which sums, likewise", "objects in the store")
    print(json.dumps(dict(zip(names, (max(one) for one in zip(*samples, strict=True)), strict=True))))


def seeded(shards: int, n: int, d: int) -> JoinedRows:
    return JoinedRows([Part(partial(Seeded, k, n, d), f"seed {k}", (n, d), "float32") for k in range(shards)], "seeds")


def seeds() -> list[str]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    rows = seeded(SEEDED // SEEDED_ROWS, SEEDED_ROWS, SEEDED_D)
    rows.engine, peak, ended = engine_of(2, "ray", None), list[tuple[float, float, float]](), threading.Event()
    began = time.perf_counter()

    def watch() -> None:
        while not ended.wait(1.0):
            peak.append((time.perf_counter() - began, *memory_mib(os.getpid())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = uncone.Moments.of(rows)
    took = time.perf_counter() - began
    ended.set()
    watcher.join()
    ray.shutdown()
    assert found.n == SEEDED
    thirds = [
        [max(of) for of in zip(*(mib for at, *mib in peak if lo <= 3 * at / took < lo + 1), strict=True)]
        for lo in range(3)
    ]
    ours, all_of_it = (", ".join(f"{mib:,.0f}" for mib in of) for of in zip(*thirds, strict=True))
    rank = float(uncone.measure.effective_rank(found))
    return [
        f"{SEEDED:,} x {SEEDED_D} on Ray, two units under way, each of {SEEDED_ROWS:,} rows drawn from its seed: "
        f"{took:.0f} s, {SEEDED / took:,.0f} rows a second with drawing; effective rank {rank:.2f}.",
        f"Memory at most, in each third of the time: {ours} MiB of the workers, {all_of_it} MiB of all processes of Ray and this one.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--part", default="speed,states,seeds")
    asked = parser.parse_args()
    if asked.part == "states-here":
        states_here()
        return
    kept = RESULTS / "shards.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for part in asked.part.split(","):
        found[part] = {"speed": partial(speed, asked.rows, asked.turns), "states": states, "seeds": seeds}[part]()
        kept.write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join(found[part]), flush=True)
    titles = {"speed": "Speed", "states": "States in memory", "seeds": "Fifty million rows"}
    lines = ["# Shards by several workers", "", "`python benchmarks/bench_shards.py`", ""]
    for part, title in titles.items():
        if part in found:
            lines += [f"## {title}", "", *found[part], ""]
    (RESULTS / "shards.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
