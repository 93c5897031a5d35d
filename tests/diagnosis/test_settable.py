"""How many tokens a state can set freely: polytopes of known faces, and normal rows against the theory."""

import re

import numpy as np
import pytest

from uncone.diagnosis.why.reach.faces import HeadSpace, seek
from uncone.diagnosis.why.reach.settable import gaussian_settable, settable_tokens
from uncone.errors import InputError, UndefinedMeasure


def _share(rows: np.ndarray, size: int, sets: int = 20) -> float:
    random = np.random.default_rng(0)
    asked = [tuple(map(int, random.choice(len(rows), size, replace=False))) for _ in range(sets)]
    status = [one.status for one in seek(HeadSpace.of(rows), asked)]
    assert "undecided" not in status
    return status.count("exposed") / sets


def test_all_small_sets_of_a_cyclic_polytope_are_faces() -> None:
    """Points on the moment curve in d dimensions are floor(d / 2)-neighbourly: the known extreme case (Gale 1963)."""
    t = np.cos(np.linspace(0.1, 3, 14))
    rows = np.polynomial.chebyshev.chebvander(t, 6)[:, 1:]  # the curve in another basis, for its digits
    assert [_share(rows, size) for size in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert _share(rows, 5) < 1
    assert settable_tokens(rows).random >= 3


def test_faces_of_a_cross_are_sets_without_opposites() -> None:
    exposed, hidden = [(0, 1, 2), (0, 6, 2, 3), (0, 1, 2, 3, 4)], [(0, 5), (3, 8, 1)]
    found = seek(HeadSpace.of(np.vstack([np.eye(5), -np.eye(5)])), [*exposed, *hidden])
    expected = dict.fromkeys(exposed, "exposed") | dict.fromkeys(hidden, "hidden")
    assert {one.own: one.status for one in found} == expected


def test_a_face_gives_any_probabilities() -> None:
    rows, own = np.random.default_rng(1).standard_normal((200, 24)), (3, 50, 120)
    (found,) = seek(HeadSpace.of(rows), [own], keep=True)
    assert found.status == "exposed"
    wanted = np.array([0.7, 0.2, 0.1])
    tilt = np.linalg.lstsq(rows[list(own[1:])] - rows[own[0]], np.log(wanted[1:] / wanted[0]), rcond=None)[0]
    logits = rows @ (1e4 * found.direction + tilt)
    chances = np.exp(logits - logits.max())
    np.testing.assert_allclose((chances / chances.sum())[list(own)], wanted, rtol=1e-6)


@pytest.mark.parametrize(("v", "d"), [(200, 20), (1000, 24)])
def test_normal_rows_have_as_many_as_the_theory_says(v: int, d: int) -> None:
    found = settable_tokens(np.random.default_rng(2).standard_normal((v, d)), sets=30)
    assert abs(found.random - gaussian_settable(v, d)) <= 2
    assert found.gaussian == gaussian_settable(v, d)


def test_tops_of_states_are_asked_too_and_work_may_run_out() -> None:
    random = np.random.default_rng(3)
    rows, states = random.standard_normal((100, 8)), random.standard_normal((40, 8))
    found = settable_tokens(rows, states=states, sets=10)
    assert found.top >= found.random
    assert "Of a state's most likely tokens" in found.verdict
    assert len(found.blocks()) > 2
    late = settable_tokens(rows, most_work=0)
    assert late.random == 0
    assert re.search("at least 0 random tokens.*limit of work", late.verdict)
    assert "at least" not in found.verdict


def test_states_and_heads_that_say_nothing_are_refused() -> None:
    rows = np.random.default_rng(3).standard_normal((100, 8))
    for states in (np.zeros((0, 8)), np.zeros((4, 7)), np.full((4, 8), np.nan)):
        with pytest.raises(InputError, match=r"expected states \(N, 8\)|expected finite states"):
            settable_tokens(rows, states=states)
    for head in (np.ones((5, 3)), np.zeros((5, 3))):
        with pytest.raises(UndefinedMeasure, match="all 5 rows are equal"):
            settable_tokens(head)
