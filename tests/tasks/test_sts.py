"""STS: numbers against scipy, the layouts, and data that is not what it must be."""

import lzma
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from uncone.errors import InputError
from uncone.tasks.sts import sts_numbers, sts_scores
from uncone.tasks.sts_sets import StsPairs, read_sts

DATA = Path(__file__).parents[2] / "../shared/data/sts"


def _pairs(n: int, subsets: tuple[str, ...]) -> StsPairs:
    generator = np.random.default_rng(0)
    return StsPairs(
        tuple(f"a{at}" for at in range(n)),
        tuple(f"b{at}" for at in range(n)),
        tuple(float(x) for x in np.round(generator.random(n) * 5, 1)),
        tuple(subsets[at % len(subsets)] for at in range(n)),
    )


def test_numbers_are_those_of_scipy() -> None:
    pairs = _pairs(60, ("x", "y", "z"))
    vectors = np.random.default_rng(1).standard_normal((120, 6)).astype(np.float32)
    place = {sentence: at for at, sentence in enumerate(pairs.sentences())}
    scores = sts_scores(pairs, place, vectors, 2 * vectors)
    left, right = (
        vectors[[place[s] for s in side]].astype(np.float64) for side in (pairs.first, pairs.second)
    )
    inner = (left * right).sum(1)
    cosine = inner / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert scores.cosine == pytest.approx(cosine)
    assert scores.inner == pytest.approx(4 * inner)
    numbers = sts_numbers(pairs, scores)
    assert numbers["spearman_cosine"] == pytest.approx(100 * scipy.stats.spearmanr(cosine, pairs.gold)[0])
    assert numbers["spearman_inner"] == pytest.approx(100 * scipy.stats.spearmanr(inner, pairs.gold)[0])
    assert numbers["pearson_cosine"] == pytest.approx(100 * scipy.stats.pearsonr(cosine, pairs.gold)[0])
    assert numbers["n"] == 60
    subsets, gold = np.asarray(pairs.subset), np.asarray(pairs.gold)
    each = [scipy.stats.spearmanr(cosine[subsets == s], gold[subsets == s])[0] for s in ("x", "y", "z")]
    assert numbers["spearman_cosine_subset_mean"] == pytest.approx(100 * np.mean(each))


def test_a_zero_vector_has_no_cosine() -> None:
    pairs = _pairs(5, ("",))
    vectors = np.random.default_rng(2).standard_normal((10, 3)).astype(np.float32)
    vectors[0] = 0
    place = {sentence: at for at, sentence in enumerate(pairs.sentences())}
    numbers = sts_numbers(pairs, sts_scores(pairs, place, vectors, vectors))
    assert numbers["spearman_cosine"] is None
    assert numbers["spearman_inner"] is not None
    assert "spearman_cosine_subset_mean" not in numbers


def test_the_three_layouts(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "stsb_test.tsv.xz", "wt") as handle:
        handle.write("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2.5\n")
    senteval = tmp_path / "downloads" / "STS12-en-test"
    senteval.mkdir(parents=True)
    (senteval / "STS.input.MSRpar.txt").write_text('a "quoted\tb\nc\td\ne\tf\n')
    (senteval / "STS.gs.MSRpar.txt").write_text("1.0\n\n3\n")
    (tmp_path / "downloads" / "sts13.tsv").write_text(
        "subset\tsentence1\tsentence2\tscore\nFNWN\ta\tb\t1\nOnWN\tc\td\t2\n"
    )
    sets = {one.name: one for one in read_sts(tmp_path)}
    assert list(sets) == ["sts13", "stsb"]
    assert sets["sts13"].test.subset == ("FNWN", "OnWN")
    assert sets["stsb"].test.gold == (1.0, 2.5)
    (one,) = read_sts(tmp_path / "downloads", sets=["sts12"])
    assert one.test.first == ('a "quoted', "e")
    assert one.test.gold == (1.0, 3.0)
    original = tmp_path / "original"
    original.mkdir()
    lines = ["main\tx\t2012\t0001\t5.0\ta\tb", "main\tx\t2012\t0002\t1.0\tc\td\tlicence\tmore"]
    (original / "sts-test.csv").write_text("\n".join(lines) + "\n")
    (original / "sts-dev.csv").write_text("\n".join(lines) + "\n")
    (one,) = read_sts(original)
    assert one.test.second == ("b", "d")
    assert list(one.others) == ["dev"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("stsb_test.tsv", "a\tb\t1\n", "a header with sentence1, sentence2, score"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\tx\n", "a score in line 2 .* got 'x'"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "a score in line 2"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\n", "at least two pairs"),
        ("sts-test.csv", "a\tb\n", "7 fields between tabs in line 1"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=message):
        read_sts(tmp_path)


def test_sets_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a directory of STS sets"):
        read_sts(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"expected sts12, .*stsb in .*got no file of them"):
        read_sts(tmp_path)
    with pytest.raises(InputError, match="got sts17: leave them out"):
        read_sts(tmp_path, sets=["sts17"])


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not there")
def test_the_real_sets_have_their_published_sizes() -> None:
    sizes = {one.name: (len(one.test), len(set(one.test.subset))) for one in read_sts(DATA)}
    assert sizes == {
        "sts12": (3108, 5), "sts13": (1500, 3), "sts14": (3750, 6), "sts15": (3000, 5), "sts16": (1186, 5), "stsb": (1379, 1),
    }  # fmt: skip
