"""An edited copy of a model directory: all other bytes as they were, the whole of it or nothing."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.edits.language_models import V, drifted, saved
from uncone.edits.center_head import center_head
from uncone.edits.head import shifted
from uncone.errors import InputError
from uncone.model import ModelFiles, open_model_files
from uncone.model.directory import NewTensor, compare_untouched, edited_copy, open_directory, rounded_once, shard_name
from uncone.rows.safetensors import Entry

HEAD = "lm_head.weight"


def digests(path: Path) -> dict[str, str]:
    """sha256 of each tensor's bytes, over all safetensors files."""
    return {
        name: hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        for file in sorted(path.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def moved(files, name: str, by: float) -> dict[str, NewTensor]:
    return {name: shifted(files, name, torch.full((files.entries[name].shape[1],), by).double())}


def plain(path: Path, tensors: dict[str, torch.Tensor]) -> ModelFiles:
    """A directory of a config and these tensors."""
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text("{}")
    return open_model_files(path)


@pytest.mark.parametrize("shard", ["1GB", "30KB"])
def test_only_the_named_tensor_changes(tmp_path, shard):
    pytest.importorskip("transformers")
    old, new = tmp_path / "m", tmp_path / "o"
    files = open_directory(saved(old, "LlamaForCausalLM", max_shard_size=shard))
    assert (len(list(old.glob("*.safetensors"))) > 1) == (shard != "1GB")
    with edited_copy(files, new, moved(files, HEAD, 1.0)) as copy:
        assert not new.exists()
        assert compare_untouched(files, copy.files, frozenset([HEAD])) == len(files.tensors) - 1
    before, after = digests(old), digests(new)
    assert {name for name in before if before[name] != after[name]} == {HEAD}
    assert sorted(p.name for p in new.iterdir()) == sorted(p.name for p in old.iterdir())
    for file in (file for file in old.glob("*.json") if "index" not in file.name):
        assert (new / file.name).read_bytes() == file.read_bytes()
    first, second = ({k: v for f in p.glob("*.safetensors") for k, v in load_file(f).items()}[HEAD] for p in (old, new))
    assert torch.equal(second, (first.double() + 1).float())


def test_a_tensor_is_added_to_the_file_of_another(tmp_path):
    pytest.importorskip("transformers")
    files, out = open_directory(saved(tmp_path / "m", "GPT2LMHeadModel", max_shard_size="30KB")), tmp_path / "o"
    table, config = "transformer.wte.weight", {"model_type": "gpt2", "a": 1}
    added = NewTensor("F32", (V, 3), lambda: iter([torch.ones(V, 2), torch.zeros(V, 1)]))
    with edited_copy(files, out, {"new.weight": added}, beside=table, config=config):
        pass
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["new.weight"] == index["weight_map"][table]
    sizes = (t.nbytes for f in out.glob("*.safetensors") for t in load_file(f).values())
    assert index["metadata"]["total_size"] == sum(sizes)
    assert json.loads((out / "config.json").read_text()) == config
    before, after = digests(tmp_path / "m"), digests(out)
    assert {name: after[name] for name in before} == before
    written = load_file(out / index["weight_map"]["new.weight"])["new.weight"]
    assert written.flatten().tolist() == [1.0] * 2 * V + [0.0] * V


@pytest.mark.parametrize("legacy", [False, True])
def test_checkpoints_of_torch_save_become_safetensors(tmp_path, legacy):
    transformers = pytest.importorskip("transformers")
    model = drifted("GPT2LMHeadModel", dtype=torch.bfloat16)
    model.config.architectures = ["GPT2LMHeadModel"]
    model.config.save_pretrained(tmp_path / "m")
    state = model.state_dict() | {"transformer.ids": torch.arange(5)}
    torch.save(state, tmp_path / "m" / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    assert center_head(tmp_path / "m", tmp_path / "o").way == "folded"
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == ["config.json", "model.safetensors"]
    written = load_file(tmp_path / "o" / "model.safetensors")
    assert torch.equal(written["lm_head.weight"], written["transformer.wte.weight"])
    changed = {"lm_head.weight", "transformer.wte.weight", "transformer.wpe.weight"}
    assert all(torch.equal(written[name], tensor) for name, tensor in state.items() if name not in changed)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "o")
    assert again.lm_head.weight is again.transformer.wte.weight


def test_transposed_tensors_of_a_checkpoint_are_written_row_after_row(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    state = {"a": torch.randn(6, 4).T, "b": torch.randn(3, 5), "flag": torch.tensor([True, False])}
    torch.save(state, tmp_path / "m" / "pytorch_model.bin")
    files = open_model_files(tmp_path / "m")
    with edited_copy(files, tmp_path / "o", moved(files, "b", 2.0)):
        pass
    written = load_file(tmp_path / "o" / "model.safetensors")
    assert torch.equal(written["a"], state["a"])
    assert torch.equal(written["b"], (state["b"].double() + 2).float())
    assert written["flag"].tolist() == [True, False]


def test_what_lies_beside_the_weights(tmp_path):
    model, out = tmp_path / "m", tmp_path / "o"
    files = plain(model, {"w": torch.ones(2, 2)})
    for name in ("1_Pooling/config.json", "onnx/model.onnx", "pytorch_model.bin", "tf_model.h5", "real"):
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text('{"x": 1}')
    (model / "link.txt").symlink_to(model / "real")
    with edited_copy(files, out, moved(files, "w", 1.0)) as copy:
        assert copy.left_out == ("onnx/", "pytorch_model.bin", "tf_model.h5")
    found = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert found == ["1_Pooling/config.json", "config.json", "link.txt", "model.safetensors", "real"]
    assert not (out / "link.txt").is_symlink()
    for name, make in (("pipe", os.mkfifo), ("loop", lambda path: path.symlink_to(model))):
        make(model / name)
        with pytest.raises(InputError, match="expected only files and folders"), edited_copy(files, tmp_path / "p", {}):
            pass
        (model / name).unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "o"]


def test_targets_that_cannot_be(tmp_path, monkeypatch):
    files, out = plain(tmp_path / "m", {"w": torch.ones(2, 2)}), tmp_path / "o"

    def refused(target: Path, message: str) -> None:
        with pytest.raises(InputError, match=message), edited_copy(files, target, {}):
            pass

    refused(tmp_path / "m" / "o", "outside the model")
    refused(tmp_path / "m", "which exists")
    refused(tmp_path / "no" / "o", "cannot create")
    out.mkdir()
    refused(out, "expected a new folder")
    out.rmdir()
    for number, advice in ((errno.ENOSPC, "make room"), (errno.EROFS, "can be written")):

        def fails(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Entry, "stored_bytes", fails)
        refused(out, rf"cannot write .*{advice}.*nothing was written")
        assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_other_kinds_of_models_are_sent_to_what_can_edit_them(tmp_path):
    for name in ("m", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "m" / "model.gguf").write_bytes(b"GGUF")
    for path, message in (
        ("m", r"got the GGUF file .*: edit the model that it was converted from"),
        ("m/model.gguf", r"got the GGUF file .*: edit the model that it was converted from"),
        ("no", "no file or folder"),
        ("empty", r"without config\.json"),
    ):
        with pytest.raises(InputError, match=message):
            open_directory(tmp_path / path)


def test_a_copy_that_would_not_be_the_model_is_not_left(tmp_path):
    files, out = plain(tmp_path / "m", {"w": torch.ones(2, 2), "x": torch.ones(2, 2)}), tmp_path / "o"
    changed = edited_copy(files, out, moved(files, "x", 1.0))
    with pytest.raises(InputError, match="expected an exact copy of tensor"), changed as copy:
        compare_untouched(files, copy.files, frozenset())
    files = plain(tmp_path / "n", {"w": torch.full((2, 2), 60000.0, dtype=torch.float16)})
    too_large = edited_copy(files, out, moved(files, "w", 9000.0))
    with pytest.raises(InputError, match="that fit float16, got larger ones"), too_large:
        pass
    assert not out.exists()


def test_names_of_files():
    assert shard_name("pytorch_model.bin") == "model.safetensors"
    assert shard_name("pytorch_model-00001-of-00002.bin") == "model-00001-of-00002.safetensors"
    assert shard_name("model-00001-of-00002.safetensors") == "model-00001-of-00002.safetensors"


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=30), st.booleans())
def test_numbers_are_rounded_once(values, is_half):
    x = torch.tensor(values, dtype=torch.float64)
    found = rounded_once(x, torch.float16 if is_half else torch.bfloat16)
    if is_half:
        with np.errstate(over="ignore"):
            expected = x.numpy().astype(np.float16)  # NumPy rounds float64 to float16 directly
        assert found.numpy().tobytes() == expected.tobytes()
        return
    for value, rounded in zip(x.tolist(), found, strict=True):
        bits = int(rounded.view(torch.int16))
        near = torch.tensor([bits - 1, bits, bits + 1], dtype=torch.int32).to(torch.int16).view(torch.bfloat16).double()
        if np.isfinite(float(rounded)):
            assert abs(float(rounded) - value) == min(abs(n - value) for n in near.tolist() if np.isfinite(n))


def test_torchs_own_rounding_would_be_wrong_here():
    """Just above the middle of two bfloat16 numbers: by way of float32 it is the middle, and goes down to the even one."""
    x = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert float(x.to(torch.bfloat16)) == 1.0
    assert float(rounded_once(x, torch.bfloat16)) == 1 + 2.0**-7
    assert rounded_once(torch.tensor([float("nan"), -0.0]).double(), torch.bfloat16).isnan().tolist() == [True, False]


WRITER = """
import sys, time, warnings
warnings.simplefilter("ignore")
from uncone.edits.center_head import center_head
count = 0
def tell(what, done, total):
    global count
    count += done == total
    if count == 3:  # original and reference have run; this is the written copy
        print("half", flush=True)
        time.sleep(60)
center_head(sys.argv[1], sys.argv[2], progress=tell)
"""


@pytest.mark.slow
def test_kill_9_before_the_proof_is_done_leaves_no_model(tmp_path):
    pytest.importorskip("transformers")
    before = sorted(p.name for p in saved(tmp_path / "m", "GPTNeoXForCausalLM").iterdir())
    arguments = [sys.executable, "-c", WRITER, tmp_path / "m", tmp_path / "o"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "o").exists()
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == before


PEAK = """
import sys, threading, time, torch
from uncone.model import ModelFiles, open_model_files
from uncone.edits.head import shifted
from uncone.model.directory import edited_copy
def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024
files = open_model_files(sys.argv[1])
torch.ones(2, 2).double() @ torch.ones(2, 2).double()
before, peak, stop = anonymous(), 0, False
def watch():
    global peak
    while not stop:
        peak = max(peak, anonymous())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
with edited_copy(files, sys.argv[2], {"w": shifted(files, "w", torch.ones(1024).double())}):
    pass
stop = True
thread.join()
print(peak - before)
"""


@pytest.mark.slow
def test_no_shard_is_held_whole(tmp_path):
    plain(tmp_path / "m", {"w": torch.ones(100_000, 1024), "x": torch.ones(50_000, 1024)})
    run = [sys.executable, "-c", PEAK, tmp_path / "m", tmp_path / "o"]
    peak = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert peak < 150 * 2**20, f"{peak / 2**20:.0f} MiB for a file of 586"


def test_shards_of_torch_save_become_shards_of_safetensors(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = drifted("LlamaForCausalLM", tie_word_embeddings=True)
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(tmp_path / "m")
    state = [(name, tensor.clone()) for name, tensor in model.state_dict().items() if name != HEAD]
    placed = {}
    for number, part in enumerate((state[:5], state[5:]), 1):
        file = f"pytorch_model-{number:05d}-of-00002.bin"
        torch.save(dict(part), tmp_path / "m" / file)
        placed |= {name: file for name, _ in part}
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (tmp_path / "m" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert center_head(tmp_path / "m", tmp_path / "o", untie=True).added == (HEAD,)
    names = sorted(p.name for p in (tmp_path / "o").glob("*model*"))
    assert names == [*(f"model-0000{i}-of-00002.safetensors" for i in (1, 2)), "model.safetensors.index.json"]
    again, info = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "o", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    weights = dict(again.named_parameters())
    assert all(torch.equal(weights[name], tensor) for name, tensor in state)
