"""Ids of rows: those of a file, of the source itself, or the numbers of the rows."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from uncone import open_rows
from uncone.rows import as_rows, without_nonfinite
from uncone.rows.ids import places_of

from .reading import refuses

X = np.eye(4, 3, dtype=np.float32)


def _keys(path: Path) -> list[str]:
    return list(places_of(open_rows(path), None))


def test_ids_of_npz_are_texts_or_whole_numbers_beside_the_matrix(tmp_path: Path) -> None:
    numbers = ["0", "1", "2", "3"]
    for ids, expected in (
        (np.array(["a", "", "bcd", "e"], ">U4"), ["a", "", "bcd", "e"]),
        (np.array(["a", "b", "c", "\N{GREEK SMALL LETTER PI}"]), ["a", "b", "c", "\N{GREEK SMALL LETTER PI}"]),
        (np.arange(7, 11, dtype=">i2"), ["7", "8", "9", "10"]),
        (np.array([2**64 - 1, 0, 1, 2], np.uint64), [str(2**64 - 1), "0", "1", "2"]),
        (np.arange(3), numbers),  # of something else
        (np.arange(4.0), numbers),
        (np.array(["a", None, "b", "c"], object), numbers),  # never unpickled
        (np.arange(8).reshape(4, 2), numbers),
    ):
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / "x.npz", x=X, ids=ids)
            assert _keys(tmp_path / "x.npz") == expected
    np.savez(tmp_path / "x.npz", x=X, y=X[:2], x_ids=np.arange(4) * 2, ids=np.arange(2) + 50)
    assert list(places_of(open_rows(f"{tmp_path / 'x.npz'}#x"), None)) == ["0", "2", "4", "6"]
    assert list(places_of(open_rows(f"{tmp_path / 'x.npz'}#y"), None)) == ["50", "51"]


def test_ids_of_npz_that_lie(tmp_path: Path) -> None:
    matrix, ids = io.BytesIO(), io.BytesIO()
    np.save(matrix, X)
    np.save(ids, np.array(["ab", "cd", "ef", "gh"]))

    def keys(ids: bytes) -> list[str]:
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("x.npy", matrix.getvalue())
            archive.writestr("ids.npy", ids)
        return _keys(tmp_path / "x.npz")

    assert keys(ids.getvalue()) == ["ab", "cd", "ef", "gh"]
    refuses(r"is wrong about 'ids\.npy': 4 ids do not take its", keys, ids.getvalue()[:-4])
    refuses(r"expected a .npy file, got .*ids.npy with a header", keys, b"no array")
    beyond = ids.getvalue()[:-4] + b"\xff\xff\xff\x7f"  # the last character
    refuses(r"is wrong about 'ids\.npy': its texts do not decode", keys, beyond)


def test_ids_of_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    long = "x" * 500  # a label would be cut
    for columns, expected in (
        ({"id": ["a", "b", "c", long]}, ["a", "b", "c", long]),
        ({"token": ["t0", "t1", "t2", "t3"], "_id": [4, 5, 6, 7]}, ["4", "5", "6", "7"]),
        ({"token": ["t0", "t1", "t2", "t3"], "id": [0.5, 1.5, 2.5, 3.5]}, ["t0", "t1", "t2", "t3"]),
        ({"id": ["a", None, "c", "d"]}, ["a", "c", "d"]),
        ({}, ["0", "1", "2", "3"]),
    ):
        pq.write_table(pa.table({**columns, "v": list(X)}), tmp_path / "x.parquet", row_group_size=3)
        assert _keys(tmp_path / "x.parquet") == expected
    (tmp_path / "parts").mkdir()
    for at, ids in enumerate((["a", "b", "c", "d"], ["e", "f", "g", "h"])):
        pq.write_table(pa.table({"doc_id": ids, "v": list(X)}), tmp_path / "parts" / f"{at}.parquet")
    assert _keys(tmp_path / "parts") == list("abcdefgh")
    column = pa.array([b"a", b"\xff", b"c", b"d"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": column, "v": list(X)}), tmp_path / "x.parquet")
    refuses(r"x\.parquet", _keys, tmp_path / "x.parquet")


def test_ids_follow_the_rows_that_are_left(tmp_path: Path) -> None:
    x = X.copy()
    x[1, 0] = np.nan
    np.savez(tmp_path / "x.npz", x=x, ids=np.array(["a", "b", "c", "d"]))
    kept = without_nonfinite(open_rows(tmp_path / "x.npz"))
    assert places_of(kept, None) == {"a": 0, "c": 1, "d": 2}
    assert places_of(kept, ["p", "q", "r", "s"]) == {"p": 0, "r": 1, "s": 2}
    (tmp_path / "ids").write_text("p\rq\r\nr\ns\nt\n")  # a carriage return alone ends a line too
    refuses(r"expected 4 lines in .*, one per row of .*, got 5", places_of, kept, tmp_path / "ids")
    (tmp_path / "ids").write_text("p\rq\nr\ns\n")
    assert places_of(as_rows(X), tmp_path / "ids") == {"p": 0, "q": 1, "r": 2, "s": 3}
