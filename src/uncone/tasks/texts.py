"""Vectors of texts, for those who have an encoder and no vectors yet."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from uncone.errors import InputError
from uncone.model.open import open_rows
from uncone.rows import ArrayRows, Rows
from uncone.tasks.sentences import Encoder, Role, WordMeans, files_digest, open_encoder
from uncone.tasks.text_files import lines_of
from uncone.tasks.vector_cache import encode_texts

Progress = Callable[[str, int, int], None]


def encoded_texts(
    model: str | os.PathLike[str],
    texts: str | os.PathLike[str],
    query_texts: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[Rows, Rows | None]:
    """The vectors of texts, and of queries, with the texts as labels; what `calibrate` takes as vectors and queries.

    Args:
        model: a directory of Sentence Transformers, or of an encoder of transformers (the mean of its last layer), or a file of
            word vectors (the mean of a text's words).
        texts: a file in UTF-8 (.xz and .gz too), one text a line; empty lines are passed over.
        query_texts: the same for queries. Models that have a prompt for queries and one for documents get them.
        progress: called with (what is done, texts done, texts in all).

    Raises:
        InputError: no such model or file, vectors without words, no text, or an extra that is not installed.
    """
    directory = Path(model)
    is_model = directory.is_dir()
    encoder = (
        open_encoder(directory) if is_model else WordMeans(open_rows(model), digest=files_digest(directory))
    )
    if query_texts is None:
        return _rows(encoder, directory, Path(texts), None, progress), None
    documents = _rows(encoder, directory, Path(texts), "document", progress)
    return documents, _rows(encoder, directory, Path(query_texts), "query", progress)


def _rows(
    encoder: Encoder, directory: Path, file: Path, role: Role | None, progress: Progress | None
) -> Rows:
    texts = [line.strip() for _, line in lines_of(file) if line.strip()]
    if not texts:
        raise InputError(f"expected one text a line in {file}, got none: give at least two, best thousands")
    tick = None if progress is None else lambda done, total: progress(f"encoding {file.name}", done, total)
    vectors = torch.from_numpy(encode_texts(encoder, texts, role=role, tick=tick))
    if encoder.normalizes:  # as the model itself does at its end: inner products depend on it
        vectors = torch.nn.functional.normalize(vectors)
    rows = ArrayRows(vectors, name=f"{file.name} with {directory.resolve().name}")
    rows.load_labels = lambda: texts
    return rows
