"""Pairs with scores: the layouts of the known sets, any other table, and files that are not what they must be."""

import gzip
import json
import lzma
from functools import partial
from pathlib import Path

import pytest

from uncone.errors import InputError
from uncone.evaluation.pairs import WORD_SETS, PairSet, read_pairs, read_sts, read_word_sets

refused = partial(pytest.raises, InputError)

DATA = (Path(__file__).parents[2] / "../shared/data/wordsim").resolve()
STS_DATA = Path(__file__).parents[2] / "../shared/data/sts"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared word sets are not there")
MEN = "MEN_dataset_lemma_form_full"
SIZES = {"men": 3000, "rw": 2034, "simlex999": 999, "wordsim_sim": 203, "wordsim_rel": 252}


@needs_data
def test_both_layouts_hold_the_same_pairs_and_scores(tmp_path: Path) -> None:
    for file in DATA.glob("*.tsv"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    originals, tidy = read_word_sets(DATA / "too_much_in_common"), read_word_sets(tmp_path)
    assert [one.name for one in originals] == list(WORD_SETS)
    for one, other in zip(originals, tidy, strict=True):
        assert (one.pairs, one.gold) == (other.pairs, other.gold)
        assert len(one.pairs) == SIZES[one.name]
        assert one.file != other.file


@needs_data
@pytest.mark.parametrize("directory", [DATA, DATA.parent])
def test_sets_are_found_from_the_folders_above_and_the_originals_come_first(directory: Path) -> None:
    assert [one.file for one in read_word_sets(directory)][:2] == ["MEN_dataset_lemma_form_full", "rw.txt"]


def test_the_columns_of_each_layout(tmp_path: Path) -> None:
    (tmp_path / MEN).write_text("well-known-j sun-n 50.000000\nmoon-n sun-n 3\n")
    simlex = "word1\tword2\tPOS\tSimLex999\tconc(w1)\r\nold\tnew\tA\t1.58\t2.72\r\nre-do\tmake\tV\t4\t1\r\n"
    (tmp_path / "SimLex-999.txt").write_text(simlex)
    (tmp_path / "rw.txt").write_text("provincialism\tnarrow-mindedness\t8.11\t9\t7\n")
    (tmp_path / "ws353_sim.tsv").write_bytes(b"\xef\xbb\xbfword1\tword2\tscore\ntiger\ttiger\t10.00\n\ntiger  cat 7.35")
    men, rw, simlex, similar = read_word_sets(tmp_path)
    # the tag goes, the word's own hyphen stays
    assert (men.pairs, men.gold) == ((("well-known", "sun"), ("moon", "sun")), (50.0, 3.0))
    assert (rw.pairs, rw.gold) == ((("provincialism", "narrow-mindedness"),), (8.11,))
    # not the concreteness beside it
    assert (simlex.pairs, simlex.gold) == ((("old", "new"), ("re-do", "make")), (1.58, 4.0))
    assert (similar.pairs, similar.name) == ((("tiger", "tiger"), ("tiger", "cat")), "wordsim_sim")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "rw.txt",
            "a b 1\nc d\n",
            r"at least 3 columns in line 2 of .*rw.txt, got 2 \(\['c', 'd'\]\): correct the line",
        ),
        ("rw.txt", "a b nan\n", r"score in line 1 of .*rw.txt, got 'nan'"),
        ("rw.txt", "a b 1\nword1 word2 score\n", r"score in line 2 of .*rw.txt, got 'score'"),
        ("SimLex-999.txt", "old new A\n", r"at least 4 columns in line 1 of .*SimLex-999.txt"),
        (MEN, "sun-n sunlight 50\n", rf"words like sun-n in line 1 of .*{MEN}, got 'sun-n sunlight'"),
        ("rw.txt", "\n", r"expected pairs with scores in .*rw.txt, got none"),
        ("rw.txt", "word1 word2 score\n", r"expected pairs with scores in .*rw.txt, got none"),
        ("rw.txt", "caf\xe9 bar 3\n", r"expected UTF-8, got .*rw.txt"),
        ("stsb_test.tsv", "a\tb\t1\n", "columns sentence1, sentence2, score"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\tx\n", "score in line 2 .* got 'x'"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "score in line 2 .* got 'nan'"),
        ("stsb_test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\n", "at least two pairs"),
        ("sts-test.csv", "a\tb\n", "at least 7 columns in line 1 .* got 2"),
    ],
)
def test_a_line_that_does_not_fit_is_named_by_its_number(tmp_path: Path, file: str, text: str, message: str) -> None:
    (tmp_path / file).write_bytes(text.encode("latin-1"))
    with refused(match=message):
        (read_sts if file.startswith("sts") else read_word_sets)(tmp_path)


def test_sets_that_are_not_there(tmp_path: Path) -> None:
    with refused(match=r"expected a directory of word-similarity sets, got .*nowhere"):
        read_word_sets(tmp_path / "nowhere")
    with refused(match=rf"got no file of them: looked for {MEN} or men3000.tsv; rw.txt"):
        read_word_sets(tmp_path)
    (tmp_path / "rw.txt.gz").write_bytes(gzip.compress(b"a b 1\n"))
    assert [one.name for one in read_word_sets(tmp_path)] == ["rw"]
    with refused(match=r"expected simlex999 in .* looked for SimLex-999.txt or simlex999.tsv; put it there"):
        read_word_sets(tmp_path, sets=("rw", "simlex999"))
    with refused(match="expected sets out of men, rw, simlex999, wordsim_sim, wordsim_rel, got mc30"):
        read_word_sets(tmp_path, sets=("mc30",))


def test_the_three_layouts_of_sts(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "stsb_test.tsv.xz", "wt") as handle:
        handle.write("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2.5\n")
    senteval = tmp_path / "downloads" / "STS12-en-test"
    senteval.mkdir(parents=True)
    (senteval / "STS.input.MSRpar.txt").write_text('a "quoted\tb\nc\td\ne\tf\n')
    (senteval / "STS.gs.MSRpar.txt").write_text("1.0\n\n3\n")
    tidy = "subset\tsentence1\tsentence2\tscore\nFNWN\ta\tb\t1\nOnWN\tc\td\t2\n"
    (tmp_path / "downloads" / "sts13.tsv").write_text(tidy)
    sets = {one.name: one for one in read_sts(tmp_path)}
    assert list(sets) == ["sts12", "sts13", "stsb"]
    assert sets["sts13"].subset == ("FNWN", "OnWN")
    assert sets["stsb"].gold == (1.0, 2.5)
    (one,) = read_sts(tmp_path / "downloads", sets=["sts12"])
    assert (one.pairs, one.gold) == ((('a "quoted', "b"), ("e", "f")), (1.0, 3.0))
    original = tmp_path / "original"
    original.mkdir()
    for split in ("test", "dev"):
        lines = "main\tx\t2012\t0001\t5.0\ta\tb\nmain\tx\t2012\t0002\t1.0\tc\td\tlicence\tmore\n"
        (original / f"sts-{split}.csv").write_text(lines)
    (one,) = read_sts(original)
    assert (one.pairs, list(one.others)) == ((("a", "b"), ("c", "d")), ["dev"])


def test_sts_sets_that_are_not_there(tmp_path: Path) -> None:
    with refused(match="expected a directory of STS sets"):
        read_sts(tmp_path / "nowhere")
    with refused(match=r"expected sts12, .*stsb in .*got no file of them"):
        read_sts(tmp_path)
    with refused(match="got sts17: leave them out"):
        read_sts(tmp_path, sets=["sts17"])


@pytest.mark.skipif(not STS_DATA.is_dir(), reason="the shared data is not there")
def test_the_real_sets_have_their_published_sizes() -> None:
    sizes = {one.name: (len(one), len({*one.subset} or {""})) for one in read_sts(STS_DATA)}
    expected = {"sts12": (3108, 5), "sts13": (1500, 3), "sts14": (3750, 6), "sts15": (3000, 5), "sts16": (1186, 5)}
    assert sizes == expected | {"stsb": (1379, 1)}


PAIRS = (("cat", "dog"), ("New York", 'a, "b"'))
GOLD = (3.0, 0.5)
ROWS = 'cat\tdog\t3\nNew York\ta, "b"\t5e-1\n'
QUOTED = 'cat,dog,3\nNew York,"a, ""b""",0.5\n'
OBJECTS = (
    {"sentence1": "cat", "sentence2": "dog", "score": 3},
    {"score": "0.5", "sentence2": 'a, "b"', "sentence1": "New York", "more": None},
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.tsv", ROWS),
        ("crlf.tsv", ROWS.replace("\n", "\r\n")),
        ("mark.tsv", "\ufeff" + ROWS),
        ("header.tsv", "first\tsecond\tSimilarity\n" + ROWS),
        ("blank.tsv", ROWS.replace("\n", "\n\n")),
        ("tabs.txt", ROWS),
        ("no_suffix", ROWS),
        ("plain.csv", QUOTED),
        ("spaced.csv", QUOTED.replace("cat,dog", "cat , dog")),
        ("semicolons.csv", QUOTED.replace("cat,dog,3", "cat;dog;3").replace(",0.5", ";0.5").replace("York,", "York;")),
        ("header.csv", "a,b,c\n" + QUOTED),
        ("tabs.csv", ROWS),
        ("commas.txt", QUOTED),
        ("named.tsv", 'id\tscore\tword2\tword1\n1\t3\tdog\tcat\n2\t.5\ta, "b"\tNew York\n'),
        ("lines.jsonl", "\n".join(map(json.dumps, OBJECTS))),
        ("lines.txt", "\n".join(map(json.dumps, OBJECTS))),
        ("array.json", json.dumps(OBJECTS)),
        ("indented.json", json.dumps(OBJECTS, indent=2)),
    ],
)
def test_any_table_of_two_texts_and_a_score(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    one = read_pairs(tmp_path / name)
    assert (one.name, one.pairs, one.gold) == (name.split(".")[0], PAIRS, GOLD)
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        (tmp_path / (name + suffix)).write_bytes(pack(content.encode()))
        packed = read_pairs(tmp_path / (name + suffix))
        assert (packed.name, packed.pairs, packed.gold) == (one.name, one.pairs, one.gold)


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ('1\tx\tcat\tdog\t3\n2\ty\tNew York\ta, "b"\t.5\n', (3, 4, 5)),
        ('id\tx\ta\tb\tgold\n1\tx\tcat\tdog\t3\n2\ty\tNew York\ta, "b"\t.5\n', ("a", "b", "gold")),
        ('id\tx\ta\tb\tgold\n1\tx\tcat\tdog\t3\n2\ty\tNew York\ta, "b"\t.5\n', (3, 4, 5)),
        ('3\tdog\tcat\n.5\ta, "b"\tNew York\n', (3, 2, 1)),
        ('{"x": "cat", "y": "dog", "s": 3}\n{"x": "New York", "y": "a, \\"b\\"", "s": 0.5}\n', ("x", "y", "s")),
    ],
)
def test_columns_by_name_or_number(tmp_path: Path, content: str, columns: tuple[str | int, ...]) -> None:
    (tmp_path / "table.txt").write_text(content)
    one = read_pairs(tmp_path / "table.txt", columns=columns)
    assert (one.pairs, one.gold) == (PAIRS, GOLD)


def test_repeated_pairs_count_as_often_as_they_stand_there_and_subsets_are_kept(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\t1\na\tb\t1\nb\ta\t2\na\ta\t3\n")
    pairs = (("a", "b"), ("a", "b"), ("b", "a"), ("a", "a"))
    assert read_pairs(tmp_path / "t.tsv") == PairSet("t", pairs, (1.0, 1.0, 2.0, 3.0), file="t.tsv")
    (tmp_path / "s.tsv").write_text("subset\tsentence1\tsentence2\tscore\nx\ta\tb\t1\ny\ta\tb\t1\n")
    assert read_pairs(tmp_path / "s.tsv").subset == ("x", "y")


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("t.tsv", "a\tb\t1\na\tb\tx\n", None, r"finite score in line 2 of .*t\.tsv, got 'x'"),
        ("t.tsv", "a\tb\t1\na\tb\t\n", None, r"finite score in line 2 of .*t\.tsv, got ''"),
        ("t.tsv", "a\tb\t\na\tb\t1\n", None, r"finite score in line 1 of .*t\.tsv, got ''"),
        ("t.tsv", "a\tb\tnan\na\tb\t1\n", None, r"finite score in line 1 of .*, got 'nan'"),
        ("t.tsv", "a\tb\t1\na\tb\t-inf\n", None, r"finite score in line 2 of .*, got '-inf'"),
        ("t.tsv", "a\tb\t1\nc\td\n", None, r"at least 3 columns in line 2 of .*, got 2 \(\['c', 'd'\]\)"),
        ("t.tsv", "x\ty\tz\na\tb\t1\nc\td\te\t1\n", None, r"expected 3 columns in line 3 of .*, got 4"),
        ("t.tsv", "a\tb\t1\n \td\t1\n", None, r"expected two texts in line 2 of .*, got '' and 'd'"),
        ("t.tsv", "a\tb\t1\n\nc\t\t1\n", None, r"expected two texts in line 3 of .*, got 'c' and ''"),
        ("t.tsv", "a\tb\t1\n", None, r"at least two pairs with scores in .*t\.tsv, got 1"),
        ("t.tsv", "", None, r"at least two pairs with scores in .*t\.tsv, got none"),
        ("t.tsv", b"a\tb\t1\ncaf\xe9\tb\t1\n", None, r"expected UTF-8, got .*t\.tsv, whose line 2 is not"),
        ("t.tsv", "a\tb\t1\na\tb\t2\n", (1, 2, 4), r"at least 4 columns in line 1 of .*, got 3"),
        ("t.tsv", "a\tb\tc\nx\ty\t2\n", ("a", "b", "score"), r"columns a, b, score in line 1 of .*, got 'a b c'"),
        ("t.tsv", "a\tb\t1\na\tb\t2\n", (1, 2), r"3 columns \(text, text, score\), got \(1, 2\)"),
        ("t.tsv", "a\tb\t1\na\tb\t2\n", (0, 1, 2), r"3 columns \(text, text, score\)"),
        ("t.csv", 'a,b,1\n"c,d,1\n', None, r"expected a table, got line 2 of .*t\.csv: "),
        ("t.csv", 'a,b,1\n"two\nlines",d,x\n', None, r"finite score in line 3 of .*, got 'x'"),
        ("t.jsonl", '{"x": "a"}\n', ("x", "y", "s"), r"columns x, y, s in line 1 of .*, got 'x'"),
        ("t.jsonl", '{"x": "a", "y": "b", "s": 1}\n{"x": "a", "y": "b"}', ("x", "y", "s"), r"in line 2 of .*, got ''"),
        ("t.jsonl", '{"x": "a", "y": "b", "s": true}\n', ("x", "y", "s"), r"score in line 1 of .*, got 'True'"),
        ("t.jsonl", '{"x": ["a"], "y": "b", "s": 1}\n', ("x", "y", "s"), r"two texts in line 1 of .*, got '' and 'b'"),
        ("t.jsonl", '{"x": "a", "y": "b", "s": NaN}\n', ("x", "y", "s"), r"score in line 1 of .*, got 'nan'"),
        ("t.jsonl", '{"x": "a", "y": "b", "s": 1}\n{"x"', None, r"got line 2 of .*t\.jsonl, which does not parse"),
        ("t.json", "[1, 2]", None, r"expected an object in entry 1 of .*t\.json, got 1"),
        ("t.json", "[" * 100_000, None, r"got the array in .*t\.json, which does not parse"),
        ("t.tsv.gz", b"no gzip", None, r"cannot read .*t\.tsv\.gz"),
    ],
)
def test_a_row_that_does_not_fit_is_named_by_its_line(
    tmp_path: Path, name: str, content: str | bytes, columns: tuple[str | int, ...] | None, message: str
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(match=message):
        read_pairs(tmp_path / name, columns=columns)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with refused(match=r"cannot read .*nowhere\.tsv: No such file"):
        read_pairs(tmp_path / "nowhere.tsv")
