"""Clouds whose values are known on paper: a given spectrum, an orthonormal frame, a simplex, rank one, a shifted sphere."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from uncone import InputError, Measurement, Moments, UndefinedMeasure, measure, open_rows

from ..matrices import F64, Tensor, gaussian, rotation, simplex, with_spectrum

EIGENVALUES = torch.tensor([9.0, 4.0, 4.0, 1.0, 0.25, 0.01], dtype=F64)
RATIOS = [measure.participation_ratio, measure.isoscore, measure.isoscore_star]
RANKS = [measure.effective_rank, measure.rankme, measure.stable_rank]
SHARES = [measure.anisotropy, measure.singular_entropy, measure.condition_number, measure.dominant_dimension]
SPECTRAL = RATIOS + RANKS + SHARES
OF_UNIT = [measure.mean_cosine, measure.rogue_dimensions, measure.uniformity]
CLOUD = gaussian(500, 20)
Function = Callable[..., Measurement]


class TestGivenSpectrum:
    """Every spectral measure from the eigenvalues, written out."""

    m = Moments.of(with_spectrum(400, EIGENVALUES))
    p, p2 = EIGENVALUES.sqrt() / EIGENVALUES.sqrt().sum(), EIGENVALUES / EIGENVALUES.sum()

    def test_eigenvalues(self) -> None:
        assert np.allclose(self.m.spectrum(centered=True), EIGENVALUES.numpy(), rtol=1e-10)

    def test_participation_ratio_and_isoscore(self) -> None:
        ratio = 18.26**2 / (81 + 16 + 16 + 1 + 0.0625 + 0.0001)
        assert float(measure.participation_ratio(self.m)) == pytest.approx(ratio)
        assert float(measure.isoscore(self.m)) == pytest.approx((ratio - 1) / 5)

    def test_isoscore_star(self) -> None:
        shrunk = 0.7 * EIGENVALUES + 0.3 * EIGENVALUES.mean()
        ratio = float(shrunk.sum() ** 2 / shrunk.square().sum())
        assert float(measure.isoscore_star(self.m, zeta=0.3)) == pytest.approx((ratio - 1) / 5)
        published = 0.7 * EIGENVALUES + 0.3
        ratio = float(published.sum() ** 2 / published.square().sum())
        for target in (torch.eye(6), np.eye(6), np.eye(6).tolist()):
            found = float(measure.isoscore_star(self.m, zeta=0.3, target=target))
            assert found == pytest.approx((ratio - 1) / 5)

    def test_ranks(self) -> None:
        rank = math.exp(-float((self.p * self.p.log()).sum()))
        for centered in (True, False):  # the rows have mean zero
            assert float(measure.effective_rank(self.m, centered=centered)) == pytest.approx(rank, rel=1e-9)
            assert float(measure.stable_rank(self.m, centered=centered)) == pytest.approx(18.26 / 9)
        q = self.p + 1e-7
        assert float(measure.rankme(self.m)) == pytest.approx(math.exp(-float((q * q.log()).sum())), rel=1e-9)

    def test_shares_and_entropy(self) -> None:
        for k in range(1, 7):
            assert float(measure.anisotropy(self.m, k)) == pytest.approx(float(EIGENVALUES[k - 1]) / 18.26)
        assert float(measure.singular_entropy(self.m)) == pytest.approx(-float((self.p2 * self.p2.log()).sum()))
        assert float(measure.condition_number(self.m)) == pytest.approx(30.0)


def test_an_orthonormal_frame_is_isotropic() -> None:
    d = 8
    frame = torch.cat([rotation(d), -rotation(d)])  # every axis and its opposite
    m = Moments.of(frame, unit_second=True)
    for function in (measure.participation_ratio, measure.effective_rank, measure.stable_rank):
        assert float(function(m)) == pytest.approx(d)
    for function in (measure.isoscore, measure.condition_number):
        assert float(function(m)) == pytest.approx(1.0)
    assert float(measure.mean_cosine(m)) == pytest.approx(-1 / (2 * d - 1))  # each row has one opposite
    assert float(measure.mean_shift(m)) == pytest.approx(0, abs=1e-12)
    assert (
        0.99 < float(measure.partition_isotropy(frame, m)) <= 1.0
    )  # all directions are eigenvectors: the solver picks
    z = math.e + 1 / math.e + 2 * (d - 1)
    for found in measure.partition.log_partition(open_rows(frame), rotation(d).T.numpy(), longest=1.0):
        assert found == pytest.approx(np.full(d, math.log(z)))


@pytest.mark.parametrize("d", [2, 5, 30])
def test_a_simplex_has_cosine_minus_one_over_d(d: int) -> None:
    m = Moments.of(simplex(d), unit_second=True)
    assert float(measure.mean_cosine(m)) == pytest.approx(-1 / d)
    assert measure.mean_cosine(m).range[0] == pytest.approx(-1 / d)
    assert float(measure.isoscore(m)) == pytest.approx(1.0)
    reading = measure.uniformity(m)
    assert reading.details["cosine_variance"] == pytest.approx(0, abs=1e-12)
    assert float(reading) == pytest.approx(-4 - 4 / d)  # all pairs at one distance: the second order is exact
    assert float(measure.uniformity_exact(simplex(d))) == pytest.approx(-4 - 4 / d, rel=1e-6)


def test_rank_one() -> None:
    direction = torch.nn.functional.normalize(gaussian(1, 6, dtype=F64), dim=1)
    m = Moments.of(torch.linspace(1, 3, 50, dtype=F64)[:, None] * direction)
    for function in (measure.mean_cosine, measure.participation_ratio, measure.anisotropy):
        assert float(function(m)) == pytest.approx(1.0)
    assert float(measure.isoscore(m)) == pytest.approx(0.0, abs=1e-9)
    assert float(measure.effective_rank(m)) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(UndefinedMeasure, match="the rows do not span all dimensions"):
        measure.condition_number(m)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 3.0])
def test_the_shifted_sphere(shift: float) -> None:
    """The toy of Bis et al. 2021, Figure 2: points on a circle pushed along x. By symmetry E u = (E cos of the angle, 0)."""
    n = 4000
    angle = torch.arange(n, dtype=F64) * 2 * math.pi / n
    x = torch.stack([angle.cos() + shift, angle.sin()], dim=1)
    m = Moments.of(x)
    unit = (x[:, 0] / x.norm(dim=1)).mean() if shift != 1.0 else (x[:, 0] / x.norm(dim=1).clamp_min(1e-300)).mean()
    assert float(measure.mean_cosine(m)) == pytest.approx((float(unit) ** 2 * n - 1) / (n - 1), abs=2e-3)
    assert float(measure.isoscore(m)) == pytest.approx(1.0)  # mean-agnostic: it must not see the shift
    assert float(measure.mean_shift(m)) == pytest.approx(shift / float(x.norm(dim=1).mean()), abs=1e-12)
    if shift == 0:
        assert float(measure.partition_isotropy(x)) == pytest.approx(1.0, abs=1e-9)
    else:  # Z(c) on a circle is n I0(1) e^(c.mean), with I0 the modified Bessel function: both signs differ by e^(2 shift)
        assert float(measure.partition_isotropy(x)) == pytest.approx(math.exp(-2 * shift), rel=1e-6)


@pytest.mark.parametrize(("n", "d"), [(200, 20), (768, 96), (3000, 30), (60, 90)])
def test_references_are_what_isotropic_clouds_give(n: int, d: int) -> None:
    """References are closed forms; simulation is allowed to check them."""
    readings: dict[str, list[float]] = {}
    references: dict[str, float] = {}
    for seed in range(12):
        m = Moments.of(gaussian(n, d, seed=seed, dtype=F64), unit_second=True)
        for function in (*SPECTRAL[:-2], measure.uniformity, measure.gaussian_isotropy, measure.mean_shift):
            reading = function(m)
            assert reading.reference is not None
            readings.setdefault(reading.name, []).append(float(reading))
            references[reading.name] = reading.reference
    for name, values in readings.items():
        mean, reference = sum(values) / len(values), references[name]
        if name == "gaussian_isotropy":  # an exponential: compare the exponents
            mean, reference = math.log(mean), math.log(reference)
        slack = 0.15 if name in ("gaussian_isotropy", "mean_shift") else 0.05  # edges of so few rows fluctuate
        assert mean == pytest.approx(reference, rel=slack), name


@pytest.mark.parametrize(("n", "d"), [(100, 768), (768, 768), (5000, 768)])
def test_debiasing_removes_the_bias_of_few_rows(n: int, d: int) -> None:
    m = Moments.of(gaussian(n, d))
    assert float(measure.isoscore(m)) == pytest.approx(1 / (1 + d / n), rel=0.03)
    assert float(measure.isoscore(m, debiased=True)) == pytest.approx(1.0, abs=0.05)
    assert measure.isoscore(m).reference == pytest.approx(float(measure.isoscore(m)), rel=0.02)


def test_the_marchenko_pastur_quantiles_are_eigenvalues() -> None:
    for n, d in [(1000, 100), (100, 100), (100, 300)]:
        expected = np.linalg.eigvalsh(np.cov(gaussian(n + 1, d, dtype=F64).numpy().T))[::-1].clip(0)
        found = measure.marchenko_pastur(n, d)
        assert (float(found.mean()), int((found > 1e-9).sum())) == (pytest.approx(1.0), min(n, d))
        assert float(np.abs(found - expected).mean()) < 0.04
    edges = measure.marchenko_pastur(10**6, 100)
    assert 0.979 < float(edges[-1]) < float(edges[0]) < 1.021


class TestUndefined:
    """No value is better than a wrong one, and never a silent NaN."""

    @pytest.mark.parametrize("function", SPECTRAL)
    def test_one_row_and_equal_rows(self, function: Function) -> None:
        for x in (torch.zeros(1, 4), torch.zeros(5, 4)):
            with pytest.raises(UndefinedMeasure):
                function(Moments.of(x))

    def test_zero_rows_are_left_out_counted_and_said(self) -> None:
        reading = measure.mean_cosine(Moments.of(torch.tensor([[0.0, 0], [1, 0], [0, 2], [0, 0]])))
        assert (float(reading), reading.details["zero_rows"]) == (pytest.approx(0.0, abs=1e-7), 2)
        assert "2 rows are all zero" in reading.warnings[0]

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    @pytest.mark.parametrize(("n", "shift"), [(3, 0.0), (40, 0.0), (40, 1000.0), (300, 0.0)])
    def test_debiasing_a_frame_leaves_nothing(self, n: int, shift: float, dtype: torch.dtype) -> None:
        """N equally long rows in equal angles: |C|_F^2 / tr(C)^2 is the bias 1 / (N - 1) itself."""
        frame = torch.eye(n, dtype=F64) - 1 / n
        for about in (None, torch.zeros(n)):  # about the origin, the shift costs digits
            for x in (frame + shift, (frame * 3) @ rotation(n) + shift):
                m = Moments.of(x.to(dtype), shift=about)
                if abs(m.concentration() * (n - 1) - 1) > 0.1:
                    continue  # float32 about the origin has lost the frame
                for function in (measure.isoscore, measure.participation_ratio):
                    with pytest.raises(UndefinedMeasure, match="equal within rounding to its bias"):
                        function(m, debiased=True)

    def test_debiasing_what_is_more_even_than_random_rows_warns(self) -> None:
        frame = torch.eye(40, dtype=F64) - 1 / 40 + 1e-4 * gaussian(40, 40, dtype=F64)
        reading = measure.isoscore(Moments.of(frame), debiased=True)
        assert float(reading) > 1000
        assert reading.range == (0.0, None)
        assert "exceeds D = 40 by more than sampling error" in reading.warnings[-1]
        for seed in range(20):
            assert measure.isoscore(Moments.of(gaussian(40, 60, seed=seed)), debiased=True).warnings == ()

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    @pytest.mark.parametrize("d", [3, 20, 63])
    def test_neighbours_that_are_equally_far_but_for_rounding(self, d: int, dtype: torch.dtype) -> None:
        for function in (measure.two_nn, measure.levina_bickel):
            with pytest.raises(UndefinedMeasure, match="to within rounding: there is no scale"):
                function(simplex(d).to(dtype))

    @pytest.mark.parametrize(("dtype", "weight"), [(torch.float32, 1e-6), (F64, 1e-15)])
    def test_one_row_with_all_the_weight_but_for_rounding(self, dtype: torch.dtype, weight: float) -> None:
        x = torch.tensor([[1.0, 2], [-1, -2], [1, 1]], dtype=dtype)
        with pytest.raises(UndefinedMeasure, match="one row has all the weight"):
            measure.mean_cosine(Moments.of(x, [1.0, weight, weight], second=False))

    @pytest.mark.parametrize(
        ("functions", "x", "message"),
        [
            (OF_UNIT, torch.tensor([[0.0, 0], [1, 1], [0, 0]]), "at least two rows with a direction"),
            ([measure.mean_shift], torch.zeros(3, 2), "a row that is not zero"),
            ([measure.isoscore, measure.isoscore_star], torch.tensor([[1.0], [2.0]]), "at least two features"),
            ([partial(measure.isoscore, debiased=True)], gaussian(2, 4), "at least three rows"),
            ([measure.rogue_dimensions], torch.cat([CLOUD[:, :8], -CLOUD[:, :8]]), "indistinguishable from 0"),
            ([measure.outlier_dimensions], torch.ones(4, 5), "none can stand out"),
            ([measure.outlier_dimensions], CLOUD - CLOUD.mean(0), "by no more than rounding"),
        ],
    )
    def test_what_has_no_value(self, functions: list[Function], x: Tensor, message: str) -> None:
        for function in functions:
            with pytest.raises(UndefinedMeasure, match=message):
                function(Moments.of(x, unit_second=True))


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("expected k from 1 to D = 4, got 5", lambda m: measure.anisotropy(m, 5)),
        (r"expected zeta in \[0, 1\], got 2", lambda m: measure.isoscore_star(m, zeta=2)),
        (r"a target of shape \(4, 4\), got \(3, 3\)", lambda m: measure.isoscore_star(m, target=torch.eye(3))),
        ("expected t above 0", lambda m: measure.uniformity(m, t=0)),
        ("unit_second=True", measure.uniformity),
        ("expected sigmas above 0", lambda m: measure.outlier_dimensions(m, sigmas=0)),
    ],
)
def test_bad_options(message: str, refused: Function) -> None:
    with pytest.raises(InputError, match=message):
        refused(Moments.of(gaussian(30, 4)))


class TestWarnings:
    def test_few_rows(self) -> None:
        assert "N = 30 is below 5 D = 50" in measure.isoscore(Moments.of(gaussian(30, 10))).warnings[0]
        assert measure.isoscore(Moments.of(gaussian(300, 10))).warnings == ()

    def test_one_dimension_dominating(self) -> None:
        seven = 12 * torch.eye(40)[7]
        x = gaussian(1000, 40) * seven.clamp_min(1)
        assert "dimension 7 alone carries" in measure.effective_rank(Moments.of(x)).warnings[0]
        x = gaussian(1000, 40) + seven
        assert "of the second moment" in measure.stable_rank(Moments.of(x)).warnings[0]
        assert measure.stable_rank(Moments.of(x), centered=True).warnings == ()

    def test_tiny_norms(self) -> None:
        x = gaussian(100, 5)
        x[3] *= 1e-6
        assert "tiny norms" in measure.mean_cosine(Moments.of(x)).warnings[0]
        assert "tiny norms" in measure.partition_isotropy(gaussian(100, 5) * 0.01).warnings[0]
        assert measure.partition_isotropy(gaussian(100, 5)).warnings == ()
