from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.records.blocks import Block, Blocks, Bullets, Heading
from uncone.records.layout import section, shown
from uncone.records.record import Record
from uncone.saturation.contexts.record import ContextRank
from uncone.saturation.head.excision.record import Excision
from uncone.saturation.head.gradient.record import GradientShare
from uncone.saturation.head.rank.record import RankCurve


@dataclass(frozen=True)
class HeadExamination(Record):
    """The result of `examine_head`, a part for each question."""

    READING: ClassVar[str] = (
        "Losses are for this model on this text. A head that may be smaller here may not be on another text, and "
        "a head trained at a low rank may lose less than this trained head does at that rank."
    )

    verdict: str  # a sentence on each of the first three parts
    name: str  # of the model
    text: str  # the file, or `texts`
    rank: RankCurve  # loss against rank
    gradient: GradientShare  # what the head passes back
    excision: Excision  # states without their dominant directions
    contexts: ContextRank | None = None  # of the text; `null` where scipy is not installed
    notes: tuple[str, ...] = ()  # what was left out
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions

    def blocks(self) -> Blocks:
        return shown(
            Heading(self.verdict, 1),
            self.rank.blocks(),
            self.gradient.blocks(),
            self.excision.blocks(),
            section("How many dimensions the text's contexts need", self._contexts(), level=2),
            Bullets(self.notes),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"method": line.method, "rank": rank, "loss": loss, "excess": excess, "error": error}
            for line in self.rank.lines
            for rank, loss, excess, error in zip(self.rank.ranks, line.losses, line.excess, line.errors, strict=True)
        ]

    def _contexts(self) -> Iterator[Block]:
        for block in () if self.contexts is None else self.contexts.blocks():
            yield Bullets((block.text,), "lead") if isinstance(block, Heading) and block.level == 1 else block
