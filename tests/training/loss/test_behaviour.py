"""Precision, memory, autocast, compilation, and everything that is refused."""

import math
from typing import Any

import pytest
import torch

from tests.rows.reading import refuses
from uncone import InputError
from uncone.training.loss import chunked
from uncone.training.loss.loss import gated_linear_cross_entropy, linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import Problem, shard_of

from .dense import FixedGate
from .test_exactness import a_gate, gradients, of_loss, problem

Tensor = torch.Tensor


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_heads_gradient_is_summed_in_float32(dtype: torch.dtype) -> None:
    """4,096 equal contributions in chunks of 1: a sum in bfloat16 stops growing at 256 of them."""
    hidden, weight = torch.ones(4096, 2, dtype=dtype), torch.zeros(4, 2, dtype=dtype)
    _, (_, found) = of_loss(hidden, weight, torch.zeros(4096, dtype=torch.int64), reduction="sum", chunk=1)
    assert found.dtype == dtype
    assert found[:, 0].tolist() == [-3072, 1024, 1024, 1024]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3), (torch.float32, 1e-5)])
def test_narrow_inputs_come_near_the_exact_value(dtype: torch.dtype, tolerance: float) -> None:
    hidden, weight, bias, labels = (t.to(dtype) if t.is_floating_point() else t for t in problem(n=60))
    gate = a_gate(len(weight), 0.4)
    value, found = of_loss(hidden, weight, labels, bias, gate=gate)
    exact, known = of_loss(hidden.double(), weight.double(), labels, bias.double(), gate=gate)
    assert value.dtype == torch.float32
    assert float(value) == pytest.approx(float(exact), rel=tolerance)
    for mine, other in zip(found, known, strict=True):
        assert mine.dtype == dtype
        assert float((mine.double() - other).norm() / other.norm()) < tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_narrow_inputs_err_no_more_than_the_dense_way(dtype: torch.dtype, autocast: bool) -> None:
    """Logits in the narrow dtype and torch's cross-entropy. The floor is a tenth of the dtype's rounding unit."""
    hidden, weight, _, labels = problem(n=300, v=200, d=32, dtype=torch.float32)
    hidden, weight = hidden.to(dtype), (weight / 4).to(dtype)
    leaves = (hidden.float(), weight.float()) if autocast else (hidden, weight)

    def ours(h: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            return linear_cross_entropy(h, w, labels, options=CrossEntropyOptions(chunk=16))

    def dense(h: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype, enabled=autocast and h.dtype == torch.float32):
            return torch.nn.functional.cross_entropy(h @ w.T, labels)

    exact, known = gradients(dense, hidden.double(), weight.double())
    (value, found), (rival, others) = gradients(ours, *leaves), gradients(dense, *leaves)
    floor = 0.1 * torch.finfo(dtype).eps
    for mine, other, true in zip([value, *found], [rival, *others], [exact, *known], strict=True):
        errors = [float((one.double() - true).norm()) for one in (mine, other)]
        assert errors[0] <= errors[1] + floor * float(true.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_heads_gradient_rounds_no_chunk(dtype: torch.dtype) -> None:
    """Under autocast into a float32 head it has float32's digits wherever states and probabilities have few: halves here."""
    labels = torch.zeros(64, dtype=torch.int64)
    hidden = torch.tensor([[1.0], [2**-10]]).repeat(32, 1)

    def loss(w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return linear_cross_entropy(hidden, w, labels, options=CrossEntropyOptions(reduction="sum", chunk=2))

    _, (found,) = gradients(loss, torch.zeros(2, 1))
    assert found.flatten().tolist() == [-16 * (1 + 2**-10), 16 * (1 + 2**-10)]


def test_autocast_decides_the_products() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)

    def under(h: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear_cross_entropy(h, w, labels)

    value, found = gradients(under, hidden, weight)
    narrow = of_loss(hidden.bfloat16(), weight.bfloat16(), labels)
    assert float(value) == float(narrow[0])
    assert value.dtype == torch.float32
    for mine, other in zip(found, narrow[1], strict=True):
        assert mine.dtype == torch.float32
        assert float((mine - other.float()).norm() / mine.norm()) < 1e-2
    mixed = gradients(under, hidden.bfloat16(), weight)  # what a model under autocast gives its head
    assert float(mixed[0]) == float(value)
    assert (mixed[1][0].dtype, mixed[1][1].dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("gate", [None, a_gate(40, 0.3)])
def test_no_more_than_a_chunk_of_logits_is_held(gate: FixedGate | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix with a column for each id is as long as a chunk; they are counted as they are allocated."""
    shapes: list[tuple[int, ...]] = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            shapes.extend(tuple(t.shape) for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor))
            return out

    hidden, weight, _, labels = problem(n=64)
    h, w = hidden.requires_grad_(), weight.requires_grad_()
    options = CrossEntropyOptions(chunk=5, label_smoothing=0.1)
    with Recorder():
        gated_linear_cross_entropy(h, w, labels, gate=gate, options=options).backward()
    with_ids = [shape for shape in shapes if len(shape) == 2 and shape[1] == len(weight)]
    assert with_ids
    assert max(n for n, _ in with_ids if n != weight.shape[1]) <= 5  # a view of W' has as many columns, and 7 rows


def test_without_gradients_none_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, _, labels = problem()
    h, w = hidden.requires_grad_(), weight.requires_grad_()
    monkeypatch.setattr(chunked.Sweep, "_multiply", None)
    with torch.no_grad():
        assert bool(linear_cross_entropy(h, w, labels) > 0)


@pytest.mark.parametrize("backend", ["chunk", "wrap:torch"])
def test_gradients_are_given_out_once(backend: str) -> None:
    hidden, weight, _, labels = problem()
    h, options = hidden.clone().requires_grad_(), CrossEntropyOptions(backend=backend)
    loss = linear_cross_entropy(h, weight, labels, options=options)
    loss.backward(retain_graph=backend != "chunk")  # which keeps them then: test_weights.py
    with pytest.raises(RuntimeError, match=r"used already: .*compute the loss again"):
        loss.backward()
    with pytest.raises(RuntimeError, match="create_graph=True would treat them as constants"):
        torch.autograd.grad(linear_cross_entropy(h, weight, labels, options=options), h, create_graph=True)


def test_a_weight_of_targets_reaches_every_gradient() -> None:
    """With the reduction "none", each target's upstream gradient is folded in before the products."""
    hidden, weight, _, labels = problem()
    upstream = torch.zeros(len(labels), dtype=torch.float64)
    at = int((labels != -100).nonzero()[3])
    upstream[at] = 2.0
    _, found = of_loss(hidden, weight, labels, reduction="none", upstream=upstream)
    _, alone = gradients(lambda h, w: 2 * linear_cross_entropy(h[at : at + 1], w, labels[at : at + 1]), hidden, weight)
    assert all(torch.allclose(a, b, atol=1e-14) for a, b in zip(found, alone, strict=True))


class TestRefused:
    def test_labels_out_of_range(self) -> None:
        hidden, weight, _, labels = problem()
        for wrong in (40, -1):
            labels[4] = wrong
            with pytest.raises(InputError, match=f"expected labels from 0 to 39 or -100 .*got {wrong} at position 4 "):
                linear_cross_entropy(hidden, weight, labels)

    def test_shapes_and_dtypes(self) -> None:
        hidden, weight, bias, labels = problem()
        whole = {"hidden": hidden, "weight": weight, "bias": bias, "labels": labels}
        for change, message in [
            ({"hidden": hidden[:, :3]}, "expected hidden of shape"),
            ({"weight": weight[0]}, "expected hidden of shape"),
            ({"labels": labels[:5]}, r"expected labels of shape \(23,\)"),
            ({"labels": labels.double()}, "expected labels as int64"),
            ({"bias": bias[:3]}, r"expected a bias of shape \(40,\)"),
            ({"hidden": hidden.float()}, "of the same dtype"),
            ({"hidden": hidden.to(torch.int64)}, "expected hidden in float64"),
            ({"weight": weight.to("meta")}, "on one device, got cpu and meta"),
            ({name: x.to("meta") for name, x in whole.items()}, "expected tensors with values, got one on meta"),
        ]:
            refuses(message, linear_cross_entropy, **whole | change)

    def test_options(self) -> None:
        wrong: list[dict[str, Any]] = [{"reduction": "max"}, {"label_smoothing": 1.1}, {"z_loss": -1.0}]
        wrong += [{"softcap": 0.0}, {"logit_scale": 0.0}, {"chunk": 0}, {"reduction": "sum", "num_items": 3}]
        wrong += [{"num_items": items} for items in (-1, math.nan, torch.tensor([3, 3]), torch.tensor(3j))]
        wrong += [{name: 10**400} for name in ("ignore_index", "chunk", "num_items")]
        names = ("label_smoothing", "z_loss", "softcap", "logit_scale")
        dtypes = (torch.float64, torch.float32, torch.bfloat16)
        wrong += [{name: value} for name in names for value in (math.nan, 10**400, 1e300)]
        numbers = (-1.0, math.nan, math.inf)
        wrong += [{"num_items": torch.tensor(number, dtype=dtype)} for number in numbers for dtype in dtypes]
        for options in wrong:
            refuses(f"expected.*{next(iter(options))[:5]}", CrossEntropyOptions, **options)

    def test_a_label_outside_where_none_is_ignored(self) -> None:
        hidden, weight, _, labels = problem()
        labels[:3], labels[3:] = 1, -100
        with pytest.raises(InputError, match=r"expected labels from 0 to 39, got -100 at position 3"):
            linear_cross_entropy(hidden, weight, labels, options=CrossEntropyOptions(ignore_index=None))

    def test_a_gate_for_another_vocabulary(self) -> None:
        hidden, weight, _, labels = problem()
        said = r"expected gates for the head's 40 ids.*make the gate for this vocabulary"
        refuses(said, gated_linear_cross_entropy, hidden, weight, labels, gate=a_gate(41, 0.5))

    @pytest.mark.parametrize(
        ("factor", "message"), [(4.0, "amplifies"), (-0.1, "reverses it"), (math.nan, "expected g1")]
    )
    def test_a_gate_that_amplifies(self, factor: float, message: str) -> None:
        hidden, weight, _, labels = problem()
        gate = FixedGate(torch.arange(40) > 20, torch.full((40,), factor), torch.ones(40))
        refuses(message, gated_linear_cross_entropy, hidden, weight, labels, gate=gate)

    def test_a_gate_off_its_rare_ids(self) -> None:
        hidden, weight, _, labels = problem()

        class Wrong:
            def gates(self) -> tuple[Tensor, Tensor, Tensor]:
                return torch.zeros(40, dtype=torch.bool), torch.full((40,), 0.5), torch.ones(40)

        with pytest.raises(InputError, match="expected g1 to be 1 for every id that is not rare"):
            gated_linear_cross_entropy(hidden, weight, labels, gate=Wrong())

    @pytest.mark.parametrize("gate", [None, a_gate(40, 0.5)])
    @pytest.mark.parametrize("reduction", ["mean", "none"])
    @pytest.mark.parametrize(
        ("name", "at", "value", "message"),
        [
            ("hidden", (7, 2), math.nan, "hidden states without NaN, got 1 of 23 with NaN, first at position 7"),
            (
                "hidden",
                (7, 2),
                math.inf,
                "hidden states without infinity, got 1 of 23 with infinity, first at position 7",
            ),
            ("weight", (31, 2), math.nan, "a head without NaN, got 1 of 40 rows with NaN, first row 31: look for"),
            ("weight", (31, 2), -math.inf, "a head without infinity, got 1 of 40 rows with infinity, first row 31"),
            ("bias", (31,), math.nan, "a bias without NaN, got 1 of 40 with NaN, first for id 31: look for"),
            ("bias", (31,), math.inf, "a bias without infinity, got 1 of 40 with infinity, first for id 31"),
        ],
    )
    def test_what_is_not_finite(
        self, name: str, at: tuple[int, ...], value: float, message: str, gate: FixedGate | None, reduction: str
    ) -> None:
        given = dict(zip(("hidden", "weight", "bias", "labels"), problem(), strict=True))
        given["labels"][:] = 1
        given[name][at] = value
        with pytest.raises(InputError, match=message):
            gated_linear_cross_entropy(**given, gate=gate, options=CrossEntropyOptions(reduction=reduction))

    def test_ignored_states_are_not_named(self) -> None:
        hidden, weight, _, labels = problem()
        hidden[labels == -100] = weight[5, 0] = float("nan")
        refuses("expected a head without NaN", linear_cross_entropy, hidden, weight, labels)


def test_the_default_chunk_fits_its_buffer() -> None:
    hidden, weight, _, labels = problem(n=1700, v=30_000, d=3, dtype=torch.float32)
    given = Problem(CrossEntropyOptions(), labels, labels >= 0, None, torch.float32, shard_of(weight, None))
    sweep = chunked.Sweep(hidden, weight, None, given, (False,) * 3)
    sweep.run()
    assert 130 * 2**20 <= sweep._chunk * 30_000 * 4 <= 144 * 2**20


@pytest.mark.parametrize("items", [8, 8.0, torch.tensor(8), torch.tensor([8]), torch.tensor(8.0).bfloat16()], ids=repr)
@pytest.mark.parametrize("backend", ["chunk", "wrap:torch"])
def test_items_divide_in_whatever_form(backend: str, items: Any) -> None:
    hidden, weight, _, labels = problem()
    total = linear_cross_entropy(hidden, weight, labels, options=CrossEntropyOptions(reduction="sum"))
    found = linear_cross_entropy(hidden, weight, labels, options=CrossEntropyOptions(num_items=items, backend=backend))
    torch.testing.assert_close(found, total / 8)


@pytest.mark.parametrize("scale", [1e-30, 1e19, 1e30, 1e37])
def test_large_logits_have_a_loss_as_long_as_there_are_any(scale: float) -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    dtypes = (torch.float32, torch.float64)
    found, known = (of_loss((hidden * scale).to(dtype), weight.to(dtype), labels) for dtype in dtypes)
    torch.testing.assert_close(found[0].double(), known[0])
    assert float((found[1][1].double() - known[1][1]).norm()) <= 1e-5 * float(known[1][1].norm())
