"""What reading a spec reads: its files, and the folder of a model, so that nothing is written over them."""

import os
from collections.abc import Iterable
from pathlib import Path

from uncone.atomic import check_apart
from uncone.model import is_model_file
from uncone.sources.models import is_model
from uncone.sources.spec import split

_OF_A_MODEL = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
_MARKS = ("config.json", "modules.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")
Path_ = str | os.PathLike[str]


def check_targets_apart(targets: Iterable[Path_ | None], specs: Iterable[object], sources: Iterable[Path_ | None] = ()) -> None:
    """Refuse to write what is read, before any work.

    Args:
        targets: files and folders to write; None where an option was not given.
        specs: what `open_rows` takes; an array is no file.
        sources: other files or folders that are read.

    Raises:
        InputError: what `atomic.check_apart` raises; a spec that names nothing.
    """
    named = [target for target in targets if target is not None]
    if not named:
        return
    files, models = [Path(source) for source in sources if source is not None], list[Path]()
    for spec in specs:
        if isinstance(spec, str | os.PathLike):
            path = split(spec)[0]
            files += _files_of(path)
            models += _models_of(path)
    check_apart(named, files, models)


def _files_of(path: Path) -> list[Path]:
    """A file or folder; of a model in one file also what may belong to it: other parts, or its tokenizer."""
    beside = path.parent.glob(f"*{path.suffix}") if is_model_file(path) else ()
    return [path, *beside]


def _models_of(path: Path) -> list[Path]:
    """The folder of the model that the path is, or is a file of."""
    if path.is_dir():
        return [path] if is_model(path) else []
    folder = path.parent
    return [folder] if path.name.endswith(_OF_A_MODEL) and any((folder / mark).exists() for mark in _MARKS) else []
