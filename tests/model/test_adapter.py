"""Adapters of PEFT: tables that they hold whole are read, and what is elsewhere is said with a command that runs."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import uncone
from uncone import InputError
from uncone.model.open import open_subjects

from ..rows.reading import refuses
from ..training.models import V, build

Written = Callable[..., Path]
HEAD, TABLE = "base_model.model.lm_head", "base_model.model.model.embed_tokens"
LOW_RANK = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture
def adapter(tmp_path: Path) -> Written:
    """adapter(tensors, **config) writes a directory as PEFT lays it out."""

    def write(tensors: dict[str, tuple[int, ...]], **config: Any) -> Path:
        directory = tmp_path / "adapter"
        directory.mkdir()
        (directory / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"} | config))
        generator = torch.Generator().manual_seed(0)
        stored = {name: torch.randn(shape, generator=generator) for name, shape in tensors.items()}
        save_file(stored, directory / "adapter_model.safetensors")
        return directory

    return write


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "base"
    build("LlamaForCausalLM", dtype=torch.float32, scale=1.0).save_pretrained(folder)
    return folder


def trained(base: Path, folder: Path, **options: Any) -> Path:
    """What PEFT itself saves of an adapter whose every tensor was moved."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM.from_pretrained(base)
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, **options))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore")
def test_tables_that_peft_saved_whole_are_read(base: Path, tmp_path: Path) -> None:
    path = trained(base, tmp_path / "a", target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"])
    stored = load_file(path / "adapter_model.safetensors")
    for kind, module in (("input", TABLE), ("head", HEAD)):
        rows = uncone.open_rows(f"{path}#{kind}")
        assert np.array_equal(rows.read(0, V), stored[f"{module}.weight"])
    opened = open_subjects(path)
    assert [name for name, _ in opened.rows] == ["input", "head"]
    assert "uncone reads the token table and the output head in it." in opened.notes[0]
    assert np.array_equal(uncone.open_rows(f"{path}#{LOW_RANK}").read(0, 2), stored[LOW_RANK])
    assert open_subjects(f"{path}#{HEAD}.weight").rows[0][0] == "head"
    assert open_subjects(f"{path}#{LOW_RANK}").rows[0][0] == "rows"


@pytest.mark.filterwarnings("ignore")
def test_one_whole_table_is_read_and_the_other_one_is_said_to_be_the_bases(base: Path, tmp_path: Path) -> None:
    path = trained(base, tmp_path / "a", target_modules=["q_proj"], modules_to_save=["lm_head"])
    found = uncone.diagnose(path)
    assert [subject.name for subject in found.subjects] == ["head"]
    where = "/".join(base.parts[-2:])
    assert found.notes[0] == f"This is a PEFT adapter (LORA) for {where}. uncone reads the output head in it."
    assert found.notes[1] == "The token table is in the base: diagnose the base too."
    assert str(base.parent) not in found.to_json(), "a record that is passed on names no path of this machine"
    with pytest.raises(InputError, match=f"expected the token table, got .*: run uncone diagnose {base}\\. Open other"):
        uncone.open_rows(f"{path}#input")


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_touches_no_table_sends_to_its_base(base: Path, tmp_path: Path) -> None:
    path = trained(base, tmp_path / "a", target_modules=["q_proj"])
    with pytest.raises(InputError, match="The base has the token table and the output head: run") as error:
        uncone.diagnose(path)
    command = re.search(r"run (uncone .*?)\. Open other matrices", str(error.value))
    assert command is not None
    assert shlex.split(command[1]) == ["uncone", "diagnose", str(base)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"target_modules": ["q_proj", "lm_head"]}, "head"),
        ({"target_modules": ["embed_tokens"]}, "input"),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [3, 4]}, "input"),
        ({"target_modules": ["lm_head"], "task_type": "CAUSAL_LM"}, "head"),
    ],
)
def test_a_table_that_is_changed_in_part_is_to_be_merged_by_a_command_that_runs(
    base: Path, tmp_path: Path, options: dict[str, Any], changed: str
) -> None:
    path, what = trained(base, tmp_path / "an adapter", **options), {"input": "token table", "head": "output head"}
    with pytest.raises(InputError, match=f"It changes the {what[changed]} in part, so merge it: python -c ") as error:
        uncone.open_rows(f"{path}#{changed}")
    command = re.search(r"merge it: (python -c '.*?')\. Open other matrices", str(error.value))
    assert command is not None
    _, option, code = shlex.split(command[1])
    assert option == "-c"
    if "task_type" in options:
        run = [sys.executable, option, code]
        assert subprocess.run(run, env=os.environ | {"HF_HUB_OFFLINE": "1"}, check=False).returncode == 0
    else:
        exec(code, {})  # a process of its own would load torch and peft again
    before, after = (uncone.open_rows(f"{where}#{changed}").read(0, V) for where in (base, f"{path}-merged"))
    assert int((before != after).any(1).sum()) == (2 if "trainable_token_indices" in options else V)


@pytest.mark.parametrize("name", [f"{HEAD}.lora_B.weight", f"{HEAD}.base_layer.weight"])
def test_a_matrix_that_is_a_part_of_the_head_is_never_taken_for_it(adapter: Written, name: str) -> None:
    path = adapter({name: (8, 3), f"{HEAD}.lora_A.weight": (3, 3)})
    refuses(r"got .* that does not hold either whole\. It changes the output head in", open_subjects, path)


def test_modules_below_one_of_a_heads_name_are_not_the_head(adapter: Written) -> None:
    path = adapter({"base_model.model.bert.layer.0.output.dense.lora_A.weight": (3, 3), f"{HEAD}.weight": (8, 3)})
    assert [name for name, _ in open_subjects(path).rows] == ["head"]


def test_a_base_that_is_not_here_is_not_fetched(adapter: Written) -> None:
    path = adapter({LOW_RANK: (2, 3)}, base_model_name_or_path="no-one/none", revision="v2")
    away = r"\(LORA\) for no-one/none@v2 .*: it is not on this machine, and uncone downloads nothing\. Open other matrices "
    with pytest.raises(InputError, match=f"{away}as {path}#NAME: '{LOW_RANK}'"):
        open_subjects(path)


@pytest.mark.parametrize("name", [None, 3, "", "a\x1b[2Jb", "a\nb", "x" * 10_000, ["a"]])
def test_a_base_of_a_hostile_name_is_not_repeated(adapter: Written, name: object) -> None:
    path = adapter({LOW_RANK: (2, 3)}, base_model_name_or_path=name, task_type=["a"], peft_type="y" * 9999)
    refuses("for an unnamed base that does not hold either whole", open_subjects, path)


def test_the_tokens_are_the_adapters_else_the_bases(adapter: Written, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "vocab.txt").write_text("a\nb\nc\n")
    path = adapter({f"{TABLE}.weight": (3, 2)}, base_model_name_or_path=str(base))
    assert uncone.open_rows(f"{path}#input").labels == ["a", "b", "c"]
    (path / "vocab.txt").write_text("x\ny\nz\n")
    assert uncone.open_rows(f"{path}#input").labels == ["x", "y", "z"]


def test_a_checkpoint_of_torch_is_read_and_a_pickle_is_not(adapter: Written) -> None:
    path = adapter({f"{HEAD}.weight": (8, 3)})
    stored = load_file(path / "adapter_model.safetensors")
    (path / "adapter_model.safetensors").unlink()
    refuses(r"expected adapter_model.safetensors next to adapter_config.json in", open_subjects, path)
    torch.save(stored, path / "adapter_model.bin")
    assert np.array_equal(uncone.open_rows(f"{path}#head").read(0, 8), stored[f"{HEAD}.weight"])

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(path / "run"),)

    (path / "adapter_model.bin").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(InputError):
        open_subjects(path)
    assert not (path / "run").exists()


def test_a_whole_model_beside_an_adapter_stays_a_model(adapter: Written) -> None:
    path = adapter({LOW_RANK: (2, 3)})
    save_file({"wte.weight": torch.randn(8, 3)}, path / "model.safetensors")
    (path / "config.json").write_text('{"vocab_size": 8, "architectures": ["GPT2Model"], "model_type": "gpt2"}')
    assert uncone.open_rows(f"{path}#input").shape == (8, 3)


def test_what_edits_a_model_says_to_merge(adapter: Written, tmp_path: Path) -> None:
    path = adapter({f"{HEAD}.weight": (8, 3)})
    refuses(r"a PEFT adapter .* without its base: merge it", uncone.repair_tokens, path, tmp_path / "out")
