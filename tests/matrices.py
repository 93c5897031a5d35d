"""Matrices with known properties, made from a seed: the material of many tests."""

import math
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

from uncone import Measurement
from uncone.measure.reading import ROUNDED
from uncone.rows import as_array

Tensor, F64 = torch.Tensor, torch.float64


def close(one: Any, other: Any, **allowed: float) -> bool:
    """Whether two arrays or tensors are nearly equal, as `numpy.allclose` takes it."""
    return np.allclose(as_array(one), as_array(other), **allowed)


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays or tensors have the same shape and the same bits (but for the signs of zeros)."""
    return np.array_equal(as_array(one), as_array(other))


def blas_threads() -> list[int]:
    """How many threads each BLAS that is loaded has."""
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def promised(reading: Measurement) -> float:
    """The relative error that the warnings of a reading allow."""
    words = [text.split() for text in reading.warnings if "left after rounding" in text]
    return ROUNDED if not words else math.inf if words[0][0] == "no" else 10.0 ** -int(words[0][1])


def gaussian(n: int, d: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """n isotropic Gaussian rows."""
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rotation(d: int, *, seed: int = 0) -> Tensor:
    """A random orthogonal matrix, float64."""
    q, r = torch.linalg.qr(gaussian(d, d, seed=seed, dtype=torch.float64))
    return q * r.diagonal().sign()


def with_spectrum(n: int, eigenvalues: Tensor, *, seed: int = 0) -> Tensor:
    """n centred rows (float64) whose covariance has exactly these eigenvalues."""
    d = len(eigenvalues)
    x = gaussian(n, d, seed=seed, dtype=torch.float64)
    q, _ = torch.linalg.qr(x - x.mean(0))
    q = q - q.mean(0)
    q, _ = torch.linalg.qr(q)
    return math.sqrt(n - 1) * q * eigenvalues.double().sqrt() @ rotation(d, seed=seed + 1)


def simplex(d: int) -> Tensor:
    """The d + 1 corners of a regular simplex on the unit sphere, float64 (d + 1, d): every cosine is -1/d."""
    corners = torch.eye(d + 1, dtype=torch.float64) - 1 / (d + 1)
    basis = torch.linalg.svd(corners)[2][:d]
    return torch.nn.functional.normalize(corners @ basis.T, dim=1)
