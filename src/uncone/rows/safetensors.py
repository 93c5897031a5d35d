"""safetensors: the rows of a tensor, and files written whole.

The header is parsed here, over any `ByteSource`, and nothing in it is trusted. It is written here too: the library puts the
metadata in another order each time, and equal results are to be equal bytes.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from uncone.errors import InputError
from uncone.rows.array import FLOATING, check_shape
from uncone.rows.base import Rows
from uncone.rows.bytes import ByteSource, LocalFile
from uncone.rows.flat import FlatRows
from uncone.rows.names import nearest

LONGEST_HEADER = 100_000_000  # the format's own limit
_MOST_AXES = 64
_SHOWN = 80  # characters of a name or value that a message quotes: a header may hold megabytes
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
CODES = {name: code for code, name in FLOATS.items()} | {
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""What safetensors calls the dtypes of torch."""
_DTYPES: dict[str, torch.dtype] = {code: getattr(torch, name) for name, code in CODES.items()}
_METADATA = "__metadata__"
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One tensor of a safetensors file: its dtype, shape, and absolute byte range."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(source: ByteSource) -> dict[str, Entry]:
    """The tensors of a safetensors file, by name, every offset checked against the file.

    Raises:
        InputError: not safetensors, truncated, or a header that lies about the file.
    """
    return _read_header(source)[0]


def read_metadata(source: ByteSource) -> dict[str, str]:
    """The texts of `__metadata__`.

    Raises:
        InputError: as `read_header`.
    """
    return _read_header(source)[1]


def read_tensors(
    path: str | os.PathLike[str], *, format: str, what: str, how: str
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a file whose metadata name `format`, as copies in memory, and the metadata.

    Args:
        path: a local file.
        format: what `__metadata__["format"]` must be.
        what: what such a file holds, for messages: "a transformation".
        how: how such a file is written, for messages: "write it with save".

    Raises:
        InputError: no such file, none that can be read, of another format, or with a tensor of a dtype that torch lacks.
    """
    source = LocalFile(path)
    try:
        entries, metadata = _read_header(source)
    except InputError as error:
        raise InputError(f"expected {what}, got {path} which cannot be read ({error}): {how}") from error
    if metadata.get("format") != format:
        raise InputError(
            f"expected {what} of format {format!r}, got {path} of format {metadata.get('format')!r}: {how}"
        )
    tensors = {}
    for name, entry in entries.items():
        if entry.dtype not in _DTYPES:
            raise InputError(
                f"expected {what}, got {path} with tensor {name[:_SHOWN]!r} of {entry.dtype}: {how}"
            )
        tensors[name] = torch.empty(entry.shape, dtype=_DTYPES[entry.dtype])
        if tensors[name].numel():
            source.read_into(entry.start, raw_bytes(tensors[name]))
    return tensors, metadata


def to_bytes(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> bytes:
    """A whole file: equal tensors and metadata give equal bytes."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    laid = sorted(
        stored.items(), key=lambda item: (-item[1].itemsize, item[0])
    )  # each begins at a multiple of its item's size
    entries = [(name, Entry(_code(t), tuple(t.shape), 0, t.numel() * t.itemsize)) for name, t in laid]
    return header_bytes(entries, metadata) + b"".join(raw_bytes(t) for _, t in laid if t.numel())


def raw_bytes(x: torch.Tensor) -> memoryview:
    """The numbers of a contiguous tensor as they lie in memory."""
    return x.reshape(-1).view(torch.uint8).numpy().data


def header_bytes(tensors: Iterable[tuple[str, Entry]], metadata: Mapping[str, str]) -> bytes:
    """The length and the header of a file that holds the tensors one after another, in the order given; of an entry its size counts.

    Raises:
        InputError: names longer than the format allows.
    """
    content: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, entry in tensors:
        size = entry.stop - entry.start
        content[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [at, at + size]}
        at += size
    return framed(content)


def framed(content: Mapping[str, Any]) -> bytes:
    """The length and the header, given as the object that its JSON holds.

    Raises:
        InputError: names longer than the format allows.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise InputError(
            f"expected names of at most {LONGEST_HEADER} bytes together, got {len(text)}: no safetensors file holds more"
        )
    return len(text).to_bytes(8, "little") + text


def tensor_rows(
    source: ByteSource, entries: Mapping[str, Entry], name: str, *, where: str | None = None
) -> Rows:
    """The rows of the tensor called `name`.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, not of floats.
    """
    where = f"{source.name}#{name}" if where is None else where
    if name not in entries:
        raise InputError(f"no tensor {name!r} in {source.name}{nearest(name, entries)}")
    entry = entries[name]
    if entry.dtype not in FLOATS:
        raise InputError(
            f"expected a tensor of {FLOATING}, got {entry.dtype} from {where}: dequantise or convert it first"
        )
    check_shape(entry.shape, where)
    return FlatRows(
        source,
        offset=entry.start,
        shape=(entry.shape[0], entry.shape[1]),
        dtype=FLOATS[entry.dtype],
        name=where,
    )


def matrices(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Those tensors that can be opened as rows."""
    return {
        name: entry
        for name, entry in entries.items()
        if len(entry.shape) == 2 and entry.dtype in FLOATS and 0 not in entry.shape
    }


def _read_header(source: ByteSource) -> tuple[dict[str, Entry], dict[str, str]]:
    if source.size < 8:
        raise InputError(
            f"expected a safetensors file, got {source.name} of {source.size} bytes: copy it again"
        )
    prefix = bytearray(8)
    source.read_into(0, memoryview(prefix))
    length = int.from_bytes(prefix, "little")
    if length > min(LONGEST_HEADER, source.size - 8):
        raise InputError(
            f"expected a safetensors header of at most {min(LONGEST_HEADER, source.size - 8)} bytes in {source.name}, "
            f"got a length of {length}: the file was cut, or is no safetensors file"
        )
    text = bytearray(length)
    source.read_into(8, memoryview(text))
    header = _parse(bytes(text), source)
    said = header.pop(_METADATA, None)
    metadata = {} if said is None else said
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _lies(source, "its __metadata__ is no object of texts")
    entries = {name: _entry(name, value, 8 + length, source) for name, value in header.items()}
    _check_cover(entries, 8 + length, source)
    return entries, metadata


def _code(tensor: torch.Tensor) -> str:
    return CODES[str(tensor.dtype).removeprefix("torch.")]


def _parse(text: bytes, source: ByteSource) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"expected a safetensors header in JSON in {source.name}, got one that does not parse ({error}): copy it again"
        ) from error
    if not isinstance(header, dict):
        raise InputError(
            f"expected a safetensors header that is an object in {source.name}, got {type(header).__name__}: copy it again"
        )
    return header


def _entry(name: str, value: Any, base: int, source: ByteSource) -> Entry:
    def lies(what: str) -> InputError:
        return InputError(
            f"the header of {source.name} lies about tensor {name[:_SHOWN]!r}: {what[: 2 * _SHOWN]}; copy or convert the file again"
        )

    if not isinstance(value, dict) or not isinstance(value.get("dtype"), str):
        raise lies("it has no dtype")
    dtype, shape, offsets = value["dtype"], value.get("shape"), value.get("data_offsets")
    if not _are_sizes(shape):
        raise lies(f"its shape is {repr(shape)[:_SHOWN]}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise lies(f"its data_offsets are {repr(offsets)[:_SHOWN]}")
    start, stop = base + offsets[0], base + offsets[1]
    if len(shape) > _MOST_AXES:
        raise lies(f"it has {len(shape)} axes")
    if stop > source.size:
        raise lies(f"it ends at byte {stop} of a file of {source.size}")
    if dtype not in _BITS:
        raise lies(f"its dtype {dtype!r} is unknown")
    if math.prod(shape) * _BITS[dtype] != 8 * (stop - start):
        raise lies(f"shape {shape} of {dtype} does not fill its {stop - start} bytes")
    return Entry(dtype, tuple(shape), start, stop)


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)


def _check_cover(entries: Mapping[str, Entry], base: int, source: ByteSource) -> None:
    """Raise InputError unless the tensors lie one after another and fill the file, as the format demands."""
    reached, before = base, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != reached:
            what = (
                "share bytes"
                if entry.start < reached
                else f"have {entry.start - reached} bytes of no tensor between them"
            )
            raise _lies(source, f"{before} and {name[:_SHOWN]!r} {what}")
        reached, before = entry.stop, repr(name[:_SHOWN])
    if reached != source.size:
        raise _lies(source, f"{source.size - reached} bytes after {before} belong to no tensor")


def _lies(source: ByteSource, what: str) -> InputError:
    return InputError(f"the header of {source.name} lies: {what}; copy or convert the file again")
