"""The tree of a large cloud against dense trees in float64, on every path through blocks, threads and precisions."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.bars.hard_clouds import kruskal, randn, scipy_lengths, squares
from uncone.training.bars import light_edges, one_pass
from uncone.training.bars.light_edges import Rounding
from uncone.training.bars.one_pass import grow, without_repeats

Tensor = torch.Tensor
BOTH = (torch.float32, torch.bfloat16)


def spanning_tree(points: Tensor, **options: Any) -> Tensor:
    return grow(points, **options).edges


def lengths(points: Tensor, edges: Tensor) -> np.ndarray:
    ends = points.double()
    return np.sort((ends[edges[:, 0]] - ends[edges[:, 1]]).norm(dim=1).numpy())


def by_kruskal(points: Tensor) -> set[tuple[int, int]]:
    """For coordinates whose squares are exact."""
    return {(i, j) for _, i, j in kruskal(squares(points))}


def as_set(edges: Tensor) -> set[tuple[int, int]]:
    return {(a, b) for a, b in edges.tolist()}


def clusters(spread: float) -> Tensor:
    return spread * randn(400, 24) + 3 * randn(50, 24, seed=1).repeat_interleave(8, 0)


CLOUDS = {
    "gaussian": randn(400, 48),
    "flat": randn(400, 2),
    "off centre": randn(400, 48) + 30 * 48**0.5 * randn(48, seed=1) / randn(48, seed=1).norm(),
    "50 clusters": clusters(0.1),
    "50 tight clusters": clusters(1e-5),
    "50 points 8 times": clusters(0.0),
    "on a line": torch.arange(400.0)[:, None] * randn(1, 24),
    "on a lattice": torch.cartesian_prod(torch.arange(20.0), torch.arange(20.0)),
    "heavy tails": randn(400, 24) / torch.rand(400, 1, generator=torch.Generator().manual_seed(2)) ** 4,
    "one far away": torch.cat([randn(399, 24), torch.full((1, 24), 1e8)]),
    "tiny": randn(400, 24) * 1e-30,
    "huge": randn(400, 24) * 1e30,
    "next to zero": randn(400, 24) * 1e-42,
    "next to infinity": randn(400, 24).clamp(-3, 3) * 1e38,
    "float64": randn(400, 24).double() + 1e6,
    "tiny float64": randn(400, 24).double() * 1e-200,
    "huge float64": randn(400, 24).double() * 1e200,
    "some alike": torch.cat([torch.zeros(200, 24), randn(200, 24)]),
    "all alike": torch.ones(400, 3),
    "rare columns": torch.eye(400)[:, :100],
}


@pytest.mark.parametrize("name", CLOUDS)
def test_the_lengths_are_scipys(name: str) -> None:
    points = CLOUDS[name]
    scale = float(points.double().abs().max())
    expected = scipy_lengths(points.double() / scale)
    for block in (37, None):
        for candidates in BOTH:
            edges = spanning_tree(points, block=block, candidates=candidates)
            assert edges.dtype == torch.int64
            assert bool((edges[:, 0] < edges[:, 1]).all())
            np.testing.assert_allclose(lengths(points.double() / scale, edges), expected, rtol=1e-6, atol=1e-300)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("d", [0, 1, 5])
def test_few_points_have_a_tree_too(n: int, d: int) -> None:
    points = randn(n, d)
    edges = spanning_tree(points)
    assert edges.shape == (max(n - 1, 0), 2)
    expected = scipy_lengths(points) if n > 1 and d else np.zeros(max(n - 1, 0))
    np.testing.assert_allclose(lengths(points, edges), expected, rtol=1e-6)


whole = st.integers(-3, 3)
SMALL = st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(whole, min_size=d, max_size=d), min_size=1, max_size=40))


@settings(deadline=None, max_examples=60)
@given(SMALL, st.sampled_from([1, 2, 7, None]), st.sampled_from(BOTH))
def test_ties_go_by_rows(rows: list[list[int]], block: int | None, candidates: torch.dtype) -> None:
    points = torch.tensor(rows, dtype=torch.float32).reshape(len(rows), -1)
    assert as_set(spanning_tree(points, block=block, candidates=candidates)) == by_kruskal(points)


SEEDS, FLOATS = st.integers(0, 10**6), st.sampled_from(BOTH)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(2, 60), st.integers(1, 9), SEEDS, st.floats(-9, 3), st.floats(0, 4), st.sampled_from([1, 7, 16]), FLOATS
)
def test_near_duplicates_are_told_apart(
    n: int, d: int, seed: int, spread: float, off: float, block: int, candidates: torch.dtype
) -> None:
    near = randn(4, d, seed=seed + 1)[torch.arange(n) % 4] + 10**off
    points = (randn(n, d, seed=seed).double() * 10**spread + near).float()
    edges = spanning_tree(points, block=block, candidates=candidates)
    np.testing.assert_allclose(lengths(points, edges), scipy_lengths(points), rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 30), st.integers(1, 300), SEEDS, st.floats(-6, 6), st.floats(0, 5), FLOATS, FLOATS)
def test_the_product_never_rules_out_more_than_its_rounding_allows(
    n: int, d: int, seed: int, size: float, off: float, candidates: torch.dtype, rounded_to: torch.dtype
) -> None:
    points = ((randn(n, d, seed=seed) + 10**off) * 10**size).to(rounded_to).float()
    rounding = Rounding(points, torch.arange(n))
    block = rounding.block(0, n, candidates)
    product = (block.values @ block.values.T).double()
    squares, moved = block.squares.double(), block.moved.double()
    excess = squares[:, None] + squares - 2 * product - block.product_error * product.abs() - block.absolute_error
    bound = (excess.clamp(min=0).sqrt() - moved[:, None] - moved) / rounding.scale
    assert bool((bound <= (points.double()[:, None] - points.double()).norm(dim=2) * (1 + 1e-12)).all())


def test_the_tree_is_the_same_for_every_block_thread_and_precision() -> None:
    points = torch.cat([randn(200, 40), clusters(0.01).repeat(1, 2)[:100, :40]])
    trees = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        trees += [as_set(spanning_tree(points, block=b, candidates=c)) for b in (29, None) for c in (None, *BOTH)]
        assert torch.get_num_threads() == number
    assert all(tree == trees[0] for tree in trees)


def test_without_numba_the_tree_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clouds = [CLOUDS[name] for name in ("gaussian", "on a lattice", "50 tight clusters", "some alike", "heavy tails")]
    compiled = [spanning_tree(points, block=64) for points in clouds]
    monkeypatch.setattr(light_edges, "kernels", lambda: None)
    monkeypatch.setattr(light_edges, "_fastest_kruskal", lambda: light_edges.kruskal)
    for points, edges in zip(clouds, compiled, strict=True):
        for candidates in BOTH:
            assert as_set(spanning_tree(points, block=64, candidates=candidates)) == as_set(edges)


def test_views_are_read_as_they_are() -> None:
    wide = randn(300, 64)
    for points in (wide[:, ::2], wide[::2, 8:40], wide.T.contiguous().T[:, :32], wide[:1].expand(50, 64)):
        assert as_set(spanning_tree(points, block=64)) == as_set(spanning_tree(points.clone().contiguous(), block=64))
    grad = wide.clone().requires_grad_()
    assert as_set(spanning_tree(grad)) == as_set(spanning_tree(wide))
    assert grad.grad is None


def test_one_pass_is_half_a_product_whatever_the_cloud() -> None:
    for name in ("gaussian", "50 clusters", "heavy tails", "on a line"):
        grown = grow(CLOUDS[name], block=16)
        assert 0.49 < grown.passes < 0.53
        assert grown.light < 60 * 400  # of 79,800 pairs


@pytest.mark.parametrize("compiled", [True, False])
def test_gaps_between_clusters_hide_nothing_inside_them(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(light_edges, "kernels", lambda: None)
    which = torch.arange(1000) % 2
    points = 0.3 * randn(1000, 48) + randn(2, 48, seed=1)[which] + (50 * (torch.arange(1000) < 5)[:, None])
    grown = grow(points, block=128, candidates=torch.float32)
    assert grown.measured < 40_000  # of 499,500 pairs; half of them lie in one cluster
    np.testing.assert_allclose(lengths(points, grown.edges), scipy_lengths(points), rtol=1e-6)


def test_points_that_are_there_already_cost_no_pairs() -> None:
    points = randn(20, 16)[torch.arange(20_000) % 20]
    grown = grow(points)
    assert len(grown.edges) == 19_999
    assert grown.measured < 400
    assert (lengths(points, grown.edges) == 0).sum() == 19_980


def test_repeats_are_joined_to_the_first_of_their_value() -> None:
    kept, edges = without_repeats(torch.tensor([[0.0, 1], [2, 3], [-0.0, 1], [2, 3], [4, 5], [0, 1]]))
    assert kept.tolist() == [0, 1, 4]
    assert sorted(edges.tolist()) == [[0, 2], [0, 5], [1, 3]]


def test_rows_of_one_hash_that_differ_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "_hashes", lambda points: torch.zeros(len(points), dtype=torch.int64))
    points = torch.tensor([[0.0], [1], [0], [1]])
    kept, edges = without_repeats(points)
    assert kept.tolist() == [0, 1, 3]
    assert edges.tolist() == [[0, 2]]
    assert as_set(spanning_tree(points)) == by_kruskal(points)


def test_a_coarse_product_that_rules_nothing_out_is_given_up() -> None:
    points = 0.01 * randn(1200, 16) + 30 * randn(1, 16).repeat(1200, 1)
    points[::2] *= -1  # two tight clusters: all pairs within one are alike in bfloat16
    assert grow(points, block=64, candidates=torch.bfloat16).coarse == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_pass, "_candidates", lambda *_: torch.bfloat16)
        grown = grow(points, block=64)
    assert 0 < grown.coarse < 0.9
    np.testing.assert_allclose(lengths(points, grown.edges), scipy_lengths(points), rtol=1e-6)


def test_progress_ends_at_all_pairs() -> None:
    told = list[tuple[str, int, int]]()
    spanning_tree(randn(500, 8), block=16, progress=lambda *news: told.append(news))
    done = [pairs for _, pairs, _ in told]
    assert {(what, total) for what, _, total in told} == {("spanning tree", 500 * 499 // 2)}
    assert done == sorted(done)
    assert done[-1] == 500 * 499 // 2


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_it_and_what_fails_in_a_worker_is_raised(threads: int, monkeypatch: Any) -> None:
    def raised(error: type[BaseException]) -> Any:
        def fail(*_: object) -> None:
            raise error("no room")

        return fail

    torch.set_num_threads(threads)  # which the fixture of all tests here puts back
    spanning_tree(randn(500, 8), block=16)
    running = threading.active_count()  # with the workers, which stay
    with pytest.raises(KeyboardInterrupt):
        spanning_tree(randn(500, 8), block=16, progress=raised(KeyboardInterrupt))
    assert threading.active_count() == running
    monkeypatch.setattr(one_pass, "light_edges", raised(MemoryError))
    with pytest.raises(MemoryError, match="no room"):
        spanning_tree(randn(500, 8), block=16)


def test_a_mode_that_rounds_factors_is_reckoned_with() -> None:
    points = clusters(0.1)
    mode = torch.get_float32_matmul_precision()
    try:
        for name in ("high", "medium"):
            torch.set_float32_matmul_precision(name)
            found = lengths(points, spanning_tree(points, block=64))
            np.testing.assert_allclose(found, scipy_lengths(points), rtol=1e-6)
    finally:
        torch.set_float32_matmul_precision(mode)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_mode_that_torch_does_not_tell_is_reckoned_with(precision: str) -> None:
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("torch before 2.9 has one setting, which it tells")
    points, before = clusters(0.1), matmul.fp32_precision
    matmul.fp32_precision = precision  # after which torch refuses to give the older name of the mode
    try:
        tree = spanning_tree(points, block=64)
    finally:
        matmul.fp32_precision = before
    np.testing.assert_allclose(lengths(points, tree), scipy_lengths(points), rtol=1e-6)


@pytest.mark.slow
def test_thousands_of_points_as_a_dense_tree_has_them() -> None:
    n = 6000
    points = randn(n, 64) * torch.arange(1, 65) ** -0.25 + 3 * randn(50, 64, seed=1)[torch.arange(n) % 50]
    x = points.double()
    best, total = torch.full((n,), torch.inf, dtype=torch.float64), list[float]()
    outside, new = torch.ones(n, dtype=torch.bool), 0
    for _ in range(n - 1):  # Prim's algorithm on direct differences
        outside[new] = False
        best = torch.minimum(best, (x - x[new]).norm(dim=1))
        best[~outside] = torch.inf
        new = int(best.argmin())
        total.append(float(best[new]))
    for candidates in (None, *BOTH):
        tree = spanning_tree(points, candidates=candidates)
        np.testing.assert_allclose(lengths(points, tree), np.sort(total), rtol=1e-6)
