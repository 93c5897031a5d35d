"""Every measurement of a subject in one table: the value, what an isotropic cloud gives, and what the name means."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncone.records import Measurement, Subject
from uncone.report.markup import element, escape, shown, shown_count
from uncone.report.text import better, number, shortened, span, title, typeset

_COLUMNS = ("Measure", "Value", "Isotropic", "Range and direction", "Rows × columns", "Rows used")
_ROWS_USED = {True: "mean row subtracted", False: "as stored", None: "either"}
_MOST_ITEMS = 12
_LONGEST = 200

_WITHOUT_EFFECT = (
    "Adding one vector to every row of the head adds the same amount to every logit of a position, and softmax ignores "
    "it: no probability depends on these raw readings, so no finding is drawn from them."
)


def measurements_section(subject: Subject, uid: str) -> str:
    """The table of measurements, and for a head the readings that no probability depends on in a table of their own."""
    content = _block("Measurements", "", subject.measurements, f"{uid}-measurements") if subject.measurements else ""
    if subject.without_effect:
        content += _block("No effect on probabilities", _WITHOUT_EFFECT, subject.without_effect, f"{uid}-without-effect")
    return content


def _block(heading: str, why: str, measurements: Sequence[Measurement], uid: str) -> str:
    content = element("h3", heading, id=uid) + (element("p", why, class_="lead") if why else "")
    return element("section", content + _table(measurements, uid), class_="block", aria_labelledby=uid)


def _table(measurements: Sequence[Measurement], uid: str) -> str:
    head = element("thead", element("tr", "".join(element("th", column, scope="col") for column in _COLUMNS)))
    body = element("tbody", "".join(_row(measurement) for measurement in measurements))
    return element("table", head + body, class_="cards measures", aria_labelledby=uid)


def _row(measurement: Measurement) -> str:
    reference = "–" if measurement.reference is None else shown(measurement.reference, measurement.range)
    cells = (
        _value(measurement),
        reference,
        f"{escape(span(measurement.range))}<br/>{element('span', better(measurement.better), class_='muted')}",
        f"{shown_count(measurement.n)} × {shown_count(measurement.d)}",
        _ROWS_USED[measurement.centered],
    )
    named = zip(_COLUMNS[1:], cells, strict=True)
    data = "".join(element("td", element("div", cell), data_label=column) for column, cell in named)
    return element("tr", element("th", _name(measurement), scope="row") + data)


def _name(measurement: Measurement) -> str:
    content = element("span", escape(title(measurement.name)), class_="name") + " " + element("code", escape(measurement.name))
    if measurement.definition:
        content += element("p", escape(measurement.definition), class_="definition")
    content += "".join(element("p", f"<b>Caution:</b> {escape(warning)}", class_="caution") for warning in measurement.warnings)
    if measurement.details:
        content += element("details", element("summary", "Details") + detail_list(measurement.details))
    return content


def _value(measurement: Measurement) -> str:
    if measurement.value is None:
        return element("span", "undefined", class_="undefined") + element("p", escape(measurement.reason), class_="reason")
    content = element("b", shown(measurement.value, measurement.range), class_="number")
    if measurement.interval is not None:
        low, high = (shown(end, measurement.range) for end in measurement.interval)
        content += element("p", f"interval {low} to {high}", class_="muted")
    return content


def detail_list(details: Mapping[str, Any]) -> str:
    """Whatever a measure wants to tell, as a list of names and values; long lists are cut and say so."""
    items = "".join(element("dt", escape(title(str(key)))) + element("dd", escape(_plain(value))) for key, value in details.items())
    return element("dl", items, class_="details")


def _plain(value: Any) -> str:
    """A value from JSON in words. Tuples and lists read alike, so a record and its JSON give the same page."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return typeset(number(value))
    if isinstance(value, str):
        return shortened(value, _LONGEST)
    if isinstance(value, Mapping):
        return _listed([f"{key}: {_plain(item)}" for key, item in value.items()])
    if isinstance(value, Sequence):
        return _listed([_plain(item) for item in value])
    return shortened(str(value), _LONGEST)


def _listed(items: Sequence[str]) -> str:
    more = len(items) - _MOST_ITEMS
    return ", ".join(items[:_MOST_ITEMS]) + (f", … ({more} more)" if more > 0 else "")
