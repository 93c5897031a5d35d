"""The verdict: one sentence that a person can act on."""

from uncone.explain.findings import leaning_bins
from uncone.records import Subject
from uncone.records.wording import listing, plural

_NAMES = {"input": "the input token table", "head": "the output head", "rows": "the collection"}
_PROBLEMS = {
    "common_direction_drift": "its rows drift in a common direction (mean cosine {mean_cosine})",
    "rogue_dimensions": "a few rogue dimensions decide its similarities",
    "degenerate_tail": "its tail is degenerate ({tail})",
    "low_effective_rank": "its rows fill {effective_rank} of {d} dimensions",
    "under_trained_tokens": "{under_trained} untrained",
    "norm_id_coupling": "the length of its rows follows their ids (correlation {norm_id_correlation})",
}


def give_verdict(subjects: tuple[Subject, ...]) -> str:
    """One sentence over all subjects: healthy or not, and if the headline hides something, what it hides."""
    said = [_clause(subject) for subject in subjects]
    sentence = "; ".join(said)
    return sentence[:1].upper() + sentence[1:] + "."


def _clause(subject: Subject) -> str:
    name = _NAMES.get(subject.name, subject.name)
    causes = [finding.cause for finding in subject.findings if finding.level in ("warning", "severe")]
    if any(finding.cause == "not_measured" for finding in subject.findings):
        return f"{name} could not be judged: its {subject.n:,} row{'s are' if subject.n != 1 else ' is'} too little"
    if not causes:
        return f"{name} looks healthy ({_headline(subject)})"
    problems = [_problem(cause, subject) for cause in causes]
    severe = any(finding.level == "severe" for finding in subject.findings)
    if causes == ["degenerate_tail"] and not severe:
        return f"{name} looks healthy as a whole ({_headline(subject)}), but {problems[0]}"
    return f"{name} is {'severely ' if severe else ''}degenerate: {listing(problems)}"


def _problem(cause: str, subject: Subject) -> str:
    values = {m.name: _short(m.value) for m in subject.measurements if m.value is not None}
    tail = _tail(subject) if cause == "degenerate_tail" else ""
    n = 0 if subject.under_trained is None else subject.under_trained.found or 0
    untrained = f"{n:,} of its tokens {plural(n, 'looks', 'look')}"
    return _PROBLEMS[cause].format(tail=tail, d=subject.d, under_trained=untrained, **values)


def _headline(subject: Subject) -> str:
    names = {"mean_cosine": "mean cosine", "isoscore": "IsoScore"}
    values = {m.name: m.value for m in subject.measurements if m.value is not None}
    if subject.name == "head":  # its mean cosine is a matter of gauge, and 0 once centred
        names = {"isoscore": "IsoScore", "effective_rank": "effective rank"}
    return ", ".join(f"{words} {_short(values[name])}" for name, words in names.items() if name in values)


def _tail(subject: Subject) -> str:
    groups = subject.groups
    assert groups is not None  # the finding came from them
    leaning = leaning_bins(groups, float(subject.measurement("mean_cosine")), subject.d)
    worst = max(leaning, key=lambda g: g.cosine_to_reserved or 0.0)
    whom = "reserved rows that were never trained" if groups.reserved_by_name else "the last ids"
    return f"{worst.name} have a mean cosine of {_short(worst.cosine_to_reserved)} to {whom}"


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"
