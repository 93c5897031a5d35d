"""One self-contained HTML file: no request, no model, one script that only draws; made from the record alone."""

import os
from functools import cache
from importlib import resources
from urllib.parse import quote

from uncone import atomic
from uncone.records import Diagnosis, Subject
from uncone.report.explorer import script, script_source
from uncone.report.findings import findings_section, worst_level
from uncone.report.headline import headline
from uncone.report.markup import element, escape
from uncone.report.measurements import measurements_section
from uncone.report.pictures import pictures_section
from uncone.report.provenance import provenance, subject_facts, subject_notes, subject_title
from uncone.report.tokens import tokens_section

# Nothing but inline styles and the favicon may load, so a token string that slipped through could still do nothing.
# A page with a picture adds the hash of its one script, and no other can run.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_MARK = (
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
    '<circle cx="12" cy="12" r="9.6" fill="none" stroke="#4a7bea" stroke-width="2.4"/>'
    '<path fill="#e8622a" d="M12 12 12.7 2.6A9.4 9.4 0 0 1 20.4 7.7Z"/></svg>'
)


def write_html(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write `to_html(diagnosis)` to `path`, atomically.

    Raises:
        InputError: `path` is a folder, or its folder does not exist or cannot be written.
    """
    atomic.write_text(path, to_html(diagnosis))


def to_html(diagnosis: Diagnosis) -> str:
    """The diagnosis as one HTML page that opens from disk: nothing is loaded from elsewhere, and all but the picture to
    explore is there without JavaScript."""
    body = _masthead(diagnosis)
    body += element("main", headline(diagnosis) + _subjects(diagnosis) + provenance(diagnosis))
    return f'<!DOCTYPE html>\n<html lang="en">\n{_head(diagnosis)}\n<body>{body}</body>\n</html>\n'


def _head(diagnosis: Diagnosis) -> str:
    icon = "data:image/svg+xml," + quote(_MARK)
    moving = any(subject.picture is not None and subject.picture.ids for subject in diagnosis.subjects)
    policy = f"{POLICY}; script-src {script_source()}" if moving else POLICY
    return "\n".join(
        (
            '<head>\n<meta charset="utf-8"/>',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            '<meta name="color-scheme" content="light dark"/>',
            '<meta name="generator" content="uncone"/>',
            f'<meta name="description" content="{escape(diagnosis.verdict)}"/>',
            f'<link rel="icon" href="{escape(icon)}"/>',
            f"<title>{escape(diagnosis.name)} · uncone diagnosis</title>",
            f"<style>\n{_stylesheet()}</style>" + (f"\n<script>{script()}</script>" if moving else ""),
            "</head>",
        )
    )


@cache
def _stylesheet() -> str:
    return resources.files("uncone.report").joinpath("report.css").read_text(encoding="utf-8")


def _masthead(diagnosis: Diagnosis) -> str:
    brand = element("span", _MARK + "uncone", class_="brand")
    name = element("span", escape(diagnosis.name), class_="subject-name")
    return element("header", brand + name + _navigation(diagnosis.subjects), class_="masthead")


def _navigation(subjects: tuple[Subject, ...]) -> str:
    if len(subjects) < 2:
        return ""
    links = "".join(
        element("a", escape(subject_title(subject)), href=f"#s{order}") for order, subject in enumerate(subjects, start=1)
    )
    return element("nav", links, aria_label="Subjects")


def _subjects(diagnosis: Diagnosis) -> str:
    return "".join(_subject(subject, f"s{order}") for order, subject in enumerate(diagnosis.subjects, start=1))


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
