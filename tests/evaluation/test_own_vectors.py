"""Own vectors with own judgements: numbers by hand, every form of ids and judgements, planted faults, refusals."""

import gzip
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import uncone
from tests.rows.reading import refuses
from uncone import InputError
from uncone.evaluation import own_vectors
from uncone.evaluation.record import Evaluation, Selection
from uncone.report import print_record
from uncone.transforms import Center, repair_named

pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")

TOPICS, N, M, D = 12, 240, 100, 16
Array = np.ndarray[Any, Any]


def planted(*, spoiled: bool) -> tuple[Array, Array, dict[int, dict[int, int]]]:
    """Documents and queries of a topic are near each other. Spoiled, each also lies far out along one direction."""
    generator = np.random.default_rng(0)
    topics, of_document = generator.standard_normal((TOPICS, D)), generator.integers(0, TOPICS, N)
    of_query = generator.integers(0, TOPICS, M)
    sides = [topics[of] + 0.5 * generator.standard_normal((len(of), D)) for of in (of_document, of_query)]
    if spoiled:
        direction = np.ones(D) / math.sqrt(D)
        sides = [x + np.outer(generator.uniform(-40, 80, len(x)), direction) for x in sides]
    judged = {q: {int(d): 1 for d in np.flatnonzero(of_document == of_query[q])} for q in range(M)}
    return sides[0].astype(np.float32), sides[1].astype(np.float32), judged


def ndcg10(queries: Array, documents: Array, judged: Mapping[int, Mapping[int, int]]) -> float:
    """By a slow loop from the equation."""
    total = 0.0
    for q, relevant in judged.items():
        order = np.argsort(-(documents @ queries[q]), kind="stable")[:10]
        gain = sum(relevant.get(int(d), 0) / math.log2(rank + 2) for rank, d in enumerate(order))
        ideal = sorted(relevant.values(), reverse=True)[:10]
        total += gain / sum(g / math.log2(rank + 2) for rank, g in enumerate(ideal))
    return total / len(judged)


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def given(*, spoiled: bool, **more: Any) -> dict[str, Any]:
    """The planted vectors and judgements as arguments, with centring and few resamples unless others are asked for."""
    documents, queries, judged = planted(spoiled=spoiled)
    own = {"queries": queries, "documents": documents, "qrels": judged}
    return own | {"method": ["center"], "resamples": 200} | more


def of_documents(found: Evaluation, repair: str = "original") -> Any:
    return found.results["retrieval"]["documents"][repair]


def test_all_three_ways_by_hand() -> None:
    documents, queries, judged = planted(spoiled=True)
    found = uncone.evaluate(**given(spoiled=True, method=["center", "standardize"]))
    x, y = documents.astype(np.float64), queries.astype(np.float64)
    mean, spread = x.mean(0), x.std(0, ddof=1)
    for name, shift, scale in (("original", 0, 1), ("center", mean, 1), ("standardize", mean, spread)):
        numbers = of_documents(found, name)
        a, b = ((z - shift) / scale for z in (y, x))
        assert numbers["ndcg10"] == pytest.approx(ndcg10(unit(a), unit(b), judged), abs=2e-3)
        assert numbers["ndcg10_inner"] == pytest.approx(ndcg10(a, b, judged), abs=2e-3)
        assert numbers["ndcg10_inner_documents"] == pytest.approx(ndcg10(y, b, judged), abs=2e-3)
        assert numbers["n"] == M
    assert (found.name, found.task) == ("documents", "retrieval")
    price = found.prices["documents"]["center"]
    assert (price.fitted_n, price.fitted_on) == (N, "the documents alone")
    assert any("fitted on the documents alone, and applied to documents and queries" in n for n in found.notes)
    assert Evaluation.from_json(found.to_json()) == found


def _write(folder: Path, documents: Array, queries: Array, judged: Mapping[int, Mapping[int, int]]) -> None:
    """The same data in every form: ids are numbers, d0 to d239 with q0 to q99, or 1000 and on."""
    rows = [(q, d, rank) for q, of in judged.items() for d, rank in of.items()]
    (folder / "named").mkdir()
    for place in (folder, folder / "named"):
        np.save(place / "d.npy", documents)
        np.save(place / "q.npy", queries)
    np.savez(folder / "d.npz", vectors=documents, ids=np.array([f"d{i}" for i in range(N)]))
    np.savez_compressed(folder / "q.npz", vectors=queries, vectors_ids=np.arange(1000, 1000 + M))
    for name in ("d-ids.txt", "named/d.ids"):
        (folder / name).write_text("".join(f"d{i}\n" for i in range(N)))
    for name in ("q-ids.txt", "named/q.ids"):
        (folder / name).write_text("".join(f"{1000 + i}\n" for i in range(M)))
    (folder / "trec.txt").write_text("".join(f"{q} 0 {d} {rank}\n" for q, d, rank in rows))
    (folder / "trec.tsv").write_text("".join(f"{q}\tQ0\t{d}\t{rank}\n" for q, d, rank in rows))
    beir = "query-id\tcorpus-id\tscore\n" + "".join(f"{1000 + q}\td{d}\t{rank}\n" for q, d, rank in rows)
    (folder / "beir.tsv").write_text(beir)
    (folder / "beir.tsv.gz").write_bytes(gzip.compress(beir.encode()))
    (folder / "plain.csv").write_text("".join(f"{1000 + q},d{d},{rank}\n" for q, d, rank in rows))
    lines = ({"relevance": float(rank), "doc_id": d, "query_id": q, "iteration": "0"} for q, d, rank in rows)
    (folder / "j.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


FORMS = [
    {"queries": "q.npy", "documents": "d.npy", "qrels": "trec.txt"},
    {"queries": "q.npy", "documents": "d.npy", "qrels": "trec.tsv"},
    {"queries": "q.npy", "documents": "d.npy", "qrels": "j.jsonl"},
    {"queries": "q.npz", "documents": "d.npz", "qrels": "beir.tsv"},
    {"queries": "q.npz", "documents": "d.npz", "qrels": "beir.tsv.gz"},
    {"queries": "q.npz", "documents": "d.npy", "ids": "d-ids.txt", "qrels": "plain.csv"},
    {"queries": "q.npy", "query_ids": "q-ids.txt", "documents": "d.npz", "qrels": "plain.csv"},
    {"queries": "named/q.npy", "documents": "named/d.npy", "qrels": "plain.csv"},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_every_form_of_ids_and_judgements_says_the_same(form: dict[str, str], tmp_path: Path) -> None:
    _write(tmp_path, *planted(spoiled=True))
    files = {name: tmp_path / file for name, file in form.items()}
    found = uncone.evaluate(**files, method=["center"], resamples=200)
    plain = uncone.evaluate(**given(spoiled=True))
    assert found.results["retrieval"]["d"] == plain.results["retrieval"]["documents"]
    assert found.differences["retrieval"]["d"] == plain.differences["retrieval"]["documents"]
    assert found.provenance["d_sha256"] == plain.provenance["documents_sha256"]
    note = "Ids were read from d.ids and q.ids, next to the vectors."
    assert (note in found.notes) is form["queries"].startswith("named")


def test_numbers_counted_from_1_are_a_caution_and_row_numbers_are_said() -> None:
    own = given(spoiled=False)
    judged = {q: dict(list(of.items())[:2]) for q, of in own["qrels"].items()}
    from_1 = {q + 1: {d + 1: 1 for d in of if d < N - 1} for q, of in judged.items() if q < M - 1}
    right, wrong = (uncone.evaluate(**own | {"qrels": qrels}) for qrels in (judged, from_1))
    assert right.caution == ""
    assert wrong.caution.startswith("Matching pairs have a mean cosine of ")
    assert "the numbers of queries lowered by 1 and the numbers of documents lowered by 1" in wrong.caution
    words = "The ids of the queries and documents in qrels are read as row numbers"
    assert all(any(one.startswith(words) for one in found.notes) for found in (right, wrong))
    console = Console(file=io.StringIO(), width=400)
    print_record(wrong, console)
    assert wrong.caution in console.file.getvalue()
    ids, query_ids = ([str(i + 1) for i in range(n)] for n in (N, M))
    named = uncone.evaluate(**own | {"qrels": from_1, "ids": ids, "query_ids": query_ids})
    assert (named.caution, any("row numbers" in one for one in named.notes)) == ("", False)
    assert f"Caution: {wrong.caution}" in uncone.select_repair(**own | {"qrels": from_1}).notes


def test_a_column_of_ids_of_parquet_comes_before_its_texts(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    documents, queries, judged = planted(spoiled=False)
    for name, ids in (("numbers", np.arange(5000, 5000 + N)), ("words", [f"d{i}" for i in range(N)])):
        columns = {"text": ["same"] * N, "id": ids, "vector": list(documents)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=100)
        named = {q: {f"{5000 + d}" if name == "numbers" else f"d{d}": 1 for d in of} for q, of in judged.items()}
        file = tmp_path / f"{name}.parquet"
        found = uncone.evaluate(queries=queries, documents=file, qrels=named, method=[], resamples=200)
        expected = ndcg10(unit(queries), unit(documents), judged)
        assert found.results["retrieval"][name]["original"]["ndcg10"] == pytest.approx(expected, abs=2e-3)


def test_ids_as_a_sequence_and_words_as_ids(tmp_path: Path) -> None:
    documents, _, judged = planted(spoiled=False)
    lines = [f"w{i} " + " ".join(f"{x:.9g}" for x in row) for i, row in enumerate(documents)]
    (tmp_path / "d.vec").write_text(f"{N} {D}\n" + "\n".join(lines) + "\n")
    named = {f"q{q}": {f"w{d}": rank for d, rank in of.items()} for q, of in judged.items()}
    own = given(spoiled=False, qrels=named, query_ids=[f"q{i}" for i in range(M)], documents=tmp_path / "d.vec")
    found, plain = uncone.evaluate(**own), uncone.evaluate(**given(spoiled=False))
    same = uncone.evaluate(own.pop("documents"), **own)  # in place of documents=
    assert (found.results, found.provenance) == (same.results, same.provenance)
    assert found.results["retrieval"]["d"] == plain.results["retrieval"]["documents"]


def test_documents_that_every_repair_reads_anew_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, *planted(spoiled=True))
    own = given(spoiled=True, method=["center", "whiten"], documents=tmp_path / "d.npy")
    held = uncone.evaluate(**own)
    monkeypatch.setattr(own_vectors, "_HELD_BYTES", 0)
    streamed = uncone.evaluate(**own)
    assert (held.results, held.differences) == (streamed.results, streamed.differences)


def test_queries_without_a_relevant_document_are_counted_and_left_out() -> None:
    own = given(spoiled=False, method=[])
    few = {q: of if q % 2 else dict.fromkeys(of, 0) for q, of in own["qrels"].items() if q >= 10}
    found, whole = uncone.evaluate(**own | {"qrels": few}), uncone.evaluate(**own)
    assert of_documents(found)["n"] == 45
    assert "55 queries left out: no relevant document in qrels." in found.notes
    assert not any("left out." in note for note in whole.notes)


def test_a_query_that_is_a_document_is_not_its_own_answer() -> None:
    x = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    own: dict[str, Any] = {"queries": x[[0, 2]], "documents": x, "ids": ["a", "b", "c"], "method": []}
    asked = uncone.evaluate(**own, query_ids=["a", "c"], qrels={"a": {"b": 1}, "c": {"b": 1}})
    assert of_documents(asked)["ndcg10"] == 1.0
    others = uncone.evaluate(**own, query_ids=["x", "y"], qrels={"x": {"b": 1}, "y": {"b": 1}})
    # numbers of rows are no ids: query 0 and document 0 are two things
    for found in (others, uncone.evaluate(queries=x[:2], documents=x, qrels={0: {1: 1}, 1: {0: 1}}, method=[])):
        assert of_documents(found)["ndcg10"] == pytest.approx(1 / math.log2(3))


def test_the_fault_is_undone_and_the_healthy_twin_left(tmp_path: Path) -> None:
    documents, queries, judged = planted(spoiled=True)
    _write(tmp_path, documents, queries, judged)
    own: dict[str, Any] = {"queries": tmp_path / "q.npy", "qrels": tmp_path / "trec.txt"}
    chosen = uncone.select_repair(documents=tmp_path / "d.npy", **own)
    assert chosen.chosen.startswith("all_but_the_top")
    assert "halves of trec.txt, 50 and 50 queries" in chosen.splits
    np.save(tmp_path / "more.npy", documents[::2] + 1)
    more, y, saved = (tmp_path / name for name in ("more.npy", "y.npy", "t.safetensors"))
    found = uncone.repair(more, y, method="auto", save=saved, documents=tmp_path / "d.npy", **own)
    assert (found.selection, found.method) == (chosen, chosen.chosen)
    by_hand = repair_named(chosen.chosen, d=D).fit(documents).transform(documents[::2] + 1)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), by_hand, atol=1e-4)
    assert any(f"--load {tmp_path.name}/t.safetensors" in said for said in found.index), found.index
    assert "Only a task can show" not in found.verdict
    uncone.repair(tmp_path / "q.npy", tmp_path / "z.npy", load=saved)
    moved = repair_named(chosen.chosen, d=D).fit_transform(documents)
    after = uncone.evaluate(queries=tmp_path / "z.npy", documents=moved, qrels=judged, method=[], resamples=200)
    both = uncone.evaluate(documents=documents, method=[chosen.chosen], **own)
    assert of_documents(after)["ndcg10"] == pytest.approx(of_documents(both, chosen.chosen)["ndcg10"], abs=1e-6)
    arrays = uncone.repair(more, tmp_path / "again.npy", queries=queries, documents=documents, qrels=judged)
    assert arrays.method == chosen.chosen
    assert (tmp_path / "again.npy").read_bytes() == y.read_bytes()
    assert any("keep it with --save T.safetensors" in said for said in arrays.index), arrays.index
    documents, queries, judged = planted(spoiled=False)
    np.save(tmp_path / "healthy.npy", documents)
    left = uncone.repair(tmp_path / "healthy.npy", tmp_path / "no.npy", queries=queries, qrels=judged)
    assert isinstance(left, Selection)
    assert left.leaves_it
    assert not (tmp_path / "no.npy").exists()
    assert "50 queries cannot separate this from no change" in left.verdict


def test_a_difference_that_chance_explains_is_called_so() -> None:
    found = uncone.evaluate(**given(spoiled=False, resamples=500))
    interval = found.differences["retrieval"]["documents"]["center"]["ndcg10"]
    assert interval.low <= 0 <= interval.high
    assert found.verdict.endswith("100 queries cannot separate this from no change. Leave it as it is.")
    found = uncone.evaluate(**given(spoiled=True, method=["cluster_center"], resamples=500))
    assert found.differences["retrieval"]["documents"]["cluster_center"]["ndcg10"].high < 0
    assert "cannot separate" not in found.verdict


def test_where_the_original_is_perfect_there_is_no_room_above() -> None:
    x = np.random.default_rng(0).standard_normal((60, D))
    found = uncone.evaluate(queries=x, documents=x, qrels={at: {at: 1} for at in range(60)}, method=["center"])
    assert found.verdict == (
        "documents, retrieval: no repair helps: nDCG@10 is 1 already, the highest value. Leave it as it is."
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"qrels": {0: {9999: 1, 8888: 1, 1: 1}, 1: {7777: 1}}},
        r"the document '9999' in qrels\[0\] and 2 more \('8888' and '7777'\): the ids of 240 documents look like "
        r"'0', '1', '2'; give others with --ids FILE",
    ),
    ({"qrels": {"q1": {0: 1}}}, r"the query 'q1' in .*: the ids of 100 queries look like '0', .* --query-ids FILE"),
    ({"qrels": {0: {0: 0}, 1: {1: -1}}}, "a relevance above 0 in qrels, got none in 2 queries"),
    ({"qrels": {}}, "a relevance above 0 in qrels, got none in 0 queries"),
    ({"qrels": {0: {0: 0.5}}}, r"expected an integer in qrels\[0\], got '0.5'"),
    ({"qrels": {0: {0: math.nan}}}, r"expected an integer in qrels\[0\], got 'nan'"),
    ({"qrels": {0: {0: 1}}}, "at least 2 queries with a relevant document in documents, qrels, got 1"),
    ({"queries": np.ones((4, 9), np.float32)}, "queries of 16 features like documents, got 9 in queries: encode both"),
    ({"queries": np.full((4, D), np.nan, np.float32)}, "expected finite rows, got 4 of 4"),
    ({"ids": ["a", "b"]}, "expected 240 lines in the ids, one per row of documents, got 2"),
    ({"ids": ["a"] * N}, "expected each id once in the ids, got 239 lines that repeat an id"),
    ({"queries": None}, "--documents and --qrels together, got --qrels, --documents without --queries: add it"),
    ({"queries": None, "qrels": None}, "got --documents without --queries, --qrels: add them"),
    ({"task": "sts"}, "expected the task retrieval with --queries and --qrels, got sts"),
    ({"data": "."}, "expected either --queries and --qrels or --data, got both"),
    ({"cache": "c"}, "or --cache, got both"),
    ({"spec": "d.npy"}, "expected one set of documents, got d.npy and --documents"),
    ({"method": ["centre"]}, "expected repairs out of"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refusals(changed: dict[str, Any], message: str) -> None:
    refuses(message, uncone.evaluate, **given(spoiled=False, **changed))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a relevance above 0 in q.txt, got none in 0 queries"),
        ("0 0 5\n", "at least 2 queries with a relevant document"),
        ("0 0 5 1\n1 0 5\n", "at least 4 columns in line 2 of .*q.txt, got 3"),
        ("0 0 5 x\n1 0 5 1\n", "at least 2 queries"),  # a header
        ("0 0 5 1\n1 0 5 x\n", "an integer in line 2 of .*q.txt, got 'x'"),
        ("0\r0,5,1\n", "whose first line does not parse .* end lines with a line feed"),
        ('{"query": 1, "docid": 2}\n', "at least 3 columns in line 1 of .*q.txt"),
        ("\0\n", "at least 3 columns in line 1"),
    ],
)
def test_a_file_that_holds_no_judgements(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_bytes(content.encode())
    refuses(message, uncone.evaluate, **given(spoiled=False, qrels=tmp_path / "q.txt"))


def test_swapped_columns_are_told_by_the_ids_that_fit_the_other_side(tmp_path: Path) -> None:
    ids, query_ids = [f"d{at}" for at in range(N)], [f"q{at}" for at in range(M)]
    own = given(spoiled=False, ids=ids, query_ids=query_ids, qrels=tmp_path / "q.tsv")
    swapped = [f"d{document}\tq{query}\t1\n" for query, of in planted(spoiled=False)[2].items() for document in of]
    for more, message in (
        ("", r"expected queries before documents, got them the other way round from line 1 of .*q\.tsv on"),
        ("nobody\tq0\t1\n", "expected known ids, got the query 'd"),  # it fits neither side
    ):
        (tmp_path / "q.tsv").write_text("".join([*swapped, more]))
        refuses(message, uncone.evaluate, **own)


def test_ids_that_are_no_key_are_refused(tmp_path: Path) -> None:
    documents, *_ = planted(spoiled=False)
    np.savez(tmp_path / "d.npz", v=documents, ids=np.array(["one"] * N))
    message = "an id of its own for each row of .*d.npz#v, got 239 rows with no id or the id of another row"
    refuses(message, uncone.evaluate, **given(spoiled=False, documents=tmp_path / "d.npz"))
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"id": [None, *map(str, range(1, N))], "vector": list(documents)}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"got 1 row with no id or the id of another row: .* --ids FILE"):
        uncone.evaluate(**given(spoiled=False, documents=tmp_path / "d.parquet"))


def test_what_repair_refuses_with_own_judgements(tmp_path: Path) -> None:
    documents, queries, judged = planted(spoiled=True)
    np.save(tmp_path / "d.npy", documents)
    np.save(tmp_path / "wide.npy", np.ones((5, D + 1), np.float32))
    own: dict[str, Any] = {"queries": queries, "qrels": judged, "documents": documents}
    for changed, message in (
        ({"method": "center"}, "expected no --method with --queries, got center: the judgements choose"),
        ({"fit_on": "d.npy"}, "expected no --fit-on with --queries"),
        ({"load": "t.safetensors"}, "expected no --load with --queries"),
        ({"counts": "c.npy"}, "expected no --counts with --queries"),
        ({"queries": None}, "got --documents, --qrels without --queries|--qrels, --documents without --queries"),
        ({"documents": np.ones((5, D + 1), np.float32)}, "expected documents of 16 features like .*d.npy, got 17"),
    ):
        refuses(message, uncone.repair, tmp_path / "d.npy", tmp_path / "y.npy", **own | changed)
    np.save(tmp_path / "q.npy", queries)
    with pytest.raises(InputError, match="expected an output file other than the input"):
        uncone.repair(tmp_path / "d.npy", tmp_path / "q.npy", queries=tmp_path / "q.npy", qrels=judged, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.npy", "q.npy", "wide.npy"]


def test_what_was_fitted_is_fitted_on_the_documents_alone() -> None:
    """The mean of the queries, far away, takes no part."""
    documents, queries, judged = planted(spoiled=False)
    far = queries + 100
    found = uncone.evaluate(**given(spoiled=False, queries=far))
    center = Center().fit(documents)
    expected = ndcg10(unit(center.transform(far)), unit(center.transform(documents)), judged)
    assert of_documents(found, "center")["ndcg10"] == pytest.approx(expected, abs=2e-3)
