"""Under a compiler the penalty breaks no graph. `../test_compiled.py` runs this in a process of its own, without
tests/conftest.py: its checks of types are code that the compiler cannot read.
"""

from typing import Any

import pytest
import torch

from uncone import CosinePenalty, RareTokenGate, gated_linear_cross_entropy

from .tables import table

Tensor = torch.Tensor
# Torch itself deprecates what its compiler does.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MASK = torch.arange(500) % 3 == 0


def found(step: Any) -> list[Tensor]:
    x = table(500, 16).float().requires_grad_()
    value = step(x)
    value.backward()
    assert x.grad is not None
    return [value.detach(), x.grad]


def with_loss(weight: Tensor, penalty: CosinePenalty, gate: RareTokenGate) -> Tensor:
    labels = torch.arange(20)
    hidden = torch.linspace(-1, 1, 320).view(20, 16)
    return gated_linear_cross_entropy(hidden, weight, labels, gate=gate) + penalty(weight)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("options", [{}, {"rows": MASK}])
def test_one_graph(backend: str, options: dict[str, Any]) -> None:
    penalty, gate = CosinePenalty(2.0, **options), RareTokenGate(500)
    gate.observe(torch.arange(20))
    gate.step()
    for step in (penalty, lambda w: with_loss(w, penalty, gate)):
        torch._dynamo.reset()
        compiled: Any = torch.compile(step, fullgraph=True, backend=backend)
        for mine, known in zip(found(compiled), found(step), strict=True):
            assert torch.allclose(mine, known, rtol=1e-5, atol=1e-7)


def test_rows_that_are_not_finite_show_as_nan() -> None:
    torch._dynamo.reset()
    assert bool(
        torch.compile(CosinePenalty(), fullgraph=True, backend="aot_eager")(torch.full((4, 2), torch.inf)).isnan()
    )
