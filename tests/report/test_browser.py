"""The page in a real browser, from disk: nothing loads, nothing overflows, with scripts and without. Select with `-m browser`."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile
from uncone.records import Diagnosis
from uncone.records.text import shortened, visible
from uncone.report import write_html

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = (375, 1440)
SCHEMES = ("light", "dark")
# Text in drawings: its size on the screen, whether it is cut off, and whether two axis texts lie on each other.
MEASURE_TEXT = """() => [...document.querySelectorAll('svg.chart')].filter(svg => svg.checkVisibility()).map(svg => {
  const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width
  const texts = [...svg.querySelectorAll('text')], at = t => t.getBoundingClientRect()
  const axis = texts.filter(t => !t.classList.contains('mark')).map(at)
  const shared = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from])
  const overlaps = (a, b) => shared(a, b, 'left', 'right') > 1 && shared(a, b, 'top', 'bottom') > 3
  return {
    smallest: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize) * scale)),
    cut: texts.filter(t => at(t).left < box.left - 8 || at(t).right > box.right + 8).map(t => t.textContent),
    overlapping: axis.flatMap((a, i) => axis.slice(i + 1).filter(b => overlaps(a, b))).length,
  }
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium from the system."""
    found = [
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    ]
    if not found:
        pytest.skip("no Chromium on PATH: install chromium, chromium-browser or google-chrome")
    api = pytest.importorskip(
        "playwright.sync_api", reason="the extra [dev] with playwright is not installed"
    )
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found[0], args=ARGUMENTS)
        yield launched
        launched.close()


class _Visit:
    """One page opened from disk, with everything it said, threw and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str, **options: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri(), wait_until="load")


def _visit(
    browser: Any, diagnosis: Diagnosis, folder: Path, width: int, scheme: str, **options: Any
) -> tuple[_Visit, str]:
    path = folder / "report.html"
    write_html(diagnosis, path)
    return _Visit(browser, path, width, scheme, **options), path.as_uri()


def _assert_quiet(visit: _Visit, address: str) -> None:
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith("data:")] == [address]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_quiet_and_fits(browser: Any, tmp_path: Path, width: int, scheme: str, scripts: bool) -> None:
    visit, address = _visit(browser, make_diagnosis(), tmp_path, width, scheme, java_script_enabled=scripts)
    page = visit.page
    assert page.title() == "example-model · uncone diagnosis"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "an open detail is too wide"
    drawings = page.evaluate(MEASURE_TEXT)
    assert len(drawings) == (10 if scripts else 14), (
        "with scripts the picture to explore stands in for the drawn cones"
    )
    for drawing in drawings:
        assert drawing["smallest"] >= 9.5
        assert drawing["cut"] == []
        assert drawing["overlapping"] == 0
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = false)")
    for stage in page.locator(".stage").all() if scripts else ():
        stage.scroll_into_view_if_needed()  # a picture waits until it is seen
        page.wait_for_timeout(100)
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    SCREENSHOTS.mkdir(exist_ok=True)
    name = f"report-{width}-{scheme}.png" if scripts else f"report-{width}-{scheme}-without-scripts.png"
    page.screenshot(path=SCREENSHOTS / name, full_page=True)
    _assert_quiet(visit, address)
    visit.context.close()


def test_colours_follow_the_scheme(browser: Any, tmp_path: Path) -> None:
    colours = []
    for scheme in SCHEMES:
        visit, _ = _visit(browser, make_diagnosis(), tmp_path, 1440, scheme)
        colours.append(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        visit.context.close()
    assert colours[0] != colours[1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_strings_show_and_do_nothing(browser: Any, tmp_path: Path, text: str, width: int) -> None:
    visit, address = _visit(browser, make_hostile(text), tmp_path, width, "light")
    page = visit.page
    assert page.title().strip() == f"{shortened(text)} · uncone diagnosis"
    assert page.evaluate("document.querySelectorAll('img, iframe').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    tokens = page.locator("bdi.token").all_text_contents()
    assert tokens
    assert set(tokens) == {shortened(text)}
    assert visible(text) in page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    _assert_quiet(visit, address)
    visit.context.close()


def test_links_within_the_page_lead_to_their_subject(browser: Any, tmp_path: Path) -> None:
    visit, _ = _visit(browser, make_diagnosis(), tmp_path, 1440, "light")
    visit.page.emulate_media(reduced_motion="reduce")
    visit.page.get_by_role("link", name="Output head").click()
    assert abs(visit.page.locator("#s2").bounding_box()["y"]) < 100
    visit.context.close()
