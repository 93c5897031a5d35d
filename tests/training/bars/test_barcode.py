"""What a barcode promises: shapes, groups, edge cases, gradients, stability."""

import importlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.reading import refuses
from tests.training.bars.hard_clouds import kruskal, randn, seeded, squares
from uncone.errors import InputError
from uncone.training.bars import lengths
from uncone.training.bars.barcode import Barcode, barcode
from uncone.training.bars.bars import persistent_entropy
from uncone.training.bars.trees import Algorithm, forced

ALGORITHMS = ["compiled", "torch", "one pass"]


def points(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return randn(n, d, seed=seed, dtype=dtype)


def by(algorithm: str, *args: Any, **options: Any) -> Barcode:
    with forced(algorithm):  # type: ignore[arg-type]
        return barcode(*args, **options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_edges_and_lengths_of_a_known_cloud(algorithm: Algorithm) -> None:
    found = by(algorithm, torch.tensor([[0.0, 0], [0, 2], [3, 2], [3, 3]]))
    assert found.lengths.tolist() == [1, 2, 3]
    assert found.edges.tolist() == [[2, 3], [0, 1], [1, 2]]
    assert found.bars.tolist() == [3]
    assert found.labels.tolist() == [0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ties_go_by_the_smaller_then_the_larger_row(algorithm: Algorithm) -> None:
    for seed in range(4):
        x = torch.randint(0, 3, (23, 3), generator=seeded(seed)).float()
        squared, *edges = zip(*kruskal(squares(x)), strict=True)
        found = by(algorithm, x)
        assert found.edges.T.tolist() == [list(ends) for ends in edges]
        torch.testing.assert_close(found.lengths.double(), torch.tensor(squared, dtype=torch.float64).sqrt())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "shape", [(0, 3), (1, 3), (2, 3), (3, 3), (3, 0), (0, 4, 2), (2, 0, 3), (2, 1, 3), (2, 2, 3), (3, 5, 2)]
)
def test_few_points(algorithm: Algorithm, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape).requires_grad_()
    found = by(algorithm, x)
    clouds, n = (1, shape[0]) if len(shape) == 2 else shape[:2]
    assert found.bars.tolist() == [max(n - 1, 0)] * clouds
    assert found.labels.tolist() == list(range(clouds))
    assert found.lengths.shape == (clouds * max(n - 1, 0),)
    assert found.edges.shape == (len(found.lengths), 2)
    assert found.edges.dtype == found.bars.dtype == torch.int64
    found.lengths.sum().backward()
    assert x.grad.shape == x.shape
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_identical_points_have_bars_of_length_zero_that_pull_nowhere(algorithm: Algorithm) -> None:
    x = torch.full((6, 4), 2.5, requires_grad=True)
    found = by(algorithm, x)
    assert found.lengths.tolist() == [0] * 5
    assert found.edges.tolist() == [[0, i] for i in range(1, 6)]
    assert found.zero.tolist() == [5]
    found.lengths.sum().backward()
    assert not x.grad.any()


def test_bars_of_length_zero_are_counted_by_group() -> None:
    found = barcode(torch.cat([points(4, 3).repeat(2, 1), points(3, 3, 1)]), torch.tensor([1] * 8 + [0] * 3))
    assert found.labels.tolist() == [0, 1]
    assert found.zero.tolist() == [0, 4]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_groups_are_clouds_of_their_own(algorithm: Algorithm) -> None:
    x = points(250, 17)
    labels = torch.tensor([-7, 3, 4, 90])[torch.randint(0, 4, (250,), generator=seeded(1))]
    labels[:210] = 4  # one large, the others small
    labels[249] = 1000  # and one alone
    with forced(algorithm):
        found = barcode(x, labels)
        assert found.labels.tolist() == sorted(set(labels.tolist()))
        begin = 0
        for label, bars, lengths in zip(found.labels, found.bars.tolist(), found.split(), strict=True):
            rows = (labels == label).nonzero().flatten()
            alone = barcode(x[rows])
            assert bars == len(rows) - 1
            torch.testing.assert_close(lengths, alone.lengths, rtol=1e-6, atol=0)
            assert torch.equal(found.edges[begin : begin + bars], rows[alone.edges])
            begin += bars


def test_clouds_of_one_size_are_rows_of_the_flattened_points() -> None:
    x = points(60, 5).view(4, 15, 5)
    as_groups = barcode(x.flatten(0, 1), torch.arange(4).repeat_interleave(15))
    found = barcode(x)
    assert torch.equal(found.edges, as_groups.edges)
    assert torch.equal(found.lengths, as_groups.lengths)


@pytest.mark.parametrize("algorithm", ["compiled", "torch"])
def test_gradient_is_that_of_the_lengths(algorithm: Algorithm) -> None:
    x = points(12, 3, dtype=torch.float64).requires_grad_()
    groups = torch.arange(12) % 3
    weights = torch.linspace(-1, 2, 9, dtype=torch.float64)
    with forced(algorithm):
        assert torch.autograd.gradcheck(lambda p: barcode(p, groups).lengths * weights, x)
        assert torch.autograd.gradcheck(lambda p: barcode(p.view(3, 4, 3)).lengths, x)
        assert torch.autograd.gradgradcheck(lambda p: barcode(p[:6]).lengths, x)


@pytest.mark.parametrize(
    ("points", "slope"),
    [
        ([[0.0, 0], [3, 4], [3, 4]], [[-0.6, -0.8], [0.6, 0.8], [0, 0]]),
        ([[0.0, 0], [1e-39, 0], [0, 2]], [[-1.0, -1], [1, 0], [0, 1]]),  # closer than the smallest normal float
    ],
)
def test_gradient_is_the_unit_vector_along_each_edge(points: list[list[float]], slope: list[list[float]]) -> None:
    x = torch.tensor(points, requires_grad=True)
    barcode(x).lengths.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor(slope))


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-65, 2.0**65, 2.0**100])
def test_gradient_of_a_scaled_cloud_is_that_of_the_cloud(scale: float) -> None:
    slopes = []
    for by in (1.0, scale):
        x = (points(30, 5) * by).requires_grad_()
        persistent_entropy(barcode(x).lengths).backward()
        slopes.append(x.grad * by)
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-4, atol=1e-6)


def test_the_same_numbers_come_out_each_time() -> None:
    x = points(700, 40)
    grads = []
    for _ in range(3):
        leaf = x.clone().requires_grad_()
        grads += torch.autograd.grad((barcode(leaf).lengths ** 1.5).sum(), leaf)
    assert all(torch.equal(grads[0], again) for again in grads[1:])


def test_threads_change_nothing() -> None:
    x, found = points(530, 24), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(barcode(x))
        assert torch.get_num_threads() == threads
    assert all(torch.equal(getattr(found[0], name), getattr(found[1], name)) for name in ("edges", "lengths"))


def test_more_than_one_block_of_the_product_and_of_the_search() -> None:
    for x in (points(300, 24), points(150, 24).repeat(2, 1) + 1e-6 * points(300, 24, 1)):
        found = [by(algorithm, x) for algorithm in ("compiled", "torch")]
        torch.testing.assert_close(found[0].lengths, found[1].lengths, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(dtype: torch.dtype) -> None:
    x = points(220, 32).to(dtype).requires_grad_()
    found = barcode(x)
    assert found.lengths.dtype == torch.float32
    assert torch.equal(found.lengths, barcode(x.detach().float()).lengths)
    found.lengths.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_autocast_and_coarse_products_change_nothing(algorithm: Algorithm) -> None:
    x = points(300, 64)
    with forced(algorithm):
        expected = barcode(x)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            with torch.autocast("cpu", torch.bfloat16):
                found = barcode(x)
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.set_float32_matmul_precision(before)
    assert torch.equal(found.edges, expected.edges)
    assert torch.equal(found.lengths, expected.lengths)


@given(st.integers(2, 40), st.integers(1, 30), st.floats(1e-6, 1), st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_bars_move_no_further_than_distances(n: int, d: int, noise: float, seed: int) -> None:
    x = points(n, d, seed, torch.float64)
    y = x + noise * points(n, d, seed + 1, torch.float64)
    eps = float((torch.cdist(x, x) - torch.cdist(y, y)).abs().max())
    assert float((barcode(x).lengths - barcode(y).lengths).abs().max()) <= eps + 1e-12


@given(st.integers(2, 40), st.integers(1, 30), st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_lengths_do_not_depend_on_the_order_of_points_or_a_shift(n: int, d: int, seed: int) -> None:
    x = points(n, d, seed, torch.float64)
    mixed = x[torch.randperm(n, generator=seeded(seed))] + points(1, d, seed + 1, torch.float64)
    torch.testing.assert_close(barcode(mixed).lengths, barcode(x).lengths, rtol=1e-9, atol=1e-12)


@given(st.integers(2, 120), st.sampled_from([1, 3, 20, 100]), st.integers(0, 10**6))
@settings(deadline=None, max_examples=25)
def test_algorithms_agree(n: int, d: int, seed: int) -> None:
    x = points(n, d, seed)
    groups = torch.randint(0, 3, (n,), generator=seeded(seed))
    found = [by(algorithm, x, groups) for algorithm in ALGORITHMS]
    for other in found[1:]:
        torch.testing.assert_close(other.lengths, found[0].lengths, rtol=1e-6, atol=0)
        assert torch.equal(other.bars, found[0].bars)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_points_that_are_not_finite_are_named(algorithm: Algorithm, value: float) -> None:
    x = points(9, 4)
    x[5, 2], x[7, 0] = value, value
    for args in ((x,), (x.view(3, 3, 4),), (x, torch.arange(9))):  # also in a cloud without an edge
        refuses(r"NaN or infinity in row 5 \(2 of 9 rows\)", by, algorithm, *args)


def test_points_too_far_apart_for_their_dtype_are_refused_and_large_ones_are_no_infinity() -> None:
    refuses("distances up to", barcode, torch.tensor([[3e38, 3e38], [-3e38, -3e38]]))
    assert barcode(torch.full((3, 4), 3e38)).zero.tolist() == [2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.ones(3, 2, dtype=torch.bool), r"shape \(N, D\) or \(B, n, D\) with floats, got \(3, 2\) of torch.bool"),
        (torch.ones(3, 2, dtype=torch.complex64), "got .* of torch.complex64"),
        (torch.ones(3), r"got \(3,\)"),
        (torch.ones(1, 1, 3, 2), r"got \(1, 1, 3, 2\)"),
        (torch.ones(3, 2, device="meta"), "got a tensor on meta, which has none"),
    ],
)
def test_other_points_are_refused(wrong: torch.Tensor, message: str) -> None:
    refuses(message, barcode, wrong)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), r"expected groups of shape \(3,\), got \(4,\)"),
        (torch.zeros(3, 1, dtype=torch.int64), r"got \(3, 1\)"),
        (torch.zeros(3), "expected groups as a tensor of integers, got torch.float32"),
    ],
)
def test_other_groups_are_refused(groups: torch.Tensor, message: str) -> None:
    refuses(message, barcode, torch.ones(3, 2), groups)
    refuses("leave groups out", barcode, torch.ones(1, 3, 2), groups)


def test_points_of_eight_bits_are_widened_and_sparse_ones_refused() -> None:
    x = torch.tensor([[0.0, 0], [0, 2], [3, 2]])
    assert barcode(x.to(torch.float8_e4m3fn)).lengths.tolist() == [2, 3]
    refuses(r"got torch\.sparse_coo: pass points\.to_dense", barcode, x.to_sparse())


def test_large_clouds_tell_of_their_progress() -> None:
    told = list[tuple[str, int, int]]()
    x, groups = points(60, 4), torch.arange(60) % 3 // 2  # 40 and 20 points
    barcode(x, groups, progress=lambda *news: told.append(news))
    assert not told  # their distances are kept, and there is nothing to tell
    for some in (groups, None):
        by("one pass", x, some, progress=lambda *news: told.append(news))
    last = {what: (done, total) for what, done, total in told}
    of_both = {"spanning tree 1 of 2": (780, 780), "spanning tree 2 of 2": (190, 190)}
    assert last == of_both | {"spanning tree": (1770, 1770)}


def test_points_in_any_layout() -> None:
    x = points(50, 12)
    for y in (x.T.contiguous().T, x.repeat_interleave(2, dim=1)[:, ::2], x.flip(0).flip(0)):
        assert torch.equal(barcode(y).lengths, barcode(x).lengths)


def test_without_numba_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(50, 6).requires_grad_()
    expected = barcode(x)
    (grad,) = torch.autograd.grad(expected.lengths.sum(), x)
    monkeypatch.setattr(lengths, "kernels", lambda: None)
    found = barcode(x)
    assert torch.equal(found.edges, expected.edges)
    torch.testing.assert_close(torch.autograd.grad(found.lengths.sum(), x)[0], grad)
    with forced("compiled"), pytest.raises(InputError, match=r"pip install 'uncone\[topology\]'"):
        barcode(x)


def test_a_numba_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise SystemError("initialization of _internal failed")

    monkeypatch.setattr(lengths, "import_module", broken)
    said = "numba is installed but fails.*SystemError: initialization of _internal failed"
    with pytest.warns(RuntimeWarning, match=said):
        assert lengths.kernels.__wrapped__() is None


def test_loops_need_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(importlib.import_module("numba.core.caching").CompileResultCacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(_successor)
    kernels = importlib.import_module("uncone.training.bars.kernels")
    assert kernels.loop()(_successor).py_func(1) == 2


def _successor(x: int) -> int:
    return x + 1


@pytest.mark.slow
def test_numba_may_be_missing() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import torch; from uncone import barcode\n"
        "x = torch.tensor([[0.0, 0], [0, 2], [3, 2]], requires_grad=True)\n"
        "found = barcode(x); found.lengths.sum().backward(); assert found.lengths.tolist() == [2, 3], found; assert x.grad.any()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
