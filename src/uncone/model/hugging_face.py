"""The Hugging Face libraries on local files: no network, no model code, no messages.

`LOCAL` goes with every call that opens a directory or looks into the cache. Because that is not enough, huggingface_hub
refuses every request within `asked` before a socket is opened. It reads its constant each time, but the environment
variable only when it is imported.
"""

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from uncone.errors import InputError, UnconeError, UnsupportedModel, first_line, needed
from uncone.rows.bytes import LocalFile
from uncone.rows.open import checkpoint_entries

T = TypeVar("T")
LOCAL = {"local_files_only": True, "trust_remote_code": False}
LARGEST_TOKENIZER = 512 * 2**20
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_PREFERRED = ("model.safetensors", "model.safetensors.index.json")  # next to these, no weights of `torch.save` are read
_LONGEST_TEXT = 512  # tokens of a text, at most
_one_at_a_time = threading.RLock()  # the switches belong to the whole process


def attempt(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        if not _is_failure(error):
            raise
        return None, error


def _is_failure(error: BaseException) -> bool:
    """Not an interrupt or signal. A damaged file raises nearly anything, and a Rust panic is not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def asked(what: str, library: str = "transformers") -> Iterator[None]:
    """Offline and silent. What a library raises becomes UnsupportedModel: "{library} cannot {what}"."""
    message = f"{library} needs huggingface_hub, got none: pip install huggingface_hub"
    constants = needed("huggingface_hub.constants", message)
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
        levels, offline = [logger.level for logger in loggers], constants.HF_HUB_OFFLINE
        bars: Any = sys.modules.get("transformers.utils.logging")
        had_bars = bars is not None and bars.is_progress_bar_enabled()
        try:
            constants.HF_HUB_OFFLINE = True
            for logger in loggers:
                logger.setLevel(logging.CRITICAL + 1)
            if had_bars:
                bars.disable_progress_bar()
            yield
        except BaseException as error:
            if isinstance(error, UnconeError) or not _is_failure(error):
                raise
            raise UnsupportedModel(f"{library} cannot {what} ({first_line(error)})") from error
        finally:
            constants.HF_HUB_OFFLINE = offline
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if had_bars:
                bars.enable_progress_bar()


def need(
    what: str, library: str = "transformers 5", extra: str = "hf", module: str = "transformers.conversion_mapping"
) -> Any:
    """UnsupportedModel, "{what} needs {library}": the package of `module` is missing or older."""
    # transformers 4 has no conversion_mapping
    needed(module, f"{what} needs {library}, got none: pip install 'uncone[{extra}]'", UnsupportedModel)
    return sys.modules[module.partition(".")[0]]


def from_pretrained(model_class: Any, directory: Path, **options: Any) -> Any:
    return model_class.from_pretrained(directory, **LOCAL, **options)


def check_archives(directory: Path) -> None:
    """Refuse damaged weights: the libraries read what follows a short record as numbers."""
    for file in sorted(directory.rglob("pytorch_model*.bin")):
        if not any(file.with_name(name).exists() for name in _PREFERRED):
            checkpoint_entries(LocalFile(file))


def tokenizer_class() -> Any:
    return needed("tokenizers", "reading a tokenizer needs tokenizers, got none: pip install tokenizers").Tokenizer


def open_tokenizer(path: Path) -> Any:
    """The tokenizer of a directory or JSON file, without truncation or padding, or None if there is none."""
    file = next((file for file in (path, *(path / name for name in TOKENIZER_FILES)) if file.is_file()), None)
    if file is None:
        return None
    of_json = tokenizer_class()
    transformers = None if file in (path, path / "tokenizer.json") else need(f"the tokenizer {file}")
    if file.suffix == ".gguf":
        how = "give the tokenizer.json of the model it was made from"
        raise InputError(f"expected a tokenizer in {file}, got a GGUF file, which gives only token strings: {how}")
    if (size := file.stat().st_size) > LARGEST_TOKENIZER:
        raise InputError(f"expected at most {LARGEST_TOKENIZER} bytes in {file}, got {size}: give a tokenizer.json")
    try:
        with asked("open it"):
            tokenizer = (
                of_json.from_file(str(file))
                if transformers is None
                else from_pretrained(transformers.AutoTokenizer, path).backend_tokenizer
            )
            tokenizer.no_truncation()
            tokenizer.no_padding()
    except UnsupportedModel as error:
        why = first_line(error.__cause__ or error)
        how = "give a model with tokenizer.json, or that file" if file == path else "save it as tokenizer.json"
        raise InputError(f"expected a tokenizer in {file}, got none ({why}): {how}") from error
    return tokenizer


def encoded(tokenizer: Any, texts: list[str], where: str) -> Any:
    """Encodings of texts, without special tokens."""
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    read, error = attempt(lambda: encode(texts, add_special_tokens=False))
    if read is None:
        why = first_line(error)
        raise InputError(f"expected the tokenizer to read {where}, got an error ({why}): save it again") from error
    return read


def load_encoder(directory: Path) -> tuple[Any, Any, int]:
    """The encoder of an encoder-decoder, its tokenizer, and the maximum number of tokens in a text."""
    transformers = need(f"the encoder in {directory}")
    check_archives(directory)
    with asked(f"load the encoder in {directory}"):
        model = from_pretrained(transformers.AutoModel, directory).float().eval()
        tokenizer = from_pretrained(transformers.AutoTokenizer, directory)
        if tokenizer.pad_token is None:  # padding is masked, so any token will do
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        tokenizer.padding_side = "right"
        positions = getattr(model.config, "max_position_embeddings", None) or _LONGEST_TEXT
        longest = min(_LONGEST_TEXT, tokenizer.model_max_length, positions)
        return (model.get_encoder() if model.config.is_encoder_decoder else model), tokenizer, longest


def cached_snapshot(name: str) -> Path | None:
    """The cached directory of a Hub model: "gpt2", or "org/name@revision" (branch, tag or commit)."""
    repo, at, revision = name.partition("@")
    if ".." in name or (at and not revision):
        return None
    missing = f"{name}: finding a cached model of this name needs huggingface_hub, pip install huggingface_hub"
    hub = needed("huggingface_hub", f"expected an existing file or folder, got {missing}")
    try:  # no pattern: the reader of a snapshot reports the missing files
        path = hub.snapshot_download(repo, revision=revision or None, allow_patterns=[], local_files_only=True)
    except Exception:  # not cached, no such name, or a damaged cache
        return None
    snapshot = Path(path)
    return snapshot if snapshot.is_dir() and snapshot.parent.name == "snapshots" else None
