"""The picture in a real browser: pointer, touch, keys, search, switches, tokens. Select with `-m browser`."""

import base64
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.records_example import HOSTILE, make_diagnosis, make_picture, make_subject
from tests.report.test_browser import SCHEMES, SCREENSHOTS, WIDTHS, _assert_quiet, _visit, browser
from uncone.diagnosis.record import Diagnosis
from uncone.records.parts import Picture
from uncone.records.token_text import shown_token

pytestmark = pytest.mark.browser
__all__ = ["browser"]
N = 600


def _picture(n: int = N, **changes: Any) -> Picture:
    """A picture that has norms and counts too."""
    norms = base64.b64encode(struct.pack(f"<{n}H", *(100 + i for i in range(n)))).decode()
    return replace(make_picture(n), **({"norms": norms, "norm_scale": 0.01, "counts": tuple(range(n))} | changes))


def _diagnosis(picture: Picture) -> Diagnosis:
    return replace(make_diagnosis(), subjects=(replace(make_subject(), picture=picture),))


class _Explorer:
    """The first picture of a page, brought to life."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.box = page.locator(".explorer").first
        self.marks = self.box.locator(".marks")
        self.tip = self.box.locator(".tip")
        self.said = self.box.locator(".said")
        self.box.scroll_into_view_if_needed()
        self.box.locator(".stage").wait_for()
        self.box.scroll_into_view_if_needed()  # it is taller now
        self.settle()

    def settle(self) -> None:
        """Two frames: what was asked for is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def choose(self, value: str) -> None:
        self.box.locator(f'label:has(input[value="{value}"])').click()
        self.settle()

    def colour(self, value: str) -> None:
        self.box.locator(".colour").select_option(value)
        self.settle()

    def pixels(self, css: str = ".points") -> str:
        """The canvas as it looks, for comparison."""
        self.settle()
        return str(self.page.evaluate("css => document.querySelector(css).toDataURL()", css))

    def at(self, point: int) -> tuple[float, float]:
        """Where a point lies in the window."""
        (x, y), box = self.place(point), self.marks.bounding_box()
        return box["x"] + x, box["y"] + y

    def place(self, point: int) -> tuple[float, float]:
        """Where a point lies on the canvas."""
        return tuple(self.page.evaluate("i => document.querySelector('.marks').place(i)", point))

    def press(self, *keys: str) -> None:
        self.marks.focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()


@contextmanager
def _open(
    browser: Any, folder: Path, shown: Diagnosis | None = None, width: int = 1440, scheme: str = "light", **options: Any
) -> Iterator[_Explorer]:
    """The picture of a page; at the end nothing was said on the console, thrown or asked for."""
    visit, address = _visit(browser, shown or _diagnosis(_picture()), folder, width, scheme, **options)
    yield _Explorer(visit.page)
    _assert_quiet(visit, address)
    visit.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_and_is_kept_as_a_screenshot(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    with _open(browser, tmp_path, width=width, scheme=scheme) as seen:
        for mode in ("raw", "centered"):
            for dims, colour in (("2", "group"), ("3", "norm")):
                seen.choose(mode)
                seen.choose(dims)
                seen.colour(colour)
                seen.page.mouse.move(*seen.at(100))
                seen.box.screenshot(path=SCREENSHOTS / f"picture-{width}-{scheme}-{mode}-{dims}.png")
                assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                tip, stage = seen.tip.bounding_box(), seen.box.locator(".stage").bounding_box()
                for at, size in (("x", "width"), ("y", "height")):
                    assert stage[at] <= tip[at]
                    assert tip[at] + tip[size] <= stage[at] + stage[size]


def test_hovering_names_the_nearest_point(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        for mode, dims in (("raw", "2"), ("centered", "3")):
            seen.choose(mode)
            seen.choose(dims)
            places = [seen.place(i) for i in range(N)]
            box = seen.marks.bounding_box()
            for step in range(12):
                x, y = places[50 * step % N][0] + 3, places[50 * step % N][1] - 2
                nearest = min(range(N), key=lambda i: (places[i][0] - x) ** 2 + (places[i][1] - y) ** 2)
                seen.page.mouse.move(box["x"] + x, box["y"] + y)
                expected = f"token{nearest}" if nearest % 5 else f"row {nearest}"
                assert seen.tip.locator("bdi").inner_text() == expected
            assert f"norm {(100 + nearest) / 100:.3g}" in seen.tip.inner_text()
            assert f"count {nearest}" in seen.tip.inner_text()
        seen.page.mouse.move(box["x"] + 4, box["y"] + box["height"] - 4)
        assert not seen.tip.is_visible(), "no point is near"


def test_the_switches_change_the_picture_and_what_is_said_of_it(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        looks, notes = [], []
        for mode, dims in (("raw", "2"), ("raw", "3"), ("centered", "2"), ("centered", "3")):
            seen.choose(mode)
            seen.choose(dims)
            looks.append(seen.pixels())
            notes.append(seen.box.locator("[data-note]:visible").all_inner_texts())
        assert len(set(looks)) == 4
        assert all(len(note) == 1 for note in notes)
        assert "two directions" in notes[0][0]
        assert "three directions" in notes[3][0]


def test_each_colour_has_its_scale_in_words(browser: Any, tmp_path: Path) -> None:
    words = {"group": "reserved tokens", "id": "Row id, linear", "norm": "Norm of the row as stored"}
    words["count"] = "Occurrences, logarithmic; grey: none"
    with _open(browser, tmp_path) as seen:
        looks = []
        for colour, text in words.items():
            seen.colour(colour)
            looks.append(seen.pixels())
            (shown,) = seen.box.locator("[data-scale]:visible").all_inner_texts()
            assert text in shown
        assert len(set(looks)) == 4
    with _open(browser, tmp_path, _diagnosis(_picture(counts=None, norms=None))) as seen:
        assert seen.box.locator(".colour option").all_inner_texts() == ["group", "row id"]


def test_search_counts_marks_and_steps(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        before, marks = seen.pixels(), seen.pixels(".marks")
        box = seen.box.locator("input[type=search]")
        box.fill("TOKEN12")
        found = [i for i in range(N) if i % 5 and str(i).startswith("12")]
        assert seen.said.inner_text() == f"{len(found)} of {N} tokens found; Enter goes to the next."
        assert seen.pixels(".marks") != marks, "rings, not only colour"
        assert seen.pixels() == before, "the points stay where they are"
        assert seen.page.evaluate("getComputedStyle(document.querySelector('.points')).opacity") < "0.5"
        seen.box.locator(".order").select_option("id")
        said = []
        box.focus()
        for key in ("Enter", "Enter", "Shift+Enter", "Shift+Enter"):
            seen.page.keyboard.press(key)
            said.append(seen.said.inner_text())
        assert [one.partition(":")[0] for one in said] == [f"{k} of {len(found)} found" for k in (1, 2, 1, len(found))]
        assert [int(text.split("token")[1].split(":")[0]) for text in said] == [found[0], found[1], found[0], found[-1]]
        seen.box.get_by_label("Next row").click()
        assert seen.said.inner_text().startswith("1 of")
        box.fill("no such token")
        assert seen.said.inner_text() == f"0 of {N} tokens found."
        box.fill("")
        assert seen.said.inner_text() == ""
        assert seen.pixels(".marks") == marks


def test_all_of_it_works_from_the_keyboard(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        for _ in range(12):  # controls, search, order, then the canvas
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate("document.activeElement.classList.contains('marks')"):
                break
        else:
            seen.marks.focus()
        assert seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        views = [seen.pixels()]
        for key in ("ArrowRight", "ArrowUp", "+", "-", "-"):
            seen.press(key)
            views.append(seen.pixels())
        assert len(set(views)) == len(views) - 1, "only - after + comes back to where it was"
        seen.press("0")
        assert seen.pixels() == views[0]
        seen.choose("3")
        before = seen.place(7)
        seen.press("ArrowRight")
        turned = seen.place(7)
        seen.press("Shift+ArrowRight")
        assert seen.place(7) == pytest.approx((turned[0] + 24, turned[1]), abs=1e-3)
        assert turned != pytest.approx(before, abs=0.5)
        seen.press("n", "n", "p")
        first = seen.said.inner_text()
        seen.press("n", "p")
        assert seen.said.inner_text() == first
        assert seen.tip.is_visible()
        seen.press("/")
        assert seen.page.evaluate("document.activeElement.type") == "search"
        seen.press("Escape")
        assert seen.said.inner_text() == ""
        assert not seen.tip.is_visible()


def test_steps_go_by_id_or_from_the_outside_in(browser: Any, tmp_path: Path) -> None:
    points = make_picture(N).coordinates(centered=False)
    mean = [sum(axis) / N for axis in zip(*points, strict=True)]
    outside_in = sorted(range(N), key=lambda i: -sum((v - m) ** 2 for v, m in zip(points[i], mean, strict=True)))
    with _open(browser, tmp_path) as seen:
        for order, expected in (("far", outside_in), ("id", list(range(N)))):
            seen.press("Escape")
            seen.box.locator(".order").select_option(order)
            for i in expected[:3]:
                seen.press("n")
                assert seen.said.inner_text().startswith(f"token{i}: row {i} ·" if i % 5 else f"row {i}: ")
        assert seen.said.get_attribute("aria-live") == "polite"


def test_a_step_to_a_row_out_of_view_brings_it_into_view(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        seen.press(*["+"] * 12)
        seen.press("n")
        assert seen.tip.is_visible()


def test_the_wheel_scrolls_the_page_until_the_picture_is_clicked(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        view, scrolled = seen.pixels(), seen.page.evaluate("scrollY")
        seen.page.mouse.move(*seen.at(7))
        seen.page.mouse.wheel(0, 40)
        seen.page.wait_for_function("y => scrollY > y", arg=scrolled)
        assert seen.pixels() == view
        seen.page.mouse.click(*seen.at(7))
        scrolled = seen.page.evaluate("scrollY")
        x, y = seen.at(7)
        seen.page.mouse.move(x, y)
        seen.page.mouse.wheel(0, -200)
        seen.page.wait_for_timeout(100)
        assert seen.pixels() != view
        assert seen.page.evaluate("scrollY") == scrolled
        assert seen.at(7) == pytest.approx((x, y), abs=0.6), "the point under the pointer stays there"


def test_dragging_moves_in_the_plane_and_turns_in_space(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        box = seen.marks.bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

        def drag() -> list[tuple[float, float]]:
            before = [seen.place(i) for i in (3, 400)]
            seen.page.mouse.move(*middle)
            seen.page.mouse.down()
            seen.page.mouse.move(middle[0] + 30, middle[1] + 20, steps=3)
            seen.page.mouse.up()
            seen.settle()
            return [(seen.place(i)[0] - x, seen.place(i)[1] - y) for i, (x, y) in zip((3, 400), before, strict=True)]

        assert drag() == [pytest.approx((30, 20), abs=1e-3)] * 2
        whole = seen.pixels()
        seen.page.mouse.dblclick(*middle)
        assert seen.pixels() != whole
        seen.choose("3")
        one, other = drag()
        assert one != pytest.approx(other, abs=0.5)


def test_a_tap_names_a_point_and_two_fingers_zoom(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path, width=375, has_touch=True, is_mobile=True) as seen:
        seen.page.touchscreen.tap(*seen.at(301))
        seen.settle()
        assert seen.tip.is_visible()
        assert "row" in seen.said.inner_text()
        apart = abs(seen.place(0)[0] - seen.place(590)[0])
        pinch = """([x, y]) => { const marks = document.querySelector('.marks')
          const event = (id, dx) => ({pointerId: id, pointerType: 'touch', clientX: x + dx, clientY: y})
          const send = (type, id, dx) => marks.dispatchEvent(new PointerEvent(type, event(id, dx)))
          marks.setPointerCapture = () => {}
          send('pointerdown', 11, -20); send('pointerdown', 12, 20)
          send('pointermove', 11, -40); send('pointermove', 12, 40)
          send('pointerup', 11, -40); send('pointerup', 12, 40) }"""
        box = seen.marks.bounding_box()
        seen.page.evaluate(pinch, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
        seen.settle()
        assert abs(seen.place(0)[0] - seen.place(590)[0]) == pytest.approx(2 * apart, rel=1e-3)


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_tokens_are_only_text(browser: Any, tmp_path: Path, width: int) -> None:
    image = "</script><img src=x onerror=\"document.title='x'\">"
    tokens = (*HOSTILE, image, "מילה עברית", "x" * 5000, "\u202eabc", "", " ", "\0")
    labels = tuple(tokens[i % len(tokens)] for i in range(N))
    with _open(browser, tmp_path, _diagnosis(_picture(labels=labels)), width) as seen:
        seen.box.locator(".order").select_option("id")
        for token in tokens:
            seen.press("n")
            assert seen.tip.locator("bdi").text_content() == shown_token(token, 80)
            assert seen.said.inner_text().strip().startswith(shown_token(token, 80).strip()[:20])
            assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen.page.title() == "example-model · uncone diagnosis"
        assert seen.page.evaluate("document.querySelectorAll('img, iframe').length") == 0
        assert seen.page.evaluate("document.querySelectorAll('script').length") == 2


def test_the_policy_stops_every_other_script(browser: Any, tmp_path: Path) -> None:
    visit, _ = _visit(browser, _diagnosis(_picture()), tmp_path, 1440, "light")
    visit.page.evaluate("""() => { const body = document.body, script = document.createElement('script')
      script.textContent = "document.title = 'x'"; body.append(script)
      body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="document.title = 1">') }""")
    visit.page.wait_for_timeout(100)
    assert visit.page.title() == "example-model · uncone diagnosis"
    assert any("Content Security Policy" in text for text in visit.said)
    visit.context.close()


def test_the_picture_follows_the_scheme_and_the_window(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        light = seen.pixels()
        seen.page.emulate_media(color_scheme="dark")
        assert seen.pixels() != light
        seen.page.set_viewport_size({"width": 375, "height": 900})
        seen.settle()
        places = [seen.place(i) for i in range(N)]
        box = seen.marks.bounding_box()
        assert all(0 < x < box["width"] and 0 < y < box["height"] for x, y in places)


def test_it_is_as_sharp_as_the_screen(browser: Any, tmp_path: Path) -> None:
    sizes = "(() => { const c = document.querySelector('.points'); return [c.width, c.clientWidth] })()"
    with _open(browser, tmp_path, width=375, device_scale_factor=2) as seen:
        width, shown = seen.page.evaluate(sizes)
        assert width == 2 * shown


def test_several_pictures_each_wait_until_they_are_seen(browser: Any, tmp_path: Path) -> None:
    diagnosis = replace(make_diagnosis(), subjects=(replace(make_subject(), picture=_picture()), make_subject("head")))
    with _open(browser, tmp_path, diagnosis) as seen:
        alive = "() => [...document.querySelectorAll('.marks')].map(marks => Boolean(marks.place))"
        assert seen.page.evaluate(alive) == [True, False]
        seen.page.locator(".explorer").nth(1).scroll_into_view_if_needed()
        seen.settle()
        assert seen.page.evaluate(alive) == [True, True]
        seen.page.locator('.explorer >> nth=1 >> label:has(input[value="3"])').click()
        assert seen.box.locator('input[value="2"]').is_checked(), "the other picture keeps its own switches"


def test_paper_and_readers_without_scripts_get_the_drawings(browser: Any, tmp_path: Path) -> None:
    with _open(browser, tmp_path) as seen:
        seen.page.emulate_media(media="print")
        assert not seen.box.is_visible()
        assert seen.page.locator(".still svg.chart").first.is_visible()


_EMPTY = replace(make_picture(3), raw=base64.b64encode(bytes(18)).decode())


@pytest.mark.parametrize("picture", [_picture(2), make_picture(2), _EMPTY])
def test_small_and_empty_clouds_draw(browser: Any, tmp_path: Path, picture: Picture) -> None:
    with _open(browser, tmp_path, _diagnosis(picture)) as seen:
        for mode in ("centered", "raw"):
            for dims in ("3", "2"):
                seen.choose(mode)
                seen.choose(dims)
                seen.press("n", "+", "ArrowLeft", "0")
                assert seen.tip.is_visible()


def test_hovering_over_a_full_picture_is_quick(browser: Any, tmp_path: Path) -> None:
    labels = tuple(f"token{i}" for i in range(32_768))
    with _open(browser, tmp_path, _diagnosis(_picture(len(labels), labels=labels, norms=None))) as seen:
        hover = """() => {
          const marks = document.querySelector('.marks'), box = marks.getBoundingClientRect(), taken = []
          for (let k = 0; k < 41; k++) {
            const began = performance.now()
            const at = {clientX: box.left + box.width * (.45 + .005 * k), clientY: box.top + box.height * .5}
            marks.dispatchEvent(new PointerEvent('pointermove', at))
            taken.push(performance.now() - began)
          }
          return taken.sort((a, b) => a - b)[20] }"""
        assert seen.page.evaluate(hover) < 50
        assert seen.tip.is_visible()


def test_until_it_is_made_its_drawing_stands_there(browser: Any, tmp_path: Path) -> None:
    """A screenshot of the whole page, a print or a slow phone shows no empty frame."""
    visit, _ = _visit(browser, _diagnosis(_picture()), tmp_path, 1440, "light")
    visit.page.add_init_script("window.IntersectionObserver = class { observe() {} unobserve() {} }")
    visit.page.reload()
    assert visit.page.locator(".still svg.chart").first.is_visible()
    assert visit.page.locator(".controls").is_visible()
    assert not visit.page.locator(".stage").is_visible()
    visit.context.close()
