"""A PyTorch checkpoint: the rows of a tensor. torch reads it, with `weights_only`, and maps its numbers; nothing in it
is run.

A mapped file that is cut while it is open would end the process: its size is looked at before each block. The format
from before PyTorch 1.6 cannot be mapped: such a file is loaded whole.
"""

import bisect
import io
import itertools
import math
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError
from uncone.rows.base import ArrayRows, Rows
from uncone.rows.bytes import PICKLE, ZIP, LocalFile, SequentialFile
from uncone.rows.floats import Array, widen
from uncone.rows.safetensors import FLOATS, PIECE_BYTES, Entry

_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch's magic number, as pickle writes it
_CODES = {getattr(torch, name): code for code, name in FLOATS.items()}
_CONVERT = (
    "where you trust the file, load it by PyTorch and save its state_dict with safetensors.torch.save_file; "
    "uncone runs no code of a file"
)
_GLOBAL = re.compile(r"GLOBAL ([\w.]{1,200})")
_LOCAL_HEADER = struct.Struct("<26xHH")
_LONGEST_NAME = 4096
"""Characters of a joined name: nested containers could make far more text than the file holds."""
_LONGEST_CLASS = 10_000
_MARK = object()


@dataclass(frozen=True)
class StoredTensor(Entry):
    """One tensor of a checkpoint. Its byte range is in memory, where the file is mapped."""

    tensor: torch.Tensor

    def rows(self, source: LocalFile, where: str) -> Rows:
        """The rows of a matrix of floats, which may be a transposed or sliced one."""
        if self.dtype not in FLOATS or len(self.shape) != 2:
            return super().rows(source, where)
        if 0 not in self.shape and not _lie_apart(self.tensor):
            raise InputError(f"expected rows apart in {where}, got overlapping ones: save x.contiguous()")
        return _MappedRows(self.tensor, source, name=where)

    def pieces(self, source: LocalFile) -> Iterator[torch.Tensor]:
        """The numbers in order, some rows at a time, each piece contiguous."""
        x = self.tensor if self.tensor.ndim else self.tensor.reshape(1)
        row_bytes = max(1, math.prod(x.shape[1:]) * x.element_size())
        for piece in torch.split(x, max(1, PIECE_BYTES // row_bytes)):
            source.check_whole()
            yield piece.contiguous()

    def stored_bytes(self, source: LocalFile) -> Iterator[bytes | memoryview]:
        for piece in self.pieces(source):
            if piece.numel():
                yield piece.reshape(-1).view(torch.uint8).numpy().data

    def identity(self) -> tuple[Any, ...]:
        strides = self.tensor.stride() if self.tensor.layout == torch.strided else ()
        return (*super().identity(), strides)


def read_checkpoint(source: LocalFile) -> dict[str, StoredTensor]:
    """The tensors of a file of `torch.save` by name; names in nested dicts and lists are joined with dots."""
    if source.head(14)[2:] == _LEGACY:
        _check_names(source, 0, pickles=5)
        made = list[_Storage]()

        def make(empty: torch.UntypedStorage, _location: str) -> _Storage:
            made.append(_Storage(empty.nbytes()))  # type: ignore[no-untyped-call]
            return made[-1]

        content = _load(source, make)
        if not all(storage.is_read for storage in made):
            raise _broken(source, "the bytes of a tensor are not in it")
    elif source.head(4) == ZIP:
        content = _load_mapped(source, _stored(source))
    elif source.head(1) == PICKLE:
        raise InputError(f"expected a checkpoint, got {source.name}, a pickle, which can run code: {_CONVERT}")
    else:
        raise InputError(f"expected a file of torch.save, got {source.name} of another kind: copy it again")
    entries = dict[str, StoredTensor]()
    for name, tensor in _tensors(content, source):
        if name in entries:
            raise InputError(
                f"expected one tensor {name[:80]!r} in {source.name}, got two: joined with dots, names of "
                "nested dicts are equal; load it with torch.load(..., weights_only=True) and pass the tensor"
            )
        start = tensor.data_ptr() if tensor.layout == torch.strided else 0
        stop = start + tensor.numel() * tensor.element_size()
        entries[name] = StoredTensor(_code(tensor), tuple(tensor.shape), start, stop, tensor)
    return entries


class _MappedRows(ArrayRows):
    """Rows of a tensor that may be mapped from `source`: never a view of it, to be read after a cut."""

    def __init__(self, x: torch.Tensor, source: LocalFile, *, name: str) -> None:
        super().__init__(x, name=name)
        self._source = source

    def fill(self, start: int, out: Array) -> None:
        self._source.check_whole()
        widen(self._x[start : start + len(out)], out)

    read, blocks = Rows.read, Rows.blocks


class _Storage(torch.UntypedStorage):
    """Memory that says whether it was read into: torch skips a storage that an old file names and lacks."""

    is_read = False

    def _set_from_file(self, *where: Any) -> None:
        super()._set_from_file(*where)  # type: ignore[no-untyped-call]
        self.is_read = True


def _load(source: LocalFile, where: Any, *, mmap: bool = False) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(source.path, where, weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            named = _GLOBAL.search(str(error))
            if named:
                raise InputError(
                    f"expected tensors and plain values in {source.name}, got an object of {named[1]}, which "
                    f"only unpickling could bring back, and that can run code: {_CONVERT}"
                ) from None
            raise _broken(source, str(error).rpartition("WeightsUnpickler error: ")[2]) from error
        except Exception as error:  # whatever the instructions in the file make torch raise
            if not (isinstance(error, AttributeError) and "UntypedStorage" in str(error)):
                raise _broken(source, f"{type(error).__name__}: {error}") from error
            raise InputError(
                f"expected tensors of older dtypes in {source.name}, as from before PyTorch 1.6, got one "
                "of a newer dtype (float8 or uint16 and more), which torch cannot read back from it: "
                "save it again where it was made, without _use_new_zipfile_serialization=False"
            ) from error


def _broken(source: LocalFile, reason: str) -> InputError:
    lines = reason.strip().splitlines() or ["no reason given"]
    return InputError(
        f"expected a PyTorch checkpoint, got {source.name}, which torch cannot read ({lines[0][:200]}): "
        "it was cut or damaged, or is of another kind; copy it again"
    )


def _load_mapped(source: LocalFile, archive: zipfile.ZipFile) -> Any:
    """What the file holds, with its numbers mapped: torch compares no record with the size of its storage then."""
    sizes = list[tuple[int, bool]]()

    def keep(storage: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        sizes.append((storage.nbytes(), storage.data_ptr() != 0))
        return storage

    try:
        records = _records(source, archive)
        instructions = records["data.pkl"]
    except Exception as error:  # whatever a damaged directory leads to
        raise _broken(source, f"{type(error).__name__}: {error}") from error
    _check_names(source, instructions[0], pickles=1)
    content = _load(source, keep, mmap=True)
    try:
        keys = list(_storage_keys(source.read(*instructions)))
    except Exception as error:  # of what torch takes and the standard library does not
        raise _broken(source, f"{type(error).__name__}: {error}") from error
    seen, loaded = set[str](), iter(sizes)
    for key in keys:
        if key not in seen:
            nbytes, is_kept = next(loaded, (-1, True))
            _, length = records.get(f"data/{key}".lower(), (0, -2))
            if length != nbytes:
                raise _broken(source, f"record data/{key[:40]} has {length} bytes, and its storage {nbytes}")
            if is_kept:  # one that has no memory is looked up each time
                seen.add(key)
    return content


def _check_names(source: LocalFile, at: int, *, pickles: int) -> None:
    """Refuse a class of a very long name: torch searches its own message in time that grows with the square of it."""
    longest = 0
    with suppress(Exception):  # torch says what is wrong with the instructions
        file = io.BufferedReader(SequentialFile(source, at))
        for _ in range(pickles):
            for operation, argument, _ in pickletools.genops(file):
                longest = max(longest, len(str(argument)) if operation.name == "GLOBAL" else 0)
    if longest > _LONGEST_CLASS:
        raise _broken(source, f"a class has a name of {longest} characters")


def _stored(source: LocalFile) -> zipfile.ZipFile:
    """The archive. torch maps the bytes of a member as they lie there, compressed or not."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            members = archive.infolist()
    except Exception as error:  # whatever a damaged file makes zipfile raise
        raise _broken(source, str(error)) from error
    if any(member.filename.endswith("/constants.pkl") for member in members):
        raise InputError(f"expected tensors, got {source.name}, a TorchScript program: {_CONVERT}")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError(f"expected uncompressed tensors, got compressed ones in {source.name}: {_CONVERT}")
    return archive


def _records(source: LocalFile, archive: zipfile.ZipFile) -> dict[str, tuple[int, int]]:
    """Where the bytes of each member begin, and how many there are before the next one, by name without the folder.

    Names are compared as torch does, in any case. Of two members with one name the shorter counts.
    """
    found = dict[str, tuple[int, int]]()
    members = archive.infolist()
    ends = sorted({member.header_offset for member in members} | {archive.start_dir})
    for member in members:
        at = member.header_offset
        begin = at + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(source.read(at, _LOCAL_HEADER.size)))
        room = ends[bisect.bisect(ends, at)] - begin
        name = member.filename.partition("/")[2].lower()
        length = min(member.file_size, member.compress_size, room)
        found[name] = min(found.get(name, (begin, length)), (begin, length), key=lambda one: one[1])
    return found


def _storage_keys(instructions: bytes) -> Iterator[str]:
    """The key of each storage that a pickle names, in order: a stack of stand-ins is followed, and nothing is run."""
    stack, memo = list[Any](), dict[Any, Any]()
    for operation, argument, _ in pickletools.genops(instructions):
        name, before = operation.name, operation.stack_before
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
            continue
        items = list[Any]()
        if pickletools.stackslice in before:
            while (item := stack.pop()) is not _MARK:
                items.append(item)
            before = before[: before.index(pickletools.markobject)]
        items += [stack.pop() for _ in before]
        if name == "BINPERSID":
            yield str(items[0][2])
        if "GET" in name:
            stack.append(memo[argument])
        elif name.startswith("TUPLE"):
            stack.append(tuple(items[::-1]))
        elif name == "MARK":
            stack.append(_MARK)
        else:
            stack += [argument] * len(operation.stack_after)


def _tensors(content: Any, source: LocalFile) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts and lists, in the file's order; each container once."""
    seen, waiting = set[int](), [("", content)]
    while waiting:
        name, value = waiting.pop()
        if len(name) > _LONGEST_NAME:
            raise InputError(
                f"expected names of at most {_LONGEST_NAME} characters in {source.name}, got {name[:80]!r}...: "
                "do not trust this file"
            )
        if isinstance(value, torch.Tensor):
            yield name, value.detach()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            # Cut where a name is seen to be too long: a thousand names may share one long key.
            joined = (
                (f"{name}.{key}" if name else str(key), item) for key, item in inner if isinstance(key, str | int)
            )
            waiting += reversed([(below[: _LONGEST_NAME + 1], item) for below, item in joined])


def _code(tensor: torch.Tensor) -> str:
    """The dtype as safetensors writes it, or what stands in the way of reading the tensor as floats."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided:
        return f"a {str(tensor.layout).removeprefix('torch.')} tensor"
    if tensor.is_quantized:
        return "a quantised tensor"
    return f"a negated view of {kind}" if tensor.is_neg() else _CODES.get(tensor.dtype, kind)


def _lie_apart(x: torch.Tensor) -> bool:
    """No element of the matrix is stored for two places of it."""
    axes = sorted((stride, count) for stride, count in zip(x.stride(), x.shape, strict=True) if count > 1)
    reached = itertools.accumulate((stride * (count - 1) for stride, count in axes), initial=0)
    return all(stride > before for (stride, _), before in zip(axes, reached, strict=False))
