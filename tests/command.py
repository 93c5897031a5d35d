"""Runs one command of `uncone` in this process."""

from pathlib import Path

import pytest

from uncone import cli


def run_command(verb: str, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """The exit status, and what was printed to standard output and error."""
    try:
        cli.main([*verb.split(), *map(str, arguments)])
        status = 0
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err
