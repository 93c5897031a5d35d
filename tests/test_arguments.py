"""Every argument of every public function, replaced by what it is not, is refused or has a sane result."""

import subprocess
import sys
from pathlib import Path


def test_an_argument_of_another_kind_is_refused_or_meant() -> None:
    command = [sys.executable, "-m", "tests.hostile_arguments"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
