"""A language model in one GGUF file, as llama.cpp reads it: its table, its head and its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnsupportedModel
from uncone.model.places import Places
from uncone.rows import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.gguf import gguf_rows
from uncone.rows.gguf_header import MAGIC, GgufTensor, StringArray, read_gguf, strings
from uncone.rows.names import listing

TABLE, HEAD = "token_embd.weight", "output.weight"
_WITHOUT_HEAD = ("t5encoder", "gemma-embedding", "llama-embed", "clip")
_TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class GgufModel:
    """A GGUF file whose header is checked and whose tensors are not read."""

    source: LocalFile
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))[:80]


def is_gguf(path: Path) -> bool:
    """The file is called so, or begins so."""
    if path.name.endswith(".gguf"):
        return True
    try:
        source, head = LocalFile(path), bytearray(4)
        source.read_into(0, memoryview(head))
    except InputError:
        return False
    return head == MAGIC


def find_gguf(directory: Path) -> Path | None:
    """The GGUF file in a directory, if there is one.

    Raises:
        InputError: there are several.
    """
    found = sorted(directory.glob("*.gguf"))
    if len(found) > 1:
        names = listing(path.name for path in found)
        raise InputError(f"expected one GGUF file in {directory}, got {len(found)} ({names}): give the file")
    return found[0] if found else None


def open_gguf(path: Path) -> GgufModel:
    """Read the header of a GGUF file.

    Raises:
        InputError: not GGUF, cut, or a header that lies about the file.
    """
    source = LocalFile(path)
    header = read_gguf(source)
    return GgufModel(source, header.metadata, header.tensors)


def gguf_places(model: GgufModel) -> Places:
    """The table and the head; a language model without a tensor for its head uses the table, as llama.cpp does.

    Of a split model one part is seen, and a head that is not in it may be in another: then none is known.

    Raises:
        UnsupportedModel: the file holds no token table.
    """
    if TABLE not in model.tensors:
        matrices = [name for name, tensor in model.tensors.items() if len(tensor.shape) == 2]
        part = f", {_part(model)}" if _part(model) else ""
        raise UnsupportedModel(
            f"no tensor {TABLE!r} in {model.path}{part}: give the file that holds the token table, or name a tensor yourself as "
            f"{model.path.name}#NAME; there are {listing(matrices) or 'no matrices'}"
        )
    if HEAD in model.tensors:
        return Places(TABLE, HEAD, False, "the GGUF file holds a tensor for the output head")
    kind = model.architecture or "this model"
    if _is_encoder(model):
        return Places(TABLE, None, False, f"{kind} is an encoder: the GGUF file holds no output head over the vocabulary")
    if _part(model):
        return Places(
            TABLE,
            None,
            False,
            f"{model.path.name} is {_part(model)}: the file that holds {HEAD!r}, if one does, is another part",
        )
    return Places(
        TABLE, TABLE, True, f"the GGUF file holds no tensor for the output head of {kind}, so that llama.cpp uses the table"
    )


def gguf_model_rows(model: GgufModel, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor; `with_tokens` says that they stand for the vocabulary, whose strings the header holds.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, of integers, or quantised and not to be dequantised.
    """
    if tensor not in model.tensors and _part(model):
        raise InputError(
            f"no tensor {tensor!r} in {model.path}; the file is {_part(model)}: give the part that holds the tensor"
        )
    rows = gguf_rows(model.source, model.tensors, tensor)
    array = model.metadata.get(_TOKENS)
    if with_tokens and isinstance(array, StringArray):
        rows.load_labels = lambda: _labels(model.source, array, rows.shape[0])
    return rows


def _labels(source: LocalFile, array: StringArray, n: int) -> list[str | None]:
    found: list[str | None] = list(strings(source, StringArray(array.start, min(array.count, n))))
    return found + [None] * (n - len(found))


def _part(model: GgufModel) -> str | None:
    """Which part of a split model the file is; None for a whole one."""
    number, count = model.metadata.get("split.no"), model.metadata.get("split.count")
    if type(number) is not int or count == 1:
        return None
    return f"part {number + 1} of {count} of a split model" if type(count) is int else f"part {number + 1} of a split model"


def _is_encoder(model: GgufModel) -> bool:
    causal = model.metadata.get(f"{model.architecture}.attention.causal", True)
    return causal is False or "bert" in model.architecture or model.architecture in _WITHOUT_HEAD
