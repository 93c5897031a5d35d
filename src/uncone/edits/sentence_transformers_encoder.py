"""Saved and loaded models of Sentence Transformers: what modules.json says, and embeddings before the Normalize at a model's end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.files import read_json
from uncone.model.sentence_transformers import MODULES

Tensor = torch.Tensor
NORMALIZE = "Normalize"
_OURS = "sentence_transformers."


def read_modules(directory: Path) -> list[dict[str, Any]]:
    """The entries of modules.json: each has a type, a path and a name, which are texts.

    Raises:
        InputError: no directory of Sentence Transformers, or a modules.json that is not as it should be.
    """
    if not (directory / MODULES).is_file():
        raise InputError(
            f"expected a directory of Sentence Transformers with {MODULES}, got {directory}: give what its save wrote"
        )
    modules = read_json(directory / MODULES, list)
    for entry in modules:
        texts = [entry.get(key) for key in ("type", "path", "name")] if isinstance(entry, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"expected a type, a path and a name of each module in {directory / MODULES}, got {str(entry)[:80]!r}"
            )
        parts = PurePosixPath(entry["path"]).parts
        if ".." in parts or entry["path"].startswith("/") or "\\" in entry["path"]:
            raise InputError(
                f"expected folders inside of {directory}, got {entry['path'][:80]!r} in {MODULES}: do not trust this file"
            )
    if not modules:
        raise InputError(f"expected modules in {directory / MODULES}, got none: copy the model again")
    return modules  # type: ignore[no-any-return]


def open_encoder(directory: Path) -> Any:
    """The saved model, loaded by Sentence Transformers: no code of its own is run, and no network is asked.

    Raises:
        InputError: sentence-transformers is missing, a module is not one of its own, or it does not load.
    """
    st = package()
    for entry in read_modules(directory):
        if not entry["type"].startswith(_OURS):
            raise InputError(
                f"expected modules of sentence_transformers in {directory / MODULES}, got {entry['type'][:80]!r}: code of a model is never "
                "run; embed the sentences yourself, fit on the vectors, and give the fitted transformation with --load"
            )
    try:
        with _without_bars():
            return st.SentenceTransformer(str(directory), trust_remote_code=False, local_files_only=True)
    except Exception as error:
        told = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"expected a model that Sentence Transformers loads, got {directory} ({told}): save it again"
        ) from error


def without_normalize(model: Any) -> Any:
    """A `SentenceTransformer` of the same modules up to its Normalize: what it gives is what a repair is fitted on."""
    st = package()
    names = list(model._modules)
    kept = [
        model._modules[name]
        for name in names[: insertion([type(model._modules[name]).__name__ for name in names])]
    ]
    found = st.SentenceTransformer(
        modules=kept, prompts=model.prompts, default_prompt_name=model.default_prompt_name
    )
    return found.to(model.device).eval()


def embed(
    model: Any,
    sentences: Sequence[str],
    *,
    progress: Callable[[int], None] | None = None,
    batch: int = 64,
    at_once: int = 1024,
) -> Tensor:
    """The sentences' embeddings, float32 (N, D) on the CPU."""
    parts = []
    for start in range(0, len(sentences), at_once):
        some = list(sentences[start : start + at_once])
        found = model.encode(some, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)
        parts.append(found.detach().float().cpu())
        if progress is not None:
            progress(start + len(some))
    return torch.cat(parts)


def insertion(kinds: Sequence[str]) -> int:
    """Before the Normalize modules at the end; that is the end itself where there is none."""
    at = len(kinds)
    while at and kinds[at - 1] == NORMALIZE:
        at -= 1
    return at


@contextmanager
def _without_bars() -> Iterator[None]:
    """transformers draws a bar of its own for every model that it loads."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def package() -> Any:
    try:
        import sentence_transformers
    except ImportError as error:
        raise InputError(
            "expected sentence-transformers for such a model, got none installed: pip install 'uncone[sentence]'"
        ) from error
    return sentence_transformers
