"""Token counts: what a table or an array may say, and each way in which it may not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.reading import refuses
from uncone import InputError, UnconeError
from uncone.model.counts import as_counts, read_counts

DATA = Path(__file__).parents[2] / "../shared/data/frequency"
LABELS = ["[PAD]", "the", "of", None, "##x"]
EMPTY = ("id\ttoken\tcount\n", "id\tcount\n", "id\ttoken\tcount\n\n", "token\tcount")


def _table(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "counts.tsv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


class TestTables:
    def test_by_id_or_token(self, tmp_path: Path) -> None:
        found = read_counts(_table(tmp_path, "id\ttoken\tcount\n2\tof\t7\n1\tthe\t900\n"), 5, LABELS)
        assert found.counts.tolist() == [0, 900, 7, 0, 0]
        assert found.notes == ("3 rows are not named in counts.tsv: their count is taken as 0.",)
        found = read_counts(_table(tmp_path, "word\tcount\nthe\t5\nelse\t9\n##x\t2\n"), 5, LABELS)
        assert found.counts.tolist() == [0, 5, 0, 0, 2]
        assert "1 token of counts.tsv is not in this vocabulary and was left out." in found.notes

    @pytest.mark.parametrize(
        ("text", "counts"),
        [
            ("ID\tCount\r\n0\t3\r\n1\t0\r\n\r\n", [3, 0]),
            ("\ufeffid\ttoken\tcount\n0\tanything\t3\n", [3]),
            ("id\ttoken\tcount\n0\ta\u2028\x85b\t4\n1\tc\t5\n", [4, 5]),  # line ends of other systems
        ],
    )
    def test_without_labels(self, tmp_path: Path, text: str, counts: list[int]) -> None:
        assert read_counts(_table(tmp_path, text), len(counts)).counts.tolist() == counts
        with pytest.raises(InputError, match="expected counts by id, as no tokenizer was found"):
            read_counts(_table(tmp_path, "token\tcount\na\t1\n"), 5)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "expected a first line `id<TAB>token<TAB>count`"),
            ("0\t[PAD]\t3\n", r"in counts.tsv, got '0 \[PAD\] 3': name the columns"),
            *((f"{head}", "expected a line for each token, got only the first") for head in EMPTY),
            ("id\tcount\n0\t3\n1\n", "expected 2 columns, got 1 in line 3 of counts.tsv"),
            ("id\tcount\n0\t3\n1\t2\t2\n", "expected 2 columns, got 3 in line 3"),
            ("id\tcount\n5\t3\n", "expected an id from 0 to 4, got '5' in line 2"),
            ("id\tcount\n-1\t3\n", "expected an id from 0 to 4, got '-1' in line 2"),
            ("id\tcount\n1\t3.5\n", r"expected a count from 0 to \d+, got '3.5' in line 2"),
            ("id\tcount\n1\t٣\n", "expected a count from 0 to"),
            ("id\tcount\n1\t99999999999999999999999\n", "expected a count from 0 to"),
            ("id\tcount\n1\t3\n1\t4\n", "expected each id once, got '1' again in line 3"),
            ("token\tcount\nthe\t3\nthe\t4\n", "expected each token once, got 'the' again in line 3"),
            ("id\tcount\n1\t0\n", "expected a count above 0, got none in counts.tsv"),
            ("word\tcount\nnothing\t4\n", "expected tokens of this vocabulary, got none in 1 line of"),
            (
                "id\ttoken\tcount\n1\tof\t4\n2\tthe\t4\n",
                "'of' for id 1 in line 2 of counts.tsv, which is 'the', and 1 more",
            ),
            (b"id\tcount\n1\t\xff\n", "expected UTF-8, got .*, whose line 2 is not"),
        ],
    )
    def test_what_does_not_fit_is_said_with_its_line(self, tmp_path: Path, text: str | bytes, message: str) -> None:
        refuses(message, read_counts, _table(tmp_path, text), 5, LABELS)

    def test_a_token_of_several_rows_is_said(self, tmp_path: Path) -> None:
        table = _table(tmp_path, "token\tcount\na\t5\nb\t1\n")
        found = read_counts(table, 3, ["a", "a", "b"])
        assert found.counts.tolist() == [5, 0, 1]
        note = "1 token of counts.tsv belongs to several rows: its count goes to the first"
        assert found.notes[-1].startswith(note)
        assert len(read_counts(table, 2, ["a", "b"]).notes) == 0

    def test_no_file(self, tmp_path: Path) -> None:
        for name in ("none.tsv", "none.npy"):
            refuses(rf"cannot read .*{name}: No such file.*: give a file", read_counts, tmp_path / name, 3)
        refuses("cannot read", read_counts, tmp_path, 3)

    @settings(max_examples=60)
    @given(
        st.binary(max_size=80)
        | st.text("idtokencu\t\n0123456789-", max_size=80).map(lambda t: ("id\tcount\n" + t).encode())
    )
    def test_any_bytes_are_read_or_refused(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        path = tmp_path_factory.mktemp("fuzz") / "counts.tsv"
        path.write_bytes(content)
        try:
            found = read_counts(path, 4)
        except UnconeError:
            return
        assert found.counts.shape == (4,)
        assert int(found.counts.min()) >= 0


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, ">i4"])
    def test_npy(self, tmp_path: Path, dtype: type) -> None:
        np.save(tmp_path / "c.npy", np.array([3, 0, 5], dtype))
        assert read_counts(tmp_path / "c.npy", 3).counts.tolist() == [3, 0, 5]

    def test_tensors_and_arrays(self) -> None:
        for counts in (torch.tensor([1, 2]), np.array([1.0, 2.0]), torch.tensor([1, 2], dtype=torch.bfloat16)):
            assert as_counts(counts, 2).counts.tolist() == [1, 2]
        refuses("expected a count above 0, got none", as_counts, torch.zeros(0), 0)
        refuses("expected a file, tensor or array of counts, got list", as_counts, [1, 2], 2)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.ones(4), r"expected 3 counts, got float64 of shape \(4,\)"),
            (np.ones((3, 1)), r"got float64 of shape \(3, 1\)"),
            (np.array(["a", "b", "c"]), "expected 3 counts, got <U1"),
            (np.array([1, 2, 0.5]), "expected whole counts from 0 up, got 0.5 at row 2"),
            (np.array([1, -2, 0]), "expected whole counts from 0 up, got -2 at row 1"),
            (np.array([1, np.nan, 0]), "expected whole counts from 0 up, got nan at row 1"),
            (np.zeros(3), "expected a count above 0, got none"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, array: np.ndarray, message: str) -> None:
        refuses(message, as_counts, array, 3)
        np.save(tmp_path / "c.npy", array)
        refuses(message, read_counts, tmp_path / "c.npy", 3)

    def test_pickles_and_lies_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "p.npy", np.array([{}, 1, 2], dtype=object), allow_pickle=True)
        (tmp_path / "n.npy").write_bytes(b"no array")
        np.save(tmp_path / "l.npy", np.ones(10**5))
        (tmp_path / "l.npy").write_bytes((tmp_path / "l.npy").read_bytes()[:200])
        refuses("the file was cut", read_counts, tmp_path / "l.npy", 10**5)
        for name in ("p", "n", "l"):
            refuses(r"expected (3 counts|a \.npy file), got", read_counts, tmp_path / f"{name}.npy", 3)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared counts are not there")
@pytest.mark.parametrize(("name", "total"), [("lm1b", "the"), ("pg19", "the")])
def test_published_counts_fit_the_vocabulary(minilm: Path, name: str, total: str) -> None:
    from uncone import open_rows

    rows = open_rows(f"{minilm}#input")
    assert rows.labels is not None
    found = read_counts(DATA / f"bert-base-uncased_{name}_token_counts.tsv", 30522, rows.labels)
    assert found.notes == ()
    assert rows.labels[int(found.counts.argmax())] in (total, ",", ".")
    assert int((found.counts == 0).sum()) > 994
