"""Moments against float64 sums, and what merging, cutting and saving must keep."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from threadpoolctl import threadpool_limits

from tests.rows.reading import refuses
from uncone import Moments, UndefinedMeasure, measure
from uncone.moments.cell import lower_product, mirror
from uncone.rows import GRID, as_rows
from uncone.threads import share, waited

from .matrices import F64, Tensor, blas_threads, close, equal, gaussian

SUMS = ("first", "second", "unit_first", "unit_square", "unit_second")
FIRST = ("first", "unit_first", "unit_square")
WEIGHTS = ("weight", "weight_square", "unit_weight", "unit_weight_square")
SCALARS = ("n", "zero_rows", *WEIGHTS, "norm_sum", "norm_square_sum")


def _slow(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """The sums about the origin, row by row in float64, from their definitions."""
    d = x.shape[1]
    shapes = {"sum": (d,), "gram": (d, d), "unit_first": (d,), "unit_square": (d,), "unit_second": (d, d)}
    sums = {name: torch.zeros(shape, dtype=F64) for name, shape in shapes.items()}
    for row, weight in zip(x.double(), w.double(), strict=True):
        norm = row.square().sum().sqrt()
        unit = row / norm if norm > 0 else row * 0
        sums["sum"] += weight * row
        sums["gram"] += weight * torch.outer(row, row)
        sums["unit_first"] += weight * unit
        sums["unit_square"] += weight**2 * unit**2
        sums["unit_second"] += weight * torch.outer(unit, unit)
    return sums


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (F64, 1e-12), (torch.bfloat16, 1e-6)])
def test_sums_are_those_of_their_definition(dtype: torch.dtype, tolerance: float, weighted: bool) -> None:
    x = gaussian(300, 7, dtype=dtype) * 3 + 2
    x[5] = 0
    w = torch.rand(300, dtype=F64) if weighted else torch.ones(300, dtype=F64)
    m = Moments.of(x, w if weighted else None, unit_second=True)
    slow, norms = _slow(x, w), x.double().norm(dim=1)
    found = {"sum": m.mean() * m.weight, "gram": m.second_moment() * m.weight}
    for name, expected in slow.items():
        mine = found[name] if name in found else getattr(m, name)
        assert close(mine, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max())), name
    assert (m.n, m.zero_rows) == (300, 1)
    sums = (m.norm_sum, m.norm_square_sum, m.norm_min, m.norm_max)
    assert sums == pytest.approx((float(w @ norms), float(w @ norms**2), 0.0, float(norms.max())), rel=tolerance)
    assert m.unit_weight == pytest.approx(float(w.sum() - w[5]))


def test_covariance_and_spectra_agree_with_numpy() -> None:
    x = gaussian(500, 6, dtype=F64) * torch.tensor([5.0, 3, 2, 1, 0.5, 0.1], dtype=F64) + 7
    m = Moments.of(x)
    assert np.allclose(m.covariance(), np.cov(x.numpy().T), rtol=1e-12)
    assert np.allclose(m.second_moment(), x.numpy().T @ x.numpy() / 500, rtol=1e-12)
    for centered in (False, True):
        y = (x - x.mean(0)).numpy() if centered else x.numpy()
        expected = np.linalg.svd(y, compute_uv=False) ** 2 / (499 if centered else 500)
        assert np.allclose(m.spectrum(centered=centered), expected, rtol=1e-10)
        v = m.leading_directions(6, centered=centered)
        matrix = m.covariance() if centered else m.second_moment()
        assert close(matrix @ v, v * m.spectrum(centered=centered), atol=1e-10)


@pytest.mark.parametrize("decay", [0.0, 0.35, 1.0])
def test_leading_directions_are_those_of_the_decomposition(decay: float) -> None:
    m = Moments.of(gaussian(900, 100, dtype=F64) * torch.arange(1, 101, dtype=F64) ** -decay + 1)
    found = m.leading_directions(3, centered=True)
    expected = np.linalg.eigh(m.covariance())[1][:, ::-1][:, :3]
    assert close(np.abs((found * expected).sum(0)), np.ones(3), atol=1e-9)
    assert m.leading_directions(2, centered=True).shape == (100, 2)


@pytest.mark.parametrize("k", [-120, -60, -49, -42, -36, 40, 55, 100])
def test_a_quiet_feature_of_float32_rows_of_any_length_keeps_its_variance(k: int) -> None:
    x = (gaussian(600, 3) * torch.tensor([0.1, 1e-3, 2e-7]) + torch.tensor([1.0, 0, 0])) * 2.0**k
    np.testing.assert_allclose(Moments.of(x).variances(), x.double().var(0), rtol=1e-5)


def test_weights_of_whole_numbers_repeat_rows() -> None:
    x, counts = gaussian(40, 5, dtype=F64), torch.randint(1, 5, (40,))
    weighted, repeated = Moments.of(x, counts), Moments.of(x.repeat_interleave(counts, 0))
    assert close(weighted.mean(), repeated.mean())
    assert close(weighted.second_moment(), repeated.second_moment())
    assert close(weighted.unit_first, repeated.unit_first)


def test_a_large_common_direction_costs_no_digits() -> None:
    x = gaussian(20000, 8) + 3000
    assert close(Moments.of(x).covariance(), torch.cov(x.double().T), atol=2e-6)


@given(st.integers(1, 400), st.integers(1, 8), st.integers(0, 10**6), st.data())
def test_merge_is_the_whole(n: int, d: int, seed: int, data: st.DataObject) -> None:
    x = gaussian(n, d, seed=seed, dtype=F64) + 3
    cut = data.draw(st.integers(0, n))
    whole, parts = Moments.of(x, unit_second=True), [Moments(d, unit_second=True) for _ in range(2)]
    parts[0].update(x[:cut])
    parts[1].update(x[cut:])
    for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
        _assert_same(merged, whole, 1e-12)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 120), min_size=2, max_size=5))
def test_merge_is_associative(seed: int, sizes: list[int]) -> None:
    clouds = [gaussian(size, 4, seed=seed + i, dtype=F64) + i for i, size in enumerate(sizes)]
    parts = [Moments.of(cloud, unit_second=True) for cloud in clouds]
    right = reduce(lambda merged, part: part.merge(merged), reversed(parts))
    _assert_same(reduce(Moments.merge, parts), right, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_any_cut_agrees(dtype: torch.dtype) -> None:
    x = gaussian(3 * GRID + 11, 6, dtype=dtype) + 1
    whole = Moments.of(x, unit_second=True)
    for size in (1000, 5000, GRID + 1):
        parts = Moments(6, unit_second=True)
        for block in x.split(size):
            parts.update(block)
        _assert_same(parts, whole, 1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("drift", [0.0, 300.0])
def test_shards_cut_on_the_grid_give_the_same_bytes(drift: float) -> None:
    x = gaussian(5 * GRID + 100, 9) + torch.linspace(2, 2 + drift, 5 * GRID + 100)[:, None]
    whole = Moments.of(x, unit_second=True)
    merged = reduce(Moments.merge, (Moments.of(cell, unit_second=True, shift=whole.shift) for cell in x.split(GRID)))
    _assert_equal(merged, whole, (*SUMS, *SCALARS))


@pytest.mark.parametrize("d", [7, 130, 384, 700])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("second", "drift"), [(False, 0.0), (True, 0.0), (True, 100.0)])
def test_threads_and_alignment_change_no_byte(d: int, weighted: bool, second: bool, drift: float) -> None:
    x = gaussian(GRID + 500, d) + torch.linspace(2, 2 + drift, GRID + 500)[:, None]
    w = torch.rand(GRID + 500) if weighted else None
    shifted = torch.empty(x.numel() + 3)[3:].view(x.shape).copy_(x)  # 12 bytes off a cache line
    found = []
    for threads, rows in ((1, x), (2, shifted), (4, x), (4, shifted)):
        with threadpool_limits(threads):
            found.append(Moments.of(rows, w, second=second, unit_second=second))
    for again in found[1:]:
        _assert_equal(again, found[0], (*(SUMS if second else FIRST), *SCALARS))


def test_threads_change_no_bit_of_what_is_read_from_the_sums() -> None:
    x, found = gaussian(2000, 300) * torch.linspace(2, 0.5, 300) + 0.3, []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            m = Moments.of(x, unit_second=True)
            read = [m.spectrum(centered=True), m.spectrum(centered=False), m.directions(), m.mean_along()]
            read += [m.leading_directions(3, centered=centered) for centered in (False, True)]
            numbers = [m.concentration(), *astuple(measure.PairSums.of(m)), float(measure.uniformity(m))]
            found.append([*read, np.array(numbers)])
    for again in found[1:]:
        assert [equal(a, b) for a, b in zip(again, found[0], strict=True)] == [True] * 7


def test_without_unit_rows_everything_else_is_the_same() -> None:
    x = gaussian(GRID + 77, 24) + 1
    whole, without = Moments.of(x), Moments.of(x, unit_first=False)
    assert (without.unit_first, without.unit_square) == (None, None)
    _assert_equal(without, whole, ("second", *SCALARS, "norm_min", "norm_max"))
    assert float(measure.effective_rank(without)) == float(measure.effective_rank(whole))
    for message, refused in (
        ("got moments made with unit_first=False", lambda: measure.mean_cosine(without)),
        ("with the same sums", lambda: without.merge(whole)),
        ("expected unit_first=True with unit_second=True", lambda: Moments.of(x, unit_first=False, unit_second=True)),
    ):
        refuses(message, refused)


def _traced(x: np.ndarray) -> float:
    return float(Moments.of(x).covariance().trace())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of forks with threads
def test_a_forked_child_has_workers_of_its_own() -> None:
    """Data loaders fork."""
    import multiprocessing

    x = gaussian(2000, 300)
    here = Moments.of(x)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        there = pool.apply_async(_traced, (x.numpy(),)).get(timeout=60)
    assert there == pytest.approx(float(here.covariance().trace()), rel=1e-12)


def test_an_error_in_a_task_reaches_the_caller_and_leaves_the_threads() -> None:
    before = blas_threads()
    done: list[int] = []
    with pytest.raises(ZeroDivisionError):
        share([lambda: done.append(1), lambda: done.append(1 // 0), lambda: done.append(2)])
    assert blas_threads() == before
    assert share([lambda i=i: i * i for i in range(20)]) == [i * i for i in range(20)]
    assert share([lambda: sum(share([lambda: 1, lambda: 2])) for _ in range(4)]) == [3] * 4  # tasks share again


def test_a_signal_that_another_thread_takes_is_handled_during_the_wait() -> None:
    """As one that arrives just before the wait: it does not wake the thread that waits."""
    received = threading.Event()

    def work() -> bool:
        time.sleep(0.2)  # by then the other thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return received.wait(30)

    before = signal.signal(signal.SIGUSR1, lambda *_: received.set())
    try:
        with ThreadPoolExecutor(1) as pool:
            assert waited(pool.submit(work))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_several_threads_can_sum_at_once() -> None:
    parts = [gaussian(3000, 200, seed=i) for i in range(4)]
    expected = [Moments.of(x).second for x in parts]
    before = blas_threads()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: Moments.of(x).second, parts))
    assert all(equal(a, b) for a, b in zip(found, expected, strict=True))
    assert blas_threads() == before


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_users_number_of_threads_stays_as_it_was(threads: int) -> None:
    with threadpool_limits(threads):
        before = blas_threads()
        Moments.of(gaussian(GRID, 400)).spectrum(centered=True)
        assert blas_threads() == before


@pytest.mark.parametrize("kinds", [{}, {"second": False}, {"unit_second": True}, {"unit_first": False}, None], ids=str)
def test_saved_moments_come_back_with_the_same_bytes(tmp_path: Path, kinds: dict[str, bool] | None) -> None:
    m = Moments(5) if kinds is None else Moments.of(gaussian(99, 5), **kinds)
    m.save(tmp_path / "m.safetensors")
    back = Moments.load(tmp_path / "m.safetensors")
    _assert_equal(m, back, ("shift", *SUMS, *SCALARS, "norm_min", "norm_max", "epsilon"))
    if m.n:
        assert m.unit_first is None or float(measure.mean_cosine(back)) == float(measure.mean_cosine(m))
        assert equal(back.merge(m).mean(), m.merge(back).mean())


def test_updates_after_a_reading_count() -> None:
    x = gaussian(60, 4, dtype=F64)
    m = Moments.of(x[:30])
    before = m.spectrum(centered=True)
    m.update(x[30:])
    assert not equal(m.spectrum(centered=True), before)
    assert close(m.spectrum(centered=True), Moments.of(x).spectrum(centered=True))


@pytest.mark.parametrize("scale", [1e-42, 1e-25, 1e18, 1e30])
def test_lengths_that_float32_cannot_square(scale: float) -> None:
    x32 = ((gaussian(50, 4, dtype=F64) + 1) * scale).float()
    unit = torch.nn.functional.normalize(x32.double(), dim=1, eps=1e-300)
    m = Moments.of(x32)
    assert m.zero_rows == 0
    assert close(m.unit_first, unit.sum(0), rtol=1e-6)


def test_one_row_that_needs_float64_among_others() -> None:
    x = gaussian(3000, 700)
    x[2500] *= 1e17
    m, sums = Moments.of(x, unit_second=True), torch.nn.functional.normalize(x.double(), dim=1)
    assert close(m.unit_second, sums.T @ sums, atol=1e-3)
    assert close(m.second_moment(), x.double().T @ x.double() / 3000, rtol=1e-6, atol=1e20)


@given(st.integers(1, 40), st.integers(1, 450))
def test_the_symmetric_product_is_the_product(n: int, d: int) -> None:
    y = gaussian(n, d, seed=d, dtype=F64).numpy()
    out = np.full((d, d), np.nan)
    assert close(mirror(lower_product(y, y, out)), y.T @ y, atol=1e-12)
    assert equal(out, out.T)
    assert close(mirror(lower_product(y, y, out, add=True)), 2 * y.T @ y, atol=1e-12)


def test_weights_that_leave_one_row() -> None:
    m = Moments.of(gaussian(5, 3), [0, 0, 1, 0, 0])
    for function in (measure.isoscore, measure.effective_rank, measure.dominant_dimension):
        with pytest.raises(UndefinedMeasure, match="at least 2 rows of positive weight, got 1"):
            function(m)


@pytest.mark.parametrize("d", [512, 1500])
def test_rounding_of_float32_is_no_rank(d: int) -> None:
    direction, lengths = gaussian(1, d, dtype=F64), gaussian(3000, 1, dtype=F64)
    reading = measure.effective_rank(Moments.of((lengths * direction).float()))
    assert float(reading) == pytest.approx(1.0, abs=0.01)
    assert "count as 0, because they are within the rounding of the largest" in " ".join(reading.warnings)


class TestMessages:
    def test_rows_that_are_not_finite_are_counted_and_named(self) -> None:
        x = gaussian(GRID + 20, 3)
        x[[2, 9, 11, 500, 600, GRID + 1], 0] = float("nan")
        named = r"got 6 rows of 8212 with NaN or inf in tensor \(rows 2, 9, 11, 500, 600, \.\.\.\).*--skip-nonfinite"
        refuses(named, Moments.of, x)
        x = gaussian(20, 3)
        x[7, 2] = float("inf")
        refuses(r"got 1 row of 20 .* \(row 7\)", Moments.of, x, second=False)

    @pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [float("nan"), 1.0], [1e308, 1e308]])
    def test_bad_weights(self, weights: list[float]) -> None:
        refuses("expected finite weights from 0 up with a positive, finite sum", Moments.of, gaussian(2, 3), weights)

    @pytest.mark.parametrize(
        ("message", "refused"),
        [
            (r"expected weights of shape \(4,\), got \(3,\)", lambda: Moments.of(gaussian(4, 3), torch.ones(3))),
            (r"expected 4 weights, got \(1,\)", lambda: Moments(3).update(gaussian(4, 3), torch.ones(1))),
            (r"expected a block of shape \(n, 3\), got \(4, 2\)", lambda: Moments(3).update(gaussian(4, 2))),
            ("expected moments of 3 features with the same sums, got 2", lambda: Moments(3).merge(Moments(2))),
            (r"expected a shift of shape \(3,\)", lambda: Moments(3, shift=torch.zeros(2))),
            ("expected numbers below 1e\\+140, got 1e\\+200: scale", lambda: Moments.of(np.full((3, 2), 1e200))),
            ("with second=False", lambda: Moments.of(gaussian(9, 3), second=False).spectrum(centered=True)),
            ("expected numbers, got tensor on meta", lambda: Moments.of(gaussian(20, 4).to("meta"))),
        ],
    )
    def test_what_does_not_fit(self, message: str, refused: Callable[[], object]) -> None:
        refuses(message, refused)

    def test_a_transposed_matrix(self) -> None:
        told = (
            r"got the products of 300,000 columns .*, which would take 3600.0 GB of .* free: is the matrix transposed"
        )
        for refused in (lambda: Moments.of(torch.ones(3, 300_000)).second, Moments(300_000).sum_products):
            refuses(told, refused)
        assert Moments.of(torch.ones(3, 300_000), second=False).n == 3

    def test_nothing_in_them(self) -> None:
        with pytest.raises(UndefinedMeasure, match="expected at least 1 rows"):
            Moments(3).mean()

    def test_not_a_file_of_moments(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"nonsense")
        save_file({"first": torch.ones(2)}, tmp_path / "b")
        told = r"expected moments.*write it with Moments\.save|cannot read .*c: No such file"
        for name in ("a", "b", "c"):
            refuses(told, Moments.load, tmp_path / name)


def _assert_equal(a: Moments, b: Moments, names: Iterable[str]) -> None:
    for name in names:
        mine, other = getattr(a, name), getattr(b, name)
        assert mine is other or equal(mine, other), name


def _assert_same(a: Moments, b: Moments, tolerance: float) -> None:
    pairs = [(a.mean(), b.mean()), (a.second_moment(), b.second_moment())]
    pairs += [(getattr(a, name), getattr(b, name)) for name in ("unit_first", "unit_square", "unit_second")]
    for mine, other in pairs:
        assert close(mine, other, rtol=tolerance, atol=tolerance * max(1e-30, float(np.abs(other).max())))
    for name in SCALARS:
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=tolerance)
    assert (a.norm_min, a.norm_max) == (b.norm_min, b.norm_max)


def _parts(tmp_path: Path, x: Tensor) -> dict[str, Tensor]:
    Moments.of(x).save(tmp_path / "m.safetensors")
    return load_file(tmp_path / "m.safetensors")


def _refused(tmp_path: Path, tensors: dict[str, Tensor], message: str) -> None:
    save_file(tensors, tmp_path / "bad.safetensors", metadata={"format": "uncone.moments/2"})
    refuses(message, Moments.load, tmp_path / "bad.safetensors")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["first", "second", "rounding", "shift", "unit_first", "unit_square", "scalars"])
def test_a_file_of_sums_that_are_not_finite_is_refused(name: str, value: float, tmp_path: Path) -> None:
    tensors = _parts(tmp_path, gaussian(50, 4))
    for place in range(tensors[name].numel()):
        damaged = {key: tensor.clone() for key, tensor in tensors.items()}
        damaged[name].view(-1)[place] = value
        _refused(tmp_path, damaged, "expected finite sums|expected the sums of some rows")


@pytest.mark.parametrize("n", [0.5, 1e300, 2.0])
def test_a_file_of_sums_counts_whole_rows(n: float, tmp_path: Path) -> None:
    tensors = _parts(tmp_path, torch.cat([gaussian(50, 4), torch.zeros(3, 4)]))
    tensors["scalars"][0] = n  # of 2 rows no 3 are zero
    _refused(tmp_path, tensors, "with a missing or wrong n")


@pytest.mark.parametrize("name", ["weight", "unit_weight"])
@pytest.mark.parametrize(("weight", "square"), [(41.0, 0.0), (0.0, 41.0), (1e308, 41.0), (2.0, 5.0)])
def test_weights_and_squares_that_no_rows_have(name: str, weight: float, square: float, tmp_path: Path) -> None:
    tensors = _parts(tmp_path, gaussian(50, 4))
    tensors["scalars"][SCALARS.index(name)] = weight
    tensors["scalars"][SCALARS.index(f"{name}_square")] = square
    _refused(tmp_path, tensors, f"with a missing or wrong {name}_square")


def test_moments_of_weighted_rows_come_back(tmp_path: Path) -> None:
    for weights in (torch.rand(50), torch.zeros(50), torch.full((50,), 1e-3)):
        m = Moments(4)
        m.update(gaussian(50, 4), weights)
        m.finish().save(tmp_path / "m.safetensors")
        assert Moments.load(tmp_path / "m.safetensors").weight == m.weight


@pytest.mark.parametrize("weighted", [False, True])
def test_a_cell_in_parts_has_the_bytes_of_a_whole_one(tmp_path: Path, weighted: bool) -> None:
    d = 512
    x, w = gaussian(2 * GRID + 700, d).numpy() + 1, np.linspace(1, 2, 2 * GRID + 700)
    parts, whole = Moments(d, unit_second=True), Moments(d, unit_second=True)
    assert parts.rows_at_once(x.itemsize) < GRID, "or there is one part"
    for _ in parts.add_all(as_rows(x), w if weighted else None):
        assert parts.n % GRID == 0 or parts.n == len(x), "a cell counts once it is whole"
    for start in range(0, len(x), GRID):
        cut = slice(start, start + GRID)
        whole.update(x[cut], w[cut] if weighted else None)
    parts.save(tmp_path / "parts")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
