"""`Affine`: what it does to every kind of rows, what it composes to, what undoes it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.errors import InputError
from uncone.rows import as_rows
from uncone.transforms import Affine

from ..matrices import close, gaussian, rotation
from ..rows.reading import refuses

Tensor = torch.Tensor
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def _affine(d: int, k: int, *, seed: int = 0, offset: bool = False) -> Affine:
    shift, *weight = gaussian(d + 1, d, seed=seed, dtype=torch.float64)
    end = gaussian(1, k, seed=seed + 1, dtype=torch.float64)[0] if offset else None
    return Affine(shift, torch.stack(weight)[:, :k], offset=end)


@pytest.mark.parametrize("offset", [False, True])
def test_it_is_what_its_definition_says(offset: bool) -> None:
    """One number after another."""
    x = gaussian(5, 4, dtype=torch.float64)
    shifted = Affine(x[0], offset=x[1] if offset else None)
    for a in (_affine(4, 3, offset=offset), _affine(4, 4, offset=offset), shifted):
        weight, end = np.eye(4) if a.weight is None else a.weight, np.zeros(a.k) if a.offset is None else a.offset
        y = [
            [end[j] + sum((row[i] - a.shift[i]) * weight[i, j] for i in range(4)) for j in range(a.k)]
            for row in x.numpy()
        ]
        np.testing.assert_allclose(a.transform(x.numpy()), y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_and_errs_no_more_than_its_rounding(dtype: torch.dtype) -> None:
    a, x = _affine(6, 5, offset=True), gaussian(40, 6).to(dtype)
    y = a.transform(x)
    assert (y.dtype, y.device, y.shape) == (dtype, x.device, (40, 5))
    exact = a.transform(x.double())
    eps, least = torch.finfo(dtype).eps, torch.finfo(torch.float32).eps
    torch.testing.assert_close(y.double(), exact, rtol=2 * eps, atol=20 * least)


def test_rows_keep_their_ids_and_labels_and_are_read_in_parts() -> None:
    a, x = _affine(4, 2), gaussian(20, 4)
    rows = as_rows(x)
    rows.load_labels = lambda: ["a", "b", None]
    moved, y = a.transform(rows), a.transform(x)
    assert (moved.labels, moved.ids, moved.name) == (["a", "b", None], None, rows.name)
    assert close(moved.read(5, 9), y[5:9])
    assert close(moved.read(5, 9, out=np.empty((4, 2), np.float32)), y[5:9])


def test_one_vector_and_hidden_states_have_their_shapes_back() -> None:
    a, x = _affine(6, 5), gaussian(24, 6)
    y = a.transform(x)
    torch.testing.assert_close(a.transform(x[0]), y[0])
    torch.testing.assert_close(a.transform(x.reshape(2, 3, 4, 6)), y.reshape(2, 3, 4, 5))
    for none in (x[:0], x[:0].numpy()):
        assert a.transform(none).shape == (0, 5)


def test_inputs_are_not_modified() -> None:
    x = gaussian(10, 6, dtype=torch.float64)
    frozen = x.clone().numpy()
    frozen.flags.writeable = False
    for a in (Affine(x[0]), _affine(6, 6)):
        before = x.clone()
        a.transform(x)
        assert torch.equal(x, before)
        a.transform(frozen)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
def test_compose_is_one_after_the_other(seed: int, sizes: tuple[int, int, int], flags: tuple[bool, ...]) -> None:
    def made(d: int, k: int, seed: int, plain: bool, offset: bool) -> Affine:
        return Affine(gaussian(1, d, seed=seed)[0]) if plain else _affine(d, min(d, k), seed=seed, offset=offset)

    d, k, out = sizes
    first = made(d, k, seed, *flags[:2])
    second = made(first.k, out, seed + 5, *flags[2:])
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
    refuses(r"expected a square weight to invert, got shape \(4, 3\)", _affine(4, 3).inverse_transform, gaussian(2, 3))
    direction = torch.nn.functional.normalize(gaussian(2, 5, dtype=torch.float64)[0], dim=0)
    refuses("without 1 of 5 directions", Affine(direction, torch.eye(5) - torch.outer(direction, direction)).inverse)
    refuses("without 3 of 3 directions", lambda: Affine(torch.zeros(3), torch.zeros(3, 3)).inverse())


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
    refuses(r"got 1 row of 20 with NaN or inf in tensor \(row 7\)", lambda: list(rows.blocks()))


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
    refuses(message, Affine, **arguments)


def test_what_does_not_compose_says_so() -> None:
    refuses("expected a transformation of rows of 3 features, got one of 5", _affine(4, 3).compose, _affine(5, 5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_device_comes_back() -> None:
    a, x = _affine(6, 5), gaussian(10, 6)
    y = a.transform(x.cuda())
    assert y.is_cuda
    torch.testing.assert_close(y.cpu(), a.transform(x))
