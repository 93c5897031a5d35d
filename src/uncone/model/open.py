"""From a spec to `Rows`: arrays, files, and the matrices of a model."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uncone.model.spec import name_of, split
from uncone.model.subjects import Subjects, is_model, open_kind, open_model, open_part
from uncone.rows import Rows, as_rows, without_nonfinite
from uncone.rows.open import open_file

__all__ = ["Subjects", "open_rows", "open_subjects"]


def open_rows(spec: Any, *, skip_nonfinite: bool = False) -> Rows:
    """Open a matrix to be read block by block; nothing is loaded and nothing touches the network.

    Args:
        spec: one of
            - a tensor or NumPy array of shape (N, D);
            - `file.npy`; `file.npz`, or `file.npz#key` when it holds several matrices;
            - `file.parquet` or a folder of such files, with `#column` when several columns hold lists of floats;
            - word vectors: text (`.vec`, `.txt`, `.glove`, `.vec.gz`, `.txt.gz`), or word2vec binary (`.bin`);
            - `file.safetensors`, or `file.safetensors#tensor` when it holds several matrices;
            - `file.pt`, `.pth`, `.ckpt` or `.bin` as `torch.save` writes them, with `#tensor` where there are several;
            - `MODEL#input` or `MODEL#head`: the token table or output head of a model, or `MODEL#tensor` for any other of its
              tensors. A model is a directory of transformers or Sentence Transformers, the name of a cached one (NAME or
              NAME@REVISION), or a GGUF file.
        skip_nonfinite: leave out rows with NaN or inf (`left_out` of the result names them); costs one pass.

    Returns:
        `Rows` with `shape`, `dtype`, `name`, `labels` (token strings or words, where the source has them) and `blocks()`.

    Raises:
        InputError: the source is missing, cut, pickled, not a matrix of floats, empty, or holds no such tensor.
        UnsupportedModel: the table or head cannot be found in the model's files.

    Example:
        >>> import numpy, uncone
        >>> uncone.open_rows(numpy.ones((3, 2), dtype="float32")).shape
        (3, 2)
    """
    rows = _open(spec)
    return without_nonfinite(rows) if skip_nonfinite else rows


def open_subjects(
    spec: Any, *, skip_nonfinite: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> Subjects:
    """What `diagnose` looks at: a model's table and head, or the one matrix that `spec` names.

    `progress` is called with (what is done, rows done, rows in all) while rows are looked through.
    """
    opened = _open_subjects(spec)
    if not skip_nonfinite:
        return opened

    def kept(name: str, rows: Rows) -> Rows:
        n = rows.shape[0]
        tick = (
            None
            if progress is None
            else lambda done: progress(f"{name}: looking for rows that are not finite", done, n)
        )
        return without_nonfinite(rows, tick)

    return Subjects(opened.name, tuple((name, kept(name, rows)) for name, rows in opened.rows), opened.notes)


def _open(spec: Any) -> Rows:
    if not isinstance(spec, str | os.PathLike):
        return as_rows(spec)
    path, part = split(spec)
    return open_part(path, part) if is_model(path) else open_file(path, part)


def _open_subjects(spec: Any) -> Subjects:
    if isinstance(spec, str | os.PathLike):
        path, part = split(spec)
        if is_model(path) and part is None:
            return open_model(path, name_of(spec, path))
        if is_model(path) and part is not None:
            kind, rows = open_kind(path, part)
            return Subjects(f"{name_of(spec, path)}#{part}", ((kind, rows),))
    rows = _open(spec)
    return Subjects(Path(rows.name).name, (("rows", rows),))
