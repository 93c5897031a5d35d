"""Tables in memory as rows: a column of lists, ids and labels beside it, and messages that name the column."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from uncone import InputError
from uncone.rows import as_samples
from uncone.rows.ids import places_of

from .reading import refuses

pandas = pytest.importorskip("pandas")
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
IDS = [f"doc{i}" for i in range(6)]


class PolarsSeries:
    """What of a Series of polars is asked for: lists are an array of objects, of one width a matrix."""

    def __init__(self, name: str, values: Any) -> None:
        self.name, self._values = name, np.asarray(values)
        self.dtype = self._values.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values

    to_numpy = __array__


class PolarsFrame:
    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns, self._given = list(columns), columns

    def get_columns(self) -> list[PolarsSeries]:
        return [PolarsSeries(name, values) for name, values in self._given.items()]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.stack([np.asarray(one) for one in self._given.values()], axis=1)


def _real_polars(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def _arrow(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow").table({name: list(values) for name, values in columns.items()})


@pytest.mark.parametrize("make", [pandas.DataFrame, PolarsFrame, _real_polars, _arrow])
def test_a_column_of_vectors_with_ids_and_texts_beside_it(make: Callable[[Any], Any]) -> None:
    given = X if make in (PolarsFrame, _real_polars) else list(X)
    rows = as_samples(make({"doc_id": IDS, "title": ["a" * 100] * 6, "vector": given, "n": list(range(6))}))
    assert (rows.dtype, rows.shape, rows.name.partition("#")[2]) == ("float32", (6, 4), "vector")
    assert (rows.read(0, 6) == X).all()
    assert list(rows.keys or ()) == IDS
    assert list(rows.labels or ()) == ["a" * 80] * 6
    assert places_of(rows, None)["doc5"] == 5
    numbered = as_samples(make({"id": [7, 8, 9], "v": [[1, 2], [3, 4], [5, 6]]}))
    assert (numbered.dtype, list(numbered.keys or ()), numbered.labels) == ("float64", ["7", "8", "9"], None)
    flat = as_samples(make({"id": [7, 8], "a": [1, 2], "b": [0.5, 1.5]}))
    assert (flat.read(0, 2).tolist(), list(flat.keys or ())) == ([[1.0, 0.5], [2.0, 1.5]], ["7", "8"])


def test_a_series_of_lists_takes_its_ids_from_an_index_of_texts_or_of_ids() -> None:
    frame = pandas.DataFrame({"id": range(10, 16), "vector": list(X)})
    for series, keys in (
        (frame["vector"], None),
        (frame["vector"][frame["id"] > 10].reset_index(drop=True), None),
        (frame.set_index("id")["vector"], [str(i) for i in range(10, 16)]),
        (pandas.Series(X.tolist(), index=IDS), IDS),
    ):
        rows = uncone.open_rows(series)
        assert rows.read(0, 5) == pytest.approx(X[6 - len(series) :][:5])
        assert rows.keys == keys
    kept = as_samples(frame, [1, 0, 0, 0, 0, 1])
    assert (kept.keys, kept.read(0, 2).tolist()) == (["10", "15"], X[[0, 5]].tolist())


def _with(place: int, value: Any) -> Any:
    vectors: list[Any] = list(X)
    vectors[place] = value
    return pandas.DataFrame({"id": IDS, "vector": vectors})


REFUSED: list[tuple[Any, str]] = [
    (_with(3, X[3][:2]), "expected a list of 4 numbers in row 3 of column 'vector', got 2: fill it, or drop the row"),
    (_with(5, None), "in row 5 of column 'vector', got none"),
    (pandas.Series([[1.0, 2.0], None]), "expected a list of 2 numbers in row 1 of the Series, got none"),
    (_with(0, None), "expected a list of 4 numbers in row 0 of column 'vector', got none"),
    (_with(1, ["a"] * 4), "in row 1 of column 'vector', got 4 of <U1"),
    (_with(1, np.ones((4, 1))), r"in row 1 of column 'vector', got shape \(4, 1\)"),
    (
        pandas.DataFrame({"id": IDS, "a": list(X), "b": list(X)}),
        r"expected one column of lists in the DataFrame, got 'a', 'b': choose one, as in df\[\['id', 'a'\]\]",
    ),
    (
        pandas.DataFrame({"id": IDS, "text": IDS}),
        "or with a column of lists of numbers, got column 'text' of texts: drop it, or pass",
    ),
    (pandas.DataFrame({"id": IDS}), "got only ids, in 'id'"),
    (pandas.DataFrame(), "got no column"),
    (pandas.DataFrame({"a": [1, "x"], "b": [1, 2]}), "every cell of column 'a', got str in row 1: drop or convert it"),
    (
        pandas.Series([1.0, 2.0]),
        "expected a Series with a number in every cell, or with a column of lists of numbers, got a column of numbers:",
    ),
    (pandas.Series(IDS, name="text"), "got column 'text' of texts"),
]


@pytest.mark.parametrize(("frame", "message"), REFUSED, ids=lambda x: x[:40] if isinstance(x, str) else "")
def test_the_message_names_the_column(frame: Any, message: str) -> None:
    refuses(message, uncone.open_rows, frame)


def test_missing_numbers_are_rows_that_are_not_finite() -> None:
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match="expected finite rows"):
        uncone.diagnose(frame)
    assert uncone.open_rows(frame, skip_nonfinite=True).left_out == (1,)


def test_tables_answer_every_question_by_their_ids(tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 8)) + 1
    ids = [f"d{i}" for i in generator.permutation(60)]
    documents = pandas.DataFrame({"text": ["t"] * 60, "id": ids, "embedding": list(x)})
    queries = pandas.DataFrame({"query_id": range(1000, 1020), "embedding": (x[:20] + 0.1).tolist()})
    qrels = {str(1000 + i): {ids[i]: 1} for i in range(20)}
    found = uncone.evaluate(queries=queries, documents=documents, qrels=qrels, method=["center"], resamples=100)
    assert found.results["retrieval"]["documents"]["original"]["ndcg10"] == 1
    pairs = [(str(1000 + i), ids[j], int(i == j)) for i in range(20) for j in (i, i + 20)]
    with open(tmp_path / "pairs.tsv", "w") as file:
        file.writelines(f"{query}\t{document}\t{label}\n" for query, document, label in pairs)
    labelled = uncone.calibrate(documents, queries=queries, pairs=tmp_path / "pairs.tsv").labelled
    assert labelled is not None
    assert (labelled.matches, labelled.non_matches) == (20, 20)
    assert uncone.diagnose(documents).subjects[0].n == 60
