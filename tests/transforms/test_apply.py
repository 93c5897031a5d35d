"""Rows transformed from disk to disk: the numbers of a plain product, all or nothing, and nothing lost."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import uncone
from uncone import InputError
from uncone.transforms import (
    Affine,
    AllButTheTop,
    Center,
    Normalized,
    RemoveMeanDirection,
    ScaledCenter,
    Whiten,
    repair_named,
)
from uncone.transforms import apply as stages
from uncone.transforms.apply import repair_rows

from ..rows.reading import printed, refuses


def _cloud(n: int = 300, d: int = 6) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(n, d)) * np.arange(1, d + 1) + 3).astype(np.float32)


def _random_affine(d: int, k: int) -> Affine:
    generator = torch.Generator().manual_seed(0)
    return Affine(torch.randn(d, generator=generator), torch.randn(d, k, generator=generator))


@pytest.fixture
def x(tmp_path: Path) -> np.ndarray:
    """300 x 6 in x.npy."""
    found = _cloud()
    np.save(tmp_path / "x.npy", found)
    return found


SIZES = st.tuples(st.integers(1, 70), st.integers(1, 5), st.integers(1, 6))


@given(sizes=SIZES, block=st.integers(1, 400), dtype=st.sampled_from("248"))
@settings(max_examples=25, deadline=None)
def test_any_shape_in_blocks_of_any_size_is_the_plain_product(
    tmp_path_factory: pytest.TempPathFactory, sizes: tuple[int, int, int], block: int, dtype: str
) -> None:
    (n, d, k), folder = sizes, tmp_path_factory.mktemp("any")
    x, affine = _cloud(n, d).astype(f"f{dtype}"), _random_affine(d, k)
    np.save(folder / "x.npy", x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "BLOCK_BYTES", block)
        applied = repair_rows(uncone.open_rows(folder / "x.npy"), affine, folder / "y.npy")
    y = np.load(folder / "y.npy")
    assert y.dtype == x.dtype
    assert applied.shape == y.shape == (n, k)
    tolerance = {"2": 1e-2, "4": 1e-5, "8": 1e-13}[dtype] * 20
    plain = (x.astype(np.float64) - affine.shift) @ affine.weight  # the definition, in float64
    np.testing.assert_allclose(y, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "transformation",
    [Center(), Whiten("pca", n_components=3), AllButTheTop(1, centered=False), ScaledCenter(), RemoveMeanDirection()],
    ids=lambda t: type(t).__name__,
)
def test_what_is_written_is_what_transform_gives(tmp_path: Path, x: np.ndarray, transformation, monkeypatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_BYTES", 1000)
    transformation.fit(x)
    done = list[int]()
    repair_rows(uncone.open_rows(tmp_path / "x.npy"), transformation, tmp_path / "y.npy", progress=done.append)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), transformation.transform(x), rtol=1e-5, atol=1e-5)
    assert done[-1] == 300
    assert done == sorted(done)


def test_arrays_tensors_and_lazy_rows_are_sources_too(tmp_path: Path, x: np.ndarray) -> None:
    center = Center().fit(x)
    lazy = center.transform(uncone.open_rows(x))
    for source, expected in ((x, x - x.mean(0)), (torch.from_numpy(x), x - x.mean(0)), (lazy, x - 2 * x.mean(0))):
        repair_rows(source, center, tmp_path / "y.npy", overwrite=True)
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-5)


def test_half_precision_is_rounded_once_and_said(tmp_path: Path) -> None:
    x, affine = _cloud().astype(np.float16), _random_affine(6, 6)
    np.save(tmp_path / "x.npy", x)
    applied = repair_rows(uncone.open_rows(tmp_path / "x.npy"), affine, tmp_path / "y.npy")
    wide = affine.transform(torch.from_numpy(x).float())
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wide.half().numpy())
    assert applied.notes == ("Computed in float32, then rounded once to float16, as the rows are stored.",)


def test_bfloat16_stays_in_safetensors_and_becomes_float32_elsewhere(tmp_path: Path) -> None:
    x = torch.from_numpy(_cloud()).bfloat16()
    save_file({"e": x}, tmp_path / "x.safetensors")
    center = Center().fit(uncone.open_rows(tmp_path / "x.safetensors"))
    repair_rows(uncone.open_rows(tmp_path / "x.safetensors"), center, tmp_path / "y.safetensors")
    found = load_file(tmp_path / "y.safetensors")["e"]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, center.transform(x))
    applied = repair_rows(uncone.open_rows(tmp_path / "x.safetensors"), center, tmp_path / "y.npy")
    assert applied.dtype == "float32"
    assert "stored as bfloat16. The file is written in float32" in applied.notes[0]


def test_other_rows_than_those_fitted_on_are_named_and_no_error(tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "q.npy", x[:20])
    np.save(tmp_path / "z.npy", x + 1)
    save_file({"e": torch.from_numpy(x)}, tmp_path / "same.safetensors")  # the same numbers in another format
    center = Center().fit(uncone.open_rows(tmp_path / "x.npy"))
    for same in ("x.npy", "same.safetensors"):
        assert repair_rows(uncone.open_rows(tmp_path / same), center, tmp_path / f"y-{same}").notes == ()
    for other, shape in (("q.npy", "20 x 6"), ("z.npy", "300 x 6")):
        (note,) = repair_rows(uncone.open_rows(tmp_path / other), center, tmp_path / f"y-{other}").notes
        for part in ("Fitted on other rows: on ", "x.npy (300 x 6), applied to ", f"{other} ({shape})"):
            assert part in note


def test_an_output_that_exists_is_kept_unless_it_may_go(tmp_path: Path, x: np.ndarray) -> None:
    center, out = Center().fit(x), tmp_path / "y.npy"
    out.write_text("old")
    refuses(r"expected a new file, got .*y.npy which exists: .* --overwrite", repair_rows, x, center, out)
    assert out.read_text() == "old"
    repair_rows(x, center, out, overwrite=True)
    assert np.load(out).shape == x.shape
    folder = tmp_path / "folder.npy"
    folder.mkdir()
    refuses("expected a file to write, got the folder", repair_rows, x, center, folder, overwrite=True)


def test_the_source_is_never_written_over(tmp_path: Path, x: np.ndarray) -> None:
    center, rows = Center().fit(x), uncone.open_rows(tmp_path / "x.npy")
    (tmp_path / "link.npy").symlink_to(tmp_path / "x.npy")
    os.link(tmp_path / "x.npy", tmp_path / "hard.npy")
    for name in ("x.npy", "link.npy", "hard.npy"):
        message = "expected an output file other than the input"
        refuses(message, repair_rows, rows, center, tmp_path / name, overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path, x: np.ndarray) -> None:
    center, rows, good = Center().fit(x), uncone.open_rows(tmp_path / "x.npy"), tmp_path / "y.npy"
    for source, repair, out, message in (
        (rows, center, tmp_path / "y.foo", r"ends in \.npy, .* got 'y.foo'"),
        (rows, center, tmp_path / "no" / "y.npy", "there is no folder"),
        (rows, center, f"{good}#part", "without '#'"),
        (rows, center, tmp_path / "y.vec", "expected words for y.vec, got .* without labels"),
        (x[:, :5], center, good, "fitted on rows of 6"),
        (rows, Center(), good, "expected a fitted Center"),
    ):
        refuses(message, repair_rows, source, repair, out)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused_by_number(tmp_path: Path, x: np.ndarray, value: float) -> None:
    center = Center().fit(x)
    x[217, 3] = value
    refuses(r"expected finite rows, got 1 row of 300 .*\(row 217\)", repair_rows, x, center, tmp_path / "y.npy")
    assert not (tmp_path / "y.npy").exists()


def test_numbers_that_half_precision_cannot_hold_are_refused(tmp_path: Path, x: np.ndarray) -> None:
    large = Affine(torch.zeros(6), 1e5 * torch.eye(6))
    message = r"expected numbers that float16 can hold, .*: convert the rows to a wider dtype"
    refuses(message, repair_rows, x.astype(np.float16), large, tmp_path / "y.npy")
    assert not (tmp_path / "y.npy").exists()


def test_an_error_in_the_middle_of_the_source_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_BYTES", 64)
    (tmp_path / "x.vec").write_text("".join(f"w{i} 0.5 {'oops' if i == 900 else '1.5'}\n" for i in range(1000)))
    (tmp_path / "y.vec").write_text("old")
    rows = uncone.open_rows(tmp_path / "x.vec")
    with pytest.raises(InputError, match=r"line 901 of .* expected a number, got 'oops'"):
        repair_rows(rows, Affine(torch.zeros(2)), tmp_path / "y.vec", overwrite=True)
    assert (tmp_path / "y.vec").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.vec", "y.vec"]


_SLOW = """
import sys, time
import numpy, uncone
from uncone.transforms import Affine
from uncone.transforms import apply
from uncone.transforms.apply import repair_rows
apply.BLOCK_BYTES = 2**14
def wait(done):
    if done > 5000:
        print("half", flush=True)
        time.sleep(60)
rows = uncone.open_rows(sys.argv[1])
repair_rows(rows, Affine(numpy.ones(rows.shape[1])), sys.argv[2], overwrite=True, progress=wait)
"""


@pytest.mark.parametrize("old", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_kill_9_in_the_middle_leaves_the_old_file_or_none(tmp_path: Path, old: bool) -> None:
    np.save(tmp_path / "x.npy", _cloud(10_000, 16))
    target = tmp_path / "y.npy"
    if old:
        target.write_text("old")
    command = [sys.executable, "-c", _SLOW, tmp_path / "x.npy", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert target.exists() == old
    assert not old or target.read_text() == "old"


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, x: np.ndarray) -> None:
    out = tmp_path / "y.npy"
    out.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))  # of 7,328 bytes
    try:
        message = r"cannot write .*y.npy: File too large: nothing was written"
        refuses(message, repair_rows, x, Center().fit(x), out, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_a_folder_that_takes_no_files_is_said(tmp_path: Path, x: np.ndarray) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o500)
    target = folder if os.geteuid() else Path("/proc")  # which refuses even root
    refuses(r"cannot write .*give a writable folder", lambda: repair_rows(x, Center().fit(x), target / "y.npy"))


_MEMORY = """
import sys
import numpy, uncone
from threadpoolctl import threadpool_limits
from uncone.transforms import Affine, Normalized
from uncone.transforms.apply import repair_rows
def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
threadpool_limits(1)
draws = numpy.random.default_rng(0)
affine, out, d = Affine(numpy.ones(64), draws.normal(size=(64, 64))), sys.argv[2], 64
affine = Normalized(affine) if sys.argv[3:] else affine
repair_rows(draws.normal(size=(2 * 8192, d)).astype('f4'), affine, out, overwrite=True)
rows = uncone.open_rows(sys.argv[1])
before, peak = held(), [0.0]
def watch(done):
    peak[0] = max(peak[0], held())
repair_rows(rows, affine, out, overwrite=True, progress=watch)
print(peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("form", "more"), [("npy", []), ("parquet", []), ("npy", ["normalised"])])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str, more: list[str]) -> None:
    np.save(tmp_path / "x.npy", _cloud(800_000, 64))
    peak = printed(_MEMORY, tmp_path / "x.npy", tmp_path / f"y.{form}", *more)
    assert peak < {"npy": 64, "parquet": 160}[form]  # MiB; the file has 195


@pytest.mark.parametrize("name", ["center", "scaled_center", "whiten_pca", "all_but_the_top_2"])
@pytest.mark.parametrize("normalize", [False, True])
def test_zero_rows_stay_zero_and_are_counted(tmp_path: Path, x: np.ndarray, name: str, normalize: bool) -> None:
    x = x + 1
    zero = [0, 7, len(x) - 1]
    x[zero], x[3, 0], x[4, 0] = 0, 0, 0  # two rows that only begin with 0
    repair = repair_named(name, d=x.shape[1]).fit(x)
    whole = Normalized(repair) if normalize else repair
    applied = repair_rows(x, whole, tmp_path / "y.npy")
    y, wanted = np.load(tmp_path / "y.npy"), np.array(whole.transform(x))
    wanted[zero] = 0
    np.testing.assert_allclose(y, wanted, atol=1e-5)
    assert applied.zero_rows == 3
    assert not (y[[3, 4]] == 0).all(axis=1).any()
