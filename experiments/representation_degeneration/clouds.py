"""Are random clouds decided as a linear programme decides them? 1,000 at each of n/d 1.9, 2.0 and 2.1, half of which 0 lies outside.

python experiments/representation_degeneration/clouds.py    # results/clouds.md, about two minutes
"""

from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from uncone.atomic import write_text
from uncone.diagnosis.why.direction.cone import separate, separation_chance

CLOUDS, RATIOS, LARGEST = 1000, (1.9, 2.0, 2.1), 100
TARGET = Path(__file__).parent / "results" / "clouds.md"


def is_separable(points: np.ndarray) -> bool:
    """Whether some w in a cube has <w, h> >= t > 0 for all points: HiGHS."""
    n, d = points.shape
    rows, bounds = np.column_stack([-points, np.ones(n)]), [(-1, 1)] * d + [(None, 1)]
    return bool(-linprog(np.append(np.zeros(d), -1.0), A_ub=rows, b_ub=np.zeros(n), bounds=bounds).fun > 1e-9)


def row(ratio: float) -> str:
    said, truth, exact, chance = [], [], 0, 0.0
    for i in range(CLOUDS):
        random = np.random.default_rng([i, round(10 * ratio)])
        d = int(random.integers(2, LARGEST + 1))
        points = random.standard_normal((round(ratio * d), d))
        found = separate(points)
        said.append(found.exists)
        truth.append(is_separable(points))
        exact += found.is_inside
        chance += separation_chance(len(points), d) / CLOUDS
    wrong = sum(a is not None and a != b for a, b in zip(said, truth, strict=True))
    return f"| {ratio} | {sum(truth)} | {chance:.1%} | {said.count(True)} | {said.count(False)} | {exact} | {said.count(None)} | {wrong} |"


def main() -> None:
    head = "| n/d | separable by the programme | expected (Cover 1965) | a direction, proven | none, proven | of these 0 inside a simplex | undecided | wrong |"
    lines = [head, "|---" * 8 + "|", *map(row, RATIOS)]
    TARGET.parent.mkdir(exist_ok=True)
    write_text(TARGET, "\n".join(lines) + f"\n\n{CLOUDS} normal clouds a row, d from 2 to {LARGEST}.\n")
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
