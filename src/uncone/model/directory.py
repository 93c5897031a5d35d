"""An edited copy of a model directory: named tensors replaced or added, all others unchanged to the bit."""

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from uncone.atomic import creatable, new_directory
from uncone.errors import InputError
from uncone.model import ModelFiles, is_model_file, open_model_files
from uncone.model.files import read_json
from uncone.model.model_class import refuse_adapter, refuse_quantised
from uncone.model.open import open_whole
from uncone.roles import Path_
from uncone.rows.bytes import File
from uncone.rows.checkpoint import StoredTensor
from uncone.rows.safetensors import CODES, FLOATS, Entry, header_bytes, read_header
from uncone.tensors import DTYPES

_INDEX = "model.safetensors.index.json"
_STALE = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".ot", ".safetensors", ".tflite")
_STALE_INDICES = (".safetensors.index.json", ".bin.index.json", ".h5.index.json", ".msgpack.index.json")


@dataclass(frozen=True)
class NewTensor:
    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[torch.Tensor]]
    """CPU tensors of floats that together hold the numbers in order; each is rounded once to `dtype`."""


@dataclass(frozen=True)
class Copy:
    """The edited copy. It appears when the `with` block ends."""

    files: ModelFiles
    left_out: tuple[str, ...]  # files of the same weights in another format


def whole_model(spec: Path_) -> Path:
    return open_whole(spec, " to edit").path


def open_directory(model: Path_) -> ModelFiles:
    path = Path(model)
    if not path.exists():
        raise InputError(f"no file or folder {str(path)!r}: expected a model directory with config.json")
    refuse_adapter(path)
    if not (path / "config.json").is_file():
        inner = [path] if path.is_file() else sorted(path.glob("*.gguf"))
        gguf = next((file for file in inner if is_model_file(file)), None)
        if gguf is not None:
            raise InputError(
                f"expected a directory of transformers to edit, got the GGUF file {gguf}: edit the model that it "
                "was converted from, and convert that again"
            )
    files = open_model_files(path)
    refuse_quantised(files)
    return files


@contextmanager
def edited_copy(
    files: ModelFiles,
    out: Path_,
    tensors: Mapping[str, NewTensor],
    *,
    beside: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[Copy]:
    """Copy the directory of `files`, with `tensors` replacing others by name or added to them.

    Other files are copied, except weights in another format. A torch.save checkpoint becomes safetensors. If the `with`
    block raises, nothing is left behind. Added tensors go into the file that holds the tensor `beside`.
    """
    shards = {source.path: source for source, _ in files.tensors.values()}
    home = min(shards) if beside is None else files.tensors[beside][0].path
    with copied_files(files.path, out, skip=_holds_weights) as (folder, skipped):
        placed, size = dict[str, str](), 0
        for path, shard in sorted(shards.items()):
            here = {name: entry for name, (source, entry) in files.tensors.items() if source.path == path}
            wanted = here if path != home else here | dict.fromkeys(tensors.keys() - files.tensors.keys())
            fresh = {name: tensors[name] for name in tensors if name in wanted}
            name = shard_name(path.name)
            size += write_shard(shard, here, fresh, folder / name)
            placed |= dict.fromkeys([*here, *fresh], name)
        if len(shards) > 1 or (files.path / _INDEX).is_file():
            _write_index(files.path / _INDEX, folder / _INDEX, placed, size)
        if config is not None:
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (folder / "config.json").write_text(text, encoding="utf-8")
        weights = {path.name for path in shards}
        others = [name for name in skipped if name not in weights and not name.endswith(_STALE_INDICES)]
        yield Copy(open_model_files(folder), tuple(sorted(others)))


@contextmanager
def copied_files(
    original: Path, out: Path_, *, skip: Callable[[Path, bool], bool] = lambda *_: False
) -> Iterator[tuple[Path, list[str]]]:
    """A new folder with the files of `original`, and the names that were skipped. It becomes `out` at the end.

    Links to files are followed. `skip` takes a path and whether it is a folder.
    """
    target = creatable(out, outside=original)
    try:
        with new_directory(target) as folder:
            yield folder, _copy_files(original, folder, skip)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "make room, or give a folder on another disk" if full else "give a folder that can be written"
        raise InputError(f"cannot write {target}: {error.strerror or error}: {what}; nothing was written") from error


def compare_untouched(original: ModelFiles, copy: ModelFiles, touched: frozenset[str]) -> int:
    """Compare all tensors except `touched` byte by byte, and return how many were compared."""
    untouched = [name for name in original.tensors if name not in touched]
    for name in untouched:
        (here, a), (there, b) = original.tensors[name], copy.tensors[name]
        same, at = a.stop - a.start == b.stop - b.start, b.start
        for piece in a.stored_bytes(here):
            same = same and piece == there.read(at, len(piece))
            at += len(piece)
        if not same:
            raise InputError(
                f"expected an exact copy of tensor {name[:200]!r}, got other numbers: the original changed "
                "meanwhile, or the disk is faulty; nothing was written"
            )
    return len(untouched)


def _copy_files(original: Path, folder: Path, skip: Callable[[Path, bool], bool]) -> list[str]:
    skipped, waiting = [], [Path()]
    while waiting:
        relative = waiting.pop()
        for entry in sorted(os.scandir(original / relative), key=lambda entry: entry.name):
            name, is_folder = relative / entry.name, entry.is_dir(follow_symlinks=False)
            if not is_folder and not entry.is_file():
                raise InputError(f"expected only files and folders in {original}, got {name}: take it out")
            if skip(name, is_folder):
                skipped.append(f"{name}/" if is_folder else str(name))
            elif is_folder:
                (folder / name).mkdir()
                waiting.append(name)
            else:
                shutil.copyfile(original / name, folder / name)
    return skipped


def _holds_weights(path: Path, is_folder: bool) -> bool:
    if is_folder:
        return path.name in ("onnx", "openvino", "original", "coreml", ".git", ".cache")
    return path == Path(path.name) and (path.suffix in _STALE or path.name.endswith(_STALE_INDICES))


def _write_index(old: Path, new: Path, placed: Mapping[str, str], size: int) -> None:
    index = read_json(old, dict) if old.is_file() else {}
    said = index.get("metadata")
    metadata = {key: said[key] for key in said if key != "total_parameters"} if isinstance(said, dict) else {}
    index |= {"metadata": {**metadata, "total_size": size}, "weight_map": dict(sorted(placed.items()))}
    new.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def some_of(rows: list[int]) -> str:
    return f"{len(rows)} ({', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''})"


def rows_at_once(d: int) -> int:
    return max(1, 2**20 // d)


def as_stored(source: File, entry: Entry, name: str) -> NewTensor:
    return NewTensor(_code(name, entry, source), entry.shape, lambda: stored_blocks(source, name, entry))


def stored_blocks(source: File, name: str, entry: Entry) -> Iterator[torch.Tensor]:
    if isinstance(entry, StoredTensor):
        yield from entry.pieces(source)
        return
    dtype = DTYPES[FLOATS[entry.dtype]]
    row = math.prod(entry.shape[1:]) * dtype.itemsize
    step = row * max(1, 2**22 // max(row, 1))
    for at in range(entry.start, entry.stop, max(step, 1)):
        content = bytearray(min(step, entry.stop - at))
        source.read_into(at, memoryview(content))
        yield torch.frombuffer(content, dtype=dtype).view(-1, *entry.shape[1:])


def rounded_once(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` rounded to the nearest number of `dtype`. torch converts float64 to 16 bits via float32, rounding twice.

    Here float32 is rounded to odd (towards 0, the last bit set where anything was lost), so that no new tie arises.
    """
    if x.dtype != torch.float64 or dtype not in (torch.float16, torch.bfloat16):
        return x.to(dtype)
    narrow = x.float()
    bits = narrow.view(torch.int32)
    bits = torch.where(narrow.double().abs() > x.abs(), bits - 1, bits)
    odd = torch.where(narrow.double() == x, bits, bits | 1).view(torch.float32)
    return torch.where(torch.isfinite(x), odd, narrow).to(dtype)


def shard_name(name: str) -> str:
    numbered = re.fullmatch(r"(?:pytorch_)?model(-\d+-of-\d+)?\.bin", name)
    return f"model{numbered[1] or ''}.safetensors" if numbered else str(Path(name).with_suffix(".safetensors"))


def write_shard(source: File, entries: Mapping[str, Entry], tensors: Mapping[str, NewTensor], path: Path) -> int:
    """Write a file of weights in which `tensors` replace others or follow them. Return its size in bytes."""
    metadata, names = {"format": "pt"}, list(entries)
    if path.suffix == source.path.suffix:
        _, metadata = read_header(source)
        names.sort(key=lambda name: (entries[name].start, entries[name].stop))
    laid = {}  # only the sizes matter
    for name in names:
        entry = entries[name]
        code = _code(name, entry, source) if isinstance(entry, StoredTensor) else entry.dtype
        laid[name] = Entry(code, entry.shape, 0, entry.stop - entry.start)
    for name, x in tensors.items():
        laid.setdefault(name, Entry(x.dtype, x.shape, 0, math.prod(x.shape) * DTYPES[FLOATS[x.dtype]].itemsize))
    with open(path, "xb") as handle:
        handle.write(header_bytes(laid.items(), metadata))
        for name, entry in laid.items():
            if name in tensors:
                _write(handle, name, tensors[name], entry.stop)
            else:
                handle.writelines(entries[name].stored_bytes(source))
    return sum(entry.stop for entry in laid.values())


def _write(handle: BinaryIO, name: str, tensor: NewTensor, size: int) -> None:
    dtype, written = DTYPES[FLOATS[tensor.dtype]], 0
    for block in tensor.blocks():
        rounded = rounded_once(block, dtype).contiguous()
        if not bool(torch.isfinite(rounded).all()) and bool(torch.isfinite(block).all()):
            raise InputError(
                f"expected new numbers of {name[:200]!r} that fit {FLOATS[tensor.dtype]}, got larger ones: "
                "save the model in bfloat16 or float32"
            )
        content = rounded.view(torch.uint8).numpy().reshape(-1)
        handle.write(content.data)
        written += content.size
    assert written == size, f"{name}: {written} bytes for {size}"


def _code(name: str, entry: Entry, source: File) -> str:
    code = entry.dtype if entry.dtype in FLOATS else CODES.get(entry.dtype)
    if code is None:
        raise InputError(
            f"expected tensors for safetensors in {source.name}, got {name[:80]!r} of {entry.dtype} and shape "
            f"{list(entry.shape)}: load the model with transformers, call save_pretrained, and edit the result"
        )
    return code
