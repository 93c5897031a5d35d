"""The rank of contexts: against a dictionary of n-grams and a dense decomposition, and in closed form."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

import uncone
from uncone.errors import InputError
from uncone.saturation.contexts.curves import KINDS, ContextMatrix, Kind, count_followers
from uncone.statistics.leading import leading_pairs


def _dense(texts: list[list[int]], order: int, kind: Kind, v: int) -> np.ndarray:
    """W* by the definition: a dictionary from contexts to counts."""
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for text in texts:
        for i in range(len(text) - order + 1):
            followers[tuple(text[i : i + order - 1])][text[i + order - 1]] += 1
    rows = []
    for counts in followers.values():
        n = sum(counts.values())
        if kind == "seen" and n < 5:
            continue
        row = np.zeros(v)
        for token, count in counts.items():
            row[token] = count / n
        rows.append(row * (np.sqrt(n) if kind == "weighted" else 1))
    return np.array(rows)


def _errors(matrix: np.ndarray) -> np.ndarray:
    values = np.linalg.svd(matrix, compute_uv=False) ** 2
    return np.sqrt(np.maximum(1 - np.append(0, np.cumsum(values)) / values.sum(), 0))


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=60), min_size=1, max_size=4),
    st.integers(2, 4),
    st.sampled_from(KINDS),
)
def test_w_error_is_that_of_the_dense_matrix(texts: list[list[int]], order: int, kind: Kind) -> None:
    texts = [*texts, [0, 1, 2, 3, 4, 5, 6] * 6]
    dense = _dense(texts, order, kind, 7)
    ids = np.concatenate([np.array(text, np.int64) for text in texts])
    matrix = ContextMatrix(count_followers(ids, np.cumsum([len(t) for t in texts]), order), kind)
    errors, left = matrix.spectrum(7)
    expected = _errors(dense)
    k = min(len(errors), len(expected))
    assert matrix.contexts == len(dense)
    assert matrix.single == int((dense.max(1) == dense.sum(1)).sum())
    assert errors[:k] ** 2 == pytest.approx(expected[:k] ** 2, abs=1e-9)
    # the blocks add up to the whole, at every dimension
    assert (left.sum(0) / left[:, 0].sum()) == pytest.approx(errors**2, abs=1e-9)


def test_no_context_reaches_over_a_boundary() -> None:
    one = count_followers(np.array([0, 1, 2, 0, 1, 3]), np.array([6]), 3)
    two = count_followers(np.array([0, 1, 2, 0, 1, 3]), np.array([3, 6]), 3)
    assert (len(one.total), len(two.total)) == (3, 1)
    assert two.count.tolist() == [1, 1]


def test_contexts_that_are_all_different_give_the_frequencies_of_tokens() -> None:
    """Each row has a single 1, so that sigma_i^2 is how often a token follows."""
    followers = np.random.default_rng(0).zipf(1.5, 400) % 30
    ids = np.stack([np.arange(400) + 30, followers], axis=1).ravel()  # each context is one token, seen once
    matrix = ContextMatrix(count_followers(ids, 2 * np.arange(1, 401), 2), "all")
    counts = np.sort(np.bincount(followers))[::-1]
    errors, _ = matrix.spectrum(20)
    assert matrix.single == matrix.contexts == 400
    assert errors**2 == pytest.approx(1 - np.append(0, np.cumsum(counts))[:21] / 400, abs=1e-12)


def test_a_planted_rank_is_found() -> None:
    """Tokens follow one of 3 distributions, chosen by the context: three dimensions are all."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(40, 0.2), 3)
    contexts = rng.integers(0, 12, 60_000)
    followers = (rng.random((60_000, 1)) > rows.cumsum(1)[contexts % 3]).sum(1)
    ids = np.stack([contexts + 40, followers], axis=1).ravel()
    errors, _ = ContextMatrix(count_followers(ids, 2 * np.arange(1, 60_001), 2), "all").spectrum(10)
    assert errors[2] > 0.2 > 0.05 > errors[3]


def test_tokens_without_order_show_no_difference() -> None:
    ids = np.random.default_rng(3).zipf(1.4, 30_000)
    said = uncone.context_rank(ids[ids < 200], order=3, dimensions=60).verdict
    assert said.startswith("No difference from shuffled tokens was detected at ")


def test_what_is_left_beyond_the_rank_is_nothing() -> None:
    for seed in range(4):
        ids = np.random.default_rng(seed).integers(0, 12, 4000)
        found = uncone.context_rank([ids], order=3, dimensions=50, seed=seed)
        assert all(error == 0 or error > 1e-5 for curve in found.curves for error in curve.errors)
        assert all(one.text > 0 or one.null > 0 for one in found.differences)


def test_a_difference_at_the_last_dimension_is_told() -> None:
    random = np.random.default_rng(0)
    after = random.integers(0, 300, (300, 3))
    ids = [0]
    for choice in random.integers(0, 3, 20_000):
        ids.append(int(after[ids[-1], choice]))
    found = uncone.context_rank([np.array(ids)], order=3, dimensions=200)
    (*_, last) = (one for one in found.differences if (one.kind, one.source) == ("all", "shuffled"))
    assert last.difference.interval[1] < 0
    assert found.verdict.startswith("Language takes fewer dimensions")


def test_a_language_with_structure_shows_one() -> None:
    """A chain in which each token allows two others, equally often: shuffling destroys it."""
    rng = np.random.default_rng(0)
    allowed, token, ids = rng.permutation(np.repeat(np.arange(50), 2)).reshape(50, 2), 0, []
    for choice in rng.integers(0, 2, 20_000):
        token = int(allowed[token, choice])
        ids.append(token)
    found = uncone.context_rank(ids, order=3, dimensions=45)
    assert "than frequencies alone" in found.verdict
    assert {curve.source for curve in found.curves} == {"text", "shuffled", "next shuffled"}
    assert all(np.diff(curve.errors).max() <= 0 and curve.errors[0] == 1 for curve in found.curves)
    assert len(found.to_rows()) == sum(len(curve.errors) for curve in found.curves)


def test_words_ids_and_files_are_the_same(tmp_path: Path) -> None:
    words = [f"w{i}" for i in np.random.default_rng(0).zipf(1.5, 3000) % 50]
    (tmp_path / "t.txt").write_text(" ".join(words))
    number = {word: i for i, word in enumerate(dict.fromkeys(words))}
    sources = (tmp_path / "t.txt", [" ".join(words)], np.array([number[word] for word in words]))
    found = [uncone.context_rank(source, order=3, dimensions=10) for source in sources]
    assert found[0].curves == found[1].curves == found[2].curves
    assert (found[0].name, found[0].tokenizer) == ("t.txt", "words between white space")


def test_a_tokenizer_is_taken(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["a b c a b b c a", "c b a b"]
    ids = [np.array([0, 1, 2, 0, 1, 1, 2, 0]), np.array([2, 1, 0, 1])]
    expected = uncone.context_rank(ids, order=2, dimensions=3).curves
    for given_ in (tokenizer, tmp_path / "tokenizer.json", tmp_path):
        assert uncone.context_rank(texts, tokenizer=given_, order=2, dimensions=3).curves == expected


def test_bad_input_is_refused() -> None:
    for source, options, message in (
        ([1, 2, 3], {}, "at least 5 tokens"),
        ([1, 2, 3], {"order": 1}, "at least 2 tokens, got 1"),
        (np.array([1.0, 2.0, 3.0]), {"order": 2}, "whole numbers from 0 up"),
        ([1, 2, 3], {"tokenizer": "x"}, "leave the tokenizer out"),
        ([1, 2, 3], {"order": 2, "dimensions": 0}, "at least one dimension"),
    ):
        with pytest.raises(InputError, match=message):
            uncone.context_rank(source, **options)


@pytest.mark.parametrize(("n", "k"), [(5, 3), (40, 40), (300, 20), (600, 150)])
def test_leading_pairs_are_those_of_a_dense_decomposition(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    a = np.diag(1000 / np.arange(1.0, n + 1)) + 0.1 * (b := rng.standard_normal((n, n))) @ b.T / n
    values, vectors = leading_pairs(lambda x: a @ x, n, k)
    assert values == pytest.approx(np.linalg.eigvalsh(a)[::-1][:k], rel=1e-6)
    assert vectors.T @ vectors == pytest.approx(np.eye(k), abs=1e-9)
    assert np.linalg.norm(a @ vectors - vectors * values, axis=0).max() <= 2e-4 * values.max()


def test_equal_eigenvalues_and_a_lost_rank_are_found() -> None:
    a = np.diag(np.r_[np.full(50, 3.0), np.full(10, 2.0), np.zeros(240)])
    values, _ = leading_pairs(lambda x: a @ x, 300, 70)
    assert values == pytest.approx(np.r_[np.full(50, 3.0), np.full(10, 2.0), np.zeros(10)], abs=1e-9)


@pytest.mark.parametrize(("rows", "n", "k"), [(150, 400, 140), (150, 400, 200), (40, 300, 35), (130, 200, 128)])
def test_a_rank_that_is_used_up_leaves_no_ghosts(rows: int, n: int, k: int) -> None:
    """Fewer contexts than dimensions, or hardly more: what is left of the matrix at last is rounding."""
    rng = np.random.default_rng(0)
    matrix = rng.multinomial(8, rng.dirichlet(np.full(n, 0.05)), size=rows) / 8.0
    values, vectors = leading_pairs(lambda x: matrix.T @ (matrix @ x), n, k)
    expected = np.linalg.eigvalsh(matrix.T @ matrix)[::-1][:k]
    assert values == pytest.approx(expected, abs=1e-9 * expected[0])
    assert vectors.T @ vectors == pytest.approx(np.eye(k), abs=1e-9)
