"""`repair_encoder`: a Sentence Transformers model with a repair inside."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.open import open_spec
from uncone.model.sentence_transformers import load_sentence_transformer
from uncone.records.text import percent
from uncone.repairs.record import Repaired
from uncone.repairs.sentence_transformers import WHERE, embed, insert_into_directory, without_normalize
from uncone.repairs.sentences import Sentences, read_sentences
from uncone.repairs.vectors import Fit, Geometry, RepairOptions, compare, fit_repair, record_of
from uncone.roles import Path_, Progress
from uncone.rows import as_rows
from uncone.transforms import ZIPF_REPAIRS, repair_named
from uncone.transforms.fitting import affine_of, shared_name

Tensor = torch.Tensor
HELD_OUT = 5  # every fifth sentence is measured and not fitted on: a fit centres its sentences by construction
FEW = 100  # fewer measured sentences show more of the sample than of the model
AGREEMENT = 1e-5  # of the longest vector: how far the written model may be from the repaired vectors
ROUNDINGS = 4.0  # the same for a model in 16 bits, in units of its epsilon
_PROBES = ("A short sentence.", "Two men are playing chess in a park.", "Interest rates rose again in March.", "???")
_MOST_PROBES = 64


def repair_encoder(spec: Path_, out: Path_, options: RepairOptions, *, progress: Progress | None = None) -> Repaired:
    """`uncone.repair` has checked the arguments."""
    method, opened = options.method, open_spec(spec)
    directory = opened.path
    if method in ZIPF_REPAIRS:
        raise InputError(f"expected a repair of sentences, got {method} of tokens: use {method.removeprefix('zipf_')}")
    if method is not None and not (transformation := repair_named(method, d=2**31)).affine:
        affine_of(transformation, WHERE)
    text = Sentences() if options.text is None else read_sentences(options.text, most=options.most_sentences)
    fitted, measured, notes = text.lines, text.lines, list(text.notes())
    if options.load is None and options.fit_on is None:
        fitted = tuple(line for i, line in enumerate(text.lines) if i % HELD_OUT != HELD_OUT - 1)
        measured = text.lines[HELD_OUT - 1 :: HELD_OUT]
        notes += told_of_split(len(fitted), len(measured))
    model = _Model(directory, progress)
    fit = fit_repair(options, lambda: as_rows(model.embed(fitted), name=shared_name(str(options.text))))
    probes = measured[:_MOST_PROBES] or _PROBES
    began = time.perf_counter()
    insert_into_directory(
        directory, fit.transformation, out, check=lambda copy: notes.extend(model.check(copy, fit, probes))
    )
    seconds = time.perf_counter() - began
    if options.save is not None:
        fit.transformation.save(options.save)
    geometry = compare(*model.both(fit, measured)) if measured else Geometry()
    affine, n = affine_of(fit.transformation, WHERE), 0 if fit.fitted is None else fit.fitted.n
    size: dict[str, Any] = {"n": n, "d": affine.d, "k": affine.k, "dtype": "float32", "out": shared_name(str(out))}
    return record_of(fit, geometry, options, tuple(notes), spec, seconds, kind="encoder", name=opened.name, **size)


class _Model:
    """A model without its Normalize, and the embeddings of the sentences that it was given."""

    def __init__(self, directory: Path, progress: Progress | None) -> None:
        model = load_sentence_transformer(directory)
        self._progress, self._before, self._vectors = progress, without_normalize(model), dict[str, Tensor]()
        self._normalizes = len(self._before) < len(model)

    def check(self, copy: Path, fit: Fit, sentences: Sequence[str]) -> list[str]:
        """Notes on rounding. InputError unless the written model gives the repaired vectors."""
        _, expected = self.both(fit, sentences)
        written = load_sentence_transformer(copy)
        got = embed(written, sentences)
        if (narrow := narrow_dtype(written)) is not None:
            return [told_of_rounding(got, expected, narrow)]
        most = AGREEMENT * expected.norm(dim=1).max()
        if got.shape != expected.shape or not bool(((got - expected).abs() <= most).all()):
            raise InputError(
                "expected the written model to give the repaired vectors, got others: nothing was written. Its last "
                "modules do more than normalise, so apply the repair to its vectors instead"
            )
        return []

    def both(self, fit: Fit, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        x = self.embed(sentences)
        y, normalize = fit.transformation.transform(x), torch.nn.functional.normalize
        return (normalize(x), normalize(y)) if self._normalizes else (x, y)

    def embed(self, sentences: Sequence[str]) -> Tensor:
        progress, new = self._progress, [each for each in sentences if each not in self._vectors]
        tick = None if progress is None else lambda done: progress("embedding sentences", done, len(new))
        if new:
            self._vectors.update(zip(new, embed(self._before, new, progress=tick), strict=True))
        return torch.stack([self._vectors[each] for each in sentences])


def narrow_dtype(model: Any) -> torch.dtype | None:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return dtype if torch.finfo(dtype).bits == 16 else None


def told_of_rounding(got: Tensor, expected: Tensor, dtype: torch.dtype) -> str:
    """How far vectors (N, K) of a model in 16 bits are from the repaired vectors in float32."""
    name, apart = str(dtype).removeprefix("torch."), float("nan")
    if got.shape == expected.shape:
        apart = float((got - expected).norm(dim=1).max() / expected.norm(dim=1).max())
    if not apart <= ROUNDINGS * torch.finfo(dtype).eps:
        raise InputError(
            f"expected the written model to give the repaired vectors up to the rounding of {name}, got vectors that "
            f"differ by {apart:.2g} of the longest: nothing was written. Save the model in float32 first, or apply the "
            "repair to its vectors instead"
        )
    return (
        f"The model and its new layer run in {name}. Its vectors differ from the float32 vectors measured here "
        f"by up to {percent(apart)} of the longest vector."
    )


def told_of_split(fitted: int, measured: int) -> tuple[str, ...]:
    split = f"Fitted on {fitted} sentences, measured on {measured} others of the same text."
    few = f"{measured} sentences are few, and others may give another verdict: give more text."
    return (split,) if measured >= FEW else (split, few)
