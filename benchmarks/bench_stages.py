"""The stages of diagnosing a wide head, 128256 x 4096 bfloat16, beside their floors."""

import time

import numpy as np
from measured import HERE, _circumstances, product_rate
from threadpoolctl import threadpool_limits

import uncone
from matrices import wide


def main() -> None:
    """Print and keep the table."""
    taken, began = dict[str, float](), [("opening", time.perf_counter())]

    def progress(doing: str, _done: int, _total: int) -> None:
        (before, at), now = began[0], time.perf_counter()
        taken[before] = taken.get(before, 0.0) + now - at
        began[0] = (doing.rpartition(": ")[2], now)

    path = str(wide())
    rows = uncone.open_rows(path)
    n, d = rows.shape
    products = 2 * n * d * d / product_rate()
    matrix = np.cov(rows.read(0, 2 * d).T)
    with threadpool_limits(1):
        start = time.perf_counter()
        np.linalg.eigh(matrix)
        eigh = time.perf_counter() - start
    began[0] = ("opening", time.perf_counter())
    uncone.diagnose(path, progress=progress)
    progress("end", 0, 0)
    floors = {
        "summing": (f"two half products: {products:.1f}", products),
        "finding eigenvalues": (f"`numpy.linalg.eigh`, one thread: {eigh:.1f}", eigh),
        "partition function": (f"one product: {products:.1f}", products),
    }
    lines = ["# Diagnosing 128256 x 4096 bfloat16, by stage", "", "`python benchmarks/bench_stages.py`", ""]
    lines += ["| stage | s | floor, s | x floor |", "|---|---|---|---|"]
    for name, seconds in taken.items():
        said, floor = floors.get(name, ("", 0.0))
        lines.append(f"| {name} | {seconds:.1f} | {said} | {f'{seconds / floor:.2f}' if floor else ''} |")
    text = "\n".join([*lines, "", _circumstances()]) + "\n"
    print(text)
    (HERE / "results" / "stages.md").write_text(text)


if __name__ == "__main__":
    main()
