"""Arrays and lists as the measures take them: the tensors of the answer are those of a tensor."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.matrices import gaussian
from uncone.errors import InputError
from uncone.training.bars.barcode import barcode
from uncone.training.bars.bars import (
    check_bars,
    check_convention,
    check_lengths,
    persistent_entropy,
    prominent_bars,
    prominent_counts,
    prominent_mask,
)
from uncone.training.bars.clouds import group_of_each, place_of_each

POINTS = gaussian(30, 3, seed=2, dtype=torch.float64)
GROUPS = torch.arange(30) % 3
KINDS: list[Callable[[torch.Tensor], Any]] = [torch.Tensor.numpy, torch.Tensor.tolist, list, np.asarray]


OF_LENGTHS: list[Callable[[Any], Any]] = [persistent_entropy, prominent_bars]
WRONG = (-1.0, math.nan, math.inf)


def _read_only(x: torch.Tensor) -> Any:
    array = x.numpy()[::-1].copy()[::-1]
    array.flags.writeable = False
    return array


def test_a_barcode_is_shown_in_a_line() -> None:
    assert repr(barcode([[0.0], [1.0], [3.0]])) == "Barcode(2 bars in 1 group, lengths 1 to 2)"
    assert repr(barcode([[0.0], [3.0]], [0, 1])) == "Barcode(0 bars in 2 groups)"


@pytest.mark.parametrize("kind", [*KINDS, _read_only])
def test_a_barcode_of_any_kind_is_in_tensors(kind: Callable[[torch.Tensor], Any]) -> None:
    for groups in (None, GROUPS):
        wanted = barcode(POINTS, groups)
        found = barcode(kind(POINTS), None if groups is None else kind(groups))
        for one, other in ((found.lengths, wanted.lengths), (found.edges, wanted.edges), (found.bars, wanted.bars)):
            assert torch.equal(one, other)
    clouds = POINTS.reshape(3, 10, 3)
    assert torch.equal(barcode(kind(clouds)).lengths, barcode(clouds).lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_and_features_of_any_kind(kind: Callable[[torch.Tensor], Any]) -> None:
    found = barcode(POINTS, GROUPS)
    lengths, bars = kind(found.lengths), kind(found.bars)
    assert float(persistent_entropy(lengths)) == float(persistent_entropy(found.lengths))
    assert torch.equal(persistent_entropy(lengths, bars), persistent_entropy(found.lengths, found.bars))
    assert prominent_bars(lengths) == prominent_bars(found.lengths)
    assert torch.equal(prominent_counts(lengths, bars), prominent_counts(found.lengths, found.bars))
    assert torch.equal(prominent_mask(lengths, bars), prominent_mask(found.lengths, found.bars))


def test_the_closed_form_of_a_list() -> None:
    entropy = persistent_entropy([1, 1, 2])
    assert isinstance(entropy, torch.Tensor)
    assert float(entropy) == pytest.approx(1.5 * math.log(2))
    assert barcode([[0, 0], [3, 4]]).lengths.tolist() == [5.0]
    assert barcode(np.eye(2, dtype=np.float32)).lengths.dtype == torch.float32


def test_a_tensor_keeps_its_gradient_in_a_list_too() -> None:
    grown = POINTS.clone().requires_grad_()
    persistent_entropy(barcode(grown).lengths).backward()
    wanted, grown.grad = grown.grad, None
    persistent_entropy(barcode(list(grown)).lengths).backward()
    assert torch.equal(wanted, grown.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: barcode(np.eye(3, dtype=bool)), "expected an array of float64"),
        (lambda: barcode([[1.0], [1.0, 2.0]]), "expected a list of rows of one length"),
        (lambda: barcode([1.0, 2.0]), r"expected points of shape \(N, D\) or \(B, n, D\) with floats, got \(2,\)"),
        (lambda: barcode("text"), r"expected points of shape .*, got str"),
        (lambda: barcode([[float("nan")], [1.0]]), "expected finite points, got NaN or infinity in row 0"),
        (lambda: barcode(POINTS, [0.5] * 30), "expected groups as a tensor of integers, got torch.float64"),
        (lambda: barcode(POINTS, ["a"] * 30), "expected groups as a tensor of integers, got list"),
        *((lambda of=of: of([[1.0]]), r"expected lengths \(M,\) of floats, got \(1, 1\)") for of in OF_LENGTHS),
        *(
            (lambda of=of: of(torch.arange(3)), r"got \(3,\) of torch\.int64: pass Barcode\.lengths")
            for of in OF_LENGTHS
        ),
        *(
            (lambda of=of, x=x: of([1.0, x, 2, 3]), f"finite lengths of at least 0, got {x:g}: pass the lengths")
            for of in OF_LENGTHS
            for x in WRONG
        ),
        (lambda: persistent_entropy([1e308, 1e308]), "got an infinite one: scale them all down"),
        (
            lambda: persistent_entropy([1.0], [2]),
            "expected bars of at least 0 that sum to 1, the number of lengths, got 2",
        ),
        (lambda: persistent_entropy([1.0, 1, 1], [4, -1]), "at least 0 that sum"),
        (lambda: persistent_entropy([1.0], [[1]]), r"expected bars \(G,\) of integers, got \(1, 1\)"),
        (lambda: persistent_entropy({1.0}), r"expected lengths \(M,\) of floats, got set"),
        (lambda: prominent_bars(None), r"expected lengths \(M,\) of floats, got NoneType"),
        (lambda: prominent_counts([1.0] * 5, [4]), "sum to 5, the number of lengths, got 4"),
        (lambda: prominent_counts([1.0] * 5, [5], width=4), "expected a width of 5 at least, got 4"),
        (lambda: prominent_mask(torch.ones(5), torch.tensor([5.0])), r"expected bars \(G,\) of integers"),
        (lambda: check_convention("both"), "expected convention 'official' or 'exclusive', got 'both'"),
        (lambda: check_lengths([1.0, 2.0]), r"expected lengths \(M,\) of floats, got list: pass Barcode\.lengths"),
        (lambda: check_bars([1, 2], 3), r"expected bars \(G,\) of integers, got list"),
    ],
)
def test_what_is_neither_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_whole_numbers_are_float64(kind: Callable[[Any], Any]) -> None:
    whole = (10 * POINTS).round().long().numpy()
    found, wanted = barcode(kind(whole)), barcode(whole.astype(float))
    assert found.lengths.dtype == torch.float64
    assert torch.equal(found.lengths, wanted.lengths)
    assert torch.equal(found.edges, wanted.edges)
    whole[0, 0] = 2**53 + 1
    with pytest.raises(InputError, match=r"up to 2\^53"):
        barcode(kind(whole))
    with pytest.raises(InputError, match=r"bool"):
        barcode(kind(whole > 0))


def test_groups_and_places() -> None:
    bars = torch.tensor([2, 0, 3])
    group = group_of_each(bars, 5)
    assert group.tolist() == [0, 0, 2, 2, 2]
    assert place_of_each(bars, group).tolist() == [0, 1, 0, 1, 2]
