"""Repaired rows of length 1: against a slow loop, from a file, in a stream, and where a matrix is needed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from uncone import InputError, open_rows
from uncone.repairs.sentence_transformers import insert_into_directory
from uncone.rows.safetensors import read_tensors
from uncone.transforms import Affine, Center, Normalized, Transformation, Whiten, load, repair_rows

from ..matrices import close
from ..rows.reading import refuses
from .repairs import EVERY, cone, fresh


@pytest.mark.parametrize("made", EVERY, ids=repr)
def test_it_is_the_repair_and_then_the_division(made: Transformation, tmp_path: Path) -> None:
    x, path = cone(), tmp_path / "t.safetensors"
    fitted = fresh(made).fit(x)
    whole = Normalized(fitted)
    rows = fitted.transform(x.double()).tolist()
    norms = [math.sqrt(sum(value * value for value in row)) for row in rows]
    expected = [[value / norm if norm else 0.0 for value in row] for row, norm in zip(rows, norms, strict=True)]
    torch.testing.assert_close(whole.transform(x.double()), torch.tensor(expected, dtype=torch.float64))
    y = whole.transform(x)
    torch.testing.assert_close(y, torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert y.dtype == torch.float32
    whole.save(path)
    found = load(path)
    assert isinstance(found, Normalized)
    assert type(found.repair) is type(made)
    assert found.fitted_ == fitted.fitted_
    assert torch.equal(found.transform(x), y)
    repair_rows(x, found, tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y.numpy())


def test_zero_rows_stay_and_no_length_is_out_of_range() -> None:
    x = np.array([[0, 0, 0], [1e-30, 0, 1e-30], [3e30, 4e30, 0], [-0.5, 0, 0]], np.float32)
    half = math.sqrt(0.5)
    expected = [[0, 0, 0], [half, 0, half], [0.6, 0.8, 0], [-1, 0, 0]]
    np.testing.assert_allclose(Normalized(Affine(torch.zeros(3))).transform(x), expected, rtol=1e-6)


def test_dtypes_come_back_and_one_row_is_a_row(tmp_path: Path) -> None:
    whole = Normalized(Center().fit(cone()))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        y = whole.transform(cone().to(dtype))
        assert y.dtype == dtype
        assert float((y.double().norm(dim=1) - 1).abs().max()) < 4 * torch.finfo(dtype).eps
    assert whole.transform(cone()[0]).shape == (8,)
    assert whole.transform(cone().reshape(3, 100, 8)).shape == (3, 100, 8)
    np.save(tmp_path / "x.npy", cone(20_000).numpy())
    lazy = np.concatenate(list(whole.transform(open_rows(tmp_path / "x.npy")).blocks()))
    assert close(lazy, whole.transform(cone(20_000)), atol=1e-6, rtol=0)


def test_three_lines_apply_its_file_without_this_package(tmp_path: Path) -> None:
    whole = Normalized(Whiten().fit(cone()))
    whole.save(tmp_path / "t.safetensors")
    tensors = load_file(tmp_path / "t.safetensors")
    y = (cone().double() - tensors["shift"]) @ tensors["weight"]
    y = y / y.norm(dim=1, keepdim=True)
    torch.testing.assert_close(whole.transform(cone()), y.float(), atol=1e-5, rtol=1e-5)


def test_a_reader_that_knows_no_division_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    Normalized(Affine(torch.ones(3))).save(path)
    assert isinstance(load(path).repair, Affine)
    with pytest.raises(InputError, match=r"of format 'uncone.repair/1', got .* of format 'uncone.repair/2'"):
        read_tensors(path, format="uncone.repair/1", what="a transformation", how="write it anew")
    refuses("expected an affine transformation", Affine.load, path)


def test_a_model_holds_no_division_and_what_is_not_fitted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    message = "expected an affine transformation for a Sentence Transformers model"
    refuses(message, insert_into_directory, tmp_path / "m", Normalized(Center().fit(cone())), tmp_path / "out")
    refuses("expected a fitted Center", Normalized, Center())
