"""Why rows and states are where they are, as texts show it."""

from uncone.diagnosis.why.direction.record import NegativeDirection
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.diagnosis.why.layers.record import LayerProfile
from uncone.diagnosis.why.margins.record import MarginClaim
from uncone.diagnosis.why.reach.record import SettableTokens, UnreachableTokens
from uncone.records.blocks import Blocks, Bullets
from uncone.records.brief import part
from uncone.records.layout import beneath, section
from uncone.tokens.record import TokenFrequencies


@part
class Explanation:
    """What texts show about a model: one part for each question. If a part is None, `notes` give the reason."""

    clauses: tuple[str, ...]  # the answers in short
    frequencies: TokenFrequencies | None = None  # how often tokens occur
    layers: LayerProfile | None = None  # the states of every layer
    direction: NegativeDirection | None = None  # the direction that all states avoid
    gradients: GradientLedger | None = None  # the parts of the head's gradient
    margins: MarginClaim | None = None  # softmax margins with and without what rows share
    unreachable: UnreachableTokens | None = None  # tokens that can never be predicted
    settable: SettableTokens | None = None  # sets of tokens that a state can put on top
    notes: tuple[str, ...] = ()  # why a part is missing

    def blocks(self) -> Blocks:
        counted = beneath("Frequency of tokens", self.frequencies.blocks()) if self.frequencies else ()
        parts = (self.layers, self.direction, self.gradients, self.margins, self.unreachable, self.settable)
        of_parts = (part.blocks() for part in parts if part)
        return section("Why", Bullets(self.clauses, "lead"), counted, *of_parts, Bullets(self.notes), level=2)
