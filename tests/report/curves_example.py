"""A small result of `judge_curves`: two curves of a family decline, one does not, and one is undecided."""

import numpy as np

import uncone
from uncone.saturation.curves.record import CurveVerdicts

STEPS = [1000, 3000, *range(13000, 144000, 10000)]


def make_rows() -> list[dict[str, object]]:
    """A tidy table, with standard errors of 0.005 and a batch size."""
    random, rows = np.random.default_rng(3), list[dict[str, object]]()
    for model, fall in (("a", 0.1), ("b", 0.12), ("c", 0.0), ("d", 0.0)):
        for step in STEPS[: 5 if model == "d" else None]:
            u = step / STEPS[-1]
            value = 0.4 - 0.3 * np.exp(-20 * u) - fall * max(u - 0.4, 0) + 0.002 * random.standard_normal()
            rows.append({"model": model, "task": "lambada", "metric": "acc", "suite": "v1", "shots": "0", "step": step})
            rows[-1] |= {"value": value, "stderr": 0.005, "batch_size": "1024"}
    return rows


def make_curves() -> CurveVerdicts:
    """The verdicts on `make_rows`."""
    return uncone.judge_curves(make_rows())
