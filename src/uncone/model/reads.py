"""What reading a spec reads: its files, and the folder of a model, so that nothing is written over them."""

import os
from collections.abc import Iterable
from pathlib import Path

from uncone.atomic import check_apart, is_new_result, lies_in
from uncone.errors import InputError
from uncone.model import is_model_file
from uncone.model.open import is_model, split
from uncone.regular import open_regular

_OF_A_MODEL = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
_MARKS = ("modules.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")
_SETTINGS = (b'"model_type"', b'"architectures"')
_MOST_SETTINGS = 2**20
Path_ = str | os.PathLike[str]


def check_targets_apart(
    targets: Iterable[Path_ | None], specs: Iterable[object], sources: Iterable[Path_ | None] = ()
) -> None:
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
            _check_folder(path, named)
    check_apart(named, files, models)


def _check_folder(path: Path, targets: Iterable[Path_]) -> None:
    """A folder of files of rows takes no other file but a result: its next reader would read that too."""
    for target in map(Path, targets) if path.is_dir() and not is_model(path) else ():
        if not is_new_result(target) and lies_in(target, path):
            raise InputError(
                f"expected another file to write than what is read, got {target} in the folder {path}, whose files are read: give another place"
            )


def _files_of(path: Path) -> list[Path]:
    """A file or folder; of a GGUF model also the other parts."""
    beside = path.parent.glob(f"*{path.suffix}") if is_model_file(path) else ()
    return [path, *beside]


def _models_of(path: Path) -> list[Path]:
    """The folder of the model that the path is, or lies in, at most one folder further down."""
    if path.is_dir():
        return [path] if is_model(path) else []
    return [
        folder for folder in path.parents[:2] if path.name.endswith(_OF_A_MODEL) and _holds_a_model(folder)
    ]


def _holds_a_model(folder: Path) -> bool:
    """Whether the folder has what a model's has; other programs have a config.json too."""
    if any((folder / mark).exists() for mark in _MARKS):
        return True
    try:
        with open_regular(folder / "config.json") as file:
            text = file.read(_MOST_SETTINGS)
    except InputError:
        return False
    return any(name in text for name in _SETTINGS)
