"""The harness itself: a seed damages alike, undamaged files are read, and failures are told from refusals."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import worker
from tests.fuzz.corpus import Seed, make
from tests.fuzz.mutators import damaged, mutators_of
from tests.fuzz.use import WrongError, use
from tests.fuzz.worker import Case
from uncone import InputError


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    return make(tmp_path_factory.mktemp("seeds"))


def test_every_undamaged_file_is_read_and_is_what_the_independent_reader_reads(seeds: list[Seed]) -> None:
    for seed in seeds:
        use(seed, seed.folder / seed.opened if seed.opened else seed.folder)()
    assert len({seed.reader for seed in seeds}) == 30


def test_the_same_seed_damages_alike(seeds: list[Seed]) -> None:
    for seed in seeds:
        for file in seed.files:
            content = file.read_bytes()
            first, again = (damaged(file.name, content, content[::-1], random.Random(7)) for _ in range(2))
            assert first == again
            for mutator in set(mutators_of(file.name)):
                assert isinstance(mutator(content, content, random.Random(3)), bytes)


def _raise(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


ENDS: dict[Callable[..., object], str] = {
    _raise(InputError("refused")): "refused",
    _raise(ValueError("a defect")): "failed",
    lambda *_: _raise(WrongError("other numbers")): "failed",
    lambda *_: _raise(OSError("the independent reader refuses")): "alone",
    lambda *_: lambda: None: "opened",
}


@pytest.mark.parametrize(("found", "ended"), ENDS.items())
def test_how_a_case_ends(
    found: Callable[..., object], ended: str, seeds: list[Seed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.npy").write_bytes(b"x")
    monkeypatch.setattr(worker, "use", found)
    assert worker._run(Case(0, 0, "npy", 0, "x.npy"), seeds[0], tmp_path / "x.npy", None).ended == ended


@pytest.mark.skipif(not worker._forget_peak(), reason="the system does not set the peak of memory back")
def test_memory_over_the_limit_is_a_failure(seeds: list[Seed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.npy").write_bytes(b"x")
    monkeypatch.setattr(worker, "use", lambda *_: len(b"\1" * (300 * 2**20)))
    found = worker._run(Case(0, 0, "npy", 0, "x.npy"), seeds[0], tmp_path / "x.npy", None)
    assert found.ended == "failed"
    assert found.told.startswith("memory: took")
