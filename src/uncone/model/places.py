"""Which tensors of a checkpoint are the token table and the output head."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uncone.errors import UnsupportedModel
from uncone.model.files import ModelFiles, rows_of, text_parts
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices

TABLE_ENDINGS = ("wte", "tokens_embed", "embed_tokens", "word_embeddings", "embed_in", "shared", "tok_embeddings", "token_embedding")
HEAD_ENDINGS = ("lm_head", "embed_out", "output", "decoder", "proj_out", "output_projection", "pred_layer.proj")

TIED_BY_DEFAULT = frozenset(
    "gpt2 gpt_bigcode gpt_neo openai-gpt bert roberta xlm-roberta camembert distilbert albert electra deberta deberta-v2 mpnet "
    "xlm flaubert bart mbart pegasus t5 mt5 longt5 umt5 m2m_100 blenderbot blenderbot-small led plbart bigbird_pegasus opt bloom "
    "mpt falcon gemma gemma2 gemma3_text cohere cohere2 ctrl xglm biogpt starcoder2 modernbert big_bird mobilebert convbert".split()
)
"""Model types whose config class ties where config.json does not say: older versions wrote the flag only to say no."""
_SEQ2SEQ = frozenset("bart mbart pegasus t5 mt5 longt5 umt5 m2m_100 blenderbot blenderbot-small led plbart bigbird_pegasus".split())

# What a class name says, checked against all 1,738 model classes of transformers 5.23. Those that break the rule are left to mapping.py.
_BARE = re.compile(r".*(Model|For(SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|NextSentencePrediction))")
_WITH_HEAD = re.compile(r".*(ForCausalLM|ForMaskedLM|LMHeadModel)")
_EXCEPTIONS = re.compile(r".*(MTModel|DoubleHeadsModel|WithLMHeadModel)|(.*EncoderDecoder|Bark|Blip|SeamlessM4T|Wav2Vec2|Esm|Csm|Perceiver|Pix2Struct).*")


@dataclass(frozen=True)
class Places:
    """Where the token table and the output head lie, by their names in the file."""

    input: str
    head: str | None
    """None where the model has no output head, or none that the checkpoint holds; `why` says which."""
    tied: bool
    """The head and the table are the same numbers."""
    why: str
    """How this is known, or why there is no head: one sentence for users."""


def find_places(files: ModelFiles) -> Places:
    """Find the token table and the output head among the tensors of a checkpoint.

    Where exactly one matrix has `vocab_size` rows, config.json decides alone. Otherwise the model class is built by
    transformers without its weights and asked; where that is not possible, well-known tensor names decide if they leave
    no choice.

    Raises:
        UnsupportedModel: nothing of this leads to one answer, or transformers is needed and not installed; the message
            lists the tensors to choose from.
        InputError: config.json and the tensors contradict each other.
    """
    found = _from_header(files)
    if found is not None:
        return found
    from uncone.model import mapping

    try:
        located = mapping.locate(files)
    except UnsupportedModel as error:
        return _from_names(files, error)
    return _settled(files, located.input, located.head, located.why)


def _from_header(files: ModelFiles) -> Places | None:
    """What config.json and the tensors' shapes say alone, or None where they leave a doubt."""
    candidates, architecture = vocabulary_matrices(files), _architecture(files.config)
    if len(candidates) != 1 or architecture is None or _ends(candidates[0], HEAD_ENDINGS) or _has_second_vocabulary(files):
        return None
    if _is_bare(architecture):
        if "auto_map" in files.config:
            return None  # custom code can call anything a Model
        return Places(candidates[0], None, False, no_head(architecture))
    if _has_head(architecture, files.config) and _is_tied(files.config):
        return _tied(candidates[0], architecture)
    return None


def _from_names(files: ModelFiles, reason: UnsupportedModel) -> Places:
    """One table and one head by well-known names, or the error of the better way, with the tensors to choose from."""
    candidates = vocabulary_matrices(files)
    tables = [name for name in candidates if _ends(name, TABLE_ENDINGS)]
    heads = [name for name in candidates if _ends(name, HEAD_ENDINGS)]
    if len(tables) == len(heads) == 1 and len(candidates) == 2:
        return _settled(files, tables[0], heads[0], f"told by the names of the tensors, since {reason}")
    choice = listing(candidates or sorted(matrices(files.entries)))
    example = f"{files.path}#{(candidates or ['tensor.name'])[0]}"
    raise UnsupportedModel(f"{reason}; or name the tensor yourself, for instance {example}: there are {choice}") from reason


def _settled(files: ModelFiles, table: str, head: str | None, why: str) -> Places:
    """`tied` from what is stored: transformers 5 ties two stored matrices only where they are equal, whatever the flag says."""
    tied = head is not None and (head == table or _same_rows(files, table, head))
    return Places(table, head, tied, why)


def _same_rows(files: ModelFiles, first: str, second: str) -> bool:
    a, b = rows_of(files, first), rows_of(files, second)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(bool((x == y).all()) for x, y in zip(a.blocks(), b.blocks(), strict=True))


def _tied(table: str, architecture: str) -> Places:
    return Places(table, table, True, f"{architecture} shares one matrix between its token table and its output head")


def no_head(architecture: str) -> str:
    """Why there is no head, for a class that has none."""
    return f"{architecture} has no output head: this checkpoint holds the encoder only"


def vocabulary_matrices(files: ModelFiles) -> list[str]:
    """The matrices of floats with `vocab_size` rows, in the file's order of names."""
    size = files.vocab_size
    return sorted(name for name, entry in matrices(files.entries).items() if entry.shape[0] == size)


def _architecture(config: Mapping[str, Any]) -> str | None:
    """The one class that config.json names."""
    names = config.get("architectures")
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) and names[0].isidentifier():
        return str(names[0])
    return None


def _is_bare(architecture: str) -> bool:
    return bool(_BARE.fullmatch(architecture)) and not _WITH_HEAD.fullmatch(architecture) and not _EXCEPTIONS.fullmatch(architecture)


def _has_head(architecture: str, config: Mapping[str, Any]) -> bool:
    if architecture.endswith("ForConditionalGeneration"):  # speech and image models are called that too
        return config.get("model_type") in _SEQ2SEQ
    return bool(_WITH_HEAD.fullmatch(architecture)) and not _EXCEPTIONS.fullmatch(architecture)


def _is_tied(config: Mapping[str, Any]) -> bool:
    """The flag says yes everywhere it stands; or it stands nowhere and the class's default is known to be yes."""
    flags = [part["tie_word_embeddings"] for part in text_parts(config) if "tie_word_embeddings" in part]
    if "text_config" in config and "tie_word_embeddings" not in config:
        return False
    return all(flag is True for flag in flags) if flags else config.get("model_type") in TIED_BY_DEFAULT


def _has_second_vocabulary(files: ModelFiles) -> bool:
    """An encoder and a decoder with vocabularies of their own: Marian's `decoder_vocab_size`, FSMT's `tgt_vocab_size`."""
    sizes = {key: value for key, value in files.config.items() if key.endswith("vocab_size") and not key.startswith("type_")}
    return any(value not in (None, files.vocab_size) for value in sizes.values())


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return any(name == f"{ending}.weight" or name.endswith(f".{ending}.weight") for ending in endings)
