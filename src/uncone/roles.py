"""What a public function does with the file that an argument names: commands check files by it."""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, Literal

Path_ = str | os.PathLike[str]
Progress = Callable[[str, int, int], None]  # called with (the step, done, in all)
DOWNLOADING = "downloading"  # steps that count bytes end with it
Ticks = Callable[[int], None] | None  # called with the number of rows that are done
Told = Callable[[int, int], None] | None  # called with (done, in all)


class Role(Enum):
    SPEC = "reads rows or a model"
    READ = "reads a file or a folder"
    WRITE = "writes a file"
    OUT = "writes a file, or a part of one, or a new folder"
    KEEP = "reads and writes files in a folder"


Source = Annotated[Any, Role.READ]  # a file, or what is in memory
Counts = Annotated[Literal["ranks"] | Any, Role.READ]  # a file, or what is in memory, or the word
Spec = Annotated[Any, Role.SPEC]  # a spec of rows or of a model, or what is in memory
Model = Annotated[Path_, Role.SPEC]
Read = Annotated[Path_ | None, Role.READ]
Paths = Annotated[Path_ | Sequence[Path_], Role.READ]
Texts = Annotated[Path_ | Sequence[str], Role.READ]  # a file, or a list of texts
Write = Annotated[Path_ | None, Role.WRITE]
Keep = Annotated[Path_ | None, Role.KEEP]
Out = Annotated[Path_, Role.OUT]
Vectors = Annotated[Any, Role.SPEC]  # your own vectors, or None
Several = Annotated[Path_ | Sequence[Path_] | None, Role.READ]

EngineName = Literal["processes", "ray"]
RANKS = "ranks"  # in the place of counts: rows are in order of frequency, the most frequent first


def are_ranks(counts: Any) -> bool:
    """Whether the word was given; a file of this name is `./ranks`, or a Path."""
    return isinstance(counts, str) and counts == RANKS
