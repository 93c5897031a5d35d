"""How many deviations of its counted rounding does a reading of a spectrum err by, at most?

    OPENBLAS_CORETYPE=Haswell python experiments/rounding/digits.py

Clouds are those of `tests/measure/test_rounding.py`, each in 30 orders of its rows and features; the truth is of singular values in float64. A ratio is the
error over one counted deviation. One row a kernel and cloud goes to results/KERNEL.md.
"""

import math
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.measure.test_rounding import SPECTRA, _spectrum  # noqa: E402

from uncone.measure import spectrum  # noqa: E402
from uncone.moments import Moments  # noqa: E402

ORDERS, SIZES = 30, ((3000, 16), (5000, 128))
RESULTS = Path(__file__).parent / "results"


def effective_rank(values: np.ndarray) -> float:
    roots = np.sqrt(np.maximum(values, 0))
    p = roots[roots > 0] / roots.sum()
    return math.exp(-float(p @ np.log(p)))


def condition(values: np.ndarray) -> float:
    roots = np.sqrt(np.maximum(values, 0))
    return float(roots[0] / roots[roots > 0][-1])


def worst(kind: str, n: int, d: int) -> list[float]:
    """Of both readings the largest error of all orders, in deviations."""
    x, random = _spectrum(kind, n, d), np.random.default_rng(0)
    wide = x.astype(np.float64)
    values = np.linalg.svd(np.linalg.qr(wide - wide.mean(0), mode="r"), compute_uv=False) ** 2
    found = np.zeros((2, ORDERS))
    for order in range(ORDERS):
        rows, features, signs = random.permutation(n), random.permutation(d), random.choice([-1, 1], d)
        m = Moments.of((x[rows] * signs.astype(x.dtype))[:, features])
        for place, read in enumerate((effective_rank, condition)):
            kept, error, dropped = spectrum._resolved(m.spectrum(centered=True), read, m, True)
            off = 0.0 if dropped else abs(read(kept) - read(values))
            found[place, order] = spectrum._DEVIATIONS * off / max(error, 1e-300)
    return found.max(1).tolist()


def main() -> None:
    kernel = next(one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas")
    lines = [f"# {kernel}: error in counted deviations, the largest of {ORDERS} orders", ""]
    lines += ["| cloud | N x D | effective rank | condition number |", "|---|---|---|---|"]
    for kind in SPECTRA:
        for n, d in SIZES:
            ranks, conditions = worst(kind, n, d)
            lines.append(f"| {kind} | {n} x {d} | {ranks:.1f} | {conditions:.1f} |")
            print(lines[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{kernel}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
