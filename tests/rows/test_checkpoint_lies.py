"""Checkpoints whose instructions or records lie: what torch would do with them is not done."""

import pickle
import re
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import uncone

from ..matrices import equal, gaussian
from .reading import all_rows, refuses, write_zip


def _pickled(path: Path, instructions: bytes, storage: bytes = b"\0" * 64, order: bytes = b"little") -> Path:
    """A checkpoint with instructions of one's own."""
    members = {"data.pkl": b"\x80\x02" + instructions + b".", "byteorder": order, "data/0": storage, "version": b"3\n"}
    return write_zip(path, {f"x/{name}": content for name, content in members.items()})


def _number(value: int) -> bytes:
    content = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def _tensor(numel: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """What torch.save writes for one float32 tensor in storage 0, with these numbers."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu" + _number(numel) + b"tQ"
    sizes = b"(" + b"".join(map(_number, shape)) + b"t(" + b"".join(map(_number, strides)) + b"t"
    end = sizes + b"\x89ccollections\nOrderedDict\n)RtR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + _number(offset) + end


SIXTEEN = _tensor(16, 4, (2, 3), (3, 1))


def test_the_planted_instructions_are_those_of_torch(tmp_path: Path) -> None:
    path = _pickled(tmp_path / "x.pt", SIXTEEN, np.arange(16, dtype="f4").tobytes())
    assert all_rows(path).tolist() == [[4, 5, 6], [7, 8, 9]]


def test_a_big_endian_file(tmp_path: Path) -> None:
    x = gaussian(16, 1)
    path = _pickled(tmp_path / "x.pt", SIXTEEN, x.numpy().astype(">f4").tobytes(), order=b"big")
    assert equal(all_rows(path), x.flatten()[4:10].view(2, 3))


@pytest.mark.parametrize("numbers", [0, 1, 15, 17])
def test_a_record_of_another_size_than_its_storage(tmp_path: Path, numbers: int) -> None:
    """torch.load refuses it, and mapped reads the bytes that follow as numbers."""
    path = _pickled(tmp_path / "x.pt", SIXTEEN, bytes(4 * numbers))
    with pytest.raises(RuntimeError, match="record size"):
        torch.load(path, weights_only=True)
    refuses(rf"record data/0 has {4 * numbers} bytes, but its storage 64\)", uncone.open_rows, path)


def test_a_directory_that_says_more_than_there_is_before_the_next_member(tmp_path: Path) -> None:
    path = _pickled(tmp_path / "x.pt", SIXTEEN, np.arange(13, dtype="f4").tobytes())
    content = bytearray(path.read_bytes())
    for sign, at in ((b"PK\x01\x02", 20), (b"PK\x03\x04", 18)):
        place = [one.start() for one in re.finditer(re.escape(sign), content)][2] + at
        assert content[place : place + 8] == 2 * (52).to_bytes(4, "little")
        content[place : place + 8] = 2 * (64).to_bytes(4, "little")
    path.write_bytes(content)
    assert torch.load(path, weights_only=True).shape == (2, 3)
    refuses(r"record data/0 has 52 bytes, but its storage 64", uncone.open_rows, path)


@pytest.mark.parametrize("name", ["x/DATA/0", "x/data/0"])
@pytest.mark.parametrize(("first", "second"), [(64, 4), (128, 64), (64, 64)])
def test_two_records_of_one_name(tmp_path: Path, name: str, first: int, second: int) -> None:
    """Whichever torch takes: of a first record that is too long it would read the beginning."""
    path = _pickled(tmp_path / "x.pt", SIXTEEN, bytes(first))
    with pytest.warns() if name == "x/data/0" else nullcontext(), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, bytes(range(second)))
    refuses(r"two of its records are called data/0", uncone.open_rows, path)


LIES = [(2**50, 0, (2**40, 2**10), (2**10, 1)), (16, 0, (2**40, 2**10), (2**10, 1)), (16, 2**40, (2, 3), (3, 1))]
LIES += [(16, 0, (5, 4), (4, 1)), (16, 14, (1, 3), (3, 1)), (16, 0, (2, 3), (2**60, 1))]
LIES += [(16, -4, (2, 3), (3, 1)), (16, 0, (-2, 3), (3, 1)), (2**40, 2**39, (2, 3), (3, 1))]


@pytest.mark.parametrize("lie", LIES)
def test_sizes_that_do_not_fit_the_file_are_refused_and_allocate_nothing(tmp_path: Path, lie) -> None:
    refuses(
        r"is wrong about tensor|which torch cannot read", uncone.open_rows, _pickled(tmp_path / "x.pt", _tensor(*lie))
    )


@pytest.mark.parametrize("name", [b"__builtin__\nbytearray", b"builtins\nprint", b"builtins\neval"])
def test_no_function_is_called_with_a_size(tmp_path: Path, name: bytes) -> None:
    path = _pickled(tmp_path / "x.pt", b"c" + name + b"\n(" + _number(2**45) + b"tR")
    refuses(r"which torch cannot read \(MemoryError|got an object of", uncone.open_rows, path)


def test_containers_that_hold_themselves_end(tmp_path: Path) -> None:
    lists = (b"]q" + bytes([i]) + (b"(h%bh%be" % (bytes([i - 1]), bytes([i - 1])) if i else b"") for i in range(15))
    for instructions in (b"}q\x00X\x01\0\0\0ah\x00s", b"".join(lists)):
        refuses("got none among 0 tensors", uncone.open_rows, _pickled(tmp_path / "x.pt", instructions))


@given(st.binary(max_size=300))
@example(b"\x8a\x0a")
def test_random_instructions_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for path in (_pickled(folder / "x.pt", data), folder / "y.bin", folder / "z.pt"):
        if path.name != "x.pt":
            path.write_bytes((b"\x80\x02" if path.suffix == ".bin" else b"PK\x03\x04") + data)
        with pytest.raises(uncone.UnconeError):
            uncone.open_rows(path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("length", "message"), [(5_000, "got an object of mxxx"), (10**6, "a class has a name of")])
def test_an_object_of_a_long_name_is_refused_at_once(tmp_path: Path, legacy: bool, length: int, message: str) -> None:
    """The message does not grow with it, and torch searches none that took it hours."""
    path = tmp_path / "x.pt"
    instructions = b"}q\x00X\x01\x00\x00\x00wq\x01cm" + b"x" * length + b"\nf\nq\x02s"
    if legacy:
        before = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {}))
        path.write_bytes(before + b"\x80\x02" + instructions + b"." + pickle.dumps([], 2))
    else:
        _pickled(path, instructions)
    assert len(refuses(message, uncone.open_rows, path)) < 1100
