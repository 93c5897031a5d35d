"""The picture: which rows are in it, where, how long they are and how often they occur."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.report.records_example import make_diagnosis, make_picture
from uncone.diagnosis.picture import MOST_POINTS, _sample, draw_picture, evenly
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError
from uncone.measure import Reserved
from uncone.moments import Moments
from uncone.records.parts import Picture
from uncone.rows import GRID, as_rows


def _rows(n: int, d: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32))


def _draw(x: torch.Tensor, reserved: np.ndarray | None = None, counts: torch.Tensor | None = None) -> Picture:
    rows = as_rows(x)
    special = None if reserved is None else Reserved(reserved, "reserved", "reserved")
    return draw_picture(rows, Moments.of(rows), special, counts=counts)


def test_norms_are_those_of_the_rows_within_half_a_step() -> None:
    x = _rows(500) * torch.logspace(-3, 3, 500)[:, None]
    x[7] = 0
    picture = _draw(x)
    found = picture.lengths()
    expected = np.linalg.norm(x.double().numpy(), axis=1)
    assert np.abs(np.array(found) - expected).max() <= picture.norm_scale / 2 * (1 + 1e-9)
    assert found[7] == 0
    assert _draw(torch.zeros(5, 3)).lengths() == [0.0] * 5
    assert max(found) == pytest.approx(expected.max())


def test_counts_belong_to_their_rows_in_a_sample() -> None:
    n = MOST_POINTS + 999
    picture = _draw(_rows(n, 2), np.arange(n - 50, n), torch.arange(n) * 3)
    assert picture.counts == tuple(3 * i for i in picture.ids)
    assert _draw(_rows(20)).counts is None


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (torch.zeros(19, dtype=torch.int64), r"as integers of shape \(20,\), one per row, got int64 of shape \(19,\)"),
        (torch.zeros(20), r"got float32 of shape \(20,\): count the tokens by id"),
        (torch.tensor([1] * 19 + [-2]), "expected counts of at least 0, got -2"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _draw(_rows(20), counts=counts)


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 40_000), st.sets(st.integers(0, 39_999), max_size=300), st.booleans())
def test_a_sample_holds_all_reserved_rows_that_it_has_room_for(more: int, some: set[int], many: bool) -> None:
    n = MOST_POINTS + more
    reserved = np.arange(0, n, 2)[: MOST_POINTS // 2] if many else np.array(sorted(i for i in some if i < n), np.int64)
    ids = _draw(torch.zeros(n, 1), reserved).ids
    assert len(ids) == MOST_POINTS
    assert list(ids) == sorted(set(ids))
    assert set(reserved.tolist()) <= set(ids)
    others = np.setdiff1d(np.arange(n), reserved)
    steps = np.diff(np.flatnonzero(np.isin(others, ids)))
    assert steps.max() - steps.min() <= 1, "the others are evenly spaced"


def test_with_more_reserved_rows_than_half_the_room_they_are_sampled_too() -> None:
    n = 3 * MOST_POINTS
    picture = _draw(torch.zeros(n, 1), np.arange(n - MOST_POINTS, n))
    assert (len(picture.ids), picture.total, picture.groups.count(3)) == (MOST_POINTS, n, MOST_POINTS // 2)
    assert (picture.ids[0], picture.ids[-1]) == (0, n - 1)


@given(st.integers(MOST_POINTS + 1, 80_000), st.floats(0, 1), st.integers(0, 100))
@settings(max_examples=25)
def test_a_sample_is_that_of_listed_rows(n: int, share: float, seed: int) -> None:
    reserved = np.flatnonzero(np.random.default_rng(seed).random(n) < share**4)
    others = np.setdiff1d(np.arange(n), reserved)
    kept = reserved[evenly(len(reserved), MOST_POINTS // 2)]
    listed = np.concatenate([kept, others[evenly(len(others), MOST_POINTS - len(kept))]])
    assert np.array_equal(_sample(n, Reserved(reserved, "", "reserved")), np.sort(listed))


def test_a_sample_of_very_many_rows_lists_no_other() -> None:
    """Of 10^12 rows: the rows were listed, in 10 bytes each."""
    n = 10**12
    found = _sample(n, Reserved(np.arange(n - 1000, n), "the last ids", "last"))
    assert len(found) == MOST_POINTS
    assert found[0] == 0
    assert np.array_equal(found[-1000:], np.arange(n - 1000, n))


def test_a_block_without_a_sampled_row_is_passed_over() -> None:
    x = torch.ones(MOST_POINTS + 3 * GRID, 1)
    x[GRID : 2 * GRID] = 5
    picture = _draw(x, np.arange(GRID, GRID + MOST_POINTS // 2))
    found = dict(zip(picture.ids, picture.lengths(), strict=True))
    assert all(found[i] == pytest.approx(5) for i in range(GRID, 2 * GRID))
    assert found[0] == pytest.approx(1, abs=1e-3)


def test_a_diagnosis_saved_before_norms_were_kept_still_loads_and_draws() -> None:
    data = json.loads(make_diagnosis().to_json())
    for subject in data["subjects"]:
        for field in ("norms", "norm_scale", "counts"):
            del subject["picture"][field]
    old = Diagnosis.from_json(json.dumps(data))
    assert old.subjects[0].picture.lengths() is None
    page = uncone.report.to_html(old)
    assert 'class="explorer"' in page
    assert 'value="norm"' not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norms": "!!"}, "expected base64 in the picture's 'norms'"),
        ({"norms": ""}, "expected 60 norms of one uint16 in the picture, got another length"),
        ({"norm_scale": 0.0}, "expected scales of the picture above 0"),
        ({"counts": (1, 2)}, r"expected 60 counts of at least 0 and below 2\^53 in the picture, got 2"),
        ({"ids": (10**400,) * 60}, r"expected ids and a total of at least 0 and below 2\^53 in the picture"),
        ({"counts": (2**53,) * 60}, "got 60, some out of range"),
        ({"counts": (-1,) * 60}, "got 60, some out of range"),
    ],
)
def test_records_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(make_picture(), **change)  # type: ignore[arg-type]


def test_lengths_read_little_endian_numbers() -> None:
    picture = replace(make_picture(2), norms=base64.b64encode(bytes([1, 0, 0, 1])).decode(), norm_scale=0.5)
    assert picture.lengths() == [0.5, 128.0]


def test_a_diagnosis_gives_its_counts_to_the_picture() -> None:
    counts = torch.arange(100) % 7
    assert uncone.diagnose(_rows(100).numpy(), counts=counts).subjects[0].picture.counts == tuple(counts.tolist())
