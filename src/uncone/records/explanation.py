"""The part of a diagnosis on texts: why rows and states lie as they do."""

from dataclasses import dataclass

from uncone.records.blocks import Block, Bullets
from uncone.records.cone import NegativeDirection
from uncone.records.gradients import GradientLedger
from uncone.records.layers import LayerProfile
from uncone.records.layout import beneath, section
from uncone.records.margins import MarginClaim
from uncone.records.token_frequency import TokenFrequencies
from uncone.records.unreachable import SettableTokens, UnreachableTokens


@dataclass(frozen=True)
class Explanation:
    """What texts say of a model: a part for each question. A part that is None has its reason in `notes`.

    `clauses` are the answers in short, one for each part that there is.
    """

    clauses: tuple[str, ...]
    frequencies: TokenFrequencies | None = None
    layers: LayerProfile | None = None
    direction: NegativeDirection | None = None
    gradients: GradientLedger | None = None
    margins: MarginClaim | None = None
    unreachable: UnreachableTokens | None = None
    settable: SettableTokens | None = None
    notes: tuple[str, ...] = ()

    def blocks(self) -> tuple[Block, ...]:
        frequencies = (
            () if self.frequencies is None else beneath("Frequency of tokens", self.frequencies.blocks())
        )
        parts = (
            self.layers, self.direction, self.gradients, self.margins, self.unreachable, self.settable,
        )  # fmt: skip
        told = tuple(part.blocks() for part in parts if part is not None)
        return section("Why", Bullets(self.clauses, "lead"), frequencies, *told, Bullets(self.notes), level=2)
