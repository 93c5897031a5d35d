"""A language model in GGUF, as llama.cpp reads it: its table, its head and its tokens."""

from pathlib import Path

from uncone.errors import InputError, UnsupportedModel
from uncone.model.gguf_parts import GgufModel
from uncone.model.places import Places
from uncone.rows import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.gguf import gguf_rows
from uncone.rows.gguf_header import MAGIC, StringArray, strings
from uncone.rows.names import listing

TABLE, HEAD = "token_embd.weight", "output.weight"
_WITHOUT_HEAD = ("t5encoder", "gemma-embedding", "llama-embed", "clip")
_TOKENS = "tokenizer.ggml.tokens"


def is_gguf(path: Path) -> bool:
    """The file is called so, or begins so."""
    if path.name.endswith(".gguf"):
        return True
    try:
        return LocalFile(path).head(4) == MAGIC
    except InputError:
        return False


def gguf_places(model: GgufModel) -> Places:
    """The table and the head; a language model without a tensor for its head uses the table, as llama.cpp does.

    Raises:
        UnsupportedModel: the model holds no token table.
    """
    if TABLE not in model.tensors:
        matrices = [name for name, tensor in model.tensors.items() if len(tensor.shape) == 2]
        raise UnsupportedModel(
            f"no tensor {TABLE!r} in {model.path}: give a model with a token table, or name a tensor yourself as "
            f"{model.path.name}#NAME; there are {listing(matrices) or 'no matrices'}"
        )
    if HEAD in model.tensors:
        return Places(TABLE, HEAD, False, "the GGUF file holds a tensor for the output head")
    kind = model.architecture or "this model"
    if _is_encoder(model):
        return Places(
            TABLE,
            None,
            False,
            f"{kind} is an encoder: the GGUF file holds no output head over the vocabulary",
        )
    return Places(
        TABLE,
        TABLE,
        True,
        f"the GGUF file holds no tensor for the output head of {kind}, so that llama.cpp uses the table",
    )


def gguf_model_rows(model: GgufModel, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor; `with_tokens` says that they stand for the vocabulary, whose strings the header holds.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, of integers, or quantised and not to be dequantised.
    """
    source = model.parts.get(tensor, model.source)
    rows = gguf_rows(source, model.tensors, tensor, where=f"{model.path}#{tensor}")
    array, n = (
        model.metadata.get(_TOKENS),
        rows.shape[0],
    )  # not rows in the function: they would keep themselves, and the file, open
    if with_tokens and isinstance(array, StringArray):
        rows.load_labels = lambda: _labels(model.source, array, n)
    return rows


def _labels(source: LocalFile, array: StringArray, n: int) -> list[str | None]:
    found: list[str | None] = list(strings(source, StringArray(array.start, min(array.count, n))))
    return found + [None] * (n - len(found))


def _is_encoder(model: GgufModel) -> bool:
    causal = model.metadata.get(f"{model.architecture}.attention.causal", True)
    return causal is False or "bert" in model.architecture or model.architecture in _WITHOUT_HEAD
