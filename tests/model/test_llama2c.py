"""llama2.c files: headers that are believed only when the file is exactly as long, tensors in their order, tokens beside."""

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.model.llama2c import is_llama2c, open_llama2c
from uncone.model.llama2c_tokens import read_tokenizer
from uncone.model.open import open_subjects

from .llama2c_files import SIZES, STORIES, planted, some_tokens, tensors, write, write_tokenizer

V = SIZES["vocab_size"]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_is_read(tmp_path: Path, version: int, tied: bool) -> None:
    path, found = planted(tmp_path, tied=tied, version=version), tensors(SIZES, tied=tied)
    assert np.array_equal(uncone.open_rows(f"{path}#input").read(0, V).numpy(), found["tok_embeddings"])
    head = found["tok_embeddings"] if tied else found["output"]
    assert np.array_equal(uncone.open_rows(f"{path}#head").read(0, V).numpy(), head)
    for name, value in found.items():
        if value.ndim == 3:
            for layer in range(SIZES["n_layers"]):
                rows = uncone.open_rows(f"{path}#layers.{layer}.{name}.weight")
                assert np.array_equal(rows.read(0, rows.shape[0]).numpy(), value[layer])
    if version == 0:
        assert np.array_equal(uncone.open_rows(f"{path}#freqs_sin").read(0, 16).numpy(), found["freqs_sin"])


@pytest.mark.parametrize("tied", [True, False])
def test_subjects_are_table_and_head_with_their_tokens(tmp_path: Path, tied: bool) -> None:
    path = planted(tmp_path, tied=tied)
    for spec in (path, tmp_path, str(path)):
        found = open_subjects(spec)
        assert [name for name, _ in found.rows] == ["input", "head"]
        assert any("is tied to the token table" in note for note in found.notes) == tied
        for _, rows in found.rows:
            assert rows.labels is not None
            assert list(rows.labels[:5]) == ["<unk>", "<s>", "</s>", "<0x00>", "<0x01>"]
            assert list(rows.labels[259:263]) == ["▁", "a", "b", "▁a"]


def test_a_tensor_that_is_the_head_is_read_as_one(tmp_path: Path) -> None:
    path = planted(tmp_path, tied=False)
    for part, kind in (
        ("output.weight", "head"),
        ("tok_embeddings.weight", "input"),
        ("layers.1.attention.wo.weight", "rows"),
    ):
        assert [name for name, _ in open_subjects(f"{path}#{part}").rows] == [kind]


def test_the_tokenizer_of_that_size_comes_first(tmp_path: Path) -> None:
    path = planted(tmp_path)
    write_tokenizer(tmp_path / f"tok{V}.bin", [*some_tokens(V)[:-1], b" last"])
    assert uncone.open_rows(f"{path}#input").labels[-1] == "▁last"


def test_a_model_without_a_tokenizer_has_no_labels(tmp_path: Path) -> None:
    path = planted(tmp_path, tokens=False)
    assert uncone.open_rows(f"{path}#input").labels is None
    (tmp_path / "tokenizer.bin").write_bytes(b"broken")
    assert uncone.open_rows(f"{path}#input").labels is None


def test_earlier_exports_wrote_the_characters_of_bytes(tmp_path: Path) -> None:
    tokens = [
        chr(index - 3).encode() if 3 <= index < 259 else token for index, token in enumerate(some_tokens(V))
    ]
    found = read_tokenizer(write_tokenizer(tmp_path / "t.bin", tokens), V)
    assert list(found.pieces) == list(
        read_tokenizer(write_tokenizer(tmp_path / "u.bin", some_tokens(V)), V).pieces
    )


def test_bytes_that_are_no_text_are_told_and_single_ones_are_bytes(tmp_path: Path) -> None:
    """run.c reads and prints the bytes of a token as they are."""
    tokens = [bytes([index - 3]) if 3 <= index < 259 else token for index, token in enumerate(some_tokens(V))]
    found = read_tokenizer(write_tokenizer(tmp_path / "t.bin", tokens), V)
    assert list(found.pieces) == list(
        read_tokenizer(write_tokenizer(tmp_path / "u.bin", some_tokens(V)), V).pieces
    )
    assert not found.no_text
    tokens[270], tokens[299] = b"a\xff", b"\xe2\x96"
    found = read_tokenizer(write_tokenizer(tmp_path / "t.bin", tokens), V)
    assert (found.pieces[270], found.no_text) == ("a\ufffd", [270, 299])


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not beside the project")
def test_the_real_model_opens() -> None:
    found = open_subjects(STORIES)
    (_, table), (_, head) = found.rows
    assert (table.shape, head.shape) == ((512, 64), (512, 64))
    assert table.labels is not None
    assert list(table.labels[403:404]) == ["▁Once"]


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_a_cut_file(self, tmp_path: Path) -> None:
        path = planted(tmp_path)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(
            InputError,
            match=rf"expected {size} bytes for the llama2\.c model .*, got {size - 4}: the file was cut",
        ):
            uncone.open_rows(f"{path}#input")

    def test_a_long_file(self, tmp_path: Path) -> None:
        path = planted(tmp_path)
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(InputError, match="its header lies, or it is of another format"):
            uncone.open_rows(f"{path}#input")

    @pytest.mark.parametrize(
        "sizes", [{"n_layers": 4096}, {"vocab_size": 2**24}, {"hidden_dim": 2**24, "n_layers": 4096}]
    )
    def test_a_lying_header_allocates_nothing(self, tmp_path: Path, sizes: dict[str, int]) -> None:
        path = planted(tmp_path)
        path.write_bytes(struct.pack("<7i", *(SIZES | sizes).values()) + path.read_bytes()[28:])
        with pytest.raises(InputError, match="the file was cut"):
            uncone.open_rows(f"{path}#input")

    def test_a_quantised_model(self, tmp_path: Path) -> None:
        path = write(tmp_path / "m.bin", SIZES, tensors(SIZES), 2)
        with pytest.raises(
            InputError,
            match=r"version 0 or 1, got version 2 in .* \(quantised to int8, .*: export it in float32",
        ):
            uncone.open_rows(f"{path}#input")

    def test_another_version(self, tmp_path: Path) -> None:
        path = write(tmp_path / "m.bin", SIZES, tensors(SIZES), 9)
        with pytest.raises(InputError, match=r"got version 9 in .* \(unknown\)"):
            uncone.open_rows(f"{path}#input")

    def test_a_header_of_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "m.bin"
        path.write_bytes(struct.pack("<Ii7i", 0x616B3432, 1, *[0] * 7).ljust(300, b"\0"))
        with pytest.raises(
            InputError,
            match=r"expected a model of llama2\.c, got .*, whose header holds numbers that no model has: copy",
        ):
            uncone.open_rows(f"{path}#input")

    @pytest.mark.parametrize(
        "change",
        [
            {"n_heads": 3},
            {"n_kv_heads": 3},
            {"n_kv_heads": 8},
            {"dim": 0},
            {"n_heads": 16},
            {"seq_len": -1},
            {"dim": 2**30},
        ],
    )
    def test_numbers_that_no_model_has(self, tmp_path: Path, change: dict[str, int]) -> None:
        path = tmp_path / "m.bin"
        path.write_bytes(struct.pack("<7i", *(SIZES | change).values()) + bytes(1000))
        assert not is_llama2c(path)
        with pytest.raises(
            InputError, match=r"expected a \.bin file of torch\.save, of word2vec or of llama2\.c"
        ):
            uncone.open_rows(path)
        with pytest.raises(
            InputError, match="of another kind, or with a header of numbers that no model has: copy"
        ):
            open_llama2c(path)

    def test_an_unknown_tensor(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no tensor 'output\.weight' in"):
            uncone.open_rows(f"{planted(tmp_path)}#output.weight")

    def test_a_vector(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"expected a matrix of shape \(N, D\), got shape \(16,\)"):
            uncone.open_rows(f"{planted(tmp_path)}#norm.weight")

    def test_the_whole_model(self, tmp_path: Path) -> None:
        with pytest.raises(
            InputError,
            match=r"expected one matrix of the model .*, got the whole model: say .*model\.bin#input",
        ):
            uncone.open_rows(planted(tmp_path))

    def test_two_models_in_a_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "other.bin", SIZES, tensors(SIZES))
        planted(tmp_path)
        with pytest.raises(
            InputError,
            match=r"expected one model of llama2\.c in .*, got 2 \('model\.bin', 'other\.bin'\): give",
        ):
            open_subjects(tmp_path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "got 0 bytes"),
            (struct.pack("<I", 9) + bytes(8 * V - 8), "got 2396 bytes"),
            (struct.pack("<IfI", 9, 0, 2**31) + bytes(8 * V), "a token 0 of 2147483648 bytes"),
            (struct.pack("<I", 9) + bytes(8 * V + 1), "more tokens than that"),
            (struct.pack("<IfI", 9, 0, 8 * V - 8) + bytes(8 * V - 8), "ends after 1 tokens"),
        ],
    )
    def test_a_tokenizer_that_is_none(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "t.bin").write_bytes(content)
        with pytest.raises(
            InputError, match=rf"expected a llama2\.c tokenizer of {V} tokens in .*, got .*{message[4:]}"
        ):
            read_tokenizer(tmp_path / "t.bin", V)


@given(st.binary(max_size=200))
def test_random_tokenizers_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.bin"
    path.write_bytes(data)
    for n in (1, 3, 20):
        with contextlib.suppress(InputError):
            assert len(read_tokenizer(path, n).pieces) == n


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([0, 1]),
)
def test_mutated_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, changes, in_header: bool, version: int
) -> None:
    path = planted(tmp_path_factory.mktemp("fuzz"), version=version)
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[at % (40 if in_header else len(content))] = value
    path.write_bytes(content)
    for part in ("input", "head"):
        try:
            rows = uncone.open_rows(f"{path}#{part}")
            assert 4 * rows.shape[0] * rows.shape[1] <= len(content)
            list(rows.blocks())
            assert rows.labels is None or len(rows.labels) == rows.shape[0]
        except uncone.UnconeError:
            pass
