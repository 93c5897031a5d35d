"""Refitted heads against outside solvers, gradients by finite differences, and what no start can do better."""

import math

import pytest
import torch

from tests.saturation.heads_made import made
from uncone.model.last_states import States
from uncone.saturation.head.rank.refit import Objective, cut, full_rank, of_rank, random_head
from uncone.saturation.head.rank.truncation import Text, data_aware, gauge, plain, second_moment

Tensor = torch.Tensor


def _problem(s: States, teacher: float) -> tuple[Objective, Tensor, Tensor]:
    head = gauge(s.head, s.cap)
    text = Text(s.states.double(), s.labels, None if s.bias is None else s.bias.double(), s.cap)
    return Objective.of(text, head, teacher), head, second_moment(text.x)


def _by_autograd(s: States, teacher: float, weight: Tensor) -> Tensor:
    """F as its equation says it."""

    def logits(head: Tensor) -> Tensor:
        z = s.states.double() @ head.T + (0 if s.bias is None else s.bias.double())
        return z if s.cap is None else s.cap * torch.tanh(z / s.cap)

    own = torch.nn.functional.one_hot(s.labels, len(s.head)).double()
    target = (1 - teacher) * own + teacher * torch.softmax(logits(gauge(s.head, s.cap)), 1)
    return -(target * torch.log_softmax(logits(weight), 1)).sum(1).mean()


@pytest.mark.parametrize(("cap", "bias"), [(None, False), (None, True), (4.0, True)])
def test_the_objective_and_its_gradients_are_those_of_the_equation(cap: float | None, bias: bool) -> None:
    s = made(90, 20, 6, cap=cap, bias=bias)
    problem, _, _ = _problem(s, 0.3)
    start = torch.randn(20, 3, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    a, b = (one.requires_grad_(True) for one in problem.enter(start))
    expected = _by_autograd(s, 0.3, problem.leave(a, b)[0] @ problem.leave(a, b)[1])
    of_a, of_b = torch.autograd.grad(expected, (a, b))
    value, *gradients = problem.value(a.detach(), b.detach())
    assert value == pytest.approx(float(expected.detach()))
    torch.testing.assert_close(gradients[0], of_a)
    torch.testing.assert_close(gradients[1], of_b)
    value, of_full, _ = problem.value((a @ b).detach(), None)
    assert value == pytest.approx(float(expected.detach()))
    torch.testing.assert_close(of_full @ b.detach().T, of_a)


def test_coordinates_keep_the_head() -> None:
    problem, _, _ = _problem(made(200, 20, 6), 0.5)
    head = torch.randn(20, 3, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    a, b = problem.enter(head)
    torch.testing.assert_close(b @ b.T, torch.eye(3, dtype=torch.float64))
    back = problem.leave(a, b)
    torch.testing.assert_close(back[0] @ back[1], head[0] @ head[1])


def test_the_full_rank_refit_is_that_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    s = made(3000, 5, 4, size=0.6)
    problem, head, _ = _problem(s, 0.0)
    found, fit = full_rank(problem, head, 300, 1e-9)
    theirs = linear.LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=5000)
    theirs.fit(s.states.double().numpy(), s.labels.numpy())
    weight = torch.from_numpy(theirs.coef_)
    assert fit.objective == pytest.approx(float(_by_autograd(s, 0.0, weight)), abs=1e-9)
    torch.testing.assert_close(found - found.mean(0), weight - weight.mean(0), atol=2e-4, rtol=1e-3)


def test_every_start_of_the_full_rank_refit_ends_in_one_head() -> None:
    problem, head, _ = _problem(made(2000, 30, 8), 0.7)
    one, fit = full_rank(problem, head, 300, 1e-8)
    other, again = full_rank(problem, torch.zeros_like(head), 600, 1e-8)
    assert fit.gradient < 1e-6
    assert again.objective - fit.objective == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(one - one.mean(0), other - other.mean(0), atol=1e-4, rtol=1e-4)


def test_a_teacher_alone_leaves_the_full_head_as_it_is() -> None:
    problem, head, _ = _problem(made(500), 1.0)
    found, fit = full_rank(problem, head, 20, 1e-9)
    assert fit.evaluations == 1
    torch.testing.assert_close(found, head)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_a_refit_is_never_worse_than_its_start_and_finds_a_planted_rank(rank: int) -> None:
    s = made(1500, 40, 12, rank=8)
    problem, head, moment = _problem(s, 1.0)
    ends = []
    for start in [cut(plain(head), rank), cut(data_aware(head, moment), rank), random_head(40, 12, rank, moment, 0)]:
        (a, b), fit = of_rank(problem, start, 150)
        assert fit.objective <= float(_by_autograd(s, 1.0, start[0] @ start[1])) + 1e-12
        assert fit.objective == pytest.approx(float(_by_autograd(s, 1.0, a @ b)))
        ends.append(fit.objective)
    least = float(_by_autograd(s, 1.0, head))
    assert min(ends) >= least - 1e-9, "no head is nearer to the teacher than itself"
    if rank == 8:
        assert max(ends) == pytest.approx(least, abs=1e-4), "the random start finds the planted head too"
    else:
        assert min(ends) > least + 0.05


def test_tokens_that_never_come_leave_the_refit_finite() -> None:
    s = made(300, 40, 6)
    s.labels.clamp_(max=20)
    problem, head, moment = _problem(s, 0.5)
    found, fit = full_rank(problem, head, 40)
    assert torch.isfinite(found).all()
    assert math.isfinite(fit.objective)
    (a, b), _ = of_rank(problem, random_head(40, 6, 2, moment, 1), 40)
    assert torch.isfinite(a @ b).all()
