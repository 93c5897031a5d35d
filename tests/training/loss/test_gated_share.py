"""How much of the gradient a gate held back, as it is told, against all of its numbers."""

from functools import partial

import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone.training.loss.loss import gated_linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .dense import Gates, losses
from .ranks import Recorder
from .test_exactness import OPTIONS, a_gate, gradients, problem

Tensor = torch.Tensor


def by_definition(
    hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor, options: CrossEntropyOptions, gates: Gates
) -> list[float]:
    """[sum |(1 - G) delta|, sum |delta|] with dense gates, delta by torch's autograd."""
    z = (options.logit_scale * hidden @ weight.T + bias).requires_grad_()
    capped = z if options.softcap is None else options.softcap * torch.tanh(z / options.softcap)
    (delta,) = torch.autograd.grad(losses(capped, labels, options).sum(), z)
    rare, g1, g2 = gates
    y = labels.clamp(min=0)
    gate = torch.where(rare[y][:, None], g2, g1).double().scatter(1, y[:, None], 1.0)
    return [float(((1 - gate) * delta).abs().sum()), float(delta.abs().sum())]


@given(OPTIONS, st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.8, 1.0]))
def test_it_is_the_share_by_definition(options: CrossEntropyOptions, seed: int, rare: float) -> None:
    hidden, weight, bias, labels = problem(seed=seed)
    gate = Recorder(a_gate(len(weight), rare, seed).gates())
    upstream = torch.rand(len(labels)).double() if options.reduction == "none" else None
    loss = partial(gated_linear_cross_entropy, labels=labels, gate=gate, bias=bias, options=options)
    gradients(loss, hidden, weight, upstream=upstream)
    (told,) = gate.told
    known = by_definition(hidden, weight, labels, bias, options, gate.gates())
    assert torch.allclose(torch.tensor(told), torch.tensor(known), rtol=1e-10, atol=1e-12)


def test_in_float32_it_is_near() -> None:
    hidden, weight, bias, labels = problem(n=300, v=500, dtype=torch.float32)
    gate, options = Recorder(a_gate(500, 0.2).gates()), CrossEntropyOptions(chunk=64)
    gradients(lambda w: gated_linear_cross_entropy(hidden, w, labels, gate=gate, bias=bias, options=options), weight)
    known = by_definition(hidden.double(), weight.double(), labels, bias.double(), options, gate.gates())
    assert torch.allclose(torch.tensor(gate.told[0]), torch.tensor(known), rtol=1e-5)


def test_a_push_that_z_loss_turns_counts_as_much() -> None:
    """Where 1 + 2 L lse is below 0, the gradient off the targets is negative: sums must not cancel."""
    hidden, weight, bias, labels = problem()
    hidden[::2] = 0  # of these the logits are the bias
    bias -= 200
    options = CrossEntropyOptions(z_loss=1e-2)
    gate = Recorder(a_gate(len(weight), 0.5).gates())
    gradients(lambda w: gated_linear_cross_entropy(hidden, w, labels, gate=gate, bias=bias, options=options), weight)
    known = by_definition(hidden, weight, labels, bias, options, gate.gates())
    assert torch.allclose(torch.tensor(gate.told[0]), torch.tensor(known), rtol=1e-10)


def test_it_is_told_only_where_the_head_learns() -> None:
    hidden, weight, _, labels = problem()
    gate = Recorder(a_gate(len(weight), 0.5).gates())
    with torch.no_grad():
        gated_linear_cross_entropy(hidden, weight.clone().requires_grad_(), labels, gate=gate)
    gradients(lambda h: gated_linear_cross_entropy(h, weight, labels, gate=gate), hidden)
    assert gate.told == []
    nothing = torch.full_like(labels, -100)
    gradients(lambda w: gated_linear_cross_entropy(hidden, w, nothing, gate=gate), weight)
    assert gate.told == [[0.0, 0.0]]
