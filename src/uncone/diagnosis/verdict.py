"""The verdict of a diagnosis: a sentence for each matrix."""

from uncone.diagnosis.bins.bins import nearest_leaning
from uncone.diagnosis.collection import two_random_rows
from uncone.diagnosis.record import CALLED, Subject
from uncone.records.parts import Finding
from uncone.records.text import counted, listing, percent, plural, title

_PROBLEMS = {
    "common_direction_drift": "its rows share a common direction (mean cosine {mean_cosine})",
    "rogue_dimensions": "a few rogue dimensions decide its similarities",
    "dominant_direction": "one direction carries {extent} of its variance",
    "degenerate_tail": "its tail is degenerate ({tail})",
    "low_effective_rank": "its rows fill {effective_rank} of {d} dimensions",
    "low_logit_rank": "head and states use {logit_effective_rank} of {d} dimensions",
    "near_copies": "{extent} of its rows are near-copies of one another",
    "under_trained_tokens": "{under_trained} untrained",
    "new_rows": "its last rows were added and never set",
    "zero_rows": "{zero} zero",
    "equal_rows": "{equal} equal to others",
    "giant_rows": "{giant} far longer than usual",
    "nonfinite_rows": "{left_out} not finite",
    "near_duplicates": "{extent} of its rows have a near-duplicate",
    "hubs": "one row is among the ten nearest of {extent} of its rows",
}
_OF_ROWS = {"zero_rows", "equal_rows", "giant_rows", "nonfinite_rows", "under_trained_tokens", "near_copies"}
_OF_ROWS |= {"near_duplicates", "hubs", "new_rows"}
_SCORES = "common_direction_drift"
"""For a collection we describe it by the scores that users see."""
_READ_AS = "read scores as percentiles (`uncone calibrate`)"


def give_verdict(subjects: tuple[Subject, ...]) -> str:
    return " ".join(f"{clause[:1].upper()}{clause[1:]}." for clause in map(_clause, subjects))


def _clause(subject: Subject) -> str:
    name, causes = CALLED.get(subject.name, subject.name), {f.cause for f in subject.findings}
    defects = [f for f in subject.findings if f.is_defect]
    if "not_measured" in causes:
        return f"{name} could not be judged: {counted(subject.n, 'row is', 'rows are')} not enough"
    notes = [title(one.cause).lower() for one in subject.findings if one.level == "note"]
    noted = f", with a note on {listing(notes)}" if notes else ""
    random, scored = "looks untrained" if subject.name in ("input", "head") else "looks like noise", ""
    if not defects:
        return f"{name} {random if 'untrained' in causes else f'shows no defect{_shown(subject)}'}{noted}"
    if subject.scores and any(f.cause == _SCORES for f in defects):
        defects = [f for f in defects if f.cause != _SCORES]
        scored = f"{two_random_rows(subject.scores, '' if defects else f' of {name}')}: {_READ_AS}"
        if not defects:
            return f"{scored}{noted}"
    problems = [_PROBLEMS[f.cause].format(**_told(subject, f)) for f in defects]
    named, is_severe = {f.cause for f in defects}, any(f.level == "severe" for f in defects)
    if named == {"degenerate_tail"} and not (is_severe or scored):
        return f"{name} shows no defect as a whole{_shown(subject)}, but {problems[0]}"
    what, how = f"is {'severely ' * is_severe}degenerate", "severe " * is_severe
    if named <= _OF_ROWS:
        what = f"has {plural(len(defects), f'a {how}defect', f'{how}defects')}"
    what = f"{name} {what}: {listing(problems)}"
    what = f"{what}; otherwise it {random}" if "untrained" in causes else what
    return f"{what}. {scored[:1].upper()}{scored[1:]}" if scored else what


def _shown(subject: Subject) -> str:
    """A head read without its mean row has a mean cosine of 0, which is left out."""
    values = {m.name: m.value for m in subject.measurements if m.value is not None}
    has_mean = "mean_cosine" in values and not subject.without_effect
    parts = [f"mean cosine {_short(values['mean_cosine'])}"] if has_mean else []
    if "effective_rank" in values:
        parts.append(f"effective rank {_short(values['effective_rank'])} of {subject.d:,}")
    return f" ({', '.join(parts)})" if parts else ""


def _told(subject: Subject, finding: Finding) -> dict[str, str]:
    values = {m.name: _short(m.value) for m in subject.measurements if m.value is not None}
    n = round((finding.extent or 0) * subject.under_trained.tested) if subject.under_trained else 0
    counts = [(one.kind, one.n, "about " * (one.sampled > 1)) for one in subject.odd_rows]
    odd = {
        kind: about + counted(k, "of its rows is", "of its rows are")
        for kind, k, about in (*counts, ("left_out", subject.left_out, ""))
    }
    return {
        **values,
        **odd,
        "d": f"{subject.d:,}",
        "tail": _tail_words(subject) if finding.cause == "degenerate_tail" else "",
        "under_trained": f"{n:,} of its tokens {plural(n, 'looks', 'look')}",
        "extent": "" if finding.extent is None else percent(finding.extent),
    }


def _tail_words(subject: Subject) -> str:
    worst = nearest_leaning(subject.groups, subject.measurement("mean_cosine"))
    assert worst  # the finding came from it
    whom = subject.groups.called if subject.groups else ""
    whom += " that were never trained" * (whom == "reserved rows")
    return f"{worst.name} have a mean cosine of {_short(worst.cosine_to_reserved)} to {whom}"


def _short(value: float | None) -> str:
    if value is None:
        return "unknown"
    return (f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}").replace("-0.00", "0.00")
