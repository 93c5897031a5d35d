"""Which cells there are, and in which order they are run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError

FORMAT = 1
"""Of a cell's file. Raise it when what is measured changes: kept cells of another format are run again."""
SMALL = (300, 1000)
FOLDER_OVER_STEPS = "over_steps"


@dataclass(frozen=True)
class Cell:
    """One training run."""

    task: str
    arm: str
    seed: int
    examples: int | None = None
    """How many training examples; None is all."""
    over_steps: bool = False
    """Whether all held-out items are judged at each probe, for the paper's second figure, and not at the end alone."""

    @property
    def size(self) -> str:
        return "all" if self.examples is None else str(self.examples)

    @property
    def name(self) -> str:
        """Of its file, in the folder of the model."""
        folder = f"{FOLDER_OVER_STEPS}/" if self.over_steps else ""
        return f"{folder}{self.task}_{self.size}_{self.arm}_{self.seed:02d}"


SEEDS = {"none": 10, "selected": 10, "all": 10, "length": 3}
SEEDS_OF_SMALL = {"none": 3, "selected": 3, "all": 3}
"""What six CPU hours leave."""
OVER_STEPS = (("none", "selected"), ("all",))
"""Arms whose metric is recorded over the steps, the first ones before the others, ..."""
SEEDS_OVER_STEPS = 5
"""... as many seeds each as the paper has runs."""
_ORDER: tuple[tuple[int | None, int], ...] = (
    # The main question first, two seeds of few examples early, the third if the hours last.
    *((None, seed) for seed in range(3)),
    *(one for seed in range(2) for one in ((None, seed + 3), (300, seed), (1000, seed))),
    *((None, seed) for seed in range(5, 10)),
    *((examples, 2) for examples in SMALL),
)
"""Number of training examples, and seed."""


def cells() -> Iterator[Cell]:
    """All cells, seed by seed, so that whatever is done holds the arms and tasks equally often; those over the steps last."""
    for examples, seed in _ORDER:
        for task in ("mrpc", "cola"):
            if examples is None:
                yield from (Cell(task, arm, seed) for arm, seeds in SEEDS.items() if seed < seeds)
            else:
                yield from (Cell(task, arm, seed, examples) for arm, seeds in SEEDS_OF_SMALL.items() if seed < seeds)
    for arms in OVER_STEPS:
        for seed in range(SEEDS_OVER_STEPS):
            yield from (Cell(task, arm, seed, over_steps=True) for task in ("mrpc", "cola") for arm in arms)


def parse_examples(text: str) -> int | None:
    """A number of training examples, or "all"."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 64:
        raise InputError(f"expected a number of training examples from 64 up (a batch), or all, got {text!r}")
    return int(text)


def default_data(here: Path) -> Path:
    return here.parents[1] / "../shared/data/glue"
