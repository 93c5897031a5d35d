"""The remedies on a GPU end where they end on a CPU. Left out where there is no GPU."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone

from .models import V, untied

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
STEPS = 4


def trained(device: str, backend: str = "chunk") -> tuple[dict[str, torch.Tensor], dict[str, int | float]]:
    """Gate, penalty, table optimiser and centred head together."""
    model = untied("GPT2LMHeadModel", dtype=torch.float32, scale=1.0).to(device).train()
    ids = torch.randint(5, V, (STEPS, 4, 12), generator=torch.Generator().manual_seed(0)).square() % V
    gate = uncone.RareTokenGate(V, rare_share=0.5, gate_max=0.5, start_step=1)
    optimizer = uncone.with_table_adam(model, second_moment="column", lr=1e-3, weight_decay=0.1, max_row_norm=50.0)
    centering, options = uncone.CenterRows(model), uncone.CrossEntropyOptions(backend=backend, z_loss=1e-3)
    with uncone.attach(model, gate=gate, penalties=[uncone.CosinePenalty()], options=options) as attached:
        for input_ids in ids.to(device):
            model(input_ids=input_ids, labels=input_ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            attached.step()
            centering.step()
        logs = attached.logs()
    return {name: value.cpu() for name, value in model.state_dict().items()}, logs


@pytest.mark.parametrize("backend", ["chunk", "triton"])
def test_remedies_together_end_as_on_a_cpu(backend: str) -> None:
    (ours, logs), (known, expected) = trained("cuda", backend), trained("cpu")
    for name, value in known.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-4)
    assert logs == {name: pytest.approx(value, rel=1e-3, abs=1e-5) for name, value in expected.items()}


def test_a_monitor_reads_a_model_that_a_trainer_moved_as_on_a_cpu(tmp_path: Path) -> None:
    found = []
    for device in ("cpu", "cuda"):
        model = untied("GPT2LMHeadModel", dtype=torch.float32, scale=1.0)
        monitor = uncone.Monitor(tmp_path / device, model, 2, counts=torch.arange(V))
        model.to(device).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(5):
                ids = torch.randint(5, V, (4, 12), generator=torch.Generator().manual_seed(step)).to(device)
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step()
        monitor.detach()
        found.append([json.loads(line) for line in (tmp_path / device).read_text().splitlines()])
    for ours, known in zip(found[1], found[0], strict=True):
        assert ours.keys() == known.keys()
        for name, value in known.items():
            if isinstance(value, float) and name != "time":
                assert ours[name] == pytest.approx(value, rel=0.02, abs=0.01), name


@pytest.mark.parametrize("kind", ["entry", "column", "row", "factored"])
def test_every_kind_of_second_moment(kind: str) -> None:
    ends = list[torch.Tensor]()
    for device in ("cpu", "cuda"):
        table = torch.nn.Parameter(torch.randn(3000, 96, generator=torch.Generator().manual_seed(0)).to(device))
        optimizer = uncone.TableAdam([table], kind, lr=1e-2, weight_decay=0.1, decay="touched", max_row_norm=11.0)
        for _ in range(5):
            table.grad = torch.where(table.detach() > 0.5, table.detach().sin(), 0.0)
            optimizer.step()
        ends.append(table.detach().cpu())
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("penalty", [uncone.CosinePenalty(), uncone.IsoScorePenalty(), uncone.OrthogonalPenalty()])
@pytest.mark.parametrize("compiled", [False, True])
def test_penalties_and_their_gradients(penalty: Any, compiled: bool) -> None:
    if compiled and torch.__version__ < "2.13":
        pytest.skip("its compiler does not take annotations that are checked at run time, as they are in tests")
    x = torch.randn(700, 96, generator=torch.Generator().manual_seed(0)) + 0.5
    found = list[tuple[torch.Tensor, torch.Tensor]]()
    for device in ("cpu", "cuda"):
        given = x.to(device).requires_grad_()
        ours = torch.compile(penalty) if compiled and device == "cuda" else penalty
        value = ours(given)
        found.append((value.detach().cpu(), torch.autograd.grad(value, given)[0].cpu()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-6)
