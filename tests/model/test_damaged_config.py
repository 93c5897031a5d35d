"""A setting of config.json that is of another type than expected is refused with a message, or does not matter."""

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.fuzz.trees import HUGE, mutant
from tests.model.conftest import Plant
from uncone import InputError, UnconeError, UnsupportedModel, open_rows

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1}
CONFIG |= {"num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 12, "max_position_embeddings": 16}
CONFIG |= {"tie_word_embeddings": False, "eos_token_id": [1], "torch_dtype": "float32", "id2label": {"0": "a"}}
CONFIG |= {"rope_scaling": None}
TENSORS = {"model.embed_tokens.weight": (12, 8), "lm_head.weight": (12, 8)}
VALUES = (None, True, 1, 0.5, -1, HUGE, "x", [], ["x"], [[]], {}, {"x": 1}, 1e308)


@pytest.mark.parametrize(
    "key", [*CONFIG, "text_config", "auto_map", "quantization_config", "base_model_prefix", "decoder_vocab_size"]
)
def test_a_setting_of_another_type(key: str, plant: Plant) -> None:
    directory = plant(CONFIG, TENSORS)
    for value in VALUES:
        (directory / "config.json").write_text(json.dumps({**CONFIG, key: value}))
        for part in ("input", "head"):
            with suppress(InputError, UnsupportedModel):
                assert open_rows(f"{directory}#{part}").shape == (12, 8)


@pytest.mark.parametrize("kind", [[], {"x": 1}, None, 7, HUGE, True])
def test_a_model_type_that_is_no_text_where_transformers_asks_for_it(kind: object, plant: Plant) -> None:
    for config in ({**CONFIG, "model_type": kind}, {"model_type": kind, "vocab_size": 12}):
        directory = plant(config, TENSORS, name=f"model{len(config)}")
        for part in ("input", "head"):
            with suppress(InputError, UnsupportedModel):
                assert open_rows(f"{directory}#{part}").shape == (12, 8)


@pytest.mark.parametrize(
    "file", ["modules.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "generation_config.json"]
)
def test_other_files_of_a_model_with_values_of_another_type(file: str, plant: Plant) -> None:
    directory = plant({**CONFIG, "tie_word_embeddings": True}, {"model.embed_tokens.weight": (12, 8)})
    tree = {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}],
        "tokenizer.json": {
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
            "added_tokens": [],
        },
    }.get(file, {"unk_token": {"content": "a"}, "a": 0})
    rng = random.Random(file)
    for _ in range(60):
        text = json.dumps(mutant(tree, rng, times=2))
        (directory / file).write_text(text, encoding="utf-8", errors="surrogatepass")
        with suppress(UnconeError):
            rows = open_rows(f"{directory}#input")
            assert rows.labels is None or len(rows.labels) == 12


def test_an_encoder_with_settings_of_another_type_is_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.fuzz.corpus import _tokenizer
    from uncone.model.hugging_face import load_encoder

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=41, max_position_embeddings=16, **sizes)
    with torch.random.fork_rng():
        transformers.BertModel(config).save_pretrained(tmp_path)
    _tokenizer(tmp_path)
    settings = '{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": "x"}'
    (tmp_path / "tokenizer_config.json").write_text(settings)
    with pytest.raises(UnsupportedModel, match="transformers cannot load the encoder in"):
        load_encoder(tmp_path)
