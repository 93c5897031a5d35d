"""Models that the Hugging Face cache on this machine already holds. Nothing is downloaded."""

import os
import re
from pathlib import Path

from uncone.errors import InputError
from uncone.regular import open_regular

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
_REVISION = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST = 96  # the Hub's own limit on a name


def cached_snapshot(name: str) -> Path | None:
    """The cached directory of a Hub model such as "gpt2", "org/name" or "org/name@revision"; None where it is not cached.

    The revision is a branch, a tag or a full commit, "main" where none is given. Looked up under HF_HUB_CACHE,
    HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first that is set.
    A string that is no Hub name gives None too, so no path outside the cache is ever formed from it.
    """
    repository, at, revision = name.partition("@")
    if not _is_name(repository) or (at and not _is_revision(revision)):
        return None
    folder = _cache() / f"models--{repository.replace('/', '--')}"
    commit = _commit(folder, revision or "main")
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _is_name(name: str) -> bool:
    return (
        len(name) <= _LONGEST and _NAME.fullmatch(name) is not None and "--" not in name and ".." not in name
    )


def _is_revision(revision: str) -> bool:
    return len(revision) <= 255 and _REVISION.fullmatch(revision) is not None and ".." not in revision


def _commit(folder: Path, revision: str) -> str | None:
    if _COMMIT.fullmatch(revision):
        return revision
    try:
        with open_regular(folder / "refs" / revision) as handle:
            commit = handle.read(100).decode("ascii", "replace").strip()
    except (InputError, OSError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _cache() -> Path:
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if os.environ.get(variable):
            return Path(os.path.expandvars(os.environ[variable])).expanduser() / below
    return Path("~/.cache/huggingface/hub").expanduser()
