"""The part of a diagnosis on softmax margins: whether what rows have in common shrinks them."""

from uncone.records.blocks import Block, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section
from uncone.records.text import count, number, percent

_SHARES = (0.0, 1.0)


@part
class HeadMargin:
    """The margins of one head: logit of the target less the largest other one.

    `by_norm` is the mean margin over the mean norm of rows, `positive` the share of targets with a margin above 0, and
    `change` the largest change of any margin, over the mean absolute margin of the head as stored.
    """

    name: str  # what was taken out
    margin: float  # mean of the target's logit less the largest other one
    by_norm: float  # that over the mean norm of rows
    positive: float  # share of targets with a margin above 0
    nats: float  # mean cross-entropy
    change: float  # largest change of a margin, over the mean absolute margin as stored


@part
class MarginClaim:
    """Margins of `targets` targets under a head as stored (the first of `heads`), and without what its rows share.

    `holds` says that the mean row is without effect on every margin, as it is but for rounding where logits are not
    capped.
    """

    verdict: str  # what the mean row does to margins
    targets: int  # targets that were read
    holds: bool  # that no margin changes without the mean row
    heads: tuple[HeadMargin, ...]  # as stored, then without what rows share

    def blocks(self) -> tuple[Block, ...]:
        columns = ("head", "mean margin", "over rows' norm", "above 0", "nats", "largest change")
        rows = tuple(
            (
                head.name,
                number(head.margin),
                number(head.by_norm),
                percent(head.positive, precise=True),
                number(head.nats, digits=4),
                number(head.change, digits=2),
            )
            for head in self.heads
        )
        return section(
            "Whether shared components shrink the softmax margin",
            Text(self.verdict, "lead"),
            Table(columns, rows, columns[1:]),
            Text(
                f"Margin: the target's logit less the largest other one, in nats, of {count(self.targets)} targets. "
                "Largest change: of any margin, over the mean absolute margin as stored. Over rows' norm: the mean "
                "margin over the mean norm of rows.",
                "quiet",
            ),
        )
