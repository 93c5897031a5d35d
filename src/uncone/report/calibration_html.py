"""A calibration as one self-contained HTML file: no script, no request, drawn from the record alone."""

import os

from uncone import atomic
from uncone.records import Calibration
from uncone.records import calibration_words as words
from uncone.records.text import shortened
from uncone.report.charts.scores import score_charts
from uncone.report.markup import element, escape, section
from uncone.report.page import masthead, page

_STYLES = ("report.css",)
_LONGEST_NAME = 40
_READING = (
    "A false match is a random pair that reaches the threshold. Intervals (95 %) say where a share would lie for other rows "
    "drawn alike; they take into account that pairs which share a row are not independent. No vector was changed."
)


def write_calibration_html(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write `calibration_to_html(calibration)` to `path`, atomically.

    Raises:
        InputError: `path` is a folder, or its folder does not exist or cannot be written.
    """
    atomic.write_text(path, calibration_to_html(calibration))


def calibration_to_html(calibration: Calibration) -> str:
    """The calibration as one HTML page that opens from disk: no JavaScript, nothing loaded from elsewhere."""
    called = shortened(calibration.name, _LONGEST_NAME)
    hero = element("p", element("span", escape(called)), class_="eyebrow")
    hero += element("h1", escape(calibration.verdict), class_="long")
    hero += "".join(element("p", escape(fact), class_="facts") for fact in words.facts(calibration))
    content = element("section", hero, class_="hero") + _drift(calibration)
    if calibration.meanings:
        content += section("What a score means", _table(words.meanings_table(calibration)), uid="meanings")
    content += _thresholds(calibration) + _pictures(calibration)
    if calibration.function:
        code = element(
            "div", element("pre", element("code", escape_code(calibration.function))), class_="scroll"
        )
        content += section("To paste", code, uid="function")
    body = masthead("calibration", []) + element("main", content + _footer(calibration))
    return page(f"{called} · uncone calibration", calibration.verdict, body, styles=_STYLES)


def escape_code(text: str) -> str:
    """Escaped line by line: breaks of lines are all that stays of what is not seen."""
    return "\n".join(escape(line) for line in text.rstrip("\n").split("\n"))


def _drift(calibration: Calibration) -> str:
    drift = calibration.drift
    if drift is None:
        return ""
    lines = "".join(element("p", escape(line), class_="facts") for line in words.drift_lines(drift))
    heading = f"{words.DRIFTS[drift.level]} against {shortened(drift.against, _LONGEST_NAME)}"
    return section(heading, lines + _table(words.drift_table(drift)), uid="drift")


def _thresholds(calibration: Calibration) -> str:
    cells = words.thresholds_table(calibration)
    content = _table(cells) if cells.rows else ""
    lines = [
        *words.reasons(calibration),
        *(words.labelled_lines(calibration.labelled) if calibration.labelled else ()),
    ]
    return section(
        "Thresholds",
        content + "".join(element("p", escape(line), class_="facts") for line in lines),
        uid="thresholds",
    )


def _pictures(calibration: Calibration) -> str:
    panels = "".join(
        element("div", element("h5", escape(chart.title)) + chart.svg
                + element("p", escape(chart.caption), class_="muted"), class_="panel")
        for chart in score_charts(calibration, "scores")
    )  # fmt: skip
    return (
        section("Random pairs", element("div", panels, class_="panels two"), uid="pictures") if panels else ""
    )


def _table(cells: words.Cells) -> str:
    head = "".join(element("th", escape(column), scope="col") for column in cells.columns)
    rows = ""
    for first, *others in cells.rows:
        row = element("th", escape(first), scope="row") + "".join(
            element("td", escape(cell)) for cell in others
        )
        rows += element("tr", row)
    table = element("table", element("thead", element("tr", head)) + element("tbody", rows), class_="bins")
    return element("div", table, class_="scroll")


def _footer(calibration: Calibration) -> str:
    notes = "".join(element("li", escape(note)) for note in calibration.notes)
    content = section("Notes", element("ul", notes), class_="block notes") if notes else ""
    pairs = calibration.versions.items()
    versions = "".join(
        element("dt", escape(name)) + element("dd", escape(version)) for name, version in pairs
    )
    content += element("h3", "Made with") + element("dl", versions, class_="versions") if versions else ""
    content += element(
        "p", escape(_READING) + f" Record: {element('code', escape(calibration.schema))}.", class_="muted"
    )
    return element("footer", content)
