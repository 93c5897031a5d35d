"""A comparison as one self-contained HTML file: no script, no request, drawn from the record alone."""

import os

from uncone import atomic
from uncone.records import ComparedSubject, Comparison
from uncone.records.text import shortened
from uncone.report.charts import Chart
from uncone.report.comparison_charts import bin_charts, norms_chart, spectrum_charts
from uncone.report.comparison_tables import (
    bins_table,
    diagnoses_table,
    findings_table,
    legend,
    measures_sections,
)
from uncone.report.comparison_words import LETTERS, LITTLE, READING, lettered, title_of
from uncone.report.markup import element, escape, section, shown_count
from uncone.report.page import masthead, page

_STYLES = ("report.css", "comparison.css")
_LONGEST_NAME = 40
_SHAPES = (
    "The flatter a spectrum, the evener the cloud. Dotted: an isotropic cloud of the first one's size and trace. "
    "Norms are shares of the rows of each diagnosis, whatever their number."
)


def write_comparison_html(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write `comparison_to_html(comparison)` to `path`, atomically.

    Raises:
        InputError: `path` is a folder, or its folder does not exist or cannot be written.
    """
    atomic.write_text(path, comparison_to_html(comparison))


def comparison_to_html(comparison: Comparison) -> str:
    """The comparison as one HTML page that opens from disk: no JavaScript, nothing loaded from elsewhere."""
    names = [diagnosis.name for diagnosis in comparison.diagnoses]
    called = " and ".join(shortened(name, _LONGEST_NAME) for name in names[:2])
    called += f" and {len(names) - 2} more" if len(names) > 2 else ""
    links = [(title_of(subject), f"#s{order}") for order, subject in enumerate(comparison.subjects, start=1)]
    hero = element("p", element("span", escape(called)), class_="eyebrow")
    hero += element(
        "h1", escape(comparison.verdict), class_="long" if len(comparison.verdict) <= 240 else "longest"
    )
    hero = element("section", hero + diagnoses_table(comparison), class_="hero")
    subjects = "".join(
        _subject(subject, names, f"s{order}") for order, subject in enumerate(comparison.subjects, start=1)
    )
    body = masthead("comparison", links) + element("main", hero + subjects + _footer(comparison))
    return page(f"{called} · uncone comparison", comparison.verdict, body, styles=_STYLES)


def _subject(subject: ComparedSubject, names: list[str], uid: str) -> str:
    heading = element("h2", escape(title_of(subject)), id=f"{uid}-name") + _facts(subject)
    content = element("div", heading, class_="subject-head") + _notes("Notes", subject.notes)
    content += findings_table(subject, uid) + _pictures(subject, names, uid) + measures_sections(subject, uid)
    return element("section", content, id=uid, class_="subject", aria_labelledby=f"{uid}-name")


def _facts(subject: ComparedSubject) -> str:
    said = [
        f"{letter}: {shown_count(side.n)} × {shown_count(side.d)} {escape(side.dtype)}, {element('code', escape(side.source))}"
        for letter, side in lettered(subject)
    ]
    return element("p", "<br/>".join(said), class_="facts")


def _pictures(subject: ComparedSubject, names: list[str], uid: str) -> str:
    keys, figures = legend(subject, names), ""
    shapes, bins = spectrum_charts(subject, f"{uid}-spectrum"), bin_charts(subject, f"{uid}-bins")
    norms = norms_chart(subject, f"{uid}-norms")
    if norms is not None:
        shapes.append(norms)
    if bins:
        figures += _figure(
            "By row id", bins, keys, "Dotted: what an isotropic cloud gives.", bins_table(subject)
        )
    if shapes:
        figures += _figure("Spectra and norms", shapes, keys, _SHAPES)
    return section("Pictures", figures, uid=f"{uid}-pictures") if figures else ""


def _figure(title: str, charts: list[Chart], keys: str, caption: str, extra: str = "") -> str:
    panels = "".join(
        element("div", element("h5", escape(chart.title)) + chart.svg
                + element("p", escape(chart.caption), class_="muted"), class_="panel")
        for chart in charts
    )  # fmt: skip
    content = element("h4", escape(title)) + keys + element("div", panels, class_="panels three")
    return element("figure", content + element("figcaption", escape(caption)) + extra)


def _notes(heading: str, notes: tuple[str, ...]) -> str:
    items = "".join(element("li", escape(note)) for note in notes)
    return section(heading, element("ul", items), class_="block notes") if items else ""


def _footer(comparison: Comparison) -> str:
    content = _notes("Notes on the whole comparison", comparison.notes)
    rows = "".join(
        element("dt", escape(f"{letter}: {shortened(diagnosis.name, _LONGEST_NAME)}"))
        + element(
            "dd",
            escape(
                ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items()) or "unknown"
            ),
        )
        for letter, diagnosis in zip(LETTERS, comparison.diagnoses, strict=False)
    )
    content += element("h3", "Made with") + element("dl", rows, class_="versions")
    content += element(
        "p",
        escape(f"{READING} {LITTLE} Numbers are never rounded onto a limit they did not reach."),
        class_="muted",
    )
    content += element("p", escape(comparison.intervals), class_="muted") if comparison.intervals else ""
    content += element("p", f"Record: {element('code', escape(comparison.schema))}.", class_="muted")
    return element("footer", content)
