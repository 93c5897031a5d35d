"""The penalty against a slow loop over classes, planted clouds, and everything that is left out or refused."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.training.bars.bars import prominent_bars, prominent_mask
from uncone.training.penalties.persistent_entropy import PersistentEntropy

from ..bars.hard_clouds import scipy_lengths

Tensor = torch.Tensor


def cloud(n: int, d: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=random, dtype=torch.float64) * torch.linspace(3, 0.2, d)


def slow(
    points: Tensor, labels: Tensor | None, weight: float, select: bool, length_weight: float
) -> tuple[float, list[float], list[int]]:
    """One class after another, by scipy's tree."""
    classes = [None] if labels is None else [c for c in sorted(set(labels.tolist())) if c != -100]
    loss, entropies, kept = 0.0, [], []
    for c in classes:
        own = points if c is None else points[[i for i in range(len(points)) if int(labels[i]) == c]]  # type: ignore[index]
        if len(own) < 5:
            continue
        bars = scipy_lengths(own).tolist()
        k = prominent_bars(torch.tensor(bars, dtype=torch.float64)) if select else len(bars)
        chosen, rest = bars[len(bars) - k :], bars[: len(bars) - k]
        entropy = -sum(bar / sum(chosen) * float(np.log(bar / sum(chosen))) for bar in chosen)
        loss -= weight * entropy
        loss -= length_weight * sum(rest) / len(rest) if rest else 0.0
        entropies.append(entropy)
        kept.append(k)
    return loss, entropies, kept


@pytest.mark.parametrize(
    "settings", [{}, {"select": False}, {"weight": 0.3}, {"length_weight": 0.05}, {"weight": 0, "length_weight": 0.5}]
)
@pytest.mark.parametrize("classes", [0, 1, 2, 5])
def test_it_is_a_loop_over_classes(settings: dict[str, Any], classes: int) -> None:
    points = cloud(60, 6)
    labels = torch.arange(60) ** 2 % (2 * classes) if classes else None
    if labels is not None:
        labels[7] = -100
    penalty = PersistentEntropy(**settings)
    loss = penalty(points, labels)
    settings = {"weight": 1.0, "select": True, "length_weight": 0.0} | settings
    wanted, entropies, kept = slow(points, labels, *settings.values())
    assert float(loss) == pytest.approx(wanted, rel=1e-9)
    assert penalty.last.entropy.tolist() == pytest.approx(entropies, rel=1e-9)
    assert penalty.last.kept.tolist() == kept
    assert loss.dtype == torch.float64


@pytest.mark.parametrize("settings", [{}, {"select": False}, {"weight": 0, "length_weight": 0.5}])
def test_its_gradient_is_the_slope(settings: dict[str, Any]) -> None:
    points, labels = cloud(12, 2).requires_grad_(), torch.arange(12) % 2
    penalty = PersistentEntropy(**settings)
    assert torch.autograd.gradcheck(lambda x: penalty(x, labels), points)


def test_an_outlier_is_pulled_in_along_the_longest_edge() -> None:
    points = cloud(32, 8) / 10
    points[5] += 100 * torch.eye(8, dtype=torch.float64)[2]
    points.requires_grad_()
    PersistentEntropy()(points).backward()
    grad = points.grad
    step = -grad[5]
    assert float(step[2]) < 0
    assert float(step[2].abs() / step.norm()) > 0.99, "along the outlier's direction"
    before, after = (uncone.barcode(x.detach()).lengths[-1] for x in (points, points - grad))
    assert float(after) < float(before)


@pytest.mark.parametrize("select", [True, False])
def test_descent_makes_a_stretched_cloud_rounder(select: bool) -> None:
    points = torch.nn.Parameter(cloud(32, 8).float())
    points.data[:4] += 40 * torch.eye(8)[0]
    before = uncone.anisotropy_scores(points).centred
    penalty, optimizer = PersistentEntropy(select=select), torch.optim.Adam([points], lr=0.7)
    for _ in range(40):
        optimizer.zero_grad()
        penalty(points).backward()
        optimizer.step()
    assert uncone.anisotropy_scores(points).centred[0] < 0.8 * before[0]


def test_the_length_term_pushes_discarded_bars_up() -> None:
    points = cloud(40, 5).requires_grad_()
    penalty = PersistentEntropy(weight=0, length_weight=1.0)
    penalty(points).backward()
    lengths = [uncone.barcode(x.detach()).lengths for x in (points, points - 1e-3 * points.grad)]
    discarded = len(lengths[0]) - int(penalty.last.kept)
    assert discarded > 0
    assert float(lengths[1][:discarded].sum()) > float(lengths[0][:discarded].sum())


@settings(max_examples=12)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(0, 4))
def test_small_classes_are_left_out_and_counted(sizes: list[int], ignored: int) -> None:
    classes = [7 * c - 3 for c, size in enumerate(sizes) for _ in range(size)]
    labels = torch.tensor(classes + [-100] * ignored, dtype=torch.int64)
    points = cloud(len(labels), 4).float()
    penalty = PersistentEntropy()
    loss = penalty(points.requires_grad_(), labels)
    loss.backward()
    now = penalty.last
    assert int(now.left_out) == sum(0 < size < 5 for size in sizes)
    assert now.classes.tolist() == [7 * c - 3 for c, size in enumerate(sizes) if size >= 5]
    assert now.bars.tolist() == [size - 1 for size in sizes if size >= 5]
    assert loss.item() == pytest.approx(-float(now.entropy.sum()), abs=1e-6)
    assert bool((points.grad[labels == -100] == 0).all())


def _nothing(penalty: PersistentEntropy, points: Tensor) -> Any:
    """What was found, where the penalty and its gradient have to be 0."""
    loss = penalty(points)
    loss.backward()
    assert loss.item() == 0
    assert not points.grad.any()
    return penalty.last


@pytest.mark.parametrize("n", range(5))
def test_too_few_points_are_nothing(n: int) -> None:
    last = _nothing(PersistentEntropy(), cloud(n, 3).requires_grad_())
    assert int(last.left_out) == (n > 0)


@pytest.mark.parametrize("settings", [{}, {"select": False}, {"length_weight": 1.0}])
def test_points_that_are_all_alike_have_no_gradient(settings: dict[str, Any]) -> None:
    last = _nothing(PersistentEntropy(**settings), torch.full((8, 4), 3.0, requires_grad=True))
    assert last.zero.tolist() == [7]
    assert last.kept.tolist() == [0]


def test_repeated_points_are_counted_and_change_nothing_else() -> None:
    points = cloud(20, 4)
    penalty = PersistentEntropy()
    alone = float(penalty(points))
    assert float(penalty(torch.cat([points, points[:6]]))) == pytest.approx(alone, rel=1e-12)
    assert penalty.last.zero.tolist() == [6]


@settings(max_examples=15)
@given(st.floats(0.01, 100), st.integers(0, 5))
def test_scale_and_place_change_nothing(scale: float, seed: int) -> None:
    points, labels = cloud(30, 5, seed), torch.arange(30) % 2
    penalty = PersistentEntropy(select=False)
    assert float(penalty(scale * points + scale, labels)) == pytest.approx(float(penalty(points, labels)), rel=1e-9)


def test_autocast_and_half_precision_do_not_reach_it() -> None:
    points, labels = cloud(64, 32).bfloat16(), torch.arange(64) % 2
    penalty = PersistentEntropy()
    wanted = penalty(points.float(), labels)
    with torch.autocast("cpu", torch.bfloat16):
        found = penalty(points, labels)
        assert torch.equal(penalty(points.float(), labels), wanted)
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)


def test_156_is_a_class_and_not_minus_100_in_eight_bits() -> None:
    labels = torch.tensor([155, 156], dtype=torch.uint8).repeat(10)
    penalty = PersistentEntropy()
    penalty(cloud(20, 3), labels)
    assert penalty.last.classes.tolist() == [155, 156]


def test_what_is_kept_is_detached() -> None:
    penalty = PersistentEntropy()
    assert penalty.last is None
    penalty(cloud(10, 3).requires_grad_())
    assert not any(getattr(penalty.last, name).requires_grad for name in penalty.last.__dataclass_fields__)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"select": "best"}, r"expected select True \(prominent bars\) or False \(all bars\), got 'best'"),
        ({"select": 1}, r"expected select True .*, got 1"),
        ({"weight": -1.0}, "expected weight to be a number from 0 up, got -1.0"),
        ({"weight": float("nan")}, "expected weight to be a number from 0 up, got nan"),
        ({"length_weight": -0.5}, "expected length_weight to be a number from 0 up, got -0.5"),
        ({"select": False, "length_weight": 0.5}, "expected select=True for length_weight 0.5, got False"),
        ({"convention": "paper"}, "expected convention .*'paper'"),
    ],
)
def test_settings_that_are_no_such_penalty_are_refused(settings: dict[str, Any], said: str) -> None:
    made = PersistentEntropy.__new__(PersistentEntropy)
    with pytest.raises(InputError, match=said):
        inspect.unwrap(PersistentEntropy.__init__)(made, **settings)  # as without the tests' own checks of types


@pytest.mark.parametrize(
    ("points", "labels", "said"),
    [
        (torch.zeros(6), None, r"expected points of shape \(N, D\), got \(6,\)"),
        (torch.zeros(6, 2, dtype=torch.int64), None, "floating point"),
        (torch.full((6, 2), float("nan")), None, "expected finite points, got NaN"),
        (torch.zeros(6, 2), torch.zeros(5).long(), r"expected labels of shape \(6,\) with integers, got \(5,\)"),
        (torch.zeros(6, 2), torch.zeros(6), "with integers, got .* of torch.float32"),
        (torch.zeros(3, 2, dtype=torch.int64), None, "floating point"),
        ([[1.0, 2.0]], None, r"expected points of shape \(N, D\), got list"),
        (torch.zeros(2, 2), [0, 1], r"expected labels of shape \(2,\) with integers, got list"),
    ],
)
def test_what_is_no_cloud_is_refused(points: Any, labels: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inspect.unwrap(PersistentEntropy.__call__)(PersistentEntropy(), points, labels)


@pytest.mark.parametrize("labels", [None, [-100] * 4 + [8] * 3 + [1] * 13])
def test_a_point_that_is_not_finite_is_named_by_its_own_row(labels: list[int] | None) -> None:
    points = cloud(20, 3).float()
    points[[9, 12]] = torch.nan
    points[[2, 5] if labels else []] = torch.inf  # left out: nobody asks
    with pytest.raises(InputError, match=r"got NaN or infinity in row 9 \(2 of 20 rows\)"):
        PersistentEntropy()(points, None if labels is None else torch.tensor(labels))


def test_numbers_of_numpy_are_weights() -> None:
    made = PersistentEntropy.__new__(PersistentEntropy)
    inspect.unwrap(PersistentEntropy.__init__)(made, np.float32(0.5))
    assert made.weight == 0.5


@pytest.mark.parametrize("sizes", [None, (20, 4, 9)])
def test_the_selection_is_told_how_large_the_largest_class_is(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it waits for the device where it has to ask."""
    import uncone.training.penalties.persistent_entropy as module

    widths = []

    def told(*args: Any, width: int | None = None, **more: Any) -> Tensor:
        widths.append(width)
        return prominent_mask(*args, width=width, **more)

    monkeypatch.setattr(module, "prominent_mask", told)
    labels = None if sizes is None else torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    PersistentEntropy()(cloud(33, 4), labels)
    assert widths == [32 if sizes is None else 19]
