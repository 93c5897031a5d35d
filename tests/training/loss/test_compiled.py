"""The loss under a compiler, in a process of its own; and that nobody else waits for the compiler."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_loss_in_a_graph() -> None:
    tests = Path(__file__).with_name("in_a_graph.py")
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_importing_the_loss_does_not_load_the_compiler() -> None:
    code = "import sys, uncone; uncone.linear_cross_entropy; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
