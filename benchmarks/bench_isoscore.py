"""IsoScore of a matrix on disk that is a gigabyte large, against the package of that name."""

import numpy as np
import torch
from IsoScore.IsoScore import IsoScore
from measured import Row, run

import uncone
from matrices import path
from uncone import Moments, measure


def package() -> float:
    """As its users call it: the matrix loaded, rows as points."""
    return float(IsoScore(torch.from_numpy(np.load(path("B")))))


def streamed() -> float:
    """Block by block from the file."""
    return float(measure.isoscore(Moments.of(uncone.open_rows(path("B")))))


def closed_form() -> float:
    """The same closed form on the loaded matrix: what a user who knows it would write."""
    covariance = torch.cov(torch.from_numpy(np.load(path("B"))).T)
    d = len(covariance)
    return float((covariance.diagonal().sum() ** 2 / covariance.square().sum() - 1) / (d - 1))


ROWS = [
    Row("uncone, from the file", lambda: streamed),
    Row("closed form on torch.cov, loaded whole", lambda: closed_form),
    Row("IsoScore 2.0.1, loaded whole", lambda: package),
]

if __name__ == "__main__":
    path("B")
    values = f"Values: uncone {streamed():.7f}, closed form {closed_form():.7f}, package {package():.7f}."
    run(
        __file__,
        "IsoScore of 128256 x 2048 float32 on disk (1.05 GB)",
        ROWS,
        repeats=3,
        columns=[("package", ROWS[2].name)],
        notes=values,
    )
