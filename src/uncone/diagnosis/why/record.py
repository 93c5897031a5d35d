"""The part of a diagnosis on texts: why rows and states lie as they do."""

from uncone.diagnosis.why.direction.record import NegativeDirection
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.diagnosis.why.layers.record import LayerProfile
from uncone.diagnosis.why.margins.record import MarginClaim
from uncone.diagnosis.why.reach.record import SettableTokens, UnreachableTokens
from uncone.records.blocks import Block, Bullets
from uncone.records.brief import part
from uncone.records.layout import beneath, section
from uncone.tokens.record import TokenFrequencies


@part
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
        frequencies = () if self.frequencies is None else beneath("Frequency of tokens", self.frequencies.blocks())
        parts = (self.layers, self.direction, self.gradients, self.margins, self.unreachable, self.settable)
        told = tuple(part.blocks() for part in parts if part is not None)
        return section("Why", Bullets(self.clauses, "lead"), frequencies, *told, Bullets(self.notes), level=2)
