"""Texts piece by piece: the same text whatever the packing, and clear errors."""

import gzip
import json
import lzma
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.reading import refuses
from uncone.model import text_sources
from uncone.model.text_sources import open_texts

_LINES = [f"line {i} — {'ü' * (i % 50)}\n" for i in range(8000)]
_ENDINGS = ("", ".gz", ".xz", ".zst")


def _packed(ending: str, text: bytes) -> bytes:
    if ending == ".zst":
        return bytes(pytest.importorskip("zstandard", reason="the extra [zst] is not installed").compress(text))
    return {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending](text)


def _pieces(path: Path, part: str = "") -> list[str]:
    (source,) = open_texts(f"{path}{part}")
    return list(source.pieces())


@pytest.mark.parametrize("ending", _ENDINGS)
def test_pieces_are_whole_lines_and_in_turn_the_text(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(_packed(ending, "".join(_LINES).encode()))
    pieces = _pieces(path)
    assert "".join(pieces) == "".join(_LINES)
    assert len(pieces) > 3
    assert all(piece.endswith("\n") for piece in pieces)
    (source,) = open_texts(path)
    assert list(source.passages()) == [line.rstrip("\n") for line in _LINES]


@pytest.mark.parametrize("ending", _ENDINGS)
def test_documents_of_json_lines(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    rows = [{"text": "one\ntwo", "body": "b"}, {"text": None, "body": "c"}, {"text": "three", "body": ""}]
    path.write_bytes(_packed(ending, ("\n".join(map(json.dumps, rows)) + "\n\n").encode()))
    assert _pieces(path) == ["one\ntwo", "", "three"]
    assert _pieces(path, "#body") == ["b", "c", ""]
    assert open_texts(f"{path}#body")[0].name == f"a.jsonl{ending}#body"


def test_documents_of_a_column(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra [parquet] is not installed")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", None, "two\nlines"], "n": [1, 2, 3]}), path)
    assert _pieces(path) == ["one", "", "two\nlines"]
    for part, message in (("#n", r"expected text in 'n' of row 0 .* got int"), ("#body", "no column 'body'")):
        refuses(message, _pieces, path, part)
    path.write_bytes(b"PAR1 and nothing")
    refuses("which pyarrow cannot read", _pieces, path)


@given(st.text(alphabet="aü€😀 \n", max_size=400), st.integers(1, 40), st.integers(8, 60))
def test_a_text_of_any_shape_comes_back(text: str, piece: int, longest: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(text_sources, "PIECE_BYTES", piece),
        patch.object(text_sources, "LONGEST_PIECE", longest),
    ):
        path = Path(folder) / "a.txt"
        path.write_text(text, "utf-8", newline="")
        assert "".join(_pieces(path)) == text


def test_bytes_that_are_no_utf8_are_told_with_their_position(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text, position in ((b"x" * 99_999 + b"\n" + b"abc\xe9\n", "100,003"), (b"\xef\xbb\xbfab\xe9", "5")):
        path.write_bytes(text)
        refuses(rf"byte 0xe9 at position {position} of the text in .*a\.txt", _pieces, path)
    path.write_bytes(b"\xef\xbb\xbfmarked\r\n")
    assert _pieces(path) == ["marked\n"]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_file_that_was_cut_is_an_error(tmp_path: Path, ending: str) -> None:
    packed = _packed(ending, "".join(_LINES).encode())
    path = tmp_path / f"a.txt{ending}"
    for data in (packed[: len(packed) // 2], b"no packed file"):
        path.write_bytes(data)
        refuses(r"cannot read .*a\.txt", _pieces, path)
    path.write_bytes(packed + packed)
    assert "".join(_pieces(path)) == "".join(_LINES) * 2


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line, message in (
        ("{", "expected a JSON object in line 1"),
        ("[1]", "got list"),
        ('{"text": 3}', "expected text in 'text' of line 1 .* got int"),
        ('{"texts": "a"}', r"no field 'text' in line 1 .*did you mean 'texts'"),
    ):
        path.write_text(line)
        refuses(message, _pieces, path)
    (tmp_path / "b.txt").write_text("x")
    for given_, message in (
        (tmp_path, "a folder"),
        (tmp_path / "bb.txt", r"did you mean 'b\.txt'"),
        (f"{tmp_path / 'b.txt'}#field", "without parts"),
        ([], "expected a text, got none"),
    ):
        refuses(message, open_texts, given_)


def test_half_a_character_of_json_is_replaced_and_capital_endings_are_known(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "w1 \\ud800 w2 \\ud83d\\ude00"}\n'))
    assert _pieces(tmp_path / "A.JSONL.GZ") == ["w1 \N{REPLACEMENT CHARACTER} w2 \N{GRINNING FACE}"]
