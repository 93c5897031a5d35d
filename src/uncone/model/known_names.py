"""What names alone say: of classes, of model types, of tensors. Each rule leaves out what it would be wrong about."""

import re

TABLE_ENDINGS = (
    "wte",
    "tokens_embed",
    "embed_tokens",
    "word_embeddings",
    "embed_in",
    "shared",
    "tok_embeddings",
)
HEAD_ENDINGS = ("lm_head", "embed_out", "output", "decoder", "proj_out", "output_projection", "head")

_SEQ2SEQ = (
    """bart bigbird_pegasus blenderbot blenderbot-small led longt5 m2m_100 mbart mt5 pegasus plbart t5 umt5"""
)
_DECODERS = """biogpt bloom cohere cohere2 ctrl falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo mpt openai-gpt opt
starcoder2 xglm"""
_ENCODERS = """albert bert big_bird camembert convbert deberta deberta-v2 distilbert electra flaubert mobilebert modernbert
mpnet roberta xlm xlm-roberta"""

SEQ2SEQ = frozenset(_SEQ2SEQ.split())
"""Model types whose ForConditionalGeneration is a text model with one vocabulary."""
TIED_BY_DEFAULT = SEQ2SEQ | frozenset(_DECODERS.split()) | frozenset(_ENCODERS.split())
"""Model types whose config class ties where config.json does not say: older versions wrote the flag only to say no."""

# Checked against 1,001 classes of transformers 5.23 that these rules speak of, built from their default configs; a class of
# which neither rule speaks is left to mapping.py.
_WITHOUT_HEAD = re.compile(
    r".*(Model|For(Sequence|Token)Classification|ForQuestionAnswering|ForMultipleChoice)"
)
_WITH_HEAD = re.compile(r".*(ForCausalLM|ForMaskedLM|LMHeadModel)")
_NEITHER = re.compile(
    r".*(MTModel|DoubleHeadsModel|WithLMHeadModel)|.*EncoderDecoder.*"
    r"|(Bark|Blip|Clvp|Csm|Esm|Musicgen|Perceiver|Pix2Struct|SeamlessM4T|Wav2Vec2).*"
)


def is_without_head(architecture: str) -> bool:
    """A class of this name has no output head over the vocabulary."""
    return _says(_WITHOUT_HEAD, architecture) and not has_head(architecture, None)


def has_head(architecture: str, model_type: object) -> bool:
    """A class of this name has one output head over the vocabulary, a row for each token."""
    if architecture.endswith("ForConditionalGeneration"):  # speech and image models are called that too
        return isinstance(model_type, str) and model_type in SEQ2SEQ
    return _says(_WITH_HEAD, architecture)


def ends_in(tensor: str, endings: tuple[str, ...]) -> bool:
    """The tensor is the weight of a module called like one of `endings`."""
    return f".{tensor}".endswith(tuple(f".{ending}.weight" for ending in endings))


def _says(rule: re.Pattern[str], architecture: str) -> bool:
    return rule.fullmatch(architecture) is not None and _NEITHER.fullmatch(architecture) is None
