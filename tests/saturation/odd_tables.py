"""Tables of runs that no law made: all that `fit_scaling_law` must live with."""

import numpy as np

from uncone.rows import Array


def odd_table(seed: int) -> dict[str, Array]:
    """Runs of any number, noise, range and unit."""
    generator = np.random.default_rng(seed)
    runs = int(generator.integers(6, 30))
    span = 10.0 ** generator.uniform(-2, 1.2, 2)
    middle = generator.uniform([5, 5], [11, 14]) if seed % 2 else generator.uniform(-20, 20, 2)
    n, t = 10.0 ** (middle[:, None] + span[:, None] * generator.uniform(-0.5, 0.5, (2, runs)))
    shape = (n / n.max()) ** -generator.uniform(-0.5, 1) + generator.choice([0, 1]) * (t / t.max()) ** -0.3
    noise = generator.choice([0, 1e-3, 0.05, 0.5, 5]) * generator.standard_normal(runs)
    unit = 1.0 if seed % 3 else 10.0 ** generator.uniform(-20, 20)
    losses = unit * (shape if seed % 5 else np.ones(runs)) * np.exp(np.clip(noise, -20, 20))
    return {"n": n, "t": t, "loss": losses}
