"""Every measure, from arrays and tensors of every dtype, byte order and layout."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from uncone import measure
from uncone.measure.everything import Readings
from uncone.rows.floats import narrow, widen

DTYPES = ("float64", "float32", "float16")
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "columns": np.asfortranarray,
    "every second row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every second column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards twice": lambda x: x[::-1].copy()[::-1],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


def cloud(dtype: str) -> np.ndarray:
    """Rows that drift, of features of different sizes."""
    return (np.random.default_rng(0).standard_normal((500, 24)) * np.linspace(0.3, 2, 24) + 0.5).astype(dtype)


def readings(x: Any) -> Readings:
    return measure.all(x, neighbours=True)


@cache
def expected(dtype: str) -> Readings:
    return readings(cloud(dtype))


def same(found: Readings, wanted: Readings, rel: float) -> None:
    assert list(found) == list(wanted)
    for name, one in wanted.items():
        assert found[name].value == pytest.approx(one.value, rel=rel), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_of_arrays(dtype: str, layout: str) -> None:
    x = cloud(dtype)
    view = LAYOUTS[layout](x)
    view.flags.writeable = False
    assert (view == x).all()
    same(readings(view), expected(dtype), 1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_read_as_their_arrays_to_the_bit(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = cloud(dtype)
    same(readings(torch.from_numpy(x).requires_grad_()), expected(dtype), 0.0)
    same(readings(torch.from_numpy(x.T.copy()).T), readings(np.asfortranarray(x)), 0.0)


def test_bfloat16_reads_as_its_numbers_in_float32() -> None:
    torch = pytest.importorskip("torch")
    x = cloud("float32")
    widen(narrow(x, "bfloat16"), wide := np.empty_like(x))
    tensor = torch.from_numpy(x).bfloat16()
    assert np.array_equal(tensor.float().numpy(), wide)
    same(readings(tensor), readings(wide), 0.0)
