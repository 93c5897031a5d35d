"""GGUF files, written by the package gguf and read without believing them."""

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.matrices import equal
from uncone import InputError
from uncone.rows import GRID
from uncone.rows import gguf as module
from uncone.rows.bytes import LocalFile
from uncone.rows.gguf import TYPES as KNOWN
from uncone.rows.gguf import StringArray, gguf_rows, read_gguf, strings

from ..gguf_files import write_gguf

gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
TYPES = gguf.GGMLQuantizationType
DEQUANTISED = [
    kind
    for kind in TYPES
    if kind.value > 1 and kind.name not in ("I8", "I16", "I32", "I64", "F64", "BF16", "Q8_1", "Q8_K", "Q1_0")
]
TOKENS = ["<unk>", "<s>", "▁the", "\u202e", "Ġx"]


def _written(path: Path, tensors: dict[str, tuple[np.ndarray, object]], **options: Any) -> Path:
    arrays: dict[str, list[object]] = {"nested": [[1, 2], [3, 4]], "scores": [0.5] * 5}
    return write_gguf(path, tensors, tokens=TOKENS, arrays=arrays, **options)


def _random(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def _rows(path: Path, name: str = "w") -> uncone.Rows:
    source = LocalFile(path)
    return gguf_rows(source, read_gguf(source).tensors, name)


def _all(rows: uncone.Rows) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(rows.blocks())))


def test_the_types_are_those_of_the_package() -> None:
    known = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in TYPES}
    assert {value: known[value] for value in KNOWN if value in known} == {
        value: entry for value, entry in KNOWN.items() if value in known
    }
    assert set(known) <= set(KNOWN)


@pytest.mark.parametrize(("dtype", "name"), [("f8", "float64"), ("f4", "float32"), ("f2", "float16")])
def test_floats_are_read_as_they_are(tmp_path: Path, dtype: str, name: str) -> None:
    x = _random(GRID + 3, 4).astype(dtype)
    rows = _rows(_written(tmp_path / "x.gguf", {"bias": (np.ones(3, "f4"), None), "w": (x, None)}))
    assert (rows.shape, rows.dtype) == ((GRID + 3, 4), name)
    assert np.array_equal(_all(rows).numpy(), x.astype("f8" if dtype == "f8" else "f4"))


def test_bfloat16_is_read_as_it_is(tmp_path: Path) -> None:
    x = torch.from_numpy(_random(5, 4)).bfloat16()
    rows = _rows(_written(tmp_path / "x.gguf", {"w": (x.view(torch.uint8).numpy(), TYPES.BF16)}))
    assert rows.dtype == "bfloat16"
    assert equal(_all(rows), x.float())


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
    assert np.array_equal(_all(rows).numpy(), expected, equal_nan=True)
    assert np.array_equal(rows.read(5, 9), expected[5:9], equal_nan=True)


@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "Q4_0"])
def test_quantised_rows_are_near_what_was_quantised(tmp_path: Path, name: str) -> None:
    x, kind = _random(40, 64), TYPES[name]
    rows = _rows(_written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, kind), kind)}))
    step = np.abs(x).max() / {"Q8_0": 127, "Q5_1": 15, "Q4_0": 8}[name]
    assert np.abs(_all(rows).numpy() - x).max() <= step
    assert torch.isfinite(_all(rows)).all()


def test_the_header_is_what_was_written(tmp_path: Path) -> None:
    source = LocalFile(
        _written(tmp_path / "x.gguf", {"w": (_random(3, 2), None)}, alignment=64, keys={"llama.context_length": 7})
    )
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


def test_a_block_that_is_kept_never_changes(tmp_path: Path) -> None:
    x = _random(2 * GRID + 5, 32)
    rows = _rows(_written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, TYPES.Q8_0), TYPES.Q8_0)}))
    assert equal(np.concatenate(list(rows.blocks())), _all(rows))


def test_a_file_cut_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    x = _random(50, 32)
    path = _written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, TYPES.Q8_0), TYPES.Q8_0)})
    rows = _rows(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="the file was cut"):
        list(rows.blocks())


@pytest.mark.slow
def test_memory_stays_that_of_a_block(tmp_path: Path) -> None:
    """256 MiB of rows, dequantised: less than 64 MiB of anonymous memory more than before."""
    content = np.zeros((2**17, 16 * 34), np.uint8)
    path = _written(tmp_path / "x.gguf", {"w": (content, TYPES.Q8_0)})
    code = (
        "import sys, re, uncone, torch\n"
        "def anonymous(): return int(re.search(r'RssAnon:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024\n"
        "rows = uncone.open_rows(sys.argv[1]); before = anonymous(); most = 0\n"
        "for block in rows.blocks():\n"
        "    del block; most = max(most, anonymous() - before)\n"
        "print(most)"
    )
    done = subprocess.run([sys.executable, "-c", code, f"{path}#w"], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 64


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_the_package_is_needed_for_quantised_tensors_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x = _random(8, 32)
        path = _written(tmp_path / "x.gguf", {"w": (gguf.quants.quantize(x, TYPES.Q8_0), TYPES.Q8_0), "v": (x, None)})
        monkeypatch.setitem(sys.modules, "gguf", None)
        assert _rows(path, "v").shape == (8, 32)
        with pytest.raises(
            InputError, match=r"reading Q8_0 from .* needs the package gguf: pip install 'uncone\[gguf\]'"
        ):
            _rows(path)

    @pytest.mark.parametrize("name", ["Q8_1", "Q8_K"])
    def test_a_type_that_is_not_dequantised(self, tmp_path: Path, name: str) -> None:
        size = gguf.GGML_QUANT_SIZES[TYPES[name]][1]
        path = _written(tmp_path / "x.gguf", {"w": (np.zeros((2, size), np.uint8), TYPES[name])})
        with pytest.raises(
            InputError, match=f"the package gguf cannot dequantise {name} .*: install a newer one, or convert"
        ):
            _rows(path)

    def test_integers(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="or a quantised one, got I32 from"):
            _rows(_written(tmp_path / "x.gguf", {"w": (np.ones((2, 2), "i4"), None)}))

    def test_a_vector(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"expected a matrix of shape \(N, D\), got shape \(3,\)"):
            _rows(_written(tmp_path / "x.gguf", {"w": (np.ones(3, "f4"), None)}))

    def test_an_unknown_tensor(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no tensor 'token_embd' in .*: did you mean 'token_embd.weight'"):
            _rows(_written(tmp_path / "x.gguf", {"token_embd.weight": (_random(3, 2), None)}), "token_embd")

    @pytest.mark.parametrize("content", [b"", b"GGUF", b"GGML" + bytes(40)])
    def test_no_gguf(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(InputError, match=r"expected a GGUF file, got .* without its magic number"):
            _rows(tmp_path / "x.gguf")

    @pytest.mark.parametrize(
        ("version", "message"), [(1, "version 1"), (4, "version 4"), (3 << 24, "a big-endian file")]
    )
    def test_other_versions(self, tmp_path: Path, version: int, message: str) -> None:
        (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0) + bytes(40))
        with pytest.raises(InputError, match=f"expected little-endian GGUF of version 2 or 3, got {message}"):
            _rows(tmp_path / "x.gguf")


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _file(
    path: Path, *, keys: bytes = b"", n_keys: int = 0, tensors: bytes = b"", n_tensors: int = 0, rest: int = 64
) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + keys + tensors + bytes(rest))
    return path


def _info(axes: tuple[int, ...], kind: int = 0, offset: int = 0, name: bytes = b"w") -> bytes:
    return _text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def test_the_planted_header_is_read(tmp_path: Path) -> None:
    path = _file(tmp_path / "x.gguf", tensors=_info((2, 3)), n_tensors=1)
    assert _rows(path).shape == (3, 2)


_ARRAY = struct.pack("<I", 9)
LIES = {
    "tensors without end": ({"n_tensors": 2**60}, "1152921504606846976 tensors in"),
    "keys without end": ({"n_keys": 2**60}, "keys in"),
    "a key's length": ({"n_keys": 1, "keys": struct.pack("<Q", 2**60)}, "a key has 1152921504606846976 bytes"),
    "a string's length": (
        {"n_keys": 1, "keys": _text(b"a") + struct.pack("<IQ", 8, 2**60)},
        "the file was cut, or its header lies",
    ),
    "an array of strings": (
        {"n_keys": 1, "keys": _text(b"a") + _ARRAY + struct.pack("<IQ", 8, 2**60)},
        "items in an array",
    ),
    "an array of numbers": (
        {"n_keys": 1, "keys": _text(b"a") + _ARRAY + struct.pack("<IQ", 4, 2**60)},
        "items in an array",
    ),
    "arrays in arrays": (
        {"n_keys": 1, "keys": _text(b"a") + _ARRAY + struct.pack("<IQ", 9, 1) * 50},
        "arrays in arrays without end",
    ),
    "an unknown value": ({"n_keys": 1, "keys": _text(b"a") + struct.pack("<I", 99)}, "a value of type 99"),
    "a key twice": ({"n_keys": 2, "keys": (_text(b"a") + struct.pack("<II", 4, 1)) * 2}, "the key 'a' stands twice"),
    "an alignment": (
        {"n_keys": 1, "keys": _text(b"general.alignment") + struct.pack("<II", 4, 3)},
        "its alignment is '3'",
    ),
    "an alignment of zero": (
        {"n_keys": 1, "keys": _text(b"general.alignment") + struct.pack("<II", 4, 0)},
        "its alignment is '0'",
    ),
    "a name's length": ({"n_tensors": 1, "tensors": struct.pack("<Q", 2**40)}, "a tensor's name has"),
    "many axes": ({"n_tensors": 1, "tensors": _info((1,) * 5)}, "has 5 axes"),
    "an unknown type": ({"n_tensors": 1, "tensors": _info((2, 2), kind=999)}, "of the unknown type 999"),
    "a huge shape": ({"n_tensors": 1, "tensors": _info((2**40, 2**20))}, "ends at byte"),
    "a far offset": ({"n_tensors": 1, "tensors": _info((2, 2), offset=2**60)}, "ends at byte"),
    "an odd offset": ({"n_tensors": 1, "tensors": _info((2, 2), offset=7)}, "is not aligned"),
    "half a block": ({"n_tensors": 1, "tensors": _info((33, 1), kind=8)}, "is not aligned"),
    "a tensor twice": ({"n_tensors": 2, "tensors": _info((2, 2)) * 2}, "the tensor 'w' stands twice"),
    "shared bytes": ({"n_tensors": 2, "tensors": _info((2, 2)) + _info((2, 2), name=b"v")}, "share bytes"),
}


@pytest.mark.parametrize("name", LIES)
def test_lying_headers_are_refused(tmp_path: Path, name: str) -> None:
    header, message = LIES[name]
    with pytest.raises(InputError, match=message):
        _rows(_file(tmp_path / "x.gguf", **header))  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.gguf"
    for head in (
        b"",
        b"GGUF\3\0\0\0",
        b"GGUF\3\0\0\0" + struct.pack("<QQ", 1, 1),
        b"GGUF\3\0\0\0" + struct.pack("<QQ", 1, 0),
    ):
        path.write_bytes(head + data)
        with pytest.raises(uncone.UnconeError):
            uncone.open_rows(f"{path}#input")


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_mutated_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, changes, in_header: bool) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    x = gguf.quants.quantize(_random(4, 32), TYPES.Q8_0)
    path = _written(folder / "x.gguf", {"token_embd.weight": (x, TYPES.Q8_0), "output.weight": (_random(4, 8), None)})
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[at % (400 if in_header else len(content))] = value
    path.write_bytes(content)
    for part in ("input", "head"):
        try:
            rows = uncone.open_rows(f"{path}#{part}")
            assert rows.shape[0] * rows.shape[1] <= 8 * len(content)
            list(rows.blocks())
            assert rows.labels is None or len(rows.labels) == rows.shape[0]
        except uncone.UnconeError:
            pass
