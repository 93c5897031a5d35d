"""One file of weights, written with some tensors replaced and some added, in pieces of a few MiB."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import torch

from uncone.errors import InputError
from uncone.rows.base import DTYPES
from uncone.rows.bytes import LocalFile
from uncone.rows.checkpoint import StoredTensor
from uncone.rows.safetensors import CODES, FLOATS, Entry, header_bytes, read_header

_AT_ONCE = 2**22  # bytes
_PICKLED = re.compile(r"(?:pytorch_)?model(-\d+-of-\d+)?\.bin")


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written: the dtype by its name in safetensors, the shape, and the numbers in blocks."""

    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[torch.Tensor]]
    """CPU tensors of floats that together hold the numbers in order; each is rounded once to `dtype`."""

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * DTYPES[FLOATS[self.dtype]].itemsize


def rows_at_once(d: int) -> int:
    """How many rows of `d` features are worked on at a time: 8 MiB of float64."""
    return max(1, 2**20 // d)


def as_stored(source: LocalFile, entry: Entry, name: str) -> NewTensor:
    """A second copy of a tensor of floats, to be written under another name."""
    _code(name, entry, source)
    return NewTensor(entry.dtype, entry.shape, lambda: stored_blocks(source, name, entry))


def stored_blocks(source: LocalFile, name: str, entry: Entry) -> Iterator[torch.Tensor]:
    """The numbers of a tensor of floats as they are stored, to the bit, some rows (n, ...) at a time."""
    if isinstance(entry, StoredTensor):
        yield from entry.pieces(source)
        return
    dtype = DTYPES[FLOATS[entry.dtype]]
    row = math.prod(entry.shape[1:]) * dtype.itemsize
    step = row * max(1, _AT_ONCE // max(row, 1))
    for at in range(entry.start, entry.stop, max(step, 1)):
        content = bytearray(min(step, entry.stop - at))
        source.read_into(at, memoryview(content))
        yield torch.frombuffer(content, dtype=dtype).view(-1, *entry.shape[1:])


def rounded_once(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in `dtype`, to the nearest: torch takes float64 to 16 bits by way of float32, which rounds twice.

    In between is rounded to odd: towards 0, and the last bit set where anything was lost, so that no new tie
    arises.
    """
    if x.dtype != torch.float64 or dtype not in (torch.float16, torch.bfloat16):
        return x.to(dtype)
    narrow = x.float()
    bits = narrow.view(torch.int32)
    bits = torch.where(narrow.double().abs() > x.abs(), bits - 1, bits)
    odd = torch.where(narrow.double() == x, bits, bits | 1).view(torch.float32)
    return torch.where(torch.isfinite(x), odd, narrow).to(dtype)


def shard_name(name: str) -> str:
    """What a file of weights is called in the copy: a checkpoint of torch.save becomes safetensors."""
    numbered = _PICKLED.fullmatch(name)
    return (
        f"model{numbered[1] or ''}.safetensors" if numbered else str(Path(name).with_suffix(".safetensors"))
    )


def write_shard(
    source: LocalFile, entries: Mapping[str, Entry], tensors: Mapping[str, NewTensor], path: Path
) -> None:
    """Write a file of weights as safetensors, with `tensors` for those of their names, or behind all.

    Numbers that are not replaced stay as they are stored, to the bit, and in their order. Of a checkpoint of
    torch.save each name gets numbers of its own, also where two shared theirs.

    Raises:
        InputError: a new number does not fit the dtype (an infinity in float16), names that are too long for
            the format, or a tensor of a dtype, or laid out in a way, that has no place in safetensors.
    """
    metadata, names = {"format": "pt"}, list(entries)
    if path.suffix == source.path.suffix:
        _, metadata = read_header(source)
        names.sort(key=lambda name: (entries[name].start, entries[name].stop))
    laid = {name: _laid(name, entries[name], source) for name in names}
    laid |= {name: Entry(x.dtype, x.shape, 0, x.size) for name, x in tensors.items() if name not in entries}
    with open(path, "xb") as handle:
        handle.write(header_bytes(laid.items(), metadata))
        for name, entry in laid.items():
            if name in tensors:
                _write(handle, name, tensors[name], entry.stop)
            else:
                handle.writelines(entries[name].stored_bytes(source))


def _laid(name: str, entry: Entry, source: LocalFile) -> Entry:
    """The entry as it is written: where it lies does not matter, only its size."""
    if not isinstance(entry, StoredTensor):
        return replace(entry, start=0, stop=entry.stop - entry.start)
    return Entry(_code(name, entry, source), entry.shape, 0, entry.stop - entry.start)


def _write(handle: BinaryIO, name: str, tensor: NewTensor, size: int) -> None:
    """The numbers of `tensor`, rounded once, which must fill `size` bytes."""
    dtype, written = DTYPES[FLOATS[tensor.dtype]], 0
    for block in tensor.blocks():
        rounded = rounded_once(block, dtype).contiguous()
        if not bool(torch.isfinite(rounded).all()) and bool(torch.isfinite(block).all()):
            raise InputError(
                f"expected new numbers of {name[:200]!r} that fit {FLOATS[tensor.dtype]}, got larger ones: "
                "save the model in bfloat16 or float32 first"
            )
        content = rounded.view(torch.uint8).numpy().reshape(-1)
        handle.write(content.data)
        written += content.size
    assert written == size, f"{name}: {written} bytes for {size}"


def _code(name: str, entry: Entry, source: LocalFile) -> str:
    if entry.dtype in FLOATS:
        return entry.dtype
    if entry.dtype in CODES:
        return CODES[entry.dtype]
    raise InputError(
        f"expected tensors that safetensors can hold in {source.name}, got {name[:80]!r} of {entry.dtype} "
        f"and shape {list(entry.shape)}: load the model with transformers, call "
        "save_pretrained, and edit what it writes"
    )
