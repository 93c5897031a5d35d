"""GGUF files, written by the package gguf and read without believing them."""

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.matrices import equal, gaussian
from uncone import InputError
from uncone.rows import GRID
from uncone.rows import gguf as module
from uncone.rows.bytes import LocalFile
from uncone.rows.gguf import TYPES as KNOWN
from uncone.rows.gguf import StringArray, gguf_rows, read_gguf, strings

from ..gguf_files import write_gguf
from .reading import DTYPES, all_rows, growth, refused_or_read, refuses

gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
TYPES = gguf.GGMLQuantizationType
_OTHERS = ("I8", "I16", "I32", "I64", "F64", "BF16", "Q8_1", "Q8_K", "Q1_0")
DEQUANTISED = [kind for kind in TYPES if kind.value > 1 and kind.name not in _OTHERS]
TOKENS = ["<unk>", "<s>", "▁the", "\u202e", "Ġx"]


def _written(path: Path, tensors: dict[str, tuple[np.ndarray, object]], **options: Any) -> Path:
    arrays: dict[str, list[object]] = {"nested": [[1, 2], [3, 4]], "scores": [0.5] * 5}
    return write_gguf(path, tensors, tokens=TOKENS, arrays=arrays, **options)


def _random(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)


def _rows(path: Path, name: str = "w") -> uncone.Rows:
    source = LocalFile(path)
    return gguf_rows(source, read_gguf(source).tensors, name)


def test_the_types_are_those_of_the_package() -> None:
    known = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in TYPES}
    assert known == {value: entry for value, entry in KNOWN.items() if value in known}


@pytest.mark.parametrize("name", DTYPES)
def test_floats_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    x = gaussian(GRID + 3, 4, dtype=DTYPES[name])
    kind = TYPES.BF16 if name == "bfloat16" else None
    content = x.view(torch.uint8).numpy() if kind else x.numpy()
    rows = _rows(_written(tmp_path / "x.gguf", {"bias": (np.ones(3, "f4"), None), "w": (content, kind)}))
    assert (rows.shape, rows.dtype) == ((GRID + 3, 4), name)
    assert equal(all_rows(rows), x if name == "float64" else x.float())


@pytest.mark.parametrize("kind", DEQUANTISED, ids=lambda kind: kind.name)
def test_quantised_rows_are_what_the_package_makes_of_the_whole(tmp_path: Path, kind, monkeypatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1024)  # several calls a block
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    columns = 2 * max(elements, 256)
    content = np.random.default_rng(1).integers(0, 256, (37, columns // elements * size), np.uint8)
    path = _written(tmp_path / "x.gguf", {"bias": (np.ones(3, "f4"), None), "w": (content, kind)})
    rows = _rows(path)
    tensor = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "w")
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(tensor.data, kind)
    assert (rows.shape, rows.dtype) == ((37, columns), kind.name)
    assert np.array_equal(all_rows(rows).numpy(), expected, equal_nan=True)
    assert np.array_equal(rows.read(5, 9), expected[5:9], equal_nan=True)


@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "Q4_0"])
def test_quantised_rows_are_near_what_was_quantised(tmp_path: Path, name: str) -> None:
    x, kind = _random(40, 64), TYPES[name]
    rows = _rows(_written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, kind), kind)}))
    assert np.abs(all_rows(rows).numpy() - x).max() <= np.abs(x).max() / {"Q8_0": 127, "Q5_1": 15, "Q4_0": 8}[name]
    assert torch.isfinite(all_rows(rows)).all()


def test_the_header_is_what_was_written(tmp_path: Path) -> None:
    tensors, keys = {"w": (_random(3, 2), None)}, {"llama.context_length": 7}
    source = LocalFile(_written(tmp_path / "x.gguf", tensors, alignment=64, keys=keys))
    header = read_gguf(source)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.context_length"] == 7
    assert header.tensors["w"].start % 64 == 0
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray)
    assert list(strings(source, tokens)) == TOKENS


def test_a_header_longer_than_the_buffer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUFFER", 8)
    test_the_header_is_what_was_written(tmp_path)


def test_a_file_cut_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    path = _written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(_random(50, 32), TYPES.Q8_0), TYPES.Q8_0)})
    rows = _rows(path)
    path.write_bytes(path.read_bytes()[:-40])
    refuses("the file was cut", lambda: list(rows.blocks()))


@pytest.mark.slow
def test_memory_stays_that_of_a_block(tmp_path: Path) -> None:
    """256 MiB of rows, dequantised: less than 64 MiB of anonymous memory more than before."""
    specs = []
    for name, n in (("small", 2), ("x", 2**17)):
        content = {"w": (np.zeros((n, 16 * 34), np.uint8), TYPES.Q8_0)}
        specs.append(f"{_written(tmp_path / f'{name}.gguf', content)}#w")
    assert growth(*specs) < 64


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_only_quantised_tensors_need_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        x = _random(8, 32)
        path = _written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, TYPES.Q8_0), TYPES.Q8_0), "v": (x, None)})
        monkeypatch.setitem(sys.modules, "gguf", None)
        assert _rows(path, "v").shape == (8, 32)
        refuses(r"reading Q8_0 from .* needs the package gguf: pip install 'uncone\[gguf\]'", _rows, path)

    @pytest.mark.parametrize("name", ["Q8_1", "Q8_K"])
    def test_a_type_that_is_not_dequantised(self, tmp_path: Path, name: str) -> None:
        size = gguf.GGML_QUANT_SIZES[TYPES[name]][1]
        path = _written(tmp_path / "x.gguf", {"w": (np.zeros((2, size), np.uint8), TYPES[name])})
        refuses(f"the package gguf cannot dequantise {name} .*: install a newer one, or convert", _rows, path)

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (np.ones((2, 2), "i4"), "or a quantised type, got I32 from"),
            (np.ones(3, "f4"), r"expected a matrix of shape \(N, D\), got shape \(3,\)"),
        ],
    )
    def test_no_matrix_of_floats(self, tmp_path: Path, x: np.ndarray, message: str) -> None:
        refuses(message, _rows, _written(tmp_path / "x.gguf", {"w": (x, None)}))

    def test_an_unknown_tensor(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no tensor 'token_embd' in .*: did you mean 'token_embd.weight'"):
            _rows(_written(tmp_path / "x.gguf", {"token_embd.weight": (_random(3, 2), None)}), "token_embd")

    @pytest.mark.parametrize("content", [b"", b"GGUF", b"GGML" + bytes(40)])
    def test_no_gguf(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.gguf").write_bytes(content)
        refuses(r"expected a GGUF file, got .* without its magic number", _rows, tmp_path / "x.gguf")

    @pytest.mark.parametrize(
        ("version", "message"), [(1, "version 1"), (4, "version 4"), (3 << 24, "a big-endian file")]
    )
    def test_other_versions(self, tmp_path: Path, version: int, message: str) -> None:
        (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0) + bytes(40))
        refuses(f"expected little-endian GGUF of version 2 or 3, got {message}", _rows, tmp_path / "x.gguf")


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _file(path: Path, n_keys: int, keys: bytes, n_tensors: int, tensors: bytes) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + keys + tensors + bytes(64))
    return path


def _info(axes: tuple[int, ...], kind: int = 0, offset: int = 0, name: bytes = b"w") -> bytes:
    return _text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def test_the_planted_header_is_read(tmp_path: Path) -> None:
    assert _rows(_file(tmp_path / "x.gguf", 0, b"", 1, _info((2, 3)))).shape == (3, 2)


_A = _text(b"a")
_ALIGNMENT = _text(b"general.alignment")
LIES = {
    "tensors without end": (0, b"", 2**60, b"", "1152921504606846976 tensors in"),
    "keys without end": (2**60, b"", 0, b"", "keys in"),
    "a key's length": (1, struct.pack("<Q", 2**60), 0, b"", "a key has 1152921504606846976 bytes"),
    "a string's length": (1, _A + struct.pack("<IQ", 8, 2**60), 0, b"", "the file was cut, or its header is wrong"),
    "an array of strings": (1, _A + struct.pack("<IIQ", 9, 8, 2**60), 0, b"", "items in an array"),
    "an array of numbers": (1, _A + struct.pack("<IIQ", 9, 4, 2**60), 0, b"", "items in an array"),
    "arrays in arrays": (1, _A + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50, 0, b"", "nested too deeply"),
    "an unknown value": (1, _A + struct.pack("<I", 99), 0, b"", "a value of type 99"),
    "a key twice": (2, (_A + struct.pack("<II", 4, 1)) * 2, 0, b"", "the key 'a' occurs twice"),
    "an alignment": (1, _ALIGNMENT + struct.pack("<II", 4, 3), 0, b"", "its alignment is '3'"),
    "an alignment of zero": (1, _ALIGNMENT + struct.pack("<II", 4, 0), 0, b"", "its alignment is '0'"),
    "a name's length": (0, b"", 1, struct.pack("<Q", 2**40), "a tensor's name has"),
    "many axes": (0, b"", 1, _info((1,) * 5), "has 5 axes"),
    "an unknown type": (0, b"", 1, _info((2, 2), kind=999), "of the unknown type 999"),
    "a huge shape": (0, b"", 1, _info((2**40, 2**20)), "ends at byte"),
    "a far offset": (0, b"", 1, _info((2, 2), offset=2**60), "ends at byte"),
    "an odd offset": (0, b"", 1, _info((2, 2), offset=7), "is not aligned"),
    "half a block": (0, b"", 1, _info((33, 1), kind=8), "is not aligned"),
    "a tensor twice": (0, b"", 2, _info((2, 2)) * 2, "the tensor 'w' occurs twice"),
    "shared bytes": (0, b"", 2, _info((2, 2)) + _info((2, 2), name=b"v"), "share bytes"),
}


@pytest.mark.parametrize("name", LIES)
def test_lying_headers_are_refused(tmp_path: Path, name: str) -> None:
    n_keys, keys, n_tensors, tensors, message = LIES[name]
    refuses(message, lambda: _rows(_file(tmp_path / "x.gguf", n_keys, keys, n_tensors, tensors)))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.gguf"
    begin = b"GGUF\3\0\0\0"
    for head in (b"", begin, begin + struct.pack("<QQ", 1, 1), begin + struct.pack("<QQ", 1, 0)):
        path.write_bytes(head + data)
        with pytest.raises(uncone.UnconeError):
            uncone.open_rows(f"{path}#input")


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_mutated_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, changes, in_header: bool) -> None:
    x = gguf.quants.quantize(_random(4, 32), TYPES.Q8_0)
    tensors = {"token_embd.weight": (x, TYPES.Q8_0), "output.weight": (_random(4, 8), None)}
    path = _written(tmp_path_factory.mktemp("fuzz") / "x.gguf", tensors)
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[at % (400 if in_header else len(content))] = value
    path.write_bytes(content)
    for part in ("input", "head"):
        refused_or_read(f"{path}#{part}", most=8 * len(content))
