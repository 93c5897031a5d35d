"""The files of a command: what it may write, what it wrote, and the saved diagnoses it reads."""

from pathlib import Path

from uncone.errors import InputError
from uncone.records import Diagnosis


def check_targets(*paths: Path | None, read: tuple[Path, ...] = ()) -> None:
    """Targets that cannot be written, or would replace a file that is to be `read`, are said before the work, not after it."""
    from uncone.atomic import writable

    targets = [writable(path) for path in paths if path is not None]
    if len(set(targets)) < len(targets):
        raise InputError(f"expected two files to write, got {targets[0].name} twice: the second would replace the first")
    for source in read:
        if source.resolve() in targets:
            raise InputError(
                f"expected another file to write than those to read, got {source}: it would be replaced; give another name"
            )


def load_diagnosis(path: Path) -> Diagnosis:
    """The diagnosis in the file; where it holds none, which file of several that is."""
    try:
        return Diagnosis.load(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def tell(*written: Path | None) -> None:
    """Name the files that were written; a name may hold anything, also what no terminal should get."""
    from uncone.report.text import visible

    for path in written:
        if path is not None:
            print(f"wrote {visible(str(path))}")  # noqa: T201 - the command's answer
