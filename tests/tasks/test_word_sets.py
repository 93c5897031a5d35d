import gzip
from pathlib import Path

import pytest

from uncone.errors import InputError
from uncone.tasks.word_sets import SETS, read_word_sets

DATA = (Path(__file__).parents[2] / "../shared/data/wordsim").resolve()
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared word sets are not there")
SIZES = {"men": 3000, "rw": 2034, "simlex999": 999, "wordsim_sim": 203, "wordsim_rel": 252}


@needs_data
def test_both_layouts_hold_the_same_pairs_and_scores(tmp_path: Path) -> None:
    for file in DATA.glob("*.tsv"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    originals, tidy = read_word_sets(DATA / "too_much_in_common"), read_word_sets(tmp_path)
    assert [one.name for one in originals] == list(SETS)
    for one, other in zip(originals, tidy, strict=True):
        assert (one.pairs, one.gold) == (other.pairs, other.gold)
        assert len(one.pairs) == SIZES[one.name]
        assert one.file != other.file


@needs_data
@pytest.mark.parametrize("directory", [DATA, DATA.parent])
def test_sets_are_found_from_the_folders_above_and_the_originals_come_first(directory: Path) -> None:
    assert [one.file for one in read_word_sets(directory)][:2] == ["MEN_dataset_lemma_form_full", "rw.txt"]


def test_the_columns_of_each_layout(tmp_path: Path) -> None:
    (tmp_path / "MEN_dataset_lemma_form_full").write_text("well-known-j sun-n 50.000000\nmoon-n sun-n 3\n")
    (tmp_path / "SimLex-999.txt").write_text(
        "word1\tword2\tPOS\tSimLex999\tconc(w1)\r\nold\tnew\tA\t1.58\t2.72\r\nre-do\tmake\tV\t4\t1\r\n"
    )
    (tmp_path / "rw.txt").write_text("provincialism\tnarrow-mindedness\t8.11\t9\t7\n")
    (tmp_path / "ws353_sim.tsv").write_bytes(
        b"\xef\xbb\xbfword1\tword2\tscore\ntiger\ttiger\t10.00\n\ntiger  cat 7.35"
    )
    men, rw, simlex, similar = read_word_sets(tmp_path)
    assert men.pairs == (("well-known", "sun"), ("moon", "sun"))  # the tag goes, the word's own hyphen stays
    assert men.gold == (50.0, 3.0)
    assert rw.pairs == (("provincialism", "narrow-mindedness"),)
    assert rw.gold == (8.11,)
    assert simlex.pairs == (("old", "new"), ("re-do", "make"))
    assert simlex.gold == (1.58, 4.0)  # not the concreteness beside it
    assert similar.pairs == (("tiger", "tiger"), ("tiger", "cat"))
    assert similar.name == "wordsim_sim"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("rw.txt", "a b 1\nc d\n", r"column 3 in rw.txt, line 2, got 'c d': mend the line"),
        ("rw.txt", "a b nan\n", r"rw.txt, line 1, got 'a b nan'"),
        ("rw.txt", "a b 1\nword1 word2 score\n", r"rw.txt, line 2, got 'word1 word2 score'"),
        ("SimLex-999.txt", "old new A\n", r"column 4 in SimLex-999.txt, line 1"),
        (
            "MEN_dataset_lemma_form_full",
            "sun-n sunlight 50\n",
            r"words like sun-n in MEN_dataset_lemma_form_full, line 1, got 'sunlight'",
        ),
        ("rw.txt", "\n", r"expected word pairs in .*rw.txt, got none"),
        ("rw.txt", "word1 word2 score\n", r"expected word pairs in .*rw.txt, got none"),
    ],
)
def test_a_line_that_does_not_fit_is_named_by_its_number(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        read_word_sets(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rw.txt").write_bytes(b"caf\xe9 bar 3\n")
    with pytest.raises(InputError, match=r"expected text in UTF-8, got .*rw.txt"):
        read_word_sets(tmp_path)


def test_sets_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a directory of word-similarity sets, got .*nowhere"):
        read_word_sets(tmp_path / "nowhere")
    with pytest.raises(
        InputError,
        match=r"got no file of them: looked for MEN_dataset_lemma_form_full or men3000.tsv; rw.txt",
    ):
        read_word_sets(tmp_path)
    (tmp_path / "rw.txt.gz").write_bytes(gzip.compress(b"a b 1\n"))
    assert [one.name for one in read_word_sets(tmp_path)] == ["rw"]
    with pytest.raises(
        InputError, match=r"expected simlex999 in .* looked for SimLex-999.txt or simlex999.tsv; put it there"
    ):
        read_word_sets(tmp_path, sets=("rw", "simlex999"))
    with pytest.raises(
        InputError, match="expected sets out of men, rw, simlex999, wordsim_sim, wordsim_rel, got mc30"
    ):
        read_word_sets(tmp_path, sets=("mc30",))
