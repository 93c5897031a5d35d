"""The diagnosis in a terminal: verdict, findings, numbers. Works at 80 columns and in black and white."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uncone.records import Diagnosis, Finding, Groups, Measurement, Subject
from uncone.records.text import number, title
from uncone.records.wording import plural
from uncone.report.findings import cause_title, worst_first
from uncone.report.measurements import is_centered
from uncone.report.printer import Printer, sparkline, whole
from uncone.report.provenance import left_out, subject_title
from uncone.report.tokens_terminal import print_tokens

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"severe": "bold red", "warning": "bold yellow", "note": "bold blue", "healthy": "bold green"}
WITHOUT_EFFECT = "No effect on probabilities (a vector added to every row of the head changes none):"
READINGS = (
    ("cosine to reserved", "cosine_to_reserved"),
    ("cosine within bin", "mean_cosine"),
    ("mean norm", "norm_mean"),
)
"""What is drawn of a bin of ids: words and field."""


def print_diagnosis(diagnosis: Diagnosis, console: "Console | None" = None) -> None:
    """Print the diagnosis to `console`, by default the standard output.

    Everything from the record is printed as plain text: markup such as `[unused1]` or `[red]` shows as it is written.
    """
    out = Printer(console)
    out.line(diagnosis.verdict, "bold")
    out.line(diagnosis.name, "dim")
    for subject in diagnosis.subjects:
        _subject(out, subject)
    for note in diagnosis.notes:
        out.line(f"Note: {note}")
    if diagnosis.versions:
        out.gap()
        out.line(", ".join(f"{name} {version}" for name, version in diagnosis.versions.items()), "dim")


def _subject(out: Printer, subject: Subject) -> None:
    out.gap()
    size = f"{whole(subject.n)} {plural(subject.n, 'row')} x {whole(subject.d)} {plural(subject.d, 'column')}"
    out.heading(subject_title(subject), "bold underline", f"{size}, {subject.dtype}, {subject.source}", "")
    for finding in worst_first(subject.findings):
        _finding(out, finding)
    if subject.measurements:
        _table(out, "", subject.measurements, gauge_fixed=bool(subject.without_effect))
    if subject.without_effect:
        _table(out, WITHOUT_EFFECT, subject.without_effect, gauge_fixed=False)
    if subject.groups is not None:
        _bins(out, subject.groups)
    print_tokens(out, subject)
    if subject.left_out:
        out.line(left_out(subject, whole(subject.left_out)))
    for note in subject.notes:
        out.line(f"Note: {note}")


def _finding(out: Printer, finding: Finding) -> None:
    out.gap()
    out.heading(finding.level.upper(), _STYLES[finding.level], cause_title(finding), "bold")
    out.line(finding.summary, indent=2)
    for piece in finding.evidence:
        out.bullet(piece)
    if finding.repair:
        out.line(f"What to do: {finding.repair}", indent=2)


def _table(out: Printer, heading: str, measurements: Sequence[Measurement], *, gauge_fixed: bool) -> None:
    out.gap()
    if heading:
        out.line(heading, "bold")
    rows = [_cells(measurement, gauge_fixed=gauge_fixed) for measurement in measurements]
    out.table(("measure", "value", "isotropic", "better", "rows"), ("value", "isotropic", "rows"), rows)
    for measurement in measurements:
        _remarks(out, measurement)


def _name(measurement: Measurement, *, gauge_fixed: bool) -> str:
    name, used = (
        title(measurement.name),
        {True: "centred", False: "raw", None: ""}[is_centered(measurement, gauge_fixed)],
    )
    return name if not used or name.endswith(used) else f"{name}, {used}"


def _cells(measurement: Measurement, *, gauge_fixed: bool) -> tuple[str, ...]:
    value = "undefined" if measurement.value is None else _number(measurement.value, measurement)
    reference = "-" if measurement.reference is None else _number(measurement.reference, measurement)
    better = "" if measurement.better == "neither" else measurement.better
    return _name(measurement, gauge_fixed=gauge_fixed), value, reference, better, whole(measurement.n)


def _number(value: float, measurement: Measurement) -> str:
    return number(value, limits=measurement.range, separator=",")


def _remarks(out: Printer, measurement: Measurement) -> None:
    if measurement.value is None:
        out.line(f"{title(measurement.name)} is undefined: {measurement.reason}", indent=2)
    for warning in measurement.warnings:
        out.line(f"{title(measurement.name)}: {warning}", indent=2)


def _bins(out: Printer, groups: Groups) -> None:
    """One line of bars for each reading, from the first id to the last."""
    lines = [(label, [getattr(group, field) for group in groups.bins]) for label, field in READINGS]
    lines = [(label, values) for label, values in lines if any(value is not None for value in values)]
    if not lines:
        return
    out.gap()
    first, last = whole(groups.bins[0].start), whole(groups.bins[-1].stop - 1)
    out.line(f"By row id, {first} to {last}, bins of {whole(groups.bin_size)}:", "bold")
    for label, values in lines:
        known = [value for value in values if value is not None]
        bars = sparkline(values, out.bars)
        low, high = (number(value, separator=",") for value in (min(known), max(known)))
        out.line(f"{label:<20}{bars}  {low} to {high}")
    if groups.reserved_group is not None:
        out.line(
            f"Reserved: {groups.reserved}, {whole(groups.reserved_group.n)} {plural(groups.reserved_group.n, 'row')}",
            "dim",
        )
