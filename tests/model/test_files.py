import json
import shutil
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.reading import refuses
from uncone.errors import InputError
from uncone.model import files as files_module
from uncone.model import open_model_files, rows_of


def test_a_single_file_is_opened_and_its_rows_are_the_tensor(plant):
    weight = torch.arange(24, dtype=torch.float32).reshape(8, 3)
    directory = plant({"vocab_size": 8}, {"wte.weight": weight, "bias": (8,)})
    (directory / "pytorch_model.bin").write_bytes(b"not looked at, since safetensors come first")
    files = open_model_files(directory)
    assert set(files.tensors) == {"wte.weight", "bias"}
    assert files.vocab_size == 8
    assert np.array_equal(rows_of(files, "wte.weight").read(0, 8), weight)
    refuses(r"expected a matrix of shape \(N, D\), got shape \(8,\)", rows_of, files, "bias")


def test_shards_are_read_through_the_index(plant_shards):
    directory = plant_shards({"model-1.safetensors": {"a": (8, 2)}, "model-2.safetensors": {"wte.weight": (4, 2)}})
    files = open_model_files(directory)
    assert (rows_of(files, "a").shape, rows_of(files, "wte.weight").shape) == ((8, 2), (4, 2))
    assert rows_of(files, "a").name == f"{directory}#a"
    refuses(r"no tensor 'wte\.wight' in .*: did you mean 'wte\.weight'", rows_of, files, "wte.wight")


def test_links_into_a_cache_are_followed(plant, tmp_path):
    real = plant({"vocab_size": 8}, {"wte.weight": (8, 3)})
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in real.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert set(open_model_files(snapshot).tensors) == {"wte.weight"}


@pytest.mark.parametrize("own", [{}, {"config.json": "{}"}], ids=["no config", "no weights"])
def test_a_run_directory_names_its_checkpoints(tmp_path, plant, own):
    run, model = tmp_path / "my run", plant({"vocab_size": 8}, {"wte.weight": (8, 3)})
    for step in (1000, 500, 2000):
        shutil.copytree(model, run / f"checkpoint-{step}")
    (run / "checkpoint-2000" / "config.json").rename(run / "checkpoint-2000" / "adapter_config.json")
    (run / "runs").mkdir()  # of TensorBoard
    for name, text in own.items():
        (run / name).write_text(text)
    with pytest.raises(InputError, match="is not a model but holds 3") as raised:
        open_model_files(run)
    assert "('checkpoint-500', 'checkpoint-1000', 'checkpoint-2000')" in str(raised.value)
    assert f"`uncone diagnose '{run}/checkpoint-2000'`" in str(raised.value)
    assert f"`uncone saturation checkpoints '{run}'`" in str(raised.value)
    assert open_model_files(run / "checkpoint-500").vocab_size == 8


OF_8 = [{"vocab_size": 8}, {"text_config": {"vocab_size": 8}}, {"vocab_size": 8, "text_config": {}}]
OF_8 += [{"vocab_size": 8, "text_config": {"vocab_size": 8}}]
OF_NONE = [{"vocab_size": 9, "text_config": {"vocab_size": 8}}, {"vocab_size": "8", "text_config": 3}, {}]
OF_NONE += [{"vocab_size": size} for size in (True, [8], -8)]


@pytest.mark.parametrize(("config", "size"), [*((one, 8) for one in OF_8), *((one, None) for one in OF_NONE)])
def test_vocab_size(plant, config, size):
    assert open_model_files(plant(config, {"a": (2, 2)})).vocab_size == size


def test_a_directory_is_needed(tmp_path):
    refuses(r"with config\.json and model\.safetensors, got .*nowhere", open_model_files, tmp_path / "nowhere")


OTHERS = ("other.bin", "consolidated.pt", "old.pth", "last.ckpt")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"without config\.json: give what save_pretrained wrote"),
        ({"config.json": b"{}"}, r"expected model\.safetensors, pytorch_model\.bin or an index of shards .* got none"),
        *(({"config.json": b"{}", f: b"\x80\x04."}, rf"'{f}': open .*{f}#tensor\.name, or, .*save_p") for f in OTHERS),
        ({"config.json": b"{}", "pytorch_model.bin": b"\x80\x04."}, "a pickle, which can run code: if you trust"),
        ({"config.json": b"{}", "adapter_model.safetensors": b""}, r"got 'adapter_model\.safetensors': open .*#tensor"),
        ({"config.json": b"[]"}, r"expected a JSON object in .*config\.json, got list"),
        ({"config.json": b"{"}, r"expected JSON, got .*config\.json that does not parse"),
        ({"config.json": b"\xff{}"}, "does not parse"),
        ({"config.json": b"[" * 100_000}, "does not parse"),
        ({"config.json": b'{"a": ' + b"9" * 5000 + b"}"}, "does not parse"),
    ],
)
def test_what_is_no_model_is_refused_with_the_way_out(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    refuses(message, open_model_files, tmp_path)


def test_a_model_that_torch_saved_is_read(tmp_path):
    weight = torch.arange(24, dtype=torch.float32).reshape(8, 3)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 8}))
    torch.save({"wte.weight": weight, "proj": weight.T, "bias": torch.ones(8)}, tmp_path / "pytorch_model.bin")
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    files = open_model_files(tmp_path)
    assert np.array_equal(rows_of(files, "wte.weight").read(0, 8), weight)
    assert np.array_equal(rows_of(files, "proj").read(0, 3), weight.T)
    assert rows_of(files, "wte.weight", with_tokens=True).labels[:3] == ["a", "b", None]
    assert rows_of(files, "wte.weight").name == f"{tmp_path}#wte.weight"


def test_shards_that_torch_saved_are_read_through_their_index(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 8}))
    placed = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    for name, shard in placed.items():
        torch.save({name: torch.ones(4, 2)}, tmp_path / shard)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": placed}))
    assert rows_of(open_model_files(tmp_path), "b").shape == (4, 2)
    index.write_text(json.dumps({"weight_map": {"a": "../outside.bin"}}))
    refuses(r"expected plain names of \.bin files in .*: do not trust it", open_model_files, tmp_path)


def test_a_huge_config_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "LARGEST_JSON", 10)
    (tmp_path / "config.json").write_text(json.dumps({"a": "b" * 20}))
    refuses(r"expected at most 10 bytes in .*config\.json, got more", open_model_files, tmp_path)


PLAIN = ("../model.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..\\x.safetensors", ".x.safetensors")
IN_M = {"m.safetensors": {"a": (2, 2)}}


@pytest.mark.parametrize(
    ("shards", "placed", "message"),
    [
        *(({}, {"a": name}, r"expected plain names of \.safetensors files in .*: do not") for name in PLAIN),
        *(({}, {"a": name}, "expected plain names") for name in ("x.bin", "a\0.safetensors", "")),
        *(({}, placed, "expected a weight_map from tensors to files") for placed in ({}, [], {"a": 3}, "x")),
        (IN_M, {"a": "m.safetensors", "b": "n.safetensors"}, r"lists the shard n\.safetensors, which is missing"),
        (IN_M, {"a": "m.safetensors", "b": "m.safetensors"}, r"places tensor 'b' in m\.safetensors, which lacks it"),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(plant_shards, shards, placed, message):
    refuses(message, open_model_files, plant_shards(shards, placed))


def test_a_truncated_file_is_refused(plant):
    directory = plant({"vocab_size": 8}, {"wte.weight": (8, 3)})
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    refuses(r"which the library refuses", open_model_files, directory)


def test_labels_come_when_asked_for_and_only_for_vocabulary_many_rows(plant):
    directory = plant({"vocab_size": 4}, {"wte.weight": (4, 3), "padded": (64, 3), "wpe.weight": (2, 3)})
    (directory / "vocab.txt").write_text("[PAD]\na\nb\n")
    files = open_model_files(directory)
    assert rows_of(files, "wte.weight").labels is None
    assert rows_of(files, "wte.weight", with_tokens=True).labels == ["[PAD]", "a", "b", None]
    assert rows_of(files, "padded", with_tokens=True).labels[:4] == ["[PAD]", "a", "b", None]
    assert rows_of(files, "wpe.weight", with_tokens=True).labels is None


@given(st.binary(max_size=200))
def test_no_index_raises_anything_but_input_error(tmp_path_factory, text):
    directory = tmp_path_factory.mktemp("index")
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors.index.json").write_bytes(text)
    with pytest.raises(InputError):
        open_model_files(directory)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=30), min_size=1, max_size=4))
def test_no_weight_map_reads_outside_the_directory(tmp_path_factory, placed):
    root = tmp_path_factory.mktemp("root")
    (root / "outside.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (root / "model").mkdir()
    (root / "model" / "config.json").write_text("{}")
    index = {"weight_map": placed | {"x": "../outside.safetensors"}}
    (root / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError):
        open_model_files(root / "model")
