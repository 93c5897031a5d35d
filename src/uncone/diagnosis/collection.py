"""What is particular to a collection of vectors: names of its rows, scores of random pairs, hubs, near-duplicates."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from uncone.errors import InputError
from uncone.records.parts import Finding, Groups, Level, Measurement, NearDuplicates, OddRows, RandomScores
from uncone.records.text import counted, listing, number, percent, plural, shortened
from uncone.regular import table_lines
from uncone.rows import Rows
from uncone.rows.ids import ids_beside

HUB = 5.0  # times the average; in random clouds no row is found three times as often
HUB_SHARE = 0.1  # of all rows: a row that one search in ten returns decides what users see
COPIED_SHARE = 0.2  # of all rows: words and short texts have near-duplicates by right, but hardly a fifth of them
REPEATED = 3  # rows with one vector: two may be a text that is there twice
_EMPTY = "empty texts, and default vectors for texts that failed, look like this"


def named_rows(rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """The rows with their own ids as labels where they have no labels, or the lines of NAME.ids next to
    NAME.npy; and notes."""
    if rows.labels is not None:
        return rows, ()
    names, notes = rows.keys, tuple[str, ...]()
    if path := ids_beside(rows):
        names, notes = _lines_of(path, rows)
    if names is None:
        return rows, notes
    named = copy.copy(rows)  # the caller's object keeps what it has
    named.load_labels = lambda: names
    return named, notes


def _lines_of(path: Path, rows: Rows) -> tuple[list[str | None] | None, tuple[str, ...]]:
    """One line for each row of the source. Any other file is not used, and a note gives the reason."""
    try:
        lines = [line.strip() for line in table_lines(path, how="give a text file of ids, one per line")]
    except InputError as error:
        why = str(error).replace(str(path), path.name)  # a report is shared, and should not show a whole path
        return None, (f"{path.name} does not name the rows: {why}.",)
    total = rows.shape[0] + len(rows.left_out)
    if len(lines) != total:
        have = f"it has {counted(len(lines), 'line')}, but the file has {counted(total, 'row')}"
        return None, (f"{path.name} does not name the rows: {have}.",)
    kept = range(total) if rows.ids is None else rows.ids.tolist()
    return [lines[i] for i in kept], ()


def as_scores(finding: Finding, scores: RandomScores | None) -> Finding:
    """The finding of a common direction in a user's words. The direction compresses the scale of scores, and vectors
    alone cannot show whether it harms the ranking, so it is a warning at any size."""
    if scores is None:
        return replace(finding, level="warning")
    said = two_random_rows(scores)
    summary = (
        f"{said[0].upper()}{said[1:]}. A common direction raises all scores, and so does one narrow topic. "
        "These vectors alone cannot show whether the ranking suffers."
    )
    of = f"all {scores.pairs:,} pairs"
    if scores.seed is not None:
        of = f"the {scores.pairs:,} pairs of {scores.rows:,} rows drawn at random (seed {scores.seed})"
    reached = f"1 in 100 of {of} scores {_score(scores.reached, 4)} or more"
    return replace(finding, level="warning", summary=summary, evidence=(reached, *finding.evidence))


def two_random_rows(scores: RandomScores, of: str = "") -> str:
    return f"two random rows{of} score {_score(scores.mean)}, and 1 in 100 pairs reaches {_score(scores.reached)}"


def _score(value: float, digits: int = 2) -> str:
    return number(value, digits=digits, limits=(-1.0, 1.0))


def as_leaning(tail: Iterator[Finding], groups: Groups | None) -> Iterator[Finding]:
    """The ids of a collection do not show how often a text trained a row, and its last rows may well share one topic.
    So this is a note, unless reserved rows have names, as in a table that was saved with its tokens."""
    for finding in tail:
        if not groups or groups.reserved_by_name:
            yield finding
        elif finding.is_defect:  # else the last ids are alike, as any bin may be
            who = finding.summary.partition(": ")[2].removesuffix(".")
            summary = f"{who[0].upper()}{who[1:]}, as happens when the last rows share one topic or are rare words."
            last, *others = finding.evidence
            last = last.replace(groups.reserved, groups.reserved.partition(",")[0])
            yield replace(finding, cause="leaning_rows", level="note", summary=summary, evidence=(last, *others))


def find_hubs(values: Mapping[str, Measurement]) -> Iterator[Finding]:
    """A note, because a search by queries may find other rows; a warning if one search in ten by a row finds it."""
    hubness = values.get("hubness")
    if not hubness:
        return
    details = hubness.details
    k, ids, times = details["k"], details["hubs"], details["hub_counts"]
    labels = details.get("hub_labels") or [None] * len(ids)
    hubs = [one for one in zip(ids, labels, times, strict=True) if one[2] >= HUB * k]
    if not hubs:
        return
    n, share = details["searched"], hubs[0][2] / details["searched"]
    which = f"{'At least ' * (len(hubs) == len(ids))}{counted(len(hubs), 'row is a hub', 'rows are hubs')}"
    summary = f"{which}, among the {k} nearest rows of at least {HUB * k:g} other rows. The average is {k}."
    found = [f"{named(i, label)} by {number(often, digits=4)}" for i, label, often in hubs]
    found[0] += f" of {n:,} rows ({percent(share)})"
    evidence = [f"found most often: {', '.join(found)}"]
    if details["queries"] < n:
        evidence.append(f"estimated from the nearest rows of {details['queries']:,} rows")
    level: Level = "warning" if share >= HUB_SHARE else "note"
    yield Finding("hubs", level, summary, tuple(evidence), measures=("hubness",), extent=share)


def find_near_duplicates(copies: NearDuplicates | None) -> Iterator[Finding]:
    """A note, because only the texts can show whether two rows mean the same; a warning if there are very many."""
    if not copies or not copies.n:
        return
    bar = _score(copies.bar, 4)
    asked = f"{copies.n:,} of {counted(copies.asked, 'row')} {plural(copies.n, 'has', 'have')}"
    summary = f"{asked} a near-duplicate: another row at a cosine of at least {bar}."
    pairs = ", ".join(
        f"{named(i, label)} and {named(j, other)} ({_score(cosine, 4)})"
        for i, label, j, other, cosine in zip(
            copies.ids, copies.labels, copies.twins, copies.twin_labels, copies.cosines, strict=True
        )
    )
    evidence = [
        f"the bar is at {percent(copies.share)} of the usual distance from a row to its tenth nearest row, "
        f"whose cosine is {_score(copies.usual, 3)} (median)",
        f"closest pairs: {pairs}",
    ]
    if copies.largest and copies.largest[1] >= REPEATED:
        first, size = copies.largest
        one = named(first, copies.largest_label)
        evidence.append(f"these pairs link rows into groups: the largest has {size:,} rows, such as {one}")
    share = copies.n / copies.asked
    level: Level = "warning" if share > COPIED_SHARE else "note"
    yield Finding("near_duplicates", level, summary, tuple(evidence), extent=share)


def twins_of(odd: OddRows, *, of_tokens: bool) -> tuple[str, ...]:
    """Which row each of the listed equal rows equals, and the row that occurs most often."""
    by_twin = dict[str, list[str]]()
    # files of an older version have no twins
    for i, label, twin, other in zip(odd.ids, odd.labels, odd.twins, odd.twin_labels, strict=False):
        by_twin.setdefault(named(twin, other), []).append(named(i, label))
    lines = [f"{listing(again)} {plural(len(again), 'equals', 'equal')} {twin}" for twin, again in by_twin.items()]
    if odd.most and odd.most[1] >= REPEATED:
        often = f"{named(odd.most[0], odd.most_label)} occurs {odd.most[1]:,} times"
        lines.insert(0, often if of_tokens else f"{often}: {_EMPTY}")
    return tuple(lines)


def named(number: int, label: str | None) -> str:
    return f"{number:,}" + ("" if label is None else f" ({shortened(label)!r})")
