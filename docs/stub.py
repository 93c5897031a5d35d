"""Write src/uncone/__init__.pyi, the public names for type checkers: `python docs/stub.py`."""

from pathlib import Path

from uncone.questions import OBJECTS, QUESTIONS, ROOMS

STUB = Path(__file__).parents[1] / "src/uncone/__init__.pyi"


def stub() -> str:
    """One import for each public object of `uncone.questions`, and one for each folder."""
    records = (record.rpartition(".") for _, record, *_ in QUESTIONS.values())
    places = (
        OBJECTS | {name: file for name, (file, *_) in QUESTIONS.items()} | {name: file for file, _, name in records}
    )
    lines = [f"from uncone.{file} import {name} as {name}" for name, file in places.items()]
    lines += [f"from uncone import {room} as {room}" for room in _rooms()]
    lines += ["from uncone.version import __version__ as __version__"]
    lines = [_wrapped(line) for line in sorted(lines)]
    return "# Written by docs/stub.py from src/uncone/questions.py\n\n" + "\n".join(lines) + "\n"


def _wrapped(line: str) -> str:
    """As the formatter lays it out."""
    file, _, names = line.partition(" import ")
    return line if len(line) <= 120 else f"{file} import (\n    {names},\n)"


def _rooms() -> list[str]:
    """All folders: those of questions are reached by full names in a program that has imported what it needs of them."""
    folders = sorted(path.parent.name for path in STUB.parent.glob("*/__init__.py"))
    return sorted({*ROOMS, *folders})


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
