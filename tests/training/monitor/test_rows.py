"""The rows of a table and a head in a record, against slow loops and the measures of whole matrices."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from uncone import measure
from uncone.training.monitor import rows as read
from uncone.training.monitor.rows import Groups, RowsReader

Tensor = torch.Tensor
V, D = 97, 8
COUNTS = torch.tensor([max(0, 400 // (i + 1) - 4) for i in range(V)])


def matrix(seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(V, D, generator=random, dtype=torch.float64) + 0.5 * torch.arange(D)


def numbers(weight: Tensor, reader: Any = None, **more: Any) -> dict[bool, dict[str, float]]:
    given: dict[str, Any] = {"counts": COUNTS, "is_head": False, "spectrum": True} | more
    return (reader or RowsReader()).read(weight, Groups.by_count(COUNTS), **given)[0]


def cosine(x: Tensor) -> float:
    """Over pairs, one by one."""
    pairs = [float(a @ b) / (float(a.norm()) * float(b.norm())) for a, b in itertools.combinations(x, 2)]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("block", [D, 10 * D, 2**19])
def test_each_group_has_the_numbers_of_a_slow_loop(monkeypatch: pytest.MonkeyPatch, centred: bool, block: int) -> None:
    monkeypatch.setattr(read, "_BLOCK", block)
    w, groups = matrix(), Groups.by_count(COUNTS)
    found, mean = numbers(w)[centred], w.mean(0)
    assert groups.names == ("frequent", "medium", "rare", "never")
    for name in ("", *groups.names):
        of = torch.ones(V, dtype=torch.bool) if not name else groups.of == groups.names.index(name)
        raw, at = w[of], f"{name}." if name else ""
        x = raw - mean if centred else raw
        norms = sorted(float(row.norm()) for row in x)
        assert found[f"{at}mean_cosine"] == pytest.approx(cosine(x))
        share = sum(float(row @ mean) ** 2 / float(mean @ mean) for row in raw) / float(raw.square().sum())
        assert found[f"{at}mean_share"] == pytest.approx(share)
        assert found[f"{at}norm_median"] == pytest.approx(float(np.median(norms)))
        assert found[f"{at}norm_largest"] == pytest.approx(norms[-1])
        assert found[f"{at}effective_rank"] == pytest.approx(measure.effective_rank(raw.numpy()).value, rel=1e-6)
        assert found.get(f"{at}rows", V) == len(raw)
    assert found["untouched"] == pytest.approx(float((COUNTS == 0).double().mean()))


def ratio(x: Tensor) -> float:
    values = np.linalg.eigvalsh(np.cov(x.numpy(), rowvar=False))
    return float(values.sum() ** 2 / (values**2).sum())


SPECTRA = {
    "alike": lambda i: torch.ones_like(i),
    "slow": lambda i: i**-0.25,
    "middle": lambda i: i**-0.5,
    "fast": lambda i: 1 / i,
    "faster": lambda i: i**-2,
    "one": lambda i: torch.where(i < 2, 100.0, 1.0),
    "forty": lambda i: torch.where(i <= 40, 1.0, 0.0),
    "exponential": lambda i: torch.exp(-i / 20),
}
"""Of variances, by their place."""


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("common", [0.0, 1e3])
def test_the_participation_ratio_is_near_that_of_the_spectrum(name: str, common: float) -> None:
    d, random = 256, torch.Generator().manual_seed(2)
    scales = SPECTRA[name](torch.arange(1.0, d + 1)).double().sqrt()
    turn, _ = torch.linalg.qr(torch.randn(d, d, generator=random, dtype=torch.float64))
    x = (torch.randn(2000, d, generator=random, dtype=torch.float64) * scales @ turn + common).float()
    found, one = RowsReader().read(x, Groups.by_count(torch.zeros(2000)), counts=None, is_head=True, spectrum=False)
    near = 0.02 if name in ("fast", "faster", "one") else 0.1
    assert found[True]["participation_ratio"] == pytest.approx(ratio(x.double()), rel=near)
    assert found[False]["participation_ratio"] == found[True]["participation_ratio"]
    assert one.centred_norms.dtype == torch.float32


@pytest.mark.parametrize("block", [16, 50, 2**19])
def test_in_few_dimensions_it_is_exact(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(read, "_BLOCK", block)
    for w in (matrix(), torch.cat([matrix(), 3 * matrix(1)], dim=1)):
        assert numbers(w)[False]["participation_ratio"] == pytest.approx(ratio(w))
    line = torch.outer(torch.arange(V, dtype=torch.float64), torch.arange(1.0, D + 1, dtype=torch.float64))
    assert numbers(line)[False]["participation_ratio"] == pytest.approx(1)
    assert "participation_ratio" not in numbers(torch.ones(V, D))[False]


def test_a_record_is_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    own, calls = read.blocks, []
    monkeypatch.setattr(read, "blocks", lambda weight: calls.append(1) or own(weight))
    for spectrum in (False, True):
        calls.clear()
        numbers(matrix(), spectrum=spectrum)
        assert len(calls) == 2


def test_rows_that_stand_still_die_or_oscillate_are_counted() -> None:
    w, reader, counts = matrix(), RowsReader(), COUNTS.clone()
    first = numbers(w, reader, counts=counts)[False]
    assert first["dead"] == first["mean_drift"] == 0
    assert "still" not in first
    w = w + 1.0
    w[:10] = matrix()[:10]  # of these 4 were read since
    w[50:53] = 0.0
    counts[:4] += 1
    second = numbers(w, reader, counts=counts)[False]
    assert second["still"] == pytest.approx(10 / V)
    assert second["dead"] == pytest.approx(7 / V)
    moved = float((w.mean(0) - matrix().mean(0)).norm()) / float(w.norm(dim=1).mean())
    assert second["mean_drift"] == pytest.approx(moved)
    third = w + torch.where(torch.arange(V) % 2 == 0, 1.0, -1.0)[:, None]  # against the move before: the odd ones
    reader.kept.moves[50:53] = 1.0
    found = numbers(third, reader, counts=counts)[False]
    odd = sum(i % 2 == 1 for i in range(10, V))
    assert found["oscillating"] == pytest.approx(odd / (V - 10))
    assert numbers(third, reader, counts=counts, is_head=True)[True]["dead"] == 1, "every row of a head is pushed"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_matrices_are_read_wide(dtype: torch.dtype) -> None:
    w = matrix().to(dtype)
    exact, found = numbers(w.double())[True], numbers(w)[True]
    assert found == pytest.approx(exact, rel=1e-3, abs=1e-5)


def test_one_direction_giant_rows_and_no_direction_are_read() -> None:
    w = torch.ones(V, D, dtype=torch.float64)
    one = numbers(w)
    assert one[False]["mean_cosine"] == pytest.approx(1)
    assert one[False]["mean_share"] == pytest.approx(1)
    assert "mean_cosine" not in one[True], "rows without their mean have no direction left"
    assert all(math.isfinite(value) for value in one[True].values())
    w = matrix()
    w[3] *= 1e3
    assert numbers(w)[False]["norm_largest"] == pytest.approx(float(w[3].norm()))
    assert numbers(torch.zeros(V, D))[False]["dead"] == 1


def test_a_group_of_one_row_has_no_rank() -> None:
    weight, counts = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)), torch.arange(50)
    read, _ = RowsReader().read(weight, Groups.by_count(counts), counts=None, is_head=True, spectrum=True)
    assert read[True]["never.rows"] == 1
    assert "never.effective_rank" not in read[True]
    assert 1 <= read[True]["rare.effective_rank"] <= 8


def test_without_counts_there_are_no_groups() -> None:
    found = RowsReader().read(matrix(), Groups.by_count(torch.zeros(V)), counts=None, is_head=False, spectrum=False)[0][
        False
    ]
    assert not any("." in name for name in found)
    assert "untouched" not in found
