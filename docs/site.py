"""Build the site of the documents: `python docs/site.py`, into build/site/html.

Pages are the repository's own Markdown files in their own folders, so that every relative link holds; the API page is
made from the docstrings of the public names. The build fails on a link or an anchor that leads nowhere, on a plugin that
did not run, and on a page that would fetch anything from elsewhere. Beside each page lies its Markdown, which llms.txt
lists for agents.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from uncone.questions import OBJECTS, QUESTIONS

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs/mkdocs.yml"
SOURCE, HTML = ROOT / "build/site/source", ROOT / "build/site/html"
PLACES = {name: file for name, (file, *_) in QUESTIONS.items()} | OBJECTS  # of the public names
SHOWN = ("docs", "experiments", "benchmarks", "examples")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b(?![^>]*\brel=["']?canonical)[^>]*"""
    r"""\bhref=["']?(?:https?:)?//|@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//""",
    re.IGNORECASE,
)


def stage(source: Path) -> None:
    """Copy the pages, their pictures and the files that they link to."""
    shutil.rmtree(source, ignore_errors=True)
    pages = [*ROOT.glob("*.md"), *(page for folder in SHOWN for page in (ROOT / folder).rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        out = source / ("index.md" if page == ROOT / "README.md" else page.relative_to(ROOT))
        _write(out, text.replace("](README.md", "](index.md") if page.parent == ROOT else _home(text))
        for link in _LINK.findall(text):
            target = (page.parent / link).resolve()
            if target.is_file() and target.suffix != ".md" and target.is_relative_to(ROOT):
                copy = source / target.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, copy)
    _write(source / "docs/api.md", api())


def _home(text: str) -> str:
    return re.sub(r"\]\(((?:\.\./)+)README\.md(?=[)#])", r"](\1index.md", text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def api() -> str:
    """The page of the public names, for mkdocstrings."""
    lines = ["# Python API", "", "Every public name of `uncone`, from its docstring. Questions come first.", ""]
    for name, file in PLACES.items():
        lines += [f"::: uncone.{file}.{name}", "    options:", f"      heading: uncone.{name}", ""]
    return "\n".join(lines)


def menu() -> list[tuple[str, str]]:
    """The title and the file of each page in the menu."""
    return re.findall(r"^ +- (.+): (\S+\.md)$", CONFIG.read_text(encoding="utf-8"), re.MULTILINE)


def for_agents(source: Path) -> str:
    """llms.txt (llmstxt.org): what uncone is, and each page of the menu, as Markdown, with its first sentence."""
    lines = ["# uncone", "", f"> {_lead(source / 'index.md')}", "", "## Pages", ""]
    lines += [f"- [{title}]({page}): {_lead(source / page)}" for title, page in menu()]
    return "\n".join(lines) + "\n"


def _lead(page: Path) -> str:
    """The first sentence that is no heading, picture, table, list or code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    first = next((block for block in blocks if re.match(r"[A-Za-z`\"“]", block)), "")
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=[.?!])\s", first)[0])


def elsewhere(pages: Iterable[Path]) -> list[str]:
    """What pages and style sheets would fetch from another host."""
    found = []
    for page in pages:
        found += [f"{page.name}: {hit[0]}" for hit in _FETCHED.finditer(page.read_text(encoding="utf-8"))]
    return found


def main() -> None:
    """Stage, build strictly, check."""
    stage(SOURCE)
    run = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(CONFIG)]
    subprocess.run(run, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")})
    shutil.copytree(SOURCE, HTML, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if n.endswith(".html")])
    _write(HTML / "llms.txt", for_agents(SOURCE))
    shutil.copytree(ROOT / ".well-known", HTML / ".well-known", dirs_exist_ok=True)
    fetched = elsewhere([*HTML.rglob("*.html"), *HTML.rglob("*.css")])
    assert not fetched, f"expected pages that fetch nothing, got {len(fetched)}: {fetched[:5]}"
    documented = (HTML / "docs/api/index.html").read_text(encoding="utf-8")
    missing = [name for name, file in PLACES.items() if f'id="uncone.{file}.{name}"' not in documented]
    assert not missing, f"expected every public name on the API page, got none of {missing[:5]}: did mkdocstrings run?"
    assert (HTML / "search/search_index.json").stat().st_size > 10**5, "expected an index for the search, got none"


if __name__ == "__main__":
    main()
