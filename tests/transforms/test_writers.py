"""Each format read back by the library that it belongs to, with what stood beside the rows."""

import gzip
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import uncone
from uncone.rows import as_rows
from uncone.rows.open import split_part
from uncone.transforms import Affine, Center
from uncone.transforms.apply import repair_rows

from ..rows.reading import all_rows, refuses

N, D = 200, 5
ADD_ONE = Affine(-torch.ones(D))
HALVES = Affine(torch.zeros(D), torch.eye(D)[:, :2] / 2)
WORDS = [f"w{i}" for i in range(N - 3)] + ["New York", "naïve", "3"]


def _x(dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, D)).astype(dtype)


def _text(path: Path, words: list[str], *, header: bool) -> Path:
    lines = [f"{N} {D}"] * header
    lines += [f"{word} {' '.join(map(repr, row))}" for word, row in zip(words, _x().tolist(), strict=True)]
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def _rows(spec: Path | str) -> np.ndarray:
    return all_rows(spec).numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(
    "out", ["y.npy", "y.npz", "y.npz#name", "y.safetensors", "y.safetensors#name", "y.parquet", "y.parquet#name"]
)
def test_the_dtype_stays_and_uncone_reads_it_again(tmp_path: Path, dtype: str, out: str) -> None:
    if "parquet" in out:
        pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    x = _x(dtype)
    applied = repair_rows(x, HALVES, f"{tmp_path}/{out}")
    rows = uncone.open_rows(f"{tmp_path}/{out}")
    assert (rows.shape, rows.dtype, applied.dtype) == ((N, 2), dtype, dtype)
    np.testing.assert_array_equal(_rows(f"{tmp_path}/{out}").astype(dtype), x[:, :2] / np.array(2, dtype))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8"])
def test_npy_in_any_order_of_bytes_and_axes(tmp_path: Path, order: Literal["C", "F"], dtype: str) -> None:
    x = _x(dtype)
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    repair_rows(uncone.open_rows(tmp_path / "x.npy"), ADD_ONE, tmp_path / "y.npy")
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == np.dtype(x.dtype.newbyteorder("="))
    np.testing.assert_array_equal(y, x.astype(y.dtype) + np.array(1, y.dtype))


def test_without_a_suffix_the_format_is_that_of_the_source(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", _x())
    repair_rows(uncone.open_rows(tmp_path / "x.npy"), ADD_ONE, tmp_path / "y")
    np.testing.assert_array_equal(np.load(tmp_path / "y"), _x() + np.float32(1))
    refuses("expected a name that ends in", repair_rows, _x(), ADD_ONE, tmp_path / "z")


def test_other_arrays_of_an_npz_stay_as_they_are(tmp_path: Path) -> None:
    objects = np.array([{"never": "loaded"}], dtype=object)
    np.savez_compressed(tmp_path / "x.npz", ids=np.arange(N), vectors=_x(), notes=objects)
    source = uncone.open_rows(f"{tmp_path}/x.npz#vectors")
    repair_rows(source, ADD_ONE, tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        assert set(found.files) == {"ids", "vectors", "notes"}
        np.testing.assert_array_equal(found["vectors"], _x() + np.float32(1))
        np.testing.assert_array_equal(found["ids"], np.arange(N))
    with zipfile.ZipFile(tmp_path / "x.npz") as old, zipfile.ZipFile(tmp_path / "y.npz") as new:
        assert old.read("notes.npy") == new.read("notes.npy")
    repair_rows(source, ADD_ONE, f"{tmp_path}/z.npz#other")
    with np.load(tmp_path / "z.npz") as found:
        assert set(found.files) == {"ids", "other", "notes"}
    refuses(r"expected a free name, got v\.npz#ids", repair_rows, source, ADD_ONE, f"{tmp_path}/v.npz#ids")
    assert "lacks everything else that x.npz holds" in repair_rows(source, ADD_ONE, tmp_path / "y.npy").notes[0]


def test_other_tensors_and_metadata_of_safetensors_stay_as_they_are(tmp_path: Path) -> None:
    others = {"a": torch.arange(7), "z": torch.randn(3, 3, 3).bfloat16()}
    save_file({**others, "m": torch.from_numpy(_x())}, tmp_path / "x.safetensors", metadata={"who": "me"})
    rows = uncone.open_rows(f"{tmp_path}/x.safetensors#m")
    repair_rows(rows, HALVES, tmp_path / "y.safetensors")
    found = load_file(tmp_path / "y.safetensors")
    assert set(found) == {"a", "m", "z"}
    assert all(torch.equal(found[name], tensor) for name, tensor in others.items())
    np.testing.assert_array_equal(found["m"].numpy(), _x()[:, :2] / np.float32(2))
    with safe_open(tmp_path / "y.safetensors", "np") as file:
        assert file.metadata() == {"who": "me"}
    refuses("expected a free name", repair_rows, rows, HALVES, f"{tmp_path}/v.safetensors#a")


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_words_and_the_first_line_of_text_stay(tmp_path: Path, header: bool, zipped: bool) -> None:
    source = _text(tmp_path / "x.vec", WORDS, header=header)
    out = tmp_path / ("y.vec.gz" if zipped else "y.vec")
    repair_rows(uncone.open_rows(source), HALVES, out)
    lines = (gzip.decompress(out.read_bytes()) if zipped else out.read_bytes()).decode().splitlines()
    assert (lines[0] == f"{N} 2") == header
    assert [line.rsplit(" ", 2)[0] for line in lines[header:]] == WORDS
    np.testing.assert_array_equal(_rows(out), _x()[:, :2] / np.float32(2))
    assert list(uncone.open_rows(out).labels or ()) == WORDS


def test_every_float32_comes_back_from_text(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 4 * N * D, dtype=np.uint32).view(np.float32)
    x = bits[np.isfinite(bits)][: N * D].reshape(N, D)
    repair_rows(_labelled(x, [str(i) for i in range(N)]), Affine(torch.zeros(D)), tmp_path / "y.txt")
    np.testing.assert_array_equal(_rows(tmp_path / "y.txt"), x)


def test_words_that_are_no_utf8_stay_byte_for_byte(tmp_path: Path) -> None:
    content, same = b"caf\xe9 0.5 1.5\n\xff\xfe 2.5 3.5\n", Affine(torch.zeros(2))
    (tmp_path / "x.vec").write_bytes(content)
    for out, begin in (("y.vec", content), ("y.bin", b"2 2\ncaf\xe9 ")):
        repair_rows(uncone.open_rows(tmp_path / "x.vec"), same, tmp_path / out)
        assert (tmp_path / out).read_bytes().startswith(begin)


def test_word2vec_binary_is_as_gensim_writes_it(tmp_path: Path) -> None:
    words = [word.replace(" ", "_") for word in WORDS]
    repair_rows(uncone.open_rows(_text(tmp_path / "x.vec", words, header=True)), ADD_ONE, tmp_path / "y.bin")
    rows = (f"{w} ".encode() + row.tobytes() for w, row in zip(words, _x() + np.float32(1), strict=True))
    assert (tmp_path / "y.bin").read_bytes() == f"{N} {D}\n".encode() + b"".join(rows)
    repair_rows(uncone.open_rows(tmp_path / "y.bin"), Affine(torch.ones(D)), tmp_path / "z.bin")
    assert uncone.open_rows(tmp_path / "z.bin").labels == words


def _labelled(x: np.ndarray, labels: list[str | None]) -> uncone.Rows:
    rows = as_rows(x)
    rows.load_labels = lambda: labels
    return rows


@pytest.mark.parametrize(
    ("word", "out", "why"),
    [
        ("a\nb", "y.vec", "with a newline"),
        ("a ", "y.txt", "with white space at its end"),
        ("release 1.5", "y.glove", "which ends like another number"),
        ("New York", "y.bin", "with a space"),
        (None, "y.vec", "none"),
    ],
)
def test_words_that_would_not_be_read_back_are_refused(tmp_path: Path, word: str | None, out: str, why: str) -> None:
    message = rf"expected a word that {out} can hold in row 1, got .*{why}"
    refuses(message, repair_rows, _labelled(_x()[:2], ["fine", word]), ADD_ONE, tmp_path / out)
    assert list(tmp_path.iterdir()) == []


def test_a_glove_file_has_no_first_line_and_others_have_one(tmp_path: Path) -> None:
    for out, first in (("y.glove", b"w0 "), ("y.vec", f"{N} {D}\n".encode()), ("y.txt", f"{N} {D}\n".encode())):
        repair_rows(_labelled(_x(), WORDS), ADD_ONE, tmp_path / out)
        assert (tmp_path / out).read_bytes().startswith(first)


class TestParquet:
    pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra [parquet] is not installed")

    def _table(self, kind: str):
        pa, flat = self.pa, _x().reshape(-1)
        offsets = np.arange(0, N * D + 1, D)
        vectors = {
            "list": lambda: pa.ListArray.from_arrays(offsets.astype(np.int32), flat),
            "large": lambda: pa.LargeListArray.from_arrays(offsets, flat),
            "fixed": lambda: pa.FixedSizeListArray.from_arrays(flat, D),
        }[kind]()
        names = pa.array([None if i % 7 == 0 else f"name {i}" * 30 for i in range(N)])
        return pa.table({"id": np.arange(N), "vector": vectors, "name": names})

    @pytest.mark.parametrize("kind", ["list", "large", "fixed"])
    def test_other_columns_stay_in_their_places(self, tmp_path: Path, kind: str) -> None:
        table = self._table(kind)
        self.pq.write_table(table.replace_schema_metadata({"who": "me"}), tmp_path / "x.parquet", row_group_size=37)
        repair_rows(uncone.open_rows(tmp_path / "x.parquet"), ADD_ONE, tmp_path / "y.parquet")
        found = self.pq.read_table(tmp_path / "y.parquet")
        assert found.schema.equals(table.schema)
        assert found.schema.metadata == {b"who": b"me"}
        assert found.select(["id", "name"]).equals(table.select(["id", "name"]))
        flat = np.concatenate([chunk.flatten().to_numpy() for chunk in found["vector"].chunks])
        np.testing.assert_array_equal(flat.reshape(N, D), _x() + np.float32(1))

    def test_shorter_lists_are_said_by_their_type(self, tmp_path: Path) -> None:
        table = self._table("fixed").replace_schema_metadata({"huggingface": "length 5", "who": "me"})
        self.pq.write_table(table, tmp_path / "x.parquet")
        repair_rows(uncone.open_rows(tmp_path / "x.parquet"), HALVES, tmp_path / "y.parquet")
        schema = self.pq.read_schema(tmp_path / "y.parquet")
        assert schema.field("vector").type == self.pa.list_(self.pa.float32(), 2)
        assert schema.metadata == {b"who": b"me"}

    def test_a_folder_becomes_one_file_and_stays_as_it_was(self, tmp_path: Path) -> None:
        table, folder = self._table("list"), tmp_path / "parts"
        folder.mkdir()
        for i in range(3):
            self.pq.write_table(table.slice(70 * i, 70), folder / f"{i}.parquet")
        rows = uncone.open_rows(folder)
        repair_rows(rows, ADD_ONE, tmp_path / "y.parquet")
        assert self.pq.read_table(tmp_path / "y.parquet")["id"].to_pylist() == list(range(N))
        message = "expected an output file other than the input"
        refuses(message, repair_rows, rows, ADD_ONE, folder / "y.parquet")
        self.pq.write_table(table.drop_columns(["id"]), folder / "1.parquet")
        message = r"expected the same columns in all parts .*, got other columns in 1.parquet"
        refuses(message, repair_rows, uncone.open_rows(folder), ADD_ONE, tmp_path / "z.parquet")

    def test_labels_become_a_column_and_words_again(self, tmp_path: Path) -> None:
        repair_rows(_labelled(_x(), WORDS), ADD_ONE, tmp_path / "y.parquet")
        assert self.pq.read_table(tmp_path / "y.parquet").column_names == ["label", "vector"]
        applied = repair_rows(uncone.open_rows(tmp_path / "y.parquet"), ADD_ONE, tmp_path / "z.vec")
        assert uncone.open_rows(tmp_path / "z.vec").labels == WORDS
        assert "lacks the other columns of the source" in applied.notes[0]

    def test_row_groups_stay_small(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uncone.rows.parquet_writer._GROUP_BYTES", 64 * 4 * D)
        monkeypatch.setattr("uncone.transforms.apply.BLOCK_BYTES", 32 * 4 * D)
        repair_rows(_x(), ADD_ONE, tmp_path / "y.parquet")
        metadata = self.pq.read_metadata(tmp_path / "y.parquet")
        assert metadata.num_row_groups == 4
        assert sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) == N


def test_what_a_format_has_no_place_for_is_said(tmp_path: Path) -> None:
    source = uncone.open_rows(_text(tmp_path / "x.vec", WORDS, header=True))
    assert "lacks the words of the source" in repair_rows(source, ADD_ONE, tmp_path / "y.npy").notes[0]
    assert repair_rows(_x("float64"), Center().fit(_x("float64")), tmp_path / "z.npy").notes == ()


def test_a_hash_may_stand_in_a_name(tmp_path: Path) -> None:
    (tmp_path / "a#b").mkdir()
    assert split_part(f"{tmp_path}/a#b/y.npz") == (f"{tmp_path}/a#b/y.npz", None)
    assert split_part(f"{tmp_path}/a#b/y.npz#k#l") == (f"{tmp_path}/a#b/y.npz", "k#l")
    assert split_part(f"{tmp_path}/y#1") == (f"{tmp_path}/y#1", None)
