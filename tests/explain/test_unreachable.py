"""Tokens that can never be predicted: planted mixtures, corners, a linear programme a token, and what may not change an answer."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.errors import InputError
from uncone.explain.faces import HeadSpace, seek
from uncone.explain.unreachable import distinct, unreachable_tokens
from uncone.records import UnreachableTokens
from uncone.rows import Array


def _programme(head: Array, bias: Array | None) -> list[int]:
    """Unreachable tokens, a linear programme each (Grivas et al. 2022): the largest margin of states in a cube."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    found, (v, d) = [], head.shape
    offsets = np.zeros(v) if bias is None else bias
    for i in range(v):
        others = np.delete(np.arange(v), i)
        rows = np.column_stack([head[others] - head[i], offsets[others] - offsets[i], np.ones(v - 1)])
        # (h, s, t): the last is the margin, s > 0 stands before the biases
        last = np.append(np.zeros(d), [-1.0, 1.0])
        bounds = [(-1, 1)] * (d + 1) + [(None, 1)]
        best = linprog(
            np.append(np.zeros(d + 1), -1.0), A_ub=np.vstack([rows, last]), b_ub=np.zeros(v), bounds=bounds
        )
        if -best.fun <= 1e-9:
            found.append(i)
    return found


def _proven(found: UnreachableTokens, head: Array, bias: Array | None) -> None:
    """Every certificate by other sums: a mixture of other rows is the token's row, and its bias is not smaller."""
    spread = np.sqrt(np.square(head - head.mean(0)).sum(1).mean())
    for one in found.tokens:
        assert one.id not in one.others
        assert min(one.weights) >= 0
        assert sum(one.weights) == pytest.approx(1)
        pairs = [(i, w) for i, w in zip(one.others, one.weights, strict=True) if i >= 0]
        total = sum(w for _, w in pairs)
        mixture = sum(w / total * head[i].astype(np.float64) for i, w in pairs)
        np.testing.assert_allclose(mixture, head[one.id], atol=1e-5 * spread)
        if bias is not None:
            assert sum(w / total * bias[i] for i, w in pairs) >= bias[one.id] - 1e-5


def _ids(found: UnreachableTokens) -> list[int]:
    return [one.id for one in found.tokens]


@pytest.mark.parametrize("seed", range(9))
def test_tokens_are_decided_as_a_linear_programme_decides_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    v, d = int(random.integers(5, 60)), int(random.integers(1, 6))
    head = 3 + random.standard_normal((v, d)) * random.lognormal(0, 0.5, (v, 1))
    bias = (None, random.standard_normal(v), 10 * random.standard_normal(v))[seed % 3]
    head = head.astype(np.float32) if seed % 2 else head
    found = unreachable_tokens(head, bias)
    _proven(found, head, bias)
    assert found.undecided == 0
    assert found.exact == found.unreachable
    assert _ids(found) == _programme(head.astype(np.float64), bias)


def test_planted_mixtures_are_found_and_corners_are_not() -> None:
    random = np.random.default_rng(0)
    sphere = random.standard_normal((400, 16))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    mixtures = random.dirichlet(np.ones(400), 12) @ sphere
    head = np.vstack([sphere, mixtures]).astype(np.float32)
    found = unreachable_tokens(head, labels=[f"t{i}" for i in range(412)])
    _proven(found, head, None)
    assert (found.reachable, found.unreachable, found.exact, found.undecided) == (400, 12, 12, 0)
    assert _ids(found) == list(range(400, 412))
    assert found.tokens[0].token == "t400"
    assert "12 of 412 tokens can never" in found.verdict


def test_directions_that_are_kept_win_by_other_sums() -> None:
    random = np.random.default_rng(1)
    head, bias = random.standard_normal((300, 8)).astype(np.float32), random.standard_normal(300)
    space = HeadSpace.of(head, bias)
    won = 0
    for answer in seek(space, [(i,) for i in range(300)], keep=True):
        if answer.status == "exposed":
            assert answer.direction is not None
            state = answer.direction[:8] / answer.direction[8]
            logits = head.astype(np.float64) @ state + bias
            assert answer.direction[8] > 0
            assert int(logits.argmax()) == answer.own[0]
            won += 1
    assert won > 100


def test_a_bias_decides_between_equal_rows_and_lifts_rows_inside() -> None:
    head = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])
    assert _ids(unreachable_tokens(head)) == [4]
    assert unreachable_tokens(head, np.array([0, 0, 0, 0, 0.1])).unreachable == 0
    assert _ids(unreachable_tokens(head, np.array([0, 0, 0, 0, -0.1]))) == [4]
    twice = np.vstack([head[:4], head[:1]])
    lower = unreachable_tokens(twice, np.array([0.0, 0, 0, 0, -1]))
    assert (_ids(lower), lower.tied, lower.tokens[0].exact) == ([4], 0, True)


def test_equal_rows_and_rows_of_zeros() -> None:
    head = np.vstack([np.eye(4), np.eye(4)[:2], np.zeros((2, 4))])
    found = unreachable_tokens(head)
    assert (found.reachable, found.tied, found.zero, found.unreachable) == (
        2,
        6,
        2,
        0,
    )  # -(1, 1, 1, 1) has 0 on top
    assert found.tied_ids == (0, 1, 4, 5, 6, 7)
    assert "can only tie" in found.verdict
    inside = unreachable_tokens(np.vstack([np.eye(3), -np.eye(3), np.zeros((2, 3))]))
    assert (inside.reachable, inside.tied, inside.unreachable) == (6, 0, 2)
    assert unreachable_tokens(np.ones((5, 3))).tied == 5


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(-3, 3))
def test_rotations_shifts_and_scales_change_no_answer(seed: int, power: float) -> None:
    random = np.random.default_rng(seed)
    head, bias = random.standard_normal((40, 3)), random.standard_normal(40)
    turn = np.linalg.qr(random.standard_normal((3, 3)))[0]
    before = _ids(unreachable_tokens(head, bias))
    assert _ids(unreachable_tokens(head @ turn, bias)) == before
    assert _ids(unreachable_tokens(head + 5 * random.standard_normal(3), bias + 7)) == before
    assert _ids(unreachable_tokens(head * 10**power, bias)) == before  # states of another length
    assert _ids(unreachable_tokens(head * [1, 100, 0.01], bias)) == before


def test_rows_in_fewer_dimensions_than_the_head_has() -> None:
    random = np.random.default_rng(2)
    flat = random.standard_normal((60, 3))
    wide = flat @ random.standard_normal((3, 12))
    assert _ids(unreachable_tokens(wide)) == _ids(unreachable_tokens(flat))


def test_what_a_texts_states_predict_is_counted() -> None:
    random = np.random.default_rng(3)
    head, states = random.standard_normal((30, 4)), random.standard_normal((9, 4))
    found = unreachable_tokens(head, states=states)
    assert (found.states, found.seen) == (9, len(set((states @ head.T).argmax(1).tolist())))


def test_no_time_leaves_all_undecided_and_progress_is_told() -> None:
    head = np.random.default_rng(4).standard_normal((20, 3))
    late = unreachable_tokens(head, most_seconds=-1)
    assert (late.undecided, late.reachable, late.undecided_ids[:2]) == (20, 0, (0, 1))
    said: list[tuple[str, int, int]] = []
    unreachable_tokens(head, progress=lambda *told: said.append(told))
    assert said[-1][1:] == (20, 20)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: unreachable_tokens(np.ones(3)), "at least two rows"),
        (lambda: unreachable_tokens(np.eye(3), np.ones(2)), "a bias"),
        (lambda: unreachable_tokens(np.array([[1.0], [np.inf]])), "finite"),
    ],
)
def test_heads_that_are_none_are_refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make()


def test_a_record_shows_hostile_tokens_as_text() -> None:
    found = unreachable_tokens(np.array([[1.0], [-1], [0.5]]), labels=["a", "b", "\x1b[31m"])
    shown = str(found.blocks())
    assert "\x1b" not in shown
    assert "below a mixture of" in shown


@pytest.mark.slow
def test_random_heads_of_real_size_are_all_reachable() -> None:
    head = np.random.default_rng(5).standard_normal((8192, 64)).astype(np.float32)
    assert unreachable_tokens(head).reachable == 8192


def test_what_was_seen_on_a_text_is_by_the_models_own_logits() -> None:
    random = np.random.default_rng(0)
    rows, bias, states = (
        random.standard_normal((60, 8)),
        random.standard_normal(60),
        random.standard_normal((500, 8)),
    )
    for scale in (0.1, 1.0):
        expected = len(np.unique((scale * states @ rows.T + bias).argmax(1)))
        assert unreachable_tokens(rows, bias, states=states, scale=scale).seen == expected
    with pytest.raises(InputError, match=r"expected states \(N, 8\), got shape \(500, 7\)"):
        unreachable_tokens(rows, states=states[:, :7])


def test_never_is_said_of_exact_proofs_alone() -> None:
    corners = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [1 + 1e-10, 0]])
    far = unreachable_tokens(corners + 1e6)
    assert far.exact == 0
    assert "never" not in far.verdict
    assert far.unreachable == 0 or "if at all" in far.verdict
    inside = unreachable_tokens(np.vstack([corners[:4], [[0.1, 0.2]]]))
    assert inside.exact == 1
    assert "1 of 5 tokens can never be the most likely one" in inside.verdict


def test_distinct_rows_are_those_of_a_dictionary() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(-1, 2, (200, 3)).astype(np.float32)
    rows[::7] *= -0.0
    bias = random.integers(0, 2, 200).astype(np.float64)
    for given_ in (None, bias):
        first, which = distinct(rows, given_)
        keys = [(*(row + 0.0).tolist(), 0.0 if given_ is None else given_[i]) for i, row in enumerate(rows)]
        places = dict[tuple[float, ...], int]()
        expected = [places.setdefault(key, len(places)) for key in keys]
        assert which.tolist() == expected
        assert first.tolist() == [expected.index(i) for i in range(len(places))]
