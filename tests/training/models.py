"""Small random models of many architectures: causal, masked and sequence-to-sequence, as their classes build them."""

from typing import Any

import torch

V, D = 97, 32
PAD = 0


def _llama(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | more


def _bert(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": PAD,
    } | more


def _bart(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": V,
        "d_model": D,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    } | more


def _gpt(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": V,
        "n_embd": D,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | more


def _t5(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": V,
        "d_model": D,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
    } | more


ENDS = {"bos_token_id": 1, "eos_token_id": 2}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("GPT2Config", _gpt()),
    "GPTJForCausalLM": ("GPTJConfig", _gpt(rotary_dim=4)),
    "GPTNeoForCausalLM": (
        "GPTNeoConfig",
        {
            "vocab_size": V,
            "hidden_size": D,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
            **ENDS,
        },
    ),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", _bert(**ENDS)),
    "OPTForCausalLM": (
        "OPTConfig",
        {
            "vocab_size": V,
            "hidden_size": D,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": D,
        },
    ),
    "BloomForCausalLM": ("BloomConfig", {"vocab_size": V, "hidden_size": D, "n_layer": 2, "n_head": 4}),
    "LlamaForCausalLM": ("LlamaConfig", _llama()),
    "MistralForCausalLM": ("MistralConfig", _llama()),
    "MixtralForCausalLM": ("MixtralConfig", _llama(num_local_experts=2)),
    "Qwen2ForCausalLM": ("Qwen2Config", _llama(tie_word_embeddings=True)),
    "Qwen3ForCausalLM": ("Qwen3Config", _llama(head_dim=8)),
    "PhiForCausalLM": ("PhiConfig", _llama()),
    "Phi3ForCausalLM": ("Phi3Config", _llama()),
    "GemmaForCausalLM": ("GemmaConfig", _llama(head_dim=8)),
    "Gemma2ForCausalLM": ("Gemma2Config", _llama(head_dim=8, final_logit_softcapping=2.0)),
    "CohereForCausalLM": ("CohereConfig", _llama()),
    "GraniteForCausalLM": ("GraniteConfig", _llama(logits_scaling=8.0)),
    "Olmo2ForCausalLM": ("Olmo2Config", _llama()),
    "StableLmForCausalLM": ("StableLmConfig", _llama()),
    "FalconForCausalLM": (
        "FalconConfig",
        {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 4, **ENDS},
    ),
    "MambaForCausalLM": ("MambaConfig", {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "state_size": 4}),
    "BertForMaskedLM": ("BertConfig", _bert()),
    "BertLMHeadModel": ("BertConfig", _bert(is_decoder=True)),
    "RobertaForMaskedLM": ("RobertaConfig", _bert(pad_token_id=1)),
    "XLMRobertaForMaskedLM": ("XLMRobertaConfig", _bert(pad_token_id=1)),
    "DistilBertForMaskedLM": (
        "DistilBertConfig",
        {"vocab_size": V, "dim": D, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64},
    ),
    "ElectraForMaskedLM": ("ElectraConfig", _bert(embedding_size=D)),
    "AlbertForMaskedLM": ("AlbertConfig", _bert(embedding_size=16)),
    "DebertaV2ForMaskedLM": ("DebertaV2Config", _bert()),
    "ModernBertForMaskedLM": ("ModernBertConfig", _bert(cls_token_id=1, sep_token_id=2, **ENDS)),
    "XLMWithLMHeadModel": (
        "XLMConfig",
        {"vocab_size": V, "emb_dim": D, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64, "n_langs": 1},
    ),
    "BartForConditionalGeneration": ("BartConfig", _bart()),
    "MBartForConditionalGeneration": ("MBartConfig", _bart()),
    "MarianMTModel": ("MarianConfig", _bart(pad_token_id=96, decoder_start_token_id=96)),
    "PegasusForConditionalGeneration": (
        "PegasusConfig",
        _bart(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0),
    ),
    "LEDForConditionalGeneration": (
        "LEDConfig",
        _bart(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    ),
    "M2M100ForConditionalGeneration": ("M2M100Config", _bart()),
    "BlenderbotSmallForConditionalGeneration": ("BlenderbotSmallConfig", _bart()),
    "T5ForConditionalGeneration": ("T5Config", _t5(tie_word_embeddings=True)),
    "MT5ForConditionalGeneration": ("MT5Config", _t5(tie_word_embeddings=False)),
}


FLOAT32_ONLY = ("MixtralForCausalLM",)
"""Its grouped products take no float64."""


def build(name: str, *, dtype: torch.dtype = torch.float64, scale: float = 3.0, **config: Any) -> Any:
    """A model in training mode without dropout, its matrices scaled up so that logits differ."""
    import transformers

    kind, options = ARCHITECTURES[name]
    dtype = torch.float32 if name in FLOAT32_ONLY else dtype
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, name)(getattr(transformers, kind)(**options | config)).to(dtype)
        for parameter in model.parameters():
            parameter.data.mul_(scale if parameter.ndim > 1 else 1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    without_dropout(model)
    return model.train()


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
