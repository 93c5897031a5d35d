"""A direction that 20,000 states avoid, with its proof, for a planted margin of 0.001 of the mean norm; HiGHS on a smaller cloud."""

import numpy as np
from measured import Row, Work, run
from scipy.optimize import linprog

from uncone.diagnosis.why.direction.cone import separate

MARGIN = 1e-3


def cloud(n: int, d: int) -> np.ndarray:
    random = np.random.default_rng(0)
    points, v = random.standard_normal((n, d)), random.standard_normal(d)
    v /= np.linalg.norm(v)
    heights, least = points @ v, MARGIN * np.linalg.norm(points, axis=1).mean()
    return points + np.outer(np.abs(heights) - heights + least, v)


def ours(n: int, d: int, dtype: type) -> Work:
    points = cloud(n, d).astype(dtype)
    return lambda: separate(points)


def programme(n: int, d: int) -> Work:
    points = cloud(n, d)
    rows, bounds = np.column_stack([-points, np.ones(n)]), [(-1, 1)] * d + [(None, 1)]
    return lambda: linprog(np.append(np.zeros(d), -1.0), A_ub=rows, b_ub=np.zeros(n), bounds=bounds)


ROWS = [
    Row("uncone, 20,000 x 256, float32", lambda: ours(20_000, 256, np.float32)),
    Row("uncone, 20,000 x 256, float64", lambda: ours(20_000, 256, np.float64)),
    Row("uncone, 4,000 x 64, float64", lambda: ours(4_000, 64, np.float64)),
    Row("HiGHS by SciPy, 4,000 x 64", lambda: programme(4_000, 64)),
]

if __name__ == "__main__":
    found = separate(cloud(20_000, 256))
    told = f"proven {found.margin / found.mean_norm:.5f}, at most {found.bound / found.mean_norm:.5f} of the mean norm; {found.steps} steps"
    title = "A direction that all states avoid: planted margin of 0.001 of the mean norm"
    run(__file__, title, ROWS, repeats=3, columns=[("uncone, 4,000", ROWS[2].name)], notes=f"20,000 x 256: {told}.")
