"""Does a jackknife over blocks of rows hold as often as uncone's intervals, by the influence of each row?

    python experiments/intervals/blocks.py [DRAWS]

Rows of each cloud are drawn again and again (200 times, or DRAWS), in random order, so that blocks of rows are alike; once they are sorted along a
direction, as rows of a table are by frequency. A reading is taken without each of B blocks in turn; the squared error is (B - 1) / B times the sum of the
squared deviations of these readings from their mean (Tukey 1958), and Student's t with B - 1 degrees of freedom makes the interval. I(W), as its
logarithm, keeps the two directions between which it was read. A cell has the percentage of intervals that hold the mean reading of all draws; in brackets
that of those that hold the reading of 300,000 rows, those by blocks moved by the jackknife's estimate of the bias; and their mean width, in widths of
uncone's. Below 90% is in bold. Where uncone gives fewer than half of the draws an interval there is no cell.
"""

import math
import sys
from pathlib import Path

import numpy as np
from coverage import CLOUDS, D, clusters, of_many

from uncone import measure
from uncone.moments import Moments
from uncone.statistics.tails import point_of

RESULTS = Path(__file__).parent / "results" / "blocks.md"
SHAPES, BLOCKS = (320, 3200), (20, 50)
READINGS = ("mean_cosine", "isoscore", "effective_rank", "partition_isotropy")
Ends = tuple[float, float, float]  # of an interval, and how far it is moved by the bias


def in_order(random: np.random.Generator, n: int) -> np.ndarray:
    """Rows of clusters that lie in a row, so that blocks are not alike."""
    x = clusters(random, n)
    return x[np.argsort(x @ np.linspace(-1, 1, D), kind="stable")]


ALL = CLOUDS | {"clusters, sorted": in_order}


def readings(n: np.ndarray, first: np.ndarray, second: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Mean cosine, IsoScore and effective rank (..., 3) of n rows (...,) with these sums of x, of x x' and of unit rows."""
    mean = first / n[..., None]
    values = np.linalg.eigvalsh(second / n[..., None, None] - mean[..., :, None] * mean[..., None, :]).clip(0)
    shares = values / values.sum(-1, keepdims=True)
    iso = (1 / np.square(shares).sum(-1) - 1) / (D - 1)
    shares = np.sqrt(shares) / np.sqrt(shares).sum(-1, keepdims=True)  # of singular values
    rank = np.exp(-(shares * np.log(np.maximum(shares, 1e-300))).sum(-1))
    return np.stack([(np.square(unit).sum(-1) - n) / (n * (n - 1)), iso, rank], -1)


def by_blocks(x: np.ndarray, blocks: int) -> dict[str, Ends]:
    cuts = np.array_split(x, blocks)
    sums = [
        np.stack([of(cut) for cut in cuts])
        for of in (
            lambda cut: np.float64(len(cut)),
            lambda cut: cut.sum(0),
            lambda cut: cut.T @ cut,
            lambda cut: (cut / np.linalg.norm(cut, axis=1, keepdims=True)).sum(0),
        )
    ]
    whole = readings(*(of.sum(0) for of in sums))
    left = readings(*(of.sum(0) - of for of in sums))
    # ln Z along each direction, without each block; the largest exponent is taken out
    axes = np.linalg.eigh(x.T @ x)[1]
    top = np.abs(x @ axes).max()
    z = np.stack([np.exp(np.concatenate([cut @ axes, -cut @ axes], axis=1) - top).sum(0) for cut in cuts])
    total = z.sum(0)
    low, high = int(total.argmin()), int(total.argmax())
    logs = [np.log(np.maximum(of, 1e-300)) for of in (total, total - z)]
    isotropy = [of[..., low] - of[..., high] for of in logs]
    return {
        name: ends(float(value), without, blocks)
        for name, value, without in zip(READINGS, [*whole, isotropy[0]], [*left.T, isotropy[1]], strict=True)
    }


def ends(value: float, left: np.ndarray, blocks: int) -> Ends:
    error = math.sqrt((blocks - 1) / blocks * float(np.square(left - left.mean()).sum()))
    half = float(point_of(np.array([math.log(0.025)]), blocks - 1)[0]) * error
    return value - half, value + half, (blocks - 1) * (value - float(left.mean()))


def own(x: np.ndarray) -> dict[str, tuple[float, Ends | None]]:
    """Each reading, I(W) as its logarithm, with uncone's interval."""
    m, found = Moments.of(x, unit_second=True), dict[str, tuple[float, Ends | None]]()
    for name in READINGS:
        of_log = name == "partition_isotropy"
        one = measure.partition_isotropy(x, m) if of_log else getattr(measure, name)(m)
        scale = (lambda value: math.log(max(value, 1e-300))) if of_log else float
        interval = one.interval and (scale(one.interval[0]), scale(one.interval[1]), 0.0)
        found[name] = scale(float(one)), interval
    return found


def cell(intervals: list[Ends], mean: float, truth: float, width: float) -> str:
    def held(at: float, moved: bool) -> str:
        share = np.mean([low <= at - moved * by <= high for low, high, by in intervals])
        return f"**{100 * share:.0f}**" if share < 0.9 else f"{100 * share:.0f}"

    of_all = f" ({held(truth, True)})" if math.isfinite(truth) else ""
    wide = float(np.mean([high - low for low, high, _ in intervals])) / width
    return f"{held(mean, False)}{of_all}, x {wide:.2f}"


def one_cloud(name: str, n: int, draws: int) -> dict[tuple[str, str], str]:
    random = np.random.default_rng(11)
    taken: dict[str, list[dict[str, Ends]]] = {f"{b} blocks": [] for b in BLOCKS}
    owned = list[dict[str, tuple[float, Ends | None]]]()
    for _ in range(draws):
        x = ALL[name](random, n)
        owned.append(own(x))
        for b in BLOCKS:
            taken[f"{b} blocks"].append(by_blocks(x, b))
    large, cells = of_many(name if name in CLOUDS else "clusters"), dict[tuple[str, str], str]()
    for reading in READINGS:
        mean = float(np.mean([one[reading][0] for one in owned]))
        truth = large[reading].value if reading != "partition_isotropy" else None
        ours = [interval for one in owned if (interval := one[reading][1])]
        if len(ours) < draws / 2:
            continue
        width, of_all = float(np.mean([high - low for low, high, _ in ours])), math.nan if truth is None else truth
        cells[reading, "uncone"] = cell(ours, mean, of_all, width)
        for way, found in taken.items():
            cells[reading, way] = cell([one[reading] for one in found], mean, of_all, width)
    return cells


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    lines = ["# Intervals by blocks of rows and by uncone", "", __doc__.split("\n\n")[2].replace("\n", " "), ""]
    for n in SHAPES:
        cells = {name: one_cloud(name, n, draws) for name in ALL}
        lines += [
            f"## {n:,} x {D}, {draws} draws",
            "",
            f"| reading | by | {' | '.join(ALL)} |",
            f"|---|---{'|---' * len(ALL)}|",
        ]
        for reading in READINGS:
            for way in ("uncone", *(f"{b} blocks" for b in BLOCKS)):
                row = " | ".join(of.get((reading, way), "") for of in cells.values())
                lines.append(f"| `{reading}` | {way} | {row} |")
        lines.append("")
        RESULTS.write_text("\n".join(lines), encoding="utf-8")
        print("\n".join(lines[-len(READINGS) * (len(BLOCKS) + 1) - 5 :]), flush=True)


if __name__ == "__main__":
    main()
