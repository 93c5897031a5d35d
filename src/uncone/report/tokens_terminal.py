"""The same in a terminal: groups by frequency as columns, and the first under-trained tokens."""

from uncone.records import Estimate, FrequencyGroups, Subject, UnderTrained
from uncone.records.text import count, number, shortened
from uncone.records.wording import counted
from uncone.report.printer import Printer

MOST_SHOWN = 8
_READINGS = (
    ("cosine within", "mean_cosine"),
    ("to reserved", "cosine_to_reserved"),
    ("to common", "cosine_to_common"),
    ("norm", "mean_norm"),
)


def print_tokens(out: Printer, subject: Subject) -> None:
    """Print what the record has of both."""
    if subject.frequency_groups is not None and subject.frequency_groups.groups:
        _groups(out, subject.frequency_groups)
    if subject.under_trained is not None:
        _under_trained(out, subject.under_trained)


def _groups(out: Printer, found: FrequencyGroups) -> None:
    out.gap()
    out.line(f"By {found.by} of tokens, with the reach of {100 * found.confidence:g}% intervals:", "bold")
    sign = "±" if out.is_unicode else "+-"
    rows = [["rows", *(count(group.n, separator=",") for group in found.groups)]]
    for label, field in _READINGS:
        estimates = [getattr(group, field) for group in found.groups]
        rows.append([label, *("-" if e.value is None else number(e.value, separator=",") for e in estimates)])
        if any(e.interval is not None for e in estimates):
            rows.append([f"  {sign}", *(_reach(e) for e in estimates)])
    rows.append(
        [
            "sd above chance",
            *("-" if g.excess is None else number(g.excess, separator=",") for g in found.groups),
        ]
    )
    names = [group.name for group in found.groups]
    out.table(["", *names], names, rows)
    out.line(f"Groups: {found.definition}", "dim")


def _reach(estimate: Estimate) -> str:
    if estimate.interval is None:
        return ""
    return number((estimate.interval[1] - estimate.interval[0]) / 2, digits=2, separator=",")


def _under_trained(out: Printer, found: UnderTrained) -> None:
    out.gap()
    if found.found is None:
        out.line(f"Under-trained tokens: not told, {found.reason}")
        return
    said = f"Under-trained tokens: {count(found.found, separator=',')} of {count(found.tested, separator=',')} rows"
    out.line(f"{said}, at a false-discovery rate of {number(100 * found.rate)} %", "bold")
    news = [t for t in found.tokens if not t.expected][:MOST_SHOWN]
    if news:
        counted = any(t.count is not None for t in news)
        columns = ["token", "id", "q", "norm", "to unused", "to mean", *(["count"] if counted else [])]
        rows = [
            [
                "-" if t.token is None else shortened(t.token, 24), count(t.id, separator=","), number(t.q), number(t.norm, separator=","),
                *("-" if c is None else number(c) for c in (t.cosine_to_unused, t.cosine_to_mean)),
                *([] if not counted else ["-" if t.count is None else count(t.count, separator=",")]),
            ]
            for t in news
        ]  # fmt: skip
        out.table(columns, columns[1:], rows)
    if found.found > len(news):
        out.line(
            f"{count(found.found - len(news), separator=',')} more; --html and --json list the first {sum(not t.expected for t in found.tokens)}.",
            "dim",
        )
    compared = f", compared with {found.reference}" if found.reference else ""
    out.line(f"By {found.indicator}{compared}; {_known(found)}", "dim")
    for note in found.notes:
        out.line(f"Note: {note}")


def _known(found: UnderTrained) -> str:
    if not found.known:
        return "no row is known to be unused"
    return f"of {counted(found.known, 'row')} known to be unused {counted(found.known_found, 'looks', 'look')} it too"
