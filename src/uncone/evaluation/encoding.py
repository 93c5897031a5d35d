"""From a spec to vectors of texts, in the two forms that a repair may get, perhaps kept between runs."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from uncone.atomic import replacing
from uncone.errors import InputError, UnsupportedModel, expect
from uncone.evaluation.fitting import Repairs, Texts, finite_rows, fit_repairs
from uncone.evaluation.text_files import lines_of
from uncone.model.hugging_face import load_encoder
from uncone.model.open import open_rows, open_spec, refuse_elsewhere
from uncone.model.sentence_transformers import is_sentence_transformers, load_sentence_transformer
from uncone.regular import open_regular
from uncone.roles import Path_, Progress
from uncone.rows import Array, ArrayRows, Rows

Role = Literal["query", "document"] | None
Tick = Callable[[int, int], None] | None  # called with texts done and texts in all
_AT_ONCE = 256  # texts between two reports of progress
_BATCH = 32
_WORDS = "Word vectors: repairs are fitted on all words, and a text is the mean of its repaired words."
_NORMALIZES = (
    "The model divides its vectors by their norm at the end. Cosine: vectors are repaired before that, as in a "
    "repaired model. Inner product: the divided vectors are repaired, as if stored, and not divided again."
)
_FORM = "uncone.vectors/1"  # in the names of kept vectors: another form makes them again


@dataclass(frozen=True)
class Encoding:
    """An encoder of texts, with its cache. `encode` takes texts, and the keywords `role` (which of several prompts) and
    `tick`; it returns vectors (N, D) before a last normalisation."""

    kind: str  # in words, such as "Sentence Transformers"
    digest: str  # sha256 of all that the vectors depend on
    encode: Callable[..., Array]
    normalizes: bool = False  # the model divides its vectors by their norm at the end
    rows: Rows | None = None  # of word vectors
    name: str = ""
    cache: Path_ | None = None  # a folder, made where its parent exists
    inner: bool = True  # else nothing is fitted for inner products

    def vectors(self, texts: Sequence[str], *, role: Role = None, tick: Tick = None) -> Array:
        expect(bool(texts), "texts to encode, got none: is the data empty?")
        if self.cache is None:
            return self.encode(texts, role=role, tick=tick)
        cache = Path(self.cache)
        try:
            cache.mkdir(exist_ok=True)
        except OSError as error:
            why = f"{error.strerror}: give a folder that can be written"
            raise InputError(f"cannot keep vectors in {cache}: {why}") from error
        made_of = f"{_FORM}\0{self.digest}\0{role}\0{texts_digest(texts)}"
        file = cache / f"{hashlib.sha256(made_of.encode()).hexdigest()}.npy"
        if (kept := _kept(file, len(texts))) is not None:
            return kept
        vectors = self.encode(texts, role=role, tick=tick)
        with replacing(file) as handle:
            content = np.ascontiguousarray(vectors)
            np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(content))
            handle.write(content.data)  # numpy.save hides why a disk is full
        return vectors

    def texts(self, texts: Sequence[str], *, role: Role = None, tick: Tick = None) -> Texts:
        vectors = self.vectors(texts, role=role, tick=tick)
        return Texts(vectors, unit(vectors) if self.normalizes and self.inner else vectors)

    def fit(self, names: Sequence[str], texts: Texts, *, fitted_on: str, tick: Progress) -> Repairs:
        """The repairs fitted on `texts` (`fitted_on` in words), or on the table of word vectors."""
        if self.rows is None:
            return fit_repairs(names, texts, fitted_on=fitted_on, tick=tick)
        table = Texts(self.rows, self.rows)
        return fit_repairs(names, table, fitted_on="all rows of the table", of_words=True, tick=tick)

    def notes(self) -> tuple[str, ...]:
        if self.rows is not None:
            return (_WORDS,)
        return (_NORMALIZES,) if self.normalizes and self.inner else ()

    def provenance(self) -> dict[str, Any]:
        return {"encoder": self.kind, "encoder_sha256": self.digest, "normalizes": self.normalizes}


def open_encoding(spec: Path_, *, cache: Path_ | None = None, inner: bool = True) -> Encoding:
    opened = open_spec(spec)
    refuse_elsewhere(opened)
    path, part = opened.path, opened.part
    if path.is_dir():
        expect(part is None, f"a whole model to encode with, got its part #{part}: leave that out")
        encoder, name = open_encoder(path), opened.name
    else:
        encoder = word_means(finite_rows(opened), files_digest(path))
        name = "/".join(path.resolve().parts[-2:])
    return replace(encoder, name=name, cache=cache, inner=inner)


def open_encoder(directory: Path) -> Encoding:
    if is_sentence_transformers(directory):
        return _sentence_transformer(directory)
    if (directory / "config.json").is_file():
        return _mean_pooled(directory)
    raise InputError(
        f"expected an encoder of sentences, got {directory} without modules.json and config.json: give a "
        "directory of Sentence Transformers or transformers, or a file of word vectors"
    )


def _sentence_transformer(directory: Path) -> Encoding:
    digest, model = files_digest(directory), load_sentence_transformer(directory, device="cpu")
    normalizes = len(model) > 1 and type(model[-1]).__name__ == "Normalize"
    if normalizes:
        del model[-1]
    by_role: dict[Role, Any] = {"query": model.encode_query, "document": model.encode_document}

    def encode(texts: Sequence[str], *, role: Role = None, tick: Tick = None) -> Array:
        own = by_role.get(role, model.encode)
        return _by_length(texts, tick, partial(own, batch_size=_BATCH, show_progress_bar=False))

    return Encoding("Sentence Transformers", digest, encode, normalizes)


def _mean_pooled(directory: Path) -> Encoding:
    digest = files_digest(directory)
    import torch

    model, tokenizer, longest = load_encoder(directory)
    tokens = partial(tokenizer, padding=True, truncation=True, max_length=longest, return_tensors="pt")

    def pooled(texts: list[str]) -> Array:
        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = tokens(texts[start : start + _BATCH])
            ids, mask = batch["input_ids"], batch["attention_mask"]
            with torch.inference_mode():
                hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            # A text of no tokens gets a vector of zeros, not NaN.
            parts.append(((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)).numpy())
        return np.concatenate(parts)

    def encode(texts: Sequence[str], *, role: Role = None, tick: Tick = None) -> Array:
        return _by_length(texts, tick, pooled)

    return Encoding("transformers, mean of the last layer", digest, encode)


def word_means(rows: Rows, digest: str) -> Encoding:
    """The mean of the vectors of a text's words, split at spaces; zeros where no word is known. Each word is looked up
    as it is, then without punctuation around it, then in lower case."""
    labels = rows.labels
    if labels is None:
        raise InputError(f"expected word vectors with words, got {rows.name} without: give a .vec or .bin")
    row_of = {label: row for row, label in reversed(list(enumerate(labels))) if label is not None}

    def row_of_word(word: str) -> int | None:
        stripped = word.strip("".join(c for c in set(word) if not c.isalnum()))
        return next((row_of[form] for form in (word, stripped, stripped.lower()) if form in row_of), None)

    def encode(texts: Sequence[str], *, role: Role = None, tick: Tick = None) -> Array:
        rows_of = [[row for word in text.split() if (row := row_of_word(word)) is not None] for text in texts]
        needed = sorted({row for of_text in rows_of for row in of_text})
        expect(bool(needed), f"words of {rows.name} in the texts, got none in {len(texts)}: another language?")
        vectors = rows.take(np.array(needed, np.int64))
        out = np.zeros((len(texts), vectors.shape[1]), np.float32)
        for at, of_text in enumerate(rows_of):
            if of_text:
                out[at] = vectors[np.searchsorted(needed, of_text)].mean(axis=0, dtype=np.float64)
        if tick is not None:
            tick(len(texts), len(texts))
        return out

    return Encoding("mean of word vectors", digest, encode, rows=rows)


def _by_length(texts: Sequence[str], tick: Tick, encode: Callable[[list[str]], Any]) -> Array:
    """`encode` from the longest text to the shortest: batches pad little, and a lack of memory shows at once."""
    order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))
    parts = []
    for start in range(0, len(order), _AT_ONCE):
        parts.append(np.asarray(encode([texts[at] for at in order[start : start + _AT_ONCE]]), np.float32))
        if tick is not None:
            tick(min(start + _AT_ONCE, len(order)), len(order))
    out = np.concatenate(parts)[np.argsort(order)]
    if not np.isfinite(out).all():
        raise UnsupportedModel("the model's vectors are not finite: look for damage with `uncone diagnose`")
    return out


def _kept(file: Path, n: int) -> Array | None:
    try:
        with open_regular(file) as handle:
            if np.lib.format.read_magic(handle) != (1, 0):
                return None
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(handle)
            size = os.fstat(handle.fileno()).st_size - handle.tell()
            # Memory is allocated only for what the file holds, whatever its header claims.
            is_ours = not by_columns and dtype == np.float32 and len(shape) == 2 and shape[0] == n
            if not is_ours or 4 * math.prod(shape) != size:
                return None
            kept: Array = np.fromfile(handle, np.float32).reshape(shape)
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    return kept if bool(np.isfinite(kept).all()) else None


def files_digest(path: Path) -> str:
    """sha256 of the names and contents of one file, or of a model's files except *.md and hidden files."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = file.relative_to(path)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if file == path or (file.is_file() and file.suffix != ".md" and not is_hidden):
            digest.update(f"{name.as_posix()}\0{file.stat().st_size}\0".encode())
            with open_regular(file) as handle:
                hashlib.file_digest(handle, lambda: digest)  # type: ignore[arg-type]  # BinaryIO has readinto
    return digest.hexdigest()


def texts_digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}\0".encode() + encoded)
    return digest.hexdigest()


def unit(x: Array) -> Array:
    norms = np.linalg.norm(rows := np.array(x, np.float64), axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1.0)
    return rows.astype(np.float32)


def encoded_texts(
    model: Path_, texts: Path_, query_texts: Path_ | None = None, *, progress: Progress | None = None
) -> tuple[Rows, Rows | None]:
    """The vectors of texts, and of queries, with the texts as labels, as `calibrate` takes them.

    Args:
        model: a directory of Sentence Transformers, or of an encoder of transformers (the mean of its last layer), or a
            file of word vectors (the mean of a text's words).
        texts: a file in UTF-8 (.xz and .gz too), one text per line; empty lines are skipped.
        query_texts: the same for queries; a model with prompts for queries and documents uses them.
        progress: called with (what is done, texts done, texts in all).

    Raises:
        InputError: no such model or file, vectors without words, no text, or an extra that is not installed.
    """
    import torch

    path = Path(model)
    encoder = open_encoder(path) if path.is_dir() else word_means(open_rows(model), files_digest(path))

    def rows(file: Path, role: Role) -> Rows:
        lines = [line.strip() for _, line in lines_of(file) if line.strip()]
        expect(bool(lines), f"one text per line in {file}, got none: give at least 2, ideally thousands")
        tick = None if progress is None else partial(progress, f"encoding {file.name}")
        vectors = torch.from_numpy(encoder.vectors(lines, role=role, tick=tick))
        if encoder.normalizes:  # as the model does at its end: inner products depend on it
            vectors = torch.nn.functional.normalize(vectors)
        encoded = ArrayRows(vectors, name=f"{file.name} with {path.resolve().name}")
        encoded.load_labels = lambda: lines
        return encoded

    if query_texts is None:
        return rows(Path(texts), None), None
    return rows(Path(texts), "document"), rows(Path(query_texts), "query")
