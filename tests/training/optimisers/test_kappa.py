"""`kappa_by_frequency` against closed forms, and against one logit that `TableAdam` trains."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import InputError, TableAdam, kappa_by_frequency


def test_the_numbers_are_those_of_the_formulas() -> None:
    counts = [1000] * 3 + [100] * 5 + [10] * 2 + [0] * 4
    table = kappa_by_frequency(np.array(counts), 64, beta2=0.95)
    assert [(g.name, g.tokens) for g in table.groups] == [("frequent", 3), ("medium", 5), ("rare", 2)]
    for group, count in zip(table.groups, (1000, 100, 10), strict=True):
        q = count / sum(counts)
        kappa = 0.05 / (q * 64)
        assert group.kappa == pytest.approx(kappa)
        assert group.frequency == pytest.approx(q)
        assert group.periodic == pytest.approx(kappa / (2 * (math.exp(kappa / 2) - 1)))
        assert group.random == pytest.approx(max(0, 1 - kappa / 2))
    lines = str(table).splitlines()
    assert lines[0].startswith("beta2 0.95, 64 targets per step")
    assert [line.split()[0] for line in lines[2:]] == ["frequent", "medium", "rare"]


@given(power=st.floats(-3, 5), beta2=st.floats(0, 0.9999))
def test_random_arrivals_are_never_better_and_both_are_shares(power: float, beta2: float) -> None:
    for group in kappa_by_frequency(torch.tensor([5, 1, 1]), 10**power, beta2=beta2).groups:
        assert 0 <= group.random <= group.periodic <= 1
        assert math.isfinite(group.kappa)


def test_a_logit_of_periodic_targets_ends_where_the_formula_has_it() -> None:
    """A column of biases with gradients p - count / B, a target every T steps, and kappa 2."""
    targets, period, beta2 = 50.0, 200, 0.99
    logit = torch.full((1, 1), math.log(0.6 / (targets * period)), dtype=torch.float64).requires_grad_()
    optimizer, kept = TableAdam([logit], "row", lr=2e-3, betas=(0.0, beta2), eps=1e-30), []
    for step in range(60 * period):
        p = float(logit.detach().exp())
        kept.append(p)
        logit.grad = torch.full((1, 1), p - (step % period == 0) / targets, dtype=torch.float64)
        optimizer.step()
    ratio = math.exp(float(np.log(kept[-10 * period :]).mean())) * targets * period
    counts = [1, targets * period - 1]
    known = kappa_by_frequency(np.array(counts), targets, beta2=beta2).groups[-1]
    assert known.kappa == pytest.approx(2.0)
    assert ratio == pytest.approx(known.periodic, rel=0.02)


@pytest.mark.parametrize(
    ("counts", "targets", "beta2", "said"),
    [
        (np.ones(3), 0.0, 0.9, "expected targets above 0"),
        (np.ones(3), 8.0, 1.0, "a beta2 from 0 to below 1"),
        (np.zeros(3), 8.0, 0.9, "expected a count above 0"),
        ("counts.npy", 8.0, 0.9, r"expected counts \(V,\), got a path: read it first"),
    ],
)
def test_what_has_no_kappa_is_refused(counts: object, targets: float, beta2: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        kappa_by_frequency(counts, targets, beta2=beta2)
