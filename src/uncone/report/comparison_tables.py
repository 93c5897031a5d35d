"""Tables of a comparison's page: the diagnoses, their findings, the measures, and the numbers behind the bins."""

from collections.abc import Sequence

from uncone.records import (
    TABLES,
    Change,
    ComparedMeasure,
    ComparedSubject,
    Comparison,
    Group,
    Measurement,
    Table,
)
from uncone.records.text import THIN_SPACE, better, shortened
from uncone.report.comparison_charts import READINGS, css
from uncone.report.comparison_words import (
    LETTERS,
    MARKS,
    change_words,
    difference_words,
    grouped_remarks,
    level_order,
    limits_of,
    measure_title,
    signed,
    tally,
)
from uncone.report.findings import badge
from uncone.report.markup import SVG, element, escape, escape_number, section, shown, shown_count

_LONGEST_NAME = 60
_GAUGE = (
    "Adding one vector to every row of the head adds the same amount to every logit of a position, and softmax ignores it: "
    "no probability depends on these raw readings."
)

_SECTIONS = {
    "measures": ("Measurements", ""),
    "tokens": ("Tokens by frequency", ""),
    "without_effect": ("No effect on probabilities", _GAUGE),
}


def swatch(order: int) -> str:
    """The line of a diagnosis, as the drawings have it."""
    drawing = element("path", class_=css(order), d="M1 6h34")
    return element("svg", drawing, viewBox="0 0 36 12", class_="swatch long", aria_hidden="true", xmlns=SVG)


def key(order: int) -> str:
    """The letter of a diagnosis with its line."""
    return swatch(order) + element("b", LETTERS[order], class_="letter")


def legend(subject: ComparedSubject, names: Sequence[str]) -> str:
    """Which line is whose, of the diagnoses that have this subject."""
    there = [order for order, side in enumerate(subject.sides) if side is not None]
    items = (
        element("li", key(order) + element("span", escape(shortened(names[order], _LONGEST_NAME))))
        for order in there
    )
    return element("ul", "".join(items), class_="legend")


def diagnoses_table(comparison: Comparison) -> str:
    """Each diagnosis: its letter and line, its name, how its measures moved, and its own verdict."""
    rows = ""
    for order, diagnosis in enumerate(comparison.diagnoses):
        moved = "baseline" if order == 0 else tally(comparison, order)
        about = element("b", escape(shortened(diagnosis.name, _LONGEST_NAME)))
        about += " " + element("span", escape(moved), class_="muted") if moved else ""
        about += element("p", escape(diagnosis.verdict), class_="muted")
        rows += element("li", element("div", key(order), class_="who") + element("div", about))
    return element("ol", rows, class_="diagnoses")


def findings_table(subject: ComparedSubject, uid: str) -> str:
    """Causes by diagnosis, the worst first."""
    found = level_order(subject)
    if not found:
        return ""
    head = element("tr", element("th", "Finding", scope="col") + _letters(len(subject.sides)))
    body = ""
    for cause, levels in found:
        cells = "".join(element("td", badge(level) if level else "–") for level in levels)
        body += element("tr", element("th", escape(cause), scope="row") + cells)
    table = element("table", element("thead", head) + element("tbody", body), class_="levels")
    return section("Findings", _scroller(table, "Findings by diagnosis"), uid=f"{uid}-findings")


def measures_sections(subject: ComparedSubject, uid: str) -> str:
    """The measures, and for a head the readings that no probability depends on in a table of their own."""
    return "".join(_measures(subject, uid, table) for table in TABLES)


def _measures(subject: ComparedSubject, uid: str, table: Table) -> str:
    measures: Sequence[ComparedMeasure] = getattr(subject, table)
    if not measures:
        return ""
    heading, why = _SECTIONS[table]
    uid = f"{uid}-{table.replace('_', '-')}"
    count = len(subject.sides)
    head = element("tr", element("th", "Measure", scope="col") + _letters(count))
    body = "".join(_measure(subject, measure, table) for measure in measures)
    drawn = element(
        "table", element("thead", head) + element("tbody", body),
        class_=f"cards measures compared{' many' if count > 3 else ''}", aria_labelledby=uid,
    )  # fmt: skip
    lead = element("p", why, class_="lead") if why else ""
    return section(heading, lead + drawn + _remarks(subject, measures, table), uid=uid)


def _remarks(subject: ComparedSubject, measures: Sequence[ComparedMeasure], table: Table) -> str:
    """Under the table, because one remark is on many measures as a rule."""
    items = "".join(
        element(
            "li",
            f"<b>{letters}:</b> {escape(words)} {element('span', escape('; '.join(names)), class_='muted')}",
        )
        for letters, words, names in grouped_remarks(subject, measures, table=table)
    )
    return element("h4", "Remarks") + element("ul", items, class_="remarks") if items else ""


def _measure(subject: ComparedSubject, measure: ComparedMeasure, table: Table) -> str:
    readings = subject.readings(measure.name, table=table)
    name = (
        element("span", escape(measure_title(measure.name, table)), class_="name")
        + " "
        + element("code", escape(measure.name))
    )
    name += element("p", better(measure.better), class_="muted")
    definition = next(
        (reading.definition for reading in readings if reading is not None and reading.definition), ""
    )
    name += (
        element("details", element("summary", "Definition") + escape(definition), class_="definition")
        if definition
        else ""
    )
    cells = "".join(
        element(
            "td",
            element("div", _cell(measure, reading, order, limits_of(readings))),
            data_label=LETTERS[order],
        )
        for order, reading in enumerate(readings)
    )
    return element("tr", element("th", name, scope="row") + cells)


def _cell(
    measure: ComparedMeasure,
    reading: Measurement | None,
    order: int,
    limits: tuple[float | None, float | None],
) -> str:
    value, distance = measure.values[order], measure.distances[order]
    if value is None:
        return element("span", "–" if reading is None else "undefined", class_="undefined")
    content = element("b", shown(value, limits), class_="number")
    if reading is not None and reading.interval is not None:
        content += element("p", " to ".join(shown(end, limits) for end in reading.interval), class_="muted")
    content += _change(measure.changes[order])
    if distance is not None:
        content += element("p", f"{_signed(distance)} from isotropic", class_="muted")
    return content


def _change(change: Change | None) -> str:
    if change is None:
        return ""
    word = change_words(change)
    content = element("b", escape_number(difference_words(change, THIN_SPACE))) + (f" {word}" if word else "")
    paragraph = element("p", content, class_=f"change {word}" if word in MARKS else "change little")
    if change.interval is not None:
        paragraph += element("p", " to ".join(_signed(end) for end in change.interval), class_="muted")
    return paragraph


def _signed(value: float) -> str:
    return escape_number(signed(value, THIN_SPACE))


def bins_table(subject: ComparedSubject) -> str:
    """The numbers behind the drawings by row id: a table for each reading, bins matched by their first and last id."""
    groups = [
        side.groups.bins if side is not None and side.groups is not None else () for side in subject.sides
    ]
    spans = sorted({(group.start, group.stop) for bins in groups for group in bins})
    by_span = [{(group.start, group.stop): group for group in bins} for bins in groups]
    tables = "".join(_reading_table(place, spans, by_span) for place in range(len(READINGS)))
    return element("details", element("summary", "The numbers behind this figure") + tables) if tables else ""


def _reading_table(
    place: int, spans: Sequence[tuple[int, int]], by_span: Sequence[dict[tuple[int, int], Group]]
) -> str:
    name, _, of, is_cosine = READINGS[place]
    rows = [(span, [of(bins[span]) if span in bins else None for bins in by_span]) for span in spans]
    if not any(value is not None for _, values in rows for value in values):
        return ""
    limits = (-1.0, 1.0) if is_cosine else (0.0, None)
    head = element("tr", element("th", f"{name}: ids", scope="col") + _letters(len(by_span)))
    body = "".join(
        element("tr", element("th", f"{shown_count(start)} to {shown_count(stop - 1)}", scope="row") + "".join(
            element("td", "–" if value is None else shown(value, limits)) for value in values
        ))
        for (start, stop), values in rows
    )  # fmt: skip
    return _scroller(
        element("table", element("thead", head) + element("tbody", body), class_="bins"), f"{name} by row id"
    )


def _letters(count: int) -> str:
    return "".join(element("th", key(order), scope="col") for order in range(count))


def _scroller(table: str, label: str) -> str:
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
