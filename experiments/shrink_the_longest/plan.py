"""Which cells there are, in which order they are run, and with which settings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Settings:
    """How a cell is trained; part of its file, and a cell of other settings is another cell."""

    rate: float
    decay: float
    steps: int
    batch: int = 64
    warm_up: float = 0.1
    """Share of the steps, linear; then a cosine down to 0."""
    longest: int = 128
    precision: str = "bf16"
    """Of the encoder's products ("bf16" is autocast). The head, the loss and the penalty are float32 always."""
    last: float = 0.3
    """Share of the steps at the end over which anisotropy scores are averaged."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Schedule:
    """Rate and weight decay of each task, and how many steps each task and number of examples gets."""

    rates: dict[str, tuple[float, float]]
    steps: dict[tuple[str, int | None], int]


SCHEDULES = {
    # The paper's Table 1, and ten epochs.
    "paper": Schedule(
        {"mrpc": (8e-5, 8e-6), "cola": (5e-5, 5e-6)},
        {
            ("mrpc", None): 570,
            ("mrpc", 300): 40,
            ("mrpc", 1000): 150,
            ("cola", None): 1330,
            ("cola", 300): 40,
            ("cola", 1000): 150,
        },
    ),
    # The packaged MiniLM's, chosen by the pilot: see README.md.
    "packaged": Schedule(
        {"mrpc": (3e-4, 8e-6), "cola": (2e-4, 5e-6)},
        {
            ("mrpc", None): 114,
            ("mrpc", 300): 40,
            ("mrpc", 1000): 60,
            ("cola", None): 200,
            ("cola", 300): 40,
            ("cola", 1000): 60,
        },
    ),
}
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


def settings(cell: Cell, schedule: str, *, steps: int | None = None, precision: str = "bf16") -> Settings:
    """The settings of a cell; another number of examples than planned gets ten epochs."""
    chosen = SCHEDULES[schedule]
    usual = chosen.steps.get((cell.task, cell.examples)) or 10 * ((cell.examples or 64) // 64)
    return Settings(*chosen.rates[cell.task], steps or usual, precision=precision)


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
