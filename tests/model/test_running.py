"""A checkpoint as a model that runs: what is refused before anything is loaded, and what ending a tie takes."""

import json
from pathlib import Path

import pytest
import torch

from tests.edits.language_models import D, V, drifted, saved
from uncone.errors import InputError, UnsupportedModel
from uncone.model import open_model_files
from uncone.model.model_class import load_model, parameter_keys, parted, shared_names, without_ties

transformers = pytest.importorskip("transformers")


def edited(path: Path, **changes: object) -> Path:
    """The directory with other settings in its config.json; None takes one out."""
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return path


def test_a_model_runs_as_it_was_saved(tmp_path):
    model = drifted("GPT2LMHeadModel")
    model.save_pretrained(tmp_path / "m")
    found = load_model(open_model_files(tmp_path / "m"))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            found(input_ids=ids).logits, model(input_ids=ids).logits
        )  # its attention is the plain one
    assert not found.training
    assert load_model(open_model_files(tmp_path / "m"), dtype=torch.float64).dtype == torch.float64


EVIL = {"architectures": ["EvilForCausalLM"], "auto_map": {"AutoModelForCausalLM": "evil.EvilForCausalLM"}}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        # 256 GiB for the table alone
        (
            {"hidden_size": 2**18, "vocab_size": 2**18},
            InputError,
            r"that config\.json of .* got \d+: they belong to diff",
        ),
        ({"num_hidden_layers": 3}, InputError, r"got none that fit for 'model\.layers\.2.*they would be random"),
        (EVIL, UnsupportedModel, "uncone never runs code that comes with a model"),
    ],
)
def test_what_does_not_fit_its_files_is_refused_before_it_is_loaded(tmp_path, changes, error, message):
    edited(saved(tmp_path / "m", "LlamaForCausalLM"), **changes)
    (tmp_path / "m" / "evil.py").write_text("raise SystemExit('run')")
    with pytest.raises(error, match=message):
        load_model(open_model_files(tmp_path / "m"))


def test_settings_that_choose_other_files_or_kernels_are_left_out(tmp_path):
    path = saved(tmp_path / "m", "LlamaForCausalLM")
    edited(path, _attn_implementation="kernels-community/evil", auto_map={"AutoModelForCausalLM": "evil.Evil"})
    assert load_model(open_model_files(path)).config._attn_implementation == "eager"


def test_what_ends_a_tie(tmp_path):
    files = open_model_files(saved(tmp_path / "m", "BertForMaskedLM"))
    table = "bert.embeddings.word_embeddings.weight"
    assert shared_names(files) == {table}
    added, head = parted(files)
    assert head == "cls.predictions.decoder.weight"
    assert added == {head: table, "cls.predictions.decoder.bias": "cls.predictions.bias"}
    keys = parameter_keys(files)
    assert keys["bert.embeddings.position_embeddings.weight"] == "bert.embeddings.position_embeddings.weight"
    assert files.entries[table].shape == (V, D)
    assert parted(open_model_files(saved(tmp_path / "n", "LlamaForCausalLM"))) == ({}, "lm_head.weight")


def test_a_config_without_ties():
    tied, untied = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
    config = {**tied, "text_config": {"a": 1}, "decoder": tied, "vision": {"b": 2}}
    expected = {**untied, "text_config": {"a": 1, **untied}, "decoder": untied, "vision": {"b": 2}}
    assert without_ties(config) == expected
    assert config["text_config"] == {"a": 1}
