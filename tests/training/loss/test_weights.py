"""Weights of classes and tokens, what a loss notes of its targets, and retained graphs: against torch with all logits."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.reading import refuses
from uncone import InputError
from uncone.training.loss import chunked
from uncone.training.loss.loss import gated_linear_cross_entropy, linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.stats import CrossEntropyStats

from .dense import FixedGate, logits
from .test_exactness import OPTIONS, a_gate, gradients, of_loss, problem

Tensor = torch.Tensor
F = torch.nn.functional


def weights(labels: Tensor, v: int = 40, seed: int = 0) -> dict[str, Tensor]:
    """Some classes weigh nothing; some tokens too, and some less than that."""
    random = torch.Generator().manual_seed(seed)
    classes, tokens = torch.rand(v, generator=random).double(), torch.randn(len(labels), generator=random).double()
    classes[:: 2 + seed % 7] = 0.0
    tokens[1 + seed % 5 :: 5] = 0.0
    return {"class_weights": classes, "token_weights": tokens}


def by_torch(z: Tensor, labels: Tensor, options: CrossEntropyOptions, classes: Tensor, tokens: Tensor) -> Tensor:
    """`F.cross_entropy` with its own weights, times the tokens'; the z loss times both."""
    smoothing, valid = options.label_smoothing, labels != -100
    y = labels.clamp(min=0)
    each = F.cross_entropy(z, labels, weight=classes, label_smoothing=smoothing, reduction="none")
    each = each + options.z_loss * torch.where(valid, classes[y], 0.0) * z.logsumexp(-1).square()
    each = each * tokens
    if options.reduction != "mean":
        return each.sum() if options.reduction == "sum" else each
    own = torch.where(valid, classes[y] * tokens, 0.0).sum()
    return each.sum() / (own if options.num_items is None else options.num_items)


def definition(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, options: CrossEntropyOptions, gate: Any, **of: Tensor
) -> Tensor:
    """The published device, as in `dense.gated`."""
    to_states = logits(hidden, weight.detach(), bias, options)
    to_head = logits(hidden.detach(), weight, bias.detach(), options)
    if gate is not None:
        rare, g1, g2 = gate.gates()
        y = labels.clamp(min=0)
        factors = torch.where(rare[y][:, None], g2, g1).to(to_head.dtype).scatter(1, y[:, None], 1.0)
        to_head = factors * to_head + (1 - factors) * to_head.detach()
    first, again = (
        by_torch(z, labels, options, of["class_weights"], of["token_weights"]) for z in (to_states, to_head)
    )
    return first + again - again.detach()


@settings(deadline=None)
@given(OPTIONS, st.integers(0, 10**6), st.sampled_from([None, 0.3, 1.0]), st.sampled_from([None, 17]))
def test_weights_are_torchs(options: CrossEntropyOptions, seed: int, rare: float | None, items: int | None) -> None:
    hidden, weight, bias, labels = problem(seed=seed)
    gate, of = None if rare is None else a_gate(40, rare, seed), weights(labels, seed=seed)
    options = replace(options, num_items=items if options.reduction == "mean" else None)
    if options.reduction == "mean" and items is None:
        of["token_weights"] = of["token_weights"].abs() + 0.1
        of["class_weights"] += 0.1
    upstream = torch.rand(len(labels)).double() if options.reduction == "none" else torch.tensor(0.7).double()

    def ours(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return gated_linear_cross_entropy(h, w, labels, gate=gate, bias=b, options=options, **of)

    def dense(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return definition(h, w, b, labels, options, gate, **of)

    (value, found), (known, expected) = (gradients(f, hidden, weight, bias, upstream=upstream) for f in (ours, dense))
    torch.testing.assert_close(value, known, rtol=1e-11, atol=1e-11)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_mean_divides_as_torchs_and_items_take_its_place(smoothing: float) -> None:
    hidden, weight, _, labels = problem()
    of, z = weights(labels), hidden @ weight.T
    classes, tokens = of["class_weights"], of["token_weights"]
    options = CrossEntropyOptions(label_smoothing=smoothing)
    found = linear_cross_entropy(hidden, weight, labels, class_weights=classes, options=options)
    torch.testing.assert_close(found, F.cross_entropy(z, labels, weight=classes, label_smoothing=smoothing))
    each = F.cross_entropy(z, labels, label_smoothing=smoothing, reduction="none")
    found = linear_cross_entropy(hidden, weight, labels, token_weights=tokens.abs(), options=options)
    torch.testing.assert_close(found, (each * tokens.abs()).sum() / tokens.abs()[labels != -100].sum())
    found = linear_cross_entropy(hidden, weight, labels, token_weights=tokens, options=replace(options, num_items=7))
    torch.testing.assert_close(found, (each * tokens).sum() / 7)
    nothing = linear_cross_entropy(hidden, weight, labels, token_weights=torch.zeros_like(tokens), options=options)
    assert float(nothing) == 0


def test_gradcheck() -> None:
    hidden, weight, bias, labels = problem(n=7, v=9, d=3)
    of = weights(labels, 9)
    options = CrossEntropyOptions(label_smoothing=0.1, z_loss=1e-2, softcap=3.0, chunk=3, reduction="sum")
    inputs = [t.requires_grad_() for t in (hidden, weight, bias)]

    def loss(h: Tensor, w: Tensor, b: Tensor, chosen: CrossEntropyOptions = options) -> Tensor:
        return linear_cross_entropy(h, w, labels, bias=b, options=chosen, **of)

    assert torch.autograd.gradcheck(loss, inputs)
    each = replace(options, reduction="none")
    assert torch.autograd.gradcheck(lambda h, w, b: loss(h, w, b, each), inputs)


def test_a_gate_hears_of_weighted_gradients() -> None:
    hidden, weight, _, labels = problem()
    told, of = [], weights(labels)

    class Recording(FixedGate):
        def record(self, gated: Tensor, total: Tensor) -> None:
            told.append((gated, total))

    gate = Recording(*a_gate(40, 0.4).gates())
    for chunk in (4, None):
        options = CrossEntropyOptions(chunk=chunk)
        gated_linear_cross_entropy(hidden, weight.requires_grad_(), labels, gate=gate, options=options, **of)
    z = (hidden @ weight.detach().T).requires_grad_()
    each = by_torch(z, labels, CrossEntropyOptions(reduction="sum"), *of.values())
    (d,) = torch.autograd.grad(each, z)
    rare, g1, g2 = gate.gates()
    y = labels.clamp(min=0)
    factors = torch.where(rare[y][:, None], g2, g1).double().scatter(1, y[:, None], 1.0)
    for gated, total in told:
        torch.testing.assert_close(gated, ((1 - factors) * d).abs().sum())
        torch.testing.assert_close(total, d.abs().sum())


def loop(z: Tensor, labels: Tensor, z_loss: float) -> list[float]:
    """The numbers of the stats, target by target."""
    kept = [(row, int(y)) for row, y in zip(z.double(), labels, strict=True) if y != -100]
    log_sums = [float(row.exp().sum().log()) for row, _ in kept]
    nll = [lse - float(row[y]) for lse, (row, y) in zip(log_sums, kept, strict=True)]
    right = [int(row.argmax()) == y for row, y in kept]
    square = [z_loss * lse**2 for lse in log_sums]
    return [len(kept), *(sum(x) / len(kept) for x in (nll, square, right, log_sums)), max(log_sums)]


def read(stats: CrossEntropyStats) -> list[float]:
    names = ("targets", "cross_entropy", "z_loss", "accuracy", "logsumexp", "largest_logsumexp")
    return [float(getattr(stats, name)) for name in names]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gate", [None, a_gate(40, 0.4)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_stats_are_plain_whatever_the_loss_adds(reduction: str, gate: Any, weighted: bool) -> None:
    hidden, weight, bias, labels = problem(n=60)
    hidden[:9] = 3 * weight[labels[:9].clamp(min=0)]  # some are predicted
    options = CrossEntropyOptions(label_smoothing=0.3, z_loss=1e-2, softcap=4.0, reduction=reduction, chunk=7)
    of: dict[str, Any] = weights(labels) if weighted else {}
    of |= {"gate": gate, "bias": bias, "options": options}
    loss, stats = gated_linear_cross_entropy(hidden, weight.requires_grad_(), labels, return_stats=True, **of)
    known = loop(logits(hidden, weight, bias, options).detach(), labels, options.z_loss)
    assert 0.1 < known[3] < 0.9
    assert read(stats) == pytest.approx(known, rel=1e-12)
    assert not stats.numbers.requires_grad
    assert torch.equal(loss, gated_linear_cross_entropy(hidden, weight, labels, **of))


def test_stats_add_up_and_are_0_without_targets() -> None:
    hidden, weight, _, labels = problem(n=30)
    _, whole = linear_cross_entropy(hidden, weight, labels, return_stats=True)
    parts = [
        linear_cross_entropy(h, weight, y, return_stats=True)[1]
        for h, y in zip(hidden.split(13), labels.split(13), strict=True)
    ]
    assert read(parts[0] + parts[1] + parts[2]) == pytest.approx(read(whole), rel=1e-12)
    _, nothing = linear_cross_entropy(hidden, weight, torch.full_like(labels, -100), return_stats=True)
    assert read(nothing) == [0.0] * 6
    assert repr(nothing).startswith("CrossEntropyStats(targets=0, cross_entropy=0, ")
    assert read(nothing + whole) == read(whole)


def test_stats_take_no_further_product_and_no_pass_over_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    hidden, weight, _, labels = problem(n=20, v=400)
    weight.requires_grad_()

    class Large(TorchDispatchMode):
        found: list[str]

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(isinstance(a, Tensor) and a.numel() >= 10 * 400 for a in args):
                self.found.append(str(func))
            return func(*args, **(kwargs or {}))

    counted = []
    for asked in (False, True):
        with Large() as mode:
            mode.found = []
            linear_cross_entropy(hidden, weight, labels, return_stats=asked)
        counted.append(mode.found)
    assert counted[0] == counted[1]
    assert any("mm" in name for name in counted[0])


class TestRetained:
    def test_each_pass_gives_the_same_and_the_last_the_graph_back(self) -> None:
        hidden, weight, bias, labels = problem()
        _, known = of_loss(hidden, weight, labels, bias, gate=a_gate(40, 0.4), reduction="sum")
        h, w, b = leaves = [t.clone().requires_grad_() for t in (hidden, weight, bias)]
        options, gate = CrossEntropyOptions(reduction="sum"), a_gate(40, 0.4)
        loss = gated_linear_cross_entropy(h, w, labels, gate=gate, bias=b, options=options)
        loss.backward(retain_graph=True)
        for leaf, expected in zip(leaves, known, strict=True):
            torch.testing.assert_close(leaf.grad, expected)
            leaf.grad.mul_(100)  # what was given out is the user's
            leaf.grad = None
        loss.backward(torch.tensor(-3.0).double(), retain_graph=True)
        (3 * loss).backward()
        for leaf, expected in zip(leaves, known, strict=True):
            torch.testing.assert_close(leaf.grad, torch.zeros_like(expected), atol=1e-12, rtol=0)
        with pytest.raises(RuntimeError, match="used already: give the first backward pass retain_graph=True"):
            loss.backward()

    def test_two_losses_of_one_graph(self) -> None:
        """A penalty's gradient is taken first, as gradient balancing does."""
        hidden, weight, _, labels = problem()
        w = weight.clone().requires_grad_()
        loss = linear_cross_entropy(hidden, w, labels)
        (alone,) = torch.autograd.grad(loss, w, retain_graph=True)
        (loss + w.square().sum()).backward()
        torch.testing.assert_close(w.grad, alone + 2 * weight)

    def test_without_retaining_nothing_is_kept_or_copied(self) -> None:
        hidden, weight, _, labels = problem()
        w, found = weight.clone().requires_grad_(), []
        loss = linear_cross_entropy(hidden, w, labels)
        kept = loss.grad_fn.gradients[1]
        w.register_hook(lambda grad: found.append(grad.data_ptr()))
        loss.backward()
        assert found == [kept.data_ptr()]
        assert loss.grad_fn.gradients is None

    def test_a_torch_that_cannot_say_keeps_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(torch._C._autograd, "_get_current_graph_task_keep_graph")
        assert chunked._keeps_the_graph()


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                {"class_weights": torch.ones(41)},
                r"expected class_weights of shape \(40,\), got \(41,\): give one per id",
            ),
            (
                {"token_weights": torch.ones(22)},
                r"expected token_weights of shape \(23,\), got \(22,\): give one per label",
            ),
            ({"class_weights": -torch.ones(40)}, "expected class_weights of at least 0, got others"),
            ({"token_weights": torch.full((23,), torch.nan)}, "expected finite token_weights, got others"),
            (
                {"class_weights": torch.ones(40, dtype=torch.cfloat)},
                "expected class_weights as a tensor of numbers on cpu",
            ),
            ({"token_weights": torch.ones(23, requires_grad=True)}, "expected token_weights without gradients"),
        ],
        ids=str,
    )
    def test_other_weights(self, given: dict[str, Any], message: str) -> None:
        hidden, weight, _, labels = problem()
        refuses(message, linear_cross_entropy, hidden, weight, labels, **given)

    @pytest.mark.parametrize("given", [{"return_stats": True}, {"class_weights": torch.ones(40)}], ids=str)
    @pytest.mark.parametrize("backend", ["wrap:torch", "wrap:liger", "wrap:cce"])
    def test_kernels_of_other_packages(self, backend: str, given: dict[str, Any]) -> None:
        hidden, weight, _, labels = problem(dtype=torch.float32)
        with pytest.raises(InputError, match=f"expected neither weights nor return_stats.*{backend}.*backend='chunk'"):
            linear_cross_entropy(hidden, weight, labels, options=CrossEntropyOptions(backend=backend), **given)
