"""Where a package is not installed, the message holds the command that installs it."""

import sys
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.command import run_command
from uncone import InputError, report
from uncone.errors import without_package
from uncone.model.files import token_labels
from uncone.model.hugging_face import cached_snapshot, open_tokenizer
from uncone.saturation.contexts.context_rank import _tokenizer

PIP = "needs tokenizers, got none: pip install tokenizers"


def _hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Any import of the package then fails as where it is not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_missing_tokenizers_is_answered_with_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "tokenizers")
    file = folder / "tokenizer.json"
    for read in (lambda: open_tokenizer(folder), lambda: open_tokenizer(file), lambda: _tokenizer(file)):
        with pytest.raises(InputError, match=f"reading a tokenizer {PIP}"):
            read()
    assert PIP in (token_labels(folder, 4).note or "")


@pytest.mark.parametrize("command", ["count", "saturation"])
def test_a_command_that_needs_tokenizers(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "t.txt").write_text("a text of some words " * 40)
    _hide(monkeypatch, "tokenizers")
    file, text = folder / "tokenizer.json", folder / "t.txt"
    arguments = (file, text) if command == "count" else ("contexts", text, "--tokenizer", file)
    status, _, error = run_command(command, capsys, *arguments)
    assert status == 1
    assert PIP in error


def test_a_missing_cache_reader_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "huggingface_hub")
    with pytest.raises(InputError, match=r"got org/name: .* pip install huggingface_hub"):
        cached_snapshot("org/name")


def test_a_missing_rich_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "rich")
    with pytest.raises(InputError, match="printing a result needs rich, got none: pip install rich"):
        report.print_record(uncone.diagnose(np.eye(8, dtype=np.float32)))


EXTRAS = {"torch": "torch", "pyarrow.parquet": "parquet", "sklearn": "cluster", "ir_measures": "evaluate"}
HOW = {name: f"'uncone[{extra}]'" for name, extra in EXTRAS.items()} | {"safetensors": "safetensors", "numpy": "numpy"}


@pytest.mark.parametrize(("package", "how"), HOW.items())
def test_any_other_package_is_named_at_the_command_line(
    package: str, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("uncone.cli.report.load_record", fail)
    status, _, error = run_command("report", capsys, "x.json")
    assert status == 1
    assert error == f"uncone: this command needs {package.partition('.')[0]}, got none: pip install {how}\n"
    assert without_package(ModuleNotFoundError("No module named 'uncone.x'", name="uncone.x"), "this") is None


def test_the_command_line_without_its_parser_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cyclopts" or name.startswith("uncone.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    with pytest.raises(SystemExit, match=r"^uncone: the command line needs cyclopts, got none: pip install cyclopts$"):
        import uncone.cli  # noqa: F401
