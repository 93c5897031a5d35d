"""A document as one self-contained HTML page: no request; one script, for the picture and to copy commands."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from string import Template
from urllib.parse import quote

from uncone.records import blocks as shown
from uncone.records.blocks import Block, Bullets, Cell, Chart, Cloud, Code, Document, Figure, Heading, Table, Text
from uncone.records.text import COMMAND, better, count, number, plural, shortened, span
from uncone.report.cone import cone_panels, legends
from uncone.report.drawable import drawn_or_said
from uncone.report.explorer import explorer
from uncone.report.heat import draw_heat
from uncone.report.markup import SVG, beside, element, escape, path, typeset_text
from uncone.report.svg import draw, is_scattered

# Nothing but inline styles and the favicon may load, so a string that slipped through could still do nothing.
STILL = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_TONES = {"quiet": "facts", "lead": "lead", "caution": "caution"}
_BADGES = ("severe", "warning", "note", "healthy", "structure", "no_effect")
_CHANGES = ("better", "worse", "little")
_FEW_COLUMNS = 3


def to_page(document: Document, *, live: bool = True) -> str:
    """The document as a page that opens from disk. With `live` scripts let you explore a picture and copy code."""
    called = shortened(document.name)
    parts = _parts(document.blocks, 2)
    mark = beside("mark.svg").strip()
    body = element("span", mark + "uncone", class_="brand") + element("span", escape(called), class_="subject-name")
    if len(parts) > 2:
        named = enumerate((heading for heading, _ in parts[1:] if heading), start=1)
        links = "".join(element("a", escape(heading.text), href=f"#s{order}") for order, heading in named)
        body += element("nav", links, aria_label="Subjects")
    body = element("header", body, class_="masthead")
    body += element("main", "".join(_part(*part, order) for order, part in enumerate(parts)))
    body += element("footer", "".join(map(_block, document.footer)))
    charts = (chart for block in document.blocks if isinstance(block, Figure) for chart in block.charts)
    scripts = ["cone.js"] if any(isinstance(chart, Cloud) for chart in charts) else []
    scripts += ["copy.js"] if "<pre>" in body or 'class="command"' in body else []
    script, policy = "", STILL
    if live and scripts:
        script = f"/*<![CDATA[*/\n{''.join(map(beside, scripts))}/*]]>*/"  # so that the page is XML too
        digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        script, policy = f"<script>{script}</script>\n", f"{STILL}; script-src 'sha256-{digest}'"
    words = {"title": escape(f"{called} · uncone {document.kind}"), "description": escape(_verdict(document))}
    files = {"icon": f"data:image/svg+xml,{quote(mark)}", "style": beside("report.css")}
    return Template(beside("page.html")).substitute(words | files, policy=escape(policy), script=script, body=body)


def to_notebook(document: Document) -> str:
    """The document for a notebook: the page without its script, in a frame that keeps its styles apart."""
    source = to_page(document, live=False).replace("&", "&amp;").replace('"', "&quot;")
    style = "width:100%;height:46rem;border:1px solid #8884;border-radius:8px"
    title = escape(_verdict(document))
    return f'<iframe sandbox="" title="{title}" style="{style}" srcdoc="{source}"></iframe>'


def _verdict(document: Document) -> str:
    return next((block.text for block in document.blocks if isinstance(block, Heading)), document.name)


def _parts(blocks: Iterable[Block], level: int) -> list[tuple[Heading | None, list[Block]]]:
    parts: list[tuple[Heading | None, list[Block]]] = [(None, [])]
    for block in blocks:
        if isinstance(block, Heading) and block.level == level:
            parts.append((block, []))
        else:
            parts[-1][1].append(block)
    return parts


def _part(heading: Heading | None, blocks: list[Block], order: int) -> str:
    uid = f"s{order}"
    (_, lead), *sections = _parts(blocks, 3)
    content = _run(lead, uid)
    for place, (title, inner) in enumerate(sections, start=1):
        assert title is not None
        name = f"{uid}-{place}"
        section = element("h3", escape(title.text), id=name) + _run(inner, name)
        content += element("section", section, class_="block", aria_labelledby=name)
    if heading is None:
        return content if not blocks else element("section", content, class_="hero")
    head = element("h2", escape(heading.text), id=f"{uid}-name")
    head += element("p", escape(heading.about), class_="facts") if heading.about else ""
    content = element("div", head, class_="subject-head") + content
    return element("section", content, id=uid, class_="subject", aria_labelledby=f"{uid}-name")


def _run(blocks: Sequence[Block], uid: str) -> str:
    """Blocks without headings of parts and sections: cards stand together, everything else in its order."""
    (_, lead), *groups = _parts(blocks, 4)
    cards, rest = "", list[Block]()
    for heading, inner in groups:
        assert heading is not None
        said = list(takewhile(lambda block: isinstance(block, Text | Bullets | Code), inner))
        cards += _card(heading, said)
        rest += inner[len(said) :]
    together = element("div", cards, class_="findings") if cards else ""
    return _blocks(lead, uid) + together + _blocks(rest, f"{uid}-rest")


def _card(heading: Heading, blocks: Sequence[Block]) -> str:
    badge = _badge(heading.label, heading.tone) if heading.label else ""
    advice = [b for b in blocks if isinstance(b, Code) or (isinstance(b, Text) and b.tone == "advice")]
    said = element("h4", badge + element("span", escape(heading.text)))
    said += "".join(_block(block) for block in blocks if block not in advice)
    advised = element("div", "".join(map(_block, advice)), class_="repair") if advice else ""
    css = f"finding {heading.tone}{'' if advice else ' brief'}"
    return element("article", element("div", said) + advised, class_=css)


def _badge(text: str, tone: str) -> str:
    return element("span", escape(text.capitalize()), class_=f"badge {tone}")


def _blocks(blocks: Sequence[Block], uid: str) -> str:
    return "".join(_block(block, f"{uid}-b{place}") for place, block in enumerate(blocks))


def _block(block: Block, uid: str = "b") -> str:
    match block:
        case Heading(level=1):
            # A long verdict is set smaller, so that the numbers under it stay on the first screen.
            size = "short" if len(block.text) <= 90 else "long" if len(block.text) <= 240 else "longest"
            word = block.label or block.tone
            badge = element("p", _badge(word, block.tone), class_="eyebrow") if word else ""
            return badge + element("h1", _prose(block.text), class_=size)
        case Heading():
            return element(f"h{block.level}", escape(block.text))
        case Text():
            return element("p", _prose(block.text), class_=_TONES.get(block.tone))
        case Bullets():
            items = "".join(element("li", escape(item)) for item in block.items)
            return element("ul", items, class_="evidence" if block.tone == "quiet" else "list")
        case Table():
            return _table(block)
        case Code():
            lines = map(escape, block.text.rstrip("\n").split("\n"))  # only breaks of lines stay unseen
            code = element("pre", element("code", "\n".join(lines)))
            return element("div", code, class_="scroll", tabindex="0", role="region", aria_label="Code")
        case shown.Gauges():
            return element("div", "".join(map(_tile, block.gauges)), class_="keys") if block.gauges else ""
        case Figure():
            return _figure(block, uid)
        case shown.Folded():
            first = block.blocks[0] if block.blocks else None
            is_named = isinstance(first, Heading) and first.text == block.title  # the summary says it
            inner = _blocks(block.blocks[is_named:], uid)
            return element("details", element("summary", escape(block.title)) + inner)


def _prose(text: str) -> str:
    parts = enumerate(COMMAND.split(text))
    return "".join(element("code", escape(part), class_="command") if i % 2 else escape(part) for i, part in parts)


def _table(table: Table) -> str:
    sides = [None, *("n" if column in table.numbers else None for column in table.columns[1:])]
    named = zip(table.columns, sides, strict=True)
    head = element("th", escape(table.grouped_by), scope="col") if table.groups else ""
    head += "".join(element("th", escape(column), scope="col", class_=side) for column, side in named)
    bodies = (_run_of_rows(title, rows, sides, bool(table.groups)) for title, rows in table.runs())
    content = element("caption", escape(table.title)) if table.title else ""
    content += element("thead", element("tr", head)) + "".join(bodies)
    drawn = element("table", content, class_="data")
    label = table.title or f"Table of {', '.join(column for column in table.columns if column)}"
    return element("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=label)


def _run_of_rows(title: str, rows: Sequence[Sequence[str | Cell]], sides: Sequence[str | None], grouped: bool) -> str:
    body = ""
    for place, (first, *cells) in enumerate(rows):
        row = element("td", class_="rest") if grouped and place else ""
        if grouped and not place:
            # What opens the rest of a group is an element of its own, which style sheets look at.
            words, more = escape(title), element("span", f"{len(rows) - 1} more", class_="muted")
            fold = element("details", element("summary", f"{words} {more}"), class_="fold")
            row = element("th", fold if len(rows) > 1 else words, scope="rowgroup")
        row += element("th", _cell(first), scope="row")
        placed = zip(cells, sides[1:], strict=True)
        row += "".join(element("td", _cell(cell), class_=side) for cell, side in placed)
        body += element("tr", row, class_="more" if grouped and place else None)
    return element("tbody", body)


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return typeset_text(cell)
    text = typeset_text(cell.text)
    if cell.tone == "token":
        # verbatim spaces, and isolated: right-to-left text cannot reorder its neighbours
        text = f'<bdi class="token">{escape(cell.text)}</bdi>'
    elif cell.tone in _BADGES:
        text = _badge(cell.text, cell.tone)
    elif cell.tone in _CHANGES:
        text = element("span", text, class_=f"change {cell.tone}")
    elif cell.tone:
        text = element("code" if cell.tone == "code" else "b", text)
    return text + (element("span", typeset_text(cell.note), class_="under") if cell.note else "")


def _tile(gauge: shown.Gauge) -> str:
    content = element("h2", escape(gauge.label))
    if gauge.value is None:
        content += element("p", "undefined", class_="value none") + element("p", escape(gauge.reason))
        return element("div", content, class_="key")
    both = (gauge.value, gauge.reference)
    value, reference = (typeset_text("not known" if n is None else number(n, limits=gauge.limits)) for n in both)
    content += element("p", value, class_="value") + _scale(gauge, gauge.value)
    content += element("p", escape(gauge.judged), class_=f"judged {gauge.tone}") if gauge.judged else ""
    content += element("p", f"Isotropic: <b>{reference}</b> · {escape(better(gauge.better))}")
    about = " · ".join(part for part in (gauge.about, f"range {span(gauge.limits)}") if part)
    content += element("p", typeset_text(about), class_="muted")
    return element("div", content, class_=f"key {gauge.tone}".strip())


def _scale(gauge: shown.Gauge, value: float) -> str:
    low, high = gauge.limits
    if low is None or high is None or high <= low:
        return ""
    start = gauge.reference if gauge.reference is not None else low
    at, tick = (100 * min(1.0, max(0.0, (one - low) / (high - low))) for one in (value, start))
    bars = _bar("track", 0, 100, 3) + _bar("reach", min(at, tick), max(at, tick), 3)
    bars += _bar("tick", tick - 0.3, tick + 0.3, 0) if gauge.reference is not None else ""
    bars += _bar("dot", at - 0.7, at + 0.7, 0)
    box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none"}
    return element("svg", bars, class_="gauge", **box, aria_hidden="true", xmlns=SVG)


def _bar(css: str, left: float, right: float, inset: int) -> str:
    x = min(max(left, 0.0), 100.0 - right + left)  # a mark at the very end of the track stays whole
    return element("rect", class_=css, x=f"{x:.2f}", y=inset, width=f"{right - left:.2f}", height=10 - 2 * inset)


def _figure(figure: Figure, uid: str) -> str:
    curves = [curve for chart in figure.charts if isinstance(chart, Chart) for curve in chart.curves]
    lines = {curve.style for curve in curves if not is_scattered(curve)} - {"bins"}
    names = [(f"{'line' if style in lines else 'dots bin'} {style}", name) for style, name in figure.legend]
    content = element("h4", escape(figure.title)) + _swatches(names)
    columns = "three" if len(figure.charts) >= _FEW_COLUMNS else "two" if len(figure.charts) > 1 else "one"
    panels = ""
    said = element("figcaption", typeset_text(figure.caption)) if figure.caption else ""
    for place, chart in enumerate(figure.charts):
        name = f"{uid}-{place}"
        if isinstance(chart, Cloud):
            return element("figure", drawn_or_said(chart, partial(_cloud, name), _instead) + said)
        heading = chart.title if chart.title != figure.title else ""
        panels += drawn_or_said(chart, partial(_chart, heading, name, columns == "three"), _instead)
    return element("figure", content + element("div", panels, class_=f"panels {columns}") + said)


def _instead(why: str) -> str:
    return element("div", element("p", escape(why), class_=_TONES["caution"]), class_="panel")


def _chart(heading: str, uid: str, narrow: bool, chart: Chart | shown.Intervals | shown.HeatMap, left: str) -> str:
    chart = replace(chart, caption=" ".join(filter(None, (chart.caption, left))))
    drawing = draw_heat(chart, uid) if isinstance(chart, shown.HeatMap) else draw(chart, uid, narrow=narrow)
    return _panel(heading, drawing, chart.caption)


def _panel(title: str, drawing: str, caption: str) -> str:
    heading = element("h5", escape(title)) if title else ""
    return element("div", heading + drawing + element("p", typeset_text(caption), class_="muted"), class_="panel")


def _cloud(uid: str, cloud: Cloud, _: str) -> str:
    picture, heading = cloud.picture, element("h4", escape(cloud.title))
    entries = legends(picture)
    drawn = sum(entry.drawn for entry in entries)
    of = f"{count(picture.total)} {plural(picture.total, 'row')}"
    caption = f"{count(drawn)} of {of} drawn, the same {plural(drawn, 'row')} in both panels."
    if drawn < len(picture.ids):
        caption += " Small groups are drawn more densely than they are, so that they can be seen."
    caption += " The two panels have their own directions and scales. Outermost points tell their row on hover."
    names = [(f"dots {e.css}", f"{e.name}, {count(e.drawn)} of {count(e.pictured)} drawn") for e in entries]
    panels = "".join(_panel(*panel) for panel in cone_panels(picture, uid))
    still = heading + _swatches(names) + element("div", panels, class_="panels two")
    still += element("figcaption", typeset_text(caption))
    live = heading + explorer(picture, cloud.shares, f"{uid}-explorer")
    return element("div", live, class_="live") + element("div", still, class_="still")


def _swatches(names: Sequence[tuple[str, str]]) -> str:
    items = ""
    for css, name in names:
        mark = path(css, "M1 6h34" if css.startswith("line") else "M18 6h.01")
        drawing = element("svg", mark, viewBox="0 0 36 12", class_="swatch", aria_hidden="true", xmlns=SVG)
        items += element("li", drawing + escape(name))
    return element("ul", items, class_="legend") if items else ""
