"""The task `wordsim` of `evaluate`: the numbers of `word_similarity`, differences and prices."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from uncone.errors import InputError
from uncone.evaluation.evaluate import evaluate
from uncone.evaluation.record import Evaluation

WORDS = [f"w{at}" for at in range(40)]
Planted = tuple[Path, np.ndarray, list[tuple[int, int]], np.ndarray]


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """Vectors that say what people say, but for one direction; and one set of pairs."""
    generator = np.random.default_rng(0)
    clean = generator.standard_normal((40, 6))
    vectors = clean + np.outer(generator.uniform(-20, 40, 40), np.ones(6))
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, vectors, strict=True))
    (tmp_path / "w.vec").write_text("40 6\n" + "".join(lines))
    pairs = [tuple(sorted(generator.choice(40, 2, replace=False).tolist())) for _ in range(60)]
    unit = clean / np.linalg.norm(clean, axis=1, keepdims=True)
    gold = np.array([unit[a] @ unit[b] for a, b in pairs])
    rows = "".join(f"{WORDS[a]}\t{WORDS[b]}\t{score:.4f}\n" for (a, b), score in zip(pairs, gold, strict=True))
    (tmp_path / "rg").mkdir()
    (tmp_path / "rg" / "men3000.tsv").write_text("word1\tword2\tscore\n" + rows)
    return tmp_path, vectors, pairs, gold


def wordsim(folder: Path, data: str = "rg", **more: Any) -> Evaluation:
    options = {"method": ["center"], "resamples": 300} | more
    return evaluate(folder / "w.vec", task="wordsim", data=folder / data, **options)


@pytest.mark.parametrize(("protocol", "measure"), [("field", "spearman_cosine"), ("paper", "pearson_cosine")])
def test_numbers_differences_and_prices(planted: Planted, protocol: str, measure: str) -> None:
    folder, vectors, pairs, gold = planted
    found = wordsim(folder, protocol=protocol, method=["center", "all_but_the_top_2"])
    numbers = found.results["wordsim"]["men"]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = 100 * scipy.stats.spearmanr([unit[a] @ unit[b] for a, b in pairs], gold)[0]
    assert numbers["original"]["spearman_cosine"] == pytest.approx(expected, abs=0.2)
    change = found.differences["wordsim"]["men"]["all_but_the_top_2"][measure]
    assert change.difference == pytest.approx(numbers["all_but_the_top_2"][measure] - numbers["original"][measure])
    assert change.low > 0
    assert (found.provenance["measure"], found.protocol) == (measure, protocol)
    assert found.provenance["rows_sha256"] == hashlib.sha256(vectors.astype(np.float32).tobytes()).hexdigest()
    assert len(found.provenance["men_sha256"]) == 64
    price = found.prices["men"]["center"]
    assert price.applied_n > 0
    assert price.apply_s > 0
    assert price.fitted_n == 40


def test_sets_that_are_not_there(planted: Planted) -> None:
    with pytest.raises(InputError, match="got no file of them"):
        wordsim(planted[0], "")


def test_a_set_of_which_no_pair_is_left_is_told(planted: Planted) -> None:
    folder, *_ = planted
    (folder / "rg" / "rw2034.tsv").write_text("word1\tword2\tscore\nzebra\tw1\t3\nw1\tw2\t3\nw3\tyak\t1\n")
    found = wordsim(folder)
    assert "rw: 1 of 3 pairs can be scored: too few for a correlation." in found.notes
    assert not any(note.startswith("men:") for note in found.notes)


def test_a_table_of_pairs_is_a_set_of_its_own_name(planted: Planted) -> None:
    folder, *_ = planted
    lines = (folder / "rg" / "men3000.tsv").read_text().splitlines()[1:]
    (folder / "mine.csv").write_text("\n".join(["gold,a,b", *(",".join(line.split("\t")[::-1]) for line in lines)]))
    named, own = wordsim(folder), wordsim(folder, "mine.csv", columns=(3, 2, 1))
    assert list(own.results["wordsim"]) == ["mine"]
    assert own.results["wordsim"]["mine"] == named.results["wordsim"]["men"]
    assert own.differences["wordsim"]["mine"] == named.differences["wordsim"]["men"]
    assert own.provenance["mine_sha256"] == named.provenance["men_sha256"]


def test_columns_are_of_a_table(planted: Planted) -> None:
    folder, *_ = planted
    for task, data in (("wordsim", folder / "rg"), ("ann", folder / "w.vec"), ("sts", None)):
        with pytest.raises(InputError, match=r"expected columns \(--columns\) with a table as data of wordsim or sts"):
            evaluate(folder / "w.vec", task=task, data=data, columns=(1, 2, 3))
