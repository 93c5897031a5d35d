"""How much of a cloud's variance its first directions carry, and a record of it while a model trains."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError
from uncone.measure.spectrum import marchenko_pastur
from uncone.prevent.cloud import labelled
from uncone.regular import open_regular

Tensor = torch.Tensor
Scores = tuple[float, ...]


@dataclass(frozen=True)
class AnisotropyScores:
    """A_1 to A_k of one cloud and of an isotropic cloud of as many points, in [0, 1]; less is more isotropic.

    Scores are None where there is no variance to share out.
    """

    raw: Scores | None
    """Of the points as they are."""
    centred: Scores | None
    """Without their mean."""
    within_class: Scores | None
    """Each point without the mean of its class; None without labels."""
    raw_floor: Scores
    """Isotropic references, from Marchenko-Pastur: of n points,"""
    centred_floor: Scores
    """of n - 1 degrees of freedom,"""
    within_class_floor: Scores | None
    """of n - classes."""
    n: int
    d: int
    classes: int
    """0 without labels."""


def anisotropy_scores(points: Tensor, labels: Tensor | None = None, *, k: int = 3) -> AnisotropyScores:
    """The shares of variance of a cloud's first k directions: raw, centred, and centred within each class.

        A_i = s_i^2 / sum of s_j^2,  s the singular values of the points (N, D)

    The floor depends on n: 64 points of 768 features have A_1 of about 0.026 though isotropic, and not 1/768.
    Compare scores of one n only. Computed in float64 from the smaller of the two products, N x N or D x D;
    the caller waits for the device.

    Args:
        points: (N, D), floating point.
        labels: (N,) integers; points labelled -100 are left out.
        k: how many.

    Raises:
        InputError: another shape or dtype, no points, points that are not finite, or k below 1.
    """
    check_k(k)
    x, groups = labelled(points, labels)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        n, d = x.shape
        if n == 0 or d == 0 or not bool(torch.isfinite(x).all()):
            raise InputError(
                f"expected finite points of shape (N, D), at least one of them labelled, got {(n, d)} of "
                f"{x.dtype}: look for NaN and infinity, and for labels that are all -100"
            )
        x = _scaled(x.detach().double())
        within, within_floor, classes = None, None, 0
        if groups is not None:
            inverse = torch.unique(groups, return_inverse=True)[1]
            sizes = torch.bincount(inverse)
            classes = len(sizes)
            means = x.new_zeros(classes, d).index_add_(0, inverse, x) / sizes[:, None]
            within, within_floor = _scores(x - means[inverse], k), _floor(n - classes, d, k)
        raw, centred = _scores(x, k), _scores(x - x.mean(0), k)
        floors = _floor(n, d, k), _floor(n - 1, d, k)
        return AnisotropyScores(raw, centred, within, *floors, within_floor, n, d, classes)


def check_k(k: object) -> None:
    """Refuses what is no number of scores."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InputError(f"expected k of at least 1, got {k!r}: pass how many scores, for instance 3")


def _scaled(x: Tensor) -> Tensor:
    """Scores have no unit, and squares shall not overflow."""
    return x / x.abs().max().clamp_min(torch.finfo(x.dtype).tiny)


def _scores(x: Tensor, k: int) -> Scores | None:
    x = _scaled(x)  # without a mean it may be small
    product = x @ x.T if len(x) < x.shape[1] else x.T @ x
    total = float(product.trace())
    if not total > 0:
        return None
    largest = torch.linalg.eigvalsh(product).flip(0)[:k].clamp_min(0) / total
    return tuple(largest.tolist()) + (0.0,) * (k - len(largest))


def _floor(freedom: int, d: int, k: int) -> Scores:
    if freedom < 1:
        return (0.0,) * k
    quantiles = marchenko_pastur(freedom, d)[:k] / d
    return tuple(quantiles.tolist()) + (0.0,) * (k - len(quantiles))


class AnisotropyTrack:
    """`anisotropy_scores` of a training batch every so many optimiser steps: `attach_states(track=...)`.

    Each record is a dictionary of the fields of `AnisotropyScores` and the `step`, the number of optimiser
    steps done before it. `records` is their list. With a path, each is a line of JSON there as soon as it is
    taken. Only a Trainer that resumes appends to an existing file.

    Args:
        every: optimiser steps from one record to the next.
        path: of a JSONL file.
        k: how many scores.
    """

    def __init__(self, every: int = 50, path: str | os.PathLike[str] | None = None, *, k: int = 3) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise InputError(f"expected every to be a whole number of steps from 1 up, got {every!r}")
        check_k(k)
        self.every, self.k = every, k
        self.path = None if path is None else Path(path)
        self.records: list[dict[str, Any]] = []
        self._begun = False

    def due(self, step: int) -> bool:
        """Whether a record is to be taken after `step` steps."""
        return step % self.every == 0 and not (self.records and self.records[-1]["step"] >= step)

    def take(self, step: int, points: Tensor, labels: Tensor | None = None, **more: Any) -> dict[str, Any]:
        """Take a record now, of any points (N, D), with the entries `more`."""
        record = {"step": step, **asdict(anisotropy_scores(points, labels, k=self.k)), **more}
        self.records.append(record)
        if self.path is not None:
            if not self._begun and self.path.exists():
                raise InputError(
                    f"expected no file {self.path.name} yet, got one: give another path, or remove it"
                )
            self._begun = True
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(record)}\n")
        return record

    def resume(self, step: int) -> None:
        """Go on after `step` steps: what the file says of later ones was lost with the run that wrote it."""
        if self.path is not None and self.path.exists():
            self.records = [record for record in _read(self.path) if record["step"] < step]
            atomic.write_text(self.path, "".join(f"{json.dumps(record)}\n" for record in self.records))
            self._begun = True


def _read(path: Path) -> list[dict[str, Any]]:
    with open_regular(path) as file:
        # A kill may leave half a line at the end.
        lines = file.read().decode("utf-8", "replace").split("\n")[:-1]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            step = record["step"]
        except (ValueError, KeyError, TypeError):
            step = None
        if not isinstance(step, int):
            raise InputError(
                f"expected lines of JSON with a step in {path.name}, got something else in line {number}: remove it"
            )
        records.append(record)
    return records
