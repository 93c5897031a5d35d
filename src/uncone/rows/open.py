"""One file with one or more matrices: which format it is, by its suffix, and how it opens."""

from collections.abc import Callable, Mapping
from pathlib import Path

from uncone.errors import InputError
from uncone.rows import Rows, open_npy
from uncone.rows.bytes import LocalFile
from uncone.rows.checkpoint import checkpoint_rows, is_checkpoint, read_checkpoint, without_ties
from uncone.rows.names import listing
from uncone.rows.npz import open_npz
from uncone.rows.parquet import is_parquet_folder, open_parquet
from uncone.rows.safetensors import Entry, matrices, read_header, tensor_rows
from uncone.rows.word_vectors import open_word_vectors
from uncone.rows.word_vectors_binary import open_word2vec_binary

KINDS = (
    "a model directory, a folder of .parquet files, a .gguf, .safetensors, .npy, .npz, .parquet, .pt, .pth, .ckpt, .bin, .vec, .glove or "
    ".txt file, or the name of a model in the Hugging Face cache"
)

Opener = Callable[[Path, str | None], Rows]


def open_file(path: Path, part: str | None) -> Rows:
    """The matrix `part` of the file `path`, or its only one.

    Raises:
        InputError: no format of ours, no such matrix, or more than one and none named.
    """
    if is_parquet_folder(path):
        return open_parquet(path, part)
    for suffix, opener in _FORMATS:
        if path.name.endswith(suffix):
            return opener(path, part)
    raise InputError(
        f"expected {KINDS}, got {path.name!r} of another kind: convert it, or load it and pass the array"
    )


def _open_npy(path: Path, part: str | None) -> Rows:
    if part is not None:
        raise InputError(f"expected a .npy file without '#', got {path}#{part}: it holds one array")
    return open_npy(path)


def _open_safetensors(path: Path, part: str | None) -> Rows:
    source = LocalFile(path)
    entries = read_header(source)
    return tensor_rows(source, entries, _only(entries, path, among=len(entries)) if part is None else part)


def _open_checkpoint(path: Path, part: str | None) -> Rows:
    source = LocalFile(path)
    entries = read_checkpoint(source)
    return checkpoint_rows(
        source, entries, _only(without_ties(entries), path, among=len(entries)) if part is None else part
    )


def _open_bin(path: Path, part: str | None) -> Rows:
    """What `torch.save` wrote, or word2vec."""
    source = LocalFile(path)
    if is_checkpoint(source):
        return _open_checkpoint(path, part)
    if not source.head(1).isdigit():  # word2vec begins with a number: then its reader says what is wrong
        raise InputError(
            f"expected a .bin file of torch.save or of word2vec, got {path} of another kind: convert it, or load it and "
            "pass the array"
        )
    if part is not None:
        raise InputError(f"expected a word2vec file without '#', got {path}#{part}: it holds one matrix")
    return open_word2vec_binary(path)


def _open_word_vectors(path: Path, part: str | None) -> Rows:
    if part is not None:
        raise InputError(
            f"expected a file of word vectors without '#', got {path}#{part}: it holds one matrix"
        )
    return open_word_vectors(path)


def _only(entries: Mapping[str, Entry], path: Path, *, among: int) -> str:
    """The name of the one matrix of floats among the tensors of a file, of which there are `among` with those that tie."""
    found = matrices(entries)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise InputError(
            f"expected a matrix of floats in {path}, got none among {among} tensors: there are no rows to read"
        )
    raise InputError(
        f"expected one matrix in {path}, got {len(found)}: say which with {path.name}#NAME; it holds {listing(found)}"
    )


_FORMATS: tuple[tuple[str, Opener], ...] = (
    (".npy", _open_npy),
    (".npz", open_npz),
    (".safetensors", _open_safetensors),
    (".pt", _open_checkpoint),
    (".pth", _open_checkpoint),
    (".ckpt", _open_checkpoint),
    (".bin", _open_bin),
    (".parquet", open_parquet),
    (".vec", _open_word_vectors),
    (".txt", _open_word_vectors),
    (".glove", _open_word_vectors),
    (".vec.gz", _open_word_vectors),
    (".txt.gz", _open_word_vectors),
)
