"""A language model in GGUF, as llama.cpp reads it.

`llama-gguf-split` cuts a model into parts. Each part holds its number (`split.no`), the number of parts
(`split.count`) and the number of tensors in all parts (`split.tensors.count`). The first part holds the metadata.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnsupportedModel
from uncone.model.files import logit_cap
from uncone.model.places import LanguageModel, Places
from uncone.rows import Rows, Tokens
from uncone.rows.bytes import LocalFile
from uncone.rows.gguf import (
    MAGIC,
    GgufHeader,
    GgufTensor,
    ScalarArray,
    StringArray,
    gguf_rows,
    numbers,
    read_gguf,
    strings,
)
from uncone.rows.names import listing

TABLE, HEAD = "token_embd.weight", "output.weight"
_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
_MIXED = "the parts belong to different models, copy them again"
_SPECIAL = {2, 3, 5}  # types of tokens in llama.cpp: unknown, control and unused
_NUMBER, _COUNT = "split.no", "split.count"


@dataclass(frozen=True)
class _Gguf:
    path: Path  # the file that was given
    source: LocalFile  # the file with the metadata: the first part of a split model
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    parts: Mapping[str, LocalFile]  # the file of each tensor


def find_gguf(directory: Path) -> Path | None:
    """The one GGUF file in a directory, or a part of the one split model."""
    files = sorted(directory.glob("*.gguf"))
    named = [(path, _NAME.fullmatch(path.name)) for path in files]
    if len({match.group(1, 3) if match else path.name for path, match in named}) > 1:
        names = listing(path.name for path in files)
        raise InputError(f"expected one GGUF model in {directory}, got {len(files)} ({names}): give the file")
    return files[0] if files else None


def open_gguf(path: Path) -> LanguageModel:
    model = _read(path)
    settings = {name.partition(".")[2]: value for name, value in model.metadata.items()}
    # a table and a head have the same tokens, which are read once
    return LanguageModel(partial(_places, model), partial(_rows, model, {}), logit_cap(settings))


def _read(path: Path) -> _Gguf:
    source = LocalFile(path)
    header = read_gguf(source)
    count = header.metadata.get(_COUNT)
    if type(count) is not int or count < 2:
        return _Gguf(path, source, header.metadata, header.tensors, dict.fromkeys(header.tensors, source))
    tensors, parts = dict[str, GgufTensor](), dict[str, LocalFile]()
    first, metadata = source, header.metadata
    for number, file in enumerate(map(LocalFile, _parts(path, header, count))):
        part = header if file.path == path else read_gguf(file)
        mine, of = part.metadata.get(_NUMBER), part.metadata.get(_COUNT)
        if (mine, of) != (number, count):
            got = "a file that is not part of a split model"
            if isinstance(mine, int) and isinstance(of, int):
                got = f"part {mine + 1} of {of}"
            raise InputError(
                f"expected part {number + 1} of {count} of a split model in {file.name}, got {got}: "
                "the file was renamed, or belongs to another model"
            )
        for name in part.tensors.keys() & tensors.keys():
            raise InputError(
                f"expected each tensor in one part of the split model {path}, got {name[:80]!r} in "
                f"{parts[name].path.name} and in {file.path.name}: {_MIXED}"
            )
        tensors |= part.tensors
        parts |= dict.fromkeys(part.tensors, file)
        if number == 0:
            first, metadata = file, part.metadata
    stated = header.metadata.get("split.tensors.count")
    if type(stated) is int and stated != len(tensors):
        raise InputError(f"expected {stated} tensors in {count} parts of {path}, got {len(tensors)}: {_MIXED}")
    return _Gguf(path, first, metadata, tensors, parts)


def _parts(path: Path, header: GgufHeader, count: int) -> list[Path]:
    number, name = header.metadata.get(_NUMBER), _NAME.fullmatch(path.name)
    if type(number) is not int or not 0 <= number < count:
        raise InputError(f"the header of {path} is wrong: part {number!r} of {count} (counted from 0); copy it again")
    if name is None or (int(name[2]), int(name[3])) != (number + 1, count):
        raise InputError(
            f"expected a name ending in -{number + 1:05}-of-{count:05}.gguf for part {number + 1} of a split model, "
            f"got {path}: rename it, or join the parts with llama-gguf-split --merge"
        )
    parts = [path.with_name(f"{name[1]}-{part:05}-of-{count:05}.gguf") for part in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise InputError(f"expected {count} parts of {path}, got all but {listing(missing)}: download the rest")
    return parts


def is_model_file(path: Path) -> bool:
    """Whether this is a GGUF file, by its name or first bytes."""
    try:
        return path.is_file() and (path.name.endswith(".gguf") or LocalFile(path).head(4) == MAGIC)
    except InputError:
        return False


def _places(model: _Gguf) -> Places:
    """If there is no tensor for a head, llama.cpp uses the table."""
    if TABLE not in model.tensors:
        matrices = [name for name, tensor in model.tensors.items() if len(tensor.shape) == 2]
        raise UnsupportedModel(
            f"no tensor {TABLE!r} in {model.path}: give a model with a token table, or name a tensor as "
            f"{model.path.name}#NAME; there are {listing(matrices) or 'no matrices'}"
        )
    if HEAD in model.tensors:
        return Places(TABLE, HEAD, False, "the GGUF file holds a tensor for the output head")
    architecture = str(model.metadata.get("general.architecture", ""))[:80]
    kind, causal = architecture or "this model", model.metadata.get(f"{architecture}.attention.causal", True)
    if causal is False or "bert" in kind or kind in ("t5encoder", "gemma-embedding", "llama-embed", "clip"):
        why = f"{kind} is an encoder: the GGUF file holds no output head over the vocabulary"
        return Places(TABLE, None, False, why)
    why = f"the GGUF file holds no tensor for the output head of {kind}, so llama.cpp uses the table"
    return Places(TABLE, TABLE, True, why)


def _rows(model: _Gguf, known: dict[int, Tokens], tensor: str, *, with_tokens: bool = False) -> Rows:
    rows = gguf_rows(model.parts.get(tensor, model.source), model.tensors, tensor, where=f"{model.path}#{tensor}")
    types = model.metadata.get("tokenizer.ggml.token_type")
    array, n, source = model.metadata.get("tokenizer.ggml.tokens"), rows.shape[0], model.source
    if with_tokens and isinstance(array, StringArray):

        def labels() -> Tokens:  # `rows` would keep the file open
            if n in known:
                return known[n]
            found = Tokens(strings(source, StringArray(array.start, min(array.count, n))))
            found += [None] * (n - len(found))
            if isinstance(types, ScalarArray) and types.type in "iI":
                kinds = enumerate(numbers(source, types, n))
                found.special = frozenset(i for i, kind in kinds if kind in _SPECIAL)
            known[n] = found
            return found

        rows.load_labels = labels
    return rows
