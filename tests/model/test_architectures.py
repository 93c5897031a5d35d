"""find_places and rows_of against models that transformers itself builds: the instantiated model is the oracle."""

import json

import numpy as np
import pytest
import torch

from uncone.model import find_places, open_model_files, rows_of
from uncone.model.places import locate

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

V, D = 96, 16


def shapes(hidden: str, layers: str, heads: str, **more) -> dict:
    """The sizes every model needs, under the names this one gives them."""
    return {hidden: D, layers: 1, heads: 2} | more


COMMON = shapes("hidden_size", "num_hidden_layers", "num_attention_heads", intermediate_size=32)
LLAMA = COMMON | {"num_key_value_heads": 1}
HEADED = LLAMA | {"head_dim": 8}
BERT = COMMON | {"max_position_embeddings": 32}
ALBERT = BERT | {"embedding_size": 8}
DISTILBERT = shapes("dim", "n_layers", "n_heads", hidden_dim=32, max_position_embeddings=32)
GPT2 = shapes("n_embd", "n_layer", "n_head", n_positions=32)
NEO = shapes("hidden_size", "num_layers", "num_heads", attention_types=[[["global"], 1]], max_position_embeddings=32)
OPT = shapes("hidden_size", "num_hidden_layers", "num_attention_heads", ffn_dim=32, word_embed_proj_dim=8)
XGLM = shapes("d_model", "num_layers", "attention_heads", ffn_dim=32, max_position_embeddings=32)
T5 = shapes("d_model", "num_layers", "num_heads", d_kv=8, d_ff=32)
SEQ2SEQ = shapes("d_model", "encoder_layers", "encoder_attention_heads", encoder_ffn_dim=32) | shapes(
    "d_model", "decoder_layers", "decoder_attention_heads", decoder_ffn_dim=32
)
BART = SEQ2SEQ | {"max_position_embeddings": 32}
LED = SEQ2SEQ | {"max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 32, "attention_window": 4}
MARIAN = BART | {"decoder_start_token_id": 0}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V - 8}
WHISPER = SEQ2SEQ | {"max_source_positions": 16, "max_target_positions": 16, "decoder_start_token_id": 1}
WHISPER |= {"suppress_tokens": None, "begin_suppress_tokens": None}
UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}

_CASES = (
    ("GPT2LMHeadModel GPT2Model GPT2DoubleHeadsModel OpenAIGPTLMHeadModel GPTBigCodeForCausalLM", GPT2),
    ("GPT2LMHeadModel", GPT2 | UNTIED),
    ("GPT2ForSequenceClassification", GPT2 | {"num_labels": 3}),
    ("GPTNeoForCausalLM", NEO),
    ("GPTJForCausalLM", GPT2 | {"rotary_dim": 4}),
    ("CTRLLMHeadModel", GPT2 | {"dff": 32}),
    ("LlamaForCausalLM LlamaModel MistralForCausalLM Qwen2ForCausalLM CohereForCausalLM GraniteForCausalLM", LLAMA),
    ("OlmoForCausalLM StableLmForCausalLM Starcoder2ForCausalLM", LLAMA),
    ("LlamaForCausalLM Qwen2ForCausalLM", LLAMA | TIED),
    ("MixtralForCausalLM", LLAMA | {"num_local_experts": 2}),
    ("Qwen3ForCausalLM GemmaForCausalLM Gemma2ForCausalLM", HEADED),
    ("PhiForCausalLM GPTNeoXForCausalLM ModernBertForMaskedLM", COMMON),
    ("GPTNeoXForCausalLM", COMMON | TIED),
    ("OPTForCausalLM", OPT | {"max_position_embeddings": 32}),
    ("FalconForCausalLM", shapes("hidden_size", "num_hidden_layers", "num_attention_heads")),
    ("BloomForCausalLM", shapes("hidden_size", "n_layer", "n_head")),
    ("MptForCausalLM", shapes("d_model", "n_layers", "n_heads", max_seq_len=32)),
    ("XGLMForCausalLM", XGLM),
    ("MambaForCausalLM", {"hidden_size": D, "num_hidden_layers": 1, "state_size": 4}),
    ("BertModel BertForMaskedLM BertForPreTraining RobertaForMaskedLM XLMRobertaForMaskedLM", BERT),
    ("DebertaV2ForMaskedLM MPNetForMaskedLM", BERT),
    ("BertForMaskedLM", BERT | UNTIED),
    ("BertLMHeadModel", BERT | {"is_decoder": True}),
    ("DistilBertForMaskedLM", DISTILBERT),
    ("AlbertForMaskedLM AlbertModel ElectraForMaskedLM ElectraForPreTraining", ALBERT),
    ("RemBertForMaskedLM", COMMON | {"input_embedding_size": 8, "output_embedding_size": 12}),
    ("XLNetLMHeadModel", {"d_model": D, "n_layer": 1, "n_head": 2, "d_inner": 32}),
    ("XLMWithLMHeadModel", shapes("emb_dim", "n_layers", "n_heads", max_position_embeddings=32, n_langs=1)),
    ("BartForConditionalGeneration BartModel MBartForConditionalGeneration PegasusForConditionalGeneration", BART),
    ("BlenderbotForConditionalGeneration M2M100ForConditionalGeneration", BART),
    ("BartForConditionalGeneration", BART | UNTIED),
    ("MarianMTModel", MARIAN),
    ("MarianMTModel", MARIAN | TWO_VOCABULARIES),
    ("LEDForConditionalGeneration", LED),
    ("T5ForConditionalGeneration T5EncoderModel MT5ForConditionalGeneration LongT5ForConditionalGeneration", T5),
    ("T5ForConditionalGeneration", T5 | UNTIED),
    ("SwitchTransformersForConditionalGeneration", T5 | {"num_experts": 2}),
    ("WhisperForConditionalGeneration", WHISPER),
)
CASES = [(name, settings) for names, settings in _CASES for name in names.split()]
FORCED = {"T5ForConditionalGeneration"}
"""Classes whose config ties whatever it is given: the flag is set behind its back, as untied T5 v1.1 files have it."""


def built(name: str, settings: dict):
    model_class = getattr(transformers, name)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = model_class.config_class(**({"vocab_size": V} | special | settings))
    if name in FORCED and "tie_word_embeddings" in settings:
        config.tie_word_embeddings = settings["tie_word_embeddings"]
    return scrambled(model_class(config))


def scrambled(model):
    """No two matrices equal by their initialisation."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def llava(flag: dict):
    text = transformers.LlamaConfig(vocab_size=V, **LLAMA, **flag)
    vision = transformers.CLIPVisionConfig(**COMMON, image_size=16, patch_size=8)
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_index=5, **flag)
    return scrambled(transformers.LlavaForConditionalGeneration(config))


def bert_to_bert():
    encoder = transformers.BertConfig(vocab_size=V, **BERT)
    decoder = transformers.BertConfig(vocab_size=V - 8, **BERT, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return scrambled(transformers.EncoderDecoderModel(config))


def assert_found(model, directory) -> None:
    files = open_model_files(directory)
    places, of_class = find_places(files), locate(files)  # the header's answer is the class's
    assert (of_class.input, of_class.head) == (places.input, places.head)
    assert stored(files, places.input).equal(model.get_input_embeddings().weight), places
    head = model.get_output_embeddings()
    if head is None:
        assert places.head is None
        assert "no output head" in places.why
        assert not places.tied
        return
    assert places.head is not None, places
    assert stored(files, places.head).equal(head.weight), places
    assert places.tied == torch.equal(head.weight, model.get_input_embeddings().weight)


def stored(files, tensor: str) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(rows_of(files, tensor).blocks())))


@pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{i}-{name}" for i, (name, _) in enumerate(CASES)])
def test_the_tensors_found_are_the_models_own(tmp_path, name, settings):
    model = built(name, settings)
    model.save_pretrained(tmp_path)
    assert_found(model, tmp_path)


@pytest.mark.parametrize("build", [lambda: llava(UNTIED), lambda: llava(TIED), bert_to_bert])
def test_models_made_of_models(tmp_path, build):
    model = build()
    model.save_pretrained(tmp_path)
    assert_found(model, tmp_path)


@pytest.mark.parametrize("settings", [UNTIED, TIED])
def test_shards(tmp_path, settings):
    model = built("LlamaForCausalLM", LLAMA | settings)
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert_found(model, tmp_path)


def with_config(path, **changes) -> None:
    """The directory with other settings in its config.json; None takes one out."""
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


NAMES = ["GPT2LMHeadModel", "BertForMaskedLM", "LlamaForCausalLM", "GPTNeoXForCausalLM", "T5ForConditionalGeneration"]


@pytest.mark.parametrize("name", NAMES)
def test_a_config_without_the_flag_follows_the_class(tmp_path, name):
    model = built(name, dict(reversed(CASES))[name])
    model.save_pretrained(tmp_path)
    with_config(tmp_path, tie_word_embeddings=None)
    assert_found(model, tmp_path)


@pytest.mark.parametrize("name", [NAMES[0], NAMES[1], "RobertaForMaskedLM", NAMES[4]])
def test_a_file_of_the_bare_model_serves_the_class_with_the_head(tmp_path, name):
    model = built(name, dict(reversed(CASES))[name])
    model.base_model.save_pretrained(tmp_path)
    with_config(tmp_path, architectures=[name])
    assert_found(model, tmp_path)
