"""The figures of a subject, each with a heading, a legend and a caption in words."""

from collections.abc import Iterable, Sequence

from uncone.records import Group, Groups, Picture, Subject
from uncone.records.text import count, shortened
from uncone.records.wording import plural
from uncone.report.charts import Chart, bin_charts, cone_charts, legends, norms_chart, spectrum_chart
from uncone.report.charts.spectrum import LINES
from uncone.report.explorer import explorer
from uncone.report.markup import SVG, element, escape, section, shown, shown_count, token
from uncone.report.outermost import outermost


def pictures_section(subject: Subject, uid: str) -> str:
    """All figures that the record has the numbers for."""
    figures = _cone(subject, f"{uid}-cone") + _bins(subject.groups, f"{uid}-bins") + _shape(subject, uid)
    return section("Pictures", figures, uid=f"{uid}-pictures") if figures else ""


def _figure(
    title: str, charts: Sequence[Chart], columns: str, *, legend: str = "", caption: str = "", extra: str = ""
) -> str:
    return element("figure", _content(title, charts, columns, legend=legend, caption=caption) + extra)


def _content(title: str, charts: Sequence[Chart], columns: str, *, legend: str, caption: str) -> str:
    panels = "".join(_panel(chart, with_title=chart.title != title) for chart in charts)
    content = element("h4", escape(title)) + legend + element("div", panels, class_=f"panels {columns}")
    return content + (element("figcaption", caption) if caption else "")


def _panel(chart: Chart, *, with_title: bool) -> str:
    heading = element("h5", escape(chart.title)) if with_title else ""
    return element(
        "div", heading + chart.svg + element("p", escape(chart.caption), class_="muted"), class_="panel"
    )


def _cone(subject: Subject, uid: str) -> str:
    """The picture to explore, and the drawings that stand for it on paper and where scripts are off."""
    picture = subject.picture
    if picture is None or not picture.ids:
        return ""
    live = element(
        "div",
        element("h4", "The cone") + explorer(picture, subject.spectrum, f"{uid}-explorer"),
        class_="live",
    )
    return element(
        "figure", live + element("div", _drawings(picture, uid), class_="still") + _outermost(picture)
    )


def _drawings(picture: Picture, uid: str) -> str:
    entries = legends(picture)
    swatches = [
        (f"dots {entry.css}", f"{entry.name}, {count(entry.drawn)} of {count(entry.pictured)} drawn")
        for entry in entries
    ]
    drawn = sum(entry.drawn for entry in entries)
    caption = f"{shown_count(drawn)} of {shown_count(picture.total)} {plural(picture.total, 'row')} drawn, the same {plural(drawn, 'row')} in both panels."
    if drawn < len(picture.ids):
        caption += " Small groups are drawn more densely than they are, so that they can be seen."
    caption += (
        " The two panels have their own directions and scales. Outermost points tell their row on hover."
    )
    return _content("The cone", cone_charts(picture, uid), "two", legend=_legend(swatches), caption=caption)


def _outermost(picture: Picture) -> str:
    rows = "".join(
        element("dt", escape(name))
        + element("dd", " ".join(token(escape(shortened(label))) for label in labels))
        for name, labels in outermost(picture)
    )
    heading = element("h5", "Farthest from the centre, by group")
    return element("div", heading + element("dl", rows), class_="outermost") if rows else ""


def _bins(groups: Groups | None, uid: str) -> str:
    charts = bin_charts(groups, uid) if groups is not None else []
    if groups is None or not charts:
        return ""
    swatches = [
        ("dots bin", f"a bin of {count(groups.bin_size)} ids"),
        ("dots bin reserved", "a bin that holds reserved rows"),
    ]
    reserved = groups.reserved_group
    caption = "Dashed: what an isotropic cloud gives." + (
        _reserved(groups, reserved) if reserved is not None else ""
    )
    return _figure(
        "By row id", charts, "three", legend=_legend(swatches), caption=caption, extra=_bin_table(groups)
    )


def _reserved(groups: Groups, reserved: Group) -> str:
    text = f" Reserved: {escape(groups.reserved)}"
    if reserved.mean_cosine is not None:
        text += f"; their mean cosine among themselves is {shown(reserved.mean_cosine, (-1, 1))}"
    return text + "."


def _bin_table(groups: Groups) -> str:
    columns = ("Ids", "Rows", "Zero rows", "Reserved", "Norm", "Cosine within", "Cosine to reserved")
    head = element("tr", "".join(element("th", column, scope="col") for column in columns))
    listed = [*groups.bins, *([groups.reserved_group] if groups.reserved_group is not None else [])]
    body = "".join(_bin_row(group, is_reserved=group is groups.reserved_group) for group in listed)
    table = element("table", element("thead", head) + element("tbody", body), class_="bins")
    scroller = element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label="Readings by row id"
    )
    return element("details", element("summary", "The numbers behind this figure") + scroller)


def _bin_row(group: Group, *, is_reserved: bool) -> str:
    name = "all reserved" if is_reserved else f"{shown_count(group.start)} to {shown_count(group.stop - 1)}"
    norm = _optional(group.norm_mean, (0, None)) + (
        "" if group.norm_std is None else f" ± {shown(group.norm_std)}"
    )
    cells = (shown_count(group.n), shown_count(group.zero_rows), shown_count(group.reserved_rows), norm)
    cosines = (_optional(group.mean_cosine, (-1, 1)), _optional(group.cosine_to_reserved, (-1, 1)))
    return element(
        "tr", element("th", name, scope="row") + "".join(element("td", cell) for cell in (*cells, *cosines))
    )


def _optional(value: float | None, limits: tuple[float | None, float | None]) -> str:
    return "–" if value is None else shown(value, limits)


def _shape(subject: Subject, uid: str) -> str:
    spectrum = spectrum_chart(subject.spectrum, f"{uid}-spectrum") if subject.spectrum is not None else None
    norms = norms_chart(subject.norms, f"{uid}-norms") if subject.norms is not None else None
    curves = [
        (css, name)
        for field, name, css in LINES
        if subject.spectrum is not None and getattr(subject.spectrum, field)
    ]
    figures = _figure("Spectrum", [spectrum], "one", legend=_legend(curves)) if spectrum is not None else ""
    swatches = [("bars", "rows"), ("line reference", "mean")]
    figures += _figure("Norms", [norms], "one", legend=_legend(swatches)) if norms is not None else ""
    return element("div", figures, class_="pair") if figures else ""


def _legend(swatches: Iterable[tuple[str, str]]) -> str:
    items = "".join(element("li", _swatch(css) + escape(name)) for css, name in swatches)
    return element("ul", items, class_="legend")


def _swatch(css: str) -> str:
    path = "M2 6h18" if css.startswith("line") else "M7 11V2h8v9z" if css == "bars" else "M11 6h.01"
    drawing = element("path", class_=css, d=path)
    return element("svg", drawing, viewBox="0 0 22 12", class_="swatch", aria_hidden="true", xmlns=SVG)
