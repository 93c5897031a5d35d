"""Under a compiler a step is one graph, with the same numbers. `../test_compiled.py` runs this in its own process."""

from typing import Any

import pytest
import torch

from uncone import TableAdam
from uncone.training.optimisers.table_adam import KINDS

from .test_table_adam import gradients, start, trained


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_tensor", [False, True], ids=["lr of a number", "lr of a tensor"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_one_graph(kind: str, is_tensor: bool) -> None:
    torch._dynamo.reset()
    of, table = gradients(steps=5), start().requires_grad_()
    options: dict[str, Any] = {"weight_decay": 0.1, "decay": "touched"}
    optimizer = TableAdam([table], kind, lr=torch.tensor(0.1) if is_tensor else 0.1, **options)
    step = torch.compile(lambda: optimizer.step(), fullgraph=True, backend="aot_eager" if is_tensor else "inductor")
    for g in of:
        table.grad = g.clone()
        step()
    assert torch.allclose(table.detach(), trained(kind, of, lr=0.1, **options), rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["entry", "factored"])
def test_a_cap_breaks_the_graph_and_holds(kind: str) -> None:
    torch._dynamo.reset()
    of, table = gradients(steps=3), start().requires_grad_()
    optimizer = TableAdam([table], kind, lr=0.1, max_row_norm=1.0)
    step = torch.compile(lambda: optimizer.step())
    for g in of:
        table.grad = g.clone()
        step()
    assert torch.allclose(table.detach(), trained(kind, of, lr=0.1, max_row_norm=1.0), rtol=1e-7, atol=1e-7)
