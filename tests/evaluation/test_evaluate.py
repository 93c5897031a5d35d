"""`evaluate` and `select_repair` from end to end, on texts whose likeness is planted."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from tests.evaluation.planted_texts import write_retrieval, write_sts, write_word_vectors
from uncone.errors import InputError
from uncone.evaluation.evaluate import evaluate
from uncone.evaluation.fitting import is_affine
from uncone.evaluation.record import Evaluation, Interval, Selection
from uncone.evaluation.results import verdict
from uncone.evaluation.select_repair import select_repair
from uncone.records.load import load_record
from uncone.report import print_record
from uncone.transforms import REPAIRS

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
    found = evaluate(planted / "spoiled.vec", task="sts", data=planted / "sts", repairs=FEW, resamples=300)
    numbers = found.results["sts"]["stsb"]
    assert list(numbers) == ["original", *FEW]
    assert numbers["all_but_the_top_2"]["spearman_cosine"] > numbers["original"]["spearman_cosine"] + 10
    change = found.differences["sts"]["stsb"]["all_but_the_top_2"]["spearman_cosine"]
    assert change.low > 0
    expected = numbers["all_but_the_top_2"]["spearman_cosine"] - numbers["original"]["spearman_cosine"]
    assert change.difference == pytest.approx(expected)
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
    found = evaluate(planted / "spoiled.vec", task="sts", data=tmp_path, repairs=FEW, resamples=300)
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
        found = evaluate(planted / "spoiled.vec", task="sts", data=tmp_path, repairs=["center"], resamples=300)
        assert set(found.differences["sts"]["sts12"]["center"]) >= {"spearman_cosine", "pearson_cosine"}
        assert "spearman_cosine_subset_mean" not in found.differences["sts"]["sts12"]["center"]
        assert (found.results["sts"]["sts12"]["center"]["spearman_cosine_subset_mean"] is not None) == has_mean


def test_sts_is_computed_from_the_vectors_by_hand(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", repairs=["center"], resamples=100)
    lines = (planted / "healthy.vec").read_text().splitlines()[1:]
    vectors = {line.split()[0]: np.array(line.split()[1:], float) for line in lines}
    rows = [line.split("\t") for line in (planted / "sts" / "stsb_test.tsv").read_text().splitlines()[1:]]

    def mean(text: str) -> np.ndarray:
        return np.mean([vectors[word] for word in text.split()], axis=0)

    center = np.mean(list(vectors.values()), axis=0)
    for repair, shift in (("original", 0.0), ("center", center)):
        pairs = [(mean(a) - shift, mean(b) - shift) for a, b, _ in rows]
        cosine = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in pairs]
        expected = 100 * scipy.stats.spearmanr(cosine, [float(score) for _, _, score in rows])[0]
        assert found.results["sts"]["stsb"][repair]["spearman_cosine"] == pytest.approx(expected, abs=0.05)


def test_retrieval_and_its_record(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    found = evaluate(
        planted / "spoiled.vec",
        task="retrieval",
        data=planted / "retrieval",
        repairs=[*FEW, "whiten_pca"],
        resamples=300,
    )
    numbers = found.results["retrieval"]["retrieval"]
    assert set(numbers["center"]) == {
        "ndcg10",
        "recall10",
        "recall100",
        "ndcg10_inner",
        "recall10_inner",
        "recall100_inner",
        "ndcg10_inner_documents",
        "recall10_inner_documents",
        "recall100_inner_documents",
        "n",
    }
    assert "ndcg10_inner_documents" not in numbers["whiten_pca"]
    # Subtracting one vector from the documents alone moves all scores of a query alike.
    assert numbers["center"]["ndcg10_inner_documents"] == pytest.approx(numbers["original"]["ndcg10_inner"], abs=0.02)
    assert numbers["all_but_the_top_2"]["ndcg10"] > numbers["original"]["ndcg10"]
    assert numbers["original"]["n"] == 40
    found.save(tmp_path / "e.json")
    assert Evaluation.load(tmp_path / "e.json") == found
    assert load_record(tmp_path / "e.json") == found
    data = json.loads((tmp_path / "e.json").read_text())
    assert data["results"]["retrieval"]["retrieval"]["center"]["n"] == 40


def test_ann_of_texts_and_of_stored_vectors(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    x = np.random.default_rng(0).standard_normal((220, 8)).astype(np.float32) + 5
    np.save(tmp_path / "x.npy", x)
    found = evaluate(tmp_path / "x.npy", task="ann", data=None, repairs=["center"], resamples=200)
    assert list(found.results["ann"]) == ["int8", "int8_uniform", "binary", "binary_hamming"]
    assert any("Product quantisation is left out: it needs 256 documents, got 198" in note for note in found.notes)
    binary = found.results["ann"]["binary"]
    assert binary["original"]["n"] == 22
    assert binary["center"]["recall10_own"] > binary["original"]["recall10_own"] + 0.1
    assert found.results["ann"]["int8"]["original"]["recall10"] > 0.9
    hamming = found.results["ann"]["binary_hamming"]
    assert "recall10_inner_documents" not in hamming["center"]
    assert found.differences["ann"]["binary"]["center"].keys() == {
        "recall10",
        "recall10_own",
        "recall10_inner",
        "recall10_inner_documents",
    }
    assert binary["original"]["recall10_inner"] == binary["original"]["recall10_inner_documents"]
    turned = evaluate(
        tmp_path / "x.npy", task="ann", data=None, repairs=["whiten_pca", "center"], resamples=200
    ).results["ann"]
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
    assert (
        evaluate(tmp_path / "x.npy", task="ann", data=tmp_path / "q.npy", repairs=[], resamples=200).provenance[
            "queries"
        ]
        == 5
    )
    np.save(tmp_path / "wide.npy", np.ones((5, 9), np.float32))
    with pytest.raises(InputError, match="at least two queries of 8 features, got shape"):
        evaluate(tmp_path / "x.npy", task="ann", data=tmp_path / "wide.npy")


def test_what_cannot_be_fitted_is_said_and_left_out(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 9)).astype(np.float32))
    found = evaluate(tmp_path / "x.npy", task="ann", data=None, repairs=["center", "whiten"], resamples=100)
    assert list(found.results["ann"]["binary"]) == ["original", "center"]
    assert any(note.startswith("whiten is left out: expected at least 45 rows") for note in found.notes)
    found = evaluate(
        planted / "healthy.vec", task="sts", data=planted / "sts", repairs=["center", "scaled_center"], resamples=100
    )
    assert list(found.results["sts"]["stsb"]) == ["original", "center"]
    assert (
        "stsb: scaled_center is left out: it is not affine, so means of repaired words are not repaired means."
        in found.notes
    )


def test_a_text_is_the_mean_of_its_repaired_words(planted: Path) -> None:
    """Repairing means of words is repairing the words, texts without a known word included."""
    from uncone.evaluation.encoding import open_encoding
    from uncone.model.open import open_rows
    from uncone.rows import as_rows
    from uncone.transforms import repair_named

    encoding = open_encoding(planted / "spoiled.vec")
    texts = ["t0w0 t3w4 t3w5", "nothing known", "t1w1"]
    vectors = encoding.texts(texts)
    fitted = encoding.fit(["all_but_the_top_original_2", "whiten"], vectors, fitted_on="")
    rows = open_rows(planted / "spoiled.vec")
    table = np.concatenate(list(rows.blocks()))
    place = {label: at for at, label in enumerate(rows.labels or ())}
    for name in ("all_but_the_top_original_2", "whiten"):
        words = repair_named(name, d=16).fit(as_rows(table)).transform(table)
        expected = [
            words[[place[word] for word in text.split()]].mean(0) if "t" in text[0] else np.zeros(16) for text in texts
        ]
        assert fitted.apply(name, vectors).cosine == pytest.approx(np.array(expected), abs=2e-4)


def test_pairs_with_a_sentence_of_no_known_word_are_left_out_and_told(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    for split in ("train", "dev", "test"):
        lines = (planted / "sts" / f"stsb_{split}.tsv").read_text()
        (tmp_path / "sts" / f"stsb_{split}.tsv").write_text(f"{lines}nothing known\tt1w1 t1w2\t3\nt1w1\tnothing\t2\n")
    whole, more = (
        evaluate(planted / "spoiled.vec", task="sts", data=data, repairs=["center"], resamples=300)
        for data in (planted / "sts", tmp_path / "sts")
    )
    assert more.results == whole.results
    assert more.differences == whole.differences
    assert "stsb: 2 pairs with a sentence of no direction: left out." in more.notes
    assert not any("no direction" in note for note in whole.notes)
    found = select_repair(planted / "spoiled.vec", task="sts", data=tmp_path / "sts", repairs=FEW, resamples=1000)
    assert (found.chosen, found.development_n, found.test_n) == ("all_but_the_top_2", 120, 120)
    assert "2 development pairs with a sentence of no direction: left out." in found.notes
    (tmp_path / "sts/stsb_test.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nt1w1\td\t2\n")
    with pytest.raises(InputError, match="at least two pairs of stsb with a direction, got 0"):
        evaluate(planted / "spoiled.vec", task="sts", data=tmp_path / "sts", repairs=["center"])


def test_selection_finds_the_fault_and_leaves_the_healthy_twin(planted: Path, tmp_path: Path) -> None:
    found = select_repair(planted / "spoiled.vec", task="sts", data=planted / "sts", repairs=FEW, resamples=1000)
    assert found.chosen == found.candidate == "all_but_the_top_2"
    assert not found.leaves_it
    assert found.test is not None
    assert found.test.low > 0
    assert found.test.level == 0.95
    assert found.development["center"].level == pytest.approx(1 - 0.05 / 3)
    assert {"development_sha256", "test_sha256", "encoder_sha256", "seed", "versions"} <= found.provenance.keys()
    assert found.verdict.startswith("Repair ")
    found.save(tmp_path / "s.json")
    assert Selection.load(tmp_path / "s.json") == found
    healthy = select_repair(planted / "healthy.vec", task="sts", data=planted / "sts", repairs=FEW, resamples=1000)
    assert healthy.leaves_it
    assert "as it is" in healthy.verdict


def test_selection_by_retrieval_on_train_queries_or_halves(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    found = select_repair(
        planted / "spoiled.vec", task="retrieval", data=planted / "retrieval", repairs=FEW, resamples=1000
    )
    assert found.chosen == "all_but_the_top_2"
    assert "the 40 queries of qrels/train.tsv" in found.splits
    shutil.copytree(planted / "retrieval", tmp_path / "shared")
    rows = [(tmp_path / "shared/qrels" / f"{split}.tsv").read_text().splitlines() for split in ("train", "test")]
    (tmp_path / "shared/qrels/train.tsv").write_text("\n".join([*rows[0], *rows[1][1:]]) + "\n")
    shared = select_repair(
        planted / "spoiled.vec", task="retrieval", data=tmp_path / "shared", repairs=FEW, resamples=1000
    )
    assert shared.splits == found.splits
    assert (shared.development, shared.test) == (found.development, found.test)
    halves = select_repair(
        planted / "spoiled.vec", task="retrieval", data=planted / "halves", repairs=FEW, resamples=1000
    )
    assert "halves of qrels/test.tsv, 30 and 30" in halves.splits
    assert halves.development_n == 30


def test_what_is_chosen_from_can_be_written_into_a_model() -> None:
    assert {name for name in REPAIRS if not is_affine(name)} == {"scaled_center", "cluster_center"}


def test_selection_that_a_test_does_not_confirm(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Development and test disagree: the answer is to leave it."""
    import importlib

    module = importlib.import_module("uncone.evaluation.select_repair")
    first = module._Split(50, 0.5, ("center",), lambda names, level: {"center": Interval(0.1, 0.05, 0.2)})
    second = module._Split(50, 0.5, ("center",), lambda names, level: {"center": Interval(0.01, -0.05, 0.06)})
    monkeypatch.setattr(module, "_sts", lambda *_: (first, lambda: second, "", (), (), {}))
    found = select_repair(planted / "healthy.vec", task="sts", data=planted / "sts")
    assert (found.candidate, found.chosen) == ("center", "original")
    assert found.verdict.endswith(
        "chose center, but on the test split it changes Spearman x 100 by +0.01 (-0.05 to +0.06). "
        "That is no difference that 50 pairs can show."
    )


def test_refusals(planted: Path, tmp_path: Path) -> None:
    words, sts = planted / "healthy.vec", planted / "sts"
    with pytest.raises(InputError, match=r"expected repairs out of center, .* got 'centre'"):
        evaluate(words, task="sts", data=sts, repairs=["centre"])
    with pytest.raises(
        InputError, match="a directory or a table of data for the task sts, got none: name it with --data"
    ):
        evaluate(words, task="sts", data=None)
    with pytest.raises(InputError, match="no file or folder"):
        evaluate(tmp_path / "nowhere", task="sts", data=sts)
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "stsb_test.tsv").write_bytes((sts / "stsb_test.tsv").read_bytes())
    with pytest.raises(
        InputError, match=r"training and development parts of the STS Benchmark .* got the test part alone"
    ):
        select_repair(words, task="sts", data=tmp_path / "sts")
    pytest.importorskip("ir_measures", reason="the extra [evaluate] is not installed")
    few = write_retrieval(tmp_path / "few", queries=10)
    with pytest.raises(InputError, match="at least 20 development queries to choose a repair by, got 5"):
        select_repair(words, task="retrieval", data=few)


def test_vectors_that_are_not_finite_are_refused(planted: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    np.save(tmp_path / "whole.npy", x)
    x[7, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    message = r"expected finite rows, got 1 of 300 with NaN or inf in .*x.npy \(the first is row 7\)"
    for spec, queries in (("x.npy", None), ("whole.npy", tmp_path / "x.npy")):
        with pytest.raises(InputError, match=message):
            evaluate(tmp_path / spec, task="ann", data=queries, repairs=["center"])
    (tmp_path / "w.vec").write_text("2 2\nt1w1 nan 1\nt1w2 1 2\n")
    (tmp_path / "men3000.tsv").write_text("word1\tword2\tscore\nt1w1\tt1w2\t3\n")
    for task, data in (("sts", planted / "sts"), ("wordsim", tmp_path)):
        with pytest.raises(InputError, match="expected finite rows, got 1 of 2 with NaN or inf"):
            evaluate(tmp_path / "w.vec", task=task, data=data, repairs=["center"])


def test_verdicts() -> None:
    up, flat, down = Interval(0.02, 0.01, 0.03), Interval(0.01, -0.01, 0.03), Interval(-0.1, -0.2, -0.05)

    def said(*intervals: Interval, others: int = 0) -> str:
        repairs = {"center": 0.0} | {f"r{at}": -1.0 for at in range(others)}
        return verdict(
            "m",
            "retrieval",
            "ndcg10",
            {
                f"s{at}": {
                    r: {"ndcg10": Interval(one.difference + x, one.low + x, one.high + x)} for r, x in repairs.items()
                }
                for at, one in enumerate(intervals)
            },
        )

    assert said(up) == "m, retrieval: center changes nDCG@10 by +0.0200 (95%: +0.0100 to +0.0300)."
    assert said(up, others=2).startswith(
        "m, retrieval: of 3 repairs center does best; it changes nDCG@10 by +0.0200 (95%"
    )
    assert "no repair helps; the best, center, changes" in said(flat)
    assert said(flat).endswith("Leave it as it is.")
    assert said(up, flat, down) == (
        "m, retrieval: no repair helps on the whole; the best, center, changes nDCG@10 by -0.0233 on average over 3 sets "
        "(95%, at the widest: -0.0667 to +0.0033); beyond chance up on s0 and down on s2."
    )
    assert said(flat, flat).endswith(
        "on average over 2 sets (95%, at the widest: -0.0100 to +0.0300), on none beyond chance. Leave it as it is."
    )
    two = {"wide": {"ndcg10": Interval(0.03, -0.01, 0.07)}, "narrow": {"ndcg10": up}}
    assert verdict("m", "retrieval", "ndcg10", {"s": two}) == (
        "m, retrieval: of 2 repairs narrow does best of those that rise beyond chance; it changes nDCG@10 by +0.0200 "
        "(95%: +0.0100 to +0.0300). The best of many looks better than it is on the items that chose it: --method auto "
        "asks others too."
    )
    assert "--method auto" not in verdict(
        "m", "wordsim", "spearman_cosine", {"s": {r: {"spearman_cosine": up} for r in "ab"}}
    )
    assert said() == "m, retrieval: no repair could be compared with the original."


def test_a_record_that_was_edited(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", repairs=["center"], resamples=100)
    data = json.loads(found.to_json())
    data["results"]["sts"]["stsb"]["center"]["n"] = "many"
    with pytest.raises(InputError, match=r"finite number or null at results\.sts\.stsb\.center\.n, got 'many'"):
        Evaluation.from_json(json.dumps(data))
    data = json.loads(found.to_json())
    data["differences"]["sts"]["stsb"]["center"]["spearman_cosine"]["low"] = 1e9
    with pytest.raises(InputError, match="an interval from low to high"):
        Evaluation.from_json(json.dumps(data))


def test_all_repairs_by_default(planted: Path) -> None:
    found = evaluate(planted / "healthy.vec", task="sts", data=planted / "sts", resamples=100)
    assert list(found.repairs()) == ["original", *filter(is_affine, REPAIRS)]
