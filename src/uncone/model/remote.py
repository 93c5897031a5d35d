"""A model on another machine: its config, its index of shards, their headers, and only the rows that are used."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from uncone.errors import InputError
from uncone.model.files import (
    INDEX,
    LARGEST_JSON,
    SINGLE,
    ModelFiles,
    Tensors,
    TokenLabels,
    open_sharded,
    parsed_json,
    token_labels,
)
from uncone.model.hugging_face import LARGEST_TOKENIZER, TOKENIZER_FILES
from uncone.model.places import LanguageModel, language_model
from uncone.rows.remote.address import Address
from uncone.rows.remote.source import NotThere, RemoteFile
from uncone.rows.safetensors import read_header

_Open = Callable[[Address], RemoteFile]


def remote_model(address: Address, opened: _Open) -> LanguageModel:
    config = parsed_json(_content(opened(address / "config.json"), LARGEST_JSON), address.name, dict)
    labels = partial(_token_labels, address, opened)
    return language_model(ModelFiles(Path(address.name), config, _tensors(address, opened), address.name, labels))


def _tensors(address: Address, opened: _Open) -> Tensors:
    def open_single(name: str) -> Tensors:
        source = opened(address / name)
        return {tensor: (source, entry) for tensor, entry in read_header(source)[0].items()}

    try:
        return open_single(SINGLE)
    except NotThere:
        index = address / INDEX
    try:
        content = _content(opened(index), LARGEST_JSON)
    except NotThere as error:
        raise InputError(
            f"expected {SINGLE} or {INDEX} at {address.name}, got neither: name a tensor's file, or copy the model"
        ) from error
    return open_sharded(parsed_json(content, index.name, dict), index.name, open_single, ".safetensors")


def _token_labels(address: Address, opened: _Open, n: int) -> TokenLabels:
    """Labels from its tokenizer's files, which stay on this machine only meanwhile."""
    with tempfile.TemporaryDirectory(prefix="uncone-") as folder:
        for name in (*TOKENIZER_FILES[:3], "added_tokens.json"):
            try:
                content = _content(opened(address / name), LARGEST_TOKENIZER)
            except NotThere:
                continue
            (Path(folder) / name).write_bytes(content)
            if name in TOKENIZER_FILES[:2]:
                break
        return token_labels(Path(folder), n)


def _content(file: RemoteFile, most: int) -> bytes:
    if file.size > most:
        raise InputError(f"expected at most {most} bytes in {file.name}, got {file.size}: name another file")
    return file.read(0, file.size)
