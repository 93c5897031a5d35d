"""The part of a diagnosis about softmax margins: whether what rows share shrinks them."""

from uncone.records.blocks import Blocks, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section
from uncone.records.text import count, number, percent


@part
class HeadMargin:
    name: str  # what was removed
    margin: float  # mean of the target's logit less the largest other logit
    by_norm: float  # this margin over the mean norm of rows
    positive: float  # share of targets with a margin above 0
    nats: float  # mean cross-entropy
    change: float  # largest change of a margin, over the mean absolute margin as stored


@part
class MarginClaim:
    """Margins with the head as stored, and without what its rows share."""

    verdict: str  # what the mean row does to margins
    targets: int  # targets that were read
    holds: bool  # whether no margin changes without the mean row
    heads: tuple[HeadMargin, ...]  # as stored, then without what rows share
    of_targets: int = 0  # targets in all; the targets read are evenly spaced among them

    def blocks(self) -> Blocks:
        spaced = (
            f" of {count(self.of_targets)} targets, evenly spaced" if self.of_targets > self.targets else " targets"
        )
        about = (
            f"Margin: the target's logit less the largest other logit, in nats, for {count(self.targets)}{spaced}. "
            "Largest change: the largest of any margin, over the mean absolute margin as stored. Over rows' norm: the "
            "mean margin over the mean norm of rows."
        )

        def row(head: HeadMargin) -> tuple[str, ...]:
            sizes, above = map(number, (head.margin, head.by_norm)), percent(head.positive, precise=True)
            return head.name, *sizes, above, number(head.nats, digits=4), number(head.change, digits=2)

        columns = ("head", "mean margin", "over rows' norm", "above 0", "nats", "largest change")
        return section(
            "Whether shared components shrink the softmax margin",
            Text(self.verdict, "lead"),
            numbers(columns, map(row, self.heads)),
            Text(about, "quiet"),
        )
