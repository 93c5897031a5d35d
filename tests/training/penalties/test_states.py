"""Penalties on states: against the packages that have them, slow loops, their gradients, and collapsed clouds."""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError, IsoScorePenalty, OrthogonalPenalty

from .tables import table
from .test_cosine import found

Tensor = torch.Tensor
SHAPES = [(60, 8), (8, 60), (5, 5), (2, 3), (300, 40)]
TARGET = torch.diag(torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)) + 0.1
PENALTIES: dict[str, Any] = {
    "isoscore": IsoScorePenalty(),
    "isoscore, no shrinkage": IsoScorePenalty(2.0, zeta=0),
    "isoscore, lower": IsoScorePenalty(-3.0, zeta=0.5),
    "isoscore, target": IsoScorePenalty(zeta=0.3, target=TARGET),
    "orthogonal": OrthogonalPenalty(),
    "orthogonal, second": OrthogonalPenalty(0, 2.0),
}


def near(mine: tuple[Tensor, Tensor], known: tuple[Tensor, Tensor], by: float) -> None:
    assert float(mine[0]) == pytest.approx(float(known[0]), abs=by)
    assert float((mine[1] - known[1]).abs().max()) <= by * max(1e-3, float(known[1].abs().max()))


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zeta", [0.2, 0.8])
def test_the_score_is_that_of_the_package(n: int, d: int, dtype: torch.dtype, zeta: float) -> None:
    """At its settings, C0 = I. Its roots of D are in float32 whatever the points are."""
    from IsoScore.IsoScore import istar

    x, identity = table(n, d).to(dtype), torch.eye(d, dtype=dtype)
    known = found(lambda y: 1 - istar().IsoScore_star(y, identity, zeta, is_eval=False), x)
    near(found(IsoScorePenalty(zeta=zeta, target=identity), x), known, 5e-6 if dtype == torch.float32 else 2e-7)


@pytest.mark.parametrize(("n", "d"), [(4096, 768), (64, 384)])
@pytest.mark.slow
def test_the_score_of_many_points_is_that_of_the_package(n: int, d: int) -> None:
    from IsoScore.IsoScore import istar

    x = table(n, d).float()
    known = istar().IsoScore_star(x.clone(), torch.eye(d), 0.2, is_eval=False).detach()
    assert float(IsoScorePenalty(target=torch.eye(d))(x)) == pytest.approx(1 - float(known), abs=1e-6)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_the_score_is_that_of_the_measure_and_of_the_eigenvalues(n: int, d: int) -> None:
    x = table(n, d)
    for target in (None, torch.eye(d, dtype=torch.float64)):
        measured = float(uncone.measure.isoscore_star(x.numpy(), zeta=0.3, target=target))
        assert float(IsoScorePenalty(2.0, zeta=0.3, target=target)(x)) == pytest.approx(2 * (1 - measured), abs=1e-9)
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    score = (values.sum() ** 2 / values.square().sum() - 1) / (d - 1)
    assert float(IsoScorePenalty(zeta=0)(x)) == pytest.approx(1 - float(score), abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [*SHAPES, (1, 4)])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.0, 0.0)])
def test_orthogonality_is_that_of_sentence_transformers(n: int, d: int, weights: tuple[float, float]) -> None:
    from sentence_transformers.sentence_transformer.losses import GlobalOrthogonalRegularizationLoss

    loss: Any = GlobalOrthogonalRegularizationLoss(None, mean_weight=weights[0], second_moment_weight=weights[1])
    for dtype, by in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        x = table(n, d).to(dtype)
        known = found(lambda y: sum(loss.compute_loss_from_embeddings([y]).values()), x)
        near(found(OrthogonalPenalty(*weights), x), known, by)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0)])
def test_orthogonality_is_a_slow_loop_over_unrelated_pairs(weights: tuple[float, float]) -> None:
    x, labels = table(9, 3), torch.tensor([4, 4, 0, 1, -100, 0, 2, 4, 7])
    cosines = [
        float(x[i] @ x[j] / (x[i].norm() * x[j].norm()))
        for i in range(9)
        for j in range(9)
        if labels[i] != labels[j] and -100 not in (labels[i], labels[j])
    ]
    mean, second = (sum(c**k for c in cosines) / len(cosines) for k in (1, 2))
    known = weights[0] * mean**2 + weights[1] * max(0.0, second - 1 / 3)
    assert float(OrthogonalPenalty(*weights)(x, labels)) == pytest.approx(known, rel=1e-12)
    together = torch.full((9,), 3)
    assert float(OrthogonalPenalty(*weights)(x, together)) == 0


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("n", [3, 7])
def test_gradients_are_slopes(name: str, n: int) -> None:
    penalty = PENALTIES[name]
    assert torch.autograd.gradcheck(penalty, table(n, 4).requires_grad_())
    labels = torch.tensor([0, 0, 1, 2, 1, 3, -100])[:n]
    assert torch.autograd.gradcheck(lambda x: penalty(x, labels), table(n, 4).requires_grad_())


@settings(max_examples=15)
@given(st.integers(0, 1000), st.integers(2, 12), st.sampled_from(sorted(PENALTIES)))
def test_what_they_do_not_see(seed: int, n: int, name: str) -> None:
    x, penalty = table(n, 4, seed), PENALTIES[name]
    value, gradient = found(penalty, x)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    rotation = torch.linalg.qr(table(4, 4, seed + 1))[0] if "target" not in name else torch.eye(4, dtype=torch.float64)
    again, slope = found(penalty, x[order] @ rotation)
    assert float(again) == pytest.approx(float(value), abs=1e-10)
    assert torch.allclose(slope, gradient[order] @ rotation, atol=1e-8)
    if name.startswith("isoscore"):
        again, slope = found(penalty, x + 5)
        assert float(again) == pytest.approx(float(value), abs=1e-9)
        assert bool((slope.sum(0).abs() < 1e-9).all())
    if "target" not in name:
        again, slope = found(penalty, 3 * x)
        assert float(again) == pytest.approx(float(value), abs=1e-9)
        assert torch.allclose(slope, gradient / 3, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of", ["zeros", "alike", "one point", "none"])
@pytest.mark.parametrize("name", PENALTIES)
def test_collapsed_clouds(name: str, of: str, dtype: torch.dtype) -> None:
    row = torch.tensor([0.1, -3, 70, 1e-3]) if of != "zeros" else torch.zeros(4)
    x = row.repeat({"one point": 1, "none": 0}.get(of, 9), 1).to(dtype)
    value, gradient = found(PENALTIES[name], x)
    assert bool((gradient.abs() < 1e-6).all())
    weight = {"isoscore": 1.0, "isoscore, no shrinkage": 2.0, "isoscore, lower": -3.0}
    alike = {"orthogonal": 1.75, "orthogonal, second": 1.5}
    if name in weight:
        assert float(value) == weight[name], "as of a line"
    elif name in alike:
        assert float(value) == pytest.approx(alike[name] if of == "alike" else 0.0, rel=1e-6)
    else:
        spectrum = torch.linalg.eigvalsh(TARGET)
        score = (spectrum.sum() ** 2 / spectrum.square().sum() - 1) / 3
        assert float(value) == pytest.approx(1 - float(score), abs=1e-6)


def test_the_package_has_no_value_there() -> None:
    """Without shrinkage; which is why the penalty does not follow it."""
    from IsoScore.IsoScore import istar

    alike = torch.ones(9, 4)
    assert bool(istar().IsoScore_star(alike, torch.eye(4), 0.0, is_eval=False).isnan())
    assert alike.requires_grad, "and it turns gradients on for the points that it is given"


@pytest.mark.parametrize("name", ["isoscore", "isoscore, target", "orthogonal"])
@pytest.mark.parametrize("n", [30, 3])
def test_half_precision_and_autocast_sum_in_float32(name: str, n: int) -> None:
    x = table(n, 4).bfloat16()
    known, slope = found(PENALTIES[name], x.float())
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = found(PENALTIES[name], x)
        wide, steep = found(PENALTIES[name], x.float())
    assert value.dtype == torch.float32
    assert float(value) == pytest.approx(float(known), rel=1e-6)
    assert float(wide) == pytest.approx(float(known), rel=1e-6)
    assert torch.allclose(steep, slope, rtol=1e-5, atol=1e-7)
    assert torch.allclose(gradient.float(), slope, rtol=0.02, atol=1e-4)


def test_descent_does_what_is_said() -> None:
    x, scores = table(300, 12).float() + 1, dict[str, float]()
    penalties = {"more": IsoScorePenalty(), "less": IsoScorePenalty(-1.0), "spread": OrthogonalPenalty()}
    for name, penalty in penalties.items():
        points = torch.nn.Parameter(x.clone())
        optimizer = torch.optim.Adam([points], lr=0.05)
        for _ in range(30):
            optimizer.zero_grad()
            penalty(points).backward()
            optimizer.step()
        moved = points.detach()
        scores[name] = float(uncone.measure.isoscore(moved))
        scores[f"{name}, mean cosine"] = float(uncone.measure.mean_cosine(moved))
    before = float(uncone.measure.isoscore(x))
    assert scores["less"] < before - 0.1 < before + 0.1 < scores["more"]
    assert abs(scores["spread, mean cosine"]) < 0.1 < float(uncone.measure.mean_cosine(x))


def test_they_say_what_they_are() -> None:
    assert repr(IsoScorePenalty(-2)) == "IsoScorePenalty(-2, zeta=0.2)"
    assert repr(IsoScorePenalty(zeta=0.5, target=torch.eye(3))) == "IsoScorePenalty(1, zeta=0.5, target=(3, 3))"
    assert repr(OrthogonalPenalty(0)) == "OrthogonalPenalty(0, 1)"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OrthogonalPenalty(-1.0), "expected mean_weight to be a number from 0 up, got -1.0"),
        (lambda: OrthogonalPenalty(1, float("inf")), "expected second_moment_weight to be a number from 0 up, got inf"),
        (lambda: IsoScorePenalty(float("nan")), "expected weight to be a number that is finite, got nan"),
        (lambda: IsoScorePenalty(zeta=1.5), "expected zeta to be a number from 0 to 1, got 1.5"),
        (lambda: IsoScorePenalty(target=torch.ones(3)), r"expected a target \(D, D\) in floating point, got \(3,\)"),
        (lambda: IsoScorePenalty(target=[[1, 0], [0, 1]]), r"got \(2, 2\) of torch.int64"),
        (lambda: IsoScorePenalty(target="I"), "expected a target .*, got 'I'"),
        (lambda: IsoScorePenalty(target=[[1.0, 2], [0, 1]]), "symmetric, finite and has positive trace"),
        (lambda: IsoScorePenalty(target=torch.full((2, 2), torch.nan)), "symmetric, finite and has positive trace"),
        (lambda: IsoScorePenalty(target=torch.zeros(2, 2)), "symmetric, finite and has positive trace"),
    ],
)
def test_settings_that_are_refused(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize("penalty", [IsoScorePenalty(), OrthogonalPenalty()])
@pytest.mark.parametrize(
    ("points", "labels", "said"),
    [
        ([[1.0]], None, r"expected points of shape \(N, D\), got list"),
        (torch.ones(3), None, r"expected points of shape \(N, D\), got \(3,\)"),
        (torch.ones(3, 2, dtype=torch.int64), None, "expected points in floating point"),
        (torch.ones(3, 2), torch.ones(2, dtype=torch.int64), r"expected labels of shape \(3,\) with integers"),
        (torch.tensor([[1.0, 2], [torch.nan, 1], [0, 1]]), None, r"got NaN or infinity in row 1 \(1 of 3 rows\)"),
        (torch.tensor([[1.0, torch.inf], [2, 1], [0, 1]]), None, r"got NaN or infinity in row 0 \(1 of 3 rows\)"),
    ],
)
def test_points_that_are_refused(penalty: Any, points: Any, labels: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inspect.unwrap(type(penalty).__call__)(penalty, points, labels)  # without the tests' own checks of types


def test_points_that_fit_no_score_are_refused() -> None:
    with pytest.raises(InputError, match=r"of at least two features, got \(4, 1\) of torch.float32"):
        IsoScorePenalty()(torch.ones(4, 1))
    with pytest.raises(InputError, match="points of the target's 3 features, got 2: use one layer"):
        IsoScorePenalty(target=torch.eye(3))(torch.ones(4, 2))
    with pytest.raises(InputError, match="whose squares are finite, got larger ones: scale them down"):
        IsoScorePenalty()(table(4, 3).float() * 1e25)


def test_points_that_are_left_out_need_not_be_finite() -> None:
    x, labels = table(9, 4), torch.arange(9)
    labels[2] = -100
    for penalty in (IsoScorePenalty(), OrthogonalPenalty()):
        value, gradient = found(lambda y, p=penalty: p(y, labels), x)
        x[2] = torch.nan
        again, slope = found(lambda y, p=penalty: p(y, labels), x)
        assert torch.equal(value, again)
        assert torch.equal(gradient, slope)
        assert bool((gradient[2] == 0).all())
        x[2] = 0
