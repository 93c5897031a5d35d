"""A GGUF model in several files: any part opens the whole, and a part that is missing or belongs elsewhere is named."""

import gc
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.model.open import open_subjects

from ..gguf_files import write_gguf

V, D = 40, 32
RANDOM = np.random.default_rng(0)
TENSORS = {
    name: RANDOM.standard_normal((V, D)).astype("f4")
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight")
}


def split(folder: Path, *, name: str = "m", each: int = 1, tensors: dict[str, np.ndarray] = TENSORS) -> list[Path]:
    """The parts that the package gguf writes."""
    folder.mkdir(exist_ok=True)
    content = {key: (value, None) for key, value in tensors.items()}
    write_gguf(folder / f"{name}.gguf", content, tokens=[f"▁{index}" for index in range(V)], split_every=each)
    return sorted(folder.glob(f"{name}*.gguf"))


def part(path: Path, number: int, count: int, told: int, tensors: dict[str, np.ndarray]) -> Path:
    """One part that says of itself what it is told to."""
    keys = {"split.no": number, "split.count": count, "split.tensors.count": told}
    return write_gguf(path, {name: (value, None) for name, value in tensors.items()}, keys=keys)


@pytest.mark.parametrize("each", [1, 2, 3])
def test_any_part_and_the_folder_open_the_whole(tmp_path: Path, each: int) -> None:
    parts = split(tmp_path / "model", each=each)
    assert [path.name for path in parts] == [f"m-{i + 1:05}-of-{len(parts):05}.gguf" for i in range(-(-4 // each))]
    for spec in (*parts, tmp_path / "model"):
        found = open_subjects(spec)
        assert [name for name, _ in found.rows] == ["input", "head"]
        assert found.notes == ()
        for (_, rows), expected in zip(found.rows, ("token_embd.weight", "output.weight"), strict=True):
            assert np.array_equal(rows.read(0, V), TENSORS[expected])
            assert list(rows.labels or ()) == [f"▁{index}" for index in range(V)]
        for name, expected in TENSORS.items():
            assert np.array_equal(uncone.open_rows(f"{spec}#{name}").read(3, 9), expected[3:9])
        assert [name for name, _ in open_subjects(f"{spec}#output.weight").rows] == ["head"]


def test_a_head_is_tied_only_if_no_part_holds_one(tmp_path: Path) -> None:
    parts = split(tmp_path, tensors={name: value for name, value in TENSORS.items() if name != "output.weight"})
    assert "is tied to the token table" in open_subjects(parts[-1]).notes[0]


def test_an_unknown_tensor_is_looked_for_in_all_parts(tmp_path: Path) -> None:
    parts = split(tmp_path)
    with pytest.raises(InputError, match=r"no tensor 'output' in .*: did you mean 'output.weight'\?"):
        uncone.open_rows(f"{parts[0]}#output")


def test_two_models_in_a_folder_are_not_joined(tmp_path: Path) -> None:
    split(tmp_path, each=2)
    other = split(tmp_path, name="n", each=2)
    refused(tmp_path, r"expected one GGUF model in .*, got 4 \('m-00001-of-00002\.gguf', .*give the file")
    assert [name for name, _ in open_subjects(other[1]).rows] == ["input", "head"]


def test_all_parts_are_closed_with_the_rows(tmp_path: Path) -> None:
    parts = split(tmp_path)
    gc.collect()
    gc.disable()
    try:
        rows = uncone.open_rows(f"{parts[2]}#input")
        rows.read(0, 3)
        del rows
        links = [f"/proc/self/fd/{entry}" for entry in os.listdir("/proc/self/fd")]
        assert not [link for link in links if os.path.exists(link) and os.readlink(link).startswith(str(tmp_path))]
    finally:
        gc.enable()


def refused(spec: str | Path, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_subjects(spec)


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_a_missing_part(self, tmp_path: Path) -> None:
        parts = split(tmp_path)
        parts[1].unlink()
        for spec in (parts[0], f"{parts[0]}#input", f"{parts[3]}#output.weight", tmp_path):
            refused(spec, r"expected 4 parts of .*, got all but 'm-00002-of-00004\.gguf': download the rest")
        parts[0].unlink()
        refused(tmp_path, r"got all but 'm-00001-of-00004.gguf', 'm-00002-of-00004.gguf'")

    @pytest.mark.parametrize("name", ["x.gguf", "m-00002-of-00004.gguf", "m-00001-of-00003.gguf", "m-1-of-4.gguf"])
    def test_a_part_under_another_name(self, tmp_path: Path, name: str) -> None:
        path = split(tmp_path / "a")[0].rename(tmp_path / name)
        refused(path, r"a name ending in -00001-of-00004\.gguf for part 1 of a split model, got .*: rename")

    def test_another_file_in_the_place_of_a_part(self, tmp_path: Path) -> None:
        parts = split(tmp_path / "a")
        shutil.copy(parts[1], parts[2])
        refused(parts[0], r"expected part 3 of 4 of a split model in .*, got part 2 of 4: the file was renamed")
        shutil.copy(split(tmp_path / "b", each=0)[0], parts[2])
        refused(parts[0], r"expected part 3 of 4 .* got a file that is not part of a split model")

    def test_parts_of_two_models(self, tmp_path: Path) -> None:
        for told, names, message in (
            (2, "ww", r"expected each tensor in one part of .*, got 'w' in m-00001"),
            (3, "wv", r"expected 3 tensors in 2 parts of .*, got 2: the parts belong"),
        ):
            for i, name in enumerate(names):
                part(tmp_path / f"m-0000{i + 1}-of-00002.gguf", i, 2, told, {name: TENSORS["output.weight"]})
            refused(tmp_path, message)

    @pytest.mark.parametrize("number", [-1, 2, 70000])
    def test_a_number_that_no_part_has(self, tmp_path: Path, number: int) -> None:
        path = part(tmp_path / "m-00001-of-00002.gguf", number, 2, 1, {"w": TENSORS["output.weight"]})
        refused(path, f"the header of .* is wrong: part {number} of 2 \\(counted from 0\\); copy it again")


@settings(deadline=None, max_examples=40)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_numbers_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, number: int, count: int) -> None:
    tensors = {"token_embd.weight": TENSORS["output.weight"]}
    path = part(tmp_path_factory.mktemp("fuzz") / "m-00001-of-00002.gguf", number, count, 1, tensors)
    if count < 2:
        assert open_subjects(path).rows
    else:
        refused(path, r".")
