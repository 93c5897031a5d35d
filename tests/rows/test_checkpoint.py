"""PyTorch checkpoints: what torch.save wrote is read block by block; nothing in it is run, and nothing believed."""

import argparse
import os
import pickle
import re
import shutil
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.rows import GRID
from uncone.rows.bytes import LocalFile
from uncone.rows.checkpoint import read_checkpoint

from ..matrices import equal, gaussian
from .reading import DTYPES, all_rows, growth, refused_or_read, refuses, write_zip

TWO = torch.ones(2, 2)


def _saved(path: Path, content: object, **options: object) -> Path:
    torch.save(content, path, **options)
    return path


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", ["pt", "pth", "ckpt", "bin"])
def test_every_dtype_and_suffix_reads_what_was_saved(tmp_path: Path, dtype: str, suffix: str) -> None:
    x = gaussian(GRID + 3, 5, dtype=DTYPES[dtype])
    path = _saved(tmp_path / f"m.{suffix}", {"w": x, "bias": torch.ones(3), "step": 7, "name": "a"})
    for rows in (uncone.open_rows(path), uncone.open_rows(f"{path}#w")):
        assert (rows.shape, rows.dtype, rows.name) == ((GRID + 3, 5), dtype, f"{path}#w")
        assert equal(all_rows(rows), x.double() if dtype == "float64" else x.float())
        assert equal(rows.take(torch.tensor([0, GRID])), all_rows(rows)[[0, GRID]])


def test_a_bare_tensor_needs_no_name(tmp_path: Path) -> None:
    x = gaussian(4, 3)
    for value in (x, torch.nn.Parameter(x)):
        rows = uncone.open_rows(_saved(tmp_path / "x.pt", value))
        assert equal(all_rows(rows), x)
        assert rows.name == str(tmp_path / "x.pt")


def test_nested_names_are_joined_with_dots(tmp_path: Path) -> None:
    x = gaussian(4, 3)
    optimizer = {"state": {0: {"exp_avg": x * 2}}, "more": [x * 3]}
    path = _saved(tmp_path / "x.ckpt", {"state_dict": {"model": {"embed.weight": x}}, "optimizer": optimizer})
    names = ("state_dict.model.embed.weight", "optimizer.state.0.exp_avg", "optimizer.more.0")
    for factor, name in enumerate(names, start=1):
        assert equal(all_rows(f"{path}#{name}"), x * factor)
    message = r"expected one matrix in .*, got 3: say which with x\.ckpt#NAME; it holds 'state_dict"
    refuses(message, uncone.open_rows, path)


@pytest.mark.parametrize("content", [{1: TWO, "1": TWO}, {"a": {"b": TWO}, "a.b": TWO}])
@pytest.mark.parametrize("old", [False, True])
def test_names_that_are_the_same_once_joined_are_refused(tmp_path: Path, content: dict, old: bool) -> None:
    path = _saved(tmp_path / "x.pt", content, _use_new_zipfile_serialization=not old)
    for spec in (path, f"{path}#a.b"):
        refuses(
            r"expected one tensor '(1|a\.b)' in .*, got two: names of nested dicts are equal when joined with dots",
            uncone.open_rows,
            spec,
        )


def test_names_are_not_joined_without_end(tmp_path: Path) -> None:
    """A thousand tensors below one name of a million characters would make a thousand million."""
    long, deep = "k" * 1_000_000, dict[str, object]()
    inside = deep
    for _ in range(60):
        inside["leaf"], inside["b" * 100] = torch.ones(1), {}
        inside = inside["b" * 100]
    for content in ({long: {i: torch.ones(2, 2) for i in range(50)}}, deep):
        path = _saved(tmp_path / "x.pt", content)
        tracemalloc.start()
        refuses(r"expected names of at most 4096 characters in .*, got ", uncone.open_rows, path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
        tracemalloc.stop()


def test_tied_weights_are_one_matrix_under_either_name(tmp_path: Path) -> None:
    x = gaussian(4, 3)
    path = _saved(tmp_path / "x.pt", {"table": x, "head": x, "again": {"table": torch.nn.Parameter(x)}})
    for spec in (path, f"{path}#table", f"{path}#head", f"{path}#again.table"):
        assert equal(all_rows(spec), x)


VIEWS = ("x.T", "x[:, 1:4]", "x[::2]", "x[3:9]", "x[:, ::2]", "x[:1]", "x.T[:1]", "x[:, :1]")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_and_sliced_matrices_are_read_through_their_strides(tmp_path: Path, view: str, dtype: str) -> None:
    x = eval(view, {"x": gaussian(20, 6, dtype=DTYPES[dtype])})
    rows = uncone.open_rows(_saved(tmp_path / "x.pt", x))
    expected = x.double() if dtype == "float64" else x.float()
    assert equal(all_rows(rows), expected)
    out = np.empty((len(x) - 1, x.shape[1]), expected.numpy().dtype)
    assert equal(rows.read(1, len(x), out=out), expected[1:])


def test_a_checkpoint_without_checksums_is_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    path = _saved(tmp_path / "x.pt", gaussian(4, 3))
    torch.serialization.set_crc32_options(True)
    assert equal(all_rows(path), gaussian(4, 3))


def test_the_format_before_1_6_is_loaded_whole(tmp_path: Path) -> None:
    x = gaussian(9, 4, dtype=torch.bfloat16)
    content = {"m": {"x": x, "tied": x, "t": x.T, "n": torch.arange(4), "e": torch.ones(1, 3).expand(5, 3)}, "lr": 0.1}
    path = _saved(tmp_path / "x.bin", content, _use_new_zipfile_serialization=False)
    for name, expected in (("x", x), ("tied", x), ("t", x.T)):
        assert equal(all_rows(f"{path}#m.{name}"), expected.float())
    refuses("got 3: say which", uncone.open_rows, path)
    refuses("overlapping rows", uncone.open_rows, f"{path}#m.e")
    refuses(r"got shape \(4,\)|got int64", uncone.open_rows, f"{path}#m.n")


@pytest.mark.slow
def test_memory_stays_that_of_a_block(tmp_path: Path) -> None:
    """256 MiB of rows: less than 64 MiB of anonymous memory more than before."""
    small = _saved(tmp_path / "small.pt", {"x": torch.zeros(2, 2)})
    assert growth(small, _saved(tmp_path / "x.pt", {"x": torch.zeros(2**20, 64)})) < 64


def _rewritten(path: Path, replaced: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """The same checkpoint as another zip file, with some members replaced."""
    with zipfile.ZipFile(path) as old:
        members = {name: replaced.get(name.partition("/")[2], old.read(name)) for name in old.namelist()}
    return write_zip(path, members, compression)


class TestMessages:
    """Each says what was expected, what came and what to do."""

    @pytest.mark.parametrize("old", [False, True])
    def test_an_object_is_not_unpickled(self, tmp_path: Path, old: bool) -> None:
        content = {"args": argparse.Namespace(lr=1), "w": TWO}
        path = _saved(tmp_path / "x.pt", content, _use_new_zipfile_serialization=not old)
        message = r"got an object of argparse\.Namespace, which only unpickling .* run code: if you"
        refuses(message, uncone.open_rows, path)

    def test_code_is_not_run(self, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self):  # type: ignore[no-untyped-def]
                return os.mkdir, (str(tmp_path / "ran"),)

        for path in (_saved(tmp_path / "x.pt", {"w": Evil()}), tmp_path / "y.bin"):
            if path.suffix == ".bin":
                path.write_bytes(pickle.dumps(Evil()))
            refuses("can run code", uncone.open_rows, path)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.filterwarnings("ignore:.*quantize_per_tensor")
    def test_quantised_tensors(self, tmp_path: Path) -> None:
        quantised = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
        path = _saved(tmp_path / "x.pt", {"q": quantised, "w": torch.ones(3, 2)})
        assert uncone.open_rows(path).shape == (3, 2)
        refuses(r"got a quantised tensor from .*: dequantise", uncone.open_rows, f"{path}#q")

    @pytest.mark.parametrize(
        ("tensor", "message"),
        [
            (torch.ones(2, 2, dtype=torch.int64), "got int64"),
            (torch.eye(2).to_sparse(), "got a sparse_coo tensor"),
            (torch.ones(3), r"got shape \(3,\)"),
            (torch.ones(0, 3), "at least one row"),
            (torch.ones(1, 3).expand(9, 3), "overlapping rows: save .*contiguous"),
            (torch.arange(9.0).as_strided((4, 3), (2, 1)), "overlapping rows: save .*contiguous"),
        ],
    )
    def test_what_is_no_matrix_of_floats(self, tmp_path: Path, tensor: torch.Tensor, message: str) -> None:
        refuses(message, lambda: uncone.open_rows(f"{_saved(tmp_path / 'x.pt', {'w': tensor})}#w"))

    @pytest.mark.parametrize("old", [False, True])
    def test_no_matrix_among_tensors_of_which_those_that_tie_are_counted_each(self, tmp_path: Path, old: bool) -> None:
        x = torch.ones(3)
        content = {"a": x, "b": x, "c": x.long(), "n": None}
        path = _saved(tmp_path / "x.pt", content, _use_new_zipfile_serialization=not old)
        refuses(r"expected a matrix of floats in .*, got none among 3 tensors", uncone.open_rows, path)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda path: write_zip(path, {"hello": b""}),
                r"torch cannot read \(.*\): it was cut or damaged, or is of an",
            ),
            (
                lambda path: _rewritten(_saved(path, TWO), {}, zipfile.ZIP_DEFLATED),
                "expected uncompressed tensors, got compressed ones in .*",
            ),
            (lambda path: _rewritten(_saved(path, TWO), {"byteorder": b"bigend"}), r"torch cannot read \(.*endianness"),
            (
                lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path),
                "a TorchScript program: if you trust the file",
            ),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
    def test_other_zip_files(self, tmp_path: Path, make, message: str) -> None:
        make(tmp_path / "x.pt")
        refuses(message, uncone.open_rows, tmp_path / "x.pt")

    @pytest.mark.parametrize("content", [b"", b"hello", b"PK", b"\x1f\x8b\x08\0"])
    def test_another_kind(self, tmp_path: Path, content: bytes) -> None:
        kinds = {"x.pt": r"a file of torch\.save, got .* of another kind", "x.bin": r"a \.bin file of torch\.save or w"}
        for name, message in kinds.items():
            (tmp_path / name).write_bytes(content)
            refuses(f"expected {message}", uncone.open_rows, tmp_path / name)

    @pytest.mark.parametrize("keep", [0.02, 0.3, 0.7, 0.95, 0.999])
    def test_a_file_cut_anywhere_or_with_a_hole_ends_no_process(self, tmp_path: Path, keep: float) -> None:
        """Its numbers are mapped: to read beyond the end of the file would be SIGBUS."""
        path = _saved(tmp_path / "x.pt", {"a": torch.ones(500, 3), "b": torch.ones(3, 700)})
        content = path.read_bytes()
        for damaged in (content[: int(keep * len(content))], content[:300] + content[300 + int(keep * 6000) :]):
            path.write_bytes(damaged)
            for part in ("a", "b"):
                refuses("which torch cannot read", all_rows, f"{path}#{part}")

    def test_offsets_in_the_directory_of_the_zip_file(self, tmp_path: Path) -> None:
        """One before the file raised OSError, one far beyond it OverflowError."""
        path = _saved(tmp_path / "x.pt", torch.ones(100, 3))
        content, refused = path.read_bytes(), 0
        for at in range(content.index(b"PK\6\6"), len(content) - 4):  # where the directory's own place stands
            path.write_bytes(content[:at] + b"\xce\xff\xff\xff" + content[at + 4 :])
            try:
                assert equal(all_rows(path), torch.ones(100, 3))
            except InputError:
                refused += 1
        assert refused > 20

    @pytest.mark.parametrize("view", ["x", "x.T", "x[:, 1:]", "x[::2]"])
    def test_a_file_cut_while_it_is_open(self, tmp_path: Path, view: str) -> None:
        """A transpose or a slice was mapped: the process was ended by SIGBUS."""
        rows = uncone.open_rows(_saved(tmp_path / "x.pt", eval(view, {"x": torch.ones(5000, 3)})))
        os.truncate(tmp_path / "x.pt", 300)
        refuses("the file was cut", lambda: list(rows.blocks()))

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16])
    def test_a_dtype_that_is_newer_than_the_format(self, tmp_path: Path, dtype: torch.dtype) -> None:
        content = {"w": torch.ones(2, 2), "q": torch.ones(2, 2).to(dtype)}
        path = _saved(tmp_path / "x.pt", content, _use_new_zipfile_serialization=False)
        message = (
            r"expected dtypes from before PyTorch 1\.6 in .*x\.pt, got a tensor of a newer dtype .*: save it again"
        )
        refuses(message, uncone.open_rows, f"{path}#w")

    def test_a_storage_that_an_old_file_does_not_hold(self, tmp_path: Path) -> None:
        """The list of storages names one twice and another not at all: torch gave memory as it was for it."""
        content = {"w": gaussian(9, 3), "v": gaussian(9, 3) + 1}
        path = _saved(tmp_path / "x.pt", content, _use_new_zipfile_serialization=False)
        before, begin, listed = path.read_bytes().rpartition(b"\x80\x02]q\0(")
        one, other = re.findall(rb"X.\0{3}\d+(?=q)", listed, re.DOTALL)
        path.write_bytes(before + begin + listed.replace(other, one))
        refuses("the bytes of a tensor are not in it", uncone.open_rows, f"{path}#w")

    def test_a_storage_that_is_marked_as_a_folder(self, tmp_path: Path) -> None:
        """torch reads nothing of it, and gave memory as it was for it; mapped, the numbers are there."""
        path = _saved(tmp_path / "x.pt", gaussian(9, 3))
        content = bytearray(path.read_bytes())
        directory = re.search(rb"PK\x01\x02.{42}x/data/0", content, re.DOTALL)
        assert directory is not None
        content[directory.start() + 38] = 0x10
        path.write_bytes(content)
        assert equal(all_rows(path), gaussian(9, 3))

    @pytest.mark.parametrize("length", [0, 54, 143, 145, 4096])
    def test_each_record_of_a_saved_archive(self, tmp_path: Path, length: int) -> None:
        x = {"a": gaussian(6, 6), "n": torch.empty(0, 3), "b": gaussian(6, 6) + 1, "t": gaussian(6, 6).t()}
        path = _saved(tmp_path / "x.pt", {**x, "again": x["b"]})
        assert equal(all_rows(f"{path}#again"), x["b"])
        for key in (0, 2, 3):
            with zipfile.ZipFile(path) as archive:
                record = archive.read(f"x/data/{key}")
            copy = Path(shutil.copyfile(path, tmp_path / "other.pt"))
            other = _rewritten(copy, {f"data/{key}": (record + bytes(4096))[:length]})
            for part in ("a", "b", "again"):
                refuses(rf"data/{key} has {length} bytes, but its storage 144", uncone.open_rows, f"{other}#{part}")


def test_what_honest_checkpoints_share_is_read(tmp_path: Path) -> None:
    x, groups = torch.nn.Parameter(gaussian(4, 3)), [{"betas": (0.9, 0.95)}] * 200
    content = {"model": {f"layer.{i}": x for i in range(200)}, "groups": groups, "h": [{"a": (1, 2)}] * 20}
    assert equal(all_rows(_saved(tmp_path / "x.pt", content)), x.detach())


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
@pytest.mark.parametrize("zipped", [True, False])
def test_mutated_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, zipped: bool, changes: list[tuple[int, int]], in_pickle: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    content = {"w": gaussian(8, 4), "v": gaussian(4, 8).T, "n": [1, {"a": "b"}]}
    path = _saved(folder / "valid.pt", content, _use_new_zipfile_serialization=zipped)
    damaged = bytearray(path.read_bytes())
    start, length = 0, len(damaged)
    if in_pickle and zipped:  # where the instructions are
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo("valid/data.pkl")
        start, length = member.header_offset, 60 + member.file_size
    for at, value in changes:
        damaged[start + at % length] = value
    (folder / "x.pt").write_bytes(damaged)
    for name in ("w", "v"):
        refused_or_read(f"{folder}/x.pt#{name}", most=len(damaged))


def test_the_numbers_are_mapped_and_not_copied(tmp_path: Path) -> None:
    x = gaussian(8, 4)
    path = _saved(tmp_path / "x.pt", {"w": x[2:], "whole": x})
    entries = read_checkpoint(LocalFile(path))
    assert equal(entries["w"].tensor, x[2:])
    assert entries["w"].start == entries["whole"].start + 2 * 4 * 4
    with open("/proc/self/maps") as maps:
        assert any(line.rstrip().endswith(str(path)) for line in maps)
