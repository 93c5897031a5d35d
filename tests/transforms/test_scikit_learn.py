"""Repairs as estimators of scikit-learn: by its own checks, in its pipelines, and without it."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from uncone import transforms
from uncone.errors import InputError
from uncone.transforms import (
    AllButTheTop,
    Center,
    ClusterCenter,
    RemoveMeanDirection,
    ScaledCenter,
    Standardize,
    Transformation,
    Whiten,
    scikit_learn,
)

from ..matrices import gaussian
from ..rows.reading import refuses
from .repairs import EVERY, cone, fresh

pytest.importorskip("sklearn", minversion="1.6", reason="the extra [cluster] is not installed")
pandas = pytest.importorskip("pandas")
from sklearn.base import clone  # noqa: E402
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

CHECKED = (
    *(Center(), ScaledCenter(), RemoveMeanDirection(), Standardize(), AllButTheTop(), AllButTheTop(1, centered=False)),
    *(Whiten(), Whiten("pca", n_components=1)),
    ClusterCenter(2, 1),  # the checks have a few rows of a few features
)
_checked = pytest.mark.parametrize("made", CHECKED, ids=repr)
_each = pytest.mark.parametrize("made", EVERY, ids=repr)


@pytest.fixture
def as_its_checks_expect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Constructors take anything, which only this suite's checks of types refuse. What repairs say of few rows
    or of names, and scikit-learn of estimators that are not its children, is no error."""
    for made in CHECKED:
        init = type(made).__init__
        if hasattr(init, "__wrapped__"):
            monkeypatch.setattr(type(made), "__init__", init.__wrapped__)
    with warnings.catch_warnings():
        known = (
            "Estimator .* does not inherit",
            "whitening .* rows",
            "the mean of the rows is zero",
            "X .* feature names",
        )
        for message in known:
            warnings.filterwarnings("ignore", message, UserWarning)
        yield


def _rows() -> np.ndarray[Any, np.dtype[np.float64]]:
    return cone(dtype=torch.float64).numpy()


def _named(x: Any) -> Any:
    return pandas.DataFrame(x, columns=[f"feature {i}" for i in range(x.shape[1])], copy=False)


def test_every_public_repair_is_checked() -> None:
    public = {getattr(transforms, name) for name in transforms.__all__}
    repairs = {x for x in public if isinstance(x, type) and issubclass(x, Transformation)} - {Transformation}
    assert {type(made) for made in CHECKED} == repairs


@pytest.mark.usefixtures("as_its_checks_expect")
@_checked
def test_scikit_learns_checks_pass(made: Transformation) -> None:
    results = estimator_checks.check_estimator(made, on_skip=None, on_fail="raise")
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= {"check_array_api_input"}  # which waits for a variable of the environment
    assert len(results) > 45


@pytest.mark.slow
def test_scikit_learns_checks_pass_with_array_api_too() -> None:
    """In a process of its own: SciPy reads the variable once."""
    code = """
import warnings
from sklearn.utils.estimator_checks import check_estimator
from tests.transforms.test_scikit_learn import CHECKED
warnings.simplefilter("ignore")
for made in CHECKED:
    type(made).__init__ = getattr(type(made).__init__, "__wrapped__", type(made).__init__)
    results = check_estimator(made, on_skip=None, on_fail="raise")
    print(made, [one["check_name"] for one in results if one["status"] != "passed"])
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == len(CHECKED)
    assert all(line.endswith("[]") for line in lines), "none is skipped"


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize(
    ("made", "is_there"),
    [
        *((made, True) for made in (Center(), Standardize(), Whiten(), Whiten("pca"), Whiten(n_components=8))),
        *((made, False) for made in (ScaledCenter(), ClusterCenter(2, 1), RemoveMeanDirection())),
        *((made, False) for made in (AllButTheTop(), AllButTheTop(2, centered=False))),
    ],
    ids=repr,
)
def test_the_inverse_is_there_where_it_does_not_only_raise(made: Transformation, is_there: bool, fitted: bool) -> None:
    made = fresh(made)
    if fitted:
        made.fit(_rows())
    assert hasattr(made, "inverse_transform") == is_there
    assert hasattr(make_pipeline(made), "inverse_transform") == is_there
    if is_there and fitted:
        np.testing.assert_allclose(made.inverse_transform(made.transform(_rows())), _rows(), atol=1e-9)
    if not is_there:
        refuses(r"that can be undone, got .*: keep the original rows", lambda: made.inverse_transform(_rows()))


def test_what_the_fit_decides_about_the_inverse() -> None:
    x = _rows()
    few = Whiten(n_components=3)
    assert hasattr(few, "inverse_transform"), "the rows may have three features"
    assert not hasattr(few.fit(x), "inverse_transform")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = RemoveMeanDirection().fit(np.concatenate([x, -x]))
    np.testing.assert_array_equal(left.inverse_transform(x), x)


@pytest.mark.usefixtures("as_its_checks_expect")
@_checked
def test_names_of_features_and_frames_are_as_scikit_learns_own(made: Transformation) -> None:
    names = [f"transformer_get_feature_names_out{kind}" for kind in ("", "_pandas")]
    frames = ["set_output_transform", "set_output_transform_pandas", "global_output_transform_pandas"]
    for check in ("dataframe_column_names_consistency", *names, *frames):
        getattr(estimator_checks, f"check_{check}")(type(made).__name__, made)


def test_polars_frames_too() -> None:
    polars = pytest.importorskip("polars")
    x = _rows()
    y = Center().set_output(transform="polars").fit_transform(polars.DataFrame(x, schema=list("abcdefgh")))
    assert isinstance(y, polars.DataFrame)
    assert y.columns == list("abcdefgh")
    np.testing.assert_array_equal(y.to_numpy(), Center().fit_transform(x))


def test_a_pipeline_is_its_steps_by_hand() -> None:
    x, y = _rows(), np.arange(300) % 3 == 0
    pipeline = make_pipeline(Center(), LogisticRegression()).fit(x, y)
    by_hand = LogisticRegression().fit(x - x.mean(0), y)
    np.testing.assert_allclose(pipeline.predict_proba(x), by_hand.predict_proba(x - x.mean(0)), atol=1e-6)
    w = np.arange(300) % 4
    np.testing.assert_allclose(pipeline.fit(x, y, center__sample_weight=w)[0].mean_, np.average(x, axis=0, weights=w))
    assert "Center" in pipeline._repr_html_()


@pytest.mark.parametrize("repair", [AllButTheTop(), Whiten("pca", n_components=4)], ids=repr)
def test_a_grid_search_finds_the_planted_option(repair: Transformation) -> None:
    """The class is the second principal direction: one direction removed is the best, and two leave nothing."""
    x = gaussian(400, 6, dtype=torch.float64).numpy() * np.array([100, 1, 0.1, 0.1, 0.1, 0.1])
    y, whitens = x[:, 1] > 0, isinstance(repair, Whiten)
    step = type(repair).__name__.lower()
    grid = {f"{step}__n_components": [1, 2]} | ({f"{step}__power": [0.0, 1.0]} if whitens else {})
    search = GridSearchCV(make_pipeline(repair, LogisticRegression(C=0.01)), grid, cv=3).fit(x, y)
    best = {f"{step}__n_components": 2, f"{step}__power": 1.0} if whitens else {f"{step}__n_components": 1}
    assert search.best_params_ == best
    assert search.best_score_ > 0.95


def test_a_column_transformer_and_a_pipeline_hand_frames_on() -> None:
    frame = _named(_rows())
    columns = make_column_transformer((Standardize(), ["feature 1", "feature 2"]), remainder="drop")
    y = make_pipeline(columns, Center()).set_output(transform="pandas").fit_transform(frame)
    assert list(y.columns) == ["standardize__feature 1", "standardize__feature 2"]
    np.testing.assert_allclose(y.std(ddof=0), 1)


@_each
def test_a_clone_has_the_options_and_the_output_and_is_not_fitted(made: Transformation) -> None:
    made = fresh(made).set_output(transform="pandas").fit(_named(_rows()))
    copied = clone(made)
    assert type(copied) is type(made)
    assert copied.get_params() == made.get_params()
    assert not hasattr(copied, "n_features_in_")
    assert isinstance(copied.fit_transform(_rows()), pandas.DataFrame)


@_each
def test_lists_frames_and_integers_are_their_arrays(made: Transformation) -> None:
    x = _rows()
    expected = fresh(made).fit_transform(x)
    frame = pandas.DataFrame(x, index=np.arange(300) + 7, columns=list("abcdefgh"), copy=False)
    fit = fresh(made).fit(frame)
    assert np.array_equal(fresh(made).fit_transform(x.tolist()), expected)
    assert np.array_equal(fit.transform(frame), expected)
    by_columns = pandas.DataFrame({name: frame[name].to_numpy() for name in frame})
    assert np.array_equal(fresh(made).fit_transform(by_columns), expected)
    assert type(fit.transform(frame)) is np.ndarray
    assert (fit.n_features_in_, fit.feature_names_in_.tolist()) == (8, list("abcdefgh"))
    whole = (x * 10).round()
    for table in (whole.astype(np.int32), whole.astype(object), pandas.DataFrame(whole.astype(int), copy=False)):
        y = fresh(made).fit_transform(table)
        assert y.dtype == np.float64
        assert np.array_equal(y, fresh(made).fit_transform(whole))
    assert not hasattr(fit.fit(x), "feature_names_in_")


@_each
def test_tensors_are_tensors_whatever_the_output(made: Transformation) -> None:
    x = torch.from_numpy(_rows())
    fit = fresh(made).fit(_named(x.numpy())).set_output(transform="pandas")
    y = fit.transform(x)
    assert isinstance(y, torch.Tensor)
    frame = fit.transform(_named(x.numpy()))
    assert np.array_equal(frame.to_numpy(), y.numpy())
    assert list(frame.columns) == list(fit.get_feature_names_out())
    one = fit.transform(x[0])
    assert isinstance(one, torch.Tensor)
    torch.testing.assert_close(one, y[0])
    assert fit.set_output(transform=None).set_output(transform="default").fit(x.numpy()) is fit
    assert np.array_equal(fit.transform(x.numpy()), y.numpy())


def test_a_turned_row_has_names_of_its_own() -> None:
    x = _named(_rows())
    assert Whiten("pca", n_components=2).fit(x).get_feature_names_out().tolist() == ["whiten0", "whiten1"]
    assert Whiten(n_components=2).fit(x).get_feature_names_out().tolist() == list(x.columns)
    assert Center().fit(x.to_numpy()).get_feature_names_out().tolist() == [f"x{i}" for i in range(8)]


def test_other_names_are_refused_and_missing_ones_are_said() -> None:
    x = _named(_rows())
    fit, unnamed = Center().fit(x), Center().fit(x.to_numpy())
    refuses("Feature names must be in the same order as they were in fit", fit.transform, x[x.columns[::-1]])
    renamed = x.rename(columns={"feature 0": "new\x1b[31m"})
    refuses(r"unseen at fit time:\n- new\\x1b\[31m\n.*yet now missing:\n- feature 0", fit.transform, renamed)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but Center was fitted with"):
        fit.transform(x.to_numpy())
    with pytest.warns(UserWarning, match="X has feature names, but Center was fitted without"):
        unnamed.transform(x)
    refuses(r"got 3: input_features should have length equal", unnamed.get_feature_names_out, ["a", "b", "c"])


@pytest.mark.parametrize("whole", [True, False])
@_each
def test_sample_weight_is_repeated_rows_in_any_order(made: Transformation, whole: bool) -> None:
    x, generator = _rows(), np.random.default_rng(0)
    w = generator.integers(0, 5, 300)
    if whole:
        order = generator.permutation(300)
        expected = fresh(made).fit(x.repeat(w, axis=0)).transform(x)
        found = fresh(made).fit(x[order], None, pandas.Series(w[order])).transform(x)
    else:  # shares, as `weights` are
        expected = fresh(made).fit(x, weights=w).transform(x)
        found = fresh(made).fit(x, sample_weight=list(w / 1000)).transform(x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_weights_have_one_name_at_a_time() -> None:
    with pytest.raises(InputError, match="expected weights or sample_weight, got both"):
        Center().fit(_rows(), sample_weight=np.ones(300), weights=np.ones(300))


@_each
def test_what_is_not_fitted_is_scikit_learns_error_too(made: Transformation) -> None:
    with pytest.raises(NotFittedError, match=f"expected a fitted {type(made).__name__}") as caught:
        fresh(made).transform(_rows())
    assert isinstance(caught.value, InputError)
    with pytest.raises(NotFittedError):
        fresh(made).get_feature_names_out()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args) == (type(caught.value), caught.value.args)


def test_the_error_reaches_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the class is made when the error is unpickled."""
    with pytest.raises(NotFittedError) as caught:
        Center().transform(_rows())
    sent = pickle.dumps(caught.value)
    monkeypatch.delattr(scikit_learn, "NotFittedError")
    again = pickle.loads(sent)
    assert type(again) is not type(caught.value)
    assert (isinstance(again, NotFittedError), isinstance(again, InputError)) == (True, True)


def test_options_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    Whiten().set_params(n_components=np.int64(2), power=np.float32(0.5)).fit(_rows()).save(tmp_path / "w.safetensors")
    found = transforms.load(tmp_path / "w.safetensors")
    assert found.options() == Whiten(n_components=2).options()  # type: ignore[union-attr]


def test_a_copy_of_a_fitted_repair_is_the_repair() -> None:
    x = _rows()
    for made in EVERY:
        fit = fresh(made).fit(x)
        for again in (copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
            assert np.array_equal(again.transform(x), fit.transform(x))
            assert again.fitted_ == fit.fitted_


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([["a", "b"], ["c", "d"]], "expected an array of float64, .* got dtype <U1"),
        ([[1.0, {}]], "expected rows of numbers, got other values \\(.* not 'dict'"),
        ([[1.0, 2.0], [3.0]], "expected rows of numbers, got other values"),
        ([[1j, 2.0]], "expected real rows, got complex ones"),
        (np.zeros((3, 0)), r"got 0 feature\(s\) \(shape=\(3, 0\)\)"),
        (np.ma.masked_array(np.ones((3, 2), int), np.eye(3, 2)), "expected an array without a mask"),
        (np.array([["2020-01-01"]], "M8[D]"), "got dtype datetime64"),
        (None, "expected Rows, a tensor or an array"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(x: Any, message: str) -> None:
    refuses(message, lambda: Center().fit(x))


def test_a_single_array_and_a_sparse_matrix_are_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    fit = Center().fit(_rows())
    refuses(r"got shape \(8,\): Reshape your data, a single vector with x.reshape", fit.transform, _rows()[0])
    refuses(r"expected dense rows, got a sparse matrix: pass x.toarray\(\)", fit.transform, sparse.csr_array(np.eye(8)))


def test_names_that_mean_nothing_are_refused() -> None:
    made = AllButTheTop()
    refuses(r"expected options of AllButTheTop \(n_components, centered\), got 'k'", made.set_params, k=2)
    assert made.set_params(n_components=2, centered=False).get_params() == {"n_components": 2, "centered": False}
    refuses("expected n_components to be a whole number", AllButTheTop(0).fit, "before any row is read")
    refuses("expected one of default, pandas, polars, got 'arrow'", Center().set_output, transform="arrow")


_WITHOUT = """
import sys
import numpy, pandas, uncone
from uncone.transforms import *
x = numpy.random.default_rng(0).normal(size=(60, 3)) + 1
for made in (Center(), ScaledCenter(), RemoveMeanDirection(), AllButTheTop(), Whiten(), Standardize()):
    assert (made.fit_transform(x.tolist(), sample_weight=[1] * 60) == made.fit(x).transform(x)).all()
    frame = made.set_output(transform="pandas").fit_transform(pandas.DataFrame(x, columns=["a", "b", "c"]))
    assert list(frame.columns) == ["a", "b", "c"], frame.columns
    assert made.set_params(**made.get_params()) is made
try:
    Center().transform(x)
except uncone.InputError as error:
    assert type(error) is uncone.InputError
    print(error)
assert "sklearn" not in sys.modules
"""


def test_nothing_loads_scikit_learn_and_so_nothing_needs_it() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", _WITHOUT], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "expected a fitted Center, got one that is not: call fit(x) first\n"
