"""From a spec to vectors of texts, in the two forms in which a repair can meet them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from uncone.errors import InputError
from uncone.model.spec import name_of, split
from uncone.tasks.fitting import FittedRepairs, finite_rows, fit_repairs, fit_repairs_of_words
from uncone.tasks.found import Progress
from uncone.tasks.search import unit
from uncone.tasks.sentences import Encoder, Role, Tick, WordMeans, files_digest, open_encoder
from uncone.tasks.vector_cache import encode_texts

Array = npt.NDArray[Any]
WORDS = "Word vectors: repairs are fitted on all words and applied to them, and a text is the mean of its repaired words."
NORMALIZES = (
    "The model divides its vectors by their norm at the end. Cosine: repaired before that, as a repaired model has it. "
    "Inner product: its own vectors repaired as they would be stored, and not divided again."
)


@dataclass(frozen=True)
class Texts:
    """Vectors of texts: as the model has them before it normalises (for cosine), and as it gives them (for inner products)."""

    cosine: Array
    inner: Array


@dataclass(frozen=True)
class Encoding:
    """An encoder with its cache."""

    name: str
    encoder: Encoder
    cache: Path | None = None

    def texts(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Texts:
        """The vectors of `texts`."""
        vectors = encode_texts(self.encoder, texts, role=role, cache=self.cache, tick=tick)
        return Texts(vectors, unit(vectors) if self.encoder.normalizes else vectors)

    def fit(
        self, names: Sequence[str], x: Array, *, fitted_on: str, tick: Progress | None = None
    ) -> FittedRepairs:
        """The repairs fitted on vectors of texts (N, D), `fitted_on` in words; of word vectors on the table, as a repaired file has it."""
        if isinstance(self.encoder, WordMeans):
            return fit_repairs_of_words(names, self.encoder.rows, tick=tick)
        return fit_repairs(names, x, fitted_on=fitted_on, tick=tick)

    def notes(self) -> tuple[str, ...]:
        """What is to be said of how this encoder is repaired."""
        if isinstance(self.encoder, WordMeans):
            return (WORDS,)
        return (NORMALIZES,) if self.encoder.normalizes else ()

    def provenance(self) -> dict[str, Any]:
        """What the vectors come from."""
        return {
            "encoder": self.encoder.kind,
            "encoder_sha256": self.encoder.digest,
            "normalizes": self.encoder.normalizes,
        }


def open_encoding(spec: str | os.PathLike[str], *, cache: Path | None = None) -> Encoding:
    """The encoder that `spec` names: a directory of Sentence Transformers or transformers, the name of a cached one, or word vectors.

    Raises:
        InputError: it names no such thing, word vectors that are not finite, or a part of a model ("#input"), which encodes no sentences.
    """
    path, part = split(spec)
    if path.is_dir():
        if part is not None:
            raise InputError(
                f"expected a whole model to encode sentences with, got its part #{part}: leave that out"
            )
        return Encoding(name_of(spec, path), open_encoder(path), cache)
    rows = finite_rows(spec)
    return Encoding("/".join(path.resolve().parts[-2:]), WordMeans(rows, digest=files_digest(path)), cache)
