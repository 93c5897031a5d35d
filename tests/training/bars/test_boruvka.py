"""Boruvka in torch: the tree of Kruskal in the total order, and never a look at the values."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.bars.hard_clouds import kruskal, scipy_lengths, seeded
from uncone.training.bars import boruvka, trees
from uncone.training.bars.barcode import barcode
from uncone.training.bars.bars import persistent_entropy, prominent_mask
from uncone.training.bars.boruvka import distances, spanning_trees, trees_of
from uncone.training.bars.clouds import Clouds
from uncone.training.bars.lengths import differentiable, measured


def by_kruskal(squared: torch.Tensor, inside: Any = None) -> list[list[int]]:
    return sorted([i, j] for _, i, j in kruskal(squared, inside))


def shortest_first(clouds: Clouds) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges and lengths without a second look at small distances, as on a GPU."""
    edges = torch.empty(sum(clouds.bars), 2, dtype=torch.int64)
    lengths = clouds.points.new_empty(len(edges))
    spanning_trees(clouds, list(range(len(clouds.sizes))), edges, lengths, exact=False)
    return edges, lengths


SEEDS, DTYPES = st.integers(0, 2**32), st.sampled_from([torch.float32, torch.float64])


@given(SEEDS, st.integers(1, 20), st.integers(1, 3), st.integers(1, 4), DTYPES)
@settings(deadline=None, max_examples=40)
def test_it_is_kruskal_s_tree_on_ties_and_duplicates(seed: int, n: int, clouds: int, values: int, dtype: Any) -> None:
    points = torch.randint(0, values, (clouds, n, 2), generator=seeded(seed)).to(dtype)
    squared = (points[:, :, None] - points[:, None]).square().sum(3)
    found = trees_of(squared)
    assert found.shape == (clouds, max(n - 1, 0), 2)
    for tree, one in zip(found.tolist(), squared, strict=True):
        assert sorted(tree) == by_kruskal(one)


@given(st.integers(0, 2**32), st.integers(1, 16))
@settings(deadline=None, max_examples=40)
def test_only_points_inside_count(seed: int, n: int) -> None:
    g = seeded(seed)
    squared = torch.randint(0, 9, (3, n, n), generator=g).double()  # symmetric only after the smaller of two counts
    inside = torch.rand(3, n, generator=g) < 0.7
    for tree, one, chosen in zip(trees_of(squared, inside).tolist(), squared, inside, strict=True):
        members = chosen.nonzero().flatten().tolist()
        m = max(len(members) - 1, 0)
        assert sorted(tree[:m]) == by_kruskal(one, members)
        assert tree[m:] == [[0, 0]] * (max(n - 1, 0) - m)


def test_chains_take_all_the_rounds_and_stars_one() -> None:
    for n in (2, 3, 4, 5, 8, 9, 31, 64, 65):
        for order in (torch.arange(n), torch.randperm(n, generator=seeded(n))):
            line = 2.0 ** torch.arange(n, dtype=torch.float64) * 1e-3  # each nearest to the one before: one long chain
            ruler = (
                torch.tensor([float((k & -k).bit_length()) for k in range(1, n + 1)]).double().cumsum(0)
            )  # halves each round
            for places in (line[order], ruler[order]):
                squared = (places[:, None] - places).square()[None]
                assert sorted(trees_of(squared)[0].tolist()) == by_kruskal(squared[0])


def test_infinite_and_negative_squares() -> None:
    squared = torch.tensor([[[0.0, torch.inf, 3], [torch.inf, 0, torch.inf], [3, torch.inf, 0]]])
    assert sorted(trees_of(squared)[0].tolist()) == [[0, 1], [0, 2]]
    squared = torch.tensor([[[0.0, -1e-9, 0], [-1e-9, 0, -1e-8], [0, -1e-8, 0]]])
    assert sorted(trees_of(squared)[0].tolist()) == [[0, 1], [0, 2]]


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_from_points_it_is_scipy_s_tree(offset: float, dtype: torch.dtype) -> None:
    points = (torch.randn(3, 90, 48, generator=seeded(1)) + offset).to(dtype)
    points[:, 60:75] = points[:, :15] + torch.randn(3, 15, 48, generator=seeded(2)).to(dtype) * 1e-3
    before = points.clone()
    found = trees_of(distances(points)[0])
    assert torch.equal(points, before)
    for cloud, tree in zip(points.double(), found, strict=True):
        ours = measured(cloud, tree).sort().values
        torch.testing.assert_close(ours, torch.tensor(scipy_lengths(cloud)), rtol=1e-6, atol=1e-7)


def test_padding_moves_no_distance() -> None:
    points = torch.randn(2, 20, 5, generator=seeded(3), dtype=torch.float64)
    inside = torch.arange(20) < torch.tensor([[20], [13]])
    found = distances(points, inside)[0]
    torch.testing.assert_close(found[1:, :13, :13], distances(points[1:, :13])[0])
    points[1, 13:] = torch.nan
    torch.testing.assert_close(distances(points, inside)[0][1, :13, :13], found[1, :13, :13])


@given(st.integers(0, 2**32), st.integers(0, 8), st.integers(0, 4))
@settings(deadline=None, max_examples=20)
def test_it_is_the_barcode_of_clouds_of_one_size(seed: int, n: int, count: int) -> None:
    points = torch.randint(0, 4, (count, n, 2), generator=seeded(seed)).float()
    edges, lengths = shortest_first(Clouds(points.flatten(0, 1), [n] * count))
    expected = barcode(points)
    torch.testing.assert_close(lengths, expected.lengths, rtol=1e-6, atol=0)
    if n in (1, 2, 4, 8):  # then the centre is exact, and so are the ties
        assert torch.equal(edges, expected.edges)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(deadline=None, max_examples=20)
def test_it_is_the_barcode_of_groups(seed: int, sizes: list[int]) -> None:
    g = seeded(seed)
    groups = torch.repeat_interleave(torch.tensor(sizes))[torch.randperm(sum(sizes), generator=g)]
    points = torch.randn(sum(sizes), 3, generator=g)
    points[len(points) // 2 :] = points[: (len(points) + 1) // 2].clone()  # repeated points, in their groups or not
    edges, lengths = shortest_first(Clouds(points, sizes, torch.sort(groups, stable=True).indices))
    torch.testing.assert_close(lengths, barcode(points, groups).lengths, rtol=1e-6, atol=1e-7)
    assert torch.equal(groups[edges[:, 0]], groups[edges[:, 1]])


def test_clouds_that_do_not_fit_at_once_come_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.randn(40, 3, generator=seeded(6))
    clouds = [Clouds(points, [10] * 4), Clouds(points, [10, 8, 12, 10])]
    before = [shortest_first(one) for one in clouds]
    monkeypatch.setattr(boruvka, "_NUMBERS_AT_ONCE", {"cpu": 250})
    for one, expected in zip(clouds, before, strict=True):
        for a, b in zip(shortest_first(one), expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 1, 3), (2, 4, 0), (1, 2, 2)])
def test_empty_and_small(shape: tuple[int, int, int]) -> None:
    found = trees_of(distances(torch.ones(shape))[0])
    assert found.shape == (shape[0], max(shape[1] - 1, 0), 2)
    assert found.dtype == torch.int64


def test_the_same_twice_and_the_input_as_it_was() -> None:
    squared = distances(torch.randn(4, 33, 3, generator=seeded(4)))[0]
    before = squared.clone()
    assert torch.equal(trees_of(squared), trees_of(squared))
    assert torch.equal(squared, before)


class OnDevice(TorchDispatchMode):
    """Fails where a tensor of the host takes part: copied to the device, it could not be captured in a CUDA graph."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        assert all(t.device.type == "meta" or t.ndim == 0 for t in tensors), f"{func} takes a tensor of the host"
        return func(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device() -> None:
    """Tensors on "meta" have no values: whatever would ask for one, or take its shape from one, fails there."""
    points = torch.randn(3, 32, 8, device="meta", requires_grad=True)
    with OnDevice():
        rows = points.flatten(0, 1)
        clouds = Clouds(rows.detach(), [32, 32, 32])
        edges, lengths = trees.shortest_first(clouds)
        lengths = differentiable(rows, edges, lengths)
        bars = clouds.bar_counts()
        mask = prominent_mask(lengths, bars, width=31)
        persistent_entropy(torch.where(mask, lengths, 0), bars).sum().backward()
        trees_of(distances(points.detach())[0], torch.ones(3, 32, dtype=torch.bool, device="meta"))
    assert points.grad is not None
    item = lambda t: t.sum().item()  # noqa: E731
    for asks in (item, torch.Tensor.nonzero, lambda t: t[t > 0], torch.unique, torch.Tensor.tolist):
        with pytest.raises((RuntimeError, NotImplementedError)):  # the guard does guard
            asks(points.detach())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_under_graph_replay() -> None:
    points, others = torch.randn(2, 4, 200, 16, generator=seeded(5))
    there = points.cuda().requires_grad_()
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            torch.autograd.grad(persistent_entropy(barcode(there).lengths), there)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = barcode(there)
        (slope,) = torch.autograd.grad(persistent_entropy(found.lengths), there)
    with torch.no_grad():
        there.copy_(others)
    graph.replay()
    here = others.requires_grad_()
    expected = barcode(here)
    torch.testing.assert_close(found.lengths.cpu(), expected.lengths)
    wanted = torch.autograd.grad(persistent_entropy(expected.lengths), here)[0]
    torch.testing.assert_close(slope.cpu(), wanted, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("far", "dtype"), [(1e20, torch.float32), (1e37, torch.float32), (1e200, torch.float64)])
def test_points_far_out_hide_no_distance(far: float, dtype: torch.dtype) -> None:
    points = torch.randn(60, 24, generator=seeded(9), dtype=torch.float64).to(dtype)
    lengths = shortest_first(Clouds(points, [60]))[1]
    found = shortest_first(Clouds(torch.cat([torch.full((1, 24), far, dtype=dtype), points]), [61]))[1]
    torch.testing.assert_close(found[:-1], lengths)
    torch.testing.assert_close(shortest_first(Clouds(points / far, [60]))[1] * far, lengths, rtol=1e-6, atol=0)
