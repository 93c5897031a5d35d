"""Tokens that can never be predicted: planted mixtures, a linear programme a token, what may change no answer."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.diagnosis.why.reach.faces import HeadSpace, seek
from uncone.diagnosis.why.reach.record import UnreachableToken, UnreachableTokens
from uncone.diagnosis.why.reach.unreachable import distinct, unreachable_tokens
from uncone.errors import InputError
from uncone.records.blocks import Cell, Table
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
        best = linprog(np.append(np.zeros(d + 1), -1.0), A_ub=np.vstack([rows, last]), b_ub=np.zeros(v), bounds=bounds)
        if -best.fun <= 1e-9:
            found.append(i)
    return found


def _proven(found: UnreachableTokens, head: Array, bias: Array | None) -> None:
    """Every certificate: a mixture of other rows is the token's row, its bias higher as it says.

    An exact one is solved again in fractions: the weights are above 0, and the bias is the same or higher.
    """
    spread = np.sqrt(np.square(head - head.mean(0)).sum(1).mean())
    offsets = np.zeros(len(head)) if bias is None else bias
    for one in found.tokens:
        others, weights = list(one.others), np.array(one.weights)
        assert len({one.id, *others}) == len(others) + 1
        assert min(others) >= 0
        assert weights.min() > 0
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights @ head[others].astype(np.float64), head[one.id], atol=1e-5 * spread)
        size = max(1.0, *np.abs(offsets[[*others, one.id]]))
        assert one.higher_bias >= 0
        assert weights @ offsets[others] - offsets[one.id] == pytest.approx(one.higher_bias, abs=1e-5 * size)
        if one.exact:
            mixed = _mixture(head, offsets, others, one.id)
            assert min(mixed) > 0
            higher = sum(x * Fraction(offsets[i]) for x, i in zip(mixed, others, strict=True))
            higher -= Fraction(offsets[one.id])
            assert higher >= 0
            assert float(higher) == pytest.approx(one.higher_bias, abs=1e-9 * size)


def _mixture(head: Array, offsets: Array, others: list[int], own: int) -> list[Fraction]:
    """The weights of `others` of sum 1 whose mean is the row `own`, without rounding; of one more with biases too."""
    rows = [[Fraction(float(x)) for x in head[i]] for i in [*others, own]]
    if len(others) == head.shape[1] + 2:
        rows = [[*row, Fraction(offsets[i])] for row, i in zip(rows, [*others, own], strict=True)]
    if len(others) == 1:
        assert rows[0] == rows[1]
        return [Fraction(1)]
    system = [[*column] for column in zip(*([*row, Fraction(1)] for row in rows), strict=True)]
    n = len(others)
    assert len(system) == n
    for i in range(n):  # Gauss and Jordan
        k = next(k for k in range(i, n) if system[k][i] != 0)
        system[i], system[k] = system[k], system[i]
        system[i] = [x / system[i][i] for x in system[i]]
        for k in set(range(n)) - {i}:
            system[k] = [x - system[k][i] * y for x, y in zip(system[k], system[i], strict=True)]
    return [row[-1] for row in system]


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("biased", [False, True])
def test_a_head_of_any_scale_has_the_same_answers(dtype: type, biased: bool) -> None:
    """By powers of two to the bit, and by powers of ten as the programme decides."""
    random = np.random.default_rng(11)
    head, bias = random.standard_normal((60, 3)).astype(dtype), random.standard_normal(60) if biased else None
    before = unreachable_tokens(head, bias)
    assert _ids(before) == _programme(head.astype(np.float64), bias)
    for power in (-1000, -600, -40, 40, 600, 1000) if dtype == np.float64 else (-120, -40, 40, 120):
        assert unreachable_tokens(np.ldexp(head, power), bias) == before
        if bias is not None:
            both = (unreachable_tokens(head, np.ldexp(bias, power)), before)
            assert len({tuple((one.id, one.others, one.weights) for one in each.tokens) for each in both}) == 1
    for scale in (1e-200, 1e-30, 1e30, 1e200) if dtype == np.float64 else (1e-30, 1e30):
        found = unreachable_tokens(head * dtype(scale), bias)
        assert (_ids(found), found.exact, found.undecided) == (_ids(before), before.exact, 0)


PADS = (-1e4, -1e9, -1e30, float(np.finfo(np.float32).min), -1e300)


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1), (np.float64, 1), (np.float64, 2.0**-664), (np.float64, 2.0**664)]
)
def test_a_padded_vocabulary_changes_nothing_of_the_others(dtype: type, scale: float, pad: float) -> None:
    random = np.random.default_rng(12)
    head, bias = (random.standard_normal((60, 3)) * scale).astype(dtype), random.standard_normal(60)
    expected = _programme(head.astype(np.float64) / scale, bias)
    padded = np.concatenate([bias, np.full(4, pad)])
    zeros = np.concatenate([head, np.zeros((4, 3), dtype)])
    found = unreachable_tokens(zeros, padded, most_listed=64)
    _proven(found, zeros / scale, padded)
    assert (_ids(found), found.exact, found.undecided) == ([*expected, 60, 61, 62, 63], len(expected) + 4, 0)
    # rows of their own are reached by states that are long enough, if at all
    own = np.concatenate([head, (random.standard_normal((4, 3)) * scale).astype(dtype) * dtype(3)])
    found = unreachable_tokens(own, padded, most_listed=64)
    _proven(found, own / scale, padded)
    assert [i for i in _ids(found) if i < 60] == expected
    outer = {i for i in _programme(own.astype(np.float64) / scale, None) if i >= 60}
    assert {i for i in _ids(found) if i >= 60} == outer
    assert found.undecided == 0


def test_biases_of_several_levels_are_decided_each_in_its_own_digits() -> None:
    """Each level is decided as if what lies below it were not there."""
    random = np.random.default_rng(13)
    head, own = random.standard_normal((90, 3)), random.standard_normal(90)
    bias = np.concatenate([own[:60], -1e12 * (1 + np.abs(own[60:80])), np.full(10, -1e30)])
    found = unreachable_tokens(head, bias, most_listed=90)
    _proven(found, head, bias)
    assert found.undecided == 0
    assert [i for i in _ids(found) if i < 60] == _programme(head[:60], bias[:60])
    second = _programme(head[:80], 1e-12 * bias[:80])
    assert [i for i in _ids(found) if 60 <= i < 80] == [i for i in second if i >= 60]


def test_one_row_far_longer_than_all_others_takes_no_digits_from_them() -> None:
    head = np.random.default_rng(14).standard_normal((60, 3))
    for long in (1e4, 1e9, 1e30):
        with_one = np.concatenate([head, [[long, 0, 0]]])
        expected = _programme(np.concatenate([head, [[1e4, 0, 0]]]), None)
        found = unreachable_tokens(with_one)
        assert (_ids(found), found.exact, found.undecided) == (expected, len(expected), 0)


def test_the_certificate_names_tokens_alone_and_says_how_much_higher_their_bias_is() -> None:
    """Once a demand on the bias was listed as a row, with the name of row 0."""
    head = np.array([[1.0, 0], [-1, 1], [-1, -1], [0, 0]])
    (one,) = unreachable_tokens(head, np.array([0, 0, 0, -0.25]), labels=list("abcd")).tokens
    assert (one.id, sorted(one.others), one.exact) == (3, [0, 1, 2], True)
    assert sorted(one.other_tokens, key=str) == ["a", "b", "c"]
    assert one.higher_bias == pytest.approx(0.25)
    assert dict(zip(one.others, one.weights, strict=True)) == pytest.approx({0: 0.5, 1: 0.25, 2: 0.25})
    found = unreachable_tokens(head, np.array([0, 0, 0, -0.25]), labels=list("abcd"))
    shown = str([*map(vars, found.blocks())])
    assert "with a bias higher by 0.25" in shown
    assert "a lower bias" not in shown
    (same,) = unreachable_tokens(head, labels=list("abcd")).tokens
    assert same.higher_bias == 0


def test_planted_mixtures_are_found_and_corners_are_not() -> None:
    random = np.random.default_rng(0)
    sphere = random.standard_normal((400, 16))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    head = np.vstack([sphere, random.dirichlet(np.ones(400), 12) @ sphere]).astype(np.float32)
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
            logits = head.astype(np.float64) @ (answer.direction[:8] / answer.direction[8]) + bias
            assert answer.direction[8] > 0
            assert int(logits.argmax()) == answer.own[0]
            won += 1
    assert won > 100


def test_a_bias_decides_between_equal_rows_and_lifts_rows_inside() -> None:
    head = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])
    assert _ids(unreachable_tokens(head)) == [4]
    assert unreachable_tokens(head, np.array([0, 0, 0, 0, 0.1])).unreachable == 0
    assert _ids(unreachable_tokens(head, np.array([0, 0, 0, 0, -0.1]))) == [4]
    lower = unreachable_tokens(np.vstack([head[:4], head[:1]]), np.array([0.0, 0, 0, 0, -1]))
    assert (_ids(lower), lower.tied, lower.tokens[0].exact) == ([4], 0, True)


def test_equal_rows_and_rows_of_zeros() -> None:
    found = unreachable_tokens(np.vstack([np.eye(4), np.eye(4)[:2], np.zeros((2, 4))]))
    assert (found.reachable, found.tied, found.zero, found.unreachable) == (2, 6, 2, 0)  # -(1, 1, 1, 1) has 0 on top
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
    assert _ids(unreachable_tokens(flat @ random.standard_normal((3, 12)))) == _ids(unreachable_tokens(flat))


def test_no_work_leaves_all_undecided_and_progress_is_told() -> None:
    head = np.random.default_rng(4).standard_normal((20, 3))
    late = unreachable_tokens(head, most_work=0)
    assert (late.undecided, late.reachable, late.undecided_ids[:2]) == (20, 0, (0, 1))
    said: list[tuple[str, int, int]] = []
    unreachable_tokens(head, progress=lambda *told: said.append(told))
    assert said[-1][1:] == (20, 20)


@pytest.mark.parametrize(
    ("head", "bias", "match"),
    [
        (np.ones(3), None, "at least two rows"),
        (np.eye(3), np.ones(2), "a bias"),
        (np.diag([1, np.inf]), None, "finite"),
    ],
)
def test_heads_that_are_none_are_refused(head: Array, bias: Array | None, match: str) -> None:
    with pytest.raises(InputError, match=match):
        unreachable_tokens(head, bias)


def test_a_record_shows_hostile_tokens_as_text() -> None:
    found = unreachable_tokens(np.array([[1.0], [-1], [0.5]]), labels=["a", "b", "\x1b[31m"])
    shown = str([*map(vars, found.blocks())])
    assert "\x1b" not in shown
    assert "below a mixture of" in shown


@pytest.mark.slow
def test_random_heads_of_real_size_are_all_reachable() -> None:
    head = np.random.default_rng(5).standard_normal((8192, 64)).astype(np.float32)
    assert unreachable_tokens(head).reachable == 8192


def test_what_was_seen_on_a_text_is_by_the_models_own_logits() -> None:
    random = np.random.default_rng(0)
    rows, bias, states = (random.standard_normal((60, 8)), random.standard_normal(60), random.standard_normal((500, 8)))
    for scale in (0.1, 1.0):
        expected = len(np.unique((scale * states @ rows.T + bias).argmax(1)))
        found = unreachable_tokens(rows, bias, states=states, scale=scale)
        assert (found.states, found.seen) == (500, expected)
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
    assert "1 of 5 tokens can never be the most likely," in inside.verdict


def test_distinct_rows_are_those_of_a_dictionary() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(-1, 2, (200, 3)).astype(np.float32)
    rows[::7] *= -0.0
    for given_ in (None, random.integers(0, 2, 200).astype(np.float64)):
        first, which = distinct(rows, given_)
        keys = [(*(row + 0.0).tolist(), 0.0 if given_ is None else given_[i]) for i, row in enumerate(rows)]
        places = dict[tuple[float, ...], int]()
        expected = [places.setdefault(key, len(places)) for key in keys]
        assert which.tolist() == expected
        assert first.tolist() == [expected.index(i) for i in range(len(places))]


@pytest.mark.parametrize(("kept", "shown"), [((), "#5 40%, #6 30%, #7 20%"), (("a",), "a 40%, #6 30%, #7 20%")])
def test_rows_of_a_mixture_without_a_saved_token_have_their_number(kept: tuple[str, ...], shown: str) -> None:
    token = UnreachableToken(1, "x", True, 0.0, (5, 6, 7, 8), (0.4, 0.3, 0.2, 0.1), kept)
    found = UnreachableTokens("v", 9, 2, False, 8, 1, 1, 0, 0, 0, 1e-6, (token,))
    *_, table = (block for block in found.blocks() if isinstance(block, Table))
    assert table.rows[0][2] == Cell(shown, "and 1 more")
