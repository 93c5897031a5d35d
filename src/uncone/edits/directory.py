"""An edited copy of a model directory: named tensors replaced or added, all others to the bit as they were.

Weights are copied in pieces, so that no shard is ever held whole. The copy is written beside its target and
appears whole or not at all.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone.atomic import creatable, new_directory
from uncone.edits.shards import NewTensor, shard_name, write_shard
from uncone.errors import InputError, UnsupportedModel
from uncone.model import ModelFiles, is_model_file, open_model_files
from uncone.model.files import read_json
from uncone.model.model_class import refuse_adapter, refuse_quantised
from uncone.model.open import split
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import Entry, read_header

_INDEX = "model.safetensors.index.json"
_STALE = frozenset(
    (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".ot", ".safetensors", ".tflite")
)
_STALE_INDICES = (".safetensors.index.json", ".bin.index.json", ".h5.index.json", ".msgpack.index.json")
_OTHER_FORMATS = frozenset(("onnx", "openvino", "original", "coreml", ".git", ".cache"))


@dataclass(frozen=True)
class Copy:
    """A copy that is written and not yet published: read it, and leave the `with` block for it to appear."""

    files: ModelFiles
    left_out: tuple[str, ...]
    """Files that hold the same weights in another format, which would not be edited."""


def whole_model(spec: str | os.PathLike[str]) -> Path:
    """The directory of a model that is edited as a whole.

    Raises:
        InputError: it names a part of a model, or nothing that is there.
    """
    path, part = split(spec)
    if part is not None:
        raise InputError(f"expected a whole model to edit, got its part #{part}: leave that out")
    return path


def open_directory(model: str | os.PathLike[str]) -> ModelFiles:
    """The files of a directory of transformers whose weights can be edited.

    Raises:
        InputError: no such directory; a GGUF model, with the way out.
        UnsupportedModel: quantised weights, or an adapter beside them.
    """
    path = Path(model)
    if not path.exists():
        raise InputError(f"no file or folder {str(path)!r}: expected a model directory with config.json")
    refuse_adapter(path)
    if not (path / "config.json").is_file():
        _refuse_other_kinds(path)
    files = open_model_files(path)
    refuse_quantised(files)
    return files


def stored(files: ModelFiles, name: str) -> tuple[LocalFile, Entry]:
    """Where a tensor lies: the local file, and the entry of its header."""
    source, entry = files.tensors[name]
    assert isinstance(source, LocalFile)  # edited_copy refuses others
    return source, entry


@contextmanager
def edited_copy(
    files: ModelFiles,
    out: str | os.PathLike[str],
    tensors: Mapping[str, NewTensor],
    *,
    beside: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[Copy]:
    """Write a copy of the directory of `files` in which `tensors` replace those of their names, or are added.

    Every other file is copied as it is; a checkpoint of torch.save is written as safetensors. Files that hold
    the weights a second time, in another format, are left out: they would be those of the original. Whatever
    raises inside the `with` block, nothing is left.

    Args:
        files: the original.
        out: the directory to write. It must not exist, nor lie in the original.
        tensors: by name in the file. One that the original has keeps its dtype and shape.
        beside: the tensor whose file takes the added ones.
        config: what config.json becomes, where it changes.

    Raises:
        InputError: `out` exists or cannot be written, the disk is full, or the original changes meanwhile.
    """
    shards = _shards(files)
    weights = {source.path.name for source in shards}
    with copied_files(files.path, out, skip=_holds_weights) as (folder, skipped):
        placed = _write_weights(files, shards, tensors, beside, folder)
        if len(shards) > 1 or (files.path / _INDEX).is_file():
            _write_index(files.path, folder, placed)
        if config is not None:
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (folder / "config.json").write_text(text, encoding="utf-8")
        left_out = sorted(
            name for name in skipped if name not in weights and not name.endswith(_STALE_INDICES)
        )
        yield Copy(open_model_files(folder), tuple(left_out))


@contextmanager
def copied_files(
    original: Path, out: str | os.PathLike[str], *, skip: Callable[[Path, bool], bool] = lambda *_: False
) -> Iterator[tuple[Path, list[str]]]:
    """A new folder with the files of `original`, which becomes `out` at the end of the `with` block.

    Links to files are followed, as a cache has them.

    Args:
        original: a directory.
        out: a new directory, not in the original.
        skip: by its path in the original, and whether it is a folder: what is not copied.

    Returns:
        (the folder, the names that were skipped).

    Raises:
        InputError: `out` exists or cannot be written, the disk is full, or the original holds a link to a
            folder, or a device.
    """
    target = creatable(out, outside=original)
    try:
        with new_directory(target) as folder:
            yield folder, _copy_files(original, folder, skip)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "make room, or give a folder on another disk" if full else "give a folder that can be written"
        raise InputError(
            f"cannot write {target}: {error.strerror or error}: {what}; nothing was written"
        ) from error


def compare_untouched(original: ModelFiles, copy: ModelFiles, touched: frozenset[str]) -> int:
    """Compare every tensor but those in `touched` byte by byte.

    Returns:
        How many were compared.

    Raises:
        InputError: one differs: the disk or the memory is faulty, or the original was written to meanwhile.
    """
    compared = 0
    for name in original.tensors:
        (here, a), (there, b) = original.tensors[name], copy.tensors[name]
        if name in touched:
            continue
        same, at = a.stop - a.start == b.stop - b.start, b.start
        for piece in a.stored_bytes(here):
            same = same and piece == there.read(at, len(piece))
            at += len(piece)
        if not same:
            raise InputError(
                f"expected tensor {name[:200]!r} to be copied to the bit, got other numbers in the copy: the "
                "original was written to meanwhile, or the disk is faulty; nothing was written"
            )
        compared += 1
    return compared


def _refuse_other_kinds(path: Path) -> None:
    inner = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    model = next((file for file in inner if is_model_file(file)), None)
    if model is None:
        return
    raise InputError(
        f"expected a directory of transformers to edit, got the GGUF file {model}, whose weights are "
        "quantised or laid out for llama.cpp: edit the model that it was made of, and make it again"
    )


def _shards(files: ModelFiles) -> list[LocalFile]:
    """The weight files, each once."""
    sources = dict[Path, LocalFile]()
    for source, _ in files.tensors.values():
        if not isinstance(source, LocalFile):
            raise UnsupportedModel(
                f"expected weights in local files, got {source.name}: download the model first"
            )
        sources.setdefault(source.path, source)
    return [sources[path] for path in sorted(sources)]


def _copy_files(original: Path, folder: Path, skip: Callable[[Path, bool], bool]) -> list[str]:
    skipped: list[str] = []
    waiting = [Path()]
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
    """Whether it holds weights, in this format or in another that would not be edited."""
    if is_folder:
        return path.name in _OTHER_FORMATS
    return path == Path(path.name) and (path.suffix in _STALE or path.name.endswith(_STALE_INDICES))


def _write_weights(
    files: ModelFiles,
    shards: list[LocalFile],
    tensors: Mapping[str, NewTensor],
    beside: str | None,
    folder: Path,
) -> dict[str, str]:
    """Write each shard; where each tensor lies then."""
    added = {name: tensor for name, tensor in tensors.items() if name not in files.tensors}
    home = shards[0] if beside is None else files.tensors[beside][0]
    placed = dict[str, str]()
    for shard in shards:
        here = {
            name: entry
            for name, (source, entry) in files.tensors.items()
            if source is shard or source.name == shard.name
        }
        fresh = {name: tensors[name] for name in here if name in tensors}
        fresh |= added if home.name == shard.name else {}
        name = shard_name(shard.path.name)
        write_shard(shard, here, fresh, folder / name)
        placed |= dict.fromkeys([*here, *fresh], name)
    return placed


def _write_index(original: Path, folder: Path, placed: Mapping[str, str]) -> None:
    """The index anew, from what was written; what else the original's said is kept."""
    old = original / _INDEX
    index = read_json(old, dict) if old.is_file() else {}
    said = index.get("metadata")
    metadata = (
        {key: value for key, value in said.items() if key != "total_parameters"}
        if isinstance(said, dict)
        else {}
    )
    metadata["total_size"] = _bytes_of_tensors(folder, placed)
    index = {**index, "metadata": metadata, "weight_map": dict(sorted(placed.items()))}
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _bytes_of_tensors(folder: Path, placed: Mapping[str, str]) -> int:
    """Bytes of all tensors in the files of `placed`."""
    return sum(
        entry.stop - entry.start
        for shard in sorted(set(placed.values()))
        for entry in read_header(LocalFile(folder / shard))[0].values()
    )
