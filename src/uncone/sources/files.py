"""One file with one or more matrices: which format it is, by its suffix, and how it opens."""

from collections.abc import Callable
from pathlib import Path

from uncone.errors import InputError
from uncone.rows import Rows, open_npy
from uncone.rows.bytes import LocalFile
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices, read_header, tensor_rows

KINDS = "a model directory, a .safetensors file, a .npy file, or the name of a model in the Hugging Face cache"

Opener = Callable[[Path, str | None], Rows]


def open_file(path: Path, part: str | None) -> Rows:
    """The matrix `part` of the file `path`, or its only one.

    Raises:
        InputError: no format of ours, no such matrix, or more than one and none named.
    """
    for suffix, opener in _FORMATS:
        if path.name.endswith(suffix):
            return opener(path, part)
    raise InputError(f"expected {KINDS}, got {path.name!r} of another kind: convert it, or load it and pass the array")


def _open_npy(path: Path, part: str | None) -> Rows:
    if part is not None:
        raise InputError(f"expected a .npy file without '#', got {path}#{part}: it holds one array")
    return open_npy(path)


def _open_safetensors(path: Path, part: str | None) -> Rows:
    source = LocalFile(path)
    entries = read_header(source)
    if part is not None:
        return tensor_rows(source, entries, part)
    found = matrices(entries)
    if len(found) == 1:
        return tensor_rows(source, entries, next(iter(found)))
    if not found:
        raise InputError(
            f"expected a matrix of floats in {path}, got none among {len(entries)} tensors: there are no rows to read"
        )
    raise InputError(
        f"expected one matrix in {path}, got {len(found)}: say which with {path.name}#NAME; it holds {listing(found)}"
    )


_FORMATS: tuple[tuple[str, Opener], ...] = (
    (".npy", _open_npy),
    (".safetensors", _open_safetensors),
)
