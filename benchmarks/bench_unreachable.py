"""Which tokens can never be predicted: every token of a head with a proof, and HiGHS on one linear programme a token, of a few."""

import numpy as np
from measured import Row, Work, run
from scipy.optimize import linprog

from uncone.diagnosis.why.reach.unreachable import unreachable_tokens

V, D, FEW = 4096, 64, 4


def head(spread: float) -> np.ndarray:
    random = np.random.default_rng(0)
    rows = random.standard_normal((V, D)) * np.exp(spread * random.standard_normal((V, 1)))
    return rows.astype(np.float32)


def ours(spread: float) -> Work:
    rows = head(spread)
    return lambda: unreachable_tokens(rows)


def programmes(spread: float) -> Work:
    rows = head(spread).astype(np.float64)

    def one(v: int) -> object:
        system = np.column_stack([np.delete(rows, v, 0) - rows[v], np.ones(V - 1)])
        bounds = [(-1, 1)] * D + [(None, 1)]
        return linprog(np.append(np.zeros(D), -1.0), A_ub=system, b_ub=np.zeros(V - 1), bounds=bounds)

    return lambda: [one(v) for v in range(FEW)]


ROWS = [
    Row("uncone, all tokens, normal rows", lambda: ours(0.0)),
    Row(f"HiGHS by SciPy, {FEW} tokens, normal rows", lambda: programmes(0.0), memory=False),
    Row("uncone, all tokens, lengths spread by half", lambda: ours(0.5), repeats=1, memory=False),
    Row(f"HiGHS by SciPy, {FEW} tokens, lengths spread by half", lambda: programmes(0.5), memory=False),
]

if __name__ == "__main__":
    told = unreachable_tokens(head(0.5))
    run(
        __file__,
        f"Tokens that can never be predicted, of a head of {V:,} x {D}",
        ROWS,
        repeats=3,
        columns=[("uncone, normal rows", ROWS[0].name)],
        notes=f"Lengths spread by half: {told.unreachable:,} tokens unreachable, {told.undecided} undecided. "
        f"A programme a token takes {V // FEW:,} times the rows of HiGHS for the whole head.",
    )
