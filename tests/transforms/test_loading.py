"""Saved transformations: the same bits come back with their provenance, and hostile files are refused."""

import io
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
from ..rows.reading import refuses
from .repairs import EVERY, cone, fresh

Tensor = torch.Tensor


def _parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        return file.metadata(), load_file(path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A whitening in a file."""
    Whiten("pca", 1.0).fit(cone()).save(tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("made", EVERY, ids=repr)
def test_what_was_saved_comes_back_to_the_bit(made: Transformation, tmp_path: Path) -> None:
    x, path = cone(), tmp_path / "t.safetensors"
    made = fresh(made).fit(x, weights=torch.arange(1, 301))
    made.save(path)
    found = load(path)
    assert isinstance(found, type(made))
    assert (found.options(), found.fitted_, found.warnings_) == (made.options(), made.fitted_, made.warnings_)
    assert torch.equal(found.transform(x), made.transform(x))
    for name, _ in made.tensors:
        assert equal(getattr(found, name), getattr(made, name))
    if made.affine:
        affine = Affine.load(path)
        assert affine.fitted == made.fitted_
        assert torch.equal(affine.transform(x), made.transform(x))
    else:
        refuses(r"expected an affine transformation, got .* read it with uncone.transforms.load", Affine.load, path)


@pytest.mark.parametrize("fitted", [None, Fitted("rows.npy", 300, 8, "ab" * 32)])
@pytest.mark.parametrize("weight", [None, gaussian(4, 3)])
@pytest.mark.parametrize("offset", [None, gaussian(1, 3)[0]])
def test_a_map_comes_back(fitted: Fitted | None, weight: Tensor | None, offset: Tensor | None, tmp_path: Path) -> None:
    made, path = Affine(torch.arange(4.0 if weight is not None else 3.0), weight, fitted, offset), tmp_path / "a"
    made.save(path)
    for found in (load(path), Affine.load(path)):
        assert isinstance(found, Affine)
        assert found.fitted == fitted
        assert found.tensors().keys() == made.tensors().keys()
        assert all(equal(x, made.tensors()[name]) for name, x in found.tensors().items())


def test_the_file_says_whose_it_is_and_can_be_used_without_this_package(saved: Path) -> None:
    header, tensors = _parts(saved)
    fitted = json.loads(header["fitted"])
    assert (header["format"], header["kind"], header["uncone"]) == ("uncone.repair/1", "Whiten", uncone.__version__)
    assert (fitted["name"], fitted["n"], fitted["d"], len(fitted["sha256"])) == ("tensor", 300, 8, 64)
    assert json.loads(header["options"])["power"] == 1.0
    x = cone()
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
    refuses("there is no folder", lambda: Center().fit(cone()).save(saved.parent / "nowhere" / "c.safetensors"))
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == ["w.safetensors"]


def test_files_that_are_cut_anywhere_are_refused(saved: Path) -> None:
    content = saved.read_bytes()
    cut = saved.with_name("cut.safetensors")
    for length in (0, 5, 8, 100, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        refuses(r"safetensors|lies|cannot be read", load, cut)


def test_other_files_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    refuses("cannot read", load, bad)
    refuses("expected a file", load, tmp_path)

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "unpickled",)

    stream = io.BytesIO()
    torch.save(Trap(), stream)
    np.save(tmp_path / "x.npy", np.zeros((3, 3)))
    others = b"\xff" * 64, b"PK\x03\x04" + bytes(100), (10**9).to_bytes(8, "little") + bytes(64)
    for content in (pickle.dumps(Trap()), stream.getvalue(), (tmp_path / "x.npy").read_bytes(), *others):
        bad.write_bytes(content)
        refuses("expected a safetensors", load, bad)
    save_file({"shift": torch.zeros(3, dtype=torch.float64)}, bad)
    how = "write it with `uncone repair SPEC OUT --save F`, or with save"
    refuses(rf"expected a transformation of format 'uncone\.repair/1'.*: {how}", load, bad)
    assert not (tmp_path / "unpickled").exists()


def test_a_header_that_claims_more_than_the_file_has_allocates_nothing(tmp_path: Path) -> None:
    shift = {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}
    header = {"__metadata__": {"format": "uncone.repair/1", "kind": "Affine"}, "shift": shift}
    text, bad = json.dumps(header).encode(), tmp_path / "bad.safetensors"
    bad.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    refuses("which the library refuses", load, bad)


def _options(**changes: object) -> dict[str, str]:
    whole = {"kind": "pca", "power": 1, "floor": 1, "n_components": None, "force": False}
    return {"options": json.dumps(whole | changes)}


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"kind": "Trap"}, "expected one of Affine, Center, .* got 'Trap'"),
        ({"kind": "x" * 10_000}, r"got 'x{58,60}'?"),
        ({"kind": "Center"}, "a damaged file: unknown field 'floor' in options"),
        ({"options": "{"}, "text that does not parse"),
        ({"options": "[]"}, "a damaged file: expected an object at header.options"),
        ({"options": '{"kind": "pca"}'}, "a damaged file: missing field 'floor' in options"),
        (_options(power=[]), "expected a finite number at options.power"),
        (_options(power=7), "expected power to be a number from 0 to 1"),
        (_options(kind="PCA"), "expected one of 'zca', 'pca' at options.kind"),
        (
            {"options": _options()["options"].replace('"floor": 1', '"floor": 1e999')},
            "finite numbers .* at header.options.floor, got inf",
        ),
        (_options(n_components=True), "expected an integer at options.n_components"),
        (_options(floor=10**400), "integers below 2.63 at header.options.floor"),
        (_options(n_components=10**400), "integers below 2.63 at header.options.n_components"),
        ({"fitted": "null"}, "it does not record what it was fitted on"),
        ({"fitted": '{"name": "a", "n": %s, "d": 8}' % 10**400}, "finite numbers and integers below|an integer below"),
        ({"fitted": '{"name": 3, "n": 1, "d": 8}'}, "expected str at header.fitted.name"),
        (
            {"fitted": '{"name": "a", "n": 1, "d": 9, "sha256": null}'},
            "it is for rows of 8 features, but was fitted on rows of 9",
        ),
        ({"fitted": None}, "it does not record what it was fitted on"),
        ({"warnings": "[1]"}, r"expected str at header.warnings\[0\]"),
        ({"shift": None}, "it has no tensor 'shift'"),
        ({"mean_": None}, "it has no tensor 'mean_' of 1 axes"),
        ({"shift": _zeros(9)}, "the shape of 'shift' does not fit"),
        ({"components_": _zeros(8, 7)}, "the shape of 'components_' does not fit"),
        ({"components_": _zeros(9, 8), "variances_": _zeros(9)}, "it holds 9 directions of 8 features"),
        ({"weight": _zeros(7, 8)}, r"expected a weight of shape \(8, K\), got \(7, 8\)"),
        ({"weight": torch.zeros(8, 8)}, "tensor 'weight' does not hold finite float64 numbers"),
        ({"mean_": _zeros(8) + float("nan")}, "tensor 'mean_' does not hold finite"),
    ],
)
def test_files_that_lie_are_refused(saved: Path, header: dict[str, str | Tensor | None], message: str) -> None:
    """Some parts of a file are others, or are not there."""
    texts, tensors = _parts(saved)
    for name, value in header.items():
        parts: dict[str, Any] = tensors if name in tensors else texts
        parts.pop(name, None)
        if value is not None:
            parts[name] = value
    save_file(tensors, saved, metadata=texts)
    refuses(message, load, saved)


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
