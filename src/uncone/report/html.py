"""A document as one HTML page. It makes no request; its one script is for the picture and for copying commands."""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from string import Template
from urllib.parse import quote

from uncone.records import blocks as shown
from uncone.records.blocks import Block, Bullets, Cell, Chart, Cloud, Code, Document, Figure, Heading, Table, Text
from uncone.records.text import COMMAND, better, count, counted, number, plural, shortened, span
from uncone.report.cone import cone_panels, legends
from uncone.report.drawable import drawn_or_said
from uncone.report.explorer import explorer
from uncone.report.heat import draw_heat
from uncone.report.markup import SVG, beside, escape, path, tag, typeset_text
from uncone.report.svg import draw, is_scattered

# only inline styles and the favicon may load: a string that escaped us could do no harm
STILL = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_TONES = {"quiet": "facts", "lead": "lead", "caution": "caution"}
_BADGES = ("severe", "warning", "note", "healthy", "structure", "no_effect")
_NAME = re.compile(r"`(uncone(?:\.\w+)+)`")  # names in the package; backticks in a token stay as they are
_CHANGES = ("better", "worse", "little")
_FEW, _SENTENCE = 4, 40  # columns and letters: beyond them, a table does not wrap its last column in a narrow window


def to_page(document: Document, *, live: bool = True) -> str:
    """With `live`, scripts let you explore the picture and copy code."""
    called, mark = shortened(document.name), beside("mark.svg").strip()
    lead, parts = _parts(document.blocks, 2)
    body = tag("span", mark + "uncone", "brand") + tag("span", escape(called), "subject-name")
    if len(parts) > 1:
        links = (tag("a", escape(heading.text), href=f"#s{order}") for order, (heading, _) in enumerate(parts, 1))
        body += tag("nav", "".join(links), aria_label="Subjects")
    hero = tag("section", _sections(lead, "s0"), "hero") if lead else ""
    body = tag("header", body, "masthead")
    body += tag("main", hero + "".join(_part(*part, f"s{order}") for order, part in enumerate(parts, 1)))
    body += tag("footer", "".join(map(_block, document.footer)))
    figures = (block for block in document.blocks if isinstance(block, Figure))
    scripts = ["cone.js"] * any(isinstance(chart, Cloud) for figure in figures for chart in figure.charts)
    scripts += ["copy.js"] * ("<pre>" in body or 'class="command"' in body)
    script, policy = "", STILL
    if live and scripts:
        script = f"/*<![CDATA[*/\n{''.join(map(beside, scripts))}/*]]>*/"  # the page is XML too
        digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        script, policy = f"<script>{script}</script>\n", f"{STILL}; script-src 'sha256-{digest}'"
    return Template(beside("page.html")).substitute(
        title=escape(f"{called} · uncone {document.kind}"),
        description=escape(_verdict(document)),
        icon=f"data:image/svg+xml,{quote(mark)}",
        style=beside("report.css"),
        policy=escape(policy),
        script=script,
        body=body,
    )


def to_notebook(document: Document) -> str:
    """The page without its script, in a frame that keeps its styles apart."""
    source = to_page(document, live=False).replace("&", "&amp;").replace('"', "&quot;")
    style = "width:100%;height:46rem;border:1px solid #8884;border-radius:8px"
    return f'<iframe sandbox="" title="{escape(_verdict(document))}" style="{style}" srcdoc="{source}"></iframe>'


def _verdict(document: Document) -> str:
    return next((block.text for block in document.blocks if isinstance(block, Heading)), document.name)


def _parts(blocks: Iterable[Block], level: int) -> tuple[list[Block], list[tuple[Heading, list[Block]]]]:
    """The blocks before the first heading of this level, and each heading with the blocks that follow it."""
    lead, parts = list[Block](), list[tuple[Heading, list[Block]]]()
    for block in blocks:
        if isinstance(block, Heading) and block.level == level:
            parts.append((block, []))
        else:
            (parts[-1][1] if parts else lead).append(block)
    return lead, parts


def _part(heading: Heading, blocks: list[Block], uid: str) -> str:
    head = tag("h2", escape(heading.text), id=f"{uid}-name")
    head += tag("p", escape(heading.about), "facts") if heading.about else ""
    content = tag("div", head, "subject-head") + _sections(blocks, uid)
    return tag("section", content, id=uid, class_="subject", aria_labelledby=f"{uid}-name")


def _sections(blocks: list[Block], uid: str) -> str:
    lead, sections = _parts(blocks, 3)
    content = _run(lead, uid)
    for place, (heading, inner) in enumerate(sections, 1):
        name = f"{uid}-{place}"
        section = tag("h3", escape(heading.text), id=name) + _run(inner, name)
        content += tag("section", section, "block", aria_labelledby=name)
    return content


def _run(blocks: Sequence[Block], uid: str) -> str:
    """Cards go together; everything else keeps its order."""
    lead, groups = _parts(blocks, 4)
    cards, rest = "", list[Block]()
    for heading, inner in groups:
        said = list(takewhile(lambda block: isinstance(block, Text | Bullets | Code), inner))
        cards += _card(heading, said)
        rest += inner[len(said) :]
    together = tag("div", cards, "findings") if cards else ""
    return _blocks(lead, uid) + together + _blocks(rest, f"{uid}-rest")


def _card(heading: Heading, blocks: Sequence[Block]) -> str:
    badge = _badge(heading.label, heading.tone) if heading.label else ""
    advice = [b for b in blocks if isinstance(b, Code) or (isinstance(b, Text) and b.tone == "advice")]
    said = tag("h4", badge + tag("span", escape(heading.text)))
    said = tag("div", said + "".join(_block(b) for b in blocks if b not in advice))
    said += tag("div", "".join(map(_block, advice)), "repair") if advice else ""
    return tag("article", said, f"finding {heading.tone}{'' if advice else ' brief'}")


def _badge(text: str, tone: str) -> str:
    return tag("span", escape(text.capitalize()), f"badge {tone}")


def _blocks(blocks: Sequence[Block], uid: str) -> str:
    return "".join(_block(block, f"{uid}-b{place}") for place, block in enumerate(blocks))


def _block(block: Block, uid: str = "b") -> str:
    match block:
        case Heading(level=1):  # a long verdict is smaller, so that numbers stay on the first screen
            size = "short" if len(block.text) <= 90 else "long" if len(block.text) <= 240 else "longest"
            word = block.label or block.tone
            badge = tag("p", _badge(word, block.tone), "eyebrow") if word else ""
            return badge + tag("h1", _prose(block.text), size)
        case Heading():
            return tag(f"h{block.level}", escape(block.text))
        case Text():
            return tag("p", _prose(block.text), _TONES.get(block.tone))
        case Bullets():
            items = "".join(tag("li", escape(item)) for item in block.items)
            return tag("ul", items, "evidence" if block.tone == "quiet" else "list")
        case Table():
            return _table(block)
        case Code():
            lines = map(escape, block.text.rstrip("\n").split("\n"))  # only line breaks stay invisible
            return _scroll(tag("pre", tag("code", "\n".join(lines))), "Code")
        case shown.Gauges():
            return tag("div", "".join(map(_tile, block.gauges)), "keys") if block.gauges else ""
        case Figure():
            return _figure(block, uid)
        case shown.Folded():
            is_named = any(isinstance(b, Heading) and b.text == block.title for b in block.blocks[:1])  # by the summary
            return tag("details", tag("summary", escape(block.title)) + _blocks(block.blocks[is_named:], uid))


def _prose(text: str) -> str:
    parts = enumerate(COMMAND.split(text))
    return "".join(tag("code", escape(part), "command") if i % 2 else _named(part) for i, part in parts)


def _named(text: str) -> str:
    return "".join(tag("code", escape(part)) if i % 2 else escape(part) for i, part in enumerate(_NAME.split(text)))


def _table(table: Table) -> str:
    sides = [None, *("n" if column in table.numbers else None for column in table.columns[1:])]
    named = zip(table.columns, sides, strict=True)
    head = tag("th", escape(table.grouped_by), scope="col") if table.groups else ""
    head += "".join(tag("th", escape(column), scope="col", class_=side) for column, side in named)
    content = tag("caption", escape(table.title)) if table.title else ""
    content += tag("thead", tag("tr", head))
    content += "".join(_run_of_rows(*run, sides, bool(table.groups)) for run in table.runs())
    label = table.title or f"Table of {', '.join(filter(None, table.columns))}"
    is_prose = (
        sides[-1] is None and len(table.columns) <= _FEW and max(map(_last_length, table.rows), default=0) > _SENTENCE
    )
    return _scroll(tag("table", content, f"data{' prose' * is_prose}"), label)


def _last_length(row: Sequence[str | Cell]) -> int:
    return len(row[-1].text if isinstance(row[-1], Cell) else row[-1])


def _scroll(content: str, label: str) -> str:
    return tag("div", content, "scroll", tabindex="0", role="region", aria_label=label)


def _run_of_rows(title: str, rows: Sequence[Sequence[str | Cell]], sides: Sequence[str | None], grouped: bool) -> str:
    body = ""
    for place, (first, *cells) in enumerate(rows):
        row = tag("td", "", "rest") if grouped and place else ""
        if grouped and not place:
            name, more = escape(title), tag("span", f"{len(rows) - 1} more", "muted")
            if len(rows) > 1:  # the style sheet shows the rest of a group where this is open
                name = tag("details", tag("summary", f"{name} {more}"), "fold")
            row = tag("th", name, scope="rowgroup")
        row += tag("th", _cell(first), scope="row")
        row += "".join(tag("td", _cell(cell), side) for cell, side in zip(cells, sides[1:], strict=True))
        body += tag("tr", row, "more" if grouped and place else None)
    return tag("tbody", body)


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return typeset_text(cell)
    text = typeset_text(cell.text)
    if cell.tone == "token":  # verbatim; isolated, as right-to-left text could reorder its neighbours
        text = tag("bdi", escape(cell.text), "token")
    elif cell.tone in _BADGES:
        text = _badge(cell.text, cell.tone)
    elif cell.tone in _CHANGES:
        text = tag("span", text, f"change {cell.tone}")
    elif cell.tone:
        text = tag("code" if cell.tone == "code" else "b", text)
    return text + (tag("span", typeset_text(cell.note), "under") if cell.note else "")


def _tile(gauge: shown.Gauge) -> str:
    content = tag("h2", escape(gauge.label))
    if gauge.value is None:
        content += tag("p", "undefined", "value none") + tag("p", escape(gauge.reason))
        return tag("div", content, "key")
    both = (gauge.value, gauge.reference)
    value, reference = (typeset_text("not known" if n is None else number(n, limits=gauge.limits)) for n in both)
    content += tag("p", value, "value") + _scale(gauge, gauge.value)
    content += tag("p", escape(gauge.judged), f"judged {gauge.tone}") if gauge.judged else ""
    content += tag("p", f"Isotropic: <b>{reference}</b> · {escape(better(gauge.better))}")
    content += _muted(" · ".join(filter(None, (gauge.about, f"range {span(gauge.limits)}"))))
    return tag("div", content, f"key {gauge.tone}".strip())


def _muted(text: str) -> str:
    return tag("p", typeset_text(text), "muted")


def _scale(gauge: shown.Gauge, value: float) -> str:
    low, high = gauge.limits
    if low is None or high is None or high <= low:
        return ""
    start = low if gauge.reference is None else gauge.reference
    at, tick = (100 * min(1.0, max(0.0, (one - low) / (high - low))) for one in (value, start))
    bars = _bar("track", 0, 100, 3) + _bar("reach", min(at, tick), max(at, tick), 3)
    bars += _bar("tick", tick - 0.3, tick + 0.3, 0) if gauge.reference is not None else ""
    bars += _bar("dot", at - 0.7, at + 0.7, 0)
    box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return tag("svg", bars, "gauge", **box, xmlns=SVG)


def _bar(css: str, left: float, right: float, inset: int) -> str:
    x = min(max(left, 0.0), 100.0 - right + left)  # not cut off at the end of the track
    return tag("rect", "", css, x=f"{x:.2f}", y=inset, width=f"{right - left:.2f}", height=10 - 2 * inset)


def _figure(figure: Figure, uid: str) -> str:
    curves = (curve for chart in figure.charts if isinstance(chart, Chart) for curve in chart.curves)
    lines = {curve.style for curve in curves if not is_scattered(curve)} - {"bins"}
    names = [(f"{'line' if style in lines else 'dots bin'} {style}", name) for style, name in figure.legend]
    content = tag("h4", escape(figure.title)) + _swatches(names)
    columns, panels = ("one", "one", "two", "three")[min(len(figure.charts), 3)], ""
    said = tag("figcaption", typeset_text(figure.caption)) if figure.caption else ""
    for place, chart in enumerate(figure.charts):
        name, heading = f"{uid}-{place}", chart.title if chart.title != figure.title else ""
        if isinstance(chart, Cloud):
            return tag("figure", drawn_or_said(chart, partial(_cloud, name), _instead) + said)
        panels += drawn_or_said(chart, partial(_chart, heading, name, columns == "three"), _instead)
    return tag("figure", content + tag("div", panels, f"panels {columns}") + said)


def _instead(why: str) -> str:
    return tag("div", tag("p", escape(why), _TONES["caution"]), "panel")


def _chart(heading: str, uid: str, narrow: bool, chart: Chart | shown.Intervals | shown.HeatMap, left: str) -> str:
    chart = replace(chart, caption=f"{chart.caption} {left}".strip())
    drawing = draw_heat(chart, uid) if isinstance(chart, shown.HeatMap) else draw(chart, uid, narrow=narrow)
    return _panel(heading, drawing, chart.caption)


def _panel(title: str, drawing: str, caption: str) -> str:
    title = tag("h5", escape(title)) if title else ""
    return tag("div", title + drawing + _muted(caption), "panel")


def _cloud(uid: str, cloud: Cloud, _: str) -> str:
    picture, heading, entries = cloud.picture, tag("h4", escape(cloud.title)), legends(cloud.picture)
    drawn = sum(entry.drawn for entry in entries)
    caption = (
        f"{count(drawn)} of {counted(picture.total, 'row')} drawn, the same {plural(drawn, 'row')} in both panels."
    )
    if drawn < len(picture.ids):
        caption += " A larger share of small groups is drawn, so that they can be seen."
    caption += " Each panel has its own directions and scale. Hover over an outer point to see its row."
    names = [(f"dots {e.css}", f"{e.name}, {count(e.drawn)} of {count(e.pictured)} drawn") for e in entries]
    panels = "".join(_panel(*panel) for panel in cone_panels(picture, uid))
    still = _swatches(names) + tag("div", panels, "panels two")
    still += tag("figcaption", typeset_text(caption))
    live = explorer(picture, cloud.shares, f"{uid}-explorer")
    return tag("div", heading + live, "live") + tag("div", heading + still, "still")


def _swatches(names: Sequence[tuple[str, str]]) -> str:
    items = ""
    for css, name in names:
        mark = path(css, "M1 6h34" if css.startswith("line") else "M18 6h.01")
        mark = tag("svg", mark, viewBox="0 0 36 12", class_="swatch", aria_hidden="true", xmlns=SVG)
        items += tag("li", mark + escape(name))
    return tag("ul", items, "legend") if items else ""
