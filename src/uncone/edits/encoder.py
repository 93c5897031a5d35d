"""`repair_encoder`: a Sentence Transformers model with a repair inside, proven on sentences first."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from uncone.edits.fit import Fit, fit_repair, load_repair
from uncone.edits.geometry import Geometry, compare, record_of
from uncone.edits.proof import Progress
from uncone.edits.sentence_transformers import (
    WHERE,
    embed,
    insert_into_directory,
    without_normalize,
)
from uncone.edits.texts import MOST_SENTENCES, Path_, Sentences, read_sentences
from uncone.errors import InputError
from uncone.model.open import name_of, open_rows, split
from uncone.model.sentence_transformers import load_sentence_transformer
from uncone.records.repair import Repaired
from uncone.records.wording import percent
from uncone.rows import as_rows
from uncone.transforms import ZIPF_REPAIRS, repair_named
from uncone.transforms.fitted import shared_name
from uncone.transforms.fitting import affine_of

Tensor = torch.Tensor
HELD_OUT = 5
"""Every fifth sentence is measured and not fitted on: rows that are fitted on are centred by construction."""
FEW = 100
"""Measured sentences below which the numbers are rather those of the sample."""
AGREEMENT = 1e-5
"""The written model must give the repaired vectors up to this, as a share of the longest."""
ROUNDINGS = 4.0
"""How far each vector of a model in 16 bits may be off: times its epsilon, as a share of the longest."""
_PROBES = (
    "A short sentence.",
    "Two men are playing chess in a park.",
    "Interest rates rose again in March.",
    "???",
)
_MOST_PROBES = 64


def repair_encoder(
    spec: Path_,
    out: Path_,
    *,
    method: str | None = None,
    text: Path_ | None = None,
    fit_on: Path_ | None = None,
    load: Path_ | None = None,
    save: Path_ | None = None,
    force: bool = False,
    most_sentences: int = MOST_SENTENCES,
    progress: Progress | None = None,
) -> Repaired:
    """Write a copy of an encoder with a repair before its Normalize: what `uncone.repair` does with one.

    The options and the result are those of `uncone.repair`, which has checked `out` and that the options fit
    together.

    Raises:
        InputError: no such model, one with code of its own, a repair that is not affine, a copy that does not
            give the repaired vectors. Then nothing is written.
    """
    _refuse_early(method)
    directory = split(spec)[0]
    sentences = Sentences() if text is None else read_sentences(text, most=most_sentences)
    model = _Model(directory, sentences, progress)
    fit, measured = model.fit(method, fit_on=fit_on, load=load, force=force, text=text)
    probes = list(measured[:_MOST_PROBES]) or list(_PROBES)
    began = time.perf_counter()
    insert_into_directory(
        directory, fit.transformation, out, check=lambda copy: model.check(copy, fit, probes)
    )
    seconds = time.perf_counter() - began
    if save is not None:
        fit.transformation.save(save)
    geometry = model.compare(fit, measured) if measured else Geometry()
    affine = affine_of(fit.transformation, WHERE)
    return record_of(
        fit, geometry, name=name_of(spec, directory), out=out, kind="encoder", n=0 if fit.fitted is None else fit.fitted.n,
        d=affine.d, k=affine.k, dtype="float32", seconds=seconds, notes=model.notes,
    )  # fmt: skip


class _Model:
    """The model as it is, with the embeddings of the sentences before its Normalize."""

    def __init__(self, directory: Path, sentences: Sentences, progress: Progress | None) -> None:
        self._sentences, self._progress = sentences.lines, progress
        self._model = load_sentence_transformer(directory)
        self._before = without_normalize(self._model)
        self._normalizes = len(self._before) < len(self._model)
        self._vectors: dict[str, Tensor] = {}
        self.notes = sentences.notes()

    def fit(
        self, method: str | None, *, fit_on: Path_ | None, load: Path_ | None, force: bool, text: Path_ | None
    ) -> tuple[Fit, Sequence[str]]:
        """The transformation, and the sentences it is measured on."""
        if load is not None:
            return load_repair(load), self._sentences
        assert method is not None  # check_repair refused it
        if fit_on is not None:
            return fit_repair(open_rows(fit_on), method, force=force), self._sentences
        held = set(range(HELD_OUT - 1, len(self._sentences), HELD_OUT))
        mine = [sentence for i, sentence in enumerate(self._sentences) if i not in held]
        others = [self._sentences[i] for i in sorted(held)]
        rows = as_rows(self._embed(mine), name=shared_name(str(text)))
        self.notes = (*self.notes, *told_of_split(len(mine), len(others)))
        return fit_repair(rows, method, force=force), others

    def check(self, copy: Path, fit: Fit, sentences: Sequence[str]) -> None:
        """Raise InputError unless the written model gives the repaired vectors."""
        expected = self._given(fit.transformation.transform(self._embed(sentences)))
        written = load_sentence_transformer(copy)
        got = embed(written, sentences)
        narrow = narrow_dtype(written)
        if narrow is not None:
            self.notes = (*self.notes, told_of_rounding(got, expected, narrow))
        elif got.shape != expected.shape or not bool(
            ((got - expected).abs() <= AGREEMENT * expected.norm(dim=1).max()).all()
        ):
            raise InputError(
                "expected the written model to give the repaired vectors, got others: nothing was written; "
                "its last modules do more than to normalise, so apply the repair to its vectors instead"
            )

    def compare(self, fit: Fit, sentences: Sequence[str]) -> Geometry:
        """The model's vectors of sentences without and with the repair; `check` compared the written ones."""
        x = self._embed(sentences)
        return compare(self._given(x), self._given(fit.transformation.transform(x)))

    def _given(self, x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x) if self._normalizes else x

    def _embed(self, sentences: Sequence[str]) -> Tensor:
        """Each sentence is embedded once."""
        new = [sentence for sentence in sentences if sentence not in self._vectors]
        progress = self._progress
        tick = None if progress is None else lambda done: progress("embedding sentences", done, len(new))
        if new:
            self._vectors.update(zip(new, embed(self._before, new, progress=tick), strict=True))
        return torch.stack([self._vectors[sentence] for sentence in sentences])


def narrow_dtype(model: Any) -> torch.dtype | None:
    """float16 or bfloat16, where the model runs in one of them."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return dtype if torch.finfo(dtype).bits == 16 else None


def told_of_rounding(got: Tensor, expected: Tensor, dtype: torch.dtype) -> str:
    """How far vectors (N, K) of a model in 16 bits are from the repaired ones that are computed in float32.

    Raises:
        InputError: farther than rounding explains.
    """
    name = str(dtype).removeprefix("torch.")
    apart = float("nan")
    if got.shape == expected.shape:
        apart = float((got - expected).norm(dim=1).max() / expected.norm(dim=1).max())
    if not apart <= ROUNDINGS * torch.finfo(dtype).eps:
        raise InputError(
            f"expected the written model to give the repaired vectors up to the rounding of {name}, in which "
            f"it runs, got others by {apart:.2g} of the longest: nothing was written; save the model in "
            "float32 first, or apply the repair to its vectors instead"
        )
    return (
        f"The model runs in {name}, and its new layer too: its vectors are up to {percent(apart)} of the "
        "longest off those that are measured here, which the repair gives in float32."
    )


def told_of_split(fitted: int, measured: int) -> tuple[str, ...]:
    """Notes on the sentences that were fitted on, and on those that were measured."""
    split = f"Fitted on {fitted} sentences, measured on {measured} others of the same text."
    if measured >= FEW:
        return (split,)
    return (
        split,
        f"{measured} sentences are few: others may give another verdict. Give more text.",
    )


def _refuse_early(name: str | None) -> None:
    """What cannot stand in a model is said before its sentences are embedded."""
    if name is None:
        return
    if name in ZIPF_REPAIRS:
        raise InputError(
            f"expected a repair of sentences, got {name} of tokens: choose {name.removeprefix('zipf_')}"
        )
    transformation = repair_named(name, d=2**31)
    if not transformation.affine:
        affine_of(transformation, WHERE)
