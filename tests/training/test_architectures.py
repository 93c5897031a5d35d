"""One test for every architecture: the attached loss and all gradients are the model's own; gated, those of the definition."""

from typing import Any

import pytest
import torch

import uncone
from uncone.training.heads import whole_bias

from .loss.dense import FixedGate, gated
from .models import ARCHITECTURES, V, batch, build

Tensor = torch.Tensor
TOLERANCE = 1e-6  # the models are float64, but most of them compute their own loss in float32
pytestmark = pytest.mark.filterwarnings("ignore")


def loss_and_gradients(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def largest(found: dict[str, Tensor], known: dict[str, Tensor]) -> float:
    """The largest difference, in units of the largest gradient of all."""
    assert found.keys() == known.keys()
    scale = max(float(g.abs().max()) for g in known.values())
    return max(float((found[name] - g).abs().max()) for name, g in known.items()) / scale


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_loss_and_every_gradient_and_only_the_heads_own_is_gated(name: str) -> None:
    model, inputs = build(name), batch()
    own, known = loss_and_gradients(model, inputs)
    with uncone.attach(model) as attached:
        loss, found = loss_and_gradients(model, inputs)
        assert float(loss) == pytest.approx(float(own), rel=1e-6)
        assert largest(found, known) < TOLERANCE
        again, later = loss_and_gradients(model, batch(1))
    expected, stock = loss_and_gradients(model, batch(1))
    assert float(again) == pytest.approx(float(expected), rel=1e-6)
    assert largest(later, stock) < TOLERANCE

    random = torch.Generator().manual_seed(1)
    gate = FixedGate(torch.rand(V, generator=random) < 0.4, *torch.rand(2, V, generator=random))
    weight = model.get_output_embeddings().weight
    seen: list[Tensor] = []
    with uncone.attach(model, gate=gate) as attached:
        hook = attached.head.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
        _, found = loss_and_gradients(model, inputs)
        hook.remove()
        head_map, bias = attached.head_map, whole_bias(attached.head.bias, attached.head_map, torch.device("cpu"))
    labels = head_map.align(inputs["labels"], -100).flatten()
    options = uncone.CrossEntropyOptions(softcap=head_map.cap, logit_scale=head_map.scale)

    def of_the_head(gates: Any) -> Tensor:
        w = weight.detach().clone().requires_grad_()
        gated(seen[0].flatten(0, -2), w, labels, bias, options, gates).backward()
        return w.grad

    difference = of_the_head(gate.gates()) - of_the_head(None)
    (of_weight,) = (n for n, parameter in model.named_parameters() if parameter is weight)
    assert float(difference.abs().max()) > 1e-4
    assert largest(found, known | {of_weight: known[of_weight] + difference}) < TOLERANCE
