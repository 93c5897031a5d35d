"""to_hugging_face: the logits of run.c, the tokens of its tokenizer, English out of the real model; whole or not at all."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import uncone
from uncone import InputError, cli
from uncone.model import convert_llama2c
from uncone.model.llama2c_tokens import read_tokenizer

from .llama2c_files import (
    SIZES,
    STORIES,
    encode,
    logits,
    planted,
    read_slowly,
    some_tokens,
    tensors,
    write_tokenizer,
)

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside with her dog."
V = SIZES["vocab_size"]
needs_stories = pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not beside the project")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uncone.to_hugging_face(STORIES, tmp_path_factory.mktemp("stories") / "model")


def _logits(directory: Path, tokens: list[int]) -> np.ndarray:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


@pytest.mark.parametrize(("tied", "version"), [(True, 0), (False, 0), (True, 1), (False, 1)])
def test_logits_are_those_of_run_c(tmp_path: Path, tied: bool, version: int) -> None:
    out = uncone.to_hugging_face(planted(tmp_path, tied=tied, version=version), tmp_path / "out")
    tokens = [1, 5, 299, 7, 7, 120, 0, 44]
    expected = logits(SIZES, tensors(SIZES, tied=tied), tokens)
    assert np.abs(_logits(out, tokens) - expected).max() <= 1e-4 * np.abs(expected).max()


@needs_stories
def test_logits_of_the_real_model_on_real_text(stories: Path) -> None:
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(stories)(TEXT).input_ids
    sizes, found = read_slowly(STORIES / "stories260K.bin")
    assert np.abs(_logits(stories, tokens) - logits(sizes, found, tokens)).max() <= 1e-4


@needs_stories
def test_the_real_model_tells_a_story(stories: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(stories), AutoModelForCausalLM.from_pretrained(stories)
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    told = tokenizer.decode(
        model.generate(**prompt, max_new_tokens=40, do_sample=False)[0], skip_special_tokens=True
    )
    assert told.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside")


@needs_stories
def test_the_directory_and_the_file_are_diagnosed_alike(stories: Path) -> None:
    from uncone.model.open import open_subjects

    one, other = open_subjects(STORIES / "stories260K.bin"), open_subjects(stories)
    assert one.notes == other.notes
    for (name, rows), (same, others) in zip(one.rows, other.rows, strict=True):
        assert name == same
        assert torch.equal(rows.read(0, 512), others.read(0, 512))
        assert list(rows.labels or ()) == list(others.labels or ())


@needs_stories
@settings(max_examples=60)
@given(text=st.one_of(st.text(max_size=60), st.text("abehilmnotuOTL ,.\"'!", max_size=60)))
def test_tokens_are_those_of_run_c_and_give_the_text_back(stories: Path, text: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(stories / "tokenizer.json"))
    found = tokenizer.encode(text.replace("▁", "_")).ids
    real = read_tokenizer(STORIES / "tok512.bin", 512)
    pieces = [piece.replace("▁", " ").encode() for piece in real.pieces]
    assert found == encode(text.replace("▁", "_"), pieces, list(real.scores))
    assert tokenizer.decode(found) == text.replace("▁", "_")


def test_auto_tokenizer_opens_what_was_written_and_gives_text_back(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    out = uncone.to_hugging_face(planted(tmp_path), tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, len(tokenizer)) == (
        1,
        2,
        0,
        V,
    )
    for text in ("ab a b", " ab", "hé\n\tworld  日本", "a"):
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    assert tokenizer("ab").input_ids == [1, 264]


def test_the_files_are_those_of_a_llama(tmp_path: Path) -> None:
    out = uncone.to_hugging_face(planted(tmp_path, tied=False), tmp_path / "out")
    names = {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {file.name for file in out.iterdir()} == names
    config = json.loads((out / "config.json").read_text())
    assert (config["num_key_value_heads"], config["tie_word_embeddings"], config["vocab_size"]) == (
        2,
        False,
        V,
    )
    found, written = tensors(SIZES, tied=False), load_file(out / "model.safetensors")
    assert np.array_equal(written["model.layers.1.mlp.down_proj.weight"].numpy(), found["feed_forward.w2"][1])
    assert np.array_equal(written["lm_head.weight"].numpy(), found["output"])
    assert not any("freqs" in name for name in written)
    rows = written["model.layers.0.self_attn.k_proj.weight"].numpy()
    assert np.array_equal(
        rows, found["attention.wk"][0][[0, 2, 1, 3, 4, 6, 5, 7]]
    )  # two heads of four features


def test_a_tokenizer_of_another_name_is_taken(tmp_path: Path) -> None:
    path = planted(tmp_path)
    (tmp_path / "tokenizer.bin").rename(tmp_path / "mine.bin")
    assert uncone.to_hugging_face(path, tmp_path / "out", tokenizer=tmp_path / "mine.bin") == tmp_path / "out"


def test_the_command_writes_the_directory_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = planted(tmp_path), tmp_path / "out"
    cli.main(["convert", str(model), str(out)])
    assert capsys.readouterr().out == f"wrote {out}\n"
    for source, message in (
        (model, "expected a new folder"),
        (tmp_path, "expected a place outside the model"),
    ):
        with pytest.raises(SystemExit) as done:
            cli.main(["convert", str(source), str(out)])
        assert done.value.code == 1
        assert message in capsys.readouterr().err


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_no_tokenizer(self, tmp_path: Path) -> None:
        path = planted(tmp_path)
        (tmp_path / "tokenizer.bin").unlink()
        with pytest.raises(
            InputError, match=r"expected a tokenizer beside .*, tok300\.bin or tokenizer\.bin, got none: put"
        ):
            uncone.to_hugging_face(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("change", "score", "message"),
        [
            ({5: b"<0x01>"}, 0.0, "expected tokens that differ"),
            (
                {270: b"a\xff", 299: b"b\xff"},
                0.0,
                r"expected tokens of UTF-8 in .*, got 2 of other bytes, the first with id 270: tokenizer\.json holds text",
            ),
            ({1: b"begin"}, 0.0, "expected the tokens <unk>, <s>, </s> first"),
            ({299: b"x" * 2000}, 0.0, "expected tokens of at most 1024 characters"),
            ({}, float("nan"), "expected finite scores"),
        ],
    )
    def test_a_tokenizer_that_is_no_llama(
        self, tmp_path: Path, change: dict[int, bytes], score: float, message: str
    ) -> None:
        path = planted(tmp_path)
        tokens = [change.get(index, token) for index, token in enumerate(some_tokens(V))]
        write_tokenizer(tmp_path / "tokenizer.bin", tokens, [score] * V)
        with pytest.raises(InputError, match=message):
            uncone.to_hugging_face(path, tmp_path / "out")

    def test_a_folder_that_exists(self, tmp_path: Path) -> None:
        planted(tmp_path)
        with pytest.raises(InputError, match=r"expected a new folder, got .* which exists"):
            uncone.to_hugging_face(tmp_path, tmp_path)

    @pytest.mark.parametrize(
        ("name", "message"), [("nothing", "no file or folder"), ("empty", "without one: give the .bin file")]
    )
    def test_no_model(self, tmp_path: Path, name: str, message: str) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match=message):
            uncone.to_hugging_face(tmp_path / name, tmp_path / "out")

    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (b"the 0.1 0.2\nof 0.3 0.4\n", "text"),
            (b"PK\3\4" + bytes(300), r"a zip file, as numpy\.savez and torch\.save write"),
            (b"\x93NUMPY\1\0" + bytes(300), "a NumPy array"),
            (b"PAR1" + bytes(300), "a Parquet file"),
            ((10).to_bytes(8, "little") + b"{}" + bytes(300), "a safetensors file"),
            (b"", "an empty file"),
            (b"\xff" * 300, "a file of another kind, or with a header of numbers that no model has"),
        ],
    )
    def test_a_file_of_another_format(self, tmp_path: Path, content: bytes, kind: str) -> None:
        (tmp_path / "x").write_bytes(content)
        message = rf"expected a llama2\.c model, a \.bin file or the directory that holds one, got .*/x, {kind}: uncone converts nothing"
        with pytest.raises(InputError, match=message):
            uncone.to_hugging_face(tmp_path / "x", tmp_path / "out")

    def test_a_gguf_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.gguf").write_bytes(b"GGUF")
        with pytest.raises(InputError, match="transformers opens it itself, with gguf_file="):
            uncone.to_hugging_face(tmp_path / "x.gguf", tmp_path / "out")

    def test_an_interruption_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = planted(tmp_path)
        monkeypatch.setattr(convert_llama2c, "_tokenizer", lambda pieces: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            uncone.to_hugging_face(path, tmp_path / "out")
        assert sorted(os.listdir(tmp_path)) == ["model.bin", "tokenizer.bin"]
