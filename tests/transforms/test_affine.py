"""`Affine`: what it does to every kind of rows, what it composes to, what undoes it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.errors import InputError
from uncone.rows import GRID, as_rows
from uncone.transforms import Affine

from ..matrices import close, equal, gaussian, rotation

Tensor = torch.Tensor
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def _affine(d: int, k: int, *, seed: int = 0, offset: bool = False) -> Affine:
    shift, *weight = gaussian(d + 1, d, seed=seed, dtype=torch.float64)
    return Affine(
        shift,
        torch.stack(weight)[:, :k],
        offset=gaussian(1, k, seed=seed + 1, dtype=torch.float64)[0] if offset else None,
    )


def _by_hand(a: Affine, x: Tensor) -> Tensor:
    """One number after another, from the definition."""
    out = torch.zeros(len(x), a.k, dtype=torch.float64)
    for i in range(len(x)):
        for j in range(a.k):
            column = torch.eye(a.d, dtype=torch.float64)[:, j] if a.weight is None else a.weight[:, j]
            out[i, j] = sum(float(x[i, f] - a.shift[f]) * float(column[f]) for f in range(a.d))
            out[i, j] += 0 if a.offset is None else float(a.offset[j])
    return out


@pytest.mark.parametrize("offset", [False, True])
def test_it_is_what_its_definition_says(offset: bool) -> None:
    x = gaussian(5, 4, dtype=torch.float64)
    for a in (
        _affine(4, 3, offset=offset),
        _affine(4, 4, offset=offset),
        Affine(x[0], offset=x[1] if offset else None),
    ):
        torch.testing.assert_close(a.transform(x), _by_hand(a, x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_and_errs_no_more_than_its_rounding(dtype: torch.dtype) -> None:
    a, x = _affine(6, 5, offset=True), gaussian(40, 6).to(dtype)
    y = a.transform(x)
    assert (y.dtype, y.device, y.shape) == (dtype, x.device, (40, 5))
    exact = a.transform(x.double())
    torch.testing.assert_close(
        y.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=20 * torch.finfo(torch.float32).eps
    )


def test_arrays_tensors_and_rows_give_the_same_numbers() -> None:
    a, x = _affine(7, 4), gaussian(GRID + 100, 7)
    y = a.transform(x)
    assert np.array_equal(a.transform(x.numpy()), y.numpy())
    rows = a.transform(as_rows(x))
    assert (rows.shape, rows.dtype) == ((GRID + 100, 4), "float32")
    assert equal(np.concatenate(list(rows.blocks())), y)
    assert close(rows.read(5, 9), y[5:9])
    assert close(rows.read(5, 9, out=np.empty((4, 4), np.float32)), y[5:9])
    half = a.transform(x.numpy().astype(np.float16))
    assert half.dtype == np.float16
    assert np.array_equal(half, a.transform(x.half()).numpy())
    swapped = x.numpy().astype(">f4")
    assert np.array_equal(a.transform(swapped), y.numpy())


def test_rows_keep_their_ids_and_labels() -> None:
    rows = as_rows(gaussian(3, 4))
    rows.load_labels = lambda: ["a", "b", None]
    moved = _affine(4, 2).transform(rows)
    assert (moved.labels, moved.ids, moved.name) == (["a", "b", None], None, rows.name)


def test_one_vector_and_hidden_states_have_their_shapes_back() -> None:
    a, x = _affine(6, 5), gaussian(24, 6)
    y = a.transform(x)
    torch.testing.assert_close(a.transform(x[0]), y[0])
    torch.testing.assert_close(a.transform(x.reshape(2, 3, 4, 6)), y.reshape(2, 3, 4, 5))
    assert a.transform(x[:0]).shape == (0, 5)
    assert a.transform(x.numpy()[:0]).shape == (0, 5)


def test_inputs_are_not_modified_and_gradients_pass() -> None:
    a, x = _affine(6, 6), gaussian(10, 6, dtype=torch.float64)
    before = x.clone()
    x.requires_grad_()
    assert torch.autograd.gradcheck(a.transform, (x,))
    assert torch.equal(x.detach(), before)
    frozen = before.numpy()
    frozen.flags.writeable = False
    Affine(before[0]).transform(frozen)
    Affine(before[0]).transform(before)
    assert torch.equal(x.detach(), before)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    d=st.integers(1, 6),
    k=st.integers(1, 6),
    out=st.integers(1, 6),
    offsets=st.tuples(st.booleans(), st.booleans()),
    plain=st.tuples(st.booleans(), st.booleans()),
)
def test_compose_is_one_after_the_other(
    seed: int, d: int, k: int, out: int, offsets: tuple[bool, bool], plain: tuple[bool, bool]
) -> None:
    first = Affine(gaussian(1, d, seed=seed)[0]) if plain[0] else _affine(d, min(d, k), seed=seed, offset=offsets[0])
    second = (
        Affine(gaussian(1, first.k, seed=seed)[0])
        if plain[1]
        else _affine(first.k, min(first.k, out), seed=seed + 5, offset=offsets[1])
    )
    x = gaussian(9, d, seed=seed + 9, dtype=torch.float64)
    torch.testing.assert_close(first.compose(second).transform(x), second.transform(first.transform(x)))
    matrix, bias = first.as_linear()
    assert close(x.numpy() @ matrix + bias, first.transform(x), atol=1e-12)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), d=st.integers(1, 8), offset=st.booleans(), identity=st.booleans())
def test_the_inverse_undoes_it(seed: int, d: int, offset: bool, identity: bool) -> None:
    weight = None if identity else rotation(d, seed=seed) * torch.linspace(0.1, 10, d, dtype=torch.float64)
    a = Affine(gaussian(1, d, seed=seed)[0], weight, offset=gaussian(1, d, seed=seed + 1)[0] if offset else None)
    x = gaussian(9, d, seed=seed + 2, dtype=torch.float64)
    torch.testing.assert_close(a.inverse_transform(a.transform(x)), x)
    torch.testing.assert_close(a.transform(a.inverse_transform(x)), x)


def test_what_has_no_inverse_says_so() -> None:
    with pytest.raises(InputError, match=r"expected a square weight to invert, got shape \(4, 3\)"):
        _affine(4, 3).inverse_transform(gaussian(2, 3))
    direction = torch.nn.functional.normalize(gaussian(2, 5, dtype=torch.float64)[0], dim=0)
    with pytest.raises(InputError, match="without 1 of 5 directions"):
        Affine(direction, torch.eye(5) - torch.outer(direction, direction)).inverse()
    with pytest.raises(InputError, match="without 3 of 3 directions"):
        Affine(torch.zeros(3), torch.zeros(3, 3)).inverse()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 5), r"expected rows of 4 features, got shape \(3, 5\)"),
        (np.zeros((3, 5), np.float32), r"expected rows of 4 features, got shape \(3, 5\)"),
        (as_rows(torch.zeros(3, 5)), r"expected rows of 4 features, got shape \(3, 5\) from tensor"),
        (torch.tensor(1.0), r"expected rows of 4 features, got shape \(\)"),
        (torch.zeros(3, 4, dtype=torch.int64), "expected a tensor of float64, .* got torch.int64"),
        (np.zeros((3, 4), np.int32), "expected an array of float64, .* got dtype int32"),
        (np.zeros((3, 4), object), "expected an array of float64, .* got dtype object"),
        (np.ma.masked_array(np.zeros((3, 4))), "expected an array without a mask"),
        (torch.tensor([[1.0, 2.0, float("nan"), 0.0], [0.0] * 4]), "expected finite rows, got 1 of 2 with NaN or inf"),
        (np.array([[np.inf, 2.0, 1.0, 0.0]]), "expected finite rows, got 1 of 1"),
    ],
)
def test_what_it_refuses(x: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _affine(4, 3).transform(x)  # type: ignore[type-var]


def test_rows_that_are_not_finite_are_named_when_they_are_read() -> None:
    x = gaussian(20, 4)
    x[7, 1] = float("inf")
    rows = _affine(4, 3).transform(as_rows(x))
    with pytest.raises(InputError, match=r"got 1 row of 20 with NaN or inf in tensor \(row 7\)"):
        list(rows.blocks())


def test_what_float16_cannot_hold_is_refused() -> None:
    a = Affine(torch.zeros(2), 1e6 * torch.eye(2))
    with pytest.raises(InputError, match=r"expected numbers that float16 can hold"):
        a.transform(torch.ones(3, 2).half())
    assert float(a.transform(torch.ones(3, 2)).max()) == 1e6


def test_a_sum_that_overflows_is_no_number_that_does() -> None:
    x = torch.full((100, 4), 3e38)
    assert torch.equal(Affine(torch.zeros(4)).transform(x), x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shift": torch.zeros(2, 2)}, r"expected a shift of shape \(D,\), got \(2, 2\)"),
        ({"shift": torch.zeros(0)}, r"expected a shift of shape \(D,\), got \(0,\)"),
        ({"shift": torch.zeros(2), "weight": torch.zeros(3, 2)}, r"expected a weight of shape \(2, K\), got \(3, 2\)"),
        ({"shift": torch.zeros(2), "weight": torch.zeros(2)}, r"expected a weight of shape \(D, K\), got \(2,\)"),
        ({"shift": torch.tensor([1.0, float("nan")])}, "expected finite numbers in shift"),
        ({"shift": torch.zeros(2), "offset": torch.zeros(3)}, r"expected an offset of shape \(2,\), got \(3,\)"),
    ],
)
def test_an_affine_map_that_is_none_is_refused(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Affine(**arguments)


def test_what_does_not_compose_says_so() -> None:
    with pytest.raises(InputError, match="expected a transformation of rows of 3 features, got one of 5"):
        _affine(4, 3).compose(_affine(5, 5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_device_comes_back() -> None:
    a, x = _affine(6, 5), gaussian(10, 6)
    y = a.transform(x.cuda())
    assert y.is_cuda
    torch.testing.assert_close(y.cpu(), a.transform(x))
