"""The page in a real browser, with scripts and without: nothing loads or overflows. Select with `-m browser`."""

import lzma
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.report.records_example import HOSTILE, make_diagnosis, make_groups, make_hostile, make_subject
from tests.report.test_comparison_report import make_comparison
from tests.report.test_evaluation_terminal import _evaluation
from tests.report.test_repair_terminal import HEAD, REPAIRED, SELECTION, TOKENS
from tests.watching.files import lines_of, warning, write
from uncone import calibrate, diagnose
from uncone.calibration.record import Calibration
from uncone.diagnosis.record import Diagnosis
from uncone.records.parts import Finding, Measurement
from uncone.records.text import shortened, visible
from uncone.report import write_html
from uncone.watching.record import Watch
from uncone.watching.watch import watch

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
TEXT = Path(__file__).parents[2] / "../shared/data/lm/wikitext-2/test.txt.xz"
_OFF = ("gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in _OFF)]
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

# Texts whose contrast with what is behind them is below that of WCAG 2.2 AA (1.4.3), and controls without a name.
HARD_TO_READ = """() => {
  const pen = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true})
  const rgba = colour => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1)
    return [...pen.getImageData(0, 0, 1, 1).data].map(value => value / 255)
  }
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3]))
  const linear = value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4
  const luminance = c => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2])
  const parents = element => { const all = []; for (let e = element; e; e = e.parentElement) all.push(e); return all }
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement
    if (!text || /^(script|style|title|desc)$/i.test(element.tagName) || !element.checkVisibility({visibilityProperty: true})) continue
    const style = getComputedStyle(element), svg = element.closest('svg')
    const behind = parents(svg || element).map(e => rgba(getComputedStyle(e).backgroundColor)).reverse()
    const paper = behind.reduce((below, colour) => over(colour, below), [1, 1, 1])
    const ink = rgba(svg ? style.fill : style.color)
    ink[3] *= parents(element).reduce((product, e) => product * getComputedStyle(e).opacity, 1)
    const [high, low] = [luminance(over(ink, paper)), luminance(paper)].sort((a, b) => b - a)
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700)
    if ((high + .05) / (low + .05) < (large ? 3 : 4.5)) found.push(text)
  }
  for (const control of document.querySelectorAll('button, select, input, a, summary, [tabindex]')) {
    const label = control.labels?.[0]?.textContent || control.textContent || control.getAttribute('aria-label')
    if (!label?.trim()) found.push(control.outerHTML)
  }
  return found
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium from the system."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        pytest.skip("no Chromium on PATH: install chromium, chromium-browser or google-chrome")
    api = pytest.importorskip("playwright.sync_api", reason="the extra [dev] with playwright is not installed")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found[0], args=ARGUMENTS)
        yield launched
        launched.close()


class _Visit:
    """One page opened from disk, with everything it said, threw and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri(), wait_until="load")


def _visit(browser: Any, diagnosis: Diagnosis, to: Path, width: int, scheme: str, **options: Any) -> tuple[_Visit, str]:
    path = to / "report.html"
    write_html(diagnosis, path)
    return _Visit(browser, path, width, scheme, **options), path.as_uri()


def _drawings(page: Any, least: float) -> int:
    """How many drawings there are; their texts are of this size at least, whole, and apart from each other."""
    drawings = page.evaluate(MEASURE_TEXT)
    for drawing in drawings:
        assert drawing["smallest"] >= least
        assert (drawing["cut"], drawing["overlapping"]) == ([], 0)
    return len(drawings)


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
    _see_pictures(page)
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "an open detail is too wide"
    drawings = _drawings(page, 9.5)
    assert drawings == (10 if scripts else 14), "with scripts the picture to explore stands in for the drawn cones"
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = false)")
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_contrast_and_controls_have_names(browser: Any, tmp_path: Path, scheme: str) -> None:
    visit, _ = _visit(browser, make_diagnosis(), tmp_path, 1440, scheme)
    page = visit.page
    _see_pictures(page)
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate(HARD_TO_READ) == []
    page.add_style_tag(content=".muted { color: color-mix(in srgb, var(--ink) 40%, var(--page)) !important }")
    page.evaluate("document.querySelector('.seek button').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('.seek button').textContent = ''")
    assert len(page.evaluate(HARD_TO_READ)) > 1
    visit.context.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_keyboard_reaches_every_control_and_shows_where_it_is(browser: Any, tmp_path: Path, scripts: bool) -> None:
    visit, _ = _visit(browser, make_diagnosis(), tmp_path, 1440, "light", java_script_enabled=scripts)
    page = visit.page
    if scripts:
        _see_pictures(page)
    stops = "button, select, input:checked, input[type=search], a[href], summary, [tabindex='0']"
    most = page.evaluate(f'[...document.querySelectorAll("{stops}")].filter(e => e.checkVisibility()).length')
    reached = set()
    for _ in range(most + 5):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "(e => e === document.body ? null : [e.outerHTML + e.getBoundingClientRect().top + scrollY, "
            "parseFloat(getComputedStyle(e).outlineWidth)])(document.activeElement)"
        )
        if at is None:
            break
        reached.add(at[0])
        assert at[1] >= 2, f"nothing shows that {at[0]:.200} has the keyboard"
    assert len(reached) == most
    visit.context.close()


def test_values_and_intervals_are_on_a_phones_screen(browser: Any, tmp_path: Path) -> None:
    visit, _ = _visit(browser, make_diagnosis(), tmp_path, 375, "light")
    page = visit.page
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    edges = page.evaluate(
        "[...document.querySelectorAll('tbody td:has(> b)')].map(e => e.getBoundingClientRect().right)"
    )
    assert len(edges) > 10
    assert max(edges) <= 375
    visit.context.close()


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


def _two_tables(d: Diagnosis) -> Diagnosis:
    """A real table, and the same again as a head with readings without effect: all that a page can hold, twice."""
    (table,) = d.subjects
    return replace(d, subjects=(table, replace(table, name="head", without_effect=table.measurements[:7])))


def _trained_gpt2(out: Path) -> Path:
    """A byte-level GPT-2 with a head of its own, trained for 90 steps: 20 of its 4,000 tokens never occur."""
    if not TEXT.is_file():
        pytest.skip("the shared WikiText-2 is not there")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra [hf] is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")
    texts = [line for line in lzma.decompress(TEXT.read_bytes()).decode().splitlines(keepends=True) if line.strip()]
    made, special = tokenizers.ByteLevelBPETokenizer(), [f"<|{k}|>" for k in range(20)]
    made.train_from_iterator(texts, vocab_size=4000, special_tokens=special, show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, eos_token=special[0])
    ids = torch.tensor(tokenizer("".join(texts), verbose=False)["input_ids"])
    rows = ids[: len(ids) // 64 * 64].view(-1, 64)
    sizes = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 96, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(90):
        batch = rows[torch.randint(len(rows), (16,))]
        logits = model(input_ids=batch).logits[:, :-1]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimiser.step()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


@pytest.mark.parametrize(("kind", "most"), [("MiniLM", 5.2), ("two tables", 9.0), ("GPT-2", 8.3)])
def test_a_real_model_takes_few_screens(browser: Any, tmp_path: Path, of_minilm: Any, kind: str, most: float) -> None:
    diagnosis = diagnose(_trained_gpt2(tmp_path / "gpt2")) if kind == "GPT-2" else _two_tables(of_minilm)
    if kind == "MiniLM":
        diagnosis = replace(diagnosis, subjects=diagnosis.subjects[:1])
    visit, _ = _visit(browser, diagnosis, tmp_path, 1440, "light")
    _see_pictures(visit.page)
    visit.page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    assert visit.page.evaluate("document.documentElement.scrollHeight") <= most * 900
    places = ("h1", ".keys", ".finding", ".stage", "table")
    order = [visit.page.locator(css).first.bounding_box()["y"] for css in places]
    assert order == sorted(order), "verdict, headline numbers, findings and picture come first"
    assert order[3] < 2 * 900
    visit.context.close()


def _see_pictures(page: Any) -> None:
    """A picture is made once it is near the window, and stands in for its drawing from then on."""
    for explorer in page.locator(".live .explorer:visible").all():
        explorer.scroll_into_view_if_needed()
        page.wait_for_timeout(100)


def _readings(page: Any) -> list[str]:
    """The names in the first table of measures that can be seen."""
    seen = "all => all.filter(one => one.checkVisibility()).map(one => one.textContent)"
    return page.locator("table:has(.fold)").first.locator("th[scope=row]").evaluate_all(seen)


def test_measures_are_folded_by_question_and_each_first_is_open(browser: Any, tmp_path: Path, of_minilm: Any) -> None:
    visit, _ = _visit(browser, of_minilm, tmp_path, 1440, "light", java_script_enabled=False)
    first = ["Mean cosine, raw", "IsoScore, centred", "Effective rank, centred", "Rogue dimensions, raw"]
    first += ["Partition isotropy, raw", "Uniformity, raw", "Correlation of norm and id, raw"]
    assert _readings(visit.page) == first
    visit.page.locator(".fold summary").first.focus()
    visit.page.keyboard.press("Enter")
    assert _readings(visit.page)[:3] == ["Mean cosine, raw", "Mean shift, raw", "IsoScore, centred"]
    visit.page.emulate_media(media="print")
    assert len(_readings(visit.page)) == 23, "on paper nothing can be opened"
    visit.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_wide_tables_scroll_within_themselves_on_phones(
    browser: Any, tmp_path: Path, of_minilm: Any, scheme: str
) -> None:
    for record in (of_minilm, calibrate(torch.randn(400, 16), most_pairs=10_000), make_comparison(3)):
        path = tmp_path / "report.html"
        write_html(record, path)
        visit = _Visit(browser, path, 375, scheme)
        for is_open in (False, True):
            visit.page.evaluate("now => document.querySelectorAll('details').forEach(one => one.open = now)", is_open)
            assert visit.page.evaluate("document.documentElement.scrollWidth") == 375
        over = "all => all.filter(one => one.checkVisibility()).map(one => one.scrollWidth - one.clientWidth)"
        assert max(visit.page.locator(".scroll:has(table)").evaluate_all(over)) > 0, "a wide table is not squeezed"
        heights = visit.page.locator("td").evaluate_all("all => all.map(one => one.offsetHeight)")
        assert not isinstance(record, Calibration) or max(heights) < 40, "a cell of a threshold is one line"
        visit.context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_names_beside_their_lines_fit(browser: Any, tmp_path: Path, width: int) -> None:
    before, after = (Measurement("all_but_the_top_original_d100", value, reference=1.0) for value in (0.5, 0.1))
    named = replace(REPAIRED, before=(*REPAIRED.before, before), after=(*REPAIRED.after, after))
    for record in (named, _evaluation(), SELECTION, HEAD, TOKENS):
        path = tmp_path / "report.html"
        write_html(record, path)
        visit = _Visit(browser, path, width, "light")
        _drawings(visit.page, 9.3)
        assert visit.page.evaluate("document.documentElement.scrollWidth") == width
        visit.context.close()


@pytest.mark.parametrize("blocked", [False, True], ids=["clipboard", "no-clipboard"])
def test_a_button_copies_a_command_and_says_so(browser: Any, tmp_path: Path, blocked: bool) -> None:
    command = "uncone repair-tokens MODEL OUT --tokens <auto> & more"
    finding = Finding("degenerate_tail", "severe", "S.", (f"`{command}`",), f"Set them anew: `{command}`, or train on.")
    diagnosis = replace(make_diagnosis(), subjects=(replace(make_subject(), findings=(finding,)),))
    clipboard = ["clipboard-read", "clipboard-write"]
    visit, address = _visit(browser, diagnosis, tmp_path, 375, "light", permissions=clipboard)
    page = visit.page
    if blocked:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')) }")
    (button,) = page.locator(".copy").all()  # none for the evidence, which may be of a token
    assert page.get_by_role("button", name="Copy uncone repair-tokens").is_visible()
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('[role=status].unseen').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == command
    assert button.text_content().startswith("Copied")
    page.keyboard.press("Tab")
    assert button.text_content().startswith("Copy ")
    page.emulate_media(media="print")
    assert not button.is_visible()
    _assert_quiet(visit, address)
    visit.context.close()


def test_code_has_a_button_and_a_page_without_scripts_has_none(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    calibration = calibrate(torch.randn(400, 16), most_pairs=10_000)
    write_html(calibration, path)
    for scripts in (True, False):
        visit = _Visit(browser, path, 1440, "light", java_script_enabled=scripts)
        assert visit.page.get_by_role("button", name="Copy").count() == scripts
        visit.context.close()
    visit = _Visit(browser, path, 1440, "light", permissions=["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name="Copy").click()
    assert visit.page.evaluate("navigator.clipboard.readText()") == calibration.function.rstrip("\n")
    visit.context.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_printed_page_has_the_picture_and_no_table_lies_on_another(
    browser: Any, tmp_path: Path, of_minilm: Any, scripts: bool
) -> None:
    visit, _ = _visit(browser, of_minilm, tmp_path, 718, "dark", java_script_enabled=scripts)
    page = visit.page
    page.emulate_media(media="print")
    drawn = page.locator(".still svg.chart")
    assert drawn.count() == 2
    assert all(one.is_visible() and one.bounding_box()["height"] > 200 for one in drawn.all())
    assert not page.locator(".stage").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 718, "Chromium would shrink every page"
    over = "all => all.filter(one => one.scrollHeight > one.clientHeight + 2).length"
    assert page.locator(".scroll").evaluate_all(over) == 0
    assert len(page.pdf()) > 100_000
    visit.context.close()


def test_few_points_are_dots_of_their_own_colours(browser: Any, tmp_path: Path) -> None:
    few = [replace(bin, start=1000 * k, stop=1000 * k + 1000) for k, bin in enumerate(make_groups().bins[:4])]
    subject = replace(make_subject(), groups=replace(make_groups(), bins=tuple(few)))
    visit, _ = _visit(browser, replace(make_diagnosis(), subjects=(subject,)), tmp_path, 1440, "light")
    figure = visit.page.locator("figure", has_text="By row id")
    assert figure.locator("path.line").count() == 0
    assert figure.locator(".chart path.dots").count() == 3 + 3 + 4  # the fourth bin has no cosines
    colours = figure.locator(".chart path.dots").evaluate_all("all => all.map(one => getComputedStyle(one).stroke)")
    assert len(set(colours)) == 2
    visit.context.close()


def test_links_within_the_page_lead_to_their_subject(browser: Any, tmp_path: Path) -> None:
    visit, _ = _visit(browser, make_diagnosis(), tmp_path, 1440, "light")
    visit.page.emulate_media(reduced_motion="reduce")
    visit.page.get_by_role("link", name="Output head").click()
    assert abs(visit.page.locator("#s2").bounding_box()["y"]) < 100
    visit.context.close()


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_is_quiet_and_fits(browser: Any, tmp_path: Path, width: int, scheme: str, count: int) -> None:
    path = tmp_path / "comparison.html"
    write_html(make_comparison(count), path)
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
    write_html(make_comparison(6), path)
    visit = _Visit(browser, path, 1440, "light")
    style = "k => getComputedStyle(document.querySelector(`.chart .line.d${k}`)).strokeDasharray"
    assert len(set(visit.page.evaluate(f"[0, 1, 2, 3, 4, 5].map({style})"))) == 6
    visit.context.close()


def _watched(to: Path, text: str) -> Watch:
    """Three runs with all readings of a tied model and its groups, two of them with warnings; `text` names whatever
    can be named."""
    kinds = ("mean_cosine", "mean_share", "norm_median", "norm_largest", "sample_rank", "participation_ratio", "dead")
    names = [
        f"{part}.{group}{kind}" for part in ("head", "table", "states") for group in ("", "rare.") for kind in kinds
    ]
    names += [f"gradient.{name}" for name in ("norm", "pulled", "net", text)] + [f"head.{text}.mean_cosine", text]
    paths = []
    for place in range(3):
        of: dict[str, Any] = {
            name: lambda s, k=k, p=place: 1 + p + math.sin(k + s / 300) for k, name in enumerate(names)
        }
        of |= {f"table.{kind}": of[f"head.{kind}"] for kind in kinds[4:]} | {"head.dead": 0}
        of |= {"loss.cross_entropy": lambda s, p=place: 9 - math.log(s + 1) + p, "loss.logsumexp": 7.0}
        lines = lines_of(range(0, 2500, 50), **of)
        if place:
            lines += [warning(2450, "rank", names[4]), warning(2450, text, text, f"{text} rose. {text}")]
            lines += [warning(2450, "loss", "loss.cross_entropy", "The loss rose from 3 to 4. Look.")]
        paths.append(write(to / f"{place}.jsonl", lines))
    return watch(paths, names=[f"{text} {place}" for place in range(3)])


@pytest.mark.parametrize("text", ["run", *HOSTILE], ids=ascii)
@pytest.mark.parametrize("width", WIDTHS)
def test_watched_runs_are_quiet_and_fit(browser: Any, tmp_path: Path, width: int, text: str) -> None:
    path = tmp_path / "watch.html"
    write_html(_watched(tmp_path, text), path)
    visit = _Visit(browser, path, width, "light")
    page = visit.page
    assert page.evaluate("document.querySelectorAll('img, iframe').length") == 0
    assert page.locator("h1").inner_text().startswith("2 of 3 runs have warnings")
    assert page.evaluate("document.documentElement.scrollHeight") <= (4.9 if width == 1440 else 11) * 900
    places = ("h1", "table", "figure")
    order = [page.locator(css).first.bounding_box()["y"] for css in places]
    assert order == sorted(order), "verdict, warnings and courses in this order"
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert text != "run" or page.locator(".scroll:has(.prose)").evaluate_all(cut) == 0, "what happened is cut"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "an open detail is too wide"
    assert _drawings(page, 9) > 20
    styles = "all => all.map(one => getComputedStyle(one).strokeDasharray)"
    assert len(set(page.locator("svg.chart").first.locator("path.line").evaluate_all(styles))) == 3
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = false)")
    if text == "run":
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"watch-{width}-light.png", full_page=True)
    _assert_quiet(visit, path.as_uri())
    visit.context.close()
