"""Documents and queries of which one side alone was repaired, and pairs of sides that only look so."""

import numpy as np
import pytest

import uncone
from uncone.records.blocks import Text
from uncone.rows import as_rows
from uncone.transforms.one_side import one_sided

Array = np.ndarray
D = 64


def _unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _told(documents: Array, queries: Array) -> str:
    return one_sided(*(as_rows(x.astype(np.float32), name="x") for x in (documents, queries)))


def _sides(topics: int, common: float, *, of_queries: int | None = None) -> tuple[Array, Array]:
    """Documents of all topics and queries of some, in a cone; the queries are shorter texts: more noise."""
    generator = np.random.default_rng(topics)
    centres = generator.standard_normal((topics, D)) + common
    documents = centres[generator.integers(0, topics, 3000)] + 0.7 * generator.standard_normal((3000, D))
    asked = generator.integers(0, of_queries or topics, 100)
    return documents, centres[asked] + 0.9 * generator.standard_normal((100, D))


@pytest.mark.parametrize("topics", [1, 5, 100])
def test_a_repair_of_one_side_alone_is_told_with_the_side(topics: int) -> None:
    documents, queries = _sides(topics, 2.0)
    mean = documents.mean(0)
    for x in (documents - mean, _unit(documents - mean)):
        assert _told(x, queries).startswith("The queries have a common direction (mean cosine 0.")
        assert "This happens when only the documents were repaired" in _told(x, queries)
    found = _told(documents, _unit(queries - mean))
    assert found.startswith("The documents have a common direction")
    assert "`uncone repair DOCUMENTS REPAIRED_DOCUMENTS --load T.safetensors`" in found


@pytest.mark.parametrize("common", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("topics", [1, 5, 100])
def test_ordinary_pairs_give_no_caution(topics: int, common: float) -> None:
    documents, queries = _sides(topics, common)
    mean = documents.mean(0)
    assert _told(documents, queries) == ""
    assert _told(documents - mean, queries - mean) == ""
    assert _told(_unit(documents), 5 * queries) == ""
    documents, queries = _sides(topics, common, of_queries=1)  # all of one topic: a common direction of theirs
    assert _told(documents, queries) == ""
    assert _told(documents - documents.mean(0), queries - documents.mean(0)) == ""


def test_zero_rows_huge_rows_and_few_rows() -> None:
    documents, queries = _sides(5, 2.0)
    centred = documents - documents.mean(0)
    assert _told(np.vstack([centred, np.zeros((50, D))]), 1e30 * queries) == _told(centred, queries) != ""
    assert _told(centred, queries[:9]) == ""
    assert _told(np.zeros((20, D)), queries) == ""


def test_evaluate_and_calibrate_say_it_in_the_first_lines() -> None:
    pytest.importorskip("torch")
    documents, queries = _sides(5, 2.0)
    sides = {"documents": documents - documents.mean(0), "queries": queries}
    qrels = {at: {at: 1} for at in range(50)}
    found = uncone.evaluate(**sides, qrels=qrels, method=["center"], resamples=100)
    for one in (found, uncone.calibrate(sides["documents"], queries=queries)):
        assert one.caution == _told(*sides.values())
        assert one.blocks()[1] == Text(f"Caution: {one.caution}")
        assert type(one).from_json(one.to_json()) == one
    assert (
        found.verdict == "documents, retrieval: no verdict, since only one side (queries or documents) seems repaired."
    )
    chosen = uncone.select_repair(**sides, qrels=qrels, resamples=1000)
    assert (chosen.chosen, chosen.candidate) == ("original", None)
    assert chosen.verdict.startswith("Leave documents as it is: only one side (queries or documents) seems repaired")
    assert uncone.calibrate(documents, queries=queries).caution == ""
    sides["documents"] = documents
    healthy = uncone.evaluate(**sides, qrels=qrels, method=["center"], resamples=100)
    assert (healthy.caution, "no verdict" in healthy.verdict) == ("", False)
