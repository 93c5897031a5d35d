"""The cosine penalty against all pairs, its gradient, and what it does to a table that has no directions."""

import copy
import inspect
import math
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import uncone
from uncone import CosinePenalty, InputError
from uncone.training.penalties import cosine

from .tables import by_pairs, table

Tensor = torch.Tensor
MASK = torch.arange(40) % 3 == 0
GROUPS: dict[str, Any] = {"all": None, "mask": MASK, "ids": [5, 3, 39, 0], "array": MASK.numpy(), "one": [7]}


def found(penalty: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    value = penalty(x)
    value.backward()
    assert x.grad is not None
    return value.detach(), x.grad


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("blocks", [7, 2**19])
def test_it_is_the_mean_over_pairs(name: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cosine, "_ON_CPU", blocks * 6)
    x, rows = table(40, 6), GROUPS[name]
    value, gradient = found(CosinePenalty(1.7, rows=rows), x)
    ids = torch.arange(40) if rows is None else torch.as_tensor(rows)
    known, slope = found(lambda w: 1.7 * by_pairs(w[ids]), x)
    assert float(value) == pytest.approx(float(known), rel=1e-12, abs=1e-15)
    assert torch.allclose(gradient, slope, rtol=1e-10, atol=1e-15)
    named = torch.zeros(40, dtype=torch.bool)
    named[ids] = True
    assert bool((gradient[~named] == 0).all())


def test_it_is_a_slow_loop() -> None:
    x, total = table(9, 3), 0.0
    for i in range(9):
        for j in range(9):
            if i != j:
                total += float(x[i] @ x[j] / (x[i].norm() * x[j].norm()))
    assert float(CosinePenalty()(x)) == pytest.approx(total / 81, rel=1e-12)


def test_its_gradient_is_the_slope() -> None:
    assert torch.autograd.gradcheck(CosinePenalty(3.0), table(8, 3).requires_grad_())
    assert torch.autograd.gradcheck(CosinePenalty(rows=[1, 4, 5]), table(8, 3).requires_grad_())


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 6))
def test_what_it_does_not_see(seed: int, v: int, d: int) -> None:
    x, penalty = table(v, d, seed), CosinePenalty()
    value, gradient = found(penalty, x)
    rotation, lengths = torch.linalg.qr(table(d, d, seed + 1))[0], table(v, 1, seed + 2).abs() + 0.1
    order = torch.randperm(v, generator=torch.Generator().manual_seed(seed))
    for moved, known in ((x @ rotation, gradient @ rotation), (x * lengths, gradient / lengths)):
        again, slope = found(penalty, moved)
        assert float(again) == pytest.approx(float(value), abs=1e-12)
        assert torch.allclose(slope, known, atol=1e-10)
    again, slope = found(penalty, x[order])
    assert float(again) == pytest.approx(float(value), abs=1e-12)
    assert torch.allclose(slope, gradient[order], atol=1e-12)
    assert -1 / v - 1e-12 <= float(value) <= 1 - 1 / v + 1e-12
    assert bool(((gradient * x).sum(1).abs() < 1e-12).all()), "a row turns, and does not grow"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of", ["alike", "zeros", "all but one zeros", "opposite"])
def test_collapsed_tables(of: str, dtype: torch.dtype) -> None:
    x = torch.zeros(50, 8, dtype=dtype)
    if of in ("alike", "opposite"):
        x += torch.linspace(-1, 2, 8).to(dtype)
    if of == "opposite":
        x[::2] *= -1
    if of == "all but one zeros":
        x[3] = 1
    value, gradient = found(CosinePenalty(), x)
    known = {"alike": 49 / 50, "opposite": -1 / 50}.get(of, 0.0)
    assert float(value) == pytest.approx(known, abs=1e-6)
    assert float(gradient.abs().max()) < 1e-6


def test_a_row_without_direction_counts_as_zero() -> None:
    x = table(20, 5)
    x[4] = 0
    value, gradient = found(CosinePenalty(), x)
    others = torch.arange(20) != 4
    known, slope = found(lambda w: by_pairs(w) * (19 / 20) ** 2, x[others])
    assert float(value) == pytest.approx(float(known), rel=1e-12)
    assert torch.allclose(gradient[others], slope, rtol=1e-10)
    assert bool((gradient[4] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_sums_are_in_float32(dtype: torch.dtype, autocast: bool) -> None:
    x = (table(4000, 64) + 1).to(dtype)
    exact, slope = found(CosinePenalty(), x.double())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        value, gradient = found(CosinePenalty(), x)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    assert float(value) == pytest.approx(float(exact), rel=1e-6)
    if dtype != torch.float16:  # below its smallest numbers
        # the gradient is rounded once to its dtype; a BLAS may add row after row, and their roundings walk at random
        rounding = torch.finfo(dtype).eps + math.sqrt(len(x)) * torch.finfo(torch.float32).eps
        assert float((gradient - slope).abs().max()) < rounding * float(slope.abs().max())


def test_lengths_at_the_ends_of_float32() -> None:
    x = table(30, 4).float()
    value, gradient = found(CosinePenalty(), x)
    for scale in (1e-17, 1e17):
        again, slope = found(CosinePenalty(), x * scale)
        assert float(again) == pytest.approx(float(value), abs=1e-7)
        assert torch.allclose(slope * scale, gradient, rtol=1e-4, atol=1e-8)


class Loads(TorchDispatchMode):
    """Bytes that come from memory, or go there, where a cache holds the block of each matrix that was used last."""

    def __init__(self, *matrices: Tensor) -> None:
        super().__init__()
        self.held: dict[int, tuple[int, int]] = {}
        self.sizes = {m.untyped_storage().data_ptr(): m.untyped_storage().nbytes() for m in matrices}
        self.like, self.bytes, self.largest = matrices[0].untyped_storage().nbytes(), 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        only_shapes = function.is_view or "empty" in str(function) or "new_" in str(function)
        for t in [] if only_shapes else [*args, *(kwargs or {}).values(), result]:
            if not isinstance(t, Tensor):
                continue
            place, size = t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()
            if place not in self.sizes and size < self.like:
                self.largest = max(self.largest, size)
                continue
            block = (t.storage_offset(), t.numel())
            if self.held.get(place) != block:
                self.held[place] = block
                self.bytes += t.numel() * t.element_size()
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_value_and_gradient_take_three_passes(dtype: torch.dtype) -> None:
    x = table(30000, 256).to(dtype).requires_grad_()
    with Loads(x) as loads:
        CosinePenalty()(x).backward()
    matrix = x.numel() * x.element_size()
    assert loads.bytes <= 3 * matrix
    assert loads.bytes >= 3 * matrix * 0.99, "two are read and one is written"
    assert loads.largest <= 4 * 2**19, "blocks that a cache holds"


def test_the_counting_of_passes_counts() -> None:
    x = table(30000, 256).float()
    with Loads(x) as loads:
        torch.linalg.vector_norm(x, dim=1)
        torch.sum(x, dim=0)
        x[:100].sum()
        x[:100].sum()
    assert loads.bytes == x.numel() * 4 + 100 * 256 * 4


def test_it_is_copied_and_said() -> None:
    penalty = CosinePenalty(0.5, rows=[1, 2])
    assert repr(penalty) == "CosinePenalty(0.5, rows=2 rows)"
    assert repr(CosinePenalty()) == "CosinePenalty(1)"
    for again in (copy.deepcopy(penalty), pickle.loads(pickle.dumps(penalty))):
        assert float(again(table(40, 6))) == float(penalty(table(40, 6)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weight": -1}, "expected weight to be a number from 0 up, got -1"),
        ({"weight": float("nan")}, "expected weight to be a number from 0 up, got nan"),
        ({"weight": True}, "expected weight to be a number from 0 up, got True"),
        ({"rows": "all"}, "expected rows as a bool mask or ids, got 'all'"),
        ({"rows": [0.5]}, r"expected rows as a bool mask \(V,\) or ids \(n,\), got \(1,\) of torch.float32"),
        ({"rows": [[1]]}, r"got \(1, 1\) of torch.int64: pass one of them"),
        ({"rows": torch.zeros(4, dtype=torch.bool)}, "name at least one row, each once, got none"),
        ({"rows": [1, 1]}, "each once, got an id twice"),
        ({"rows": [-1, 1]}, "each once, got a negative id"),
    ],
)
def test_settings_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        CosinePenalty(**options)


@pytest.mark.parametrize(
    ("given", "rows", "said"),
    [
        ([[1.0]], None, r"expected the rows of a table \(V, D\) in floating point, got list"),
        (torch.ones(3), None, r"got \(3,\) of torch.float32: pass its weight"),
        (torch.ones(3, 2, dtype=torch.int64), None, r"got \(3, 2\) of torch.int64"),
        (torch.ones(3, 2, device="meta"), None, r"got \(3, 2\) of torch.float32 on meta"),
        (torch.ones(0, 2), None, r"got \(0, 2\) of torch.float32: pass its weight"),
        (torch.ones(3, 2), [3], "expected rows among the 3 of the table, got id 3"),
        (torch.ones(3, 2), torch.ones(4, dtype=torch.bool), "got a mask of 4: name rows of this table"),
        (torch.full((3, 2), torch.nan), None, "got 3 of 3 rows with NaN, infinity or a length that overflows, first"),
        (torch.full((3, 2), 1e30), None, "3 of 3 rows with NaN, infinity or a length that overflows, first row 0"),
        (torch.tensor([[torch.inf, 1], [1, 1], [torch.inf, 1]]), [1, 2], "got 1 of 2 rows .* first row 2: look for"),
    ],
)
def test_tables_that_are_refused(given: Any, rows: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inspect.unwrap(CosinePenalty.__call__)(
            CosinePenalty(rows=rows), given
        )  # without the tests' own checks of types


def test_rows_that_are_left_out_need_not_be_finite() -> None:
    x = table(40, 6)
    value, gradient = found(CosinePenalty(rows=MASK), x)
    x[1] = torch.nan
    again, slope = found(CosinePenalty(rows=MASK), x)
    assert torch.equal(value, again)
    assert torch.equal(gradient, slope)


def test_descent_opens_a_cone() -> None:
    x = torch.nn.Parameter(table(200, 16).float() + 2)
    optimizer = torch.optim.SGD([x], lr=5000.0)
    before = float(CosinePenalty()(x.detach()))
    for _ in range(100):
        optimizer.zero_grad()
        CosinePenalty()(x).backward()
        optimizer.step()
    assert before > 0.5
    after = float(CosinePenalty()(x.detach()))
    assert abs(after) < 0.01
    assert float(uncone.measure.mean_cosine(x.detach())) == pytest.approx(after * 200 / 199, abs=1e-5)
