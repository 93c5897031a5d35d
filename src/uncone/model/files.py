"""A checkpoint directory as the Hub lays it out: config, weights, token strings. None of it is trusted."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from uncone.errors import InputError, first_line
from uncone.model.hugging_face import LARGEST_TOKENIZER, attempt, tokenizer_class
from uncone.regular import open_regular
from uncone.roles import Path_
from uncone.rows import Rows, Tokens
from uncone.rows.bytes import File, LocalFile
from uncone.rows.names import listing, named
from uncone.rows.open import checkpoint_entries
from uncone.rows.safetensors import Entry, read_header

LARGEST_JSON = 64 * 2**20
ADAPTER = "adapter_config.json"  # of PEFT
SINGLE, _INDEX = "model.safetensors", ".index.json"
INDEX = SINGLE + _INDEX
_WEIGHTS = (SINGLE, "pytorch_model.bin")  # in the order of the search; each may have an index of shards
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,200}")
_OTHERS = (
    (
        ("*.bin", "*.pt", "*.pth", "*.ckpt"),
        "open one tensor as {}#tensor.name, or, if you trust the file, "
        "load the model with transformers and call save_pretrained, which writes safetensors",
    ),
    (("*.gguf",), "give the file, {}"),
    (("*.safetensors",), "open one tensor as {}#tensor.name"),
)
"""Other weight files, and what to do with such a file."""


Tensors = dict[str, tuple[File, Entry]]


@dataclass(frozen=True)
class ModelFiles:
    """A checkpoint with its headers read and its tensors not yet read."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[File, Entry]]
    """By the name in the file: where the bytes are, and the checked entry."""
    url: str = ""  # of a model on another machine
    token_labels: Callable[[int], "TokenLabels"] | None = None  # for labels that are not in `path`

    @property
    def where(self) -> str:
        """The address for messages and names."""
        return self.url or str(self.path)

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: entry for name, (_, entry) in self.tensors.items()}

    @property
    def vocab_size(self) -> int | None:
        """The size in config.json or its `text_config`, or None if it is missing or the two disagree."""
        sizes = [part["vocab_size"] for part in text_parts(self.config) if part.get("vocab_size") is not None]
        return sizes[0] if sizes and all(type(size) is int and size == sizes[0] > 0 for size in sizes) else None


def logit_cap(settings: Mapping[str, Any]) -> float | None:
    """The c of logits c tanh(z / c), under its names in config classes of transformers 5.23."""
    values = (settings.get(name, 0) for name in ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"))
    return next((float(v) for v in values if type(v) in (int, float) and 0 < v < 1e6), None)


def open_model_files(path: Path_) -> ModelFiles:
    directory = Path(path)
    if not directory.is_dir():
        raise InputError(f"expected a directory with config.json and {SINGLE}, got {directory}: give one that exists")
    if is_adapter(directory):
        got = f"{directory}, a PEFT adapter ({ADAPTER}) without its base"
        raise InputError(f"expected a model directory, got {got}: merge it (merge_and_unload, then save_pretrained)")
    config = directory / "config.json"
    if not config.is_file():
        _refuse_run(directory, "a model directory with config.json")
        raise InputError(
            f"expected a model directory with config.json and {SINGLE} (or modules.json, or one GGUF file), got "
            f"{directory} without config.json: give what save_pretrained wrote, or a tensor as FILE.safetensors#NAME"
        )
    return ModelFiles(directory, read_json(config, dict), open_weights(directory))


def _refuse_run(run: Path, expected: str) -> None:
    names = {file.parent.name for mark in ("config.json", ADAPTER) for file in run.glob(f"*/{mark}")}
    if not names:
        return
    by_step = sorted(names, key=lambda name: ([int(n) for n in re.findall(r"[0-9]+", name)], name))
    last, every = (shlex.quote(str(path)) for path in (run / by_step[-1], run))
    raise InputError(
        f"expected {expected}, got {run}, which is not a model but holds {len(by_step)} "
        f"({listing(by_step)}): give one (`uncone diagnose {last}`) or all (`uncone saturation checkpoints {every}`)"
    )


def is_adapter(directory: Path) -> bool:
    """Whether this is a PEFT adapter without the weights of a whole model."""
    whole = (directory / f"{name}{end}" for name in _WEIGHTS for end in ("", _INDEX))
    return (directory / ADAPTER).is_file() and not any(name.exists() for name in whole)


def open_weights(directory: Path) -> Tensors:
    """Where each tensor is. From a .bin, torch unpickles only tensors and plain values."""
    for single in _WEIGHTS:
        if (directory / single).is_file():
            return open_single(directory / single)
        if (index := directory / f"{single}{_INDEX}").is_file():
            return open_sharded(read_json(index, dict), index, partial(_open_shard, index), Path(single).suffix)
    expected = f"expected {SINGLE}, {_WEIGHTS[1]} or an index of shards in {directory}"
    for patterns, advice in _OTHERS:
        names = sorted({file.name for pattern in patterns for file in directory.glob(pattern)})
        if names:
            raise InputError(f"{expected}, got {listing(names)}: {advice.format(directory / names[0])}")
    _refuse_run(directory, f"{SINGLE} or an index of shards")
    raise InputError(f"{expected}, got none: download them too, or save the model there with save_pretrained")


def rows_of(files: ModelFiles, tensor: str, *, with_tokens: bool = False) -> Rows:
    """The rows of one tensor, with token strings as labels if the rows are the vocabulary."""
    source, entry = named(files.tensors, tensor, files.where)
    rows = entry.rows(source, f"{files.where}#{tensor}")
    n, size = rows.shape[0], files.vocab_size
    # Tables are padded, by a thousand rows or so, and vocabularies grow.
    if with_tokens and (size is None or 0.9 * size <= n <= 1.1 * size + 1024):
        # Bind n alone: `rows` would keep itself and its file open.
        labels = files.token_labels or partial(token_labels, files.path)
        rows.load_labels = lambda: labels(n).labels
    return rows


def text_parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    nested = config.get("text_config")
    return [config, nested] if isinstance(nested, dict) else [config]


def read_json(path: Path, kind: type) -> Any:
    return parsed_json(small_file(path), path, kind)


def small_file(path: Path) -> bytes:
    """The content of a file that a person could have written. InputError: more than `LARGEST_JSON` bytes."""
    with open_regular(path, how="give a directory whose files can be read") as handle:
        text = handle.read(LARGEST_JSON + 1)
    if len(text) > LARGEST_JSON:
        raise InputError(f"expected at most {LARGEST_JSON} bytes in {path}, got more: copy it again")
    return text


def parsed_json(text: bytes, path: object, kind: type) -> Any:
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON, got {path} that does not parse ({error}): copy it again") from error
    if not isinstance(value, kind):
        what = "object" if kind is dict else "list"
        raise InputError(f"expected a JSON {what} in {path}, got {type(value).__name__}: copy it again")
    return value


def special_tokens(directory: Path, role: str) -> list[str]:
    """The names for a `role` ("unk_token") in the files next to a tokenizer."""
    names = []
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        with suppress(InputError):
            token = read_json(directory / name, dict).get(role)
            names.append(token.get("content") if isinstance(token, dict) else token)
    return [name for name in names if isinstance(name, str)]


def open_single(path: Path) -> Tensors:
    source = LocalFile(path)
    entries = read_header(source)[0] if path.suffix == ".safetensors" else checkpoint_entries(source)
    return {name: (source, entry) for name, entry in entries.items()}


def _open_shard(index: Path, shard: str) -> Tensors:
    if not index.with_name(shard).is_file():
        raise InputError(f"{index} lists the shard {shard}, which is missing: download the rest")
    return open_single(index.with_name(shard))


def open_sharded(
    content: Mapping[str, Any], index: object, open_shard: Callable[[str], Tensors], ending: str
) -> Tensors:
    placed = content.get("weight_map")
    if not (isinstance(placed, dict) and placed and all(isinstance(shard, str) for shard in placed.values())):
        raise InputError(
            f"expected a weight_map from tensors to files in {index}, got {str(placed)[:80]}: copy it again"
        )
    shards = {}
    for shard in sorted(set(placed.values())):
        # A name must not lead out of the directory.
        if not (_SHARD.fullmatch(shard) and shard.endswith(ending)):
            raise InputError(f"expected plain names of {ending} files in {index}, got {shard[:200]!r}: do not trust it")
        shards[shard] = open_shard(shard)
    for tensor, shard in placed.items():
        if tensor not in shards[shard]:
            raise InputError(f"{index} places tensor {tensor!r} in {shard}, which lacks it: copy both again")
    return {tensor: shards[shard][tensor] for tensor, shard in placed.items()}


@dataclass(frozen=True)
class TokenLabels:
    labels: list[str | None] | None  # None for a row without a token, or if no token is known
    note: str | None = None  # why there are no labels, or why a file was skipped


def token_labels(path: Path, n: int) -> TokenLabels:
    """Never raises for what is in the directory: `note` explains what was wrong."""
    notes: list[str] = []
    for name, read in _READERS.items():
        file = path / name
        if not file.is_file():
            continue
        labels, error = attempt(partial(_labels_in, file, read, n))
        if error is None:
            return TokenLabels(labels, "; ".join(notes) or None)
        notes.append(f"no tokens could be read from {file} ({first_line(error)})")
    return TokenLabels(None, "; ".join(notes) or f"no tokenizer.json, vocab.txt or vocab.json in {path}")


def _labels_in(file: Path, read: Callable[[Path], "_Read"], n: int) -> Tokens:
    if (size := file.stat().st_size) > LARGEST_TOKENIZER:
        raise ValueError(f"expected at most {LARGEST_TOKENIZER} bytes, got {size}")
    ids, special = read(file)
    labels = labels_of(ids.items(), n)
    labels.special = frozenset(i for i, label in enumerate(labels) if label in special)
    return labels


def labels_of(ids: Iterable[tuple[str, Any]], n: int) -> Tokens:
    labels = Tokens([None] * n)
    for token, index in ids:
        if type(index) is int and 0 <= index < n:
            labels[index] = token.encode("utf-8", "replace").decode()  # JSON can spell half a surrogate pair
    return labels


_Read = tuple[dict[str, int], Set[str]]  # the id of each token, and the special tokens


def _from_tokenizer(file: Path) -> _Read:
    tokenizer = tokenizer_class().from_file(str(file))
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    of_added = tokenizer.get_added_tokens_decoder().values()
    added, special = {token.content for token in of_added}, {token.content for token in of_added if token.special}
    # If two tokens share an id, the added token stays, as in decoding. get_vocab has a random order.
    return dict(sorted(ids.items(), key=lambda item: (item[0] in added, item[0]))), special


def _from_lines(file: Path) -> _Read:
    # Like BERT's reader, strip nothing but newlines.
    with TextIOWrapper(open_regular(file), encoding="utf-8") as lines:
        return {line.rstrip("\n"): index for index, line in enumerate(lines)}, frozenset()


def _from_json(file: Path) -> _Read:
    vocabulary: dict[str, int] = read_json(file, dict)
    added = file.with_name("added_tokens.json")
    return vocabulary | read_json(added, dict) if added.is_file() else vocabulary, frozenset()


_READERS = {"tokenizer.json": _from_tokenizer, "vocab.txt": _from_lines, "vocab.json": _from_json}
