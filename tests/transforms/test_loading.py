"""Saved transformations: the same bits come back with their provenance, and hostile files are refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import uncone
from uncone.errors import InputError
from uncone.transforms import Affine, Center, Fitted, Transformation, Whiten, load

from ..matrices import equal, gaussian
from .repairs import EVERY

Tensor = torch.Tensor
FITTED = Fitted("rows.npy", 300, 8, "ab" * 32)


def _rows() -> Tensor:
    return gaussian(300, 8) * torch.linspace(3, 0.5, 8) + 2


def _parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        return file.metadata(), load_file(path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A whitening in a file."""
    Whiten("pca", 1.0).fit(_rows()).save(tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("made", EVERY, ids=repr)
def test_what_was_saved_comes_back_to_the_bit(made: Transformation, tmp_path: Path) -> None:
    x, path = _rows(), tmp_path / "t.safetensors"
    made = type(made)(**made.options()).fit(x, weights=torch.arange(1, 301))
    made.save(path)
    found = load(path)
    assert isinstance(found, type(made))
    assert (found.options(), found.fitted_, found.warnings_) == (made.options(), made.fitted_, made.warnings_)
    assert torch.equal(found.transform(x), made.transform(x))
    for name in made.tensors:
        assert equal(getattr(found, name), getattr(made, name))
    if made.affine:
        affine = Affine.load(path)
        assert affine.fitted == made.fitted_
        assert torch.equal(affine.transform(x), made.transform(x))
    else:
        with pytest.raises(
            InputError, match=r"expected an affine transformation, got .* read it with uncone.transforms.load"
        ):
            Affine.load(path)


@pytest.mark.parametrize("fitted", [None, FITTED])
@pytest.mark.parametrize("weight", [None, gaussian(4, 3)])
@pytest.mark.parametrize("offset", [None, gaussian(1, 3)[0]])
def test_an_affine_map_comes_back(
    fitted: Fitted | None, weight: Tensor | None, offset: Tensor | None, tmp_path: Path
) -> None:
    made = Affine(torch.arange(4.0 if weight is not None else 3.0), weight, fitted, offset)
    made.save(tmp_path / "a.safetensors")
    for found in (load(tmp_path / "a.safetensors"), Affine.load(tmp_path / "a.safetensors")):
        assert isinstance(found, Affine)
        assert found.fitted == fitted
        for name in ("shift", "weight", "offset"):
            a, b = getattr(found, name), getattr(made, name)
            assert (a is None and b is None) or equal(a, b)


def test_the_file_says_whose_it_is_and_can_be_used_without_this_package(saved: Path) -> None:
    header, tensors = _parts(saved)
    fitted = json.loads(header["fitted"])
    assert (header["format"], header["kind"], header["uncone"]) == ("uncone.repair/1", "Whiten", uncone.__version__)
    assert (fitted["name"], fitted["n"], fitted["d"], len(fitted["sha256"])) == ("tensor", 300, 8, 64)
    assert json.loads(header["options"])["power"] == 1.0
    x = _rows()
    by_hand = (x.double() - tensors["shift"]) @ tensors["weight"]
    torch.testing.assert_close(by_hand.float(), load(saved).transform(x))


def test_a_warning_comes_back(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="raised to the floor"):
        made = Whiten(force=True).fit(gaussian(5, 8))
    made.save(tmp_path / "w.safetensors")
    found = load(tmp_path / "w.safetensors")
    assert isinstance(found, Whiten)
    assert found.warnings_ == made.warnings_ != ()


def test_a_save_replaces_whole_files_only(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(InputError, match="there is no folder"):
        Center().fit(_rows()).save(saved.parent / "nowhere" / "c.safetensors")
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == ["w.safetensors"]


def test_files_that_are_cut_anywhere_are_refused(saved: Path) -> None:
    content = saved.read_bytes()
    cut = saved.with_name("cut.safetensors")
    for length in (0, 5, 8, 100, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"safetensors|lies|cannot be read"):
            load(cut)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="expected a file"):
        load(tmp_path)
    bad = tmp_path / "bad.safetensors"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "unpickled",)

    for content in (
        pickle.dumps(Trap()),
        b"\xff" * 64,
        b"PK\x03\x04" + bytes(100),
        (10**9).to_bytes(8, "little") + bytes(64),
    ):
        bad.write_bytes(content)
        with pytest.raises(InputError, match="expected a safetensors"):
            load(bad)
    torch.save(Trap(), bad)
    with pytest.raises(InputError, match="expected a safetensors"):
        load(bad)
    np.save(tmp_path / "x.npy", np.zeros((3, 3)))
    with pytest.raises(InputError, match="expected a safetensors"):
        load(tmp_path / "x.npy")
    save_file({"shift": torch.zeros(3, dtype=torch.float64)}, bad)
    with pytest.raises(
        InputError,
        match=r"expected a transformation of format 'uncone\.repair/1'.*: write it with `uncone repair SPEC OUT --save F`, or with save",
    ):
        load(bad)
    assert not (tmp_path / "unpickled").exists()


def test_a_header_that_claims_more_than_the_file_has_allocates_nothing(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "__metadata__": {"format": "uncone.repair/1", "kind": "Affine"},
            "shift": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]},
        }
    ).encode()
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(InputError, match="which the library refuses"):
        load(bad)


@pytest.mark.parametrize(
    ("header", "tensors", "message"),
    [
        ({"kind": "Trap"}, {}, "expected one of Affine, Center, .* got 'Trap'"),
        ({"kind": "x" * 10_000}, {}, r"got 'x{58,60}'?"),
        ({"kind": "Center"}, {}, "a file that lies: unknown field 'floor' in options"),
        ({"options": "{"}, {}, "text that does not parse"),
        ({"options": "[]"}, {}, "a file that lies: expected an object at header.options"),
        ({"options": '{"kind": "pca"}'}, {}, "a file that lies: missing field 'floor' in options"),
        (
            {"options": '{"kind":"pca","power":[],"floor":1,"n_components":null,"force":false}'},
            {},
            "expected a finite number at options.power",
        ),
        (
            {"options": '{"kind":"pca","power":7,"floor":1,"n_components":null,"force":false}'},
            {},
            "expected power to be a number from 0 to 1",
        ),
        (
            {"options": '{"kind":"PCA","power":1,"floor":1,"n_components":null,"force":false}'},
            {},
            "expected one of 'zca', 'pca' at options.kind",
        ),
        (
            {"options": '{"kind":"pca","power":1,"floor":1e999,"n_components":null,"force":false}'},
            {},
            "finite numbers .* at header.options.floor, got inf",
        ),
        (
            {"options": '{"kind":"pca","power":1,"floor":1,"n_components":true,"force":false}'},
            {},
            "expected an integer at options.n_components",
        ),
        (
            {"options": '{"kind":"pca","power":1,"floor":%s,"n_components":null,"force":false}' % 10**400},
            {},
            "integers below 2.63 at header.options.floor",
        ),
        (
            {"options": '{"kind":"pca","power":1,"floor":1,"n_components":%s,"force":false}' % 10**400},
            {},
            "integers below 2.63 at header.options.n_components",
        ),
        ({"fitted": "null"}, {}, "it does not say what it was fitted on"),
        (
            {"fitted": '{"name": "a", "n": %s, "d": 8}' % 10**400},
            {},
            "expected finite numbers and integers below|expected an integer below",
        ),
        ({"fitted": '{"name": 3, "n": 1, "d": 8}'}, {}, "expected str at header.fitted.name"),
        (
            {"fitted": '{"name": "a", "n": 1, "d": 9, "sha256": null}'},
            {},
            "rows of 8 features were fitted on rows of 9",
        ),
        ({"fitted": None}, {}, "it does not say what it was fitted on"),
        ({"warnings": "[1]"}, {}, r"expected str at header.warnings\[0\]"),
        ({}, {"shift": None}, "it has no tensor 'shift'"),
        ({}, {"mean_": None}, "it has no tensor 'mean_' of 1 axes"),
        ({}, {"shift": torch.zeros(9, dtype=torch.float64)}, "the shape of 'shift' does not fit"),
        ({}, {"components_": torch.zeros(8, 7, dtype=torch.float64)}, "the shape of 'components_' does not fit"),
        (
            {},
            {"components_": torch.zeros(9, 8, dtype=torch.float64), "variances_": torch.ones(9, dtype=torch.float64)},
            "it holds 9 directions of 8 features",
        ),
        ({}, {"weight": torch.zeros(7, 8, dtype=torch.float64)}, r"expected a weight of shape \(8, K\), got \(7, 8\)"),
        ({}, {"weight": torch.zeros(8, 8)}, "tensor 'weight' is not of finite float64 numbers"),
        ({}, {"mean_": torch.full((8,), float("nan"), dtype=torch.float64)}, "tensor 'mean_' is not of finite"),
    ],
)
def test_files_that_lie_are_refused(
    saved: Path, header: dict[str, str | None], tensors: dict[str, Tensor | None], message: str
) -> None:
    old_header, old_tensors = _parts(saved)
    new = {k: v for k, v in (old_header | header).items() if v is not None}  # type: ignore[operator]
    save_file({k: v for k, v in (old_tensors | tensors).items() if v is not None}, saved, metadata=new)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        load(saved)


def test_flipped_bytes_never_do_more_than_raise(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    generator = np.random.default_rng(0)
    length = 8 + int.from_bytes(content[:8], "little")
    for _ in range(60):
        damaged = bytearray(content)
        damaged[int(generator.integers(0, length))] = int(generator.integers(0, 256))
        saved.write_bytes(damaged)
        try:
            found = load(saved)
        except InputError:
            continue
        assert isinstance(found, Affine | Transformation)
