"""Row numbers as ids: a count from 1 is seen, and nothing is said of data that are numbered right."""

import numpy as np
import pytest

from uncone.rows import SelectedRows, as_rows
from uncone.transforms.row_numbers import PairedRows, remarks_on_numbers

Array = np.ndarray
N, M, D = 300, 80, 16


def _related(seed: int, *, noise: float = 1.0) -> tuple[Array, Array, Array, Array]:
    """Documents, queries that are each near two of them, and the pairs."""
    generator = np.random.default_rng(seed)
    documents, of_query = generator.standard_normal((N, D)), np.repeat(np.arange(M), 2)
    of_document = generator.integers(0, N, 2 * M)
    queries = documents[of_document].reshape(M, 2, D).sum(1) + noise * generator.standard_normal((M, D))
    return documents, queries, of_query, of_document


def _sides(
    documents: Array, queries: Array, q: Array, d: Array, numbered: tuple[bool, bool] = (True, True)
) -> list[PairedRows]:
    sides = (("queries", queries, q, "--query-ids"), ("documents", documents, d, "--ids"))
    return [
        PairedRows(name, as_rows(x.astype(np.float32), name=name), np.asarray(at), option, is_numbered)
        for (name, x, at, option), is_numbered in zip(sides, numbered, strict=True)
    ]


@pytest.mark.parametrize("shift", [(0, 1), (1, 0), (1, 1), (-1, 0), (0, -1), (1, -1)])
def test_a_shift_by_one_is_seen_and_undone(shift: tuple[int, int]) -> None:
    documents, queries, q, d = _related(0)
    q, d = q + shift[0], d + shift[1]
    there = (q >= 0) & (q < M) & (d >= 0) & (d < N)
    note, caution = remarks_on_numbers(_sides(documents, queries, q[there], d[there]), "qrels.tsv")
    begin = "The ids of the queries and documents in qrels.tsv are read as row numbers, counted from 0."
    assert note.startswith(begin)
    sides, words = zip(("queries", "documents"), shift, strict=True), {1: "lowered by 1", -1: "raised by 1"}
    shifts = " and ".join(f"the numbers of {name} {words[by]}" for name, by in sides if by)
    assert f"with {shifts}. Row numbers are counted from 0" in caution
    assert "give the ids with --query-ids and --ids" in caution


def test_only_a_side_without_ids_is_shifted() -> None:
    documents, queries, q, d = _related(0)
    kept = d < N - 1
    note, caution = remarks_on_numbers(_sides(documents, queries, q[kept], d[kept] + 1, (False, True)), "qrels")
    assert "ids of the documents in qrels" in note
    assert "--query-ids" not in note + caution
    assert "the numbers of documents lowered by 1" in caution
    assert remarks_on_numbers(_sides(documents, queries, q, d, (False, False)), "qrels") == ("", "")


def test_pairs_within_one_set_are_shifted_together() -> None:
    documents, queries, q, d = _related(1)
    both = np.concatenate([queries, documents])
    pairs = np.stack([q, M + d], axis=1)
    rows = as_rows(both.astype(np.float32), name="x")
    for by, there in ((0, pairs[:, 1] > 0), (1, pairs[:, 1] < N + M - 1)):
        side = PairedRows("rows", rows, pairs[there] + by, "--ids", is_numbered=True)
        assert ("the numbers of rows lowered by 1" in remarks_on_numbers([side], "pairs.tsv")[1]) is bool(by)


def test_numbers_are_those_of_the_source_where_rows_are_left_out() -> None:
    documents, queries, q, d = _related(2)
    kept = np.flatnonzero(np.arange(N) % 7 != 3)
    place = {number: at for at, number in enumerate(kept)}
    there = np.array([number + 1 in place for number in d])
    sides = _sides(documents, queries, q[there], [place[number + 1] for number in d[there]])
    sides[1] = PairedRows("documents", SelectedRows(sides[1].rows, kept), sides[1].at, "--ids", is_numbered=True)
    assert "the numbers of documents lowered by 1" in remarks_on_numbers(sides, "qrels")[1]


def test_a_number_0_that_never_occurs_is_said_unless_the_rows_show_that_the_numbers_fit() -> None:
    documents, queries, q, d = _related(3)
    d = np.maximum(d, 1)  # the queries are still near the others
    assert remarks_on_numbers(_sides(documents, queries, q, d), "qrels")[1] == ""
    unrelated = np.random.default_rng(4).standard_normal((M, D))
    caution = remarks_on_numbers(_sides(documents, unrelated, q, d), "qrels")[1]
    begin = "The number 0 never occurs among the ids of the documents in the matching pairs of qrels."
    assert caution.startswith(begin)
    d[0] = 0
    assert remarks_on_numbers(_sides(documents, unrelated, q, d), "qrels")[1] == ""


@pytest.mark.parametrize("kind", ["unrelated", "weak", "sorted by topic", "few documents", "equal rows"])
def test_no_shift_is_seen_in_data_that_are_numbered_right(kind: str) -> None:
    """Of 40 data sets of each kind none; 0 of 400 of these and others in a longer run."""
    for seed in range(40):
        generator = np.random.default_rng([seed, 7])
        documents, queries, q, d = _related(seed, noise=8.0 if kind == "weak" else 1.0)
        if kind == "unrelated":
            queries = generator.standard_normal((M, D))
        elif kind == "sorted by topic":
            topics = generator.standard_normal((6, D))
            documents = topics[np.sort(generator.integers(0, 6, N))] + generator.standard_normal((N, D))
            queries = documents[d].reshape(M, 2, D).sum(1) + 4 * generator.standard_normal((M, D))
        elif kind == "few documents":  # of which the neighbours are nearer to every query, by chance
            queries, d = generator.standard_normal((M, D)) + 1, generator.choice(np.arange(1, 9), 2 * M)
        elif kind == "equal rows":
            documents, queries = np.ones((N, D)), np.ones((M, D))
        assert "mean cosine" not in remarks_on_numbers(_sides(documents, queries, q, d), "qrels")[1], seed
