"""The Triton kernels, ours and Liger's, on the CPU. Run by `test_backends` in a process with TRITON_INTERPRET=1."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from uncone import InputError
from uncone.training.loss import kernels
from uncone.training.loss.loss import gated_linear_cross_entropy, linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .backends import GATES, OPTIONS, a_problem, compare, gate_of
from .ranks import Recorder
from .test_exactness import gradients, of_loss, problem

Tensor = torch.Tensor
TRITON = CrossEntropyOptions(backend="triton")
LIGER = CrossEntropyOptions(backend="wrap:liger")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("options", OPTIONS)
def test_triton(options: str, gate: str) -> None:
    """`compare` asserts that value and gradients err no more than the definition in the same dtype does."""
    chosen = replace(TRITON, **OPTIONS[options])
    compare(chosen, gate_of(gate), a_problem(torch.float32), with_bias=options != "items")
    if gate == "some rare":
        compare(chosen, gate_of(gate), a_problem(torch.float16))


@pytest.mark.parametrize(
    "options", [{"label_smoothing": 0.1, "z_loss": 1e-2, "reduction": "sum"}, {"reduction": "none"}], ids=str
)
def test_liger(options: dict[str, Any]) -> None:
    """Without the cap, which its kernel takes on a GPU only."""
    compare(replace(LIGER, **options), gate_of("some rare"), a_problem(torch.float32))
    compare(replace(LIGER, logit_scale=0.3), gate_of("no gate"), a_problem(torch.float16), with_bias=False)


@pytest.mark.parametrize("options", [TRITON, LIGER])
def test_a_head_alone_is_trained(options: CrossEntropyOptions) -> None:
    hidden, weight, _, labels = a_problem(torch.float32)
    w = weight.requires_grad_()
    gate = gate_of("some rare")
    found, known = (
        torch.autograd.grad(gated_linear_cross_entropy(hidden, w, labels, gate=gate, options=o), w)[0]
        for o in (options, CrossEntropyOptions())
    )
    assert torch.allclose(found, known, atol=1e-6)
    assert not linear_cross_entropy(hidden, weight.detach(), labels, options=options).requires_grad


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("options", [TRITON, LIGER])
def test_nothing_but_ignored_targets_give_zero(options: CrossEntropyOptions, reduction: str) -> None:
    hidden, weight, bias, labels = a_problem(torch.float32)
    nothing, gate = torch.full_like(labels, -100), gate_of("some rare")
    value, found = of_loss(hidden, weight, nothing, bias, gate=gate, backend=options.backend, reduction=reduction)
    assert not value.any()
    assert not any(g.any() for g in found)


@pytest.mark.parametrize("v", [2, 8192, 20_001])
def test_rows_of_several_blocks(v: int) -> None:
    hidden, weight, bias, _ = problem(n=4, v=v, dtype=torch.float32)
    labels = torch.tensor([v - 1, 0, v // 2, v // 3])
    compare(replace(TRITON, label_smoothing=0.1), gate_of("some rare", v), (hidden, weight, bias, labels))


def test_extreme_logits() -> None:
    given = a_problem(torch.float32)
    for scale, softcap in ((1e3, None), (1e3, 150.0), (1e-4, 20.0)):
        compare(replace(TRITON, logit_scale=scale, softcap=softcap), gate_of("some rare"), given)


def test_ids_that_are_never_drawn() -> None:
    """A bias of -inf, for a whole block of ids and more."""
    hidden, weight, bias, labels = a_problem(torch.float32, v=20_000)
    labels = torch.where(labels < 0, labels, labels % 8)
    bias[8:17_000] = -torch.inf
    found, known = (of_loss(hidden, weight, labels, bias, backend=backend) for backend in ("triton", "chunk"))
    assert float(found[0]) == pytest.approx(float(known[0]), rel=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found[1], known[1], strict=True))


@pytest.mark.parametrize("options", [TRITON, LIGER])
def test_states_of_ignored_targets_may_hold_anything(options: CrossEntropyOptions) -> None:
    hidden, weight, _, labels = a_problem(torch.float32)
    hidden[labels == -100] = torch.inf
    value, found = of_loss(hidden, weight, labels, backend=options.backend)
    assert bool(torch.isfinite(value))
    assert all(bool(torch.isfinite(g).all()) for g in found)
    if options is LIGER:
        return
    hidden[0] = torch.nan
    with pytest.raises(InputError, match=r"with NaN, first at position 0"):
        linear_cross_entropy(hidden, weight, labels, options=options)


def test_autocast_decides_the_products() -> None:
    hidden, weight, _, labels = a_problem(torch.float32)

    def under(h: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return linear_cross_entropy(h, w, labels, options=TRITON)

    value, found = gradients(under, hidden, weight)
    assert float(value) == float(of_loss(hidden.half(), weight.half(), labels, backend="triton")[0])
    assert {value.dtype, *(g.dtype for g in found)} == {torch.float32}


def test_rows_may_begin_behind_the_largest_int32() -> None:
    """Rows 2^30 numbers apart, in memory that nobody touches between them."""
    z = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 64), (2**30, 1))
    z[:] = torch.randn(3, 64)
    labels, factors = torch.tensor([1, 2, 3]), torch.rand(64)
    near = z.clone()
    losses = [kernels.losses(x, labels, None, None, TRITON, True) for x in (z, near)]
    for x in (z, near):
        kernels.gate_rows(x, labels, factors)
    assert torch.equal(*losses)
    assert torch.equal(z, near)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_share_of_a_gate_is_the_one_that_chunks_tell(options: str) -> None:
    given, told = a_problem(torch.float32), []
    for backend in (TRITON, CrossEntropyOptions()):
        recorder = Recorder(gate_of("some rare").gates())
        hidden, weight, bias, labels = given
        chosen, w = replace(backend, **OPTIONS[options]), weight.clone().requires_grad_()
        gated_linear_cross_entropy(hidden, w, labels, bias=bias, gate=recorder, options=chosen)
        told += recorder.told
    assert told[0] == pytest.approx(told[1], rel=1e-5)


@pytest.mark.parametrize("v", [40, 9000])
@pytest.mark.parametrize("options", OPTIONS)
def test_weights_and_stats_are_those_of_chunks(options: str, v: int) -> None:
    hidden, weight, bias, labels = problem(v=v, dtype=torch.float32)
    hidden[:9] = 3 * weight[labels[:9].clamp(min=0)]
    of = {"class_weights": torch.rand(v), "token_weights": torch.randn(len(labels)), "bias": bias}
    found = list[Tensor]()
    for backend in (TRITON, CrossEntropyOptions()):
        chosen = replace(backend, **OPTIONS[options] | ({} if "reduction" in OPTIONS[options] else {"num_items": 9}))

        def loss(h: Tensor, w: Tensor, chosen: CrossEntropyOptions = chosen) -> Tensor:
            value, stats = gated_linear_cross_entropy(
                h, w, labels, gate=gate_of("some rare", v), options=chosen, return_stats=True, **of
            )
            found.append(stats.numbers)  # noqa: B023
            return value

        value, grads = gradients(loss, hidden, weight, upstream=torch.ones(23) if chosen.reduction == "none" else None)
        found += [value, *grads]
    for mine, known in zip(found[:4], found[4:], strict=True):
        assert float((mine - known).norm()) <= 1e-5 * max(1.0, float(known.norm()))


def test_float64_is_refused() -> None:
    hidden, weight, _, labels = problem()
    for options in (TRITON, LIGER):
        with pytest.raises(InputError, match=r"expected float32, bfloat16 or float16 with .* got torch.float64"):
            linear_cross_entropy(hidden, weight, labels, options=options)
