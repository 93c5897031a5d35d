"""Small random models of many architectures: causal, masked and sequence-to-sequence, as their classes build them."""

from typing import Any

import torch

V, D = 97, 32
PAD = 0


ENDS = {"bos_token_id": 1, "eos_token_id": 2}
_VOCABULARY, _LENGTH = {"vocab_size": V}, {"max_position_embeddings": 64}
_SHAPE = _VOCABULARY | {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 4}
_BERT = _SHAPE | _LENGTH | {"intermediate_size": 64, "pad_token_id": PAD}
_LLAMA = _BERT | ENDS | {"num_key_value_heads": 2}
_HEADS = _VOCABULARY | {"n_layer": 2, "n_head": 4}
_GPT = _HEADS | ENDS | {"n_embd": D, "n_positions": 64}
_STACK = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
_BART = _VOCABULARY | _LENGTH | {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in _STACK.items()}
_BART |= {"d_model": D, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
_LED = {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}
_T5 = _VOCABULARY | {"d_model": D, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
_NEO = {"hidden_size": D, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
_DISTIL = {"dim": D, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
_XLM = {"emb_dim": D, "n_layers": 2, "n_heads": 4, "n_langs": 1}
_MAMBA = {"hidden_size": D, "num_hidden_layers": 2, "state_size": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": _GPT,
    "GPTJForCausalLM": _GPT | {"rotary_dim": 4},
    "GPTNeoForCausalLM": _VOCABULARY | _LENGTH | _NEO | ENDS,
    "GPTNeoXForCausalLM": _BERT | ENDS,
    "OPTForCausalLM": _SHAPE | _LENGTH | {"ffn_dim": 64, "word_embed_proj_dim": D},
    "BloomForCausalLM": _HEADS | {"hidden_size": D},
    **{f"{name}ForCausalLM": _LLAMA for name in ("Llama", "Mistral", "Phi", "Phi3", "Cohere", "Olmo2", "StableLm")},
    "MixtralForCausalLM": _LLAMA | {"num_local_experts": 2},
    "Qwen2ForCausalLM": _LLAMA | {"tie_word_embeddings": True},
    "Qwen3ForCausalLM": _LLAMA | {"head_dim": 8},
    "GemmaForCausalLM": _LLAMA | {"head_dim": 8},
    "Gemma2ForCausalLM": _LLAMA | {"head_dim": 8, "final_logit_softcapping": 2.0},
    "GraniteForCausalLM": _LLAMA | {"logits_scaling": 8.0},
    "FalconForCausalLM": _SHAPE | ENDS,
    "MambaForCausalLM": _VOCABULARY | _MAMBA,
    "BertForMaskedLM": _BERT,
    "BertLMHeadModel": _BERT | {"is_decoder": True},
    "RobertaForMaskedLM": _BERT | {"pad_token_id": 1},
    "XLMRobertaForMaskedLM": _BERT | {"pad_token_id": 1},
    "DistilBertForMaskedLM": _VOCABULARY | _LENGTH | _DISTIL,
    "ElectraForMaskedLM": _BERT | {"embedding_size": D},
    "AlbertForMaskedLM": _BERT | {"embedding_size": 16},
    "DebertaV2ForMaskedLM": _BERT,
    "ModernBertForMaskedLM": _BERT | ENDS | {"cls_token_id": 1, "sep_token_id": 2},
    "XLMWithLMHeadModel": _VOCABULARY | _LENGTH | _XLM,
    **{f"{name}ForConditionalGeneration": _BART for name in ("Bart", "MBart", "M2M100", "BlenderbotSmall")},
    "MarianMTModel": _BART | {"pad_token_id": 96, "decoder_start_token_id": 96},
    "PegasusForConditionalGeneration": _BART | {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
    "LEDForConditionalGeneration": _BART | _LED,
    "T5ForConditionalGeneration": _T5 | {"tie_word_embeddings": True},
    "MT5ForConditionalGeneration": _T5 | {"tie_word_embeddings": False},
}
ARCHITECTURES = tuple(CONFIGS)
FLOAT32_ONLY = ("MixtralForCausalLM",)  # its grouped products take no float64


def build(name: str, *, dtype: torch.dtype = torch.float64, scale: float = 3.0, **config: Any) -> Any:
    """A model in training mode without dropout, its matrices scaled up so that logits differ."""
    import transformers

    cls = getattr(transformers, name)
    dtype = torch.float32 if name in FLOAT32_ONLY else dtype
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**CONFIGS[name] | config)).to(dtype)
        for parameter in model.parameters():
            parameter.data.mul_(scale if parameter.ndim > 1 else 1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    without_dropout(model)
    return model.train()


def untied(name: str, **options: Any) -> Any:
    """With a head of its own, also where the architecture ties it whatever its config has (T5)."""
    model = build(name, **options)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def gpt2(**options: Any) -> Any:
    return build("GPT2LMHeadModel", **options)


def narrow_gpt2() -> Any:
    """In float32, its matrices as they are drawn."""
    return gpt2(dtype=torch.float32, scale=1.0)


def without_dropout(model: Any) -> None:
    """Turn every kind of dropout off that these architectures have."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "drop_prob", "layerdrop", "hidden_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def batch(seed: int = 0, rows: int = 3, length: int = 12) -> dict[str, torch.Tensor]:
    """Ids, mask and labels; some labels are ignored."""
    random = torch.Generator().manual_seed(seed)
    ids, labels = (torch.randint(5, V - 5, (rows, length), generator=random) for _ in range(2))
    labels[0, 4:7] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
