"""The libraries of Hugging Face on files of this machine: which snapshot of the cache, and that no connection is ever tried."""

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import uncone
from tests.edits.language_models import V, saved
from uncone import InputError, UnconeError, UnsupportedModel
from uncone.model import cached_snapshot, open_model_files
from uncone.model.hugging_face import asked, load_encoder, open_tokenizer
from uncone.model.model_class import load_model
from uncone.model.sentence_transformers import load_sentence_transformer

pytest.importorskip("transformers")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REMOTE = "uncone-tests/not-on-this-machine"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def keep(hub: Path, folder: str, ref: str = "main", commit: str = COMMIT) -> Path:
    path = hub / folder / "refs" / ref
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(commit)
    snapshot = hub / folder / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    return snapshot


def test_names_with_and_without_an_organisation(hub: Path) -> None:
    assert cached_snapshot("gpt2") is None
    assert keep(hub, "models--gpt2") == cached_snapshot("gpt2")
    assert keep(hub, "models--EleutherAI--pythia-70m") == cached_snapshot("EleutherAI/pythia-70m")


def test_revisions_are_branches_tags_or_commits(hub: Path) -> None:
    other = COMMIT[::-1]
    snapshot = keep(hub, "models--a--b", "refs/pr/1", other)
    assert cached_snapshot("a/b") is None
    assert cached_snapshot("a/b@refs/pr/1") == snapshot
    assert cached_snapshot(f"a/b@{other}") == snapshot
    assert cached_snapshot(f"a/b@{COMMIT}") is None
    assert cached_snapshot("a/b@") is None


def test_a_snapshot_without_other_files_of_its_repository_is_opened(hub: Path) -> None:
    """transformers downloads only the files that it needs; huggingface_hub may know of the others."""
    snapshot = keep(hub, "models--a--b")
    (hub / "models--a--b" / "trees").mkdir()
    listed = {path: {"size": 2, "blob_id": COMMIT} for path in ("config.json", "README.md")}
    for content, found in (([], None), ({"format_version": 1, "files": listed}, snapshot)):
        (hub / "models--a--b" / "trees" / f"{COMMIT}.json").write_text(json.dumps(content))
        assert cached_snapshot("a/b") == found


@pytest.mark.slow
def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    snapshot = keep(tmp_path / "hub", "models--gpt2")
    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    code = "from uncone.model.hugging_face import cached_snapshot; print(cached_snapshot('gpt2'))"
    environment["HF_HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(snapshot), done.stderr


def test_a_reference_to_something_else_than_a_commit_is_not_followed(hub: Path) -> None:
    keep(hub, "models--gpt2")
    (hub / "models--gpt2" / "refs" / "main").write_text("../../..")
    assert cached_snapshot("gpt2") is None


NO_NAMES = ("", ".", "..", "../x", "a/../b", "/etc", "a/b/c", "a//b", "a--b", "-a", "a.", "a b", "a\0b", "a\n", "é")


@pytest.mark.parametrize("name", [*NO_NAMES, "x" * 97, "a@../b", "a@b/../c", "a@b\0c"])
def test_what_is_no_name_gives_nothing(hub: Path, name: str) -> None:
    assert cached_snapshot(name) is None


@given(st.text(alphabet="ab./-_@\\\0 ", max_size=20))
def test_nothing_escapes_the_cache(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("cache") / "deep" / "hub"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(root))
        keep(root, "models--a")
        keep(root, "models--a--b", "a/b")
        snapshot = cached_snapshot(name)
    assert snapshot is None or snapshot.resolve().is_relative_to(root.resolve())


def test_a_panic_of_a_library_is_a_message_and_an_interrupt_stays_one() -> None:
    class PanicException(BaseException):
        """As pyo3's, which is no Exception."""

    class SignalError(BaseException):
        """As the command's own, which asks it to end."""

    told = r"^transformers cannot do it \(PanicException: index out of range\)$"
    with pytest.raises(UnsupportedModel, match=told), asked("do it"):
        raise PanicException("index out of range\nnote: a backtrace")
    for stop in (KeyboardInterrupt, SignalError):
        with pytest.raises(stop), asked("do it"):
            raise stop


def test_the_switches_are_put_back_after_a_failure() -> None:
    before = constants.HF_HUB_OFFLINE, logging.getLogger("transformers").level
    with pytest.raises(UnsupportedModel), asked("do it"):
        raise ValueError(constants.HF_HUB_OFFLINE)
    assert (constants.HF_HUB_OFFLINE, logging.getLogger("transformers").level) == before


class TestOffline:
    """huggingface_hub is imported and online; any connection that is tried is written down and refused."""

    @pytest.fixture(autouse=True)
    def tried(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
        tried: list[str] = []

        def refuse(*call: object, **_: object) -> None:
            tried.append(repr(call))
            raise OSError("a connection was tried")

        for name in ("connect", "connect_ex"):
            monkeypatch.setattr(socket.socket, name, refuse)
        for name in ("getaddrinfo", "create_connection"):
            monkeypatch.setattr(socket, name, refuse)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield tried
        assert not tried

    def test_the_environment_variable_is_no_switch_once_the_hub_is_imported(
        self, tried: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So the tests below would see a connection; `asked` is a switch."""
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(Exception, match="a connection was tried"):
            huggingface_hub.model_info(REMOTE)
        assert tried
        tried.clear()
        with pytest.raises(UnsupportedModel, match="OfflineModeIsEnabled"), asked("ask the hub"):
            huggingface_hub.model_info(REMOTE)

    @pytest.mark.parametrize("spec", [REMOTE, f"{REMOTE}@v1#head", "gpt2"])
    def test_a_name_that_is_not_cached(self, spec: str) -> None:
        with pytest.raises(InputError, match=r"no model of that name in the Hugging Face cache.*downloads nothing"):
            uncone.open_rows(spec)

    def test_a_model_whose_config_names_others(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "m", "LlamaForCausalLM")
        config = json.loads((path / "config.json").read_text())
        config |= {"_name_or_path": REMOTE, "auto_map": {"AutoModelForCausalLM": f"{REMOTE}--code.Model"}}
        config |= {"_attn_implementation": f"{REMOTE}:attention", "use_pretrained_backbone": True}
        (path / "config.json").write_text(json.dumps(config))
        assert load_model(open_model_files(path))(torch.arange(3)[None]).logits.shape == (1, 3, V)
        (path / "model.safetensors").unlink()  # the library would look for others on the hub
        with pytest.raises(UnconeError):
            load_model(open_model_files(path))
        with pytest.raises(UnsupportedModel, match="transformers cannot load the encoder in"):
            load_encoder(path)

    @pytest.mark.parametrize(
        "settings",
        [
            {"_name_or_path": REMOTE},
            {"auto_map": {"AutoModel": f"{REMOTE}--code.Model", "AutoConfig": f"{REMOTE}--code.Config"}},
            {"_name_or_path": REMOTE, "_attn_implementation": f"{REMOTE}:attention"},
            {"attn_implementation": f"{REMOTE}:attention"},
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        ],
    )
    def test_an_encoder_whose_config_names_others(self, tmp_path: Path, settings: dict[str, object]) -> None:
        path = _bert(tmp_path / "m", **settings)
        try:
            _, tokenizer, _ = load_encoder(path)
        except UnsupportedModel:
            return
        assert tokenizer("a b").input_ids[1:3] == [5, 6]

    def test_an_adapter_of_a_model_that_is_elsewhere(self, tmp_path: Path) -> None:
        path = _bert(tmp_path / "m")
        (path / "model.safetensors").unlink()
        (path / "adapter_config.json").write_text(
            json.dumps({"base_model_name_or_path": REMOTE, "peft_type": "LORA", "auto_mapping": None})
        )
        with pytest.raises(UnsupportedModel, match="transformers cannot load the encoder in"):
            load_encoder(path)

    @pytest.mark.parametrize(
        "settings",
        [
            {"tokenizer_class": "BertTokenizer", "name_or_path": REMOTE},
            {"tokenizer_class": "MistralCommonTokenizer"},
            {"auto_map": {"AutoTokenizer": [f"{REMOTE}--code.Tokenizer", None]}, "tokenizer_class": "Own"},
        ],
    )
    @pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.model"])
    def test_a_tokenizer_without_tokenizer_json(self, tmp_path: Path, name: str, settings: dict[str, object]) -> None:
        path = _bert(tmp_path / "m")
        (path / "vocab.txt").rename(path / name)
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
        with contextlib.suppress(InputError):
            assert open_tokenizer(path).encode("a b", add_special_tokens=False).ids == [5, 6]

    @pytest.mark.parametrize("missing", ["0_Transformer", "1_Pooling", "both", "nothing"])
    def test_sentence_transformers_that_name_a_module_which_is_elsewhere(self, tmp_path: Path, missing: str) -> None:
        pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
        path, modules = tmp_path / "m", list[dict[str, object]]()
        path.mkdir()
        for i, kind in enumerate(("Transformer", "Pooling")):
            folder = f"{i}_{kind}"
            modules.append({"idx": i, "name": str(i), "path": folder, "type": f"sentence_transformers.models.{kind}"})
            if missing in (folder, "both"):
                continue
            (path / folder).mkdir()
            (path / folder / "config.json").write_text('{"word_embedding_dimension": 8}')
            if kind == "Transformer":
                _bert(path / folder, _name_or_path=REMOTE)
        (path / "modules.json").write_text(json.dumps(modules))
        (path / "README.md").write_text(f"---\nbase_model: {REMOTE}\ndatasets: [{REMOTE}]\n---\n")
        if missing == "nothing":
            assert load_sentence_transformer(path, device="cpu").encode(["a b"]).shape == (1, 8)
            return
        with pytest.raises(UnsupportedModel, match="Sentence Transformers cannot load the encoder in"):
            load_sentence_transformer(path, device="cpu")


@pytest.mark.parametrize("kind", ["transformers", "sentence_transformers"])
def test_an_encoder_with_a_short_record_is_refused_before_the_library_maps_it(tmp_path: Path, kind: str) -> None:
    """transformers and Sentence Transformers took the bytes that follow for weights."""
    path = _bert(tmp_path / "m")
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    torch.save(weights, path / "pytorch_model.bin")
    model, _, _ = load_encoder(path)
    assert model.embeddings.word_embeddings.weight.shape[1] == 8
    with zipfile.ZipFile(path / "pytorch_model.bin") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path / "pytorch_model.bin", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:54] if name.endswith("/data/3") else content)
    load = load_encoder
    if kind == "sentence_transformers":
        pytest.importorskip("sentence_transformers", reason="the extra [sentence] is not installed")
        modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
        (path / "modules.json").write_text(json.dumps(modules))
        load = load_sentence_transformer
    with pytest.raises(InputError, match=r"pytorch_model.bin, which torch cannot read \(record data/3 has 54 bytes"):
        load(path)
    with pytest.raises(InputError, match="record data/3 has 54 bytes"):
        uncone.open_rows(f"{path}#input")
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    load(path)  # which the library prefers


def _bert(path: Path, **settings: object) -> Path:
    """A small encoder whose tokenizer is a list of words."""
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 16}
    BertModel(BertConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)).save_pretrained(path)
    (path / "config.json").write_text(json.dumps(json.loads((path / "config.json").read_text()) | settings))
    (path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]))
    return path
