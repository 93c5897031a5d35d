"""A checkpoint directory as the Hub lays it out: config.json and safetensors weights. Nothing in it is trusted or executed."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.model.tokens import token_labels
from uncone.rows import Rows
from uncone.rows.bytes import ByteSource, LocalFile
from uncone.rows.names import listing, nearest
from uncone.rows.safetensors import Entry, read_header, tensor_rows

LARGEST_JSON = 64 * 2**20
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,200}\.safetensors")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class ModelFiles:
    """A checkpoint whose headers are read and whose tensors are not."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[ByteSource, Entry]]
    """By the name in the file: where the bytes are, and the checked header entry."""

    @property
    def entries(self) -> dict[str, Entry]:
        """The header entries alone, of all shards together."""
        return {name: entry for name, (_, entry) in self.tensors.items()}

    @property
    def vocab_size(self) -> int | None:
        """`vocab_size` of config.json, or of its `text_config`; None where it is missing or the two disagree."""
        sizes = [part["vocab_size"] for part in text_parts(self.config) if part.get("vocab_size") is not None]
        agreed = sizes and all(type(size) is int and size > 0 and size == sizes[0] for size in sizes)
        return sizes[0] if agreed else None


def open_model_files(path: str | os.PathLike[str]) -> ModelFiles:
    """Read config.json and the safetensors headers of a checkpoint directory.

    The weights are `model.safetensors` or, where that is missing, the shards that `model.safetensors.index.json` lists.
    Pickled weights are never opened, code in the directory is never run, the network is never asked.

    Raises:
        InputError: no directory, no config.json, no safetensors weights, a file that does not parse, an index that lists a
            shard or a tensor that is not there or names a file outside the directory, a header that lies about its file.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise InputError(f"expected a directory with config.json and {_SINGLE}, got {directory}: give a directory that exists")
    if not (directory / "config.json").is_file():
        raise InputError(
            f"expected a model directory with config.json and {_SINGLE}, got {directory} without config.json: "
            "give the directory that save_pretrained wrote, or open one tensor as FILE.safetensors#tensor.name"
        )
    config = _read_object(directory / "config.json")
    if (directory / _SINGLE).is_file():
        return ModelFiles(directory, config, _open_single(directory / _SINGLE))
    if (directory / _INDEX).is_file():
        return ModelFiles(directory, config, _open_sharded(directory, _read_object(directory / _INDEX)))
    raise _no_weights(directory)


def rows_of(files: ModelFiles, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor of the checkpoint.

    `with_tokens` says that its rows stand for the vocabulary (it is the table or the head): then `labels` are the token
    strings, read when first asked for, unless the number of rows is far from the vocabulary's size.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, not of floats.
    """
    if tensor not in files.tensors:
        raise InputError(f"no tensor {tensor!r} in {files.path}{nearest(tensor, files.tensors)}")
    source, entry = files.tensors[tensor]
    rows = tensor_rows(source, {tensor: entry}, tensor, where=f"{files.path}#{tensor}")
    if with_tokens and _about(rows.shape[0], files.vocab_size):
        rows.load_labels = lambda: token_labels(files.path, rows.shape[0]).labels
    return rows


def _about(n: int, vocab_size: int | None) -> bool:
    """Tables are padded upwards for speed, by at most a thousand rows or so, and vocabularies grow by added tokens."""
    return vocab_size is None or 0.9 * vocab_size <= n <= 1.1 * vocab_size + 1024


def text_parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The config and, in a multimodal one, that of its language model."""
    nested = config.get("text_config")
    return [config, nested] if isinstance(nested, dict) else [config]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as handle:
            text = handle.read(LARGEST_JSON + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}: give a directory whose files can be read") from error
    if len(text) > LARGEST_JSON:
        raise InputError(f"expected at most {LARGEST_JSON} bytes in {path}, got more: this is no {path.name} of a model")
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON in {path}, got a file that does not parse ({error}): copy it again") from error
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object in {path}, got {type(value).__name__}: copy it again")
    return value


def _open_single(path: Path) -> dict[str, tuple[ByteSource, Entry]]:
    source = LocalFile(path)
    return {name: (source, entry) for name, entry in read_header(source).items()}


def _open_sharded(directory: Path, index: Mapping[str, Any]) -> dict[str, tuple[ByteSource, Entry]]:
    where = directory / _INDEX
    placed = index.get("weight_map")
    if not isinstance(placed, dict) or not placed or not all(isinstance(shard, str) for shard in placed.values()):
        raise InputError(f"expected a weight_map from tensors to files in {where}, got {_brief(placed)}: copy it again")
    shards = {shard: _open_single(_shard_path(directory, shard)) for shard in sorted(set(placed.values()))}
    for tensor, shard in placed.items():
        if tensor not in shards[shard]:
            raise InputError(f"{where} places tensor {tensor!r} in {shard}, which does not hold it: copy both files again")
    return {tensor: shards[shard][tensor] for tensor, shard in placed.items()}


def _shard_path(directory: Path, shard: str) -> Path:
    """Where a shard lies. The name comes from the index, so it must not lead out of the directory."""
    index = directory / _INDEX
    if not _SHARD.fullmatch(shard):
        raise InputError(f"expected plain names of .safetensors files in {index}, got {shard[:200]!r}: do not trust this index")
    path = directory / shard
    if not path.is_file():
        raise InputError(f"{index} lists the shard {shard}, which is missing: download the rest of the model")
    return path


def _no_weights(directory: Path) -> InputError:
    expected = f"expected {_SINGLE} or {_INDEX} in {directory}"
    pickled = sorted({file.name for pattern in _PICKLED for file in directory.glob(pattern)})
    if pickled:
        return InputError(
            f"{expected}, got only pickled weights ({listing(pickled)}), which are never unpickled, since that can run code: "
            "where you trust them, load the model with transformers and call save_pretrained, which writes safetensors"
        )
    others = sorted(file.name for file in directory.glob("*.safetensors"))
    if others:
        return InputError(f"{expected}, got {listing(others)}: open one tensor as {directory / others[0]}#tensor.name")
    return InputError(f"{expected}, got no weights: download them too, or save the model there with save_pretrained")


def _brief(value: Any) -> str:
    return "none" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
