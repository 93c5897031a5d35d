"""The task `wordsim` of `evaluate`: the numbers of `word_similarity`, differences and prices."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from uncone.errors import InputError
from uncone.evaluation.evaluate import evaluate

WORDS = [f"w{at}" for at in range(40)]


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, np.ndarray, list[tuple[int, int]], np.ndarray]:
    """Vectors that say what people say, but for one direction; and one set of pairs."""
    generator = np.random.default_rng(0)
    clean = generator.standard_normal((40, 6))
    vectors = clean + np.outer(generator.uniform(-20, 40, 40), np.ones(6))
    (tmp_path / "w.vec").write_text(
        "40 6\n" + "".join(f"{w} {' '.join(map(str, row))}\n" for w, row in zip(WORDS, vectors, strict=True))
    )
    pairs = [tuple(sorted(generator.choice(40, 2, replace=False).tolist())) for _ in range(60)]
    unit = clean / np.linalg.norm(clean, axis=1, keepdims=True)
    gold = np.array([unit[a] @ unit[b] for a, b in pairs])
    rows = "".join(f"{WORDS[a]}\t{WORDS[b]}\t{score:.4f}\n" for (a, b), score in zip(pairs, gold, strict=True))
    (tmp_path / "rg").mkdir()
    (tmp_path / "rg" / "men3000.tsv").write_text("word1\tword2\tscore\n" + rows)
    return tmp_path, vectors, pairs, gold


@pytest.mark.parametrize(("protocol", "measure"), [("field", "spearman_cosine"), ("paper", "pearson_cosine")])
def test_numbers_differences_and_prices(
    planted: tuple[Path, np.ndarray, list, np.ndarray], protocol: str, measure: str
) -> None:
    folder, vectors, pairs, gold = planted
    found = evaluate(
        folder / "w.vec",
        task="wordsim",
        data=folder / "rg",
        protocol=protocol,
        repairs=["center", "all_but_the_top_2"],
        resamples=300,
    )
    numbers = found.results["wordsim"]["men"]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = [unit[a] @ unit[b] for a, b in pairs]
    assert numbers["original"]["spearman_cosine"] == pytest.approx(
        100 * scipy.stats.spearmanr(cosine, gold)[0], abs=0.2
    )
    change = found.differences["wordsim"]["men"]["all_but_the_top_2"][measure]
    assert change.difference == pytest.approx(numbers["all_but_the_top_2"][measure] - numbers["original"][measure])
    assert change.low > 0
    assert found.provenance["measure"] == measure
    assert found.provenance["rows_sha256"] == hashlib.sha256(vectors.astype(np.float32).tobytes()).hexdigest()
    assert len(found.provenance["men_sha256"]) == 64
    price = found.prices["men"]["center"]
    assert price.applied_n > 0
    assert price.apply_s > 0
    assert price.fitted_n == 40
    assert found.protocol == protocol


def test_sets_that_are_not_there(planted: tuple[Path, np.ndarray, list, np.ndarray]) -> None:
    folder, *_ = planted
    with pytest.raises(InputError, match="got no file of them"):
        evaluate(folder / "w.vec", task="wordsim", data=folder)


def test_a_set_of_which_no_pair_is_left_is_told(planted: tuple[Path, np.ndarray, list, np.ndarray]) -> None:
    folder, *_ = planted
    (folder / "rg" / "rw2034.tsv").write_text("word1\tword2\tscore\nzebra\tw1\t3\nw1\tw2\t3\nw3\tyak\t1\n")
    found = evaluate(folder / "w.vec", task="wordsim", data=folder / "rg", repairs=["center"], resamples=300)
    assert "rw: 1 of 3 pairs can be scored: too few for a correlation." in found.notes
    assert not any(note.startswith("men:") for note in found.notes)


def test_a_table_of_pairs_is_a_set_of_its_own_name(planted: tuple[Path, np.ndarray, list, np.ndarray]) -> None:
    folder, *_ = planted
    named = evaluate(folder / "w.vec", task="wordsim", data=folder / "rg", repairs=["center"], resamples=300)
    lines = (folder / "rg" / "men3000.tsv").read_text().splitlines()[1:]
    (folder / "mine.csv").write_text("\n".join(["gold,a,b", *(",".join(line.split("\t")[::-1]) for line in lines)]))
    own = evaluate(
        folder / "w.vec", task="wordsim", data=folder / "mine.csv", columns=(3, 2, 1), repairs=["center"], resamples=300
    )
    assert list(own.results["wordsim"]) == ["mine"]
    assert own.results["wordsim"]["mine"] == named.results["wordsim"]["men"]
    assert own.differences["wordsim"]["mine"] == named.differences["wordsim"]["men"]
    assert own.provenance["mine_sha256"] == named.provenance["men_sha256"]


def test_columns_are_of_a_table(planted: tuple[Path, np.ndarray, list, np.ndarray]) -> None:
    folder, *_ = planted
    for task, data in (("wordsim", folder / "rg"), ("ann", folder / "w.vec"), ("sts", None)):
        with pytest.raises(InputError, match=r"expected columns \(--columns\) with a table as data of wordsim or sts"):
            evaluate(folder / "w.vec", task=task, data=data, columns=(1, 2, 3))
