"""Rows of a tensor in a PyTorch checkpoint. torch reads the layout alone, with `weights_only`; the numbers are read from the file.

Loading onto the device "meta" makes tensors without content, so a checkpoint of any size opens at once, and a lying size allocates
nothing. torch says where each storage begins in the file, and blocks are read there as those of any other format: a mapped file that is
cut while it is open would end the process.
The format from before PyTorch 1.6 does not say where its storages begin: such a file is loaded whole, with `weights_only` too. torch
leaves memory as it was for a storage that such a file names and does not hold, so each must have been read.
"""

import os
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import Any, BinaryIO

import torch

from uncone.errors import InputError
from uncone.regular import open_regular
from uncone.rows.array import ArrayRows, check_shape
from uncone.rows.base import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import FLOATS, Entry, tensor_rows
from uncone.rows.strided import StridedRows

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch's magic number, as pickle writes it
_CODES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_CONVERT = (
    "where you trust the file, load it with PyTorch and save its state_dict with safetensors.torch.save_file; "
    "uncone runs no code of a file"
)
_GLOBAL = re.compile(r"GLOBAL ([\w.]{1,200})")
_FOLDER = 0x10
_LEGACY_PICKLES = 5  # the magic number, the version, the machine, the tensors, and the keys of their storages
_LONGEST_NAME = 4096
"""Characters of a name once it is joined: containers in containers would otherwise make far more text than the file holds."""


@dataclass(frozen=True)
class StoredTensor(Entry):
    """One tensor of a checkpoint: its dtype, shape and byte range, and how its rows lie there."""

    strides: tuple[int, ...]
    """Elements from one index to the next, for each axis."""
    contiguous: bool
    """Row after row without a gap."""
    loaded: torch.Tensor | None = None
    """The tensor itself, from a file in the format before PyTorch 1.6; then the byte range is that in memory."""


def is_checkpoint(source: LocalFile) -> bool:
    """The file begins as those that `torch.save` writes, now or before PyTorch 1.6."""
    return source.head(4) == _ZIP or source.head(1) == _PICKLE


def read_checkpoint(source: LocalFile) -> dict[str, StoredTensor]:
    """The tensors of a file that `torch.save` wrote, by name; names in nested dicts and lists are joined with dots.

    Raises:
        InputError: not such a file, cut, TorchScript, with objects that only unpickling could bring back, compressed, with sizes
            that do not fit the file, or with two tensors whose names are the same once they are joined.
    """
    if source.head(14)[2:] == _LEGACY:
        return _by_name(
            [(name, _loaded(tensor)) for name, tensor in _tensors(_load_whole(source), source)], source
        )
    if source.head(4) != _ZIP:
        raise _no_zip(source)
    places = _records(source)
    tensors = _tensors(_load(source, "meta"), source)
    return _by_name([(name, _entry(name, tensor, places, source)) for name, tensor in tensors], source)


def checkpoint_rows(
    source: LocalFile, entries: Mapping[str, Entry], name: str, *, where: str | None = None
) -> Rows:
    """The rows of the tensor called `name`; a transposed or sliced one is read through its strides.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, not of floats, or of rows that overlap.
    """
    where = where or (f"{source.name}#{name}" if name else source.name)
    entry = entries.get(name)
    if not isinstance(entry, StoredTensor) or entry.dtype not in FLOATS or len(entry.shape) != 2:
        return tensor_rows(source, entries, name, where=where)
    if 0 not in entry.shape and not _lie_apart(entry):
        raise InputError(
            f"expected rows that lie apart in {where}, got overlapping ones (an expanded tensor): save x.contiguous()"
        )
    if entry.loaded is not None:
        return ArrayRows(entry.loaded, name=where)
    if entry.contiguous:
        return tensor_rows(source, entries, name, where=where)
    check_shape(entry.shape, where)
    shape, strides = (entry.shape[0], entry.shape[1]), (entry.strides[0], entry.strides[1])
    return StridedRows(
        source, offset=entry.start, shape=shape, strides=strides, dtype=FLOATS[entry.dtype], name=where
    )


def without_ties(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Each tensor once: of names for the same numbers the first stays."""
    seen = dict[tuple[Any, ...], str]()
    for name, entry in entries.items():
        strides = entry.strides if isinstance(entry, StoredTensor) else ()
        seen.setdefault((entry.start, entry.stop, entry.dtype, entry.shape, strides), name)
    return {name: entries[name] for name in seen.values()}


def _no_zip(source: LocalFile) -> InputError:
    if source.head(1) == _PICKLE:
        return InputError(
            f"expected a PyTorch checkpoint, got {source.name}, a bare pickle, which can run code: {_CONVERT}"
        )
    return InputError(
        f"expected a PyTorch checkpoint, as torch.save writes it, got {source.name} of another kind: copy it again"
    )


class _Storage(torch.UntypedStorage):
    """Memory for numbers in the format from before PyTorch 1.6, which says whether they were read into it."""

    is_read = False

    def _set_from_file(self, *where: Any) -> None:
        super()._set_from_file(*where)  # type: ignore[no-untyped-call]
        self.is_read = True


def _check_names(source: LocalFile, instructions: BinaryIO | BytesIO, pickles: int = 1) -> None:
    """Refuse names of objects so long that torch's search for them in its own message takes minutes: its time grows with their square."""
    longest = 0
    with suppress(Exception):  # torch says what is wrong with instructions that end early or make no sense
        for opcode, name, _ in chain.from_iterable(pickletools.genops(instructions) for _ in range(pickles)):
            longest = max(longest, len(str(name)) if opcode.name == "GLOBAL" else 0)
    if longest > _LONGEST_NAME:
        raise _broken(source, f"an object in it has a name of {longest} characters")


def _load_whole(source: LocalFile) -> Any:
    with open_regular(source.path) as file:
        _check_names(source, file, _LEGACY_PICKLES)
    made = list[_Storage]()

    def make(named: torch.UntypedStorage, _location: str) -> _Storage:
        made.append(_Storage(named.nbytes()))  # type: ignore[no-untyped-call]
        return made[-1]

    content = _load(source, make)
    if not all(storage.is_read for storage in made):
        raise _broken(source, "the bytes of a tensor are not in it")
    return content


def _load(source: LocalFile, device: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(source.path, map_location=device, weights_only=True)
        except pickle.UnpicklingError as error:
            found = _GLOBAL.search(str(error))
            if found:
                raise InputError(
                    f"expected only tensors and plain values in {source.name}, got an object of {found[1]}, which only unpickling could "
                    f"bring back, and that can run code: {_CONVERT}"
                ) from None
            raise _broken(source, str(error).rpartition("WeightsUnpickler error: ")[2]) from error
        except NotImplementedError as error:
            what = (
                "quantised tensors"
                if "affine_quantized" in str(error)
                else "tensors of a kind that cannot be opened"
            )
            raise InputError(
                f"expected tensors of floats in {source.name}, got {what}: dequantise them and save it again"
            ) from error
        except AttributeError as error:
            if "UntypedStorage" not in str(error):
                raise _broken(source, f"{type(error).__name__}: {error}") from error
            raise InputError(
                f"expected tensors of older dtypes in {source.name}, which is in the format from before PyTorch 1.6, got one of a newer dtype "
                "(float8 or unsigned integers of 16 bits and more), which torch cannot read back from it: save it again where it was made, "
                "without _use_new_zipfile_serialization=False"
            ) from error
        except Exception as error:  # whatever the instructions in the file make torch raise
            raise _broken(source, f"{type(error).__name__}: {error}") from error


def _broken(source: LocalFile, reason: str) -> InputError:
    lines = reason.strip().splitlines() or ["no reason given"]
    return InputError(
        f"expected a PyTorch checkpoint, got {source.name}, which torch cannot read ({lines[0][:200]}): it was cut or damaged, or is of "
        "another kind; copy it again"
    )


def _records(source: LocalFile) -> dict[int, int]:
    """Where each record of the file begins and how many bytes it has, as torch reads the zip file."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            members = archive.infolist()
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        reader: Any = torch._C.PyTorchFileReader(os.fspath(source.path))
        is_program = reader.has_record("constants.pkl")
        instructions = BytesIO(reader.get_record("data.pkl"))
        order = reader.get_record("byteorder") if reader.has_record("byteorder") else b"little"
        found = {
            reader.get_record_offset(name): reader.get_record_size(name) for name in reader.get_all_records()
        }
    except Exception as error:  # whatever a damaged file makes them raise
        raise _broken(source, str(error)) from error
    _check_names(source, instructions)
    if any(
        member.external_attr & _FOLDER and not member.is_dir() for member in members
    ):  # torch reads nothing of such a record
        raise _broken(source, "a member of the zip says that it is a folder")
    if is_program:
        raise InputError(
            f"expected a PyTorch checkpoint of tensors, got {source.name}, a TorchScript program: {_CONVERT}"
        )
    if not stored:  # torch says where a record begins, and takes it as it lies there
        raise InputError(
            f"expected a PyTorch checkpoint that is stored uncompressed, got {source.name} with a compressed member: {_CONVERT}"
        )
    if order != b"little":  # torch ends the process over tensors without content that it should swap
        raise InputError(
            f"expected a checkpoint of a little-endian machine, got {source.name} of another: load and save it here"
        )
    return found


def _tensors(content: Any, source: LocalFile) -> list[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts and lists, in the file's order; a container that is met again is passed over."""
    found, seen = list[tuple[str, torch.Tensor]](), set[int]()
    waiting: list[tuple[str, Any]] = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if len(name) > _LONGEST_NAME:
            raise InputError(
                f"expected names of at most {_LONGEST_NAME} characters in {source.name}, got a longer one, {name[:80]!r}...: "
                "do not trust this file"
            )
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            below = [(_joined(name, key), item) for key, item in inner if _is_key(key)]
            waiting.extend(reversed(below))
    return found


def _joined(name: str, key: object) -> str:
    """No longer than it takes to see that it is too long: a thousand names may share one long key."""
    return (f"{name}.{key}" if name else str(key))[: _LONGEST_NAME + 1]


def _by_name(found: list[tuple[str, StoredTensor]], source: LocalFile) -> dict[str, StoredTensor]:
    """The tensors by their joined names, of which each must mean one."""
    entries = dict[str, StoredTensor]()
    for name, entry in found:
        if name in entries:
            raise InputError(
                f"expected one tensor called {name[:80]!r} in {source.name}, got two: joined with dots, the names of nested dicts are "
                "the same; load it with torch.load(..., weights_only=True) and pass the tensor"
            )
        entries[name] = entry
    return entries


def _is_key(key: object) -> bool:
    return isinstance(key, str | int)


def _entry(name: str, tensor: torch.Tensor, places: Mapping[int, int], source: LocalFile) -> StoredTensor:
    shape, strides, size = tuple(tensor.shape), _strides(tensor), tensor.element_size()
    if tensor.numel() == 0 or not strides:
        return StoredTensor(_code(tensor), shape, 0, 0, strides, True)
    storage = tensor.untyped_storage()
    base = getattr(storage, "_checkpoint_offset", None)
    if base is None:
        raise InputError(
            f"{source.name} holds a tensor {name[:80]!r} that is not stored in it, or this torch ({torch.__version__}) is too old to "
            "say where: use torch 2.7 or newer, or save the state_dict with safetensors"
        )
    last = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    start = base + tensor.storage_offset() * size
    stop = start + (last + 1) * size
    if base not in places or stop > min(base + places[base], source.size):
        raise _lies(source, name, f"shape {list(shape)} of {_code(tensor)} does not lie within its bytes")
    if places[base] != storage.nbytes():
        raise _lies(source, name, f"its storage has {storage.nbytes()} bytes, and its record {places[base]}")
    return StoredTensor(_code(tensor), shape, start, stop, strides, tensor.is_contiguous())


def _lies(source: LocalFile, name: str, what: str) -> InputError:
    return InputError(f"{source.name} lies about tensor {name[:80]!r}: {what}; copy the file again")


def _loaded(tensor: torch.Tensor) -> StoredTensor:
    """A tensor that is in memory already."""
    strides = _strides(tensor)
    start = tensor.data_ptr() if strides else 0
    stop = start + tensor.numel() * tensor.element_size()
    return StoredTensor(
        _code(tensor),
        tuple(tensor.shape),
        start,
        stop,
        strides,
        bool(strides) and tensor.is_contiguous(),
        tensor,
    )


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else ()


def _code(tensor: torch.Tensor) -> str:
    """The dtype as safetensors writes it, or what stands in the way of reading the tensor as floats."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided:
        return f"a {str(tensor.layout).removeprefix('torch.')} tensor"
    return f"a negated view of {kind}" if tensor.is_neg() else _CODES.get(tensor.dtype, kind)


def _lie_apart(entry: StoredTensor) -> bool:
    """No element of the matrix is stored for two places of it."""
    reached = 0
    for stride, count in sorted(
        (stride, count) for count, stride in zip(entry.shape, entry.strides, strict=True) if count > 1
    ):
        if stride <= reached:
            return False
        reached += stride * (count - 1)
    return True
