"""GGUF files made for a test, by the package gguf."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")


def write_gguf(
    path: Path,
    tensors: Mapping[str, tuple[np.ndarray, object]],
    *,
    arch: str = "llama",
    tokens: Iterable[str] | None = None,
    keys: Mapping[str, bool | int] | None = None,
    arrays: Mapping[str, list[object]] | None = None,
    alignment: int | None = None,
    split_every: int = 0,
) -> Path:
    """A file of `tensors`, each of its bytes and their type (None: of the array); `split_every` a part, if not 0."""
    writer = gguf.GGUFWriter(path, arch, split_max_tensors=split_every)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    if tokens is not None:
        writer.add_token_list(list(tokens))
    for key, items in (arrays or {}).items():
        writer.add_array(key, items)
    for key, value in (keys or {}).items():
        (writer.add_bool if isinstance(value, bool) else writer.add_int32)(key, value)
    for name, (content, kind) in tensors.items():
        writer.add_tensor(name, content, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
