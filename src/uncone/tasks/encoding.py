"""From a spec to vectors of texts, in the two forms that a repair can meet, kept between runs if asked."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.atomic import replacing
from uncone.errors import InputError
from uncone.model.open import name_of, open_rows, split
from uncone.regular import open_regular
from uncone.rows import ArrayRows, Rows
from uncone.tasks.encoders import Encoder, Role, Tick, WordMeans, files_digest, open_encoder
from uncone.tasks.fitting import FittedRepairs, Progress, finite_rows, fit_repairs
from uncone.tasks.search import unit
from uncone.tasks.text_files import lines_of

Array = npt.NDArray[Any]
_WORDS = "Word vectors: repairs are fitted on all words, and a text is the mean of its repaired words."
_NORMALIZES = (
    "The model divides its vectors by their norm at the end. Cosine: repaired before that, as a repaired "
    "model has it. Inner product: its own vectors repaired as they would be stored, and not divided again."
)
_FORM = "uncone.vectors/1"
"""Goes into the names of kept vectors, so that those made in another way are made anew."""


@dataclass(frozen=True)
class Texts:
    """Vectors of texts before the model normalises (for cosine), and after (for inner products)."""

    cosine: Array
    inner: Array


@dataclass(frozen=True)
class Repairs:
    """Repairs fitted for cosine and for inner products: the same ones, unless the model normalises."""

    cosine: FittedRepairs
    inner: FittedRepairs

    def names(self) -> tuple[str, ...]:
        """The original and every repair that could be fitted both ways."""
        return tuple(name for name in self.cosine.names() if name in self.inner.names())


def fit_both(fit: Callable[[Array], FittedRepairs], texts: Texts) -> Repairs:
    """`fit` on either form of the vectors, once where they are one."""
    cosine = fit(texts.cosine)
    return Repairs(cosine, cosine if texts.inner is texts.cosine else fit(texts.inner))


@dataclass(frozen=True)
class Encoding:
    """An encoder with its cache. Without `inner` nothing is fitted for inner products."""

    name: str
    encoder: Encoder
    cache: Path | None = None
    inner: bool = True

    def texts(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Texts:
        """The vectors of `texts`."""
        vectors = encode_texts(self.encoder, texts, role=role, cache=self.cache, tick=tick)
        return Texts(vectors, unit(vectors) if self.encoder.normalizes and self.inner else vectors)

    def fit(
        self, names: Sequence[str], texts: Texts, *, fitted_on: str, tick: Progress | None = None
    ) -> Repairs:
        """The repairs fitted on `texts` (`fitted_on` in words); those of word vectors on their table."""
        if isinstance(self.encoder, WordMeans):
            rows, on = self.encoder.rows, "all rows of the table"
            both = fit_repairs(names, rows, fitted_on=on, of_words=True, tick=tick)
            return Repairs(both, both)
        return fit_both(lambda x: fit_repairs(names, x, fitted_on=fitted_on, tick=tick), texts)

    def notes(self) -> tuple[str, ...]:
        """What is to be said of how this encoder is repaired."""
        if isinstance(self.encoder, WordMeans):
            return (_WORDS,)
        return (_NORMALIZES,) if self.encoder.normalizes and self.inner else ()

    def provenance(self) -> dict[str, Any]:
        """What the vectors come from."""
        return {
            "encoder": self.encoder.kind,
            "encoder_sha256": self.encoder.digest,
            "normalizes": self.encoder.normalizes,
        }


def open_encoding(spec: str | os.PathLike[str], *, cache: Path | None = None, inner: bool = True) -> Encoding:
    """The encoder that `spec` names: a model directory, the name of a cached one, or word vectors.

    Raises:
        InputError: no such thing, word vectors that are not finite, or a part of a model ("#input"), which
            encodes nothing.
    """
    path, part = split(spec)
    if path.is_dir():
        if part is not None:
            raise InputError(
                f"expected a whole model to encode sentences with, got its part #{part}: leave that out"
            )
        return Encoding(name_of(spec, path), open_encoder(path), cache, inner)
    words = WordMeans(finite_rows(spec), digest=files_digest(path))
    return Encoding("/".join(path.resolve().parts[-2:]), words, cache, inner)


def encode_texts(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    role: Role | None = None,
    cache: Path | None = None,
    tick: Tick | None = None,
) -> npt.NDArray[np.float32]:
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
    try:
        cache.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot keep vectors in {cache}: {error.strerror}: give a folder that can be written"
        ) from error
    name = hashlib.sha256(f"{_FORM}\0{encoder.digest}\0{role}\0{texts_digest(texts)}".encode()).hexdigest()
    file = cache / f"{name}.npy"
    kept = _kept(file, len(texts))
    if kept is not None:
        return kept
    vectors = encoder.encode(texts, role=role, tick=tick)
    with replacing(file) as handle:
        content = np.ascontiguousarray(vectors)
        np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(content))
        handle.write(content.data)  # numpy.save would not say why a disk takes no more
    return vectors


def _kept(file: Path, n: int) -> npt.NDArray[np.float32] | None:
    """The vectors of `n` texts; None where there is no such file, or a damaged one, which is made anew."""
    try:
        with open_regular(file) as handle:
            if np.lib.format.read_magic(handle) != (1, 0):
                return None
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(handle)
            size = os.fstat(handle.fileno()).st_size - handle.tell()
            # The size in a damaged header is checked against the file before memory is taken for it.
            is_ours = not by_columns and dtype == np.float32 and len(shape) == 2 and shape[0] == n
            if not is_ours or 4 * math.prod(shape) != size:
                return None
            kept: npt.NDArray[np.float32] = np.fromfile(handle, np.float32).reshape(shape)
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    return kept if bool(np.isfinite(kept).all()) else None


def texts_digest(texts: Sequence[str]) -> str:
    """sha256 over the texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}\0".encode() + encoded)
    return digest.hexdigest()


def encoded_texts(
    model: str | os.PathLike[str],
    texts: str | os.PathLike[str],
    query_texts: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[Rows, Rows | None]:
    """The vectors of texts, and of queries, with the texts as labels, as `calibrate` takes them.

    Args:
        model: a directory of Sentence Transformers, or of an encoder of transformers (the mean of its last
            layer), or a file of word vectors (the mean of a text's words).
        texts: a file in UTF-8 (.xz and .gz too), one text a line; empty lines are passed over.
        query_texts: the same for queries. Models that have a prompt for queries and one for documents get
            them.
        progress: called with (what is done, texts done, texts in all).

    Raises:
        InputError: no such model or file, vectors without words, no text, or an extra that is not installed.
    """
    path = Path(model)
    encoder = open_encoder(path) if path.is_dir() else WordMeans(open_rows(model), digest=files_digest(path))

    def rows(file: Path, role: Role | None) -> Rows:
        lines = [line.strip() for _, line in lines_of(file) if line.strip()]
        if not lines:
            raise InputError(
                f"expected one text a line in {file}, got none: give at least two, best thousands"
            )
        tick = (
            None if progress is None else lambda done, total: progress(f"encoding {file.name}", done, total)
        )
        vectors = torch.from_numpy(encode_texts(encoder, lines, role=role, tick=tick))
        if encoder.normalizes:  # as the model itself does at its end: inner products depend on it
            vectors = torch.nn.functional.normalize(vectors)
        encoded = ArrayRows(vectors, name=f"{file.name} with {path.resolve().name}")
        encoded.load_labels = lambda: lines
        return encoded

    if query_texts is None:
        return rows(Path(texts), None), None
    return rows(Path(texts), "document"), rows(Path(query_texts), "query")
