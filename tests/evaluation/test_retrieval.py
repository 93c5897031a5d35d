"""nDCG and recall by hand and by a slow loop, exact search against a full sort, data that is not what it must be."""

import gzip
import json
import lzma
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.planted_texts import write_retrieval
from tests.rows.reading import refuses
from uncone.evaluation import retrieval
from uncone.evaluation.encoding import unit
from uncone.evaluation.retrieval import RetrievalData, nearest, read_retrieval, scores_of

Array = npt.NDArray[Any]
pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")


def _data(documents: int, judged: dict[str, dict[str, int]]) -> RetrievalData:
    ids = tuple(f"d{at}" for at in range(documents))
    texts = tuple(f"text {name}" for name in ids)
    return RetrievalData("planted", ids, texts, dict.fromkeys(judged, "?"), {"test": judged})


def retrieve(queries: Array, documents: Array, data: RetrievalData, asked: Sequence[str]) -> dict[str, Array]:
    """The scores of an exact search, one place deeper than the deepest measure: a query may find itself."""
    return scores_of(nearest(queries, documents, 101), data, asked, split="test")


def test_ndcg_by_hand() -> None:
    # Ranked d0, d1, d2, d3: relevance 2 at rank 2 and 1 at rank 4; the best order is 2, 1.
    data = _data(4, {"q": {"d1": 2, "d3": 1, "d0": 0}})
    scores = retrieve(np.array([[1.0]]), np.array([[4.0], [3.0], [2.0], [1.0]]), data, ["q"])
    best = 2 / math.log2(2) + 1 / math.log2(3)
    assert scores["ndcg10"][0] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / best)
    assert scores["recall100"][0] == 1.0


def test_recall_by_hand() -> None:
    data = _data(150, {"q": {"d0": 1, "d120": 1}, "r": {"d3": 1}})
    scores = retrieve(np.ones((2, 1)), -np.arange(150.0)[:, None], data, ["q", "r"])
    assert scores["recall100"].tolist() == scores["recall10"].tolist() == [0.5, 1.0]
    assert scores["ndcg10"][1] == pytest.approx(1 / math.log2(5))


def test_as_a_slow_loop() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.standard_normal((6, 5)), generator.standard_normal((200, 5))
    judged = dict[str, dict[str, int]]()
    for q in range(6):
        judged[f"q{q}"] = {f"d{d}": int(generator.integers(0, 4)) for d in generator.choice(200, 15, replace=False)}
    scores = retrieve(queries, documents, _data(200, judged), list(judged))
    for at, relevant in enumerate(judged.values()):
        order = sorted(range(200), key=lambda d: -float(queries[at] @ documents[d]))
        gain = sum(relevant.get(f"d{d}", 0) / math.log2(rank + 2) for rank, d in enumerate(order[:10]))
        best = sum(g / math.log2(rank + 2) for rank, g in enumerate(sorted(relevant.values(), reverse=True)[:10]))
        assert scores["ndcg10"][at] == pytest.approx(gain / best)
        positive = {name for name, grade in relevant.items() if grade > 0}
        for k in (10, 100):
            found = positive & {f"d{d}" for d in order[:k]}
            assert scores[f"recall{k}"][at] == pytest.approx(len(found) / len(positive))


def test_a_query_is_not_its_own_answer() -> None:
    data = RetrievalData("argument", ("a", "b"), ("x", "y"), {"a": "x"}, {"test": {"a": {"b": 1}}})
    x = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert retrieve(x[:1], x, data, ["a"])["ndcg10"][0] == 1.0
    same_id_alone = replace(data, queries={"a": "z"})
    assert retrieve(x[:1], x, same_id_alone, ["a"])["ndcg10"][0] == pytest.approx(1 / math.log2(3))


@given(st.integers(1, 5), st.integers(1, 60), st.integers(1, 30), st.integers(0, 2**31))
def test_nearest_is_a_stable_sort(q: int, n: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    queries, documents = (generator.integers(-1, 2, (rows, 3)).astype(float) for rows in (q, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "_DOCUMENTS", 7)
        patch.setattr(retrieval, "_SCORES", 14)
        ids = nearest(queries, documents, k)
    assert np.array_equal(ids, np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :k])


def test_unit_rows() -> None:
    x = unit(np.array([[3.0, 4.0], [0.0, 0.0], [1e-100, 0.0]]))
    assert x.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0], [1, 0]]
    refuses("queries as wide as documents, got 2 and 3 features", nearest, np.ones((1, 2)), np.ones((4, 3)), 1)


def test_reads_a_directory_in_the_layout_of_beir(tmp_path: Path) -> None:
    data = read_retrieval(write_retrieval(tmp_path / "planted"))
    assert (len(data.documents), set(data.judged), len(data.query_ids("test"))) == (240, {"train", "test"}, 40)
    refuses(r"qrels/dev\.tsv", data.query_ids, "dev")


def test_titles_and_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    with lzma.open(tmp_path / "corpus.jsonl.xz", "wt") as handle:
        handle.write(json.dumps({"_id": "1", "title": "A title", "text": "and text"}) + "\n\n")
    with gzip.open(tmp_path / "queries.jsonl.gz", "wt") as handle:
        handle.write(json.dumps({"_id": "q", "text": "asked"}) + "\n")
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t0\n")
    data = read_retrieval(tmp_path)
    assert (data.documents, data.query_ids("test")) == (("A title and text",), ())
    whole = bytearray(gzip.compress("".join(f"{number * number}\n" for number in range(20_000)).encode()))
    whole[400:450] = bytes(byte ^ 0xFF for byte in whole[400:450])
    for broken in (whole, whole[:2000], b"no gzip"):
        (tmp_path / "queries.jsonl.gz").write_bytes(broken)
        refuses(r"queries\.jsonl\.gz", read_retrieval, tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus.jsonl", "{", "one JSON object per line.* line 1"),
        ("corpus.jsonl", "[1]\n", "an object in entry 1"),
        ("corpus.jsonl", '{"_id": 3, "text": "x"}\n', 'strings "_id", "text" in line 1'),
        ("corpus.jsonl", '{"_id": "d0", "text": "x"}\n' * 2, "unique ids, got 'd0' again in line 2"),
        ("corpus.jsonl", "", "at least one text in"),
        ("corpus.jsonl", b"\xff\xfe", "expected UTF-8"),
        ("qrels/test.tsv", "query-id\tcorpus-id\n", "columns query-id, corpus-id, score"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td0\n", "3 columns in line 2 .* got 2"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td0\tx\n", "an integer in line 2"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tgone\t1\n", "the document 'gone' in line 2"),
    ],
)
def test_bad_data_is_named(tmp_path: Path, file: str, content: str | bytes, message: str) -> None:
    directory = write_retrieval(tmp_path / "planted")
    (directory / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    refuses(message, read_retrieval, directory)


def test_missing_data_is_named(tmp_path: Path) -> None:
    refuses("expected a directory in BEIR's layout", read_retrieval, tmp_path / "nowhere")
    refuses(r"expected corpus\.jsonl, queries\.jsonl, qrels/test\.tsv in .*no such file", read_retrieval, tmp_path)
    (tmp_path / "corpus.jsonl.xz").write_bytes(b"no archive")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("")
    refuses(r"cannot read .*corpus\.jsonl\.xz", read_retrieval, tmp_path)
