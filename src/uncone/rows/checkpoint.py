"""The tensors of a PyTorch checkpoint. torch reads it with `weights_only` and maps its numbers. Nothing in it is run.

A mapped file that is cut meanwhile would end the process, so its size is checked before each block. Files from before
PyTorch 1.6 are loaded whole.
"""

import bisect
import io
import itertools
import math
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError
from uncone.rows.base import ArrayRows, Rows
from uncone.rows.bytes import PICKLE, ZIP, File, LocalFile, SequentialFile, member_start
from uncone.rows.floats import Array, widen
from uncone.rows.safetensors import FLOATS, PIECE_BYTES, Entry

_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch's magic number, as pickle writes it
_CODES = {getattr(torch, name): code for code, name in FLOATS.items()}
_CONVERT = (
    "if you trust the file, load it with PyTorch and save its state_dict with safetensors.torch.save_file; "
    "uncone runs no code from a file"
)
_GLOBAL = re.compile(r"GLOBAL ([\w.]{1,200})")
_LONGEST_NAME = 4096  # nested containers could make far more text than the file holds
_MARK = object()


@dataclass(frozen=True)
class StoredTensor(Entry):
    """A tensor whose byte range is in memory, where the file is mapped."""

    tensor: torch.Tensor

    def rows(self, source: File, where: str) -> Rows:
        if self.dtype not in FLOATS or len(self.shape) != 2:
            return super().rows(source, where)
        axes = sorted((stride, n) for stride, n in zip(self.tensor.stride(), self.shape, strict=True) if n > 1)
        reached = itertools.accumulate((stride * (n - 1) for stride, n in axes), initial=0)
        if 0 not in self.shape and any(stride <= before for (stride, _), before in zip(axes, reached, strict=False)):
            raise InputError(f"expected separate rows in {where}, got overlapping rows: save x.contiguous()")
        return _MappedRows(self.tensor, source, name=where)

    def pieces(self, source: File) -> Iterator[torch.Tensor]:
        x = self.tensor if self.tensor.ndim else self.tensor.reshape(1)
        for piece in torch.split(x, max(1, PIECE_BYTES // max(1, math.prod(x.shape[1:]) * x.element_size()))):
            source.check_whole()
            yield piece.contiguous()

    def stored_bytes(self, source: File) -> Iterator[bytes | memoryview]:
        return (piece.reshape(-1).view(torch.uint8).numpy().data for piece in self.pieces(source) if piece.numel())

    def identity(self) -> tuple[Any, ...]:
        strides = self.tensor.stride() if self.tensor.layout == torch.strided else ()
        return (*super().identity(), strides)


def read_checkpoint(source: LocalFile) -> dict[str, StoredTensor]:
    """The tensors by name. Names in nested dicts and lists are joined with dots."""
    if source.head(14)[2:] == _LEGACY:
        content = _load_whole(source)
    elif source.head(4) == ZIP:
        content = _load_mapped(source)
    elif source.head(1) == PICKLE:
        raise InputError(f"expected a checkpoint, got {source.name}, a pickle, which can run code: {_CONVERT}")
    else:
        raise InputError(f"expected a file of torch.save, got {source.name} of another kind: copy it again")
    entries = {}
    for name, tensor in _tensors(content, source):
        if name in entries:
            raise InputError(
                f"expected one tensor {name[:80]!r} in {source.name}, got two: names of nested dicts are equal "
                "when joined with dots; load it with torch.load(..., weights_only=True) and pass the tensor"
            )
        start = tensor.data_ptr() if tensor.layout == torch.strided else 0
        stop = start + tensor.numel() * tensor.element_size()
        entries[name] = StoredTensor(_code(tensor), tuple(tensor.shape), start, stop, tensor)
    return entries


class _MappedRows(ArrayRows):
    """Blocks are not views of the mapped tensor, because a view could be read after a cut."""

    def __init__(self, x: torch.Tensor, source: File, *, name: str) -> None:
        super().__init__(x, name=name)
        self._source = source

    def fill(self, start: int, out: Array) -> None:
        self._source.check_whole()
        widen(self._x[start : start + len(out)], out)

    read, blocks = Rows.read, Rows.blocks


class _Storage(torch.UntypedStorage):
    """Memory that knows whether it was read into: torch skips a storage that an old file names but lacks."""

    is_read = False

    def _set_from_file(self, *where: Any) -> None:
        super()._set_from_file(*where)  # type: ignore[no-untyped-call]
        self.is_read = True


def _load_whole(source: LocalFile) -> Any:
    _check_names(source, 0, pickles=5)
    made = []

    def make(empty: torch.UntypedStorage, _location: str) -> _Storage:
        made.append(_Storage(empty.nbytes()))  # type: ignore[no-untyped-call]
        return made[-1]

    content = _load(source, make, mmap=False)
    if not all(storage.is_read for storage in made):
        raise _broken(source, "the bytes of a tensor are not in it")
    return content


def _load(source: LocalFile, where: Any, *, mmap: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(source.path, where, weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            if (named := _GLOBAL.search(str(error))) is None:
                raise _broken(source, str(error).rpartition("WeightsUnpickler error: ")[2]) from error
            raise InputError(
                f"expected tensors and plain values in {source.name}, got an object of {named[1]}, which "
                f"only unpickling could restore, and unpickling can run code: {_CONVERT}"
            ) from None
        except Exception as error:  # torch raises anything over bad instructions
            if not (isinstance(error, AttributeError) and "UntypedStorage" in str(error)):
                raise _broken(source, error) from error
            raise InputError(
                f"expected dtypes from before PyTorch 1.6 in {source.name}, got a tensor of a newer "
                "dtype (float8, uint16 or the like): save it again without _use_new_zipfile_serialization=False"
            ) from error


def _broken(source: LocalFile, reason: str | Exception) -> InputError:
    text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
    lines = text.strip().splitlines() or ["no reason given"]
    got = f"{source.name}, which torch cannot read ({lines[0][:200]})"
    return InputError(
        f"expected a PyTorch checkpoint, got {got}: it was cut or damaged, or is of another kind; copy it again"
    )


def _load_mapped(source: LocalFile) -> Any:
    """Check the size of each mapped record against its storage, which torch does not."""
    sizes = []

    def keep(storage: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        sizes.append((storage.nbytes(), storage.data_ptr() != 0))
        return storage

    archive = _stored(source)
    try:
        records = _records(source, archive)
        instructions = records["data.pkl"]
    except Exception as error:  # of a damaged directory
        raise _broken(source, error) from error
    _check_names(source, instructions[0], pickles=1)
    content = _load(source, keep, mmap=True)
    try:
        keys = list(_storage_keys(source.read(*instructions)))
    except Exception as error:  # torch accepts more than the standard library
        raise _broken(source, error) from error
    seen, loaded = set(), iter(sizes)
    for key in keys:
        if key not in seen:
            nbytes, is_kept = next(loaded, (-1, True))
            _, length = records.get(f"data/{key}".lower(), (0, -2))
            if length != nbytes:
                raise _broken(source, f"record data/{key[:40]} has {length} bytes, but its storage {nbytes}")
            if is_kept:  # without memory it is looked up each time
                seen.add(key)
    return content


def _check_names(source: LocalFile, at: int, *, pickles: int) -> None:
    """Refuse a class with a very long name: torch searches its own message in time quadratic in its length."""
    longest = 0
    with suppress(Exception):  # torch reports what is wrong
        file = io.BufferedReader(SequentialFile(source, at))
        for operation, argument, _ in itertools.chain(*(pickletools.genops(file) for _ in range(pickles))):
            longest = max(longest, len(str(argument)) if operation.name == "GLOBAL" else 0)
    if longest > 10_000:
        raise _broken(source, f"a class has a name of {longest} characters")


def _stored(source: LocalFile) -> zipfile.ZipFile:
    """Refuse compressed members, because torch maps members as they are."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            members = archive.infolist()
    except Exception as error:  # zipfile raises anything over damaged files
        raise _broken(source, str(error)) from error
    if any(member.filename.endswith("/constants.pkl") for member in members):
        raise InputError(f"expected tensors, got {source.name}, a TorchScript program: {_CONVERT}")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError(f"expected uncompressed tensors, got compressed ones in {source.name}: {_CONVERT}")
    return archive


def _records(source: LocalFile, archive: zipfile.ZipFile) -> dict[str, tuple[int, int]]:
    """Where each member begins, by name without the folder, and how many bytes there are before the next.

    As in torch, names ignore case. Two members with one name are refused: which of them torch maps is not known.
    """
    found = dict[str, tuple[int, int]]()
    ends = sorted({member.header_offset for member in archive.infolist()} | {archive.start_dir})
    for member in archive.infolist():
        begin = member_start(source, member)
        length = min(member.file_size, member.compress_size, ends[bisect.bisect(ends, member.header_offset)] - begin)
        if (name := member.filename.partition("/")[2].lower()) in found:
            raise ValueError(f"two of its records are called {name[:40]}")
        found[name] = begin, length
    return found


def _storage_keys(instructions: bytes) -> Iterator[str]:
    """The key of each storage that a pickle names, in order; nothing is run."""
    stack, memo = list[Any](), dict[Any, Any]()
    for operation, argument, _ in pickletools.genops(instructions):
        name, before = operation.name, operation.stack_before
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
            continue
        items = []
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
    seen, waiting = set(), [("", content)]
    while waiting:
        name, value = waiting.pop()
        if len(name) > _LONGEST_NAME:
            most = f"at most {_LONGEST_NAME} characters in {source.name}"
            raise InputError(f"expected names of {most}, got {name[:80]!r}...: do not trust this file")
        if isinstance(value, torch.Tensor):
            yield name, value.detach()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            # Cut names that are too long: a thousand may share one long key.
            start, stop = f"{name}." if name else "", _LONGEST_NAME + 1
            waiting += reversed([(f"{start}{key}"[:stop], item) for key, item in inner if isinstance(key, str | int)])


def _code(tensor: torch.Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided:
        return f"a {str(tensor.layout).removeprefix('torch.')} tensor"
    if tensor.is_quantized:
        return "a quantised tensor"
    return f"a negated view of {kind}" if tensor.is_neg() else _CODES.get(tensor.dtype, kind)
