"""Value and every gradient against the definition, in float64, over every option."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone.training.loss.loss import gated_linear_cross_entropy, linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .dense import FixedGate, gated, logits

Tensor = torch.Tensor


def problem(
    n: int = 23, v: int = 40, d: int = 7, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """(hidden, weight, bias, labels) with repeated and ignored targets."""
    random = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (torch.randn(*shape, generator=random, dtype=dtype) for shape in ((n, d), (v, d), (v,)))
    labels = torch.randint(0, v, (n,), generator=random)
    labels[torch.rand(n, generator=random) < 0.2] = -100
    return hidden, weight, bias, labels


def a_gate(v: int, share: float, seed: int = 0) -> FixedGate:
    random = torch.Generator().manual_seed(seed)
    return FixedGate(torch.rand(v, generator=random) < share, *torch.rand(2, v, generator=random))


def gradients(loss: Any, *tensors: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    value = loss(*leaves)
    value.backward(upstream if upstream is not None else torch.ones_like(value))
    return value.detach(), [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


def of_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, *, gate: Any = None, **options: Any
) -> tuple[Tensor, list[Tensor]]:
    """Value and gradients of our loss with these options."""
    upstream, chosen = options.pop("upstream", None), CrossEntropyOptions(**options)

    def loss(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return gated_linear_cross_entropy(h, w, labels, gate=gate, bias=b, options=chosen)

    return gradients(loss, hidden, weight, *(() if bias is None else (bias,)), upstream=upstream)


OPTIONS = st.builds(
    CrossEntropyOptions,
    label_smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    z_loss=st.sampled_from([0.0, 1e-2]),
    softcap=st.sampled_from([None, 1.5, 30.0]),
    logit_scale=st.sampled_from([1.0, 0.0625, -2.0]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    chunk=st.integers(1, 30) | st.none(),
)


@given(OPTIONS, st.integers(0, 10**6), st.sampled_from([None, 0.0, 0.2, 0.8, 1.0]), st.booleans())
def test_it_is_the_definition(options: CrossEntropyOptions, seed: int, rare: float | None, with_bias: bool) -> None:
    hidden, weight, bias, labels = problem(seed=seed)
    gate = None if rare is None else a_gate(len(weight), rare, seed)
    upstream = torch.rand(len(labels)).double() if options.reduction == "none" else torch.tensor(0.7).double()
    tensors = (hidden, weight, bias) if with_bias else (hidden, weight)

    def ours(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return gated_linear_cross_entropy(h, w, labels, gate=gate, bias=b, options=options)

    def definition(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return gated(h, w, labels, b, options, None if gate is None else gate.gates())

    (value, found), (expected, known) = (gradients(f, *tensors, upstream=upstream) for f in (ours, definition))
    assert torch.allclose(value, expected, rtol=1e-12, atol=1e-12)
    for mine, other in zip(found, known, strict=True):
        assert float((mine - other).abs().max()) <= 1e-10


def test_every_chunk_gives_the_same() -> None:
    hidden, weight, _, labels = problem()
    gate = a_gate(len(weight), 0.3)

    def at(chunk: int | None) -> list[Tensor]:
        value, found = of_loss(hidden, weight, labels, gate=gate, chunk=chunk, label_smoothing=0.1)
        return [value, *found]

    whole = at(None)
    for chunk in range(1, len(labels) + 2):
        assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(at(chunk), whole, strict=True))


def test_the_states_get_the_plain_gradient_and_the_loss_is_counted_once() -> None:
    hidden, weight, bias, labels = problem()
    plain, under = (of_loss(hidden, weight, labels, bias, gate=gate) for gate in (None, a_gate(len(weight), 0.5)))
    assert torch.allclose(plain[0], under[0], rtol=1e-14)
    assert torch.allclose(plain[1][0], under[1][0], atol=1e-14)
    assert torch.allclose(plain[1][2], under[1][2], atol=1e-14)
    assert not torch.allclose(plain[1][1], under[1][1], atol=1e-3)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1]))
def test_rows_of_the_head_sum_to_nothing_only_without_a_gate(seed: int, smoothing: float) -> None:
    hidden, weight, _, labels = problem(seed=seed)
    gates = (None, a_gate(len(weight), 0.5, seed))
    plain, under = (of_loss(hidden, weight, labels, gate=gate, label_smoothing=smoothing)[1][1] for gate in gates)
    assert float(plain.sum(0).abs().max()) < 1e-14
    assert float(under.sum(0).abs().max()) > 1e-6


def test_a_tied_table_is_gated_on_its_way_out_only() -> None:
    _, table, _, labels = problem(n=30, v=30)
    inputs, gate = torch.arange(30).flip(0), a_gate(30, 0.5)

    def loss(table: Tensor, weight: Tensor, gate: FixedGate | None) -> Tensor:
        return gated_linear_cross_entropy(torch.tanh(table[inputs]), weight, labels, gate=gate)

    tied = [gradients(lambda t, g=g: loss(t, t, g), table)[1][0] for g in (gate, None)]
    output = [gradients(lambda w, g=g: loss(table, w, g), table)[1][0] for g in (gate, None)]
    assert torch.allclose(tied[0] - tied[1], output[0] - output[1], atol=1e-14)
    assert float((output[0] - output[1]).abs().max()) > 1e-3


def test_num_items_are_those_of_all_micro_batches() -> None:
    hidden, weight, _, labels = problem(n=24)
    items = int((labels != -100).sum())
    whole = of_loss(hidden, weight, labels)
    for number in (items, torch.tensor(items), float(items)):
        pairs = zip(hidden.split(10), labels.split(10), strict=True)
        parts = [of_loss(h, weight, y, num_items=number) for h, y in pairs]
        assert torch.allclose(sum(p[0] for p in parts), whole[0])
        assert torch.allclose(sum(p[1][1] for p in parts), whole[1][1])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("gate", [None, a_gate(40, 0.5)])
@pytest.mark.parametrize("backend", ["chunk", "wrap:torch"])
def test_nothing_but_ignored_targets_give_zero(reduction: Any, gate: FixedGate | None, backend: str) -> None:
    hidden, weight, bias, labels = problem()
    nothing = torch.full_like(labels, -100)
    value, found = of_loss(hidden, weight, nothing, bias, gate=gate, backend=backend, reduction=reduction)
    assert not value.any()
    assert not any(g.any() for g in found)


def test_ignored_targets_get_no_gradient_whatever_their_states_hold() -> None:
    hidden, weight, _, labels = problem()
    hidden[labels == -100] = 1e300
    value, (states, head) = of_loss(hidden, weight, labels)
    assert bool(torch.isfinite(value))
    assert not states[labels == -100].any()
    assert bool(torch.isfinite(head).all())


def test_shapes_of_a_batch() -> None:
    hidden, weight, _, labels = problem(n=24)
    flat = linear_cross_entropy(hidden, weight, labels)
    assert float(linear_cross_entropy(hidden, weight, labels.to(torch.int16))) == float(flat)
    assert float(linear_cross_entropy(hidden.view(2, 3, 4, -1), weight, labels.view(2, 3, 4))) == float(flat)
    none = CrossEntropyOptions(reduction="none")
    assert linear_cross_entropy(hidden.view(2, 12, -1), weight, labels.view(2, 12), options=none).shape == (2, 12)
    by_columns = linear_cross_entropy(hidden.T.contiguous().T, weight.T.contiguous().T, labels)
    assert float(by_columns) == pytest.approx(float(flat))


@pytest.mark.parametrize("scale", [1e4, 1e-8])
def test_extreme_logits(scale: float) -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    options = CrossEntropyOptions(logit_scale=scale)
    value, found = of_loss(hidden, weight, labels, logit_scale=scale)
    exact = torch.nn.functional.cross_entropy(logits(hidden.double(), weight.double(), None, options), labels)
    assert float(value) == pytest.approx(float(exact), rel=1e-5)
    assert all(bool(torch.isfinite(g).all()) for g in found)


@pytest.mark.parametrize("chunk", [3, 500])
@pytest.mark.parametrize("softcap", [None, 150.0])
def test_targets_of_no_probability(chunk: int, softcap: float | None) -> None:
    """Losses of hundreds of nats, where the probability of the target is no float32 number."""
    hidden, weight, bias, labels = problem(n=300, dtype=torch.float32)
    settings = {"logit_scale": 60.0, "chunk": chunk, "softcap": softcap, "label_smoothing": 0.1, "z_loss": 1e-3}
    options, wide = CrossEntropyOptions(**settings), (t.double() for t in (hidden, weight, bias))
    value, found = of_loss(hidden, weight, labels, bias, **settings)
    exact, known = gradients(lambda h, w, b: gated(h, w, labels, b, options, None), *wide)
    losses = linear_cross_entropy(hidden, weight, labels, bias=bias, options=replace(options, reduction="none"))
    assert float(losses.max()) > 150
    assert float(value) == pytest.approx(float(exact), rel=1e-5)
    assert all(float((a - b).norm() / b.norm()) < 1e-4 for a, b in zip(found, known, strict=True))


@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)])
def test_only_what_is_wanted_is_computed(needs: tuple[bool, bool]) -> None:
    hidden, weight, _, labels = problem()
    h, w = hidden.clone().requires_grad_(needs[0]), weight.clone().requires_grad_(needs[1])
    loss = linear_cross_entropy(h, w, labels)
    known = of_loss(hidden, weight, labels)
    assert float(loss.detach()) == float(known[0])
    if any(needs):
        loss.backward()
    for leaf, need, gradient in zip((h, w), needs, known[1], strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.allclose(leaf.grad, gradient, atol=1e-14)
    with torch.no_grad():
        assert not linear_cross_entropy(h, w, labels, options=replace(CrossEntropyOptions(), chunk=3)).requires_grad
