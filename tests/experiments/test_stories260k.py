"""stories260K converted: the logits of run.c, the tokens of its tokenizer, English out of the real model."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

pytest.importorskip("transformers")
from tests import stories260k
from tests.stories260k import convert, run_c

SIZES = dict(zip(convert.NAMES, (16, 12, 2, 4, 2, 300, 16), strict=True))
TOKENS = [1, 5, 299, 7, 7, 120, 0, 44]


def _tensors(*, tied: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    found = {name: random.standard_normal(shape).astype("f4") for name, shape in convert.shapes(SIZES).items()}
    if tied:
        del found["output"]
    return found


def _pieces() -> list[bytes]:
    """What an export writes: three special tokens, the bytes, and words."""
    words = [b" ", b"a", b"b", b" a", b"ab", b" ab"] + [f" {index}".encode() for index in range(100)]
    special = [b"<unk>", b"\n<s>\n", b"\n</s>\n"]
    return (special + [f"<0x{byte:02X}>".encode() for byte in range(256)] + words)[:300]


def _planted(folder: Path, *, tied: bool) -> dict[str, np.ndarray]:
    """A model of random weights under the real one's name, its tokenizer beside it."""
    tensors = _tensors(tied=tied)
    numbers = [*SIZES.values()]
    numbers[5] *= 1 if tied else -1
    content = b"".join(tensors[name].tobytes() for name in tensors)
    (folder / "stories260K.bin").write_bytes(struct.pack("<7i", *numbers) + content)
    scored = (struct.pack("<fI", -float(index), len(piece)) + piece for index, piece in enumerate(_pieces()))
    (folder / "tok300.bin").write_bytes(struct.pack("<I", 8) + b"".join(scored))
    return tensors


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_run_c(tmp_path: Path, tied: bool) -> None:
    tensors = _planted(tmp_path, tied=tied)
    sizes, read = convert.read_model(tmp_path / "stories260K.bin")
    assert sizes == SIZES
    assert all(np.array_equal(read[name], tensors[name]) for name in tensors)
    with torch.no_grad():
        found = convert.to_model(sizes, read)(torch.tensor([TOKENS])).logits[0].double().numpy()
    expected = run_c.logits(SIZES, tensors, TOKENS)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_directory_opens_and_gives_text_back(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tensors = _planted(tmp_path, tied=False)
    convert.convert(tmp_path, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert (*ids, len(tokenizer)) == (1, 2, 0, 300)
    for text in ("ab a b", " ab", "hé\n\tworld  日本", "a"):
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    assert tokenizer("ab").input_ids == [1, 264]
    written = load_file(tmp_path / "out/model.safetensors")
    rows = written["model.layers.0.self_attn.k_proj.weight"].numpy()
    assert np.array_equal(rows, tensors["attention.wk"][0][[0, 2, 1, 3, 4, 6, 5, 7]])  # two heads of four
    assert np.array_equal(written["lm_head.weight"].numpy(), tensors["output"])


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    _planted(tmp_path, tied=True)
    readers = {"stories260K.bin": convert.read_model, "tok300.bin": lambda path: convert.read_tokenizer(path, 300)}
    for name, read in readers.items():
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + bytes(4))
        with pytest.raises(ValueError, match="expected "):
            read(tmp_path / name)


def test_the_real_model_tells_a_story(stories: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(stories), AutoModelForCausalLM.from_pretrained(stories)
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    told = tokenizer.decode(model.generate(**prompt, max_new_tokens=40, do_sample=False)[0], skip_special_tokens=True)
    assert told.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside")


def test_the_real_table_is_read_as_the_file_holds_it(stories: Path) -> None:
    from uncone.model.open import open_subjects

    subjects = open_subjects(stories)
    assert any("is tied to the token table" in note for note in subjects.notes)
    _, tensors = convert.read_model(stories260k.SOURCE / "stories260K.bin")
    for _, rows in subjects.rows:
        assert np.array_equal(rows.read(0, 512), tensors["tok_embeddings"])
        assert list(rows.labels or ())[:4] == ["<unk>", "<s>", "</s>", "<0x00>"]
        assert list(rows.labels or ())[403] == "▁Once"


@settings(max_examples=60)
@given(text=st.one_of(st.text(max_size=60), st.text("abehilmnotuOTL ,.\"'!", max_size=60)))
def test_tokens_are_those_of_run_c_and_give_the_text_back(stories: Path, text: str) -> None:
    from tokenizers import Tokenizer

    tokenizer, text = Tokenizer.from_file(str(stories / "tokenizer.json")), text.replace("▁", "_")
    found = tokenizer.encode(text).ids
    pieces, scores = convert.read_tokenizer(stories260k.SOURCE / "tok512.bin", 512)
    assert found == run_c.encode(text, pieces, scores)
    assert tokenizer.decode(found) == text
