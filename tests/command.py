"""Runs one command of `uncone` in this process, and loads a script of the repository."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from uncone import cli


def load_script(path: Path) -> Any:
    """A script that lies in no package, imported."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run_command(verb: str, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """The exit status, and what was printed to standard output and error."""
    try:
        cli.main([*verb.split(), *map(str, arguments)])
        status = 0
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err
