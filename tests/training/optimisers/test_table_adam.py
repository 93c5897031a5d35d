"""`TableAdam` against torch's AdamW, against loops over numbers, and in what a training does with an optimiser."""

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from uncone import InputError, TableAdam
from uncone.training.optimisers import rows
from uncone.training.optimisers.table_adam import KINDS

Tensor = torch.Tensor
V, D, STEPS = 23, 5, 50


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three rows, so that the tables here have many and a last one that is shorter."""
    monkeypatch.setattr(rows, "_IN_CACHE", 3 * D + 1)


def gradients(seed: int = 0, steps: int = STEPS, v: int = V, d: int = D, dtype: Any = torch.float64) -> list[Tensor]:
    """As of an input table: most rows have none, and rows differ a thousandfold in size."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(steps):
        g = torch.randn(v, d, generator=random, dtype=torch.float64) * torch.logspace(-2, 1, v)[:, None]
        g[torch.rand(v, generator=random) < 0.6] = 0
        found.append(g.to(dtype))
    return found


def start(v: int = V, d: int = D, dtype: Any = torch.float64) -> Tensor:
    return torch.randn(v, d, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype)


def trained(kind: str, of: list[Tensor], table: Tensor | None = None, **options: Any) -> Tensor:
    parameter = (start() if table is None else table).clone().requires_grad_()
    optimizer = TableAdam([parameter], kind, **options)
    for g in of:
        parameter.grad = g.clone()
        optimizer.step()
    return parameter.detach()


def by_the_definition(
    kind: str, of: list[Tensor], *, lr: float, betas: Any, eps: float = 1e-8, weight_decay: float = 0.0,
    decay: str = "all", max_row_norm: float | None = None
) -> Tensor:  # fmt: skip
    """Number by number, every kind from second moments of V x D numbers, as the papers and their codes have them."""
    w, (b1, b2) = start().numpy().copy(), betas
    m, v, of_columns = np.zeros((V, D)), np.zeros((V, D)), np.zeros(D)
    for t, gradient in enumerate(of, 1):
        g = gradient.numpy()
        active = [i for i in range(V) if any(g[i, j] != 0 for j in range(D))]
        for i in range(V):
            for j in range(D):
                m[i, j] = b1 * m[i, j] + (1 - b1) * g[i, j]
                v[i, j] = b2 * v[i, j] + (1 - b2) * g[i, j] ** 2
        for j in range(D):
            mean = sum(g[i, j] ** 2 for i in active) / max(len(active), 1)
            of_columns[j] = b2 * of_columns[j] + (1 - b2) * mean
        hat = v / (1 - b2**t)
        of_rows = [sum(hat[i]) / D for i in range(V)]
        for i in range(V):
            fades = decay == "all" or i in active
            for j in range(D):
                shared = {
                    "entry": hat[i, j],
                    "column": sum(hat[k, j] for k in range(V)) / V,
                    "row": of_rows[i],
                    "factored": of_rows[i] * (of_columns[j] / (1 - b2**t)) / (sum(of_rows) / V),
                }[kind]
                w[i, j] *= 1 - lr * weight_decay if fades else 1
                w[i, j] -= lr * m[i, j] / (1 - b1**t) / (shared**0.5 + eps)
            norm = sum(x * x for x in w[i]) ** 0.5
            if max_row_norm is not None and norm > max_row_norm:
                w[i] *= max_row_norm / norm
    return torch.from_numpy(w)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_entry_is_torchs_adamw(dtype: Any, near: float, weight_decay: float) -> None:
    theirs = start(dtype=dtype).requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=weight_decay)
    for g in gradients(dtype=dtype):
        theirs.grad = g.clone()
        optimizer.step()
    of = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": weight_decay}
    ours = trained("entry", gradients(dtype=dtype), start(dtype=dtype), **of)
    assert torch.allclose(ours, theirs, rtol=near, atol=near)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95)])
@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.3}, {"weight_decay": 0.3, "decay": "touched", "max_row_norm": 1.5}]
)
def test_each_kind_is_its_definition_for_50_steps(kind: str, betas: Any, options: dict[str, Any]) -> None:
    of = gradients()
    expected = by_the_definition(kind, of, lr=1e-2, betas=betas, **options)
    assert float((trained(kind, of, lr=1e-2, betas=betas, **options) - expected).abs().max()) < 1e-9
    assert float((expected - start()).abs().max()) > 0.05, "something was learnt"


def test_default_betas_are_those_of_the_kind() -> None:
    of = gradients()
    for kind in KINDS:
        betas = (0.0, 0.999) if kind == "factored" else (0.9, 0.999)
        assert torch.equal(trained(kind, of), trained(kind, of, betas=betas))
    assert not torch.equal(trained("factored", of), trained("factored", of, betas=(0.9, 0.999)))


@pytest.mark.parametrize(("kind", "floats"), [("entry", 2 * V * D), ("column", V * D + D), ("row", V * D + V)])
def test_the_state_has_as_many_numbers_as_promised(kind: str, floats: int) -> None:
    assert _floats(kind) == floats
    assert _floats(kind, betas=(0.0, 0.9)) == floats - V * D


def test_the_state_of_factored_has_v_and_d_numbers() -> None:
    assert _floats("factored") == V + D
    assert _floats("factored", betas=(0.9, 0.999)) == V * D + V + D


def _floats(kind: str, **options: Any) -> int:
    table = start().requires_grad_()
    optimizer = TableAdam([table], kind, **options)
    table.grad = gradients(steps=1)[0]
    optimizer.step()
    return sum(value.numel() for name, value in optimizer.state[table].items() if name != "step")


class _Largest(TorchDispatchMode):
    """The most numbers of a tensor that an operation makes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self._known = 0, set[int]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._known |= {one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)}
        found = function(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.untyped_storage().data_ptr() not in self._known:
            self.numbers = max(self.numbers, found.untyped_storage().nbytes() // found.element_size())
        return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_makes_no_second_table(kind: str, dtype: Any) -> None:
    table = start(dtype=dtype).requires_grad_()
    optimizer = TableAdam([table], kind, weight_decay=0.1, decay="touched", max_row_norm=1.0)
    for g in gradients(steps=2, dtype=dtype):
        table.grad = g
        with _Largest() as seen:
            optimizer.step()
    assert 0 < seen.numbers < V * D / 2


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), power=st.integers(-20, 20))
def test_the_size_of_the_loss_does_not_matter(kind: str, seed: int, power: int) -> None:
    of = gradients(seed, 4)
    moved = trained(kind, [g * 2.0**power for g in of], eps=1e-30)
    assert torch.allclose(moved, trained(kind, of, eps=1e-30), rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99))
def test_the_order_of_rows_does_not_matter(kind: str, seed: int) -> None:
    order = torch.randperm(V, generator=torch.Generator().manual_seed(seed))
    of = gradients(seed, 4)
    moved = trained(kind, [g[order] for g in of], start()[order], weight_decay=0.1, decay="touched", max_row_norm=2.0)
    known = trained(kind, of, weight_decay=0.1, decay="touched", max_row_norm=2.0)
    assert torch.allclose(moved, known[order], rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), beta1=st.sampled_from([0.0, 0.9]))
def test_column_alone_keeps_the_mean_row_of_gradients_that_add_up_to_0(seed: int, beta1: float) -> None:
    of = [g - g.mean(0) for g in gradients(seed, 10)]
    for kind in KINDS:
        drift = float((trained(kind, of, lr=0.1, betas=(beta1, 0.95)).mean(0) - start().mean(0)).abs().max())
        assert (drift < 1e-13) is (kind == "column")


def test_decay_of_touched_rows_leaves_the_others() -> None:
    g = gradients(steps=1)
    moved = trained("row", g, weight_decay=0.5, decay="touched", betas=(0.0, 0.9))
    untouched = (g[0] == 0).all(1)
    assert 0 < int(untouched.sum()) < V
    assert torch.equal(moved[untouched], start()[untouched])
    assert not torch.equal(trained("row", g, weight_decay=0.5, betas=(0.0, 0.9))[untouched], start()[untouched])


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from(KINDS), longest=st.floats(0.01, 10))
def test_no_row_is_longer_than_the_cap(kind: str, longest: float) -> None:
    assert float(trained(kind, gradients(steps=3), lr=0.1, max_row_norm=longest).norm(dim=1).max()) <= longest + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimiser_goes_on_from_its_saved_state_to_the_bit(kind: str) -> None:
    of, table = gradients(steps=20), start().requires_grad_()
    optimizer = TableAdam([table], kind, lr=0.1)
    for at, g in enumerate(of):
        if at == 10:
            saved = io.BytesIO()
            torch.save(optimizer.state_dict(), saved)
            saved.seek(0)
            table = table.detach().clone().requires_grad_()
            optimizer = TableAdam([table], kind, lr=0.7)
            optimizer.load_state_dict(torch.load(saved, weights_only=True))
        table.grad = g
        optimizer.step()
    assert torch.equal(table.detach(), trained(kind, of, lr=0.1))
    twin = copy.deepcopy(optimizer)
    assert twin.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_tables_have_wide_moments_also_after_a_resume(kind: str, dtype: Any) -> None:
    of = gradients(dtype=dtype)
    table = start(dtype=dtype).requires_grad_()
    optimizer = TableAdam([table], kind, lr=0.1)
    for at, g in enumerate(of):
        if at == 25:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = TableAdam([table], kind, lr=0.1)
            optimizer.load_state_dict(state)
        table.grad = g
        optimizer.step()
    moments = [value for name, value in optimizer.state[table].items() if name != "step"]
    assert {value.dtype for value in moments} == {torch.float32}
    assert torch.equal(table.detach(), trained(kind, of, start(dtype=dtype), lr=0.1))
    exact = trained(kind, [g.double() for g in of], start(dtype=dtype).double(), lr=0.1)
    apart = (table.detach().double() - exact).abs().max()
    assert float(apart) < STEPS * torch.finfo(dtype).eps * float(exact.abs().max()), "a rounding a step"


@pytest.mark.parametrize("saved", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_another_kind_is_refused(kind: str, saved: str) -> None:
    table = start().requires_grad_()
    state = TableAdam([table], saved).state_dict()
    if kind == saved:
        return TableAdam([table], kind).load_state_dict(state)
    with pytest.raises(InputError, match=rf"second_moment \['{kind}'\] by group, got \['{saved}'\]"):
        TableAdam([table], kind).load_state_dict(state)
    with pytest.raises(InputError, match=r"got \[None\]"):
        TableAdam([table], kind).load_state_dict(torch.optim.AdamW([table]).state_dict())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"second_moment": "rows"}, "expected second_moment 'entry' or 'column' or 'row' or 'factored', got 'rows'"),
        ({"decay": "none"}, "expected decay 'all' or 'touched'"),
        ({"betas": (0.9, 1.0)}, "expected betas of two numbers from 0 to below 1"),
        ({"lr": -1.0}, "expected lr from 0 up, got -1"),
        ({"lr": float("nan")}, "expected lr to be a finite number"),
        ({"eps": 0.0}, "expected eps above 0, got 0"),
        ({"weight_decay": -0.1}, "expected weight_decay from 0 up"),
        ({"max_row_norm": 0.0}, "expected max_row_norm above 0"),
    ],
)
def test_options_out_of_range_are_refused_in_groups_too(options: dict[str, Any], said: str) -> None:
    table = start().requires_grad_()
    with pytest.raises(InputError, match=said):
        TableAdam([table], **options)
    with pytest.raises(InputError, match=said):
        TableAdam([{"params": [table], **options}])


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected tables of shape \(V, D\), got a parameter of shape \(3,\): leave"):
        TableAdam([start().requires_grad_(), torch.zeros(3, requires_grad=True)])
    embedding = torch.nn.Embedding(V, D, sparse=True)
    optimizer = TableAdam(embedding.parameters())
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(InputError, match=r"expected a dense gradient, got one of layout torch\.sparse_coo: make"):
        optimizer.step()


def test_groups_may_be_of_several_kinds_and_a_closure_is_called() -> None:
    tables = [start().requires_grad_() for _ in KINDS]
    optimizer = TableAdam(
        [{"params": [table], "second_moment": kind} for table, kind in zip(tables, KINDS, strict=True)]
    )
    of = gradients(steps=3)

    waiting = iter(of)

    def closure() -> float:
        g = next(waiting)
        for table in tables:
            table.grad = g.clone()
        return 5.0

    for _ in of:
        assert optimizer.step(closure) == 5.0
    for table, kind in zip(tables, KINDS, strict=True):
        assert torch.equal(table.detach(), trained(kind, of))


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_begins_at_0_and_a_rate_may_be_a_tensor(kind: str) -> None:
    def run(lr: Any) -> Tensor:
        table = start().requires_grad_()
        optimizer = TableAdam([table], kind, lr=lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: t / 5)
        for t, g in enumerate(gradients(steps=5)):
            table.grad = g
            optimizer.step()
            assert torch.equal(table.detach(), start()) is (t == 0)
            schedule.step()
        return table.detach()

    assert torch.allclose(run(0.1), run(torch.tensor(0.1, dtype=torch.float64)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["column", "factored"])
def test_a_scheduler_of_momentum_does_no_harm(kind: str) -> None:
    table = start().requires_grad_()
    optimizer = TableAdam([table], kind)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    for g in gradients(steps=8):
        table.grad = g
        optimizer.step()
        schedule.step()
    assert bool(table.isfinite().all())
    assert float((table.detach() - start()).abs().max()) < 1


def test_a_gradient_scaler_skips_steps_that_overflow() -> None:
    table, scaler = start(dtype=torch.float32).requires_grad_(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer, of = TableAdam([table]), gradients(steps=3, dtype=torch.float32)
    for at, g in enumerate(of):
        before, factor = table.detach().clone(), float(scaler.get_scale())
        (scaler.scale((table * g).sum())).backward()
        if at == 1:
            assert table.grad is not None
            table.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(table.detach(), before) is (at == 1)
        assert (scaler.get_scale() < factor) is (at == 1)
        optimizer.zero_grad()
    assert torch.equal(table.detach(), trained("column", [of[0], of[2]], start(dtype=torch.float32)))


def test_every_kind_lowers_a_loss() -> None:
    random = torch.Generator().manual_seed(0)
    hidden, labels = torch.randn(200, D, generator=random), torch.randint(V, (200,), generator=random)
    for kind in KINDS:
        head = (0.01 * start(dtype=torch.float32)).requires_grad_()
        optimizer, losses = TableAdam([head], kind, lr=0.02), []
        for _ in range(60):
            loss = torch.nn.functional.cross_entropy(hidden @ head.T, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < losses[0] - 0.15, kind
