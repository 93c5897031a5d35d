"""What a spec names: an existing path, and what follows its '#'."""

import os
from pathlib import Path

from uncone.errors import InputError
from uncone.model import cached_snapshot
from uncone.rows.open import KINDS

_LONGEST_SPEC = 4000


def split(spec: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The existing path in a spec, and what follows its '#'. A model's name becomes the path of its cached snapshot."""
    text = os.fspath(spec)
    if len(text) > _LONGEST_SPEC or "\0" in text:
        raise InputError(f"expected {KINDS}, got a text of {len(text)} characters: give a path or a name")
    if _exists(text):
        return Path(text), None
    text, mark, part = text.partition("#") if "#" in text else (text, "", "")
    while "#" in part and not _exists(text):  # a '#' in a folder's name
        more, _, part = part.partition("#")
        text = f"{text}#{more}"
    path = Path(text)
    if _exists(text):
        return path, _part(part, spec) if mark else None
    snapshot = cached_snapshot(text)
    if snapshot is None:
        raise InputError(
            f"no file or folder {text!r}, and no model of that name in the Hugging Face cache: "
            f"expected {KINDS}; uncone downloads nothing"
        )
    return snapshot, _part(part, spec) if mark else None


def _exists(text: str) -> bool:
    if not text:  # a variable of a shell that is not set must not name the current folder
        return False
    try:
        return Path(text).exists()
    except OSError:  # longer than a file system's names
        return False


def _part(part: str, spec: str | os.PathLike[str]) -> str:
    if not part:
        raise InputError(
            f"expected a tensor's name after '#', got {os.fspath(spec)!r}: name it, or leave out the '#'"
        )
    return part


def name_of(spec: str | os.PathLike[str], path: Path) -> str:
    """What to call a model in a report that people share: as it was named, but never a whole path of their machine."""
    text = os.fspath(spec).partition("#")[0]
    return "/".join(path.resolve().parts[-2:]) if Path(text).exists() else text
