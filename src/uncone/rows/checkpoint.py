"""Rows of a tensor in a PyTorch checkpoint. torch reads the layout alone, with `weights_only`; the numbers are read from the file.

Loading onto the device "meta" makes tensors without content, so a checkpoint of any size opens at once, and a lying size allocates
nothing. Where each storage begins in the file is then checked against the file, and blocks are read as those of any other format.
"""

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.array import check_shape
from uncone.rows.base import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.flat import TORCH_DTYPES
from uncone.rows.safetensors import FLOATS, Entry, tensor_rows

LARGEST_PICKLE = 256 * 2**20
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch's magic number, as pickle writes it
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name
_CODES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_INTEGERS = {"F64": np.int64, "F32": np.int32, "F16": np.int16, "BF16": np.int16}
_GLOBAL = re.compile(r"GLOBAL ([\w.]{1,200})")
_CONVERT = "where you trust the file, load it with PyTorch and save its state_dict with safetensors.torch.save_file; uncone unpickles nothing"


@dataclass(frozen=True)
class StoredTensor(Entry):
    """One tensor of a checkpoint: its dtype, shape and byte range, and how its rows lie there."""

    strides: tuple[int, ...]
    """Elements from one index to the next, for each axis."""
    contiguous: bool
    """Row after row without a gap."""


def is_checkpoint(source: LocalFile) -> bool:
    """The file begins as those that `torch.save` writes, now or before PyTorch 1.6."""
    return _first(source, 4) == _ZIP or _first(source, 1) == _PICKLE


def read_checkpoint(source: LocalFile) -> dict[str, StoredTensor]:
    """The tensors of a file that `torch.save` wrote, by name; names in nested dicts and lists are joined with dots.

    Raises:
        InputError: not such a file, cut, from before PyTorch 1.6 (it can only be read whole) or TorchScript, with objects that only
            unpickling could bring back, compressed, or with sizes that do not fit the file.
    """
    if _first(source, 4) != _ZIP:
        raise _no_zip(source)
    storages = _storages(source)
    return {name: _entry(name, tensor, storages, source) for name, tensor in _tensors(_load(source))}


def checkpoint_rows(source: LocalFile, entries: Mapping[str, Entry], name: str, *, where: str | None = None) -> Rows:
    """The rows of the tensor called `name`; a transposed or sliced one is read through its strides.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, not of floats, or of rows that overlap.
    """
    entry = entries.get(name)
    if not isinstance(entry, StoredTensor) or entry.contiguous or len(entry.shape) != 2 or entry.dtype not in FLOATS:
        return tensor_rows(source, entries, name, where=where)
    return _StridedRows(source, entry, f"{source.name}#{name}" if where is None else where)


def without_ties(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Each tensor once: of names for the same numbers the first stays."""
    seen = dict[tuple[Any, ...], str]()
    for name, entry in entries.items():
        strides = entry.strides if isinstance(entry, StoredTensor) else ()
        seen.setdefault((entry.start, entry.stop, entry.dtype, entry.shape, strides), name)
    return {name: entries[name] for name in seen.values()}


def _first(source: LocalFile, count: int) -> bytes:
    head = bytearray(min(count, source.size))
    source.read_into(0, memoryview(head))
    return bytes(head)


def _no_zip(source: LocalFile) -> InputError:
    if _first(source, 64)[2:14] == _LEGACY:
        return InputError(
            f"expected a PyTorch checkpoint in the format of 1.6 or newer, got {source.name} in the older one, which can only be read "
            "whole: load it with torch.load(FILE, weights_only=True) and save it again with torch.save or safetensors"
        )
    if _first(source, 1) == _PICKLE:
        return InputError(f"expected a PyTorch checkpoint, got {source.name}, a bare pickle, which can run code: {_CONVERT}")
    return InputError(
        f"expected a PyTorch checkpoint, as torch.save writes it, got {source.name} of another kind: copy it again"
    )


def _storages(source: LocalFile) -> dict[int, int]:
    """Where each member of the zip file begins, and how many bytes it has. Members lie there as they are, uncompressed."""
    members = _members(source)
    found = {}
    for member in members.values():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise InputError(
                f"expected a PyTorch checkpoint that is stored uncompressed, got {source.name} with a compressed member: {_CONVERT}"
            )
        start = _start(source, member)
        if start + member.file_size > source.size:
            raise InputError(f"a member of {source.name} ends beyond its {source.size} bytes: the file was cut, copy it again")
        found[start] = member.file_size
    order = _content(source, members["byteorder"]) if "byteorder" in members else b"little"
    if order != b"little":
        raise InputError(
            f"expected a checkpoint of a little-endian machine, got {source.name} of another: load and save it here"
        )
    if b"\nbytearray\n" in _content(source, members["data.pkl"]):  # torch calls it, with any size
        raise InputError(f"expected tensors and plain values in {source.name}, got a bytearray: {_CONVERT}")
    return found


def _members(source: LocalFile) -> dict[str, zipfile.ZipInfo]:
    """The members of the zip file without the name of its one folder."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise InputError(
            f"expected a PyTorch checkpoint, got {source.name}, cut or damaged ({error}): copy it again"
        ) from error
    if "constants.pkl" in members:
        raise InputError(f"expected a PyTorch checkpoint of tensors, got {source.name}, a TorchScript program: {_CONVERT}")
    if "data.pkl" not in members:
        raise InputError(
            f"expected a PyTorch checkpoint, got {source.name}, a zip file without data.pkl: give what torch.save wrote"
        )
    if members["data.pkl"].file_size > LARGEST_PICKLE:
        raise InputError(f"expected at most {LARGEST_PICKLE} bytes of names in {source.name}, got more: do not trust this file")
    return members


def _start(source: LocalFile, member: zipfile.ZipInfo) -> int:
    head = bytearray(_LOCAL_HEADER)
    source.read_into(member.header_offset, memoryview(head))
    return member.header_offset + _LOCAL_HEADER + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def _content(source: LocalFile, member: zipfile.ZipInfo) -> bytes:
    """Read without the zip file's checksum: torch can be told to write none."""
    content = bytearray(member.file_size)
    source.read_into(_start(source, member), memoryview(content))
    return bytes(content)


def _load(source: LocalFile) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(source.path, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            found = _GLOBAL.search(str(error))
            if found:
                raise InputError(
                    f"expected only tensors and plain values in {source.name}, got an object of {found[1]}, which only unpickling could "
                    f"bring back, and that can run code: {_CONVERT}"
                ) from None
            raise _broken(source, str(error).rpartition("WeightsUnpickler error: ")[2]) from error
        except NotImplementedError as error:
            what = "quantised tensors" if "affine_quantized" in str(error) else "tensors of a kind that cannot be opened"
            raise InputError(
                f"expected tensors of floats in {source.name}, got {what}: dequantise them and save it again"
            ) from error
        except Exception as error:  # whatever the instructions in the file make torch raise
            raise _broken(source, f"{type(error).__name__}: {error}") from error


def _broken(source: LocalFile, reason: str) -> InputError:
    lines = reason.strip().splitlines() or ["no reason given"]
    return InputError(
        f"expected a PyTorch checkpoint, got {source.name}, which torch cannot read ({lines[0][:200]}): copy it again"
    )


def _tensors(content: Any) -> list[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts and lists, in the file's order; a container that is met again is passed over."""
    found, seen = list[tuple[str, torch.Tensor]](), set[int]()
    waiting: list[tuple[str, Any]] = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            below = [(f"{name}.{key}" if name else str(key), item) for key, item in inner if _is_key(key)]
            waiting.extend(reversed(below))
    return found


def _is_key(key: object) -> bool:
    return isinstance(key, str | int)


def _entry(name: str, tensor: torch.Tensor, storages: Mapping[int, int], source: LocalFile) -> StoredTensor:
    shape, kind = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided:
        return StoredTensor(f"a {str(tensor.layout).removeprefix('torch.')} tensor", shape, 0, 0, (), False)
    if tensor.is_neg():
        kind = f"a negated view of {kind}"
    size, strides = tensor.element_size(), tuple(tensor.stride())
    if tensor.numel() == 0:
        return StoredTensor(_CODES.get(tensor.dtype, kind), shape, 0, 0, strides, True)
    base = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if base is None:
        raise InputError(
            f"{source.name} holds a tensor {name[:80]!r} that is not stored in it, or this torch ({torch.__version__}) is too old to "
            "say where: use torch 2.7 or newer, or save the state_dict with safetensors"
        )
    last = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    start = base + tensor.storage_offset() * size
    stop = start + (last + 1) * size
    if base not in storages or stop > base + storages[base]:
        raise InputError(
            f"{source.name} lies about tensor {name[:80]!r}: shape {list(shape)} of {kind} does not lie within its bytes; copy the file again"
        )
    return StoredTensor(
        _CODES.get(tensor.dtype, kind) if not tensor.is_neg() else kind, shape, start, stop, strides, tensor.is_contiguous()
    )


class _StridedRows(Rows):
    """A matrix whose rows lie apart or across (a saved transpose or slice). It is mapped and not read, as such rows span the file."""

    def __init__(self, source: LocalFile, entry: StoredTensor, name: str) -> None:
        check_shape(entry.shape, name)
        if not _lie_apart(entry):
            raise InputError(
                f"expected rows that lie apart in {name}, got overlapping ones (an expanded tensor): save x.contiguous()"
            )
        (n, d), (step, inner) = entry.shape, entry.strides
        kind = np.dtype(_INTEGERS[entry.dtype])
        count = (entry.stop - entry.start) // kind.itemsize
        flat = np.memmap(source.path, dtype=kind, mode="r", offset=entry.start, shape=(count,))
        bytes_apart = (step * kind.itemsize, inner * kind.itemsize)
        self._x = np.lib.stride_tricks.as_strided(flat, (n, d), bytes_apart, writeable=False)
        self.shape, self.dtype, self.name = (n, d), FLOATS[entry.dtype], name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        stored = torch.from_numpy(np.array(self._x[start:stop], order="C")).view(TORCH_DTYPES[self.dtype])
        return stored.to(self.widened) if out is None else out.copy_(stored)


def _lie_apart(entry: StoredTensor) -> bool:
    """No element of the matrix is stored for two places of it."""
    reached = 0
    for stride, count in sorted((stride, count) for count, stride in zip(entry.shape, entry.strides, strict=True) if count > 1):
        if stride <= reached:
            return False
        reached += stride * (count - 1)
    return True
