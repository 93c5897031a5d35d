"""`evaluate` and `select_repair` from end to end, on texts whose likeness is planted."""

import io
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from tests.evaluation.planted_texts import write_retrieval, write_sts, write_word_vectors
from uncone.errors import InputError
from uncone.evaluation.encoding import open_encoding
from uncone.evaluation.evaluate import evaluate
from uncone.evaluation.fitting import is_affine
from uncone.evaluation.record import Evaluation, Interval, Selection
from uncone.evaluation.results import silent, verdict
from uncone.evaluation.select_repair import select_repair
from uncone.model.open import open_rows
from uncone.records.load import load_record
from uncone.report import print_record
from uncone.rows import as_rows
from uncone.transforms import REPAIRS, repair_named

refused = partial(pytest.raises, InputError)

FEW = ["center", "all_but_the_top_2", "standardize"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spoiled and healthy word vectors, STS pairs, and retrieval data."""
    folder = tmp_path_factory.mktemp("planted")
    write_word_vectors(folder / "spoiled.vec", spoiled=True)
    write_word_vectors(folder / "healthy.vec", spoiled=False)
    write_sts(folder / "sts")
    write_retrieval(folder / "retrieval")
    write_retrieval(folder / "halves", train=False, queries=120)
    return folder


def test_sts_names_the_repair_that_undoes_the_fault(planted: Path) -> None:
    found = evaluate(planted / "spoiled.vec", task="sts", data=planted / "sts", method=FEW, resamples=300)
    numbers = found.results["sts"]["stsb"]
    assert list(numbers) == ["original", *FEW]
    expected = numbers["all_but_the_top_2"]["spearman_cosine"] - numbers["original"]["spearman_cosine"]
    change = found.differences["sts"]["stsb"]["all_but_the_top_2"]["spearman_cosine"]
    assert change.difference == pytest.approx(expected)
    assert expected > 10
    assert change.low > 0
    assert "all_but_the_top_2 does best" in found.verdict
    assert numbers["original"]["n"] == 120
    price = found.prices["stsb"]["center"]
    assert (price.fitted_n, price.fitted_on) == (120, "all rows of the table")
    assert found.provenance["encoder"] == "mean of word vectors"


def test_means_over_subsets_have_intervals_in_json_and_print(planted: Path, tmp_path: Path) -> None:
    lines = (planted / "sts" / "stsb_test.tsv").read_text().splitlines()[1:]
    for name, subsets in (("sts12", "ab"), ("sts13", "abc")):
        rows = [f"{line}\t{subsets[at % len(subsets)]}" for at, line in enumerate(lines)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence1\tsentence2\tscore\tsubset", *rows]) + "\n")
    (tmp_path / "stsb_test.tsv").write_text((planted / "sts" / "stsb_test.tsv").read_text())
    found = evaluate(planted / "spoiled.vec", task="sts", data=tmp_path, method=FEW, resamples=300)
    mean = "spearman_cosine_subset_mean"
    for name in ("sts12", "sts13"):
        numbers = found.results["sts"][name]
        for repair in FEW:
            interval = found.differences["sts"][name][repair][mean]
            assert interval.difference == pytest.approx(numbers[repair][mean] - numbers["original"][mean], abs=1e-9)
            assert interval.low <= interval.difference <= interval.high
        assert found.differences["sts"][name]["all_but_the_top_2"][mean].low > 0
    assert mean not in found.differences["sts"]["stsb"]["center"]
    text = io.StringIO()
    print_record(Evaluation.from_json(found.to_json()), Console(file=text, width=80, highlight=False))
    printed = text.getvalue().partition("mean over the subsets of each set\n")[2].splitlines()
    assert printed[0].split() == ["repair", "sts12", "sts13", "mean"]  # the benchmark has no subsets
    row = next(line.split() for line in printed if line.startswith("all_but_the_top_2"))
    assert row[1].endswith("+")


def test_a_subset_too_small_for_an_interval_leaves_the_others(planted: Path, tmp_path: Path) -> None:
    lines = (planted / "sts" / "stsb_test.tsv").read_text().splitlines()[1:]
    for first, has_mean in ((2, True), (1, False)):
        rows = [f"{line}\t{'b' if at >= first else 'a'}" for at, line in enumerate(lines)]
        (tmp_path / "sts12.tsv").write_text("\n".join(["sentence1\tsentence2\tscore\tsubset", *rows]) + "\n")
        found = evaluate(planted / "spoiled.vec", task="sts", data=tmp_path, method=["center"], resamples=300)
        assert set(found.differences["sts"]["sts12"]["center"]) >= {"spearman_cosine", "pearson_cosine"}
        assert "spearman_cosine_subset_mean" not in found.differences["sts"]["sts12"]["center"]
        assert (found.results["sts"]["sts12"]["center"]["spearman_cosine_subset_mean"] is not None) == has_mean


def test_sts_is_computed_from_the_vectors_by_hand(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", method=["center"], resamples=100)
    lines = (planted / "healthy.vec").read_text().splitlines()[1:]
    vectors = {line.split()[0]: np.array(line.split()[1:], float) for line in lines}
    rows = [line.split("\t") for line in (planted / "sts" / "stsb_test.tsv").read_text().splitlines()[1:]]

    def mean(text: str) -> np.ndarray:
        return np.mean([vectors[word] for word in text.split()], axis=0)

    for repair, shift in (("original", 0.0), ("center", np.mean(list(vectors.values()), axis=0))):
        pairs = [(mean(a) - shift, mean(b) - shift) for a, b, _ in rows]
        cosine = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in pairs]
        expected = 100 * scipy.stats.spearmanr(cosine, [float(score) for _, _, score in rows])[0]
        assert found.results["sts"]["stsb"][repair]["spearman_cosine"] == pytest.approx(expected, abs=0.05)


def test_retrieval_and_its_record(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    given = {"task": "retrieval", "data": planted / "retrieval", "resamples": 300}
    found = evaluate(planted / "spoiled.vec", method=[*FEW, "whiten_pca"], **given)
    numbers = found.results["retrieval"]["retrieval"]
    ways = ("", "_inner", "_inner_documents")
    names = {f"{one}{way}" for one in ("ndcg10", "recall10", "recall100") for way in ways}
    assert set(numbers["center"]) == {*names, "n"}
    assert "ndcg10_inner_documents" not in numbers["whiten_pca"]
    # Subtracting one vector from the documents alone moves all scores of a query alike.
    assert numbers["center"]["ndcg10_inner_documents"] == pytest.approx(numbers["original"]["ndcg10_inner"], abs=0.02)
    assert numbers["all_but_the_top_2"]["ndcg10"] > numbers["original"]["ndcg10"]
    assert numbers["original"]["n"] == 40
    found.save(tmp_path / "e.json")
    assert Evaluation.load(tmp_path / "e.json") == found
    assert load_record(tmp_path / "e.json") == found
    assert json.loads((tmp_path / "e.json").read_text())["results"]["retrieval"]["retrieval"]["center"]["n"] == 40


def test_ann_of_texts_and_of_stored_vectors(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    x = np.random.default_rng(0).standard_normal((220, 8)).astype(np.float32) + 5
    np.save(tmp_path / "x.npy", x)
    ann = partial(evaluate, tmp_path / "x.npy", task="ann", resamples=200)
    found = ann(method=["center"])
    assert list(found.results["ann"]) == ["int8", "int8_uniform", "binary", "binary_hamming"]
    assert any("Product quantisation is left out: it needs 256 documents, got 198" in note for note in found.notes)
    binary = found.results["ann"]["binary"]
    one = ann(method=["center"], quantisers=["binary"])
    assert one.results["ann"] == {"binary": binary}
    assert not any("Product quantisation" in note for note in one.notes)
    for quantisers, wrong in {("int4",): "expected quantisers out of int8, .*, got 'int4'", (): "got none"}.items():
        with refused(match=wrong):
            ann(quantisers=quantisers)
    with refused(match=r"at least 256 documents for pq \(8 bits\), got 198"):
        ann(quantisers=["pq"])
    assert binary["original"]["n"] == 22
    assert binary["center"]["recall10_own"] > binary["original"]["recall10_own"] + 0.1
    assert found.results["ann"]["int8"]["original"]["recall10"] > 0.9
    assert "recall10_inner_documents" not in found.results["ann"]["binary_hamming"]["center"]
    ways = {"recall10", "recall10_own", "recall10_inner", "recall10_inner_documents"}
    assert found.differences["ann"]["binary"]["center"].keys() == ways
    assert binary["original"]["recall10_inner"] == binary["original"]["recall10_inner_documents"]
    turned = ann(method=["whiten_pca", "center"]).results["ann"]
    assert turned["binary"]["center"] == binary["center"]
    assert "recall10_inner" in turned["binary"]["whiten_pca"].keys() - {"recall10_inner_documents"}
    order = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(220)[:22])
    asked, stored = x[order], np.delete(x, order, axis=0)
    middle = stored.mean(0)
    signs = np.where(stored - middle > 0, 1.0, -1.0)
    ten = [set(np.argsort(-(stored @ one))[:10]) for one in asked]
    found_ten = [set(np.argsort(-(signs @ (one - middle)), kind="stable")[:10]) for one in asked]
    by_hand = np.mean([len(a & b) / 10 for a, b in zip(ten, found_ten, strict=True)])
    assert binary["center"]["recall10_inner"] == pytest.approx(by_hand, abs=0.01)
    assert found.provenance["documents_sha256"] != found.provenance["queries_sha256"]
    np.save(tmp_path / "q.npy", x[:5])
    assert ann(queries=tmp_path / "q.npy", method=[]).provenance["queries"] == 5
    assert ann(queries=x[:5], method=[]).provenance["queries"] == 5
    with refused(match=r"the queries of ann of stored vectors as --queries \(queries=\), got --data: leave it out"):
        ann(data=tmp_path / "q.npy")
    with refused(
        match=r"expected --queries of ann with a file of vectors, got them with .*retrieval: name the directory"
    ):
        evaluate(planted / "retrieval", task="ann", queries=x[:5])
    np.save(tmp_path / "wide.npy", np.ones((5, 9), np.float32))
    with refused(match="at least two queries of 8 features, got shape"):
        evaluate(tmp_path / "x.npy", task="ann", queries=tmp_path / "wide.npy")


def test_what_cannot_be_fitted_is_said_and_left_out(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 9)).astype(np.float32))
    found = evaluate(tmp_path / "x.npy", task="ann", method=["center", "whiten"], resamples=100)
    assert list(found.results["ann"]["binary"]) == ["original", "center"]
    assert any(note.startswith("whiten is left out: expected at least 45 rows") for note in found.notes)
    given = {"task": "sts", "data": planted / "sts", "resamples": 100}
    found = evaluate(planted / "healthy.vec", method=["center", "scaled_center"], **given)
    assert list(found.results["sts"]["stsb"]) == ["original", "center"]
    assert any(note.startswith("stsb: scaled_center is left out: it is not affine") for note in found.notes)


def test_a_text_is_the_mean_of_its_repaired_words(planted: Path) -> None:
    """Repairing means of words is repairing the words, texts without a known word included."""
    encoding = open_encoding(planted / "spoiled.vec")
    texts = ["t0w0 t3w4 t3w5", "nothing known", "t1w1"]
    vectors = encoding.texts(texts)
    fitted = encoding.fit(["all_but_the_top_original_2", "whiten"], vectors, fitted_on="", tick=silent)
    rows = open_rows(planted / "spoiled.vec")
    table = np.concatenate(list(rows.blocks()))
    place = {label: at for at, label in enumerate(rows.labels)}
    for name in ("all_but_the_top_original_2", "whiten"):
        words = repair_named(name, d=16).fit(as_rows(table)).transform(table)
        rows_of = [[place[word] for word in text.split() if word in place] for text in texts]
        expected = [words[rows].mean(0) if rows else np.zeros(16) for rows in rows_of]
        assert fitted.apply(name, vectors).cosine == pytest.approx(np.array(expected), abs=2e-4)


def test_pairs_with_a_sentence_of_no_known_word_are_left_out_and_told(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    for split in ("train", "dev", "test"):
        lines = (planted / "sts" / f"stsb_{split}.tsv").read_text()
        (tmp_path / "sts" / f"stsb_{split}.tsv").write_text(f"{lines}nothing known\tt1w1 t1w2\t3\nt1w1\tnothing\t2\n")
    sts = partial(evaluate, planted / "spoiled.vec", task="sts", method=["center"], resamples=300)
    whole, more = (sts(data=folder / "sts") for folder in (planted, tmp_path))
    assert (more.results, more.differences) == (whole.results, whole.differences)
    assert "stsb: 2 pairs left out, as a sentence has no direction." in more.notes
    assert not any("no direction" in note for note in whole.notes)
    found = select_repair(planted / "spoiled.vec", task="sts", data=tmp_path / "sts", method=FEW, resamples=1000)
    assert (found.chosen, found.development_n, found.test_n) == ("all_but_the_top_2", 120, 120)
    assert "2 development pairs left out: a sentence has no direction." in found.notes
    (tmp_path / "sts/stsb_test.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nt1w1\td\t2\n")
    with refused(match="at least two pairs of stsb with a direction, got 0"):
        sts(data=tmp_path / "sts")


def test_selection_finds_the_fault_and_leaves_the_healthy_twin(planted: Path, tmp_path: Path) -> None:
    select = partial(select_repair, task="sts", data=planted / "sts", method=FEW, resamples=1000)
    found = select(planted / "spoiled.vec")
    assert (found.chosen, found.candidate, found.leaves_it) == ("all_but_the_top_2", "all_but_the_top_2", False)
    assert found.test.low > 0
    assert found.test.level == 0.95
    assert found.development["center"].level == pytest.approx(1 - 0.05 / 3)
    assert {"development_sha256", "test_sha256", "encoder_sha256", "seed", "versions"} <= found.provenance.keys()
    assert found.verdict.startswith("Repair ")
    found.save(tmp_path / "s.json")
    assert Selection.load(tmp_path / "s.json") == found
    healthy = select(planted / "healthy.vec")
    assert healthy.leaves_it
    assert "as it is" in healthy.verdict


def test_selection_by_retrieval_on_train_queries_or_halves(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    select = partial(select_repair, planted / "spoiled.vec", task="retrieval", method=FEW, resamples=1000)
    found = select(data=planted / "retrieval")
    assert found.chosen == "all_but_the_top_2"
    assert "the 40 queries of qrels/train.tsv" in found.splits
    shutil.copytree(planted / "retrieval", tmp_path / "shared")
    rows = [(tmp_path / "shared/qrels" / f"{split}.tsv").read_text().splitlines() for split in ("train", "test")]
    (tmp_path / "shared/qrels/train.tsv").write_text("\n".join([*rows[0], *rows[1][1:]]) + "\n")
    shared = select(data=tmp_path / "shared")
    assert (shared.splits, shared.development, shared.test) == (found.splits, found.development, found.test)
    halves = select(data=planted / "halves")
    assert "halves of qrels/test.tsv, 30 and 30" in halves.splits
    assert halves.development_n == 30


def test_what_is_chosen_from_can_be_written_into_a_model() -> None:
    assert {name for name in REPAIRS if not is_affine(name)} == {"scaled_center", "cluster_center"}


def test_selection_that_a_test_does_not_confirm(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Development and test disagree: the answer is to leave it."""
    intervals = (Interval(0.1, 0.05, 0.2), Interval(0.01, -0.05, 0.06))
    first, second = (
        SimpleNamespace(n=50, original=0.5, scores={"original": 0, "center": 0}, differences=lambda *_, one=one: one)
        for one in ({"center": interval} for interval in intervals)
    )
    chosen = lambda *_: (first, lambda: second, "", (), (), {})  # noqa: E731
    monkeypatch.setattr(sys.modules[select_repair.__module__], "_sts", chosen)
    found = select_repair(planted / "healthy.vec", task="sts", data=planted / "sts")
    assert (found.candidate, found.chosen) == ("center", "original")
    assert found.verdict.endswith(
        "chose center, but on the test split it changes Spearman x 100 by +0.01 (-0.05 to +0.06). "
        "50 pairs cannot separate this from no change."
    )


def test_a_selection_names_what_its_repair_lowers(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(low: float, **others: float) -> SimpleNamespace:
        one = Interval(low + 0.1, low, low + 0.2)
        more = {name: split(value) for name, value in others.items()}
        of = {"n": 50, "original": 0.5, "scores": {"original": 0, "center": 0}, "others": more}
        return SimpleNamespace(differences=lambda *_: {"center": one}, **of)

    test = split(0.1, recall10=-0.1, recall100=-0.5)
    chosen = lambda *_: (split(0.1), lambda: test, "", (), (), {})  # noqa: E731
    monkeypatch.setattr(sys.modules[select_repair.__module__], "_sts", chosen)
    found = select_repair(planted / "healthy.vec", task="sts", data=planted / "sts")
    assert found.chosen == "center"
    assert found.verdict.endswith(" (+0.10 to +0.30). But beyond chance it lowers recall@100 of the cosine by 0.4000.")


def test_refusals(planted: Path, tmp_path: Path) -> None:
    words, sts = planted / "healthy.vec", planted / "sts"
    with refused(match=r"expected repairs out of center, .* got 'centre'"):
        evaluate(words, task="sts", data=sts, method=["centre"])
    with refused(match=r"expected repairs out of center, .* got 'centre'"):
        evaluate(words, task="sts", data=sts, method="centre")
    with refused(match="a directory or a table of data for the task sts, got none: name it with --data"):
        evaluate(words, task="sts", data=None)
    with refused(match="no file or folder"):
        evaluate(tmp_path / "nowhere", task="sts", data=sts)
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "stsb_test.tsv").write_bytes((sts / "stsb_test.tsv").read_bytes())
    with refused(match=r"training and development parts of the STS Benchmark .* got the test part alone"):
        select_repair(words, task="sts", data=tmp_path / "sts")
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    few = write_retrieval(tmp_path / "few", queries=10)
    with refused(match="at least 20 development queries to choose a repair by, got 5"):
        select_repair(words, task="retrieval", data=few)


def test_vectors_that_are_not_finite_are_refused(planted: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    np.save(tmp_path / "whole.npy", x)
    x[7, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    message = r"expected finite rows, got 1 of 300 with NaN or inf in .*x.npy \(the first is row 7\)"
    for spec, queries in (("x.npy", None), ("whole.npy", tmp_path / "x.npy")):
        with refused(match=message):
            evaluate(tmp_path / spec, task="ann", queries=queries, method=["center"])
    (tmp_path / "w.vec").write_text("2 2\nt1w1 nan 1\nt1w2 1 2\n")
    (tmp_path / "men3000.tsv").write_text("word1\tword2\tscore\nt1w1\tt1w2\t3\n")
    for task, data in (("sts", planted / "sts"), ("wordsim", tmp_path)):
        with refused(match="expected finite rows, got 1 of 2 with NaN or inf"):
            evaluate(tmp_path / "w.vec", task=task, data=data, method=["center"])


def test_verdicts() -> None:
    up, flat, down = Interval(0.02, 0.01, 0.03), Interval(0.01, -0.01, 0.03), Interval(-0.1, -0.2, -0.05)

    def said(*intervals: Interval, others: int = 0) -> str:
        differences: dict[str, dict[str, dict[str, Interval]]] = {}
        for at, one in enumerate(intervals):
            worse = Interval(one.difference - 1, one.low - 1, one.high - 1)
            repairs = {"center": one, **{f"r{other}": worse for other in range(others)}}
            differences[f"s{at}"] = {name: {"ndcg10": interval} for name, interval in repairs.items()}
        return verdict("m", "retrieval", "ndcg10", differences)

    assert said(up) == "m, retrieval: center changes nDCG@10 by +0.0200 (95%: +0.0100 to +0.0300)."
    best = "m, retrieval: of 3 repairs, center does best. It changes nDCG@10 by +0.0200 (95%"
    assert said(up, others=2).startswith(best)
    assert "no repair helps. The best, center, changes" in said(flat)
    assert said(flat).endswith("Leave it as it is.")
    assert said(up, flat, down) == (
        "m, retrieval: no repair helps on average. The best, center, changes nDCG@10 by -0.0233 on average over 3 "
        "sets (95%, at the widest: -0.0667 to +0.0033). Beyond chance it rises on s0 and falls on s2."
    )
    assert said(flat, flat).endswith(
        "on average over 2 sets (95%, at the widest: -0.0100 to +0.0300), on none beyond chance. Leave it as it is."
    )
    two = {"wide": {"ndcg10": Interval(0.03, -0.01, 0.07)}, "narrow": {"ndcg10": up}}
    assert verdict("m", "retrieval", "ndcg10", {"s": two}) == (
        "m, retrieval: of 2 repairs, narrow does best of those that rise beyond chance. It changes nDCG@10 by +0.0200 "
        "(95%: +0.0100 to +0.0300). It was picked on these same queries, so its gain is optimistic: --method auto "
        "tests it on others."
    )
    pairs = {"s": {r: {"spearman_cosine": up} for r in "ab"}}
    assert "--method auto" not in verdict("m", "wordsim", "spearman_cosine", pairs)
    assert said() == "m, retrieval: no repair could be compared with the original."


def test_the_headline_names_every_number_that_falls() -> None:
    up, flat, down = Interval(0.02, 0.01, 0.03), Interval(-0.01, -0.03, 0.01), Interval(-0.1, -0.2, -0.05)
    falls = {"ndcg10": up, "recall10": flat, "recall100": down, "ndcg10_inner": down}
    said = verdict("m", "retrieval", "ndcg10", {"s": {"center": falls, "whiten": {"ndcg10": flat, "recall10": down}}})
    assert (
        "center does best. It changes nDCG@10 by +0.0200 (95%: +0.0100 to +0.0300). But beyond chance it lowers "
        in said
    )
    assert "lowers recall@100 of the cosine by 0.1000 and nDCG@10 of the inner product by 0.1000. It was picked" in said
    sets = {
        name: {"center": {"spearman_cosine": one, "pearson_cosine": down}} for name, one in (("a", up), ("b", down))
    }
    sets["a"]["center"]["spearman_cosine"] = Interval(2.0, 1.0, 3.0)
    said = verdict("m", "sts", "spearman_cosine", sets)
    assert said.endswith(
        "rises on a and falls on b. But beyond chance it lowers Pearson x 100 of the cosine on a and b."
    )
    assert "lowers" not in verdict("m", "retrieval", "ndcg10", {"s": {"center": {"ndcg10": up, "recall10": flat}}})


def test_a_record_that_was_edited(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", method=["center"], resamples=100)
    for path, value, message in (
        (("results", "center", "n"), "many", r"finite number or null at results\.sts\.stsb\.center\.n, got 'many'"),
        (("differences", "center", "spearman_cosine", "low"), 1e9, "an interval from low to high"),
    ):
        data = json.loads(found.to_json())
        of = data[path[0]]["sts"]["stsb"]
        for name in path[1:-1]:
            of = of[name]
        of[path[-1]] = value
        with refused(match=message):
            Evaluation.from_json(json.dumps(data))


def test_all_repairs_by_default(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", resamples=100)
    assert list(found.repairs()) == ["original", *filter(is_affine, REPAIRS)]


def test_vectors_in_memory_are_no_spec_of_a_task_with_texts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a path as the spec of wordsim, got ndarray: write the vectors"):
        evaluate(np.ones((40, 3)), task="wordsim", data=tmp_path)
