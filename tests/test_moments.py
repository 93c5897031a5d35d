"""Moments against float64 sums, and what merging, cutting and saving must keep."""

import math
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from threadpoolctl import threadpool_limits

from uncone import InputError, Moments, UndefinedMeasure, measure
from uncone.moments.cell import lower_product, mirror
from uncone.moments.eigen import consume_to_eigen
from uncone.rows import GRID, as_rows
from uncone.threads import share, waited

from .matrices import blas_threads, close, equal, gaussian

Tensor = torch.Tensor
SUMS = ("first", "second", "unit_first", "unit_square", "unit_second")
FIRST = ("first", "unit_first", "unit_square")
SCALARS = (
    "n",
    "zero_rows",
    "weight",
    "weight_square",
    "unit_weight",
    "unit_weight_square",
    "norm_sum",
    "norm_square_sum",
)


def _slow(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """The sums about the origin, row by row in float64, from their definitions."""
    d = x.shape[1]
    sums = {
        "sum": torch.zeros(d),
        "gram": torch.zeros(d, d),
        "unit_first": torch.zeros(d),
        "unit_square": torch.zeros(d),
        "unit_second": torch.zeros(d, d),
    }
    sums = {name: value.double() for name, value in sums.items()}
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
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 1e-6)]
)
def test_sums_are_those_of_their_definition(dtype: torch.dtype, tolerance: float, weighted: bool) -> None:
    x = gaussian(300, 7, dtype=dtype) * 3 + 2
    x[5] = 0
    w = torch.rand(300, dtype=torch.float64) if weighted else torch.ones(300, dtype=torch.float64)
    m = Moments.of(x, w if weighted else None, unit_second=True)
    slow = _slow(x, w)
    gram = m.second_moment() * m.weight
    for mine, expected in [(m.mean() * m.weight, slow["sum"]), (gram, slow["gram"])] + [
        (getattr(m, name), slow[name]) for name in ("unit_first", "unit_square", "unit_second")
    ]:
        assert close(mine, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))
    norms = x.double().norm(dim=1)
    assert (m.n, m.zero_rows) == (300, 1)
    assert m.norm_sum == pytest.approx(float(w @ norms), rel=tolerance)
    assert m.norm_square_sum == pytest.approx(float(w @ norms**2), rel=tolerance)
    assert (m.norm_min, m.norm_max) == pytest.approx((0.0, float(norms.max())), rel=tolerance)
    assert m.unit_weight == pytest.approx(float(w.sum() - w[5]))


def test_covariance_and_spectra_agree_with_numpy() -> None:
    x = (
        gaussian(500, 6, dtype=torch.float64) @ torch.diag(torch.tensor([5.0, 3, 2, 1, 0.5, 0.1], dtype=torch.float64))
        + 7
    )
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


@pytest.mark.parametrize("d", [1, 2, 63, 128, 129, 300])
def test_a_matrix_turned_into_its_eigenvectors_in_place_is_decomposed_as_by_torch(d: int) -> None:
    x = gaussian(2 * d, d, dtype=torch.float64)
    matrix = x.T @ x
    values = torch.linalg.eigvalsh(matrix)
    found, columns = consume_to_eigen(matrix.numpy().copy())
    assert close(found, values.flip(0), rtol=1e-12, atol=1e-12 * float(values[-1]))
    found, columns = torch.from_numpy(found), torch.from_numpy(columns)
    assert close(matrix @ columns, columns * found, atol=1e-11 * float(values[-1]))
    assert close(columns.T @ columns, torch.eye(d, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.35, 1.0])
def test_leading_directions_are_those_of_the_decomposition(decay: float) -> None:
    x = gaussian(900, 100, dtype=torch.float64) * torch.arange(1, 101, dtype=torch.float64) ** -decay + 1
    m = Moments.of(x)
    found = m.leading_directions(3, centered=True)
    expected = np.linalg.eigh(m.covariance())[1][:, ::-1][:, :3]
    assert close(np.abs((found * expected).sum(0)), np.ones(3), atol=1e-9)
    assert m.leading_directions(2, centered=True).shape == (100, 2)


@pytest.mark.parametrize("k", [-120, -60, -49, -42, -36, 40, 55, 100])
def test_a_quiet_feature_of_float32_rows_of_any_length_keeps_its_variance(k: int) -> None:
    x = (gaussian(600, 3) * torch.tensor([0.1, 1e-3, 2e-7]) + torch.tensor([1.0, 0, 0])) * 2.0**k
    np.testing.assert_allclose(Moments.of(x).variances(), x.double().var(0), rtol=1e-5)


def test_weights_of_whole_numbers_repeat_rows() -> None:
    x, counts = gaussian(40, 5, dtype=torch.float64), torch.randint(1, 5, (40,))
    weighted, repeated = Moments.of(x, counts), Moments.of(x.repeat_interleave(counts, 0))
    assert close(weighted.mean(), repeated.mean())
    assert close(weighted.second_moment(), repeated.second_moment())
    assert close(weighted.unit_first, repeated.unit_first)


def test_a_large_common_direction_costs_no_digits() -> None:
    spread = gaussian(20000, 8)
    x = spread + 3000
    expected = torch.cov(x.double().T)
    assert close(Moments.of(x).covariance(), expected, atol=2e-6)


@given(st.integers(1, 400), st.integers(1, 8), st.integers(0, 10**6), st.data())
def test_merge_is_the_whole(n: int, d: int, seed: int, data: st.DataObject) -> None:
    x = gaussian(n, d, seed=seed, dtype=torch.float64) + 3
    cut = data.draw(st.integers(0, n))
    whole = Moments.of(x, unit_second=True)
    parts = [_maybe_empty(x[:cut], d), _maybe_empty(x[cut:], d)]
    for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
        _assert_same(merged, whole, 1e-12)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 120), min_size=2, max_size=5))
def test_merge_is_associative(seed: int, sizes: list[int]) -> None:
    parts = [
        Moments.of(gaussian(size, 4, seed=seed + i, dtype=torch.float64) + i, unit_second=True)
        for i, size in enumerate(sizes)
    ]
    left, right = parts[0], parts[-1]
    for part in parts[1:]:
        left = left.merge(part)
    for part in reversed(parts[:-1]):
        right = part.merge(right)
    _assert_same(left, right, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
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
    shift = whole.shift
    cells = [Moments.of(cell, unit_second=True, shift=shift) for cell in x.split(GRID)]
    merged = cells[0]
    for cell in cells[1:]:
        merged = merged.merge(cell)
    for name in SUMS:
        assert equal(getattr(merged, name), getattr(whole, name)), name
    for name in SCALARS:
        assert getattr(merged, name) == getattr(whole, name), name


@pytest.mark.parametrize("d", [7, 130, 384, 700])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("second", "drift"), [(False, 0.0), (True, 0.0), (True, 100.0)])
def test_threads_and_alignment_change_no_byte(d: int, weighted: bool, second: bool, drift: float) -> None:
    x, w = (
        gaussian(GRID + 500, d) + torch.linspace(2, 2 + drift, GRID + 500)[:, None],
        torch.rand(GRID + 500) if weighted else None,
    )
    shifted = torch.empty(x.numel() + 3)[3:].view(x.shape).copy_(x)  # 12 bytes off a cache line
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found += [Moments.of(rows, w, second=second, unit_second=second) for rows in (x, shifted)]
    for again in found[1:]:
        assert all(equal(getattr(again, name), getattr(found[0], name)) for name in (SUMS if second else FIRST))
        assert all(getattr(again, name) == getattr(found[0], name) for name in SCALARS)


def test_threads_change_no_bit_of_what_is_read_from_the_sums() -> None:
    x = gaussian(2000, 300) * torch.linspace(2, 0.5, 300) + 0.3
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            m = Moments.of(x, unit_second=True)
            read = [m.spectrum(centered=True), m.spectrum(centered=False), m.directions(), m.mean_along()]
            read += [m.leading_directions(3, centered=centered) for centered in (False, True)]
            read += [np.array([m.concentration(), *astuple(measure.PairSums.of(m))])]
            found.append([*read, np.array(float(measure.uniformity(m)))])
    for again in found[1:]:
        assert [equal(a, b) for a, b in zip(again, found[0], strict=True)] == [True] * 8


def test_rows_that_need_a_gradient_are_taken_as_numbers() -> None:
    x = gaussian(2000, 30, dtype=torch.float64).requires_grad_()
    assert close(Moments.of(x).mean(), x.mean(0))


def test_without_unit_rows_everything_else_is_the_same() -> None:
    x = gaussian(GRID + 77, 24) + 1
    whole, without = Moments.of(x), Moments.of(x, unit_first=False)
    assert (without.unit_first, without.unit_square) == (None, None)
    assert without.second is not None
    assert equal(without.second, whole.second)  # type: ignore[arg-type]
    assert all(getattr(without, name) == getattr(whole, name) for name in (*SCALARS, "norm_min", "norm_max"))
    assert float(measure.effective_rank(without)) == float(measure.effective_rank(whole))
    with pytest.raises(InputError, match="got moments made with unit_first=False"):
        measure.mean_cosine(without)
    with pytest.raises(InputError, match="with the same sums"):
        without.merge(whole)
    with pytest.raises(InputError, match="expected unit_first=True with unit_second=True"):
        Moments.of(x, unit_first=False, unit_second=True)


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


def test_tasks_can_share_again() -> None:
    assert share([lambda: sum(share([lambda: 1, lambda: 2])) for _ in range(4)]) == [3] * 4


def test_several_threads_can_sum_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    parts = [gaussian(3000, 200, seed=i) for i in range(4)]
    expected = [Moments.of(x).second for x in parts]
    before = blas_threads()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: Moments.of(x).second, parts))
    assert all(equal(a, b) for a, b in zip(found, expected, strict=True))
    assert blas_threads() == before


def _traced(x: np.ndarray) -> float:
    return float(Moments.of(x).covariance().trace())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_users_number_of_threads_stays_as_it_was(threads: int) -> None:
    with threadpool_limits(threads):
        before = blas_threads()
        Moments.of(gaussian(GRID, 400)).spectrum(centered=True)
        assert blas_threads() == before


@pytest.mark.parametrize("kind", ["whole", "first order", "unit second", "no unit", "empty"])
def test_saved_moments_come_back_with_the_same_bytes(tmp_path: Path, kind: str) -> None:
    m = (
        Moments(5)
        if kind == "empty"
        else Moments.of(
            gaussian(99, 5),
            second=kind != "first order",
            unit_first=kind != "no unit",
            unit_second=kind == "unit second",
        )
    )
    m.save(tmp_path / "m.safetensors")
    back = Moments.load(tmp_path / "m.safetensors")
    for name in ("shift", *SUMS):
        mine, other = getattr(m, name), getattr(back, name)
        assert (mine is None) == (other is None)
        assert mine is None or equal(mine, other)
    assert all(getattr(m, name) == getattr(back, name) for name in (*SCALARS, "norm_min", "norm_max", "epsilon"))
    if m.n:
        assert kind == "no unit" or float(measure.mean_cosine(back)) == float(measure.mean_cosine(m))
        assert equal(back.merge(m).mean(), m.merge(back).mean())


def test_updates_after_a_reading_count() -> None:
    x = gaussian(60, 4, dtype=torch.float64)
    m = Moments.of(x[:30])
    before = m.spectrum(centered=True)
    m.update(x[30:])
    assert not equal(m.spectrum(centered=True), before)
    assert close(m.spectrum(centered=True), Moments.of(x).spectrum(centered=True))


@pytest.mark.parametrize("scale", [1e-42, 1e-25, 1e18, 1e30])
def test_lengths_that_float32_cannot_square(scale: float) -> None:
    x = (gaussian(50, 4, dtype=torch.float64) + 1) * scale
    x32 = x.float()
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


def test_inputs_are_not_modified() -> None:
    x = gaussian(100, 3)
    before = x.clone()
    Moments.of(x, torch.rand(100), unit_second=True)
    assert equal(x, before)


@given(st.integers(1, 40), st.integers(1, 450))
def test_the_symmetric_product_is_the_product(n: int, d: int) -> None:
    y = gaussian(n, d, seed=d, dtype=torch.float64).numpy()
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
    direction, lengths = gaussian(1, d, dtype=torch.float64), gaussian(3000, 1, dtype=torch.float64)
    reading = measure.effective_rank(Moments.of((lengths * direction).float()))
    assert float(reading) == pytest.approx(1.0, abs=0.01)
    assert "within the rounding of the largest count as 0" in " ".join(reading.warnings)


class TestMessages:
    def test_rows_that_are_not_finite_are_counted_and_named(self) -> None:
        x = gaussian(GRID + 20, 3)
        for i in (2, 9, 11, 500, 600, GRID + 1):
            x[i, 0] = float("nan")
        with pytest.raises(
            InputError,
            match=r"got 6 rows of 8212 with NaN or inf in tensor \(rows 2, 9, 11, 500, 600, \.\.\.\).*--skip-nonfinite",
        ):
            Moments.of(x)

    def test_one_infinite_row(self) -> None:
        x = gaussian(20, 3)
        x[7, 2] = float("inf")
        with pytest.raises(InputError, match=r"got 1 row of 20 .* \(row 7\)"):
            Moments.of(x, second=False)

    def test_numbers_beyond_float64_squares(self) -> None:
        with pytest.raises(InputError, match="expected numbers below 1e\\+140, got 1e\\+200: scale the rows"):
            Moments.of(torch.full((3, 2), 1e200, dtype=torch.float64))

    @pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [float("nan"), 1.0], [1e308, 1e308]])
    def test_bad_weights(self, weights: list[float]) -> None:
        with pytest.raises(InputError, match="expected finite weights from 0 up with a positive, finite sum"):
            Moments.of(gaussian(2, 3), weights)

    def test_weights_of_another_length(self) -> None:
        with pytest.raises(InputError, match=r"expected weights of shape \(4,\), got \(3,\)"):
            Moments.of(gaussian(4, 3), torch.ones(3))

    def test_weights_of_a_block(self) -> None:
        with pytest.raises(InputError, match=r"expected 4 weights, got \(1,\)"):
            Moments(3).update(gaussian(4, 3), torch.ones(1))

    def test_a_transposed_matrix(self) -> None:
        told = r"got the products of 300,000 columns with each other, which take 3600.0 GB of .* free: is the matrix transposed"
        for refused in (lambda: Moments.of(torch.ones(3, 300_000)).second, Moments(300_000).sum_products):
            with pytest.raises(InputError, match=told):
                refused()
        assert Moments.of(torch.ones(3, 300_000), second=False).n == 3

    def test_another_width(self) -> None:
        with pytest.raises(InputError, match=r"expected a block of shape \(n, 3\), got \(4, 2\)"):
            Moments(3).update(gaussian(4, 2))
        with pytest.raises(InputError, match="expected moments of 3 features with the same sums, got 2"):
            Moments(3).merge(Moments(2))
        with pytest.raises(InputError, match=r"expected a shift of shape \(3,\)"):
            Moments(3, shift=torch.zeros(2))

    def test_first_order_moments_have_no_spectrum(self) -> None:
        with pytest.raises(InputError, match="made with second=False"):
            Moments.of(gaussian(9, 3), second=False).spectrum(centered=True)

    def test_nothing_in_them(self) -> None:
        with pytest.raises(UndefinedMeasure, match="expected at least 1 rows"):
            Moments(3).mean()

    def test_not_a_file_of_moments(self, tmp_path: Path) -> None:

        (tmp_path / "a").write_bytes(b"nonsense")
        save_file({"first": torch.ones(2)}, tmp_path / "b")
        for name in ("a", "b", "c"):
            with pytest.raises(
                InputError, match=r"expected moments.*write it with Moments\.save|cannot read .*c: No such file"
            ):
                Moments.load(tmp_path / name)


def _maybe_empty(x: Tensor, d: int) -> Moments:
    return Moments.of(x, unit_second=True) if len(x) else Moments(d, unit_second=True)


def _assert_same(a: Moments, b: Moments, tolerance: float) -> None:
    for mine, other in [(a.mean(), b.mean()), (a.second_moment(), b.second_moment())] + [
        (getattr(a, name), getattr(b, name)) for name in ("unit_first", "unit_square", "unit_second")
    ]:
        assert close(mine, other, rtol=tolerance, atol=tolerance * max(1e-30, float(np.abs(other).max())))
    for name in SCALARS:
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=tolerance)
    assert (a.norm_min, a.norm_max) == (b.norm_min, b.norm_max)


def test_rows_without_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected numbers, got tensor on meta"):
        Moments.of(gaussian(20, 4).to("meta"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["first", "second", "rounding", "shift", "unit_first", "unit_square", "scalars"])
def test_a_file_of_sums_that_are_not_finite_is_refused(name: str, value: float, tmp_path) -> None:
    Moments.of(gaussian(50, 4)).save(tmp_path / "m.safetensors")
    tensors = load_file(tmp_path / "m.safetensors")
    for place in range(tensors[name].numel()):
        damaged = {key: tensor.clone() for key, tensor in tensors.items()}
        damaged[name].view(-1)[place] = value
        save_file(damaged, tmp_path / "bad.safetensors", metadata={"format": "uncone.moments/2"})
        with pytest.raises(InputError, match=r"expected finite sums|expected the sums of some rows"):
            Moments.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("n", [0.5, 1e300, 2.0])
def test_a_file_of_sums_counts_whole_rows(n: float, tmp_path) -> None:
    Moments.of(torch.cat([gaussian(50, 4), torch.zeros(3, 4)])).save(tmp_path / "m.safetensors")
    tensors = load_file(tmp_path / "m.safetensors")
    tensors["scalars"][0] = n  # of 2 rows no 3 are zero
    save_file(tensors, tmp_path / "bad.safetensors", metadata={"format": "uncone.moments/2"})
    with pytest.raises(InputError, match="with another n"):
        Moments.load(tmp_path / "bad.safetensors")


def test_moments_of_no_rows_come_back(tmp_path) -> None:
    Moments(3).save(tmp_path / "m.safetensors")
    assert Moments.load(tmp_path / "m.safetensors").n == 0


@pytest.mark.parametrize("name", ["weight", "unit_weight"])
@pytest.mark.parametrize(("weight", "square"), [(41.0, 0.0), (0.0, 41.0), (1e308, 41.0), (2.0, 5.0)])
def test_a_file_of_weights_and_squares_that_no_rows_have_is_refused(
    name: str, weight: float, square: float, tmp_path
) -> None:
    Moments.of(gaussian(50, 4)).save(tmp_path / "m.safetensors")
    tensors = load_file(tmp_path / "m.safetensors")
    place = SCALARS.index(name)
    tensors["scalars"][place], tensors["scalars"][SCALARS.index(f"{name}_square")] = weight, square
    save_file(tensors, tmp_path / "bad.safetensors", metadata={"format": "uncone.moments/2"})
    with pytest.raises(InputError, match=f"with another {name}_square"):
        Moments.load(tmp_path / "bad.safetensors")


def test_moments_of_weighted_rows_come_back(tmp_path) -> None:
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
