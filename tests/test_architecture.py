"""The import direction of CONTRIBUTING.md, walked over the source; and what importing the package loads."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from uncone.questions import OBJECTS, QUESTIONS

SOURCE = Path(__file__).parent.parent / "src" / "uncone"
ASKED = {
    "diagnosis",
    "comparison",
    "calibration",
    "evaluation",
    "repairs",
    "edits",
    "tokens",
    "saturation",
    "training",
    "watching",
}
"""Folders of questions: one knows of another its public functions and its records."""
BELOW: dict[str, set[str]] = {
    **{room: set() for room in ("questions", "roles", "errors", "arguments", "version")},
    **{room: set() for room in ("memory", "threads", "statistics")},
    **{room: {"errors"} for room in ("lazy", "regular", "atomic")},
    "sealed": {"errors", "regular"},
    "records": {"atomic"},
    "rows": {"sealed"},
    "engines": {"rows"},
    "tensors": {"rows"},
    "moments": {"rows", "statistics", "atomic"},
    "model": {"tensors", "moments", "rows", "records", "atomic"},
    "measure": {"moments", "rows", "records", "statistics"},
    "transforms": {"measure", "model", "moments", "rows", "records", "statistics", "atomic"},
    "report": {"records", "atomic"},
    **{room: set() for room in ASKED},
    "cli": {"report", "model", "records", "atomic"},
}
GROUND = {
    "statistics",
    "atomic",
    "sealed",
    "tensors",
    "transforms",
    "measure",
    "model",
    "moments",
    "rows",
    "records",
    "engines",
}
"""What every question may know, beside `ANY`."""
PUBLIC = {f"uncone.{file}" for file in (*OBJECTS.values(), *(of[0] for of in QUESTIONS.values()))}
ANY = {"errors", "arguments", "version", "lazy", "memory", "regular", "threads", "questions", "roles"}
"""What every room may know."""
UPWARD = {"records/record.py": {"uncone.report.html", "uncone.report.plot"}}
"""The one place that knows a room above: a record asks for its notebook view and its plot when they are wanted."""
OPTIONAL = {
    "matplotlib",
    "pandas",
    "transformers",
    "tokenizers",
    "gguf",
    "pyarrow",
    "ray",
    "lance",
    "httpx",
    "httpx2",
    "fsspec",
    "sentence_transformers",
}
OPTIONAL |= {"numba", "rich", "faiss", "ir_measures", "sklearn", "scipy"}
CORE = set(BELOW) - {"tensors", "training", "edits", "evaluation", "repairs"}
"""The rooms that run where torch is not installed."""
_MODEL = "model_class directory head_map texts last_states layered_model hidden_states layer_reader"
_RANK = "gradient/gradient_share excision/excision rank/truncation rank/refit rank/rank_curve rank/mixture"
_WHY = "gradients/gradient_parts gradients/gradients margins/margins"
OF_TORCH = {"moments/on_device.py", "moments/ranks.py", "rows/checkpoint.py"}
for _folder, _names in (("model", _MODEL), ("saturation/head", _RANK), ("diagnosis/why", _WHY)):
    OF_TORCH |= {f"{_folder}/{name}.py" for name in _names.split()}
"""Files of theirs that need it, and that are imported inside a function."""
COMPILED = {"training/bars/kernels.py"}  # decorated by numba, and itself imported inside a function


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path) -> list[tuple[str, bool]]:
    """(imported module, whether the import stands at the top of the file)."""
    tree = _tree(path)
    found = []
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found += [(f"{module}.{a.name}" if module == "uncone" else module, top) for a in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
    return found


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.name not in ("__init__.py", "__main__.py") or p.parent != SOURCE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_downward(path: Path) -> None:
    room = _room(path)
    assert room in BELOW, f"{room} is a new room: say in CONTRIBUTING.md and here whom it may know"
    allowed = {room} | ANY | BELOW[room] | (GROUND if room in ASKED else set())
    for module, _ in _imports(path):
        if module in UPWARD.get(str(path.relative_to(SOURCE)), ()):
            continue
        assert module != "uncone", f"{path} imports the package as a whole: name the room"
        if module.startswith("uncone.") and module.split(".")[1] not in allowed:
            assert room in ASKED | {"cli"}, f"{path} imports {module}"
            assert module.split(".")[1] in ASKED, f"{path} imports {module}"
            assert module in PUBLIC or module.endswith(".record"), f"{path} imports {module}, which is not public"


RECORDS = [path for path in FILES if path.name == "record.py" and _room(path) != "records"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_record_imports_records_and_the_standard_library(path: Path) -> None:
    for module, top in _imports(path):
        assert top, f"{path} imports {module} inside a function"
        first, *rest = module.split(".")
        is_ours = first == "uncone" and (rest[0] in ("records", "errors", "arguments") or rest[-1] == "record")
        assert is_ours or first in sys.stdlib_module_names, f"{path} imports {module}"


def test_the_table_of_questions_and_their_folders_load_nothing() -> None:
    assert not _imports(SOURCE / "questions.py")
    assert not [path for path in FILES if path.name == "__init__.py" and _room(path) in ASKED and path.read_text()]


def test_the_table_is_without_cycles() -> None:
    order = list(BELOW)
    for room, below in BELOW.items():
        assert all(order.index(other) < order.index(room) for other in below), room


def _imported_files(path: Path) -> set[Path]:
    """The package's files that a file imports by name, inside functions too, but not under TYPE_CHECKING."""

    def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                yield from ((child.module or "", alias.name) for alias in child.names)
            elif isinstance(child, ast.Import):
                yield from (alias.name.rpartition(".")[::2] for alias in child.names)
            elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                yield from imports(child)

    files = set()
    for module, name in imports(_tree(path)):
        if module.split(".")[0] == "uncone" and module not in UPWARD.get(str(path.relative_to(SOURCE)), set()):
            folder = SOURCE.joinpath(*module.split(".")[1:])
            named = (folder / f"{name}.py", folder / name / "__init__.py")
            files.add(next(f for f in (*named, folder.with_suffix(".py"), folder / "__init__.py") if f.exists()))
    return files


def test_no_files_import_each_other_in_a_circle() -> None:
    TopologicalSorter({file: _imported_files(file) for file in SOURCE.rglob("*.py")}).prepare()  # else a CycleError


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_optional_packages_are_imported_inside_functions(path: Path) -> None:
    at_top = {module.split(".")[0] for module, top in _imports(path) if top}
    assert not at_top & OPTIONAL or str(path.relative_to(SOURCE)) in COMPILED


@pytest.mark.parametrize("path", [p for p in FILES if _room(p) in CORE], ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_core_imports_no_torch(path: Path) -> None:
    if str(path.relative_to(SOURCE)) not in OF_TORCH:
        theirs = {f"uncone.{file.removesuffix('.py').replace('/', '.')}" for file in OF_TORCH}
        assert not {module for module, top in _imports(path) if top} & {"torch", "uncone.tensors", *theirs}


def test_compiled_loops_are_imported_inside_functions() -> None:
    modules = {"uncone." + path.removesuffix(".py").replace("/", ".") for path in COMPILED}
    assert not [path for path in FILES for module, top in _imports(path) if top and module in modules]


_PLAIN = [p for p in FILES if _room(p) in ("records", "errors", "atomic", "regular", "questions", "roles")]


@pytest.mark.parametrize("path", _PLAIN, ids=lambda p: p.name)
def test_records_need_only_the_standard_library(path: Path) -> None:
    loaded = {m.split(".")[0] for m, top in _imports(path) if top or _room(path) != "records"}
    assert not loaded - set(sys.stdlib_module_names) - {"uncone"}


def test_reports_never_see_a_tensor() -> None:
    code = "import sys, uncone.report, uncone.report.html; assert not {'torch', 'numpy', 'rich'} & set(sys.modules), 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_libraries_of_hugging_face_are_told_to_stay_on_this_machine() -> None:
    """Each call that could download says that it may not: by `LOCAL`, or by the option itself."""
    calls = []
    for path in FILES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                told = {keyword.arg or ast.unparse(keyword.value) for keyword in node.keywords}
                is_ours = name == "from_pretrained" and isinstance(node.func, ast.Name)  # of model/hugging_face.py
                if name in ("from_pretrained", "SentenceTransformer", "snapshot_download") and not is_ours:
                    calls.append((str(path.relative_to(SOURCE)), name))
                    assert told & {"LOCAL", "local_files_only"}, calls[-1]
    assert {path for path, name in calls if name != "SentenceTransformer"} == {"model/hugging_face.py"}
    assert len(calls) == 4


def test_importing_the_package_or_its_cli_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, uncone, uncone.cli; assert not {'torch', 'numpy', 'transformers'} & set(sys.modules), 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_function_is_not_hidden_by_a_module() -> None:
    pytest.importorskip("torch")
    code = "import uncone, " + ", ".join(f"uncone.{file}" for file, *_ in QUESTIONS.values())
    code += "".join(f"; assert callable(uncone.{name})" for name in QUESTIONS)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists() -> None:
    pytest.importorskip("torch")
    import uncone

    assert [name for name in uncone.__all__ if getattr(uncone, name) is None] == []


CLOCKS = {
    "cli/answer.py": "how long ago a run wrote its last record",
    "engines/stragglers.py": "which unit is waited for long, in a warning",
    "rows/remote/source.py": "waits before a request is made again",
    "model/token_counts.py": "how often a state is saved",
    "transforms/apply.py": "told as a cost",
    "transforms/shards.py": "told as a cost",
    "repairs/vectors.py": "told as a cost",
    "repairs/encoder.py": "told as a cost",
    "evaluation/fitting.py": "told as a cost",
    "training/monitor/run_file.py": "noted with each record",
    "training/bars/one_pass.py": "which of two exact passes is faster on this machine",
}
"""Files that read a clock, and what for. Nothing else may: a limit in seconds gives one input several answers."""


def test_no_answer_depends_on_the_clock() -> None:
    clocks = {"time", "timeit", "datetime"}
    reading = [path for path in SOURCE.rglob("*.py") if clocks & {module.split(".")[0] for module, _ in _imports(path)}]
    assert {path.relative_to(SOURCE).as_posix() for path in reading} == set(CLOCKS)
