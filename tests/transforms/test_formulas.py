"""Each transformation against its paper's formula, written as a loop, a closed form or another implementation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import Moments, measure
from uncone.transforms import AllButTheTop, Center, RemoveMeanDirection, ScaledCenter, Standardize, Whiten, repair_named

from ..matrices import close, gaussian, rotation, with_spectrum
from ..rows.reading import refuses

Tensor = torch.Tensor


def _cone(n: int = 400, d: int = 10, *, seed: int = 0) -> Tensor:
    """Rows with a mean and a decaying spectrum, float64."""
    return with_spectrum(n, 2.0 ** -torch.arange(d), seed=seed) + gaussian(1, d, seed=seed + 7, dtype=torch.float64)


def _directions(x: Tensor, k: int) -> Tensor:
    """The first k right singular vectors of the centred rows, by LAPACK on the rows themselves."""
    return torch.linalg.svd(x - x.mean(0), full_matrices=False)[2][:k]


def test_centring_takes_the_mean_and_no_distance() -> None:
    x = _cone(60)
    y = Center().fit_transform(x)
    torch.testing.assert_close(y, torch.stack([row - sum(x) / len(x) for row in x]))
    torch.testing.assert_close(torch.pdist(y), torch.pdist(x))
    assert float(measure.mean_cosine(Moments.of(y))) < 0.05 < float(measure.mean_cosine(Moments.of(x)))


@pytest.mark.parametrize("made", [Center(), Whiten(power=1.0)], ids=repr)
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_what_is_repaired_stays(made: Center | Whiten, seed: int) -> None:
    y = made.fit_transform(_cone(100, 6, seed=seed))
    torch.testing.assert_close(made.fit_transform(y), y)


def test_scaled_centring_is_the_papers_formula() -> None:
    x = torch.cat([_cone(60, 5), torch.zeros(2, 5, dtype=torch.float64)])
    norms = [sum(float(v) ** 2 for v in row) ** 0.5 for row in x]
    mean = [sum(float(row[j]) / norm for row, norm in zip(x[:60], norms, strict=False)) / 60 for j in range(5)]
    pairs = zip(x, norms, strict=True)
    expected = [[float(v) - norm * m for v, m in zip(row, mean, strict=True)] for row, norm in pairs]
    y = ScaledCenter().fit_transform(x)
    torch.testing.assert_close(y, torch.tensor(expected, dtype=torch.float64))
    assert bool((y[60:] == 0).all())
    unit = torch.nn.functional.normalize(x[:60], dim=1)
    torch.testing.assert_close(y[:60] / x[:60].norm(dim=1, keepdim=True), unit - unit.mean(0))


def test_scaled_centring_is_not_affine() -> None:
    x = _cone(60, 5)
    made = ScaledCenter().fit(x)
    middle = made.transform((x[:30] + x[30:]) / 2)
    assert float((middle - (made.transform(x[:30]) + made.transform(x[30:])) / 2).abs().max()) > 1e-3
    assert not made.affine
    assert not hasattr(made, "affine_")


def test_rows_that_are_all_zero_stay() -> None:
    x = torch.zeros(5, 3)
    assert torch.equal(ScaledCenter().fit_transform(x), x)


def test_removing_the_mean_direction_is_the_papers_formula() -> None:
    x = _cone(60, 5)
    mean = [sum(float(row[j]) for row in x) / 60 for j in range(5)]
    length, expected = sum(v**2 for v in mean) ** 0.5, []
    for row in x:
        along = sum(float(v) * m / length for v, m in zip(row, mean, strict=True))
        expected.append([float(v) - along * m / length for v, m in zip(row, mean, strict=True)])
    made = RemoveMeanDirection()
    torch.testing.assert_close(made.fit_transform(x), torch.tensor(expected, dtype=torch.float64))
    assert close(made.direction_, np.array(mean) / length)


def test_removing_the_mean_direction_of_an_axis_is_to_set_that_axis_to_zero() -> None:
    x = torch.tensor([[3.0, 1.0, 0.0], [5.0, -1.0, 0.0], [1.0, 0.0, 7.0], [1.0, 0.0, -7.0]])
    made = RemoveMeanDirection().fit(x)
    assert made.direction_.tolist() == [1, 0, 0]
    assert made.transform(x).tolist() == [[0, 1, 0], [0, -1, 0], [0, 0, 7], [0, 0, -7]]
    assert made.transform(torch.tensor([9.0, 2.0, 3.0])).tolist() == [0, 2, 3]


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([-3.0, 1e-4, 1.0, 1e6]), weighted=st.booleans())
def test_what_removing_the_mean_direction_keeps(seed: int, scale: float, weighted: bool) -> None:
    x = _cone(50, 6, seed=seed)
    weights = torch.arange(1, 51, dtype=torch.float64) if weighted else torch.ones(50, dtype=torch.float64)
    made = RemoveMeanDirection().fit(x, weights=weights)
    y, m = made.transform(x), torch.from_numpy(made.direction_)
    torch.testing.assert_close(made.transform(y), y)  # idempotent
    torch.testing.assert_close(y @ m, torch.zeros(50, dtype=torch.float64))  # orthogonal to m
    mean = (weights[:, None] * x).sum(0) / weights.sum()
    torch.testing.assert_close(m, mean / mean.norm())
    torch.testing.assert_close((weights[:, None] * y).sum(0), torch.zeros(6, dtype=torch.float64))
    apart = gaussian(20, 6, seed=seed + 1, dtype=torch.float64)
    apart -= (apart @ m)[:, None] * m
    torch.testing.assert_close(made.transform(apart), apart)  # what is orthogonal to m stays
    torch.testing.assert_close(x.square().sum(1), y.square().sum(1) + (x @ m).square())
    torch.testing.assert_close(RemoveMeanDirection().fit_transform(scale * x, weights=weights), scale * y)
    torch.testing.assert_close(RemoveMeanDirection().fit(x.flip(0), weights=weights.flip(0)).transform(x), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_mean_zero_have_no_mean_direction(dtype: torch.dtype) -> None:
    x = _cone(60, 5).to(dtype)
    for rows in (torch.zeros(4, 5, dtype=dtype), x - x.mean(0), torch.cat([x, -x])):
        made = RemoveMeanDirection()
        with pytest.warns(UserWarning, match="mean of the rows is zero to within rounding: it has no direction"):
            made.fit(rows)
        assert len(made.warnings_) == 1
        assert not made.direction_.any()
        assert torch.equal(made.transform(rows), rows)


@pytest.mark.parametrize("d", [10, 40, 130])
@pytest.mark.parametrize("centered", [True, False])
def test_all_but_the_top_is_the_papers_formula(d: int, centered: bool) -> None:
    x = with_spectrum(500, 1.1 ** -torch.arange(d)) + 1
    mean, directions = x.mean(0), _directions(x, 2)
    expected = x - mean
    for u in directions:
        expected -= torch.stack([u @ (row - mean if centered else row) * u for row in x])
    made = AllButTheTop(2, centered=centered)
    torch.testing.assert_close(made.fit_transform(x), expected)
    assert close(abs(made.components_ @ directions.numpy().T), np.eye(2), atol=1e-7, rtol=0)


def test_it_is_what_scikit_learn_gives() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    x = _cone(d=30).numpy()
    pca = decomposition.PCA(3, svd_solver="full").fit(x)
    y = x - pca.mean_
    np.testing.assert_allclose(AllButTheTop(3).fit_transform(x), y - y @ pca.components_.T @ pca.components_, atol=1e-9)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_original_and_fix_differ_by_one_vector(seed: int, k: int) -> None:
    x = _cone(80, 6, seed=seed)
    fixed, original = AllButTheTop(k).fit(x), AllButTheTop(k, centered=False).fit(x)
    directions = _directions(x, k)
    expected = -(x.mean(0) @ directions.T @ directions)
    torch.testing.assert_close(original.transform(x) - fixed.transform(x), expected.expand(80, 6))
    assert float(fixed.transform(x).mean(0).norm()) < 1e-12
    torch.testing.assert_close(original.transform(x).mean(0), expected)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_removed_directions_are_gone_and_removed_once(seed: int, k: int) -> None:
    x = _cone(80, 6, seed=seed)
    made = AllButTheTop(k).fit(x)
    y = made.transform(x)
    torch.testing.assert_close(y @ torch.from_numpy(made.components_).T, torch.zeros(80, k, dtype=torch.float64))
    weight = made.affine_.weight
    assert weight is not None
    assert close(weight @ weight, weight)
    torch.testing.assert_close(
        made.transform(y + torch.from_numpy(made.mean_)), y
    )  # what is repaired stays as it is, put where it was
    values = torch.linalg.eigvalsh(torch.cov(y.T)).flip(0)[: 6 - k]
    torch.testing.assert_close(values, 2.0 ** -torch.arange(k, 6).double())


def test_the_default_number_of_directions_is_that_of_the_papers() -> None:
    for d, k in ((2, 1), (100, 1), (101, 2), (384, 4)):
        assert AllButTheTop().fit(gaussian(500, d)).components_.shape == (k, d)
        assert repair_named("all_but_the_top_d100", d=d).options()["n_components"] == k


def test_a_rotation_of_the_rows_is_a_rotation_of_the_result() -> None:
    x, turn = _cone(), rotation(10, seed=3)
    for made in (Center(), ScaledCenter(), RemoveMeanDirection(), AllButTheTop(2), Whiten()):
        torch.testing.assert_close(made.fit_transform(x @ turn), made.fit_transform(x) @ turn)


@pytest.mark.parametrize("kind", ["zca", "pca"])
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), power=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_the_covariance_of_whitened_rows(kind: str, seed: int, power: float) -> None:
    spectrum = 2.0 ** -torch.arange(8).double()
    x = with_spectrum(100, spectrum, seed=seed) + 3
    y = Whiten(kind, power).fit_transform(x)  # type: ignore[arg-type]
    assert float(y.mean(0).norm()) < 1e-10
    covariance = torch.cov(y.T)
    torch.testing.assert_close(torch.linalg.eigvalsh(covariance).flip(0), spectrum ** (1 - power))
    if kind == "pca":
        torch.testing.assert_close(covariance, torch.diag(spectrum ** (1 - power)), atol=1e-9, rtol=0)
    if power == 1:
        torch.testing.assert_close(covariance, torch.eye(8, dtype=torch.float64))
    if kind == "zca":  # C^((1 - power)), in the directions of the rows
        values, vectors = torch.linalg.eigh(torch.cov(x.T))
        torch.testing.assert_close(covariance, vectors * values ** (1 - power) @ vectors.T)


def test_whitened_float32_rows_are_white_to_their_rounding() -> None:
    y = Whiten(power=1.0).fit_transform(_cone(2000, 10).float())
    assert float((torch.cov(y.double().T) - torch.eye(10)).abs().max()) < 1e-4


def test_the_floor_holds_what_has_no_variance() -> None:
    x = _cone()
    x[:, 3] = 1.0
    y = Whiten("pca", 1.0, floor=1e-2).fit_transform(x)
    values = torch.linalg.eigvalsh(torch.cov(x.T)).flip(0)
    expected = values / values.clamp_min(1e-2 * values[0])
    torch.testing.assert_close(torch.cov(y.T).diagonal(), expected.clamp_min(0), atol=1e-9, rtol=1e-7)
    assert float(y.abs().max()) < 100


def test_pca_whitening_is_scikit_learns() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    x = _cone(d=12).numpy()
    for k in (12, 5):
        expected = decomposition.PCA(k, whiten=True, svd_solver="full").fit_transform(x)
        found = Whiten("pca", 1.0, floor=1e-12, n_components=k).fit_transform(x)
        np.testing.assert_allclose(found * np.sign((found * expected).sum(0)), expected, atol=1e-8)


def test_zca_of_few_components_keeps_the_width_and_their_rank() -> None:
    x = _cone()
    y = Whiten(n_components=4).fit_transform(x)
    assert y.shape == x.shape
    assert int(torch.linalg.matrix_rank(y)) == 4
    components = torch.from_numpy(Whiten(n_components=4).fit(x).components_)
    torch.testing.assert_close(y, Whiten("pca", n_components=4).fit_transform(x) @ components)


@pytest.mark.parametrize("made", [Center(), Standardize(), Whiten(), Whiten("pca", 1.0)], ids=repr)
def test_what_keeps_all_directions_can_be_undone(made: Center | Standardize | Whiten) -> None:
    x = _cone()
    torch.testing.assert_close(made.fit(x).affine_.inverse_transform(made.transform(x)), x)
    torch.testing.assert_close(made.inverse_transform(made.transform(x)), x)


def test_what_removes_directions_cannot_be_undone() -> None:
    x = _cone()
    for made in (AllButTheTop(2), AllButTheTop(2, centered=False), Whiten(n_components=3)):
        refuses("the removed directions are lost", made.fit(x).affine_.inverse)
        message = f"got {type(made).__name__}, which removes directions: keep the original rows"
        refuses(message, lambda made=made: made.inverse_transform(x))
    scaled, few = ScaledCenter().fit(x), Whiten("pca", n_components=3).fit(x)
    refuses("that can be undone, got ScaledCenter, which depends on each row", lambda: scaled.inverse_transform(x))
    refuses("expected a fitted Center", Center().inverse_transform, x)
    refuses("the features cut off are lost", few.affine_.inverse)


def test_too_few_rows_are_whitened_with_a_warning_or_refused() -> None:
    x, strict = _cone(49, 10), Whiten(force=False)
    refuses(r"expected at least 50 rows to whiten 10 features, got 49: .* force=True", strict.fit, x)
    refuses("got 49", strict.fit, _cone(60, 10), weights=torch.arange(60) > 10)
    refuses("expected at most 10 components", Whiten(n_components=11).fit, _cone())
    for force in (False, True):  # warnings are errors
        assert Whiten(force=force).fit(_cone(50, 10)).warnings_ == ()
    few = "whitening 20 features from 15 rows: at least 6 directions are raised to the floor"
    noise = "whitening 10 features from 49 rows: below 50 rows, small eigenvalues are noise"
    for rows, message in ((x, noise), (gaussian(15, 20), few)):
        with pytest.warns(UserWarning, match=message):
            assert len(Whiten().fit(rows).warnings_) == 1


def test_zipfian_whitening_is_whitening_under_probabilities() -> None:
    x = _cone(500, 6)
    p = 1 / torch.arange(1, 501, dtype=torch.float64)
    p = p / p.sum()
    mean = sum(p[i] * x[i] for i in range(500))
    covariance = sum(p[i] * torch.outer(x[i] - mean, x[i] - mean) for i in range(500))
    y = Whiten(power=1.0).fit_transform(x, weights=p)
    torch.testing.assert_close((p[:, None] * y).sum(0), torch.zeros(6, dtype=torch.float64))
    white = (p[:, None] * y).T @ y
    torch.testing.assert_close(white / white[0, 0], torch.eye(6, dtype=torch.float64))
    values, vectors = torch.linalg.eigh(covariance)  # type: ignore[arg-type]
    expected = (x - mean) @ (vectors * values**-0.5) @ vectors.T
    torch.testing.assert_close(y / y.norm(), expected / expected.norm())


def test_standardising_is_every_feature_by_its_deviation() -> None:
    x = _cone() * torch.logspace(-3, 3, 10)
    for column, y in zip(x.numpy().T, Standardize().fit_transform(x).numpy().T, strict=True):
        np.testing.assert_allclose(y, (column - column.mean()) / column.std(), atol=1e-9)


def test_standardising_is_scikit_learns_constant_features_too() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = _cone().numpy()
    x[:, 2] = 1 / 3
    x[:, 3] = 0
    expected = preprocessing.StandardScaler().fit_transform(x)
    np.testing.assert_allclose(Standardize().fit_transform(x), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_constant_feature_is_not_blown_up(dtype: torch.dtype) -> None:
    x = _cone(20_000, 10).to(dtype)
    x[:, 4] = 1000.1
    y = Standardize().fit_transform(x)
    assert float(y[:, 4].abs().max()) < 1e-3
    assert float(y[:, 3].double().std()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_feature_that_holds_only_rounding_is_not_blown_up(dtype: torch.dtype) -> None:
    x = gaussian(300, 8, dtype=dtype)
    x[:, 2] *= 1e-33
    x[:, 4] = x[:, 4] * 1e-33 + 1e-33
    x[:, 6] *= 1e9  # one huge feature makes no noise of the others
    made = Standardize().fit(x)
    y = made.transform(x)
    assert made.scale_[[2, 4]].tolist() == [1.0, 1.0]
    assert float(y[:, [2, 4]].abs().max()) < 1e-30
    others = y[:, [0, 1, 3, 5, 6, 7]].double()
    torch.testing.assert_close(others.std(0, correction=0), torch.ones(6).double(), atol=1e-5, rtol=0)


def test_far_from_the_origin_no_digits_are_lost() -> None:
    x = _cone(2000, 10)
    exact = AllButTheTop(1).fit_transform(x)
    moved = AllButTheTop(1).fit_transform((x + 1000).float())
    assert float((moved - exact).abs().max()) < 5e-4  # the rounding of 1000 in float32 is 6e-5
