"""Every measurement of a subject in one table: the value, what an isotropic cloud gives, and what the name means."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncone.records import Measurement, Subject
from uncone.records.text import better, number, shortened, span, title, typeset
from uncone.report.markup import element, escape, section, shown, shown_count

_COLUMNS = ("Measure", "Value", "Isotropic", "Range", "Read from")
ROWS_USED = {True: "mean row subtracted", False: "rows as stored", None: ""}
_MOST_ITEMS = 12
_LONGEST = 200

_GAUGE_FIXED = "All are read after the head's mean row was subtracted, which changes no probability."
_WITHOUT_EFFECT = (
    "Adding one vector to every row of the head adds the same amount to every logit of a position, and softmax ignores "
    "it: no probability depends on these raw readings, so no finding is drawn from them."
)


def is_centered(measurement: Measurement, gauge_fixed: bool) -> bool | None:
    """Whether the rows had their mean subtracted; a head's measurements were handed centred rows, whatever they do."""
    return True if gauge_fixed and measurement.centered is not None else measurement.centered


def measurements_section(subject: Subject, uid: str) -> str:
    """The table of measurements, and for a head the readings that no probability depends on in a table of their own."""
    fixed, content = bool(subject.without_effect), ""
    if subject.measurements:
        why = _GAUGE_FIXED if fixed else ""
        content += _block("Measurements", why, subject.measurements, f"{uid}-measurements", gauge_fixed=fixed)
    if fixed:
        uid = f"{uid}-without-effect"
        content += _block(
            "No effect on probabilities", _WITHOUT_EFFECT, subject.without_effect, uid, gauge_fixed=False
        )
    return content


def _block(
    heading: str, why: str, measurements: Sequence[Measurement], uid: str, *, gauge_fixed: bool
) -> str:
    lead = element("p", why, class_="lead") if why else ""
    return section(heading, lead + _table(measurements, uid, gauge_fixed=gauge_fixed), uid=uid)


def _table(measurements: Sequence[Measurement], uid: str, *, gauge_fixed: bool) -> str:
    head = element("thead", element("tr", "".join(element("th", column, scope="col") for column in _COLUMNS)))
    body = element(
        "tbody", "".join(_row(measurement, gauge_fixed=gauge_fixed) for measurement in measurements)
    )
    return element("table", head + body, class_="cards measures", aria_labelledby=uid)


def _row(measurement: Measurement, *, gauge_fixed: bool) -> str:
    used = ROWS_USED[is_centered(measurement, gauge_fixed)]
    reference = "–" if measurement.reference is None else shown(measurement.reference, measurement.range)
    cells = (
        _value(measurement),
        reference,
        f"{escape(span(measurement.range))}<br/>{element('span', better(measurement.better), class_='muted')}",
        f"{shown_count(measurement.n)} × {shown_count(measurement.d)}<br/>{element('span', used, class_='muted')}",
    )
    named = zip(_COLUMNS[1:], cells, strict=True)
    data = "".join(element("td", element("div", cell), data_label=column) for column, cell in named)
    return element("tr", element("th", _name(measurement), scope="row") + data)


def _name(measurement: Measurement) -> str:
    content = (
        element("span", escape(title(measurement.name)), class_="name")
        + " "
        + element("code", escape(measurement.name))
    )
    if measurement.definition:
        content += element("p", escape(measurement.definition), class_="definition")
    if measurement.value is None:
        content += element("p", f"<b>Undefined:</b> {escape(measurement.reason)}", class_="reason")
    content += "".join(
        element("p", f"<b>Caution:</b> {escape(warning)}", class_="caution")
        for warning in measurement.warnings
    )
    if measurement.details:
        content += element("details", element("summary", "Details") + detail_list(measurement.details))
    return content


def _value(measurement: Measurement) -> str:
    if measurement.value is None:
        return element("span", "undefined", class_="undefined")
    content = element("b", shown(measurement.value, measurement.range), class_="number")
    if measurement.interval is not None:
        low, high = (shown(end, measurement.range) for end in measurement.interval)
        content += element("p", f"interval {low} to {high}", class_="muted")
    return content


def detail_list(details: Mapping[str, Any]) -> str:
    """Whatever a measure wants to tell, as a list of names and values; long lists are cut and say so."""
    items = (
        element("dt", escape(title(str(key)))) + element("dd", escape(_plain(value)))
        for key, value in details.items()
    )
    return element("dl", "".join(items), class_="details")


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
