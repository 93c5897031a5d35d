"""Causes, each with its evidence and a repair, and the verdict over all. Each threshold has a reason."""

import math
import statistics
from collections.abc import Mapping

from uncone.records import Finding, Group, Groups, Measurement, Subject, UnderTrained
from uncone.records.text import counted, listing, percent, plural

DRIFT = 0.1
"""Cosines of 100 to 1,000 features scatter by 0.03 to 0.1: beyond, the common part outweighs that."""
SEVERE_DRIFT = 0.5
"""Half of every cosine is the same for all pairs: unrelated rows pass for related ones."""
FEWEST_ROWS = 30
"""With fewer rows the numbers are given, but sampling decides them, and nothing is concluded."""
NOISE_SIGMAS = 4.0
"""A reading counts beyond its threshold by so many standard errors of an isotropic cloud of the same size."""
ROGUE_SHARE = 0.2
"""One dimension with a fifth of the mean cosine (or of the variance) decides similarities by itself."""
EVEN_TIMES = 5.0
"""With few dimensions an even share is large already: a rogue one has at least five times as much."""
ROGUE_COSINE = 0.05
"""Below this mean cosine there is hardly anything that a rogue dimension could carry."""
TAIL_EXCESS = 0.2
"""Rows this much closer to the reserved rows than to each other share the reserved rows' direction."""
TAIL_SHARE = 0.2
"""A fifth of all rows in the degenerate tail is no longer a tail."""
COLLAPSED = 0.5
"""Reserved rows with this mean cosine among themselves are near-copies of one vector."""
LOW_RANK = 0.5
"""Half of the effective rank an isotropic cloud has: as much would be stored in half of the dimensions."""
VERY_LOW_RANK = 0.2
"""A fifth of it."""
Values = Mapping[str, Measurement]
TOO_LITTLE = "Too little to judge: too few rows, or rows so equal that measures are undefined."
_SHOWN = 4
_TOKENS_SHOWN = 8
MANY = 0.01
"""Land & Bartolo 2024 confirm 0.1 to 1% of most vocabularies: beyond, it is no longer usual."""
NORM_COUPLING = 0.5
"""Where ids are sorted by frequency, length tells at this rank correlation how often a token occurs."""

_NAMES = {"input": "the input token table", "head": "the output head", "rows": "the collection"}
_PROBLEMS = {
    "common_direction_drift": "its rows drift in a common direction (mean cosine {mean_cosine})",
    "rogue_dimensions": "a few rogue dimensions decide its similarities",
    "degenerate_tail": "its tail is degenerate ({tail})",
    "low_effective_rank": "its rows fill {effective_rank} of {d} dimensions",
    "under_trained_tokens": "{under_trained} untrained",
    "norm_id_coupling": "the length of its rows follows their ids (correlation {norm_id_correlation})",
}


def find(
    measurements: tuple[Measurement, ...],
    groups: Groups | None,
    *,
    head: bool,
    under_trained: UnderTrained | None = None,
) -> tuple[Finding, ...]:
    """The causes that the numbers of one matrix (a centred head) give, the worst first, or `healthy`."""
    rows = max((m.n for m in measurements), default=0)
    if rows < FEWEST_ROWS:
        evidence = f"{counted(rows, 'row')}, where at least {FEWEST_ROWS} are needed to judge"
        return (Finding("not_measured", "note", TOO_LITTLE, (evidence,), "Pass more rows."),)
    values = {m.name: m for m in measurements if m.value is not None}
    causes = [] if head else _drift(values)
    causes += _rogue(values) + _tail(values, groups) + _rank(values) + _coupling(values)
    tail_is_named = any(f.cause == "degenerate_tail" and f.level != "note" for f in causes)
    causes += find_under_trained(under_trained, tail_is_named=tail_is_named)
    causes.sort(key=lambda finding: ("severe", "warning", "note").index(finding.level))
    if all(finding.level == "note" for finding in causes):
        causes.insert(0, _healthy(values, head=head))
    return tuple(causes)


def _told(values: Values, **words: str) -> tuple[str, ...]:
    """Those of the named measures that were taken, in words, each beside its isotropic value."""
    taken = ((values[name], text) for name, text in words.items() if name in values)
    return tuple(
        f"{text.format(float(m), percent=percent(float(m)), d=m.d)} (isotropic: {_number(m.reference)})"
        for m, text in taken
    )


def _drift(values: Values) -> list[Finding]:
    cosine = values.get("mean_cosine")
    if cosine is None or float(cosine) < DRIFT + NOISE_SIGMAS * math.sqrt(2 / cosine.d) / cosine.n:
        return []
    return [Finding(
        "common_direction_drift", "severe" if float(cosine) >= SEVERE_DRIFT else "warning",
        "All rows share a common direction, so cosines are high between rows that have nothing to do with "
        "each other.",
        _told(
            values, mean_cosine="two random rows have a mean cosine of {:.3f}",
            mean_shift="the mean row is {percent} as long as an average row",
            partition_isotropy="I(W) over both signs is {:.3g}",
        ),
        "Centre the rows (subtract the mean row), for cosine search in queries and documents alike; if one "
        "or two directions still lead, remove those top components too.",
    )]  # fmt: skip


def _rogue(values: Values) -> list[Finding]:
    evidence, cosine = [], values.get("mean_cosine")
    carried = {"rogue_dimensions": "mean cosine"} if cosine and float(cosine) >= ROGUE_COSINE else {}
    for name, total in (carried | {"dominant_dimension": "variance"}).items():
        share = values.get(name)
        if share is not None and float(share) >= max(ROGUE_SHARE, EVEN_TIMES / share.d):
            told = share.details
            dimension = told["dimensions"][0] if total == "mean cosine" else told["dimension"]
            even = f"(even spread: {_number(share.reference)})"
            evidence.append(f"dimension {dimension} carries {percent(float(share))} of the {total} {even}")
    return [Finding(
        "rogue_dimensions", "warning",
        "A few dimensions dominate: similarities are decided by them, whatever the other dimensions say.",
        tuple(evidence),
        "Standardise the features (subtract each mean, divide by each standard deviation), or remove the "
        "named dimensions from similarities.",
    )] if evidence else []  # fmt: skip


def _tail(values: Values, groups: Groups | None) -> list[Finding]:
    if groups is None or groups.reserved_group is None or "mean_cosine" not in values:
        return []
    everywhere, reserved = float(values["mean_cosine"]), groups.reserved_group
    leaning = leaning_bins(groups, everywhere, values["mean_cosine"].d)
    themselves = f"mean cosine {_number(reserved.mean_cosine)} among themselves"
    among = f"{groups.reserved}: {themselves}, {everywhere:.3f} among all rows"
    if not leaning:
        if reserved.mean_cosine is None or reserved.mean_cosine < max(COLLAPSED, everywhere + TAIL_EXCESS):
            return []
        return [Finding(
            "degenerate_tail", "note",
            "The reserved rows are near-copies of one vector, but no other rows follow them.", (among,),
            "Nothing to do unless these rows come into use: then re-initialise them first.",
        )]  # fmt: skip
    whom, other = "the reserved rows, which no text ever trained", "the reserved rows"
    if not groups.reserved_by_name:
        whom, other = "one common point", groups.reserved.partition(",")[0]
    affected = sum(g.n - g.reserved_rows * groups.reserved_by_name for g in leaning)
    closest = sorted(leaning, key=lambda g: -(g.cosine_to_reserved or 0.0))[:_SHOWN]
    return [Finding(
        "degenerate_tail", "severe" if affected > TAIL_SHARE * sum(g.n for g in groups.bins) else "warning",
        f"Rare rows are degenerate: the {counted(affected, 'row')} of {_spans(leaning)} "
        f"{plural(affected, 'leans', 'lean')} toward {whom}.",
        (among, *(f"{g.name}: mean cosine {g.cosine_to_reserved:.3f} to {other}" for g in closest)),
        "Do not trust similarities of these rows; re-initialise them from their sub-tokens, or train on with "
        "the gradient on rare rows gated.",
    )]  # fmt: skip


def leaning_bins(groups: Groups, everywhere: float, d: int) -> list[Group]:
    """Bins, not mostly of reserved rows, far closer to those than rows are to each other (`everywhere`)."""
    reserved = groups.reserved_group
    if reserved is None or (not groups.reserved_by_name and not _stands_out(reserved, groups)):
        return []
    return [
        g
        for g in groups.bins
        if g.cosine_to_reserved is not None
        and g.cosine_to_reserved - everywhere >= TAIL_EXCESS + NOISE_SIGMAS / math.sqrt(d * g.n * reserved.n)
        and (2 * g.reserved_rows < g.n or not groups.reserved_by_name)
    ]


def _stands_out(last: Group, groups: Groups) -> bool:
    """Whether the last ids have more in common than a usual bin: in sorted rows every bin has much."""
    usual = statistics.median([g.mean_cosine for g in groups.bins if g.mean_cosine is not None] or [0.0])
    return last.mean_cosine is not None and (len(groups.bins) < 2 or last.mean_cosine >= usual + TAIL_EXCESS)


def _spans(bins: list[Group]) -> str:
    """The ids of bins in words, neighbours joined: "ids 1,000 to 1,999 and 29,000 to 30,521"."""
    starts = [g.start for i, g in enumerate(bins) if not i or bins[i - 1].stop != g.start]
    stops = [g.stop for i, g in enumerate(bins) if i + 1 == len(bins) or bins[i + 1].start != g.stop]
    parts = [f"{start:,} to {stop - 1:,}" for start, stop in zip(starts, stops, strict=True)]
    more = [counted(len(parts) - _SHOWN, "more span")] if len(parts) > _SHOWN else []
    return f"ids {listing(parts[:_SHOWN] + more)}"


def _rank(values: Values) -> list[Finding]:
    rank = values.get("effective_rank")
    if rank is None or rank.reference is None or float(rank) >= LOW_RANK * rank.reference:
        return []
    return [Finding(
        "low_effective_rank", "severe" if float(rank) < VERY_LOW_RANK * rank.reference else "warning",
        "The rows fill only part of their dimensions.",
        _told(values, effective_rank="effective rank {:.1f} of {d}", isoscore="IsoScore {:.3f}"),
        "Whiten softly (power 0.5) for similarities, or keep the leading components: the others hold little.",
    )]  # fmt: skip


def _coupling(values: Values) -> list[Finding]:
    coupling = values.get("norm_id_correlation")
    if not coupling or abs(float(coupling)) < max(NORM_COUPLING, NOISE_SIGMAS / math.sqrt(coupling.n - 1)):
        return []
    way = "shorter" if float(coupling) < 0 else "longer"
    return [Finding(
        "norm_id_coupling", "warning",
        f"Rows with higher ids are {way}: where ids are sorted by frequency, length says how rare a token "
        "is, and inner products follow it.",
        (f"Spearman correlation between norm and id {float(coupling):.2f} (isotropic: 0)",),
        "Compare rows by cosine instead of inner product, or subtract the mean direction scaled by each "
        "row's norm (scaled centring).",
    )]  # fmt: skip


def find_under_trained(under_trained: UnderTrained | None, *, tail_is_named: bool) -> list[Finding]:
    """A note that names tokens, or a warning where they are many and no finding has named them yet."""
    if under_trained is None or not under_trained.found:
        return []
    u, n = under_trained, under_trained.found
    evidence = [f"{n:,} of {u.tested:,} rows, at a false-discovery rate of {100 * u.rate:g}%: {u.definition}"]
    if u.known:
        known, looks = counted(u.known, "row"), counted(u.known_found, "looks", "look")
        evidence.append(f"of the {known} known to be unused, {looks} it by the same measure")
    tokens = [repr(token.token) for token in u.tokens if not token.expected and token.token is not None]
    if tokens:
        evidence.append(f"first: {', '.join(tokens[:_TOKENS_SHOWN])}")
    told = f"{counted(n, 'token looks', 'tokens look')} as if no text had trained {plural(n, 'it', 'them')}"
    return [Finding(
        "under_trained_tokens", "warning" if n > MANY * u.tested and not tail_is_named else "note",
        f"{told}, though not reserved.", tuple(evidence),
        "Try them in a prompt before use; map input that holds them to other tokens, or re-initialise their "
        "rows from their sub-tokens.",
    )]  # fmt: skip


def _healthy(values: Values, *, head: bool) -> Finding:
    names = ("effective_rank", "isoscore") if head else ("mean_cosine", "isoscore", "effective_rank")
    evidence = _told(values, **{name: f"{name.replace('_', ' ')} {{:.3g}}" for name in names})
    if len(evidence) < len(names):
        advice = "Pass more rows, or rows that differ; each measure says what it lacked."
        return Finding("not_measured", "note", TOO_LITTLE, evidence, advice)
    healthy = "No sign of degeneration: rows point in all directions and fill their dimensions."
    return Finding("healthy", "healthy", healthy, evidence, "Nothing to repair.")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def give_verdict(subjects: tuple[Subject, ...]) -> str:
    """One sentence over all subjects: healthy or not, and if the headline hides something, what it hides."""
    sentence = "; ".join(map(_clause, subjects))
    return sentence[:1].upper() + sentence[1:] + "."


def _clause(subject: Subject) -> str:
    name = _NAMES.get(subject.name, subject.name)
    levels = {finding.cause: finding.level for finding in subject.findings}
    causes = [cause for cause, level in levels.items() if level in ("warning", "severe")]
    values = {m.name: _short(m.value) for m in subject.measurements if m.value is not None}
    shown = {"mean_cosine": "mean cosine", "isoscore": "IsoScore"}
    if subject.name == "head":  # its mean cosine is a matter of gauge, and 0 once centred
        shown = {"isoscore": "IsoScore", "effective_rank": "effective rank"}
    headline = ", ".join(f"{words} {values[key]}" for key, words in shown.items() if key in values)
    if "not_measured" in levels:
        return f"{name} could not be judged: its {counted(subject.n, 'row is', 'rows are')} too little"
    if not causes:
        return f"{name} looks healthy ({headline})"
    n = 0 if subject.under_trained is None else subject.under_trained.found or 0
    untrained = f"{n:,} of its tokens {plural(n, 'looks', 'look')}"
    tail = _tail_words(subject) if "degenerate_tail" in causes else ""
    told = values | {"tail": tail, "d": subject.d, "under_trained": untrained}
    problems = [_PROBLEMS[cause].format(**told) for cause in causes]
    is_severe = "severe" in levels.values()
    if causes == ["degenerate_tail"] and not is_severe:
        return f"{name} looks healthy as a whole ({headline}), but {problems[0]}"
    return f"{name} is {'severely ' if is_severe else ''}degenerate: {listing(problems)}"


def _tail_words(subject: Subject) -> str:
    groups = subject.groups
    assert groups is not None  # the finding came from them
    leaning = leaning_bins(groups, float(subject.measurement("mean_cosine")), subject.d)
    worst = max(leaning, key=lambda g: g.cosine_to_reserved or 0.0)
    whom = "reserved rows that were never trained" if groups.reserved_by_name else "the last ids"
    return f"{worst.name} have a mean cosine of {_short(worst.cosine_to_reserved)} to {whom}"


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"
