"""A model that is elsewhere: the same readings as of its files here, for the price of one tensor."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from tests.server import Answer, serving
from uncone.errors import InputError
from uncone.model.open import OpenedRemote, open_spec
from uncone.rows.remote import source
from uncone.rows.safetensors import to_bytes

pytestmark = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("httpx", "httpx2")),
    reason="neither httpx nor httpx2 is installed",
)
V, D, SHARDS = 3000, 64, 20
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V, "hidden_size": D}
WORDS = {f"t{i}": i for i in range(V)}
TOKENIZER = {"version": "1.0", "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "t0"}}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WAITS", (0.0, 0.0))


def model(**config: Any) -> dict[str, bytes]:
    """Files of a model of 20 shards, with a head that drifts."""
    random, files, placed = np.random.default_rng(0), dict[str, bytes](), dict[str, str]()
    for k in range(SHARDS):
        tensors = {f"model.layers.{k}.weight": random.standard_normal((8, 8)).astype(np.float32)}
        if k == 0:
            tensors["model.embed_tokens.weight"] = random.standard_normal((V, D)).astype(np.float16)
        if k == SHARDS - 1:
            tensors["lm_head.weight"] = (random.standard_normal((V, D)) + 0.5).astype(np.float16)
        name = f"model-{k + 1:05}-of-{SHARDS:05}.safetensors"
        files[f"m/{name}"] = to_bytes(tensors, {"format": "pt"})
        placed |= dict.fromkeys(tensors, name)
    files["m/model.safetensors.index.json"] = json.dumps({"weight_map": placed}).encode()
    files["m/config.json"] = json.dumps(CONFIG | {"tie_word_embeddings": False} | config).encode()
    files["m/tokenizer.json"] = json.dumps(TOKENIZER).encode()
    return files


FILES = model()


@pytest.fixture
def local(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "m"


@pytest.mark.parametrize("part", ["#head", "#input", "#model.layers.3.weight"])
def test_rows_and_tokens_are_those_of_the_local_model(part: str, local: Path) -> None:
    with serving(FILES) as server:
        here, there = uncone.open_rows(f"{local}{part}"), uncone.open_rows(f"{server.url}/m{part}")
        assert there.read(0, there.shape[0]).tobytes() == here.read(0, here.shape[0]).tobytes()
        assert there.labels == here.labels
        assert there.name == here.name.replace(str(local), f"{server.url}/m")


@pytest.mark.parametrize("part", ["#head", ""])
def test_a_diagnosis_is_that_of_the_local_model_and_reads_each_matrix_once(part: str, local: Path) -> None:
    with serving(FILES) as server:
        here, there = uncone.diagnose(f"{local}{part}"), uncone.diagnose(f"{server.url}/m{part}")
        beside = sum(len(content) for name, content in FILES.items() if name.endswith(".json"))
        matrices = V * D * 2 * (1 if part else 2)
        assert server.sent <= 1.01 * matrices + SHARDS * 2**14 + beside
    assert there.verdict == here.verdict
    for ours, theirs in zip(there.subjects, here.subjects, strict=True):
        assert ours.measurements == theirs.measurements
        assert [(one.cause, one.level, one.summary, one.evidence) for one in ours.findings] == [
            (one.cause, one.level, one.summary, one.evidence) for one in theirs.findings
        ]  # a repair is of files that are here


def test_a_tied_head_comes_with_the_table() -> None:
    files = model(tie_word_embeddings=True)
    index = json.loads(files["m/model.safetensors.index.json"])
    del index["weight_map"]["lm_head.weight"]
    files["m/model.safetensors.index.json"] = json.dumps(index).encode()
    with serving(files) as server:
        found = uncone.diagnose(f"{server.url}/m")
        assert server.sent < 1.5 * V * D * 2  # with all headers and the tokenizer, and not twice
    assert [one.name for one in found.subjects] == ["input", "head"]


def test_nothing_is_asked_for_before_it_is_used() -> None:
    with serving(FILES) as server:
        opened = open_spec(f"{server.url}/m#head")
        assert isinstance(opened, OpenedRemote)
        assert opened.is_model
        assert not server.asked
        assert opened.full_name == f"{server.url}/m#head"


def test_nothing_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with serving(FILES) as server:
        assert uncone.open_rows(f"{server.url}/m#head").labels is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("config.json", "no file http.*/m/config.json"),
        (
            "model.safetensors.index.json",
            "expected model.safetensors or model.safetensors.index.json at http.*/m, got neither",
        ),
        ("model-00003-of-00020.safetensors", "no file http.*/m/model-00003-of-00020.safetensors"),
    ],
)
def test_a_file_that_is_missing_is_named(gone: str, told: str) -> None:
    with (
        serving({name: content for name, content in FILES.items() if name != f"m/{gone}"}) as server,
        pytest.raises(InputError, match=told),
    ):
        uncone.open_rows(f"{server.url}/m#head")


def test_a_model_without_tokens_has_rows_without_names() -> None:
    files = {name: content for name, content in FILES.items() if "tokenizer" not in name}
    with serving(files) as server:
        assert uncone.open_rows(f"{server.url}/m#head").labels is None


def test_an_index_does_not_lead_elsewhere() -> None:
    index = json.dumps({"weight_map": {"lm_head.weight": "../x.safetensors"}}).encode()
    with (
        serving(FILES | {"m/model.safetensors.index.json": index}) as server,
        pytest.raises(InputError, match=r"expected plain names of \.safetensors files"),
    ):
        uncone.open_rows(f"{server.url}/m#head")


def test_a_text_asks_for_a_model_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("t1 t2 t3")
    with (
        serving(FILES) as server,
        pytest.raises(InputError, match="expected a model on this machine to read a text with"),
    ):
        uncone.diagnose(f"{server.url}/m", text=tmp_path / "a.txt")


def test_progress_of_a_download_counts_bytes() -> None:
    told = list[tuple[str, int, int]]()
    with serving(FILES) as server:
        uncone.diagnose(f"{server.url}/m#head", progress=lambda *step: told.append(step))
    assert ("head: downloading", V * D * 2, V * D * 2) in told


def test_what_has_no_room_is_read_as_often_as_it_is_wanted(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    monkeypatch.setenv("UNCONE_MEMORY_GB", "0.0005")
    with serving(FILES) as server:
        found = uncone.diagnose(f"{server.url}/m#head")
        assert server.sent > 2 * V * D * 2
    assert found.subjects[0].measurements == uncone.diagnose(f"{local}#head").subjects[0].measurements


def test_a_connection_that_breaks_in_the_middle_changes_nothing(local: Path) -> None:
    def fault(answer: Answer) -> None:
        answer.cut = 50_000

    with serving(FILES, change=fault) as server:
        ours = uncone.Moments.of(uncone.open_rows(f"{server.url}/m#head")).tensors()
    theirs = uncone.Moments.of(uncone.open_rows(f"{local}#head")).tensors()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)
