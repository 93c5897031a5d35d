"""Causes with evidence and advice, and the verdict over all. Only this file judges: verdict, tiles, pictures,
comparisons and checks repeat it. Each threshold has a reason."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from uncone.diagnosis.advice import FIRST, Advice
from uncone.diagnosis.bins.bins import NOISE_SIGMAS, TAIL_SHARE, Values, find_copies, find_tail
from uncone.diagnosis.collection import as_leaning, as_scores, find_hubs, find_near_duplicates, named, twins_of
from uncone.diagnosis.record import LEVELS
from uncone.diagnosis.tokens import DecayedRows, NewRows, under_trained_evidence
from uncone.diagnosis.why.layers.record import LogitSpectrum
from uncone.records.parts import Finding, Groups, Level, Measurement, NearDuplicates, OddRows, RandomScores
from uncone.records.text import counted, percent, plural
from uncone.records.tokens import UnderTrained

DRIFT = 0.1  # cosines of 100 to 1,000 features scatter by 0.03 to 0.1
SEVERE_DRIFT = 0.5  # half of every cosine is common to all pairs: unrelated rows pass for related ones
FEWEST_ROWS = 30  # with fewer rows sampling decides the numbers
ROGUE_SHARE = 0.2  # one dimension with a fifth of the mean cosine or variance alone decides similarities
EVEN_TIMES = 5.0  # of an even share, which is large with few dimensions
ROGUE_COSINE = 0.05  # a smaller mean cosine leaves a rogue dimension little to carry
LOW_RANK = 0.5  # of an isotropic cloud's effective rank: half of the dimensions would store as much
VERY_LOW_RANK = 0.2
MANY = 0.01  # Land & Bartolo 2024 confirm 0.1 to 1% of most vocabularies as under-trained; also the bar of equal rows
PADDING_ROWS = 1  # no gradient reaches the row of padding, which may be zero
NORM_COUPLING = 0.5  # a rank correlation by which length shows how often a token occurs, where ids are by frequency
UNTRAINED_SIGMAS = 6.0  # random tables scatter by three; MiniLM's table is 1,800 away
LOGIT_RANK = "logit_effective_rank"
TOO_LITTLE = "Too little to judge: there are too few rows, or they are so alike that measures are undefined."
_OF_A_CLOUD = {"common_direction_drift", "rogue_dimensions", "dominant_direction", "low_effective_rank"}
_RANK, _ISOSCORE = "effective rank {:.1f} of {d}", "IsoScore {:.3g}"
_ODD = {
    "zero": "zero: a zero row has no direction",
    "equal": "equal to an earlier row: nothing distinguishes them",
    "giant": "at least ten times as long as the median row, enough to decide inner products and means",
}


def find(
    measurements: tuple[Measurement, ...],
    groups: Groups | None,
    *,
    head: bool,
    under_trained: UnderTrained | None = None,
    elsewhere: frozenset[int] = frozenset(),
    without_effect: tuple[Measurement, ...] = (),
    odd: Sequence[OddRows] = (),
    left_out: int = 0,
    logits: LogitSpectrum | None = None,
    decayed: DecayedRows | None = None,
    new_rows: NewRows | None = None,
    scores: RandomScores | None = None,
    copies: NearDuplicates | None = None,
    advice: Advice = Advice(),  # noqa: B008  # frozen
) -> tuple[Finding, ...]:
    """What the numbers of one matrix show, defects first.

    For a `head` whose mean changes no probability, `measurements` are of the centred rows and `without_effect` of the
    rows as stored. If there are `logits`, they judge the spectrum: a map between head and states changes the spectrum
    of the rows, but no logit.
    """
    rows = max((m.n for m in measurements), default=0)
    if rows < FEWEST_ROWS:
        evidence = f"{counted(rows, 'row')}, but at least {FEWEST_ROWS} are needed to judge"
        return (Finding("not_measured", "note", TOO_LITTLE, (evidence,), "Pass more rows."),)
    values = {m.name: m for m in measurements if m.value is not None}
    is_collection = advice.kind == "vectors"
    if new_rows and groups:  # what these rows have in common is no degenerate tail
        before = tuple(one for one in groups.bins if one.stop <= new_rows.start)
        reserved = groups.reserved_group if groups.reserved_by_name else None
        groups = replace(groups, bins=before or groups.bins, reserved_group=reserved)
    causes = [] if head else [as_scores(one, scores) if is_collection else one for one in _drift(values)]
    causes += [] if logits else _rogue(values)
    causes += as_leaning(find_tail(values, groups), groups) if is_collection else find_tail(values, groups)
    causes += find_copies(values, groups, odd, advice)
    causes += _of_logits(logits) if logits else _rank(values)
    defects = {f.cause for f in causes if f.is_defect or f.cause == "leaning_rows"}
    causes += [] if head or logits or defects - {"common_direction_drift"} else _direction(values)
    causes += _odd(odd, rows, left_out, advice)
    causes += [*find_hubs(values), *find_near_duplicates(copies)] if is_collection else []
    untrained = _untrained(values, without_effect, advice)
    if not untrained:
        causes += find_under_trained(under_trained, elsewhere, tail_is_named="degenerate_tail" in defects)
    causes += _started_at_random(new_rows, rows) if new_rows else _one_length(decayed, rows)
    is_healthy = not untrained and not any(f.is_defect for f in causes)
    causes += [_no_defect(values, head=head, logits=logits)] if is_healthy else untrained
    causes += [] if untrained else _coupling(values)
    causes += _gauge(without_effect)
    causes = list(map(advice.on, sorted(causes, key=lambda f: LEVELS.index(f.level))))
    if first := [FIRST[f.cause, f.level] for f in causes if (f.cause, f.level) in FIRST]:
        causes = [replace(f, repair=first[0], command="") if f.cause in _OF_A_CLOUD else f for f in causes]
    return tuple(causes)


def _told(values: Values, **words: str) -> tuple[str, ...]:
    """The measures that have a value, each with its isotropic value."""
    return tuple(
        f"{text.format(float(m), percent=percent(float(m)), d=m.d)} (isotropic: {_number(m.reference)})"
        for name, text in words.items()
        if (m := values.get(name))
    )


def _drift(values: Values) -> Iterator[Finding]:
    cosine = values.get("mean_cosine")
    if not cosine or float(cosine) < DRIFT + NOISE_SIGMAS * math.sqrt(2 / cosine.d) / cosine.n:
        return
    partition = values.get("partition_isotropy")
    if partition and partition.warnings:  # rows too short to show anything
        values = {name: m for name, m in values.items() if m is not partition}
    evidence = _told(
        values,
        mean_cosine="two random rows have a mean cosine of {:.3f}",
        mean_shift="the mean row is {percent} as long as an average row",
        partition_isotropy="partition isotropy, I(W), over both signs is {:.3g}",
    )
    yield Finding(
        "common_direction_drift",
        "severe" if float(cosine) >= SEVERE_DRIFT else "warning",
        "All rows share a common direction, so cosines are high between rows that have nothing to do with each other.",
        evidence,
        measures=("mean_cosine", "mean_shift"),
        extent=float(cosine),
    )


def _rogue(values: Values) -> Iterator[Finding]:
    evidence, shares, cosine = list[str](), dict[str, float](), values.get("mean_cosine")
    carried = {"rogue_dimensions": "mean cosine"} if cosine and float(cosine) >= ROGUE_COSINE else {}
    for name, total in (carried | {"dominant_dimension": "variance"}).items():
        share = values.get(name)
        if share and _carries(share):
            shares[name], details = float(share), share.details
            dimension = details["dimensions"][0] if total == "mean cosine" else details["dimension"]
            even = f"(even spread: {_number(share.reference)})"
            evidence.append(f"dimension {dimension} carries {percent(float(share))} of the {total} {even}")
    if evidence:
        summary = "A few dimensions dominate: they decide similarities, whatever the other dimensions hold."
        extent = max(shares.values())
        yield Finding("rogue_dimensions", "warning", summary, tuple(evidence), measures=tuple(shares), extent=extent)


def _direction(values: Values) -> Iterator[Finding]:
    """One direction of the centred rows, where no feature, tail or lost rank explains it."""
    share = values.get("anisotropy_1")
    if share and _carries(share):
        summary = "One direction dominates: it decides similarities, even after the mean row is subtracted."
        evidence = _told(values, anisotropy_1="this direction carries {percent} of the variance")
        of = ("anisotropy_1",)
        yield Finding("dominant_direction", "warning", summary, evidence, measures=of, extent=float(share))


def _carries(share: Measurement) -> bool:
    """Whether one dimension or direction with this share of a sum decides it."""
    return float(share) >= max(ROGUE_SHARE, EVEN_TIMES / share.d)


def _rank(values: Values) -> Iterator[Finding]:
    rank = values.get("effective_rank")
    if not rank or rank.reference is None or float(rank) >= LOW_RANK * rank.reference:
        return
    yield Finding(
        "low_effective_rank",
        "severe" if float(rank) < VERY_LOW_RANK * rank.reference else "warning",
        "The rows fill only part of their dimensions.",
        _told(values, effective_rank=_RANK, isoscore=_ISOSCORE),
        measures=("effective_rank", "isoscore"),
        extent=1 - float(rank) / rank.reference,
    )


def _of_logits(logits: LogitSpectrum) -> Iterator[Finding]:
    if logits.level != "healthy":
        summary, evidence = "Head and states together use only part of their dimensions.", (_logits_told(logits),)
        extent = 1 - logits.effective_rank / logits.reference
        yield Finding("low_logit_rank", logits.level, summary, evidence, measures=(LOGIT_RANK,), extent=extent)


def _logits_told(logits: LogitSpectrum) -> str:
    rank = f"effective rank of {logits.effective_rank:.1f} of {logits.most}"
    return f"between contexts, the logits have an {rank} (isotropic: {_number(logits.reference)})"


def _odd(odd: Sequence[OddRows], rows: int, left_out: int, advice: Advice) -> Iterator[Finding]:
    if left_out:
        were = counted(left_out, "row that is not finite was", "rows that are not finite were")
        share, summary = left_out / (rows + left_out), f"{were} left out, as requested. No number here covers them."
        yield Finding("nonfinite_rows", "severe" if share > TAIL_SHARE else "warning", summary, extent=share)
    for one in odd:
        evidence, share = twins_of(one, of_tokens=advice.is_of_tokens) or _listed(one), one.n / rows
        if one.reserved and one.n:
            more = f"{counted(one.reserved, 'more row')} of this kind"
            evidence += (f"{more} {plural(one.reserved, 'is', 'are')} reserved",)
        usual = {"zero": PADDING_ROWS * advice.is_of_tokens, "equal": MANY * rows}.get(one.kind, 0)
        bad: Level = "severe" if share > TAIL_SHARE else "warning" if one.n > usual else "note"
        which = "About " * (one.sampled > 1) + counted(one.n, "row is", "rows are")
        in_a_head = ", and its logit in a head is always 0" * (one.kind == "zero" and advice.is_of_tokens)
        summary = f"{which if one.n else 'Reserved rows are'} {_ODD[one.kind]}{in_a_head}."
        yield Finding(f"{one.kind}_rows", bad, summary, evidence, extent=share)


def _listed(odd: OddRows) -> tuple[str, ...]:
    listed = ", ".join(map(named, odd.ids, odd.labels))
    first = (f"{'the longest first' if odd.kind == 'giant' else 'first'}: {listed}",) if listed else ()
    return first if odd.length is None else (f"the longest row has {odd.length:.3g} times the median length", *first)


def find_under_trained(
    under_trained: UnderTrained | None, elsewhere: frozenset[int] = frozenset(), *, tail_is_named: bool
) -> list[Finding]:
    """A warning if there are many and no finding has listed them yet. Rows with ids in `elsewhere` are left out."""
    if not under_trained or not (n := (under_trained.found or 0) - len(elsewhere)):
        return []
    share = n / under_trained.tested
    look = f"{counted(n, 'token looks', 'tokens look')} untrained"
    level: Level = "warning" if n > MANY * under_trained.tested and not tail_is_named else "note"
    special = under_trained.special_found
    which = f"{special:,} of them special tokens" if special else "though not reserved"
    summary, evidence = f"{look}, {which}.", under_trained_evidence(under_trained, elsewhere)
    of = ("under_trained_share",)
    return [Finding("under_trained_tokens", level, summary, evidence, measures=of, extent=share)]


def _one_length(decayed: DecayedRows | None, rows: int) -> Iterator[Finding]:
    """A note if many of them are not known to be unused; all tables have some."""
    if decayed:
        of = "the same short length, as weight decay leaves rows that hardly any gradient reached."
        summary = f"{counted(decayed.n, 'row has', 'rows have')} {of}"
        level: Level = "note" if decayed.news > MANY * rows else "structure"
        yield Finding("decayed_rows", level, summary, decayed.evidence, extent=decayed.n / rows)


def _started_at_random(new: NewRows, rows: int) -> Iterator[Finding]:
    n, ids = new.stop - new.start, f"{new.start}-{new.stop - 1}"
    are = "differ in length from all others and point in random directions"
    are = "are nearly one vector" if new.near_one_vector else are
    summary = (
        f"The last {counted(n, 'row')} (ids {new.start:,} to {new.stop - 1:,}) {are}, like rows that were added to a "
        "trained table and never trained."
    )
    yield Finding("new_rows", "warning", summary, new.evidence, command=ids, extent=n / rows)


def _untrained(values: Values, raw: tuple[Measurement, ...], advice: Advice) -> list[Finding]:
    """A spectrum of Marchenko and Pastur, no common direction and no order."""
    ratio, cosine, order = (values.get(name) for name in ("participation_ratio", "mean_cosine", "norm_id_correlation"))
    if not ratio or not cosine or ratio.d < 2:
        return []
    n, d, spread = ratio.n - 1, ratio.d, _sphericity(ratio)
    largest = max([float(cosine), *(m.value or 0.0 for m in raw if m.name == "mean_cosine")])
    is_centred = largest < UNTRAINED_SIGMAS * math.sqrt(2 / d) / n
    is_ordered = order and abs(float(order)) >= NOISE_SIGMAS / math.sqrt(n)
    if abs(spread) > UNTRAINED_SIGMAS or not is_centred or is_ordered:
        return []
    of = "the rows of a new model before training" if advice.is_of_tokens else "noise"
    evidence = (
        f"the spectrum matches random rows (Marchenko & Pastur) to {abs(spread):.1f} standard deviations; "
        f"{UNTRAINED_SIGMAS:g} are allowed",
        f"mean cosine {largest:.2g}; lengths do not follow the ids",
    )
    summary = f"The rows look random, like {of}. Nothing has left a trace in them."
    return [Finding("untrained", "structure", summary, evidence)]


def _sphericity(ratio: Measurement) -> float:
    """Standard deviations between the spread of a spectrum and that of random rows.

    With U = D / participation ratio - 1 of n rows less their mean, n D U / 2 is chi-squared with f = D (D + 1) / 2 - 1
    degrees of freedom (John 1972), also where D grows with n (Ledoit & Wolf 2002, proposition 7); its cube root is near
    normal (Wilson & Hilferty 1931).
    """
    n, d = ratio.n - 1, ratio.d
    f = d * (d + 1) / 2 - 1
    share = max(0.0, n * d * (d / float(ratio) - 1) / 2) / f
    return (math.pow(share, 1 / 3) - (1 - 2 / (9 * f))) / math.sqrt(2 / (9 * f))


def _coupling(values: Values) -> Iterator[Finding]:
    coupling = values.get("norm_id_correlation")
    if not coupling or abs(float(coupling)) < max(NORM_COUPLING, NOISE_SIGMAS / math.sqrt(coupling.n - 1)):
        return
    way = "shorter" if float(coupling) < 0 else "longer"
    yield Finding(
        "norm_id_coupling",
        "structure",
        f"Rows with higher ids are {way}. If ids are sorted by frequency, length shows how rare a token is, and "
        "inner products depend on it.",
        (f"Spearman correlation between norm and id {float(coupling):.2f} (isotropic: 0)",),
        measures=("norm_id_correlation",),
    )


def _gauge(without_effect: tuple[Measurement, ...]) -> Iterator[Finding]:
    """The common direction that would be drift in a table."""
    values = {m.name: m for m in without_effect if m.value is not None}
    if any(_drift(values)):
        shared = "The rows of the head as stored share a common direction. Softmax ignores it, "
        shared += "so no probability depends on it."
        evidence = _told(values, mean_cosine="mean cosine of the rows as stored {:.3f}")
        yield Finding("common_direction_of_the_head", "no_effect", shared, evidence)


def _no_defect(values: Values, *, head: bool, logits: LogitSpectrum | None = None) -> Finding:
    names = ("effective_rank", "isoscore") if head else ("mean_cosine", "isoscore", "effective_rank")
    evidence = _told(values, **{name: f"{name.replace('_', ' ')} {{:.3g}}" for name in names})
    if len(evidence) < len(names):
        advice = "Pass more rows, or rows that differ. Each measure shows what it lacked."
        return Finding("not_measured", "note", TOO_LITTLE, evidence, advice)
    carrier = f"a {'' if head else 'direction or '}feature that carries the variance"
    drift = "" if head else "drift, "
    none = f"{drift}a tail of ids that leans toward reserved rows, {carrier}, lost rank, and giant, zero or equal rows"
    rank = values["effective_rank"]
    seen = [] if head else [f"mean cosine {float(values['mean_cosine']):.3g} (isotropic: 0)"]
    seen += [f"effective rank {float(rank):.3g} of {rank.d} (isotropic: {_number(rank.reference)})"]
    seen += [_logits_told(logits)] if logits else []
    return Finding("no_defect", "healthy", f"No defect was found. We looked for {none}.", tuple(seen))


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
