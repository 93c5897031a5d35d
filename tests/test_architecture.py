"""The import direction of CONTRIBUTING.md, walked over the source; and what importing the package loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "uncone"
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "memory": set(),
    "regular": {"errors"},
    "atomic": {"errors"},
    "records": {"errors", "atomic"},
    "rows": {"errors"},
    "cross_entropy": {"errors"},
    "topology": {"errors"},
    "moments": {"rows", "atomic"},
    "model": {"rows", "records", "atomic"},
    "measure": {"topology", "moments", "rows", "records"},
    "explain": {"model", "measure", "moments", "rows", "records"},
    "sources": {"model", "rows"},
    "repair": {"model", "moments", "rows", "records", "atomic"},
    "evaluate": {"model", "cross_entropy", "rows", "records", "atomic"},
    "prevent": {"cross_entropy", "topology", "model", "explain", "measure", "moments", "rows", "records", "atomic"},
    "report": {"records", "atomic"},
    "diagnosis": {"sources", "explain", "measure", "moments", "model", "rows", "records"},
    "comparison": {"report", "records"},
    "checking": {"records"},
    "evaluation": {"evaluate", "repair", "sources", "measure", "model", "moments", "rows", "records"},
    "select_repair": {"evaluation", "evaluate", "repair", "sources", "model", "moments", "rows", "records"},
    "repairing": {"select_repair", "repair", "sources", "measure", "model", "moments", "rows", "records", "atomic"},
    "calibration": {"report", "evaluate", "repair", "sources", "model", "moments", "rows", "records", "atomic"},
    "cli": {
        "diagnosis",
        "comparison",
        "checking",
        "evaluation",
        "select_repair",
        "repairing",
        "calibration",
        "report",
        "model",
        "records",
        "atomic",
    },
}
OPTIONAL = {
    "transformers",
    "tokenizers",
    "gguf",
    "pyarrow",
    "ray",
    "sentence_transformers",
    "numba",
    "rich",
    "faiss",
    "ir_measures",
    "sklearn",
    "scipy",
}
COMPILED = {"topology/kernels.py", "topology/light_kernels.py"}  # decorated by numba, and itself imported inside a function


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[tuple[str, bool]]:
    """(imported module, whether the import stands at the top of the file)."""
    tree = ast.parse(path.read_text())
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
    allowed = {room, "errors", "memory", "regular", "__version__"} | BELOW[room]
    for module, _ in _imports(path):
        if module.startswith("uncone."):
            assert module.split(".")[1] in allowed, f"{path} imports {module}"


def test_the_table_is_without_cycles() -> None:
    order = list(BELOW)
    for room, below in BELOW.items():
        assert all(order.index(other) < order.index(room) for other in below), room


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_optional_packages_are_imported_inside_functions(path: Path) -> None:
    at_top = {module.split(".")[0] for module, top in _imports(path) if top}
    assert not at_top & OPTIONAL or str(path.relative_to(SOURCE)) in COMPILED


def test_compiled_loops_are_imported_inside_functions() -> None:
    modules = {"uncone." + path.removesuffix(".py").replace("/", ".") for path in COMPILED}
    assert not [path for path in FILES for module, top in _imports(path) if top and module in modules]


@pytest.mark.parametrize(
    "path", [p for p in FILES if _room(p) in ("records", "errors", "atomic", "regular")], ids=lambda p: p.name
)
def test_records_need_only_the_standard_library(path: Path) -> None:
    outside = {m.split(".")[0] for m, _ in _imports(path)} - set(sys.stdlib_module_names) - {"uncone"}
    assert not outside


def test_reports_never_see_a_tensor() -> None:
    code = "import sys, uncone.report, uncone.report.html; assert not {'torch', 'numpy', 'rich'} & set(sys.modules), 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_or_its_cli_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, uncone, uncone.cli; assert not {'torch', 'numpy', 'transformers'} & set(sys.modules), 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_function_is_not_hidden_by_a_module() -> None:
    code = "import uncone.diagnosis, uncone; assert callable(uncone.diagnose) and callable(uncone.open_rows)"
    code += "; import uncone.comparison.matching, uncone.checking; assert callable(uncone.compare) and callable(uncone.check)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists() -> None:
    import uncone

    for name in uncone.__all__:
        assert getattr(uncone, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = uncone.nothing
