"""Fitting: the same result from every kind of rows, in one pass, with the provenance of the rows; what it refuses."""

import hashlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import Moments, open_rows
from uncone.rows import GRID, DerivedRows, as_rows
from uncone.transforms import (
    REPAIRS,
    ZIPF_REPAIRS,
    Affine,
    AllButTheTop,
    Center,
    ClusterCenter,
    Fitted,
    Normalized,
    ScaledCenter,
    Standardize,
    Transformation,
    Whiten,
    repair_named,
)
from uncone.transforms.fitting import digest, shared_name
from uncone.transforms.names import described

from ..matrices import close, gaussian
from ..rows.reading import all_rows, refuses
from .repairs import EVERY, FROM_MOMENTS, cone, fresh

Array, Tensor = np.ndarray, torch.Tensor
_each = pytest.mark.parametrize("made", EVERY, ids=repr)
_from_moments = pytest.mark.parametrize("made", FROM_MOMENTS, ids=repr)


class _Once(DerivedRows):
    """Rows that count how often they are read."""

    passes = 0

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        self.passes += 1
        yield from self._rows.blocks(size)


@_each
def test_every_kind_of_rows_gives_the_same(made: Transformation, tmp_path: Path) -> None:
    x = cone()
    np.save(tmp_path / "x.npy", x.numpy())
    fits = [fresh(made).fit(rows) for rows in (x, x.numpy(), as_rows(x), open_rows(tmp_path / "x.npy"))]
    first = fits[0].transform(x)
    for fit in fits:
        assert torch.equal(fit.transform(x), first)
        assert fit.fitted_.sha256 == fits[0].fitted_.sha256
    assert torch.equal(fresh(made).fit_transform(x), first)
    assert fits[-1].fitted_.name == f"{tmp_path.name}/x.npy"


@_from_moments
def test_rows_are_read_once(made: Transformation) -> None:
    rows = _Once(as_rows(cone()))
    done: list[int] = []
    made = fresh(made).fit(rows, progress=done.append)
    assert (rows.passes, done) == (1, [300])


@_from_moments
def test_moments_and_their_merged_shards_give_the_same(made: Transformation) -> None:
    x = cone(dtype=torch.float64)
    whole = fresh(made).fit(x).transform(x)
    torch.testing.assert_close(fresh(made).fit(Moments.of(x)).transform(x), whole)
    fit = fresh(made).fit(Moments.of(x[:70]).merge(Moments.of(x[70:200])).merge(Moments.of(x[200:])))
    torch.testing.assert_close(fit.transform(x), whole)
    assert fit.fitted_ == Fitted("moments", 300, 8)


@_each
def test_the_dtype_comes_back(made: Transformation) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = cone(dtype=dtype)
        fit = fresh(made).fit(x)
        y, rows = fit.transform(x), fit.transform(as_rows(x))
        assert y.dtype == dtype
        assert rows.dtype == ("float64" if dtype == torch.float64 else "float32")
        torch.testing.assert_close(all_rows(rows).to(dtype), y)
        assert dtype == torch.bfloat16 or np.array_equal(fit.transform(x.numpy()), y.numpy())


@_each
def test_any_layout_in_memory_gives_the_same(made: Transformation) -> None:
    x = cone()
    fit = fresh(made).fit(x)
    expected, wide = fit.transform(x), torch.zeros(600, 16)
    wide[::2, 1::2] = x
    for same in (wide[::2, 1::2], x.numpy().astype(">f4"), np.asfortranarray(x.numpy())):
        assert close(fit.transform(same), expected, rtol=1e-6, atol=1e-6)
        assert fresh(made).fit(same).fitted_.sha256 == fit.fitted_.sha256


@_each
def test_gradients_pass(made: Transformation) -> None:
    x = cone(dtype=torch.float64)
    fit = fresh(made).fit(x)
    for whole in (fit, Normalized(fit)):
        expected, few = whole.transform(x[:2]), x[:2].clone().requires_grad_()
        y = whole.transform(few)
        assert y.requires_grad
        assert close(y, expected, rtol=1e-12, atol=1e-12)
        assert torch.autograd.gradcheck(whole.transform, (few,))
        with torch.no_grad():
            assert not whole.transform(few).requires_grad


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_rows_that_are_not_finite_are_counted_in_every_dtype(dtype: str) -> None:
    x = cone(3000, dtype=getattr(torch, dtype))
    made = Whiten().fit(x)
    x[5, 2], x[2999, 0] = float("nan"), float("-inf")
    for same in (x,) if dtype == "bfloat16" else (x, x.numpy()):
        refuses("expected finite rows, got 2 of 3000 with NaN or inf", made.transform, same)
    largest = torch.full((2, 8), torch.finfo(x.dtype).max, dtype=x.dtype)
    refuses(f"expected numbers that {dtype} can hold", Affine(torch.zeros(8), 4 * torch.eye(8)).transform, largest)


@settings(max_examples=4)
@given(seed=st.integers(0, 1000))
@_from_moments
def test_weights_are_repeated_rows(made: Transformation, seed: int) -> None:
    x = cone(60, 4, seed=seed, dtype=torch.float64)
    counts = torch.randint(0, 5, (60,), generator=torch.Generator().manual_seed(seed))
    counts[0] = 1
    weighted = fresh(made).fit(x, weights=counts).transform(x)
    repeated = fresh(made).fit(x.repeat_interleave(counts, 0)).transform(x)
    if isinstance(made, Whiten):  # one factor for all: a covariance is divided by N - 1, under weights in Kish's sense
        repeated = repeated * (float(weighted.norm()) / float(repeated.norm()))
    torch.testing.assert_close(weighted, repeated)
    torch.testing.assert_close(fresh(made).fit(x, weights=counts.numpy() * 1e-3).transform(x), weighted)


@_from_moments
def test_equal_weights_are_none(made: Transformation) -> None:
    x = cone(dtype=torch.float64)
    weighted = fresh(made).fit(x, weights=torch.full((300,), 2.5))
    torch.testing.assert_close(weighted.transform(x), fresh(made).fit_transform(x))


@_from_moments
def test_a_merge_of_weighted_shards_is_the_whole(made: Transformation) -> None:
    x, w = cone(dtype=torch.float64), torch.arange(300).double()
    fit = fresh(made).fit(Moments.of(x[:100], w[:100]).merge(Moments.of(x[100:], w[100:])))
    torch.testing.assert_close(fit.transform(x), fresh(made).fit(x, weights=w).transform(x))
    assert fit.fitted_.weights == "in the moments"


def test_the_digest_is_of_the_numbers_and_of_no_format(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    x = cone(GRID + 10, 3)
    expected = hashlib.sha256(x.numpy().astype("<f4").tobytes()).hexdigest()
    np.save(tmp_path / "a.npy", np.asfortranarray(x.numpy()))
    np.save(tmp_path / "b.npy", x.numpy().astype(">f4"))
    save_file({"w": x}, tmp_path / "c.safetensors")
    for source in (x, x.numpy(), *(tmp_path / name for name in ("a.npy", "b.npy", "c.safetensors"))):
        rows = open_rows(source)
        assert digest(rows) == expected
        fitted = Center().fit(rows).fitted_
        assert (fitted.sha256, fitted.n, fitted.d, fitted.weights) == (expected, GRID + 10, 3, None)
    half = x.half()
    assert digest(as_rows(half)) == hashlib.sha256(half.float().numpy().tobytes()).hexdigest()
    assert digest(as_rows(x.double())) == hashlib.sha256(x.double().numpy().tobytes()).hexdigest()
    w = torch.arange(1, GRID + 11)
    assert Center().fit(x, weights=w).fitted_.weights == hashlib.sha256(w.numpy().astype("<f8").tobytes()).hexdigest()


def test_names_that_are_passed_on_hold_no_whole_path() -> None:
    assert shared_name("/home/me/models/bert/model.safetensors#table") == "bert/model.safetensors#table"
    assert shared_name("x.npy") == "x.npy"
    assert shared_name("tensor") == "tensor"


@pytest.mark.parametrize("name", [*REPAIRS, *ZIPF_REPAIRS])
def test_names_make_what_they_say(name: str) -> None:
    made = repair_named(name, d=150)
    x = cone(760, 150)
    weights = torch.arange(1, 761) if name in ZIPF_REPAIRS else None
    y = made.fit_transform(x, weights=weights)
    assert y.shape == x.shape
    if name != "cluster_center":
        centred = "original" not in name and name != "scaled_center"
        mean = y.mean(0) if weights is None else (weights[:, None] * y).sum(0) / weights.sum()
        assert (float(mean.norm()) < 1e-4) == centred
    if isinstance(made, AllButTheTop):
        assert len(made.components_) == 2
        assert made.centered == ("original" not in name)
    if isinstance(made, Whiten):
        assert (made.kind, made.power) == ("pca" if name == "whiten_pca" else "zca", 0.5)


MEANT = {
    "center": ("centre", "Center", "mean"),
    "scaled_center": ("scaled-centre",),
    "all_but_the_top_d100": ("abtt", "All-but-the-Top"),
    "whiten": ("zca", "whitten"),
    "whiten_pca": ("pca",),
    "standardize": ("z-score", "standardise"),
    "zipf_center": ("zipf_centre",),
}


@pytest.mark.parametrize(
    ("name", "d", "message"),
    [
        ("nothing", 10, "expected one of center, scaled_center, .* got 'nothing'"),
        ("original", 10, "got 'original'"),
        ("zipf_standardize", 10, "got 'zipf_standardize'"),
        ("all_but_the_top_2", 2, "expected rows of more than 2 features for all_but_the_top_2, got 2"),
        ("all_but_the_top_d100", 1, "expected rows of more than 1 features"),
        ("cluster_center", 12, "expected rows of more than 12 features"),
        ("sorcery", 10, r"got 'sorcery': choose a repair$"),
        ("normalise", 10, "got 'normalise': unit length alone is not a repair"),
        *((name, 384, f"got '{name}': did you mean '{meant}'") for meant, names in MEANT.items() for name in names),
    ],
)
def test_names_that_make_nothing(name: str, d: int, message: str) -> None:
    refuses(message, repair_named, name, d=d)


@_each
def test_rows_that_are_not_finite_are_named(made: Transformation) -> None:
    x = cone()
    x[5, 2], x[9, 0] = float("nan"), float("-inf")
    refuses(r"got 2 rows of 300 with NaN or inf in tensor \(rows 5, 9\)", lambda: fresh(made).fit(x))


@_each
def test_weights_that_are_none_are_refused(made: Transformation) -> None:
    for weights, message in (
        (torch.ones(5), r"expected weights of shape \(300,\), got \(5,\)"),
        (-torch.ones(300), "expected finite weights from 0 up"),
        (torch.zeros(300), "with a positive, finite sum"),
        (torch.full((300,), float("nan")), "expected finite weights"),
    ):
        refuses(message, fresh(made).fit, cone(), weights=weights)


@_each
def test_what_is_no_matrix_is_refused(made: Transformation) -> None:
    for x, message in (
        (torch.zeros(4), r"expected a matrix of shape \(N, D\), got shape \(4,\)"),
        (torch.zeros(0, 4), "at least one row"),
        (torch.zeros(3, 4, dtype=torch.int32), "expected rows of float64"),
        ("text", "expected Rows, a tensor or an array"),
    ):
        refuses(message, fresh(made).fit, x)


@_each
def test_another_width_is_refused_and_what_is_not_fitted_too(made: Transformation) -> None:
    made = fresh(made)
    refuses(f"expected a fitted {type(made).__name__}, got one that is not", made.transform, cone())
    refuses("call fit", made.save, "nowhere.safetensors")
    refuses(r"expected rows of 8 features, got shape \(300, 9\)", made.fit(cone()).transform, cone(d=9))


def test_one_row_or_one_column() -> None:
    one = cone(1, 8)
    assert torch.equal(Center().fit_transform(one), torch.zeros(1, 8))
    torch.testing.assert_close(ScaledCenter().fit_transform(one), torch.zeros(1, 8), atol=1e-6, rtol=0)
    for made in (AllButTheTop(1), Whiten(force=True), Standardize()):
        refuses(r"expected at least 2 rows for .*, got 1", made.fit, one)
    column = cone(10, 1, dtype=torch.float64)
    for narrow in (Center(), Whiten(power=1.0), Standardize()):
        assert abs(float(narrow.fit_transform(column).mean())) < 1e-12
    assert float(Whiten(power=1.0).fit_transform(column).var()) == pytest.approx(1)
    refuses("expected rows of more than 1 features to remove 1 directions, got 1", lambda: AllButTheTop().fit(column))


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, 1e6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_equal_rows_have_no_direction(value: float, dtype: torch.dtype) -> None:
    x = torch.full((300, 8), min(value, 6e4)).to(dtype)
    for made in (AllButTheTop(2), Whiten()):
        refuses("expected rows that differ, got 300 equal rows", made.fit, x)
    assert float(Standardize().fit_transform(x).abs().max()) == 0
    assert float(Center().fit_transform(x).abs().max()) <= 1e-6 * abs(value)


def test_a_second_fit_forgets_the_first() -> None:
    x, other = cone(), cone(seed=1) + 5
    for made in EVERY:
        made = fresh(made)
        expected = fresh(made).fit(other).transform(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.fit(x)
        assert torch.equal(made.fit(other).transform(other), expected)
        assert made.warnings_ == ()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (AllButTheTop(0), "expected n_components to be a whole number from 1 up, got 0"),
        (AllButTheTop(True), "expected n_components to be a whole number"),
        (Whiten(power=1.5), "expected power to be a number from 0 to 1, got 1.5"),
        (Whiten(floor=0.0), "expected a floor above 0, got 0"),
        (Whiten(n_components=0), "expected n_components to be a whole number from 1 up"),
        (ClusterCenter(n_clusters=0), "expected n_clusters to be a whole number from 1 up"),
        (ClusterCenter(seed=-1), "expected seed to be a whole number from 0 up"),
    ],
    ids=repr,
)
def test_options_that_mean_nothing_are_refused(made: Transformation, message: str) -> None:
    """scikit-learn sets options as it likes, and expects to hear of them from `fit`."""
    refuses(message, made.fit, cone())


def test_moments_without_the_sums_needed_are_refused() -> None:
    x = cone()
    refuses("moments made with second=False", Whiten().fit, Moments.of(x, second=False))
    refuses("moments made with unit_first=False", ScaledCenter().fit, Moments.of(x, unit_first=False))
    refuses("expected no weights with moments", Center().fit, Moments.of(x), weights=torch.ones(300))
    refuses("expected moments of at least one row", Center().fit, Moments(8))
    refuses("expected rows to find clusters in, got moments", ClusterCenter(2, 2).fit, Moments.of(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_directions_without_variance_are_not_removed(dtype: torch.dtype) -> None:
    x = (gaussian(300, 2, dtype=torch.float64) @ gaussian(2, 8, seed=1, dtype=torch.float64) + 3).to(dtype)
    assert AllButTheTop(2).fit(x).variances_.shape == (2,)
    message = "expected rows that vary in at least 3 directions, got 2: the others would be arbitrary"
    refuses(message, AllButTheTop(3).fit, x)
    assert int(ClusterCenter(1, 5).fit(x).components_.any(2).sum()) == 2


_FIT = """
import sys, threading
import torch, uncone
from uncone.transforms import *
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
small = torch.randn(6000, 16)
made = [Center(), AllButTheTop(), Whiten(), Standardize(), ScaledCenter()]
for one in made:
    one.fit(small)
first = anonymous()
for one in made:
    before = anonymous()
    peak, done = [0.0], threading.Event()
    def watch():
        while not done.wait(0.002):
            peak[0] = max(peak[0], anonymous())
    watcher = threading.Thread(target=watch); watcher.start()
    type(one)().fit(uncone.open_rows(sys.argv[1]))  # and let go, so that no fit counts what another keeps
    done.set(); watcher.join()
    print(type(one).__name__, peak[0] - before, peak[0] - first)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident memory of Linux")
def test_memory_is_that_of_a_block_and_not_of_the_file(tmp_path: Path) -> None:
    """A block has 32 MiB, a matrix of sums 8 MiB, the file 256 MiB."""
    d, blocks, path = 1024, 8, tmp_path / "x.npy"
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(blocks * GRID, d))
    for i in range(blocks):
        file[i * GRID : (i + 1) * GRID] = gaussian(GRID, d, seed=i).numpy()
    file.flush()
    done = subprocess.run([sys.executable, "-c", _FIT, path], capture_output=True, text=True, check=True)
    taken = {name: (float(own), float(whole)) for name, own, whole in map(str.split, done.stdout.splitlines())}
    assert len(taken) == 5
    assert max(own for own, _ in taken.values()) < 90, taken
    assert max(whole for _, whole in taken.values()) < 140, taken


def test_a_described_whitening_has_its_power() -> None:
    for name in ("whiten", "whiten_pca", "zipf_whiten"):
        assert described(name) == f"{name} (power 0.5)"
    for name in ("center", "original", "cluster_center"):
        assert described(name) == name
