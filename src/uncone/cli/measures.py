"""`uncone measures`."""

from uncone.cli.answer import hand_over


def measures(name: str | None = None, /) -> None:
    """List all measures with range and direction, or describe one: formula, source, and when it reads badly.

    Args:
        name: A measure, or a reading of one such as effective_rank_raw.
    """
    from uncone.diagnosis.measures import measures as run

    hand_over(run(name or ""))
