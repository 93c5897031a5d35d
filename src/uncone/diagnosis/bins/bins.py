"""Bins of ids that lean to untrained rows, or that are near-copies of one vector."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from uncone.diagnosis.advice import Advice
from uncone.diagnosis.record import unreserved_bins
from uncone.records.parts import Finding, Group, Groups, Level, Measurement, OddRows
from uncone.records.text import counted, listing, plural

NOISE_SIGMAS = 4.0
"""A reading must pass its threshold by this many standard errors of an isotropic cloud."""
TAIL_EXCESS = 0.2  # rows so much closer to the reserved rows than to each other share their direction
TAIL_SHARE = 0.2  # a fifth of all rows is no longer a tail, and no longer odd
COLLAPSED = 0.5  # rows with this mean cosine among themselves have more in common than apart
NEAR_COPIES = 0.9  # tokens with this one are near-copies: two of them are about 26 degrees apart
SAME = 0.95  # of the way from the mean cosine of all rows to 1; rows of a collection are alike at `COLLAPSED` of it
Values = Mapping[str, Measurement]
_SHOWN = 4


def find_tail(values: Values, groups: Groups | None) -> Iterator[Finding]:
    if not groups or not groups.reserved_group or "mean_cosine" not in values:
        return
    cosine, within = values["mean_cosine"], groups.reserved_group.mean_cosine
    leaning, everywhere = leaning_bins(groups, cosine), float(cosine)
    themselves = f"{'unknown' if within is None else f'{within:.3g}'} among themselves"
    evidence = [f"{groups.reserved}: mean cosine {themselves}, {everywhere:.3f} among all rows"]
    if not leaning:
        is_alike = (within or 0) >= max(COLLAPSED, everywhere + TAIL_EXCESS)
        if (
            is_alike and groups.named != "special"
        ):  # for special tokens the test of untrained rows shows which are there
            are = "are near-copies of one vector" if (within or 0) >= NEAR_COPIES else "point the same way"
            whom = (
                "The reserved rows" if groups.reserved_by_name else f"The rows of {groups.reserved.partition(',')[0]}"
            )
            summary = f"{whom} {are}, but no other rows lean toward them."
            yield Finding("degenerate_tail", "note", summary, tuple(evidence))
        return
    whom, other = "the reserved rows, which no text ever trained", "the reserved rows"
    if not groups.reserved_by_name:
        whom, other = "one common point", groups.reserved.partition(",")[0]
    elif groups.named == "special":
        whom = other = "the special tokens"
    affected = sum(g.n - g.reserved_rows * groups.reserved_by_name for g in leaning)
    share, closest = affected / sum(g.n for g in groups.bins), sorted(leaning, key=_nearness, reverse=True)[:_SHOWN]
    evidence += [f"{g.name}: mean cosine {g.cosine_to_reserved:.3f} to {other}" for g in closest]
    lean = f"{_spans(leaning)} {plural(affected, 'leans', 'lean')} toward {whom}."
    summary = f"Rare rows are degenerate: the {counted(affected, 'row')} of {lean}"
    level: Level = "severe" if share > TAIL_SHARE else "warning"
    of = ("rare.cosine_to_reserved",)
    yield Finding("degenerate_tail", level, summary, tuple(evidence), measures=of, extent=share)


def leaning_bins(groups: Groups, cosine: Measurement) -> list[Group]:
    """Bins far closer to the reserved rows than rows are to each other (`cosine`)."""
    reserved = groups.reserved_group
    if not reserved or (not groups.reserved_by_name and not _stands_out(reserved, groups)):
        return []
    return [
        g
        for g in unreserved_bins(groups)
        if g.cosine_to_reserved is not None
        and g.cosine_to_reserved - float(cosine) >= TAIL_EXCESS + NOISE_SIGMAS / math.sqrt(cosine.d * g.n * reserved.n)
    ]


def nearest_leaning(groups: Groups | None, cosine: Measurement) -> Group | None:
    return max(leaning_bins(groups, cosine) if groups else (), key=_nearness, default=None)


def _nearness(group: Group) -> float:
    return group.cosine_to_reserved or 0.0


def find_copies(values: Values, groups: Groups | None, odd: Sequence[OddRows], advice: Advice) -> Iterator[Finding]:
    """Bins of near-copies of one vector, or of rows that are alike, unless tail or equal rows explain them."""
    cosine = values.get("mean_cosine")
    if not groups or not cosine:
        return
    least, leaning = max(COLLAPSED, float(cosine) + TAIL_EXCESS), leaning_bins(groups, cosine)
    if not advice.is_of_tokens:
        least = 1 - (1 - COLLAPSED) * (1 - float(cosine))
    alike = [
        g
        for g in unreserved_bins(groups)
        if (g.mean_cosine or 0) >= least + NOISE_SIGMAS * math.sqrt(2 / cosine.d) / g.n and g not in leaning
    ]
    n, named = sum(g.n for g in alike), sum(one.n for one in odd if one.kind == "equal")
    if not alike or 2 * named >= n:
        return
    of_tokens, total = advice.is_of_tokens, sum(g.n for g in groups.bins)
    same = NEAR_COPIES if of_tokens else 1 - (1 - SAME) * (1 - float(cosine))
    copies = [g for g in alike if (g.mean_cosine or 0) >= same]
    as_ = "like rows that no text trained" if of_tokens else "or sorted by topic"
    more = "point the same way, but are not near-copies"
    more = more if of_tokens else "are more alike than others, as happens when rows are sorted by topic"
    kinds: tuple[tuple[str, list[Group], str, Level], ...] = (
        ("near_copies", copies, f"are near-copies of one vector, {as_}", "warning" if of_tokens else "note"),
        ("alike_rows", [g for g in alike if g not in copies], more, "note"),
    )
    for cause, bins, are, level in kinds:
        n = sum(g.n for g in bins)
        evidence = (
            f"ids {g.start:,} to {g.stop - 1:,}: mean cosine {g.mean_cosine:.3f}; {float(cosine):.3f} among all rows"
            for g in bins[:_SHOWN]
        )
        if bins:
            summary = f"The {counted(n, 'row')} of {_spans(bins)} {are}."
            yield Finding(cause, level, summary, tuple(evidence), extent=n / total)


def _stands_out(last: Group, groups: Groups) -> bool:
    """Whether the last ids have more in common than a usual bin; in sorted rows every bin has much in common."""
    usual = statistics.median([g.mean_cosine for g in groups.bins if g.mean_cosine is not None] or [0.0])
    return last.mean_cosine is not None and (len(groups.bins) < 2 or last.mean_cosine >= usual + TAIL_EXCESS)


def _spans(bins: list[Group]) -> str:
    """The ids of bins, with neighbours joined: "ids 1,000 to 1,999 and 29,000 to 30,521"."""
    starts = [g.start for i, g in enumerate(bins) if not i or bins[i - 1].stop != g.start]
    stops = [g.stop for i, g in enumerate(bins) if i + 1 == len(bins) or bins[i + 1].start != g.stop]
    parts = [f"{start:,} to {stop - 1:,}" for start, stop in zip(starts, stops, strict=True)]
    more = [counted(len(parts) - _SHOWN, "more span")] if len(parts) > _SHOWN else []
    return f"ids {listing(parts[:_SHOWN] + more)}"
