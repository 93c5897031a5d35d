"""Where the numbers come from: what was read, what was left out, notes and versions."""

from collections.abc import Iterable

from uncone.records import Diagnosis, Subject
from uncone.records.wording import plural
from uncone.report.markup import element, escape, section, shown_count

_NAMES = {"input": "Input token table", "head": "Output head", "rows": "Rows"}


def subject_title(subject: Subject) -> str:
    """The subject in words: a model's two matrices by what they are, everything else by its own name."""
    return _NAMES.get(subject.name, subject.name)


def subject_facts(subject: Subject) -> str:
    """One line under the subject's name: size, type and source."""
    size = f"{shown_count(subject.n)} {plural(subject.n, 'row')} × {shown_count(subject.d)} {plural(subject.d, 'column')}"
    return element(
        "p", f"{size} · {escape(subject.dtype)} · {element('code', escape(subject.source))}", class_="facts"
    )


def left_out(subject: Subject, shown: str) -> str:
    """That rows were left out; `shown` is how many, as text or markup."""
    return f"{shown} {plural(subject.left_out, 'row that is not finite was', 'rows that are not finite were')} left out, as asked."


def subject_notes(subject: Subject) -> str:
    """Rows that were left out, and the subject's notes."""
    notes = [escape(note) for note in subject.notes]
    if subject.left_out:
        notes.insert(0, left_out(subject, shown_count(subject.left_out)))
    return _noted("Notes", notes)


def provenance(diagnosis: Diagnosis) -> str:
    """Notes on the whole diagnosis, the versions that made it, and the record's schema."""
    pairs = diagnosis.versions.items()
    versions = "".join(
        element("dt", escape(name)) + element("dd", escape(version)) for name, version in pairs
    )
    content = _noted("Notes on the whole diagnosis", [escape(note) for note in diagnosis.notes])
    content += element("h3", "Made with") + element("dl", versions, class_="versions") if versions else ""
    reading = (
        "“Isotropic” is what a cloud with no preferred direction gives at the same number of rows and columns: "
        "the value to compare with. Numbers are rounded to three digits, never onto a limit they did not reach."
    )
    content += element(
        "p", reading + f" Record: {element('code', escape(diagnosis.schema))}.", class_="muted"
    )
    return element("footer", content)


def _noted(heading: str, notes: Iterable[str]) -> str:
    items = "".join(element("li", note) for note in notes)
    return section(heading, element("ul", items), class_="block notes") if items else ""
