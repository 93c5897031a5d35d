"""One self-contained HTML file: no request, no model, one script that only draws; made from the record alone."""

import os

from uncone import atomic
from uncone.records import Diagnosis, Subject
from uncone.report.explorer import script, script_source
from uncone.report.findings import findings_section, worst_level
from uncone.report.headline import headline
from uncone.report.markup import element, escape
from uncone.report.measurements import measurements_section
from uncone.report.page import STILL, masthead, page
from uncone.report.pictures import pictures_section
from uncone.report.provenance import provenance, subject_facts, subject_notes, subject_title
from uncone.report.tokens import tokens_section

_STYLES = ("report.css",)
POLICY = STILL
"""Of a page without a picture; one with a picture adds the hash of its one script, and no other can run."""


def write_html(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write `to_html(diagnosis)` to `path`, atomically.

    Raises:
        InputError: `path` is a folder, or its folder does not exist or cannot be written.
    """
    atomic.write_text(path, to_html(diagnosis))


def to_html(diagnosis: Diagnosis) -> str:
    """The diagnosis as one HTML page that opens from disk: nothing is loaded from elsewhere, and all but the picture to
    explore is there without JavaScript."""
    links = [
        (subject_title(subject), f"#s{order}") for order, subject in enumerate(diagnosis.subjects, start=1)
    ]
    body = masthead(diagnosis.name, links)
    body += element("main", headline(diagnosis) + _subjects(diagnosis) + provenance(diagnosis))
    title = f"{diagnosis.name} · uncone diagnosis"
    if not any(subject.picture is not None and subject.picture.ids for subject in diagnosis.subjects):
        return page(title, diagnosis.verdict, body, styles=_STYLES)
    policy = f"{POLICY}; script-src {script_source()}"
    return page(title, diagnosis.verdict, body, styles=_STYLES, policy=policy, script=script())


def _subjects(diagnosis: Diagnosis) -> str:
    return "".join(
        _subject(subject, f"s{order}") for order, subject in enumerate(diagnosis.subjects, start=1)
    )


def _subject(subject: Subject, uid: str) -> str:
    worst = worst_level(subject.findings)
    heading = element("h2", escape(subject_title(subject)), id=f"{uid}-name") + subject_facts(subject)
    content = (
        element("div", heading, class_="subject-head")
        + findings_section(subject, uid)
        + pictures_section(subject, uid)
        + tokens_section(subject, uid)
        + measurements_section(subject, uid)
        + subject_notes(subject)
    )
    return element("section", content, id=uid, class_=f"subject level-{worst}", aria_labelledby=f"{uid}-name")
