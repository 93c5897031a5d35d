"""What a reader of a calibration should know beside its numbers."""

from uncone.calibration.floor import Floor, alignment
from uncone.calibration.labels import Labels
from uncone.calibration.sides import Side
from uncone.records import ScoreHistogram
from uncone.records.wording import counted

_UNRELATED = 0.1
_FEW = 100


def remarks(
    side: Side, other: Side | None, labels: Labels | None, histogram: ScoreHistogram, floor: Floor,
    drawn: tuple[int, int | None], equal: int,
) -> tuple[str, ...]:  # fmt: skip
    """Sentences on what was left out, drawn or counted otherwise than a reader may think."""
    notes = []
    sides = [("rows", side)] if other is None else [("rows", side), ("queries", other)]
    for what, one in sides:
        if one.n < one.moments.n:
            notes.append(f"{_counted(one.moments.n - one.n, what)} all zero: no cosine, left out.")
        if one.rows.left_out:
            notes.append(f"{_counted(len(one.rows.left_out), what)} not finite: left out, as asked.")
    if labels is not None:
        notes.append(
            f"{counted(int(labels.matches.sum()), 'pair')} labelled as a match: not counted as random."
        )
        if labels.dropped:
            notes.append(f"{counted(labels.dropped, 'labelled pair')} with a row that is all zero: left out.")
    if histogram.pairs < floor.pairs:
        of = f"{drawn[0]:,} rows" + ("" if drawn[1] is None else f" and {drawn[1]:,} queries")
        notes.append(
            f"Shares are of the {histogram.pairs:,} pairs of {of} drawn at random; mean and variance are of all pairs."
        )
    if equal:
        high = "can reach any threshold" if side.metric == "cosine" else "score what a row does with itself"
        notes.append(
            f"{counted(equal, 'pair is', 'pairs are')} of two equal rows ({equal / floor.pairs:.2g} of all) and {high}: "
            "take repeated texts out if such pairs are no mistakes."
        )
    if other is not None:
        notes += _notes_on_queries(side, other)
    if min(one.n for _, one in sides) < _FEW:
        notes.append(f"There are fewer than {_FEW} rows or queries: the intervals rest on little.")
    return tuple(notes)


def _counted(n: int, what: str) -> str:
    return counted(n, {"rows": "row is", "queries": "query is"}[what], f"{what} are")


def _notes_on_queries(side: Side, other: Side) -> list[str]:
    notes, d = [], side.rows.shape[1]
    aligned = alignment(side, other)
    if min(side.n, other.n) > d and aligned < _UNRELATED:
        notes.append(
            f"Queries and rows prefer no common directions (alignment {aligned:.2f} of 1): are they from the same model?"
        )
    ratio = other.moments.mean_norm() / side.moments.mean_norm() if side.moments.mean_norm() else 1.0
    if side.metric == "inner_product" and not 1 / 3 < ratio < 3:
        notes.append(f"Queries are {ratio:.2g} times as long as rows: are they from the same model?")
    return notes
