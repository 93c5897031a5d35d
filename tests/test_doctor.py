"""What `uncone doctor` shows of an installation."""

import tomllib
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tests.command import run_command
from tests.report.printed import printed
from uncone.cli import doctor

PYPROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_extra_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_command("doctor", capsys)
    assert status == 0
    assert out.startswith("uncone 0.1.0 is ready")
    assert "BLAS: openblas" in out
    extras = set(PYPROJECT["project"]["optional-dependencies"]) - {"dev"}
    assert set(doctor._WHAT_FOR) == extras
    assert all(f"\n{extra}" in out for extra in extras)


def test_packages_of_extras_are_those_of_the_project() -> None:
    found = doctor.packages_of_extras()
    assert found["gguf"] == ["gguf"]
    assert set(found["hf"]) == {"torch", "transformers"}


def test_an_extra_brings_what_the_extras_in_it_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=1.26", "a>=1; extra == 'one'", "uncone[one]; extra == 'two'", 'b-c[x]>=2; extra == "two"']
    monkeypatch.setattr(doctor, "requires", lambda _: lines)
    assert doctor.packages_of_extras() == {"one": ["a"], "two": ["b-c", "a"]}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(package: str) -> str:
        if package in ("gguf", "pyarrow"):
            raise PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(doctor, "version", version)
    shown = printed(doctor.document())
    assert "These extras are not installed: parquet, gguf, lance" in " ".join(shown.split())
    assert "missing: gguf" in shown
    assert ".gguf (needs gguf)" in shown
    assert "every extra" not in shown


def test_without_an_installed_package_extras_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_: str) -> list[str]:
        raise PackageNotFoundError("uncone")

    monkeypatch.setattr(doctor, "requires", requires)
    shown = printed(doctor.document())
    assert "its extras are not known" in " ".join(shown.split())
    assert "installed \n" not in shown
