"""From texts to vectors: encoders of sentences, in the form in which a repair meets them."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model.hugging_face import load_encoder
from uncone.model.sentence_transformers import is_sentence_transformers, load_sentence_transformer
from uncone.regular import open_regular
from uncone.rows import Rows

Array = npt.NDArray[np.float32]
Role = Literal["query", "document"]
Tick = Callable[[int, int], None]
"""Called with texts done and texts in all."""
_AT_ONCE = 256
"""Texts between two reports of progress; sorted by length, so that little is padded."""
_BATCH = 32
_HASHED = 1 << 20


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors, as a repair meets them: before a last normalisation."""

    kind: str
    """In words, such as "Sentence Transformers"."""
    digest: str
    """sha256 of all that the vectors depend on: files of the same content have the same."""
    normalizes: bool
    """The model divides its vectors by their norm at the end; `encode` gives them from before that."""

    def encode(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Array:
        """One vector a text, (N, D) float32. `role` chooses the prompt, of models that have several."""
        ...


def open_encoder(directory: Path) -> Encoder:
    """The encoder in a directory: Sentence Transformers where it has a modules.json, else transformers.

    Nothing is downloaded, and no code of the model is run.

    Raises:
        InputError: the directory holds no model.
        UnsupportedModel: its modules are not those of Sentence Transformers itself, it does not load, or an
            extra is not installed (`pip install 'uncone[sentence]'` or `[hf]`).
    """
    if is_sentence_transformers(directory):
        return _SentenceTransformer(directory)
    if (directory / "config.json").is_file():
        return _MeanPooled(directory)
    raise InputError(
        f"expected an encoder of sentences, got {directory} without modules.json and config.json: give a "
        "directory of Sentence Transformers or transformers, or a file of word vectors"
    )


class _SentenceTransformer:
    """A Sentence Transformers model without its last Normalize."""

    def __init__(self, directory: Path) -> None:
        self.kind, self.digest = "Sentence Transformers", files_digest(directory)
        self._model = load_sentence_transformer(directory, device="cpu")
        self.normalizes = len(self._model) > 1 and type(self._model[-1]).__name__ == "Normalize"
        if self.normalizes:
            del self._model[-1]

    def encode(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Array:
        """See `Encoder.encode`."""
        by_role = {"query": self._model.encode_query, "document": self._model.encode_document}
        encode = by_role.get(role or "", self._model.encode)
        return _by_length(texts, tick, lambda part: encode(part, batch_size=_BATCH, show_progress_bar=False))


class _MeanPooled:
    """The mean of the last hidden states of a transformers model over the tokens of a text."""

    normalizes = False

    def __init__(self, directory: Path) -> None:
        self.kind, self.digest = "transformers, mean of the last layer", files_digest(directory)
        self._model, self._tokenizer, self._longest = load_encoder(directory)

    def encode(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Array:
        """See `Encoder.encode`."""
        return _by_length(texts, tick, self._encode)

    def _encode(self, texts: Sequence[str]) -> Array:
        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = self._tokenizer(
                list(texts[start : start + _BATCH]),
                padding=True,
                truncation=True,
                max_length=self._longest,
                return_tensors="pt",
            )
            ids, mask = batch["input_ids"], batch["attention_mask"]
            with torch.inference_mode():
                hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            # A text of no tokens gets a vector of zeros, not NaN.
            parts.append(((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)).numpy())
        return np.concatenate(parts)


class WordMeans:
    """The mean of the vectors of a text's words, those without a vector left out; zeros where none has one.

    Words stand between spaces. Each is looked up as it stands, then without punctuation around it, then in
    lower case.
    """

    normalizes = False

    def __init__(self, rows: Rows, *, digest: str) -> None:
        labels = rows.labels
        if labels is None:
            raise InputError(
                f"expected word vectors with their words, got {rows.name} without: give a .vec or .bin file"
            )
        self.kind, self.digest = "mean of word vectors", digest
        self.rows = rows
        self._row_of = {label: row for row, label in reversed(list(enumerate(labels))) if label is not None}

    def encode(self, texts: Sequence[str], *, role: Role | None = None, tick: Tick | None = None) -> Array:
        """See `Encoder.encode`."""
        rows_of = [[row for word in text.split() if (row := self._row(word)) is not None] for text in texts]
        needed = sorted({row for rows in rows_of for row in rows})
        if not needed:
            raise InputError(
                f"expected words of {self.rows.name} in the texts, got none in {len(texts)} texts: another "
                "language?"
            )
        vectors = self.rows.take(torch.tensor(needed, dtype=torch.int64)).numpy()
        place = {row: at for at, row in enumerate(needed)}
        out = np.zeros((len(texts), vectors.shape[1]), np.float32)
        for at, rows in enumerate(rows_of):
            if rows:
                out[at] = vectors[[place[row] for row in rows]].mean(axis=0, dtype=np.float64)
        if tick is not None:
            tick(len(texts), len(texts))
        return out

    def _row(self, word: str) -> int | None:
        stripped = word.strip("".join(c for c in set(word) if not c.isalnum()))
        forms = (word, stripped, stripped.lower())
        return next((self._row_of[form] for form in forms if form in self._row_of), None)


def files_digest(path: Path) -> str:
    """sha256 of the names and contents of a model's files, or of one file; without *.md and hidden ones."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _counts(file, path))
    for file in files:
        digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with open_regular(file) as handle:
            while chunk := handle.read(_HASHED):
                digest.update(chunk)
    return digest.hexdigest()


def _counts(file: Path, directory: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(directory).parts)
    return file.is_file() and file.suffix != ".md" and not hidden


def _by_length(texts: Sequence[str], tick: Tick | None, encode: Callable[[Sequence[str]], Any]) -> Array:
    """`encode` from the longest text to the shortest: a batch pads little, and short memory shows at once."""
    order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))
    parts = []
    for start in range(0, len(order), _AT_ONCE):
        parts.append(np.asarray(encode([texts[at] for at in order[start : start + _AT_ONCE]]), np.float32))
        if tick is not None:
            tick(min(start + _AT_ONCE, len(order)), len(order))
    joined = np.concatenate(parts)
    out = np.empty_like(joined)
    out[order] = joined
    if not np.isfinite(out).all():
        raise UnsupportedModel(
            "the model gives vectors that are not finite: its weights may be damaged; `uncone diagnose` looks"
        )
    return out
