"""Word-vector text and word2vec binary: every way to write them reads the same, and every bad line says its number."""

import gzip
import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone.diagnosis.findings import DRIFT, NOISE_SIGMAS
from uncone.rows import GRID, word_vectors
from uncone.rows.word2vec import Word2VecRows
from uncone.rows.word_lines import PADDING, LineError, Piece, number, parse_piece, split_line, words_of

from ..matrices import equal, gaussian
from .reading import CHANGES, all_rows, binary_of, growth, mutated, refused_or_read, refuses, text_of, write

ROOT = Path(__file__).parents[2]


def _parsed(content: bytes, d: int) -> torch.Tensor:
    """What the format means: `float` of the last d fields of each line, rounded to float32."""
    rows = [[float(field) for field in line.split()[-d:]] for line in content.splitlines()]
    return torch.tensor(rows, dtype=torch.float64).float()


class TestText:
    @pytest.mark.parametrize("name", ["x.vec", "x.txt", "x.glove", "x.vec.gz", "x.txt.gz"])
    @pytest.mark.parametrize("end", ["\n", "\r\n", " \n", " \r\n"])
    @pytest.mark.parametrize("header", [True, False])
    def test_every_ending_reads_the_same(self, tmp_path: Path, name: str, end: str, header: bool) -> None:
        x = gaussian(30, 4)
        rows = uncone.open_rows(write(tmp_path / name, text_of(x, end=end, header=header)))
        assert (rows.shape, rows.dtype) == ((30, 4), "float32")
        assert equal(all_rows(rows), _parsed(text_of(x), 4))
        assert rows.labels == [f"w{i}" for i in range(30)]

    @pytest.mark.parametrize("between", [" ", "\t"])
    @pytest.mark.parametrize("header", [b"", b"2 2\n", b"1 2\n"])
    def test_line_ends_of_one_carriage_return_are_refused(self, tmp_path: Path, header: bytes, between: str) -> None:
        """The rows before the last stood in its word."""
        bad = b"\r".join(f"w{i}{between}0.5{between}1.5".encode() for i in range(3))
        first = b"" if header == b"1 2\n" else b"a 0.25 0.75\n"
        path = write(tmp_path / "x.txt", header + first + bad + b"\n")
        number = 1 + bool(header) + bool(first)
        refuses(rf"line {number} of .*: expected a line that ends in \\n or .*convert the line ends", all_rows, path)

    @pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
    @pytest.mark.parametrize("header", [True, False])
    def test_a_byte_order_mark_is_no_part_of_a_word(self, tmp_path: Path, name: str, header: bool) -> None:
        x = gaussian(GRID + 5, 2)
        rows = uncone.open_rows(write(tmp_path / name, b"\xef\xbb\xbf" + text_of(x, header=header)))
        assert (rows.labels or [])[:2] == ["w0", "w1"]
        assert equal(all_rows(rows), _parsed(text_of(x), 2))
        assert equal(rows.read(GRID, GRID + 2), all_rows(rows)[GRID : GRID + 2])

    def test_short_lines_after_a_long_one_take_no_memory(self, tmp_path: Path) -> None:
        """Room for D numbers a line was made before a line was looked at: 100,000 lines of a million numbers."""
        content = b"w" + b" 1" * 1_000_000 + b"\n" + b"\n" * 100_000 + b"w 1\n"
        rows = uncone.open_rows(write(tmp_path / "x.txt", content))
        refuses(r"line 2 of .*: expected D = 1000000 numbers after the word, got 0", lambda: list(rows.blocks(1)))

    def test_an_earlier_bad_line_is_named_before_a_short_one(self, tmp_path: Path) -> None:
        rows = uncone.open_rows(write(tmp_path / "x.txt", b"a 0.1 0.2 0.3\nb 0.1 0.x 0.3\nc\n"))
        refuses(r"line 2 of .*: expected a number, got '0\.x'", lambda: list(rows.blocks()))

    @pytest.mark.parametrize("form", ["%.4f", "%g", "%.9g", "%r", "%.18e", "%d", "% .3f", "%+.3f", "%e"])
    @pytest.mark.parametrize("threads", [1, 2])
    def test_all_number_forms(self, tmp_path: Path, form: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(word_vectors, "_PIECE_BYTES", 1000)  # many pieces, and lines across them
        monkeypatch.setattr(word_vectors, "available", lambda: threads)
        content = text_of(gaussian(200, 7) * 10 ** gaussian(200, 1), form=form)
        rows = uncone.open_rows(write(tmp_path / "x.txt", content))
        assert equal(all_rows(rows), _parsed(content, 7))
        assert rows.labels == [f"w{i}" for i in range(200)]

    def test_blocks_and_ranges_across_the_grid(self, tmp_path: Path) -> None:
        content = text_of(gaussian(2 * GRID + 5, 2), form="%.3f", header=True)
        expected, wanted = _parsed(content.partition(b"\n")[2], 2), torch.tensor([0, GRID, 2 * GRID + 4])
        for name in ("x.vec", "x.vec.gz"):
            rows = uncone.open_rows(write(tmp_path / name, content))
            assert [len(block) for block in rows.blocks()] == [GRID, GRID, 5]
            assert equal(all_rows(rows), expected)
            for start, stop in ((2 * GRID + 1, 2 * GRID + 3), (GRID - 2, GRID + 2), (3, 4), (5, 9)):
                assert equal(rows.read(start, stop), expected[start:stop])
            assert equal(rows.take(wanted), expected[wanted])

    def test_words_are_what_stands_before_the_numbers(self, tmp_path: Path) -> None:
        words = [b"the", b"", b". . .", b"caf\xc3\xa9", b"\xff\xfe", b"the", b"1.5", b"at 3", b"\xc2\xa0", b"a.b", b"-"]
        words += [b"nan", b"U.S. A."]
        rows = uncone.open_rows(write(tmp_path / "x.txt", b"".join(word + b" 0.25 -1.5\n" for word in words)))
        assert rows.labels == [word.decode("utf-8", "replace") for word in words]
        assert equal(all_rows(rows), torch.tensor([0.25, -1.5]).expand(len(words), 2))

    def test_the_last_newline_may_be_missing_and_white_lines_may_follow(self, tmp_path: Path) -> None:
        for end in (b"", b"\n", b"\n\n \r\n\t\n"):
            rows = uncone.open_rows(write(tmp_path / "x.vec", b"2 1\na 0.5\nb 1.5" + end))
            assert all_rows(rows).tolist() == [[0.5], [1.5]]
            assert rows.labels == ["a", "b"]

    def test_numbers_that_are_not_finite_are_rows_that_are_not_finite(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.txt", b"a 0.5 1.5\nb nan 1.0\nc 1e39 1.0\nd -inf 1.0\ne 2.5 1.0\n")
        assert uncone.open_rows(path, skip_nonfinite=True).left_out == (1, 2, 3)
        refuses(r"got 3 rows of 5 with NaN or inf .* \(rows 1, 2, 3\)", uncone.Moments.of, uncone.open_rows(path))

    def test_opening_and_reading_leave_no_threads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(word_vectors, "available", lambda: 2)
        monkeypatch.setattr(word_vectors, "_PIECE_BYTES", 1000)
        blocks = uncone.open_rows(write(tmp_path / "x.txt", text_of(gaussian(500, 7)))).blocks(100)
        next(blocks)
        blocks.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("uncone-text")]


_NUMBERS = "expected D = {} numbers after the word, got"
_FIRST = "line 1 of .*: expected a word"
LINES = {
    "too few": (b"a 0.5 1.5\nb 0.5\n", f"line 2 of .*: {_NUMBERS.format(2)} 1"),
    "too many": (b"a 0.5 1.5\nb 0.5 1.5 2.5\n", f"line 2 of .*: {_NUMBERS.format(2)} more: '0.5' comes before them"),
    "no number": (
        b"a 0.5 1.5\nb 0.5 x\n",
        "line 2 of .*: expected a number, got 'x': correct the line, or leave it out",
    ),
    **{
        f"the number {field}": (
            b"a 0.5 1.5\nb %b 1.5\n" % field.encode(),
            f"line 2 of .*: expected a number, got {message}",
        )
        for field, message in (
            ("--0.5", "'--0.5'"),
            ("1_0", "'1_0'"),
            ("1.5.5", "'1.5.5'"),
            ("0x1", "'0x1'"),
            ("0.5\0", ""),
        )
    },
    "a white line": (b"a 0.5 1.5\n\nb 0.5 1.5\n", f"line 2 of .*: {_NUMBERS.format(2)} 0"),
    "several": (b"2 1\n" + b"a 0.5\n" * 9 + b"b x\nc x\n", "promises 2 rows, got 11: line 4 is one too many"),
    "after a header": (b"3 2\na 0.5 1.5\nb 0.5 1.5\nc 0.5 z\n", "line 4 of .*: expected a number, got 'z'"),
    "the header's D": (b"2 3\na 0.5 1.5\nb 0.5 1.5\n", f"line 2 of .*: {_NUMBERS.format(3)} 2"),
    "fewer lines": (
        b"3 2\na 0.5 1.5\nb 0.5 1.5\n",
        "line 1 of .* promises 3 rows, got 2, up to line 3: the file was cut",
    ),
    "no lines": (b"1 2\n" + b" " * 50, "promises 1 rows, got 0"),
    "a lie": (b"999999999999999 300\na 0.5\n", "1 of .* is wrong: 999999999999999 lines of 300 numbers take at least"),
    "a wide lie": (b"1 999999999999999\na 0.5\n", "1 of .* is wrong: 1 lines of 999999999999999 numbers take at least"),
    "no rows": (b"0 3\n", "expected at least one row and column"),
    "no columns": (b"3 0\na\nb\nc\n", "expected at least one row and column"),
    "empty": (b"", "expected word vectors in .*, got an empty file"),
    "white": (b"\n\n", "expected a word and its numbers, or 'N D'"),
    "a damaged number": (b"a -1.8 0.12 1_0 1.5\n", f"{_FIRST}, then only numbers, got '1_0' between numbers"),
    "prose": (b"Call me Ishmael.\nSome years\n", f"{_FIRST} and its numbers, or 'N D', got 'Call me Ishmael"),
    "no words": (b"0.5 1.5\n0.5 1.5\n", "got the number '0.5' first: .* numpy.loadtxt"),
    "not gzipped text": (b"\xff\xfea\0 \x000\0", f"{_FIRST} and its numbers"),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_bad_line_is_named(tmp_path: Path, name: str, suffix: str) -> None:
    content, message = LINES[name]
    refuses(message, lambda: all_rows(write(tmp_path / f"x{suffix}", content)))


def test_other_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.vec", b"a 0.5\n")
    refuses(r"expected a file of word vectors without '#', got .*x\.vec#a", uncone.open_rows, f"{path}#a")
    for content in (b"a 0.5\n", gzip.compress(text_of(gaussian(50, 5)))[:-20]):
        (tmp_path / "x.vec.gz").write_bytes(content)
        refuses("expected gzipped text in .*, got data that do not unpack", uncone.open_rows, tmp_path / "x.vec.gz")
    monkeypatch.setattr(word_vectors, "LONGEST_LINE", 1000)
    monkeypatch.setattr(word_vectors, "_PIECE_BYTES", 100)
    path = write(tmp_path / "long.txt", b"a 0.5\n" + b"b" * 5000)
    refuses(r"expected lines of .* up to 1000 bytes", uncone.open_rows, path)


def test_a_line_that_goes_bad_later_is_named_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "_PIECE_BYTES", 500)
    lines = text_of(gaussian(GRID + 50, 2)).splitlines()
    lines[GRID + 30] = b"word 0.5 oops"
    rows = uncone.open_rows(write(tmp_path / "x.txt", b"\n".join(lines)))
    for read in (lambda: all_rows(rows), lambda: rows.read(GRID + 10, GRID + 40)):
        refuses(f"line {GRID + 31} of .*: expected a number, got 'oops'", read)
    assert equal(rows.read(0, 5), _parsed(b"\n".join(lines[:5]), 2))


FIELDS = ["0.5", "-1.25", "12.0", ".5", "5.", "1", "-0.0", "1e-5", "1.5e3", "nan", "inf", "x", ".", "a.b"]
FIELDS += ["1_0", "+0.5", "0." + "123456789" * 3, "é"]
line = st.builds(
    lambda word, parts, between, end: (word + "".join(map(str.__add__, between, parts)) + end).encode(),
    st.sampled_from(["w", "", ".", "a b", "1.5", "w 1.5", " ", "a\t", "é.é"]),
    st.lists(st.sampled_from(FIELDS), max_size=4),
    st.lists(st.sampled_from([" ", " ", " ", "  ", "\t"]), min_size=4, max_size=4),
    st.sampled_from(["", "", " ", "\r", "  ", " \r", "\t"]),
)


def _ends_in_decimal(word: bytes) -> bool:
    """A word of several parts whose last is a number with a point: the line has one number too many."""
    parts = word.split()
    return len(parts) > 1 and b"." in parts[-1] and number(parts[-1]) is not None


@given(st.lists(line, min_size=1, max_size=6), st.integers(1, 3))
def test_pieces_are_read_as_the_plain_rule_says(lines: list[bytes], d: int) -> None:
    content = b"\n".join(lines) + b"\n"
    piece = Piece(bytearray(content + bytes(PADDING)), len(content))
    split = [split_line(line, d) for line in lines]
    assert words_of(piece, d) == [word for word, _ in split]
    values = [[number(field) for field in numbers] for _, numbers in split]
    bad = [i for i in range(len(lines)) if len(values[i]) < d or None in values[i] or _ends_in_decimal(split[i][0])]
    if bad:
        with pytest.raises(LineError) as caught:
            parse_piece(piece, d)
        assert caught.value.index == bad[0]
    else:
        assert np.array_equal(parse_piece(piece, d), np.array(values, np.float64).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", ["merges.txt", "merges.txt.gz"])
@pytest.mark.parametrize("lines", [["Ġ t", "Ġ a", "h e"], ["i n", "1 2"], ["1 2"], []])
def test_the_merges_of_a_tokenizer_are_no_word_vectors(tmp_path: Path, name: str, lines: list[str]) -> None:
    """Its first line ends in a number, so that it was opened as rows of one."""
    path = write(tmp_path / name, "\n".join(["#version: 0.2", *lines, ""]).encode())
    merges = r"got the merges of a BPE tokenizer \('#version: 0\.2', .* give the model's directory"
    refuses(rf"expected word vectors in .*, {merges}", uncone.open_rows, path)


def test_a_second_line_without_numbers_is_told_on_opening(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"Chapter 1\nIt was a dark night\nand 2 storms\n")
    message = r"line 2 of .*: expected a word and D = 1 numbers as in line 1, got 'It was a dark night': is it"
    refuses(message, uncone.open_rows, path)
    assert uncone.open_rows(write(path, b"Chapter 1\nSection 2\n")).shape == (2, 1)


@given(st.one_of(st.binary(max_size=300), st.text("ab.0123456789 \n\r\t-e", max_size=200).map(str.encode)))
def test_random_text_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in ("x.txt", "x.vec.gz"):
        refused_or_read(write(folder / name, data))
    (folder / "y.txt.gz").write_bytes(b"\x1f\x8b\x08" + data)
    with pytest.raises(uncone.UnconeError):
        uncone.open_rows(folder / "y.txt.gz")


@given(CHANGES, st.integers(0, 10**6))
def test_mutated_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], stop: int
) -> None:
    folder, x = tmp_path_factory.mktemp("fuzz"), gaussian(20, 3)
    text = text_of(x, header=True)
    for name, content in (("x.vec", text), ("x.vec.gz", gzip.compress(text)), ("x.bin", binary_of(x))):
        (folder / name).write_bytes(mutated(content, changes, stop))
        refused_or_read(folder / name, Word2VecRows if name == "x.bin" else uncone.open_rows)


class TestBinary:
    @pytest.mark.parametrize("newline", [b"\n", b""])
    @pytest.mark.parametrize("n", [1, 7, 2 * GRID + 3])
    def test_both_ways_to_end_a_row(self, tmp_path: Path, newline: bytes, n: int) -> None:
        x = gaussian(n, 5)
        path = write(tmp_path / "x.bin", binary_of(x, newline=newline))
        rows = Word2VecRows(path)
        assert (rows.shape, rows.dtype) == ((n, 5), "float32")
        assert equal(all_rows(rows), x)
        assert rows.labels == [f"w{i}" for i in range(n)]
        assert equal(rows.read(n // 2, n), x[n // 2 :])
        assert equal(uncone.open_rows(path).take(torch.tensor([0, n - 1])), x[[0, n - 1]])

    def test_float32_that_look_like_text_are_read(self, tmp_path: Path) -> None:
        """The first line is "w0 5", but these are two bytes of a float32."""
        x = torch.from_numpy(np.frombuffer(b"5\n\x12\x3f" + b"\0\0\x80\x3f", "<f4").reshape(2, 1).copy())
        assert equal(all_rows(Word2VecRows(write(tmp_path / "x.bin", binary_of(x, newline=b"")))), x)

    def test_words_of_every_kind(self, tmp_path: Path) -> None:
        words = [b"the", b"", b"\xff", "é".encode(), b"the", b"x" * 5000]
        rows = Word2VecRows(write(tmp_path / "x.bin", binary_of(gaussian(6, 2), words=words)))
        assert rows.labels == [word.decode("utf-8", "replace") for word in words]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "without a first line 'N D'"),
            (b"word2vec", "without a first line 'N D'"),
            (b"2 2\nab 1234", "is wrong: 2 words with 2 float32 each take at least 22 bytes, the file has 11"),
            (b"999999999999999 300\n", "is wrong: 999999999999999 words with 300 float32 each take at least"),
            (b"1 999999999999999999\n", "is wrong: 1 words with 999999999999999999 float32 each take at least"),
            (b"0 3\n", "expected at least one row and column"),
            (
                binary_of(gaussian(3, 2))[:-4],
                "expected 3 words with 2 float32 in .*, got 2 and a part: the file was cut",
            ),
            (binary_of(gaussian(3, 2)) + b"w4 ", "is wrong: 4 bytes follow the last of 3 words"),
            (b"1 2\n" + b"x" * 70_000, "expected word 1 at byte 4 of .*, got no space within 65536 bytes"),
            *(
                (text, "got numbers as text: rename it to end in .vec or .txt")
                for text in (
                    b"2 3\na 0.1 0.2 0.3\nb 0.4 0.5 0.6\n",
                    text_of(gaussian(9, 3), header=True),
                    b"2 3\nat name@domain.com 0.1 0.2 0.3\n. . . 0.4 0.5 0.6\n",
                    b"1 2\n New York 0.25 0.25 \r\n",
                )
            ),
        ],
    )
    def test_messages(self, tmp_path: Path, content: bytes, message: str) -> None:
        refuses(message, lambda: Word2VecRows(write(tmp_path / "x.bin", content)))

    @given(st.binary(max_size=200))
    def test_random_bytes_are_refused_or_read(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        refused_or_read(write(tmp_path_factory.mktemp("fuzz") / "x.bin", b"2 3\n" + data), Word2VecRows)


def test_gensim_reads_the_same(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    x = gaussian(50, 6)
    for binary, name in ((False, "x.vec"), (True, "x.bin")):
        vectors = models.KeyedVectors(6)
        vectors.add_vectors([f"w{i}" for i in range(50)], x.numpy())
        vectors.save_word2vec_format(str(tmp_path / name), binary=binary)
        rows = uncone.open_rows(tmp_path / name)
        assert equal(all_rows(rows), x)
        assert rows.labels == vectors.index_to_key


def _trained(text: str, d: int) -> tuple[list[str], torch.Tensor]:
    """Word vectors of a text: positive mutual information in windows of four, its first d singular directions."""
    tokens = re.findall(r"[a-z]+", text.lower())
    words = [word for word, count in Counter(tokens).most_common() if count > 2]
    index = {word: i for i, word in enumerate(words)}
    ids = torch.tensor([index.get(token, -1) for token in tokens])
    counts = torch.zeros(len(words), len(words), dtype=torch.float64)
    for gap in range(1, 5):
        pairs = torch.stack([ids[:-gap], ids[gap:]])
        pairs = pairs[:, (pairs >= 0).all(0)]
        counts.index_put_((pairs[0], pairs[1]), torch.ones(pairs.shape[1], dtype=torch.float64), accumulate=True)
    counts += counts.T.clone()
    expected = counts.sum(0) * counts.sum(1, keepdim=True) / counts.sum()
    pmi = (counts / expected).log().clamp_min(0).nan_to_num(0)
    vectors, values, _ = torch.linalg.svd(pmi)
    return words, (vectors[:, :d] * values[:d].sqrt()).float()


def test_vectors_trained_on_the_documents_are_diagnosed(tmp_path: Path) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    words, x = _trained(text, 32)
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, x.numpy(), strict=True)]
    (tmp_path / "docs.vec").write_text(f"{len(words)} 32\n" + "".join(lines), encoding="utf-8")
    binary = write(tmp_path / "docs.bin", binary_of(x, words=[word.encode() for word in words]))
    assert equal(all_rows(binary), all_rows(tmp_path / "docs.vec"))
    found = uncone.diagnose(tmp_path / "docs.vec")
    (subject,) = found.subjects
    assert (found.name, subject.n, subject.d, subject.dtype) == ("docs.vec", len(words), 32, "float32")
    readings = {m.name: m.value for m in subject.measurements}
    unit = torch.nn.functional.normalize(x.double())
    n = len(unit)
    shared = float((unit.sum(0).square().sum() - n) / (n * (n - 1)))
    assert readings["mean_cosine"] == pytest.approx(shared, abs=1e-6)
    # The axes are singular directions, and the first is what all rows share; frequent words come first and are longer.
    # How much they share grows with the documents, past the bar of a finding.
    drift = {"common_direction_drift"} if shared >= DRIFT + NOISE_SIGMAS * (2 / 32) ** 0.5 / n else set()
    assert {finding.cause for finding in subject.findings} == {"rogue_dimensions", "norm_id_coupling"} | drift
    assert readings["norm_id_correlation"] < -0.3


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Anonymous memory while 160 MB of text are read, beyond what there was before."""
    line = " ".join(["-0.12345"] * 300).encode()
    for name, n in (("small", 1000), ("large", 60_000)):
        with open(tmp_path / f"{name}.txt", "wb") as text:
            text.writelines(b"word%d %s\n" % (i, line) for i in range(n))
    assert growth(tmp_path / "small.txt", tmp_path / "large.txt") < 40  # one block takes 9.4 MiB
