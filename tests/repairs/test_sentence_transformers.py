"""A repair inside a Sentence Transformers model: what is written, and what loads it without uncone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.rows.reading import refuses
from uncone import InputError
from uncone.errors import UnsupportedModel
from uncone.model.sentence_transformers import load_sentence_transformer
from uncone.repairs.sentence_transformers import embed, insert, insert_into_directory, without_normalize
from uncone.transforms import Affine, AllButTheTop, Center, ScaledCenter

OLD = "sentence_transformers.models."
SENTENCES = ["A cat sat on the mat.", "Stocks fell sharply on Monday.", "How do I reset my password?", "x"]


def _directory(path: Path, kinds: list[str], *, d: int = 4) -> Path:
    """What a saved model looks like, with files that stand for its weights."""
    path.mkdir()
    modules = []
    for i, kind in enumerate(kinds):
        place = "" if i == 0 else f"{i}_{kind}"
        (path / place).mkdir(exist_ok=True)
        if kind == "Pooling":
            config = {"word_embedding_dimension": d, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
            (path / place / "config.json").write_text(json.dumps(config))
        modules.append({"idx": i, "name": str(i), "path": place, "type": OLD + kind})
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "model.safetensors").write_bytes(bytes(range(256)))
    (path / "nested" / "deep").mkdir(parents=True)
    (path / "nested" / "deep" / "a file").write_text("kept")
    return path


def _fitted(d: int = 4) -> AllButTheTop:
    return AllButTheTop(1).fit(np.random.default_rng(0).normal(2, size=(50, d)))


def _files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("kinds", "at"),
    [
        (["Transformer", "Pooling", "Normalize"], 2),
        (["Transformer", "Pooling"], 2),
        (["Transformer", "Pooling", "Dense", "Normalize", "Normalize"], 3),
        (["Transformer", "Normalize", "Pooling"], 3),
    ],
)
def test_one_dense_stands_before_the_normalize_at_the_end(tmp_path: Path, kinds: list[str], at: int) -> None:
    source, fitted = _directory(tmp_path / "m", kinds), _fitted()
    out = insert_into_directory(source, fitted, tmp_path / "out")
    modules = json.loads((out / "modules.json").read_text())
    assert [module["type"].removeprefix(OLD) for module in modules] == [*kinds[:at], "Dense", *kinds[at:]]
    assert [module["idx"] for module in modules] == list(range(len(kinds) + 1))
    assert len({module["name"] for module in modules}) == len({module["path"] for module in modules}) == len(modules)
    dense = out / modules[at]["path"]
    config = json.loads((dense / "config.json").read_text())
    assert config.pop("activation_function") == "torch.nn.modules.linear.Identity"
    assert config == {"in_features": 4, "out_features": 4, "bias": True}
    stored, x = load_file(dense / "model.safetensors"), torch.randn(9, 4)
    layer = torch.nn.Linear(4, 4)
    layer.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in stored.items()})
    torch.testing.assert_close(layer(x), fitted.transform(x), rtol=1e-5, atol=1e-5)


def test_every_other_file_is_copied_as_it_is(tmp_path: Path) -> None:
    source = _directory(tmp_path / "m", ["Transformer", "Pooling", "Normalize"])
    (source / "linked").symlink_to(source / "model.safetensors")  # as a cache has them
    insert_into_directory(source, _fitted(), tmp_path / "out")
    before, after = _files(source), _files(tmp_path / "out")
    assert {name for name in after if name not in before} == {"2_Dense/config.json", "2_Dense/model.safetensors"}
    assert {name for name in before if before[name] != after[name]} == {"modules.json"}
    assert not (tmp_path / "out" / "linked").is_symlink()


def test_the_layer_says_what_it_was_fitted_on(tmp_path: Path) -> None:
    source = _directory(tmp_path / "m", ["Transformer", "Pooling", "Normalize"])
    insert_into_directory(source, _fitted(), tmp_path / "out")
    with safe_open(tmp_path / "out" / "2_Dense" / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["fitted"])["n"] == 50


def test_a_repair_can_be_put_behind_another(tmp_path: Path) -> None:
    source = _directory(tmp_path / "m", ["Transformer", "Pooling", "Normalize"])
    insert_into_directory(source, _fitted(), tmp_path / "once")
    insert_into_directory(tmp_path / "once", _fitted(), tmp_path / "twice")
    modules = json.loads((tmp_path / "twice" / "modules.json").read_text())
    assert [module["name"] for module in modules] == ["0", "1", "repair", "repair_2", "2"]
    assert modules[3]["path"] == "3_Dense"


def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    _directory(tmp_path / "m", ["Transformer", "Pooling", "Normalize"])
    (tmp_path / "there").mkdir()
    scaled = ScaledCenter().fit(torch.eye(4))
    for directory, transformation, out, message in (
        ("m", scaled, "out", "expected an affine transformation .* got ScaledCenter, which depends"),
        ("m", Center(), "out", "expected a fitted Center"),
        ("m", _fitted(5), "out", "expected a transformation of rows of 4 features, .* got one of 5"),
        ("m", _fitted(), "there", "expected a new folder"),
        ("m", _fitted(), "m/inside", "outside the model"),
        ("there", _fitted(), "out", "expected a directory of Sentence Transformers with modules.json"),
        ("m", _fitted(), "no/out", "there is no folder .*: give a folder that exists"),
    ):
        refuses(message, insert_into_directory, tmp_path / directory, transformation, tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "there"]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([], "expected modules in"),
        ([{"type": "x"}], "expected a type, a path and a name for each module"),
        (["x"], "expected a type, a path and a name for each module"),
        ([{"type": "x", "name": "0", "path": "../../etc"}], "expected folders inside"),
        ([{"type": "x", "name": "0", "path": "/etc"}], "expected folders inside"),
        ({"a": 1}, "expected a JSON list"),
    ],
)
def test_a_modules_file_that_lies_is_refused(tmp_path: Path, modules: object, message: str) -> None:
    source = _directory(tmp_path / "m", ["Transformer"])
    (source / "modules.json").write_text(json.dumps(modules))
    refuses(message, insert_into_directory, source, _fitted(), tmp_path / "out")


def test_links_to_folders_are_refused(tmp_path: Path) -> None:
    source = _directory(tmp_path / "m", ["Transformer"])
    (source / "loop").symlink_to(source)
    with pytest.raises(InputError, match=r"expected only files and folders in .*, got loop"):
        insert_into_directory(source, _fitted(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_check_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def refuse(copy: Path) -> None:
        assert (copy / "modules.json").is_file()
        raise InputError("no")

    source = _directory(tmp_path / "m", ["Transformer", "Pooling"])
    refuses("no", insert_into_directory, source, _fitted(), tmp_path / "out", check=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


_ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "uncone":
            raise ImportError("uncone must not be needed")
sys.meta_path.insert(0, Refuse())
import numpy, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
numpy.save(sys.argv[2], model.encode(sys.argv[3:]))
assert "uncone" not in sys.modules
"""


@pytest.mark.slow
def test_the_saved_directory_loads_without_uncone_and_gives_the_repaired_vectors(tmp_path: Path, minilm: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
    x = embed(without_normalize(load_sentence_transformer(minilm)), SENTENCES)
    fitted = Affine(torch.randn(384), torch.randn(384, 300) / 20)
    insert_into_directory(minilm, fitted, tmp_path / "out")
    command = [sys.executable, "-W", "error::DeprecationWarning:sentence_transformers", "-c", _ALONE, tmp_path / "out"]
    subprocess.run([*command, tmp_path / "y.npy", *SENTENCES], check=True, capture_output=True)
    expected = torch.nn.functional.normalize(fitted.transform(x))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected.numpy(), atol=1e-5)


@pytest.mark.slow
def test_a_loaded_model_gives_the_repaired_vectors_and_saves_them(tmp_path: Path, minilm: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
    model = load_sentence_transformer(minilm)
    x = embed(without_normalize(model), SENTENCES)
    fitted = Center().fit(x)
    refuses("expected a transformation of rows of 384 features", insert, model, _fitted())
    insert(model, fitted)
    expected = torch.nn.functional.normalize(fitted.transform(x))
    torch.testing.assert_close(embed(model, SENTENCES), expected, atol=1e-5, rtol=0)
    model.save(str(tmp_path / "saved"))
    again = embed(load_sentence_transformer(tmp_path / "saved"), SENTENCES)
    torch.testing.assert_close(again, expected, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
    source = _directory(tmp_path / "m", ["Transformer"])
    (source / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]))
    (source / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    message = r"expected modules of sentence_transformers .* got 'evil.Module': uncone never runs a model's"
    with pytest.raises(UnsupportedModel, match=message):
        load_sentence_transformer(source)
    assert not (tmp_path / "ran").exists()
