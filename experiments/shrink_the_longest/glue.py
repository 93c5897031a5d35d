"""MRPC and CoLA as GLUE splits them, from the original files."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
Texts = tuple[str, ...]
VALIDATION_OF_COLA = 855
"""Training sentences that stand in for a validation set in the pilot, since the development sentences are what is reported."""


@dataclass(frozen=True)
class Items:
    """Sentences or pairs, and their classes."""

    texts: tuple[Texts, ...]
    labels: Tensor
    """(N,) int64, 0 or 1."""

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, rows: Tensor) -> "Items":
        return Items(tuple(self.texts[row] for row in rows.tolist()), self.labels[rows])


@dataclass(frozen=True)
class Task:
    """What a model is trained on and what it is judged by."""

    train: Items
    evaluation: Items
    digest: str
    """SHA-256 of all texts and labels."""


def load(task: str, data: Path, *, pilot: bool = False) -> Task:
    """A task by name from a folder that holds MRPC/ and CoLA/.

    Args:
        pilot: judge by items that the experiment does not report on: MRPC's development pairs, and training sentences of CoLA, which are then not trained on.

    Raises:
        InputError: no such task, or files that are missing or are not what GLUE's are.
    """
    if task not in TASKS:
        raise InputError(f"expected a task of {', '.join(TASKS)}, got {task!r}")
    train, evaluation = TASKS[task](data, pilot)
    written = repr([(one.texts, one.labels.tolist()) for one in (train, evaluation)])
    return Task(train, evaluation, hashlib.sha256(written.encode()).hexdigest())


def _mrpc(data: Path, pilot: bool) -> tuple[Items, Items]:
    # GLUE's own test.tsv has no labels; the original file has them, with the same pairs in the same order.
    held_out = "dev.tsv" if pilot else "msr_paraphrase_test.txt"
    return _read(data / "MRPC/train.tsv", 0, (3, 4), header=True), _read(
        data / "MRPC" / held_out, 0, (3, 4), header=True
    )


def _cola(data: Path, pilot: bool) -> tuple[Items, Items]:
    train = _read(data / "CoLA/in_domain_train.tsv", 1, (3,), header=False)
    if pilot:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(12345))
        return train.at(order[VALIDATION_OF_COLA:]), train.at(order[:VALIDATION_OF_COLA])
    parts = [_read(data / f"CoLA/{part}_domain_dev.tsv", 1, (3,), header=False) for part in ("in", "out_of")]
    return train, Items(parts[0].texts + parts[1].texts, torch.cat([part.labels for part in parts]))


TASKS: dict[str, Callable[[Path, bool], tuple[Items, Items]]] = {"mrpc": _mrpc, "cola": _cola}


def _read(file: Path, label: int, sentences: tuple[int, ...], *, header: bool) -> Items:
    """Columns of a tab-separated file whose quotation marks are text."""
    if not file.is_file():
        raise InputError(
            f"expected the file {file.name} of GLUE in {file.parent.name}/: name the folder of MRPC/ and CoLA/ with --data"
        )
    lines = file.read_text(encoding="utf-8-sig").split("\n")[1 if header else 0 :]
    texts, labels = list[Texts](), list[int]()
    for at, line in enumerate(lines, 2 if header else 1):
        if not line.strip():
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) <= max(sentences) or cells[label] not in ("0", "1"):
            raise InputError(
                f"expected a label 0 or 1 and {max(sentences) + 1} columns, got another line {at} of {file.name}"
            )
        texts.append(tuple(cells[column] for column in sentences))
        labels.append(int(cells[label]))
    if not texts:
        raise InputError(f"expected items in {file.name}, got none")
    return Items(tuple(texts), torch.tensor(labels))
