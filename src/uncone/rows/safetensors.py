"""safetensors: the rows of a tensor, and files written whole or with other rows in place of a tensor.

The library gives no offsets, and writes metadata in another order each time, so equal results would have unequal bytes.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from uncone.errors import InputError
from uncone.roles import Path_
from uncone.rows.base import Rows, Source, Target, Writer, check_shape, raw_bytes
from uncone.rows.bytes import File, FlatRows, LocalFile, as_file
from uncone.rows.floats import FLOATING, Array, is_tensor, of_tensor
from uncone.sealed import checksum

_LONGEST_HEADER = 100_000_000  # the format's own limit
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_WHOLE = {"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
CODES = {name: code for code, name in FLOATS.items()} | _WHOLE  # what safetensors calls the dtypes
_DTYPES = {code: np.dtype(name) for name, code in CODES.items() if name != "bfloat16"}
_SIZES = {code: dtype.itemsize for code, dtype in _DTYPES.items()} | {"BF16": 2}
_METADATA, _SUM = "__metadata__", "sha256"
PIECE_BYTES = 2**22


@dataclass(frozen=True)
class Entry:
    """A tensor, with its byte range in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def rows(self, source: File, where: str) -> Rows:
        if self.dtype not in FLOATS:
            raise InputError(f"expected {FLOATING}, got {self.dtype} from {where}: dequantise or convert it")
        check_shape(self.shape, where)
        return FlatRows(source, self.start, self.shape, FLOATS[self.dtype], where)

    def identity(self) -> tuple[Any, ...]:
        """A value that is equal for two names of the same numbers."""
        return self.start, self.dtype, self.shape

    def stored_bytes(self, source: File) -> Iterator[bytes | memoryview]:
        for at in range(self.start, self.stop, PIECE_BYTES):
            yield source.read(at, min(PIECE_BYTES, self.stop - at))


def read_header(source: File) -> tuple[dict[str, Entry], dict[str, str]]:
    """Read and check the header. The library checks local files; of a remote file it would need all bytes."""
    try:
        if source.is_local:
            with safe_open(source.path, framework="np"):
                length = int.from_bytes(source.read(0, 8), "little")
            header = json.loads(source.read(8, length))
        else:
            length, header = _checked_header(source)
    except (SafetensorError, OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        if isinstance(error, InputError) and not source.is_local:  # the connection, or a permission
            raise
        raise InputError(
            f"expected a safetensors file, got {source.name}, which the library refuses ({error!s:.200}): "
            "it was cut or damaged, or is of another kind; copy or convert it again"
        ) from error
    metadata, base = header.pop(_METADATA, None) or {}, 8 + length
    entries = {
        name: Entry(value["dtype"], tuple(value["shape"]), *(base + at for at in value["data_offsets"]))
        for name, value in header.items()
    }
    return entries, metadata


def _checked_header(source: File) -> tuple[int, dict[str, Any]]:
    """Check a header as the library does: the tensors' bytes follow each other without a gap, from the header to the
    file's end. Raises ValueError."""
    length = int.from_bytes(source.read(0, 8), "little") if source.size >= 8 else 0
    if not 2 <= length <= min(_LONGEST_HEADER, source.size - 8):
        raise ValueError("its header has an impossible length")
    header = json.loads(source.read(8, length))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    at, tensors = 0, {name: value for name, value in header.items() if name != _METADATA}
    for value in sorted(tensors.values(), key=lambda value: tuple(value["data_offsets"])):
        shape, (start, stop), size = value["shape"], value["data_offsets"], _SIZES.get(value["dtype"])
        if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
            raise ValueError("shapes and offsets are not whole numbers")
        if start != at or stop < start or (size is not None and stop - start != math.prod(shape) * size):
            raise ValueError("its tensors do not fill it")
        at = stop
    if 8 + length + at != source.size:
        raise ValueError(f"its header announces {8 + length + at} bytes, but it has {source.size}")
    return length, header


def read_tensors(
    path: Path_ | File, *, format: str | tuple[str, ...], what: str, how: str, sealed: bool = False
) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a file whose metadata name `format` (or one of several formats), and the metadata.

    Messages state `what` such a file holds and `how` to write it. A checksum is compared if there is one. With
    `sealed` there must be a checksum.
    """
    source = as_file(path)
    try:
        entries, metadata = read_header(source)
    except InputError as error:
        raise InputError(f"expected {what}, got {path} which cannot be read ({error}): {how}") from error
    formats, found = (format,) if isinstance(format, str) else format, metadata.get("format")
    if found not in formats:
        expected = f"{what} of format {' or '.join(map(repr, formats))}"
        raise InputError(f"expected {expected}, got {path} of format {found!r}: {how}")
    tensors = {}
    for name, entry in entries.items():
        if entry.dtype not in _DTYPES:
            raise InputError(f"expected {what}, got {path} with tensor {name[:80]!r} of {entry.dtype}: {how}")
        tensors[name] = np.empty(entry.shape, _DTYPES[entry.dtype])
        if tensors[name].size:
            source.read_into(entry.start, raw_bytes(tensors[name]))
    is_sealed, known = sealed or _SUM in metadata, metadata.pop(_SUM, None)
    if is_sealed and known != checksum(_pieces(tensors, metadata)):
        raise InputError(f"expected {what} as it was written, got {path} with another checksum: {how}")
    return tensors, metadata


def without_ties(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Keep the first of several names for the same numbers."""
    first = dict[tuple[Any, ...], str]()
    return {name: entry for name, entry in entries.items() if first.setdefault(entry.identity(), name) == name}


def matrices(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {name: x for name, x in entries.items() if len(x.shape) == 2 and x.dtype in FLOATS and 0 not in x.shape}


def to_bytes(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """A whole file of arrays or tensors. Equal arrays and equal metadata give equal bytes."""
    return b"".join(_pieces(tensors, metadata))


def sealed_bytes(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """`to_bytes`, with the checksum of all of it in the metadata."""
    return to_bytes(tensors, {**metadata, _SUM: checksum(_pieces(tensors, metadata))})


def _pieces(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> Iterator[bytes]:
    stored = [(name, *(of_tensor(x, name) if is_tensor(x) else (x, str(x.dtype)))) for name, x in tensors.items()]
    stored.sort(key=lambda item: (-item[1].itemsize, item[0]))  # each begins at a multiple of its item size
    entries = [(name, Entry(CODES[dtype], x.shape, 0, x.nbytes)) for name, x, dtype in stored]
    yield header_bytes(entries, metadata)
    for _, x, _ in stored:
        yield x.tobytes()


def header_bytes(tensors: Iterable[tuple[str, Entry]], metadata: Mapping[str, str]) -> bytes:
    """The header of a file of tensors in this order. Only the sizes of entries count."""
    content: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, entry in tensors:
        stop = at + entry.stop - entry.start
        content[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise InputError(f"expected names of at most {_LONGEST_HEADER} bytes, got {len(text)}: shorten them")
    return len(text).to_bytes(8, "little") + text


class SafetensorsWriter(Writer):
    """The rows, with the other tensors and the metadata of a safetensors source."""

    def begin(self, target: Target, source: Source) -> None:
        entries, metadata = dict[str, Entry](), {"format": "pt"}
        if source.format == "safetensors" and source.path is not None:
            self._file = LocalFile(source.path)
            entries, metadata = read_header(self._file)
            entries.pop(source.part or "", None)
            target.check_free(entries)
        ours = Entry(CODES[target.dtype], target.shape, 0, math.prod(target.shape) * target.stored.itemsize)
        self._others = sorted(entries.items(), key=lambda item: item[1].start)
        self._handle.write(header_bytes([(target.part, ours), *self._others], metadata))

    def close(self) -> None:
        for _, entry in self._others:
            self._handle.writelines(entry.stored_bytes(self._file))
