"""Find the table and head among tensors: by config.json and shapes, then transformers' class, then known names."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from uncone.errors import InputError, UnsupportedModel
from uncone.model.files import ModelFiles, logit_cap, rows_of, text_parts
from uncone.model.hugging_face import asked, need
from uncone.rows import Rows
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices

TABLES = ("wte", "tokens_embed", "embed_tokens", "word_embeddings", "embed_in", "shared", "tok_embeddings")
HEADS = ("lm_head", "embed_out", "output", "decoder", "proj_out", "output_projection", "head")
_ONLY_HEADS = ("lm_head", "embed_out")  # names that no other module has
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim")
"""Keys of config.json for the width of a table or a head."""
_TEXT_TO_TEXT = "bart bigbird_pegasus blenderbot blenderbot-small led longt5 m2m_100 mbart mt5 pegasus plbart t5 umt5"
_SEQ2SEQ = set(_TEXT_TO_TEXT.split())  # model types whose ForConditionalGeneration is a text model with one vocabulary
_OTHERS = """albert bert big_bird biogpt bloom camembert cohere cohere2 convbert ctrl deberta deberta-v2
distilbert electra falcon flaubert gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo mobilebert modernbert
mpnet mpt openai-gpt opt roberta starcoder2 xglm xlm xlm-roberta"""
_COMPARED_FIRST = 16
TIED_BY_DEFAULT = _SEQ2SEQ | set(_OTHERS.split())
"""Model types whose config class ties by default: older versions wrote the flag only if it was false."""

_HAS_HEAD = (
    (r".*(MTModel|DoubleHeadsModel|WithLMHeadModel)|.*EncoderDecoder.*", None),
    (r"(Bark|Blip|Clvp|Csm|Esm|Musicgen|Perceiver|Pix2Struct|SeamlessM4T|Wav2Vec2).*", None),
    (r".*(ForCausalLM|ForMaskedLM|LMHeadModel)", True),
    (r".*(Model|For(Sequence|Token)Classification|ForQuestionAnswering|ForMultipleChoice)", False),
)
"""Whether classes with such a name have an output head. The first match counts, and None leaves it to `locate`.

Checked against 1,001 classes of transformers 5.23, built from default configs.
"""


@dataclass(frozen=True)
class Places:
    """Where the token table and the output head are, by their names in the file."""

    input: str
    head: str | None  # None if the model or the checkpoint has no head: see `why`
    tied: bool  # whether the head and the table hold the same numbers
    why: str  # how this is known, or why there is no head: one sentence for users


@dataclass(frozen=True)
class LanguageModel:
    places: Callable[[], Places]  # looked for when called
    rows: Callable[..., Rows]
    """rows(tensor, with_tokens=False): one tensor; with token strings if its rows are the vocabulary."""
    cap: float | None = None  # logits z become cap tanh(z / cap)
    files: ModelFiles | None = None  # None for GGUF


def language_model(files: ModelFiles) -> LanguageModel:
    cap = next((cap for cap in map(logit_cap, text_parts(files.config)) if cap is not None), None)
    return LanguageModel(cache(partial(find_places, files)), partial(rows_of, files), cap, files)


def find_places(files: ModelFiles) -> Places:
    """If one matrix has `vocab_size` rows, config.json alone decides. Otherwise transformers builds the class without
    weights. If it cannot, well-known names decide, provided they leave no choice."""
    try:
        return _from_header(files) or locate(files)
    except UnsupportedModel as error:
        return _from_names(files, error)


def _from_header(files: ModelFiles) -> Places | None:
    """By config.json and the tensors' shapes; None if they leave a doubt."""
    config, candidates, architecture = files.config, vocabulary_matrices(files), _architecture(files.config)
    # Encoder and decoder may differ: Marian's `decoder_vocab_size`, FSMT's `tgt_vocab_size`.
    sizes = [value for key, value in config.items() if re.fullmatch("(?!type_).*vocab_size", key)]
    if architecture is None or not all(size in (None, files.vocab_size) for size in sizes):
        return None
    has_head = _has_head(architecture, config.get("model_type"))
    tables, heads = _named(candidates, TABLES), _named(candidates, _ONLY_HEADS)
    if has_head and len(tables) == len(heads) == 1 and len(candidates) == 2:
        widths = [config.get(key) for key in _WIDTHS]  # of any type, in a damaged file
        if all(files.entries[name].shape[1] in widths for name in candidates):
            why = f"found by the names of the tensors of {architecture}, which has an output head"
            return _settled(files, tables[0], heads[0], why)
    if len(candidates) != 1 or has_head is None or ends_in(candidates[0], HEADS):
        return None
    table = candidates[0]
    if has_head and _is_tied(config):
        why = f"{architecture} shares one matrix between its token table and its output head"
        return Places(table, table, True, why)
    if has_head or "auto_map" in config:  # custom code can call anything a Model
        return None
    return Places(table, None, False, _no_head(architecture))


def _named(tensors: list[str], endings: tuple[str, ...]) -> list[str]:
    return [name for name in tensors if ends_in(name, endings)]


def _from_names(files: ModelFiles, reason: UnsupportedModel) -> Places:
    candidates, architecture = vocabulary_matrices(files), _architecture(files.config)
    tables, heads = _named(candidates, TABLES), _named(candidates, HEADS)
    if len(tables) == len(heads) == 1 and len(candidates) == 2:
        return _settled(files, tables[0], heads[0], f"found by the names of the tensors, since {reason}")
    if len(candidates) == 1 and architecture is not None and _has_head(architecture) is False and not heads:
        why = f"it is not known whether {architecture} has an output head, since {reason}"
        return Places(candidates[0], None, False, why)
    known = matrices(files.entries)
    choice = candidates or sorted(known, key=lambda name: (-known[name].shape[0], name))
    way_out = "and no tensor of the model is a matrix of floats: dequantise or convert it first"
    if choice:
        way_out = f"or name the tensor yourself, as {files.where}#{choice[0]}: there are {listing(choice)}"
    raise UnsupportedModel(f"{reason}; {way_out}") from reason


def _settled(files: ModelFiles, table: str, head: str, why: str) -> Places:
    """The numbers decide `tied`: transformers 5 ties two stored matrices only if they are equal."""
    return Places(table, head, head == table or same_rows(files, table, head), why)


def same_rows(files: ModelFiles, first: str, second: str) -> bool:
    a, b = rows_of(files, first), rows_of(files, second)
    first_rows = min(_COMPARED_FIRST, a.shape[0])  # a whole block may have to come from far away
    if a.shape != b.shape or a.dtype != b.dtype or not np.array_equal(a.read(0, first_rows), b.read(0, first_rows)):
        return False
    return all(np.array_equal(x, y) for x, y in zip(a.blocks(), b.blocks(), strict=True))


def vocabulary_matrices(files: ModelFiles) -> list[str]:
    size = files.vocab_size
    return sorted(name for name, entry in matrices(files.entries).items() if entry.shape[0] == size)


def _architecture(config: Mapping[str, Any]) -> str | None:
    match config.get("architectures"):
        case [str(name)] if name.isidentifier():
            return name
    return None


def _is_tied(config: Mapping[str, Any]) -> bool:
    """Whether the flag is true wherever it occurs, or occurs nowhere and the class ties by default."""
    flags = [part["tie_word_embeddings"] for part in text_parts(config) if "tie_word_embeddings" in part]
    if "text_config" in config and "tie_word_embeddings" not in config:
        return False
    return all(flag is True for flag in flags) if flags else str(config.get("model_type")) in TIED_BY_DEFAULT


def _has_head(architecture: str, model_type: object = None) -> bool | None:
    """Whether such a class has one output head over the vocabulary; None if the name does not show it."""
    if architecture.endswith("ForConditionalGeneration"):  # speech and image models are called that too
        return True if str(model_type) in _SEQ2SEQ else None
    return next((has_head for rule, has_head in _HAS_HEAD if re.fullmatch(rule, architecture)), None)


def ends_in(tensor: str, endings: tuple[str, ...]) -> bool:
    """Whether the tensor is the weight of a module with one of these names."""
    return f".{tensor}".endswith(tuple(f".{ending}.weight" for ending in endings))


def _no_head(architecture: str) -> str:
    ends = ": this checkpoint holds the model without it" if architecture.endswith("Model") else " over the vocabulary"
    return f"{architecture} has no output head{ends}"


def locate(files: ModelFiles) -> Places:
    """Find the places by the class that config.json names, as transformers assigns its tensors."""
    need("opening a model by its class")
    from uncone.model.model_class import build, file_keys  # which runs torch

    model = build(files)
    keys, kind = file_keys(model, matrices(files.entries)), type(model).__name__
    with asked(f"place the tensors of {kind}"):
        table, head = _matrix_of(model, "input"), _matrix_of(model, "output")
        if table is None:
            raise UnsupportedModel(f"{kind} has no token table that is one matrix")
        table_key = _key_of(model, table, keys, files)
        if table_key is None:
            table_of = f"the token table of {kind} ({listing(_names(model, table))})"
            raise UnsupportedModel(f"no tensor in {files.where} is loaded unchanged as {table_of}")
        head_key = None if head is None else _key_of(model, head, keys, files)
    if head_key is not None:
        return _settled(files, table_key, head_key, f"found by the transformers class {kind}")
    why = f"{kind} has an output head of its own, but the checkpoint holds no tensor for it"
    if head is None:
        bare = f"config.json names no architecture, and {kind}, the bare model, has no output head"
        why = _no_head(kind) if files.config.get("architectures") else bare
    return Places(table_key, None, False, why)


def _matrix_of(model: Any, which: str) -> Any:
    """`which` is "input" or "output"."""
    try:
        module = getattr(model, f"get_{which}_embeddings")()
    except (NotImplementedError, AttributeError):  # how transformers reports that there is none
        return None
    weight = getattr(module, "weight", None)
    return module if isinstance(weight, sys.modules["torch"].nn.Parameter) and weight.ndim == 2 else None


def _key_of(model: Any, module: Any, keys: Mapping[str, str], files: ModelFiles) -> str | None:
    """The file's name of the weight of `module`, or of a parameter it is tied to."""
    key = next((keys[name] for name in _names(model, module) if name in keys), None)
    if key is not None and files.entries[key].shape != tuple(module.weight.shape):
        raise InputError(
            f"config.json of {files.where} gives {key!r} the shape {list(module.weight.shape)}, the file has "
            f"{list(files.entries[key].shape)}: to measure it anyway, open {files.where}#{key}"
        )
    return key


def _names(model: Any, module: Any) -> list[str]:
    """Names under the module itself first, then names it is tied to."""
    from uncone.model.model_class import names_of

    own = [f"{name}.weight" for name, other in model.named_modules(remove_duplicate=False) if other is module]
    return list(dict.fromkeys([*own, *sorted(names_of(model, module.weight))]))
