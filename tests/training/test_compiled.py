"""The loss, penalties and optimisers under a compiler, in a process of their own; and that nobody else waits for the compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_files_that_a_compiler_reads() -> None:
    tests = sorted(map(str, HERE.rglob("in_a_graph.py")))
    assert len(tests) == 3
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1], check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_importing_the_loss_does_not_load_the_compiler() -> None:
    code = "import sys, uncone; uncone.linear_cross_entropy; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
