"""Vectors of texts, kept between runs under a name that only the same encoder with the same texts has."""

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncone.atomic import replacing, unwritten
from uncone.errors import InputError
from uncone.regular import open_regular
from uncone.tasks.sentences import Array, Encoder, Role, Tick

_FORM = "uncone.vectors/1"
"""Goes into the names, so that vectors made in another way are made anew."""


def encode_texts(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    role: Role | None = None,
    cache: Path | None = None,
    tick: Tick | None = None,
) -> Array:
    """`encoder.encode(texts)`, read from the folder `cache` where it was kept, else kept there.

    Args:
        encoder: from `open_encoder`.
        texts: the texts, each encoded as it stands.
        role: which prompt, of models that have one for queries and for documents.
        cache: an existing folder, or one to be made in an existing one; None keeps nothing.
        tick: called with texts done and texts in all.

    Returns:
        (N, D) float32, before a last normalisation.

    Raises:
        InputError: no texts, or a cache that is no folder or cannot be written.
    """
    if not texts:
        raise InputError("expected texts to encode, got none: is the data empty?")
    if cache is None:
        return encoder.encode(texts, role=role, tick=tick)
    _make(cache)
    name = hashlib.sha256(f"{_FORM}\0{encoder.digest}\0{role}\0{texts_digest(texts)}".encode()).hexdigest()
    file = cache / f"{name}.npy"
    kept = _read(file, len(texts))
    if kept is not None:
        return kept
    vectors = encoder.encode(texts, role=role, tick=tick)
    try:
        with replacing(file) as handle:
            content = np.ascontiguousarray(vectors)
            np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(content))
            handle.write(content.data)  # numpy.save would not say why a disk takes no more
    except OSError as error:
        raise unwritten(file, error) from error
    return vectors


def texts_digest(texts: Sequence[str]) -> str:
    """sha256 over the texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}\0".encode() + encoded)
    return digest.hexdigest()


def _make(cache: Path) -> None:
    try:
        cache.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot keep vectors in {cache}: {error.strerror}: give a folder that can be written"
        ) from error


def _read(file: Path, n: int) -> Array | None:
    """What was kept; None where there is nothing, or a file that is damaged: it is made anew."""
    try:
        with open_regular(file) as handle:
            if np.lib.format.read_magic(handle) != (1, 0):
                return None
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(handle)
            size = os.fstat(handle.fileno()).st_size - handle.tell()
            # The size in a damaged header is checked against the file before memory is taken for it.
            if (
                by_columns
                or dtype != np.float32
                or len(shape) != 2
                or shape[0] != n
                or 4 * math.prod(shape) != size
            ):
                return None
            kept: Array = np.fromfile(handle, np.float32).reshape(shape)
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    return kept if bool(np.isfinite(kept).all()) else None
