"""The spectra of a head at one checkpoint, raw and centred, with its isotropy: against one SVD of NumPy a spectrum."""

import numpy as np
from measured import Row, run

from uncone.moments import Moments
from uncone.saturation.checkpoints.spectra import of_head

V = 50_304
WIDTHS = (512, 768)


def head(d: int) -> np.ndarray:
    """A head of Pythia's size."""
    return np.random.default_rng(0).standard_normal((V, d), dtype=np.float32) + 0.1


def moments(d: int):
    """One pass and one decomposition: both spectra, mean cosine, IsoScore, RankMe and the decay."""
    w = head(d)
    return lambda: of_head(Moments.of(w))


def svd(d: int):
    """Both spectra by the singular values alone."""
    w = head(d)
    return lambda: (np.linalg.svd(w, compute_uv=False), np.linalg.svd(w - w.mean(axis=0), compute_uv=False))


ROWS = [
    Row(f"{name}, {V} x {d}", lambda make=make, d=d: make(d))
    for d in WIDTHS
    for name, make in (("uncone, all numbers", moments), ("numpy.linalg.svd twice, spectra alone", svd))
]

if __name__ == "__main__":
    entropies = (of_head(Moments.of(head(d)))[0]["head_entropy_centered"] for d in WIDTHS)
    told = ", ".join(
        f"{d / (2 * V):.5f} expected and {e:.5f} read at {d}" for d, e in zip(WIDTHS, entropies, strict=True)
    )
    run(
        __file__,
        f"Spectra of a head of {V} rows, seconds for one checkpoint",
        ROWS,
        repeats=3,
        columns=[(f"SVD {d}", ROWS[2 * i + 1].name) for i, d in enumerate(WIDTHS)],
        notes=f"Singular entropy of the noise, d / (2 V) to first order: {told}.",
    )
