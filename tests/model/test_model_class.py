"""What transformers is asked, and what is kept from it."""

import logging
import subprocess
import sys
import time

import pytest
import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model import find_places, open_model_files
from uncone.model.model_class import check_sizes
from uncone.model.places import locate

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

V, D = 32, 8
SIZES = {"hidden_size": D, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V, "num_key_value_heads": 1}
LLAMA |= SIZES | {"tie_word_embeddings": False}
PAIR = {"model.embed_tokens.weight": (V, D), "lm_head.weight": (V, D)}


def opened(plant, config, tensors=PAIR):
    return open_model_files(plant(config, tensors))


def test_table_and_head_of_an_untied_model(plant):
    located = locate(opened(plant, LLAMA))
    assert (located.input, located.head) == ("model.embed_tokens.weight", "lm_head.weight")
    assert located.why == "found by the transformers class LlamaForCausalLM"


def test_the_class_decides_where_names_mislead(plant):
    """A third matrix with vocabulary-many rows, called like a table, that the class does not know."""
    located = locate(opened(plant, LLAMA, PAIR | {"extra.embed_tokens.weight": (V, D)}))
    assert (located.input, located.head) == ("model.embed_tokens.weight", "lm_head.weight")


def test_a_vocabulary_size_that_only_the_class_knows(plant):
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": D, "n_layer": 1, "n_head": 2}
    places = find_places(opened(plant, config, {"transformer.wte.weight": (50257, D)}))
    assert (places.input, places.head, places.tied) == ("transformer.wte.weight", "transformer.wte.weight", True)


def test_a_head_that_the_checkpoint_lacks_is_no_head(plant):
    places = find_places(opened(plant, LLAMA, {"model.embed_tokens.weight": (V, D)}))
    assert places.head is None
    assert places.why == "LlamaForCausalLM has an output head of its own, but the checkpoint holds no tensor for it"


def test_a_table_that_the_checkpoint_lacks_is_refused_with_a_way_out(plant):
    message = r"loaded unchanged as the token table of LlamaForCausalLM .*embed_tokens.*#foo: there are 'foo'"
    with pytest.raises(UnsupportedModel, match=message):
        find_places(opened(plant, LLAMA, {"foo": (V, D), "bar": (D, D), "lm_head.bias": (V,)}))


def test_a_config_of_another_model_is_told_from_the_shapes(plant):
    message = (
        r"gives 'model\.embed_tokens\.weight' the shape \[32, 16\], the file has \[32, 8\].*open .*#model\.embed_tokens"
    )
    with pytest.raises(InputError, match=message):
        find_places(opened(plant, LLAMA | {"hidden_size": 16}))


def test_without_architectures_the_bare_model_of_the_type_is_taken(plant):
    places = find_places(opened(plant, LLAMA | {"architectures": None}, {"embed_tokens.weight": (V, D)}))
    assert (places.input, places.head) == ("embed_tokens.weight", None)
    assert places.why.startswith("config.json names no architecture, and LlamaModel")


@pytest.mark.parametrize(
    "name", ["FooForCausalLM", "pipeline", "LlamaConfig", "../x", "PreTrainedModel", "", "__class__"]
)
def test_what_is_no_model_class_of_transformers_is_refused(plant, name):
    files = opened(plant, LLAMA | {"architectures": [name], "auto_map": {"AutoModelForCausalLM": "evil.Foo"}})
    message = r"is not part of transformers .*uncone never runs code that comes with a model"
    with pytest.raises(UnsupportedModel, match=message):
        locate(files)


@pytest.mark.parametrize("kind", ["foo", None, ["llama"], {}])
def test_an_unknown_model_type_is_refused(plant, kind):
    with pytest.raises(UnsupportedModel, match="names no architecture and the model type"):
        locate(opened(plant, LLAMA | {"architectures": [], "model_type": kind}))


def test_code_in_the_directory_is_not_run(plant, tmp_path):
    directory = plant(LLAMA | {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}, PAIR)
    (directory / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert find_places(open_model_files(directory)).head == "lm_head.weight"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"attn_implementation": "kernels-community/flash-attn", "_attn_implementation": "flash_attention_2"},
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"dtype": "bfloat16", "pretraining_tp": 2},
        {"configuration_files": ["config.4.0.0.json"]},
    ],
)
def test_settings_that_do_not_move_the_table_are_ignored(plant, more):
    assert locate(opened(plant, LLAMA | more)).head == "lm_head.weight"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "eight"),
        ("hidden_size", -8),
        ("num_attention_heads", 0),
        ("dtype", "float99"),
        ("hidden_act", "none"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused_in_one_line(plant, key, value):
    message = r"transformers cannot build LlamaForCausalLM from .*config\.json \(\w+"
    with pytest.raises(UnsupportedModel, match=message) as raised:
        locate(opened(plant, LLAMA | {key: value}))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_hidden_layers": 10**6}, "expected num_hidden_layers of at most 1024 in config.json, got 1000000"),
        ({"text_config": {"n_layer": 5000}}, "expected n_layer of at most 1024"),
        ({"num_labels": 10**9}, "expected num_labels of at most 131072"),
        ({"max_position_embeddings": 10**4000}, "got a number of 13288 bits"),
        ({"a": [{"b": {"num_blocks": -(10**9)}}]}, "expected num_blocks of at most 1024"),
    ],
)
def test_absurd_counts_are_refused_at_once(plant, more, message):
    start = time.monotonic()
    with pytest.raises(InputError, match=message):
        locate(opened(plant, LLAMA | more))
    assert time.monotonic() - start < 1


def test_a_constructor_that_does_not_end_is_stopped(plant, monkeypatch):
    """ALBERT makes `inner_group_num` layers in each of `num_hidden_groups` groups; no list of such names is ever complete."""
    monkeypatch.setattr("uncone.model.model_class._MOST_PARTS", 1000)
    config = {"architectures": ["AlbertForMaskedLM"], "model_type": "albert", "inner_group_num": 2**31 - 1}
    with pytest.raises(InputError, match=r"at most 1000 modules and parameters in config\.json, got more"):
        locate(opened(plant, config | {"hidden_size": 64}))
    torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(600)))  # the bound ends with the construction


def test_the_largest_real_configs_pass():
    check_sizes({"num_hidden_layers": 126, "vocab_size": 256_000, "max_position_embeddings": 10_485_760})
    check_sizes({"num_hidden_layers": 61, "n_routed_experts": 384, "num_nextn_predict_layers": 1})


def test_a_big_model_is_built_without_its_weights(plant):
    """A 70-billion-parameter config: shapes are checked, so the planted tensors make it end in an InputError, quickly."""
    big = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
    with pytest.raises(InputError, match=r"\[32, 8192\], the file has \[32, 8\]"):
        locate(opened(plant, LLAMA | big))


def test_transformers_is_kept_quiet_and_its_settings_are_given_back(plant, capfd, caplog):
    import huggingface_hub.constants as hub

    before = logging.getLogger("transformers").level, hub.HF_HUB_OFFLINE
    with caplog.at_level(logging.DEBUG):
        locate(opened(plant, LLAMA | {"bos_token_id": 10**6, "rope_scaling": {"type": "linear", "factor": 2.0}}))
    assert (logging.getLogger("transformers").level, hub.HF_HUB_OFFLINE) == before
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("transformers")]


def test_nothing_is_printed_in_a_fresh_process_with_warnings_as_errors(plant):
    directory = str(plant(LLAMA | {"bos_token_id": 10**6}, PAIR))
    code = f"from uncone.model import find_places, open_model_files as o; assert find_places(o({directory!r})).head"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
