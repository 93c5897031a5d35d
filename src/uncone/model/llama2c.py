"""A model of llama2.c: one file of float32 tensors after a header of seven numbers. The tensors go by the names of its training code.

The layout is that of `export.py` and `run.c` of karpathy/llama2.c: versions 0 (legacy) and 1. The file's size says the rest: it must be
exactly what the header asks for.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError
from uncone.model.llama2c_tokens import find_tokenizer, read_tokenizer
from uncone.model.places import Places
from uncone.rows import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.names import listing
from uncone.rows.safetensors import Entry, tensor_rows

TABLE, HEAD = "tok_embeddings.weight", "output.weight"
_MAGIC = 0x616B3432
_LEGACY_HEADER, _HEADER = 28, 256
_OTHERS = {
    struct.pack("<I", _MAGIC): "whose header holds numbers that no model has", b"PK\3\4": "a zip file, as numpy.savez and torch.save write",
    b"\x93NUMPY": "a NumPy array", b"PAR1": "a Parquet file", b"\x80": "a pickle", b"\x1f\x8b": "a gzipped file",
}  # fmt: skip
_MOST = {
    "dim": 2**20,
    "hidden_dim": 2**24,
    "n_layers": 4096,
    "n_heads": 2**16,
    "vocab_size": 2**24,
    "seq_len": 2**24,
}


@dataclass(frozen=True)
class Llama2c:
    """A llama2.c model whose header is checked and whose tensors are not read."""

    source: LocalFile
    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    seq_len: int
    tied: bool
    """The output head is the token table: the file holds no other."""
    tensors: Mapping[str, Entry]

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def head_size(self) -> int:
        return self.dim // self.n_heads


def is_llama2c(path: Path) -> bool:
    """The file begins with a header of llama2.c: seven numbers that can be a model's, or the magic number of later versions."""
    try:
        head = LocalFile(path).head(_HEADER)
    except InputError:
        return False
    return (len(head) >= 4 and struct.unpack_from("<I", head)[0] == _MAGIC) or _legacy(head) is not None


def kind_of(path: Path) -> str:
    """What a file that is no llama2.c model seems to be, from its first bytes, for a message."""
    head = LocalFile(path).head(_HEADER)
    for magic, kind in _OTHERS.items():
        if head.startswith(magic):
            return kind
    if head[8:9] == b"{":
        return "a safetensors file"
    text = len(head.decode("utf-8", "ignore").encode()) >= len(head) - 3  # the last character may be cut
    printable = text and all(byte >= ord(" ") or byte in b"\t\r\n" for byte in head)
    if not head:
        return "an empty file"
    return "text" if printable else "a file of another kind, or with a header of numbers that no model has"


def find_llama2c(directory: Path) -> Path | None:
    """The llama2.c model in a directory, if there is one.

    Raises:
        InputError: there are several.
    """
    found = sorted(path for path in directory.glob("*.bin") if path.is_file() and is_llama2c(path))
    if len(found) > 1:
        names = listing(path.name for path in found)
        raise InputError(
            f"expected one model of llama2.c in {directory}, got {len(found)} ({names}): give the file"
        )
    return found[0] if found else None


def open_llama2c(path: Path) -> Llama2c:
    """Read the header of a llama2.c model and say where each tensor lies.

    Raises:
        InputError: no such model, quantised (version 2), or a file that is not as long as its header asks for.
    """
    source = LocalFile(path)
    head = source.head(_HEADER)
    if len(head) >= 8 and struct.unpack_from("<I", head)[0] == _MAGIC:
        version = struct.unpack_from("<i", head, 4)[0]
        if version != 1:
            what = (
                "quantised to int8, in a layout that changed while its version did not"
                if version == 2
                else "unknown"
            )
            raise InputError(
                f"expected a llama2.c model of version 0 or 1, got version {version} in {path} ({what}): export it in float32"
            )
        numbers, tied, start = _numbers(head, 8), len(head) > 36 and head[36] == 1, _HEADER
        order = _modern
    else:
        numbers, tied, start = (
            _legacy(head),
            len(head) >= 24 and struct.unpack_from("<i", head, 20)[0] > 0,
            _LEGACY_HEADER,
        )
        order = _original
    if numbers is None:
        raise InputError(
            f"expected a model of llama2.c, got {path}, {kind_of(path)}: copy or export it again"
        )
    shapes = order(numbers, tied)
    tensors, at = dict[str, Entry](), start
    for name, shape in shapes:
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = Entry("F32", shape, at, at + size)
        at += size
    if at != source.size:
        what = (
            "the file was cut, copy it again"
            if source.size < at
            else "its header lies, or it is of another format"
        )
        raise InputError(
            f"expected {at} bytes for the llama2.c model that {path} describes, got {source.size}: {what}"
        )
    return Llama2c(source, **numbers, tied=tied, tensors=tensors)


def llama2c_places(model: Llama2c) -> Places:
    """The table and the head: one matrix where the header says so."""
    if model.tied:
        return Places(TABLE, TABLE, True, "the header of the llama2.c file says that the head is the table")
    return Places(
        TABLE, HEAD, False, "the header of the llama2.c file says that the head is a matrix of its own"
    )


def llama2c_rows(model: Llama2c, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor; `with_tokens` says that they stand for the vocabulary, whose strings come from the tokenizer beside.

    Raises:
        InputError: no tensor of that name (the nearest are named), or not a matrix.
    """
    rows = tensor_rows(model.source, model.tensors, tensor)
    if with_tokens:
        rows.load_labels = lambda: _labels(model)
    return rows


def _labels(model: Llama2c) -> list[str | None] | None:
    """A broken tokenizer costs the labels, never the diagnosis."""
    file = find_tokenizer(model.path, model.vocab_size)
    try:
        return None if file is None else list(read_tokenizer(file, model.vocab_size).pieces)
    except InputError:
        return None


def _legacy(head: bytes) -> dict[str, int] | None:
    return _numbers(head, 0)


def _numbers(head: bytes, at: int) -> dict[str, int] | None:
    """The seven numbers at `at`, or None where no model has such numbers."""
    if len(head) < at + 28:
        return None
    names = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
    found = dict(zip(names, struct.unpack_from("<7i", head, at), strict=True))
    found["vocab_size"] = abs(found["vocab_size"])  # the sign is version 0's flag for a head of its own
    dim, heads, kv = found["dim"], found["n_heads"], found["n_kv_heads"]
    if any(not 0 < found[name] <= most for name, most in _MOST.items()) or not 0 < kv <= heads:
        return None
    return found if dim % heads == 0 and heads % kv == 0 and dim // heads % 2 == 0 else None


_Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _each(n: dict[str, int], name: str, shape: tuple[int, ...]) -> _Shapes:
    return ((f"layers.{layer}.{name}.weight", shape) for layer in range(n["n_layers"]))


def _attention(n: dict[str, int]) -> _Shapes:
    dim, kv = n["dim"], n["dim"] // n["n_heads"] * n["n_kv_heads"]
    for name, shape in (("wq", (dim, dim)), ("wk", (kv, dim)), ("wv", (kv, dim)), ("wo", (dim, dim))):
        yield from _each(n, f"attention.{name}", shape)


def _feed_forward(n: dict[str, int]) -> _Shapes:
    dim, hidden = n["dim"], n["hidden_dim"]
    for name, shape in (("w1", (hidden, dim)), ("w2", (dim, hidden)), ("w3", (hidden, dim))):
        yield from _each(n, f"feed_forward.{name}", shape)


def _original(n: dict[str, int], tied: bool) -> _Shapes:
    """Version 0. Its two tables of rotary angles are stored too, though `run.c` computes them anew."""
    vocabulary, angles = (n["vocab_size"], n["dim"]), (n["seq_len"], n["dim"] // n["n_heads"] // 2)
    yield TABLE, vocabulary
    yield from _each(n, "attention_norm", (n["dim"],))
    yield from _attention(n)
    yield from _each(n, "ffn_norm", (n["dim"],))
    yield from _feed_forward(n)
    yield "norm.weight", (n["dim"],)
    yield "freqs_cos", angles
    yield "freqs_sin", angles
    if not tied:
        yield HEAD, vocabulary


def _modern(n: dict[str, int], tied: bool) -> _Shapes:
    """Version 1: the norms first."""
    vocabulary = (n["vocab_size"], n["dim"])
    yield from _each(n, "attention_norm", (n["dim"],))
    yield from _each(n, "ffn_norm", (n["dim"],))
    yield "norm.weight", (n["dim"],)
    yield TABLE, vocabulary
    yield from _attention(n)
    yield from _feed_forward(n)
    if not tied:
        yield HEAD, vocabulary
