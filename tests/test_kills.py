"""A kill at any moment leaves the old content or the new, of every writer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
pytest.importorskip("transformers", reason="the extra [hf] is not installed")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked")
@pytest.mark.parametrize("kills", [80, pytest.param(200, marks=pytest.mark.long)])
def test_kills_of_all_writers_leave_nothing_half_written(kills: int) -> None:
    command = [sys.executable, "-m", "tests.kills", "--kills", str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills of 16 writers, 0 wrong" in done.stdout
    assert "a temporary file removed" in done.stdout, "no kill came while a file was written"
