"""What every measure takes: arrays, tensors, lists, Rows, moments, and states with a mask; and all measures at once."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

import uncone
from uncone import InputError, Measurement, Moments, UndefinedMeasure, measure
from uncone.measure import everything
from uncone.records.brief import LINES, WIDTH

from ..matrices import F64, gaussian
from ..rows.reading import refuses

STATES = gaussian(7 * 5, 4, seed=3, dtype=F64).reshape(7, 5, 4) + 1.5
MASK = torch.arange(5) < torch.tensor([5, 5, 4, 2, 1, 5, 3])[:, None]
ROWS = STATES[MASK]
OF_ROWS: dict[str, Callable[..., Measurement]] = {
    "hubness": lambda x, **rest: measure.hubness(x, k=3, **rest),
    "levina_bickel": lambda x, **rest: measure.levina_bickel(x, k=3, **rest),
    "permutation_test": lambda x, **rest: measure.permutation_test(x, [0, 2, 3], seed=0, permutations=19, **rest),
    **{name: getattr(measure, name) for name in ("partition_isotropy", "two_nn", "uniformity_exact")},
}
OF_TWO = {"cosine_between"}
OF_MOMENTS = {
    name: function
    for name in measure.__all__
    if inspect.isfunction(function := getattr(measure, name))
    and inspect.signature(function).return_annotation is Measurement
    and name not in OF_ROWS.keys() | OF_TWO
}  # fmt: skip
BOTH = OF_MOMENTS | OF_ROWS


def _same(found: Measurement, wanted: Measurement) -> None:
    assert (found.name, found.n, found.d) == (wanted.name, wanted.n, wanted.d)
    assert found.value == pytest.approx(wanted.value, rel=1e-12)


def test_every_measure_has_a_mask() -> None:
    assert len(OF_MOMENTS) == 16
    for name in (*BOTH, "nearest_neighbours"):
        assert inspect.signature(getattr(measure, name)).parameters["mask"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", BOTH)
def test_rows_of_any_kind_and_states_with_a_mask_read_alike(name: str) -> None:
    function = BOTH[name]
    wanted = function(ROWS)
    for x in (ROWS.numpy(), ROWS.tolist(), uncone.open_rows(ROWS), list(ROWS), ROWS.clone().requires_grad_()):
        _same(function(x), wanted)
    for states, mask in ((STATES, MASK), (STATES.numpy(), MASK.numpy()), (STATES.tolist(), MASK.long().tolist())):
        _same(function(states, mask=mask), wanted)
    _same(function(STATES.flatten(0, 1), mask=MASK.flatten()), wanted)
    if name in OF_MOMENTS:
        _same(function(Moments.of(ROWS, unit_second=True)), wanted)


@pytest.mark.parametrize("name", BOTH)
def test_threads_change_no_bit(name: str) -> None:
    x, found = gaussian(2500, 48).numpy() + 0.3, set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.add(BOTH[name](x).value)
    assert len(found) == 1


@pytest.mark.parametrize("name", BOTH)
def test_states_without_a_mask_are_refused_with_the_way_out(name: str) -> None:
    told = r"got shape \(7, 5, 4\) from tensor: each of 35 positions is a row in x.reshape\(-1, 4\)"
    refuses(told, BOTH[name], STATES)
    refuses(r"expected a mask of shape \(7, 5\)", BOTH[name], STATES, mask=MASK.T)


@pytest.mark.parametrize("name", BOTH)
def test_integers_and_frames_read_as_their_floats(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    whole = (10 * ROWS).round().long().numpy()
    wanted = BOTH[name](whole.astype(float))
    for x in (whole, torch.from_numpy(whole), whole.astype("i2"), pandas.DataFrame(whole)):
        _same(BOTH[name](x), wanted)


def test_rows_that_are_not_finite_are_left_out_as_the_error_says() -> None:
    x = ROWS.clone()
    x[3, 1] = float("nan")
    with pytest.raises(InputError, match=r"in Python with (uncone\.open_rows\(x, skip_nonfinite=True\))$") as told:
        measure.isoscore(x)
    kept = eval(str(told.value).rpartition(" with ")[2], {"uncone": uncone, "x": x})
    _same(measure.isoscore(kept), measure.isoscore(torch.cat([ROWS[:3], ROWS[4:]])))


def test_all_readings_make_a_table() -> None:
    pandas, found = pytest.importorskip("pandas"), measure.all(ROWS)
    rows, frame = json.loads(json.dumps(found.to_rows(), allow_nan=False)), found.to_frame()
    assert [(row["measure"], row["value"]) for row in rows] == [(name, one.value) for name, one in found.items()]
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["measure"]) == list(found)


def test_padding_would_have_changed_the_value() -> None:
    padded = torch.where(MASK[..., None], STATES, -100.0)
    assert float(measure.mean_cosine(padded, mask=MASK)) == pytest.approx(float(measure.mean_cosine(ROWS)))
    assert float(measure.mean_cosine(padded.flatten(0, 1))) != pytest.approx(float(measure.mean_cosine(ROWS)), abs=0.1)


@pytest.mark.parametrize("name", OF_MOMENTS)
def test_a_mask_beside_moments_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="expected no mask with moments, got a mask: pass the rows"):
        OF_MOMENTS[name](Moments.of(ROWS, unit_second=True), mask=MASK)


@pytest.mark.parametrize(
    "function", [*(OF_ROWS[name] for name in OF_ROWS if name != "permutation_test"), measure.under_trained_tokens]
)
def test_moments_of_other_rows_are_refused(function: Callable[..., object]) -> None:
    for moments in (Moments.of(ROWS[:5]), Moments.of(ROWS, torch.rand(len(ROWS)))):
        refuses(f"expected unweighted moments of the same {len(ROWS)} rows", function, ROWS, moments=moments)


def test_options_and_errors_are_as_of_moments() -> None:
    m = Moments.of(ROWS)
    assert float(measure.anisotropy(ROWS, 2)) == float(measure.anisotropy(m, 2))
    assert float(measure.stable_rank(ROWS, centered=True)) == float(measure.stable_rank(m, centered=True))
    with pytest.raises(UndefinedMeasure, match="rows that are all equal have no spectrum"):
        measure.effective_rank(np.ones((9, 3)))
    with pytest.raises(InputError, match=r"expected finite rows, got 1 row of 2 with NaN or inf in list"):
        measure.isoscore([[1.0, float("nan")], [0.0, 1.0]])
    refuses("expected Rows, a tensor or an array", measure.isoscore, None)


def test_two_groups_of_any_kind() -> None:
    a, b = ROWS[:10], ROWS[10:]
    wanted = measure.cosine_between(Moments.of(a), Moments.of(b))
    for one, other in ((a, b), (a.numpy(), b.tolist()), (Moments.of(a), b)):
        _same(measure.cosine_between(one, other), wanted)


def test_a_search_of_masked_states_serves_the_measures_and_hubs_are_positions() -> None:
    positions = MASK.flatten().nonzero().flatten()
    search = measure.nearest_neighbours(STATES, 5, distinct=True, mask=MASK)
    _same(measure.two_nn(STATES, neighbours=search, mask=MASK), measure.two_nn(ROWS))
    in_rows = measure.hubness(ROWS, k=3).details["hubs"]
    assert measure.hubness(STATES, k=3, mask=MASK).details["hubs"] == positions[in_rows].tolist()


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_all_measures_are_those_of_a_diagnosis(neighbours: bool, dtype: torch.dtype) -> None:
    x = gaussian(300, 6, seed=1, dtype=dtype) + 1
    (rows,) = uncone.diagnose(x, neighbours=neighbours).subjects
    found = measure.all(x, neighbours=neighbours)
    assert tuple(found.values()) == rows.measurements
    assert list(found) == [one.name for one in rows.measurements]
    assert [name for name, _ in everything.MEASURES] == list(found)[: len(everything.MEASURES)]


def test_all_measures_of_masked_states() -> None:
    found, wanted = measure.all(STATES, mask=MASK, neighbours=True), measure.all(ROWS, neighbours=True)
    assert len(found) == 27
    for name, one in found.items():
        assert one.value == wanted[name].value or name == "norm_id_correlation"  # whose ids are positions


def test_the_rows_are_summed_once() -> None:
    class Counted(uncone.Rows):
        def __init__(self) -> None:
            self.shape, self.dtype, self.name, self.passes = tuple(ROWS.shape), "float64", "counted", 0

        def fill(self, start: int, out: np.ndarray[Any, Any]) -> None:
            self.passes += start == 0
            out[...] = ROWS[start : start + len(out)]

    rows = Counted()
    measure.all(rows)
    assert rows.passes == 2, "the sums, and the partition function"


def test_what_is_undefined_has_its_reason() -> None:
    for x in (np.ones((3, 2)), np.zeros((1, 1)), [[1.0, 0.0], [0.0, 1.0]]):
        found = measure.all(x, neighbours=True)
        assert len(found) == 27
        assert all(one.reason if one.value is None else not one.reason for one in found.values())
    of_moments = measure.all(Moments.of(ROWS), neighbours=True)
    missing = {name: one.reason for name, one in of_moments.items() if one.value is None}
    assert missing.pop("uniformity") == "these moments are not enough: pass Moments.of(rows, unit_second=True)"
    assert set(missing) == OF_ROWS.keys() - {"permutation_test"} | {"norm_id_correlation"}
    assert set(missing.values()) == {"these moments are not enough: pass the rows"}
    refuses("expected second-order sums", measure.all, Moments.of(ROWS, second=False))
    refuses("expected finite rows", measure.all, [[1.0, float("inf")]])


def test_all_measures_are_a_mapping_that_fits_on_a_screen() -> None:
    found = measure.all(ROWS, neighbours=True)
    lines = repr(found).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("Readings(mean_cosine=0.")
    assert "isoscore" in found
    assert found.get("isoscor") is None
    with pytest.raises(KeyError, match="the name of a measurement, got 'isoscor': the nearest are isoscore"):
        found["isoscor"]
    assert found._ipython_key_completions_() == list(found)


def test_a_star_import_leaves_pythons_all_alone() -> None:
    space: dict[str, Any] = {}
    exec("from uncone.measure import *", space)
    assert "all" not in space
    assert callable(measure.all)
