"""Every name that a document writes is there after `import uncone` alone, whatever was used before it."""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import uncone

ROOT = Path(__file__).parent.parent
FOLDERS = {"docs": "*.md", "benchmarks": "*.md", "examples": "*.py"}
DOCUMENTS = [path for folder, names in FOLDERS.items() for path in sorted((ROOT / folder).glob(names))]
DOCUMENTS += [ROOT / "README.md", ROOT / "CHANGELOG.md"]
_NAME = re.compile(r"(?<![\w./-])uncone((?:\.[A-Za-z_]\w*)+)(?![\w/])")
"""A dotted name; `uncone.diagnosis/1` is a record's schema."""
_CODE = re.compile(r"^```(?:python|py)\n(.*?)^```$|``?([^`\n]+)``?", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^ *(?:>>>|\.\.\.) (.*)$", re.MULTILINE)
_STARTED_WITH = {"uncone", "uncone.questions", "uncone.version"}
_SERVER = """
    import itertools, json, os, sys
    def loaded_by(names):  # what others' packages uncone imports for them, seen in a process that is thrown away
        reading, writing = os.pipe()
        if not (child := os.fork()):
            import uncone
            for kind, name in names:
                look_up(kind, name)
            with open(writing, "w") as found:
                json.dump([module for module in sys.modules if module.split(".")[0] != "uncone"], found)
            os._exit(0)
        os.close(writing)
        with open(reading) as found:
            return json.load(found)
    def look_up(kind, name):
        try:
            if kind == "import":
                room, _, last = name.rpartition(".")
                exec(f"from {room} import {last}")
            else:
                value = __import__("uncone")
                for part in name.split(".")[1:]:
                    value = getattr(value, part)
        except BaseException as failed:
            return f"{type(failed).__name__}: {failed}"
        return ""
    asked = [json.loads(line) for line in sys.stdin]
    for module in loaded_by(asked):
        try:
            __import__(module)  # which says nothing about uncone, and each child has it then
        except Exception:
            pass
    import uncone
    print(json.dumps([name for name in sys.modules if name.split(".")[0] == "uncone"]), flush=True)
    def in_a_child(run):
        if not (child := os.fork()):
            run()
            os._exit(0)
        os.waitpid(child, 0)
    def look_up_all(room, names):
        if len(names) > 1:
            look_up("attribute", f"uncone.{room}")  # which each name below begins with
        for kind, name in names:
            in_a_child(lambda: print(json.dumps([name, look_up(kind, name)]), flush=True))
    for (_, room), names in itertools.groupby(asked, lambda one: (one[0], one[1].split(".")[1])):
        in_a_child(lambda: look_up_all(room, list(names)))
"""


def _in_program(code: str) -> Iterator[tuple[str, str]]:
    """What a program imports from uncone, and the dotted names below: `measure.all` where it imports `measure`."""
    tree, bound = ast.parse(code), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "uncone":
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    yield from (("import", name) for name in bound.values())
    for node in ast.walk(tree):
        chain = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        first, _, rest = chain.partition(".")
        if first in bound and re.fullmatch(r"\w+(\.\w+)*", chain):
            yield "attribute", f"{bound[first]}.{rest}"


def names_of(path: Path) -> set[tuple[str, str]]:
    """(how it is reached, name) for each name of uncone that a document, a program or a docstring writes."""
    text = path.read_text(encoding="utf-8")
    pieces, programs = [text], [text]
    if path.suffix == ".md":
        pieces = ["".join(found) for found in _CODE.findall(text)]
        programs = [block for block, _ in _CODE.findall(text) if block]
    elif path.is_relative_to(ROOT / "src"):
        strings = "\n".join(_strings(text))
        examples = _EXAMPLE.findall(strings)
        pieces = [*re.findall(r"`([^`]+)`", strings), *examples]
        programs = [line for line in examples if line.startswith("from uncone")]
    dotted = {("attribute", f"uncone{match[1]}") for piece in pieces for match in _NAME.finditer(piece)}
    return dotted.union(*map(_in_program, programs))


def _strings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unresolved(names: set[tuple[str, str]]) -> dict[str, str]:
    """The names that are not there, with the error. Each is looked up in a process of its own that has imported
    uncone, and of it nothing but the room that the name begins with."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_SERVER)]
    asked = "".join(json.dumps(name) + "\n" for name in sorted(names))
    how = {"env": os.environ | {"PYTHONDONTWRITEBYTECODE": ""}, "capture_output": True, "text": True, "check": True}
    done = subprocess.run(command, input=asked, **how)
    loaded, *answers = (json.loads(line) for line in done.stdout.splitlines())
    assert set(loaded) == _STARTED_WITH, "importing uncone loads more of itself than its version"
    assert len(answers) == len(names)
    allowed = "" if find_spec("torch") else "needs torch, got none"
    return {name: error for name, error in answers if error and not (allowed and allowed in error)}


def _longest(names: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Without names on the way to a longer one."""
    attributes = {name for kind, name in names if kind == "attribute"}
    on_the_way = {n for n in attributes if any(other.startswith(f"{n}.") for other in attributes)}
    return {(kind, name) for kind, name in names if kind == "import" or name not in on_the_way}


def _rooms() -> set[tuple[str, str]]:
    return {("attribute", f"uncone.{path.parent.name}") for path in ROOT.glob("src/uncone/*/__init__.py")}


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")


@needs_fork
def test_rooms_and_names_of_the_first_page_resolve_in_a_fresh_interpreter() -> None:
    names = names_of(ROOT / "README.md")
    assert {("attribute", "uncone.measure.all"), ("attribute", "uncone.diagnose")} <= names
    assert unresolved(_longest(names | _rooms())) == {}


@needs_fork
@pytest.mark.slow
def test_every_name_of_every_document_resolves_in_a_fresh_interpreter() -> None:
    names = set().union(*map(names_of, [*DOCUMENTS, *sorted((ROOT / "src").rglob("*.py"))]))
    assert {("attribute", "uncone.paired_bootstrap"), ("import", "uncone.place_value")} <= names
    assert len(names) > 90
    assert unresolved(_longest(names)) == {}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    for module in (uncone, uncone.transforms):
        for name in ("nothing", "__main__", "_private"):
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
                getattr(module, name)


def test_rooms_stay_rooms_and_are_listed() -> None:
    """A verb never hides the room of its name, nor a room the verb: `uncone.measure` and `uncone.measures` are two."""
    for _, name in _rooms():
        assert isinstance(getattr(uncone, name.partition(".")[2]), ModuleType), name
    assert callable(uncone.measures)
    assert {"attach", "diagnosis", "saturation", "training"} <= set(dir(uncone))
    assert {"center", "faiss"} <= set(dir(uncone.transforms))
