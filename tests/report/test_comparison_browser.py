"""The page of a comparison in a real browser: nothing runs, nothing loads, nothing overflows. Select with `-m browser`."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.test_browser import SCHEMES, SCREENSHOTS, WIDTHS, _assert_quiet, _drawings, _Visit, browser
from tests.report.test_comparison_report import make_comparison
from uncone import report

pytestmark = pytest.mark.browser
__all__ = ["browser"]


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_quiet_and_fits(browser: Any, tmp_path: Path, width: int, scheme: str, count: int) -> None:
    path = tmp_path / "comparison.html"
    report.write_html(make_comparison(count), path)
    visit = _Visit(browser, path, width, scheme)
    page = visit.page
    assert page.title() == f"example-model and drifted{' and 4 more' if count == 6 else ''} · uncone comparison"
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "an open detail is too wide"
    assert _drawings(page, 9) == 12
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = false)")
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"comparison-{count}-{width}-{scheme}.png", full_page=True)
    _assert_quiet(visit, path.as_uri())
    visit.context.close()


def test_lines_differ_without_colour(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "comparison.html"
    report.write_html(make_comparison(6), path)
    visit = _Visit(browser, path, 1440, "light")
    style = "k => getComputedStyle(document.querySelector(`.chart .line.d${k}`)).strokeDasharray"
    assert len(set(visit.page.evaluate(f"[0, 1, 2, 3, 4, 5].map({style})"))) == 6
    visit.context.close()
