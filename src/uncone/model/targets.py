"""Refuse to write over what is read, or over a file of a model that is read."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from uncone.atomic import check_apart, is_new_result, lies_in
from uncone.errors import InputError
from uncone.model.gguf import is_model_file
from uncone.model.open import Spec, open_spec
from uncone.regular import open_regular
from uncone.rows.open import split_part


def check_targets_apart(
    targets: Iterable[Spec | None], specs: Iterable[object], sources: Iterable[Spec | None] = ()
) -> None:
    named = [Path(target) for target in targets if target is not None]
    if not named:
        return
    files, models = [Path(source) for source in sources if source is not None], []
    for spec in specs:
        if not isinstance(spec, str | os.PathLike):
            continue
        opened = open_spec(spec)
        path = opened.path
        # The other parts of a GGUF model are read too.
        files += [Path(split_part(one)[0]) for one in getattr(opened, "specs", ())]
        files += [path, *(path.parent.glob(f"*{path.suffix}") if is_model_file(path) else ())]
        if not path.is_dir():  # a file is in the folder of its model, or one folder further down
            is_of_a_model = path.name.endswith((".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"))
            models += [folder for folder in path.parents[:2] if is_of_a_model and _holds_a_model(folder)]
        elif opened.is_model:
            models.append(path)
        else:  # the folder's next reader would read another file there, but not a result
            for target in named:
                if not is_new_result(target) and lies_in(target, path):
                    got = f"{target} in folder {path}, whose files are read: choose another place"
                    raise InputError(f"expected an output file other than the input, got {got}")
    check_apart(named, files, models)


def _holds_a_model(folder: Path) -> bool:
    marks = ("modules.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")
    if any((folder / mark).exists() for mark in marks):
        return True
    with suppress(InputError), open_regular(folder / "config.json") as file:
        text = file.read(2**20)
        return b'"model_type"' in text or b'"architectures"' in text
    return False
